"""Policy networks from Python: the same forward pass that controllers use, and an export to ONNX (extra `onnx`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quell.common.extras import install

try:
    import numpy as np
except ImportError as error:
    raise ImportError(f"policies need numpy: {install('envs')}") from error

from quell import _core
from quell._core import InputError
from quell.common import files, origin

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import nn

__all__ = ["Policy"]

_OPSET = 18
_ONNX = {"relu": "Relu", "leaky_relu": "LeakyRelu", "tanh": "Tanh", "softplus": "Softplus", "softmax": "Softmax"}
"""ONNX operators for the activations of a model card, which are defined as in torch."""
_TORCH = {
    "ReLU": "relu",
    "LeakyReLU": "leaky_relu",
    "Tanh": "tanh",
    "Softplus": "softplus",
    "Softmax": "softmax",
}
"""Activations of a model card, by the names of torch's modules."""
_IGNORED = ("Flatten", "Dropout", "Identity")
"""Modules that do not change a row of numbers in a trained network."""
_OPTIONS: dict[str, dict[str, Any]] = {"leaky_relu": {"alpha": 0.01}, "softmax": {"axis": -1}}


class Policy:
    """A small neural network of a controller, with its model card.

    >>> policy = quell.Policy.load("crates/quell-link/models/rl-aqm.safetensors")
    >>> policy([3.0, 0.9, 0.1])                             # delay in ms, utilisation, drop probability: raw
    >>> policy.to_onnx("rl-aqm.onnx")
    """

    def __init__(self, file: str, data: bytes, *, integers: bool = False) -> None:
        self._data = data
        self._core = _core.Policy(file, data, integers=integers)
        self.card: dict[str, Any] = json.loads(self._core.card)
        """The model card: description, inputs, outputs and origin."""

    @classmethod
    def load(cls, path: str | PathLike[str], *, integers: bool = False) -> Policy:
        """Read a policy file (safetensors with a model card; docs/how-to/environments.md has its form).

        `integers` rounds the weights of wide hidden layers to about 12 bits, like the option of the same name of
        queues.

        Raises InputError, one line that names the file and the tensor or key.
        """
        return cls(str(path), _core.read_file(path, "model"), integers=integers)

    @classmethod
    def from_torch(cls, module: nn.Module, card: Mapping[str, Any]) -> Policy:
        """Convert a multilayer perceptron trained with torch: an actor of stable-baselines3, of CleanRL or your own.

        `module` has `nn.Linear` layers with an activation after each hidden one (ReLU, LeakyReLU(0.01), Tanh,
        Softplus, Softmax); an actor in several parts is passed as `nn.Sequential(part, part)`. The last layer is the
        head. If `card["heads"]` has several heads, the last layers are heads, and each reads the last hidden layer.

        `card` has what the controller needs: `name`, `inputs` (names with units in order, or mappings with `name`,
        `offset` and `scale`; the first layer reads (x - offset) * scale) and `heads` (mappings with `name` and
        `outputs`). These keys can be taken from the card of a shipped network for the same queue:
        `{**Policy.load("rl-aqm.safetensors").card, "name": "mine"}`. Everything else has a default; `hidden` and the
        activations of the heads come from the module.

        >>> actor = nn.Sequential(model.policy.mlp_extractor.policy_net, model.policy.action_net)   # stable-baselines3
        >>> quell.Policy.from_torch(actor, card).save("mine.safetensors")
        >>> quell.compare("home", aqm=["rlaqm model mine.safetensors"])

        Raises InputError for a module that is not such a network, and for a card that does not fit it.
        """
        layers, activations = _perceptron(module)
        heads = [dict(head) for head in card.get("heads", [])]
        if not heads:
            raise InputError('model card: heads: missing; write [{"name": "action", "outputs": ["p"]}]')
        if len(layers) < len(heads):
            raise InputError(f"model card: heads: {len(heads)} of them, but the module has {len(layers)} linear layers")
        hidden = activations[: len(layers) - len(heads)]
        for head, activation in zip(heads, activations[len(hidden) :], strict=True):
            head["activation"] = activation
        whole: dict[str, Any] = {
            "what": "",
            "trained_on": "",
            "seed": 0,
            "results": {},
            **card,
            "format": 2,
            "quell": _core.__version__,
            "inputs": [{"name": i} if isinstance(i, str) else dict(i) for i in card.get("inputs", [])],
            "hidden": hidden,
            "heads": heads,
        }
        whole.setdefault("name", "from torch")
        # A card copied from another network has that network's origin.
        whole["origin"] = origin.of_this_machine(chosen_by=str(card.get("chosen_by", "")))
        whole.pop("chosen_by", None)
        data, _ = origin.sealed(lambda card: _core.policy_bytes(json.dumps(card), layers), whole)
        return cls(str(whole["name"]), data)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy file atomically.

        Raises InputError if it cannot be written.
        """
        files.check_target("save", Path(path))
        files.write_whole(Path(path), lambda part: part.write_bytes(self._data))

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return self._core.inputs

    @property
    def outputs(self) -> int:
        """Number of outputs: those of all heads, in the order of the card."""
        return self._core.outputs

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return self._core.parameters

    def __call__(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Compute the outputs, of shape (..., outputs), float32, for raw inputs of shape (..., inputs).

        Raises ValueError unless the last axis has `inputs` elements.
        """
        x = np.ascontiguousarray(inputs, np.float32)
        if x.ndim == 0 or x.shape[-1] != self.inputs:
            raise ValueError(f"inputs have the shape {x.shape}; the policy reads {self.inputs} numbers a row")
        y = np.empty((*x.shape[:-1], self.outputs), np.float32)
        self._core.forward(x, y)
        return y

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Copy the weights, named as in the file: `layers.0.weight` [outputs, inputs], `layers.0.bias`, and so on."""
        header, body = origin.split(self._data)

        def tensor(about: dict[str, Any]) -> NDArray[np.float32]:
            begin, end = about["data_offsets"]
            return np.frombuffer(body[begin:end], "<f4").astype(np.float32).reshape(about["shape"])

        own = ("layers.", "heads.")
        return {name: tensor(about) for name, about in header.items() if name.startswith(own)}

    def to_onnx(self, path: str | PathLike[str]) -> None:
        """Write an ONNX model: `inputs` [rows, inputs], raw; one output [rows, n] for each head, named as the head.

        The card is in the metadata under `quell`. The weights are those of the file, never rounded. Needs the extra
        `onnx`.

        Raises InputError if onnx is missing or the file cannot be written.
        """
        try:
            import onnx
        except ImportError:
            raise InputError(f"to_onnx needs onnx: {install('onnx')}") from None
        from onnx import TensorProto, helper, numpy_helper

        weights = self.tensors()
        for part, default in (("offset", 0.0), ("scale", 1.0)):
            weights[part] = np.array([i.get(part, default) for i in self.card["inputs"]], np.float32)
        nodes = [helper.make_node("Sub", ["inputs", "offset"], ["centred"])]
        nodes.append(helper.make_node("Mul", ["centred", "scale"], ["scaled"]))

        def layer(name: str, read: str, activation: str, write: str) -> None:
            linear = write if activation == "linear" else f"{name}.sum"
            affine = [read, f"{name}.weight", f"{name}.bias"]
            nodes.append(helper.make_node("Gemm", affine, [linear], transB=1))
            if activation != "linear":
                options = _OPTIONS.get(activation, {})
                nodes.append(helper.make_node(_ONNX[activation], [linear], [write], **options))

        seen = "scaled"
        for i, activation in enumerate(self.card["hidden"]):
            layer(f"layers.{i}", seen, activation, f"layers.{i}.out")
            seen = f"layers.{i}.out"
        for i, head in enumerate(self.card["heads"]):
            layer(f"heads.{i}", seen, head["activation"], head["name"])

        def rows(name: str, width: int) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width])

        graph = helper.make_graph(
            nodes,
            self.card["name"],
            [rows("inputs", self.inputs)],
            [rows(head["name"], len(head["outputs"])) for head in self.card["heads"]],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opset, producer_name="quell", ir_version=9)
        helper.set_model_props(model, {"quell": json.dumps(self.card)})
        onnx.checker.check_model(model)
        files.check_target("to_onnx", Path(path))
        files.write_whole(Path(path), lambda part: part.write_bytes(model.SerializeToString()))


def _perceptron(module: nn.Module) -> tuple[list[tuple[NDArray[np.float32], NDArray[np.float32]]], list[str]]:
    """Split a perceptron: weight and bias of each linear layer, and the activation after it."""
    layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    activations: list[str] = []
    for name, part in module.named_modules():
        if next(part.children(), None) is not None:
            continue
        kind = type(part).__name__
        where = f"module {name or 'given'} ({part})"
        if kind == "Linear":
            weight = part.weight.detach().cpu().numpy()
            bias = np.zeros(len(weight)) if part.bias is None else part.bias.detach().cpu().numpy()
            layers.append((np.ascontiguousarray(weight, np.float32), np.ascontiguousarray(bias, np.float32)))
            activations.append("linear")
        elif kind in _IGNORED:
            continue
        elif kind not in _TORCH:
            known = ", ".join(["Linear", *_TORCH, *_IGNORED[:2]])
            raise InputError(f"{where}: a policy cannot hold it; it can hold {known}")
        elif not layers or activations[-1] != "linear":
            raise InputError(f"{where}: an activation that does not follow a linear layer")
        elif (kind == "LeakyReLU" and part.negative_slope != 0.01) or (
            kind == "Softplus" and (part.beta, part.threshold) != (1, 20)
        ):
            raise InputError(f"{where}: a policy has it with torch's default parameters only")
        else:
            activations[-1] = _TORCH[kind]
    if not layers:
        raise InputError("the module has no linear layer")
    return layers, activations
