"""Writes the reference of the policy tests: a small network made by torch, and the outputs of torch and onnxruntime.

Run once, from the repository's root, in an environment with torch, onnx, onnxscript, onnxruntime and safetensors:

    python tools/policy_reference.py

Writes crates/quell-qdisc/tests/data/policy/{torch,expected}.safetensors. The weights of the second network, which has
LFQ's shape, are not stored: here and in tests/it/policy.rs they are hashes of their index.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from safetensors.numpy import save_file
from torch import nn

OUT = Path("crates/quell-qdisc/tests/data/policy")
ROWS = 20


class Heads(nn.Module):
    """A trunk with several heads, whose outputs are concatenated."""

    def __init__(self, trunk, heads):
        super().__init__()
        self.trunk, self.heads = trunk, nn.ModuleList(heads)

    def forward(self, x):
        h = self.trunk(x)
        return torch.cat([head(h) for head in self.heads], dim=-1)


def every_activation():
    """Return a network 5-70-33-20-9 with four heads.

    It covers all activations, whole and partial panels of 64 outputs, and an odd number of inputs.
    """
    trunk = nn.Sequential(
        *(nn.Linear(5, 70), nn.LeakyReLU()),
        *(nn.Linear(70, 33), nn.ReLU()),
        *(nn.Linear(33, 20), nn.Softplus()),
        *(nn.Linear(20, 9), nn.Tanh()),
    )
    heads = [
        nn.Sequential(nn.Linear(9, 3)),
        nn.Sequential(nn.Linear(9, 5), nn.Softmax(dim=-1)),
        nn.Sequential(nn.Linear(9, 10), nn.Tanh()),
        nn.Sequential(nn.Linear(9, 1), nn.Softplus()),
    ]
    return Heads(trunk, heads)


def tensors(net):
    """Return the tensors by their names in quell."""
    layers = [m for m in net.trunk if isinstance(m, nn.Linear)]
    named = [(f"layers.{i}", m) for i, m in enumerate(layers)] + [(f"heads.{i}", h[0]) for i, h in enumerate(net.heads)]
    return {
        f"{name}.{part}": getattr(m, part).detach().numpy().copy() for name, m in named for part in ("weight", "bias")
    }


def card(offset, scale):
    sizes = {"value": ("linear", 3), "action": ("softmax", 5), "mean": ("tanh", 10), "deviation": ("softplus", 1)}
    return {
        "format": 1,
        "name": "reference",
        "what": "every activation, with torch's first weights",
        "inputs": [
            {"name": f"x{i}", "offset": float(o), "scale": float(s)}
            for i, (o, s) in enumerate(zip(offset, scale, strict=True))
        ],
        "hidden": ["leaky_relu", "relu", "softplus", "tanh"],
        "heads": [
            {"name": name, "activation": activation, "outputs": [f"{name}{i}" for i in range(n)]}
            for name, (activation, n) in sizes.items()
        ],
        "trained_on": "nothing",
        "seed": 1,
        "quell": "0.1.0",
        "results": {"mean_ms": 2.27},
    }


def hashed(n, salt, bound):
    """Return n floats in [-bound, bound): the finaliser of MurmurHash3 of (salt << 24) + index, scaled."""
    x = np.arange(n, dtype=np.uint32) + np.uint32(salt << 24)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    return ((x >> np.uint32(8)).astype(np.float32) / np.float32(2**23) - np.float32(1)) * np.float32(bound)


def lfq_shape():
    """Return a network 60-256-256-256-1 with leaky ReLUs and a linear output."""
    net = nn.Sequential(nn.Linear(60, 256), nn.LeakyReLU(), nn.Linear(256, 256), nn.LeakyReLU())
    net.extend([nn.Linear(256, 256), nn.LeakyReLU(), nn.Linear(256, 1)])
    for i, m in enumerate(m for m in net if isinstance(m, nn.Linear)):
        m.weight.data = torch.from_numpy(hashed(m.weight.numel(), 2 * i + 1, 0.25).reshape(m.weight.shape))
        m.bias.data = torch.from_numpy(hashed(m.bias.numel(), 2 * i + 2, 0.25))
    return net


def outputs(net, x):
    """Return the outputs of torch and, through torch's export, of onnxruntime for x."""
    x = torch.from_numpy(x)
    with torch.no_grad():
        by_torch = net(x).numpy()
    model: Any = io.BytesIO()
    torch.onnx.export(net, (x,), model, input_names=["x"], dynamo=True)
    session = onnxruntime.InferenceSession(model.getvalue())
    (by_onnx,) = session.run(None, {"x": x.numpy()})
    assert np.all(np.abs(by_torch - by_onnx) <= 1e-5 * np.maximum(1, np.abs(by_torch)))
    return by_torch, by_onnx


def main():
    torch.manual_seed(1)
    draw = np.random.default_rng(1)
    OUT.mkdir(parents=True, exist_ok=True)

    net = every_activation().eval()
    offset = draw.uniform(-2, 2, 5).astype(np.float32)
    scale = draw.uniform(0.1, 3, 5).astype(np.float32)
    save_file(tensors(net), OUT / "torch.safetensors", metadata={"quell": json.dumps(card(offset, scale))})

    raw = draw.uniform(-5, 5, (ROWS, 5)).astype(np.float32)
    small = outputs(net, (raw - offset) * scale)
    x = draw.uniform(-1, 1, (ROWS, 60)).astype(np.float32)
    large = outputs(lfq_shape().eval(), x)
    expected = {"small.x": raw, "small.torch": small[0], "small.onnx": small[1]}
    expected |= {"lfq.x": x, "lfq.torch": large[0], "lfq.onnx": large[1]}
    save_file(expected, OUT / "expected.safetensors")
    print("largest outputs:", np.abs(small[0]).max(), np.abs(large[0]).max())


if __name__ == "__main__":
    main()
