"""Small hand-written networks for `rlaqm`: policies of the paper's steps, and PI."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

from quell import _core

ACTIONS = ("drop +0", "drop +0.01", "drop -0.01", "drop +0.1", "drop -0.1")
READS = ("delay_ms", "utilisation", "drop")
PI = {0: (0.171, 1.87, 0.006), 100: (0.456, 0.371, 0.0078)}
"""Parameters of PI by size of the device's queue: gain per ms and period, reference in ms, damping per ms. They are
from an earlier search on other links, which `tools/rl_aqm.py pi` repeats."""
RULE = "always +0.1, the rule"
ZERO_WEIGHTS = ((0.0, 0.0, 0.0),) * 5


def _always(action: int) -> tuple[Sequence[Sequence[float]], Sequence[float]]:
    return ZERO_WEIGHTS, [float(k == action) for k in range(5)]


def _above(ms: float, otherwise: int) -> tuple[Sequence[Sequence[float]], Sequence[float]]:
    """Return a policy: +0.1 above a delay, another step below it."""
    weight = [(0.0, 0.0, 0.0)] * 5
    weight[3] = (1.0, 0.0, 0.0)
    return weight, [ms if k == otherwise else 0.0 if k == 3 else -1e6 for k in range(5)]


def _until(most: float) -> tuple[Sequence[Sequence[float]], Sequence[float]]:
    """Return a policy: +0.1 while p is below a bound, then +0."""
    weight = [(0.0, 0.0, 0.0)] * 5
    weight[0] = (0.0, 0.0, 1.0)
    return weight, [0.0, -1e6, -1e6, most - 0.05, -1e6]


STEPS: dict[str, tuple[Sequence[Sequence[float]], Sequence[float]]] = {
    RULE: _always(3),
    "always +0.01": _always(1),
    "+0.1 above 2 ms, else +0": _above(2, 0),
    "+0.1 above 2 ms, else +0.01": _above(2, 1),
    "+0.1 above 5 ms, else +0": _above(5, 0),
    "+0.1 while p < 0.3": _until(0.3),
    "+0.1 while p < 0.4": _until(0.4),
}
"""Weights and biases of a linear layer over delay in ms, utilisation and p, by name of the policy."""


def _card(name: str, what: str, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, Any]:
    return {
        "format": 1,
        "name": name,
        "what": what,
        "inputs": [{"name": n, "offset": 0.0, "scale": 1.0} for n in inputs],
        "hidden": [],
        "heads": [{"name": "action", "activation": "linear", "outputs": list(outputs)}],
        "trained_on": "nothing",
        "seed": 0,
        "quell": _core.__version__,
        "results": {},
    }


def _linear(card: dict[str, Any], weight: Sequence[float], bias: Sequence[float]) -> bytes:
    return _core.policy_bytes(json.dumps(card), [(array("f", weight), array("f", bias))])


def steps(weight: Any, bias: Any) -> bytes:
    """Return the policy file of a network of steps with one linear layer."""
    flat = [float(w) for row in weight for w in row]
    return _linear(_card("steps", "a policy of RL-AQM's steps", READS, ACTIONS), flat, [float(b) for b in bias])


def pi(gain: float, reference_ms: float, damping: float) -> bytes:
    """Return the policy file of PI: each period p += gain (D - reference) + damping (D - D before), 0 <= p <= 0.5.

    It has the utilisation as input only because the judge needs it.
    """
    names = ("delay_ms", "delay_before_ms", "drop", "utilisation")
    card = _card("pi", "PI on the queue's delay", names, ["drop"])
    return _linear(card, [gain + damping, -damping, 1.0, 0.0], [-gain * reference_ms])
