"""Policy networks from Python: the same forward pass that controllers use, and an export to ONNX (extra `onnx`)."""

from __future__ import annotations

import json
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
from quell.common import files

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Policy"]

_OPSET = 18
_ONNX = {"relu": "Relu", "leaky_relu": "LeakyRelu", "tanh": "Tanh", "softplus": "Softplus", "softmax": "Softmax"}
"""ONNX's operators for the activations of a model card, whose definitions are torch's."""
_OPTIONS: dict[str, dict[str, Any]] = {"leaky_relu": {"alpha": 0.01}, "softmax": {"axis": -1}}


class Policy:
    """A small neural network that a controller asks, with its model card.

    >>> policy = quell.Policy.load("models/rl-aqm.safetensors")
    >>> policy([3.0, 0.9, 0.1])                             # delay in ms, utilisation, drop probability: raw
    >>> policy.to_onnx("rl-aqm.onnx")
    """

    def __init__(self, file: str, data: bytes, *, integers: bool = False) -> None:
        self._data = data
        self._core = _core.Policy(file, data, integers=integers)
        self.card: dict[str, Any] = json.loads(self._core.card)
        """What it is, what it reads and gives, and where it came from."""

    @classmethod
    def load(cls, path: str | PathLike[str], *, integers: bool = False) -> Policy:
        """Read a policy file (safetensors with a model card; docs/how-to/environments.md has its form).

        `integers` rounds the weights of wide hidden layers to about 12 bits, as the option of queues that ask one.

        Raises InputError, one line that names the file and the tensor or key.
        """
        return cls(str(path), _core.read_file(path, "model"), integers=integers)

    @property
    def inputs(self) -> int:
        """How many numbers it reads."""
        return self._core.inputs

    @property
    def outputs(self) -> int:
        """How many numbers it gives: those of all heads, one after the other."""
        return self._core.outputs

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return self._core.parameters

    def __call__(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Answer raw inputs of shape (..., inputs) with outputs of shape (..., outputs), float32.

        Raises ValueError where the last axis is not `inputs` long.
        """
        x = np.ascontiguousarray(inputs, np.float32)
        if x.ndim == 0 or x.shape[-1] != self.inputs:
            raise ValueError(f"inputs have the shape {x.shape}; the policy reads {self.inputs} numbers a row")
        y = np.empty((*x.shape[:-1], self.outputs), np.float32)
        self._core.forward(x, y)
        return y

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Copy the weights as the file has them: `layers.0.weight` [outputs, inputs], `layers.0.bias`, and so on."""
        size = int.from_bytes(self._data[:8], "little")
        header = json.loads(self._data[8 : 8 + size])
        body = memoryview(self._data)[8 + size :]

        def tensor(about: dict[str, Any]) -> NDArray[np.float32]:
            begin, end = about["data_offsets"]
            return np.frombuffer(body[begin:end], "<f4").astype(np.float32).reshape(about["shape"])

        return {name: tensor(about) for name, about in header.items() if name != "__metadata__"}

    def to_onnx(self, path: str | PathLike[str]) -> None:
        """Write an ONNX model: `inputs` [rows, inputs], raw; one output [rows, n] for each head, named as the head.

        The card lies in the metadata under `quell`. The weights are those of the file, never rounded. Needs
        the extra `onnx`.

        Raises InputError where onnx is missing or the file cannot be written.
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
