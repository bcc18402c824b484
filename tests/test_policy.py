"""One network in three engines: quell's forward pass, torch's, and onnxruntime's on quell's export."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import quell
from conftest import ROOT
from quell.common.extras import install
from quell.policy import Policy

MODELS = sorted((ROOT / "crates/quell-link/models").glob("*.safetensors"))
ROWS = 203
HEADS = {
    "value": ("linear", 3),
    "action": ("softmax", 5),
    "mean": ("tanh", 10),
    "deviation": ("softplus", 1),
    "r": ("relu", 2),
}


def test_policies_do_not_need_gymnasium() -> None:
    program = "import sys, quell; quell.Policy.load(sys.argv[1]); assert 'gymnasium' not in sys.modules"
    subprocess.run([sys.executable, "-c", program, MODELS[0]], check=True, capture_output=True)


def write(path: Path, card: dict[str, Any], tensors: dict[str, NDArray[np.float32]]) -> Path:
    """Write safetensors by hand: a length, a header, the tensors."""
    header: dict[str, Any] = {"__metadata__": {"quell": json.dumps(card)}}
    at = 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))
    return path


def make(path: Path, seed: int, widths: list[int], hidden: list[str], heads: dict[str, tuple[str, int]]) -> Path:
    """Draw a network like torch: weights and biases within 1/sqrt(inputs)."""
    draw = np.random.default_rng(seed)
    card = {
        "format": 1,
        "name": "drawn",
        "what": "random weights",
        "inputs": [
            {
                "name": f"x{i}",
                "offset": float(np.float32(draw.uniform(-1, 1))),
                "scale": float(np.float32(draw.uniform(0.1, 2))),
            }
            for i in range(widths[0])
        ],
        "hidden": hidden,
        "heads": [
            {"name": name, "activation": kind, "outputs": [f"{name}{i}" for i in range(n)]}
            for name, (kind, n) in heads.items()
        ],
        "trained_on": "nothing",
        "seed": seed,
        "quell": "0.1.0",
        "results": {},
    }
    shapes = [(f"layers.{i}", a, b) for i, (a, b) in enumerate(pairwise(widths))]
    shapes += [(f"heads.{i}", widths[-1], n) for i, (_, n) in enumerate(heads.values())]
    tensors = {}
    for name, inputs, outputs in shapes:
        for part, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            tensors[f"{name}.{part}"] = (draw.uniform(-1, 1, shape) / inputs**0.5).astype(np.float32)
    return write(path, card, tensors)


@pytest.fixture(params=["every activation and head", "LFQ's shape", *[m.name for m in MODELS]])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two drawn networks, and every shipped one."""
    path = tmp_path / "drawn.safetensors"
    if request.param == "every activation and head":
        kinds = ["leaky_relu", "relu", "softplus", "tanh", "linear", "softmax"]
        return make(path, 1, [7, 70, 33, 20, 40, 33, 9], kinds, HEADS)
    if request.param == "LFQ's shape":
        return make(path, 2, [60, 256, 256, 256], ["leaky_relu"] * 3, {"limit": ("linear", 1)})
    return ROOT / "crates/quell-link/models" / str(request.param)


def inputs(policy: Policy) -> NDArray[np.float32]:
    """Draw raw inputs whose scaled values are of the order of 1."""
    card = policy.card["inputs"]
    scaled = np.random.default_rng(3).normal(0, 1.5, (ROWS, policy.inputs))
    raw = scaled / np.array([i["scale"] for i in card]) + np.array([i["offset"] for i in card])
    return np.asarray(raw, np.float32)


def assert_close(got: NDArray[np.float32], want: NDArray[np.float64]) -> None:
    """Check every number to 1e-5 * max(1, |y|)."""
    assert got.shape == want.shape
    assert (np.abs(got - want) <= 1e-5 * np.maximum(1, np.abs(want))).all(), np.abs(got - want).max()
    assert np.ptp(want, axis=0).max() > 0  # outputs depend on the inputs


def torch_answers(policy: Policy, raw: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute in torch's double precision; in single precision its rounding errors would add to quell's."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.nn import functional

    weights = {name: torch.from_numpy(array).double() for name, array in policy.tensors().items()}
    kinds: dict[str, Any] = {
        "linear": lambda x: x,
        "relu": functional.relu,
        "leaky_relu": functional.leaky_relu,
        "tanh": torch.tanh,
        "softplus": functional.softplus,
        "softmax": lambda x: functional.softmax(x, dim=-1),
    }
    card = policy.card
    # quell reads the card's numbers in single precision.
    offset, scale = (torch.tensor([i[part] for i in card["inputs"]]).double() for part in ("offset", "scale"))
    x = (torch.from_numpy(raw).double() - offset) * scale
    for i, kind in enumerate(card["hidden"]):
        x = kinds[kind](functional.linear(x, weights[f"layers.{i}.weight"], weights[f"layers.{i}.bias"]))
    heads = [
        kinds[head["activation"]](functional.linear(x, weights[f"heads.{i}.weight"], weights[f"heads.{i}.bias"]))
        for i, head in enumerate(card["heads"])
    ]
    return np.asarray(torch.cat(heads, dim=-1).numpy(), np.float64)


@pytest.mark.torch
def test_torch_answers_alike(file: Path) -> None:
    policy = Policy.load(file)
    raw = inputs(policy)
    assert_close(policy(raw), torch_answers(policy, raw))


@pytest.mark.torch
def test_onnxruntime_answers_alike(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    policy = Policy.load(file)
    policy.to_onnx(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    assert [o.name for o in session.get_outputs()] == [head["name"] for head in policy.card["heads"]]
    assert json.loads(session.get_modelmeta().custom_metadata_map["quell"]) == policy.card
    raw = inputs(policy)
    assert_close(np.concatenate(session.run(None, {"inputs": raw}), axis=-1), torch_answers(policy, raw))


def test_shapes_follow_the_inputs(tmp_path: Path) -> None:
    policy = quell.Policy.load(
        make(tmp_path / "p.safetensors", 1, [3, 8], ["relu"], {"a": ("linear", 2), "b": ("tanh", 2)})
    )
    assert (policy.inputs, policy.outputs, policy.parameters) == (3, 4, 4 * 8 + 2 * 9 * 2)
    one = policy([1, 2, 3])
    assert one.shape == (4,)
    many = policy(np.broadcast_to([1, 2, 3], (5, 11, 3)))
    assert many.shape == (5, 11, 4)
    assert (many == one).all()  # each row of a batch equals its single evaluation, bit for bit
    for wrong in (1.0, [1.0, 2.0], np.zeros((3, 4))):
        with pytest.raises(ValueError, match="the policy reads 3 numbers a row"):
            policy(wrong)


def test_integer_weights_give_nearly_the_same_outputs(tmp_path: Path) -> None:
    path = make(tmp_path / "p.safetensors", 2, [60, 256, 256, 256], ["leaky_relu"] * 3, {"limit": ("linear", 1)})
    exact, rounded = Policy.load(path), Policy.load(path, integers=True)
    raw = inputs(exact)
    difference = np.abs(exact(raw) - rounded(raw)).max()
    assert 0 < difference < 2e-3 * np.ptp(exact(raw))


def test_files_that_are_not_policies_are_reported_in_one_line(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole.safetensors", 1, [3, 8], ["relu"], {"a": ("linear", 2)})
    part = tmp_path / "part.safetensors"
    part.write_bytes(whole.read_bytes()[:-4])
    for path, message in ((part, "ends beyond the end of the file"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(quell.InputError, match=message) as caught:
            Policy.load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


def test_the_export_names_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy.load(make(tmp_path / "p.safetensors", 1, [3, 8], ["relu"], {"a": ("linear", 2)}))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(quell.InputError, match=re.escape(install("onnx"))):
        policy.to_onnx(tmp_path / "p.onnx")
    assert not (tmp_path / "p.onnx").exists()


# Agents trained with torch. -------------------------------------------------------------------------------------------

CARD = {
    "name": "mine",
    "inputs": ["a", {"name": "b", "offset": 1.0, "scale": 2.0}],
    "heads": [{"name": "y", "outputs": ["p", "q"]}],
}


@pytest.mark.torch
def test_a_module_of_torch_becomes_a_file_that_answers_alike(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    nn = torch.nn
    torch.manual_seed(1)
    body = nn.Sequential(nn.Flatten(), nn.Linear(2, 70), nn.Tanh(), nn.Linear(70, 9, bias=False), nn.LeakyReLU())
    module = nn.Sequential(body, nn.Linear(9, 2), nn.Softmax(-1)).eval()
    policy = Policy.from_torch(module, CARD)
    policy.save(tmp_path / "mine.safetensors")
    loaded = Policy.load(tmp_path / "mine.safetensors")
    raw = np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32)
    scaled = (raw - np.array([0, 1], np.float32)) * np.array([1, 2], np.float32)
    expected = module(torch.from_numpy(scaled)).detach().numpy()
    assert_close(loaded(raw), expected.astype(np.float64))
    card = loaded.card
    assert (card["format"], card["hidden"], card["heads"][0]["activation"]) == (2, ["tanh", "leaky_relu"], "softmax")
    assert card["origin"]["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert re.fullmatch("[0-9a-f]{64}", card["origin"]["weights_sha256"])
    assert card["origin"]["processor"]


@pytest.mark.torch
def test_an_agent_of_torch_is_a_queue() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    shipped = Policy.load(ROOT / "crates/quell-link/models/rl-aqm.safetensors")
    agent = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5))
    policy = Policy.from_torch(agent, {**shipped.card, "name": "mine", "what": "untrained"})
    assert policy.card["origin"]["weights_sha256"] != ""
    assert policy([[3.0, 0.9, 0.1]]).shape == (1, 5)


@pytest.mark.torch
def test_a_card_takes_over_what_gymnasiums_normaliser_has_learned() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")

    import quell.envs  # noqa: F401 (registers the environment)

    env = gymnasium.wrappers.NormalizeObservation(gymnasium.make("quell/RlAqm-v0"))
    env.reset(seed=1)
    for _ in range(50):
        env.step(1)
    env.update_running_mean = False
    agent = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5))
    card = Policy.load(ROOT / "crates/quell-link/models/rl-aqm.safetensors").card
    # As in docs/how-to/environments.md.
    seen, names = env.obs_rms, [reading["name"] for reading in card["inputs"]]
    scales = 1 / (seen.var + env.epsilon) ** 0.5
    inputs = [
        {"name": n, "offset": float(m), "scale": float(k)} for n, m, k in zip(names, seen.mean, scales, strict=True)
    ]
    policy = Policy.from_torch(agent, {**card, "inputs": inputs})
    normalised, *_ = env.step(1)
    raw = normalised / scales + seen.mean
    assert seen.mean[0] > 1
    expected = agent(torch.from_numpy(normalised).float()[None]).detach().numpy()
    np.testing.assert_allclose(policy(raw[None].astype(np.float32)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.torch
def test_a_module_that_is_not_a_perceptron_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    nn = torch.nn
    linear = nn.Linear(2, 2)
    for module, message in [
        (nn.Sequential(linear, nn.GELU()), r"module 1 \(GELU.*a policy cannot hold it; it can hold Linear, ReLU"),
        (nn.Sequential(nn.ReLU(), linear), "does not follow a linear layer"),
        (nn.Sequential(linear, nn.LeakyReLU(0.2), linear), "default parameters only"),
        (nn.ReLU(), "does not follow a linear layer"),
        (nn.Linear(3, 2), "heads.0: weight|heads.0.weight"),
        (nn.Linear(2, 3), "heads.0"),
    ]:
        with pytest.raises(quell.InputError, match=message):
            Policy.from_torch(module, CARD)
    with pytest.raises(quell.InputError, match="model card: heads: missing"):
        Policy.from_torch(linear, {"name": "x", "inputs": ["a", "b"]})
    with torch.no_grad():
        linear.weight[0, 0] = float("nan")
    with pytest.raises(quell.InputError, match="every number must be finite"):
        Policy.from_torch(linear, CARD)


def test_weights_that_are_not_those_of_the_card_are_reported(tmp_path: Path) -> None:
    from quell.common import origin

    path = make(tmp_path / "x.safetensors", 1, [2, 9, 9], ["relu", "relu"], {"y": ("linear", 1)})
    card = Policy.load(path).card | {"format": 2, "origin": origin.of_this_machine(threads=2, chosen_by="lot")}
    tensors = Policy.load(path).tensors()
    data, _ = origin.sealed(lambda card: write(path, dict(card), tensors).read_bytes(), card)
    said = subprocess.run(
        [sys.executable, "-m", "quell", "show", str(path)], capture_output=True, text=True, check=True
    )
    assert "2 threads" in said.stdout and "weights chosen by lot" in said.stdout and "(checked)" in said.stdout
    damaged = bytearray(data)
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    said = subprocess.run(
        [sys.executable, "-m", "quell", "show", str(path)], capture_output=True, text=True, check=False
    )
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1 and "origin.weights_sha256: the weights are not those" in said.stderr
