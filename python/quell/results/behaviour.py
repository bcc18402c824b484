"""Behaviour of a policy network: frequency of each action, effect of each input, and whether its output is constant."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal

from quell import _core
from quell._core import CoupledQueues, Scenario
from quell.common import origin

POINTS = 4096
"""Number of points over the ranges of the inputs: a regular grid for up to three inputs, else random points."""
TRIED = 4
"""Number of other values of an input that are tried at each point to measure its sensitivity."""
RANGES = {"delay_ms": (1.0, 200.0), "utilisation": (0.0, 1.0), "drop": (0.0, 0.5)}
"""Ranges of inputs whose scale does not give their range; below 1 ms RL-AQM's rules decide, not its network."""
PROBABILITIES = {*RANGES, "delay_before_ms", "log_delay", "log_delay_before", "load"}
"""Possible inputs of RL-AQM's networks of probabilities (crates/quell-qdisc/src/control/rlaqm.rs)."""
RULE_BELOW_MS = RANGES["delay_ms"][0]
MAX_TRIALS = 100_000
"""Largest number of other points at which sensitivities are measured."""
SAME = 1e-6
Observation = Literal["linear", "logarithmic", "published"]
OBSERVATIONS: tuple[Observation, ...] = ("linear", "logarithmic", "published")

Rows = list[tuple[float, ...]]


@dataclass(frozen=True)
class Behaviour:
    """Outputs of one head of a network."""

    head: str
    actions: dict[str, float] | None
    """Share of the points at which each action has the greatest output; None for a head with one output."""
    values: tuple[float, float, float] | None
    """Minimum, mean and maximum output of a head with one output."""
    sensitivity: dict[str, float]
    """By input: share of cases in which another value gives another action; for a head with one output, the change that
    another value causes, as a share of the output's range."""

    @property
    def constant(self) -> bool:
        """Whether the output is the same everywhere."""
        if self.actions is not None:
            return max(self.actions.values()) == 1.0
        assert self.values is not None
        least, mean, greatest = self.values
        return greatest - least <= SAME * max(1.0, abs(mean))


class Network:
    """A network with the names of its inputs and heads."""

    def __init__(self, file: str, data: bytes) -> None:
        self._core = _core.Policy(file, data)
        self.data = data
        self.card: dict[str, Any] = json.loads(self._core.card)
        self.names: list[str] = [i["name"] for i in self.card["inputs"]]

    def outputs(self, rows: Rows) -> list[tuple[float, ...]]:
        """Return the outputs of all heads for rows of raw inputs."""
        n = self._core.outputs
        out = array("f", bytes(4 * n * len(rows)))
        self._core.forward(array("f", [v for row in rows for v in row]), out)
        return [tuple(out[k * n : (k + 1) * n]) for k in range(len(rows))]

    def ranges(self) -> list[tuple[float, float]]:
        """Return the ranges of the inputs: `RANGES`, else 0 to 1 / scale, or 1 / scale to either side of an offset."""
        out = []
        for about in self.card["inputs"]:
            # The network ignores an input with scale 0.
            offset, width = about.get("offset", 0.0), 1 / (about.get("scale", 1.0) or 1.0)
            out.append(RANGES.get(about["name"], (offset - width if offset else 0.0, offset + width)))
        return out

    def heads(self) -> Iterator[tuple[str, list[str], slice]]:
        """List the heads: name, outputs, and their places in a row of outputs."""
        at = 0
        for head in self.card["heads"]:
            yield head["name"], head["outputs"], slice(at, at + len(head["outputs"]))
            at += len(head["outputs"])


def grid(network: Network) -> Rows:
    """Return points over the ranges of the inputs. A regular grid is denser at the lower ends."""
    ranges = network.ranges()
    if len(ranges) <= 3:
        each = round(POINTS ** (1 / len(ranges)))
        return [*product(*([a + (b - a) * (k / (each - 1)) ** 2 for k in range(each)] for a, b in ranges))]
    rng = random.Random(1)
    return [tuple(rng.uniform(*ends) for ends in ranges) for _ in range(POINTS)]


def over(network: Network, rows: Rows) -> list[Behaviour]:
    """Return the behaviour of each head at these points, with sensitivities over the ranges that the points span."""
    rng = random.Random(2)
    results = network.outputs(rows)
    few = rows[:: -(-len(rows) * len(network.names) * TRIED // MAX_TRIALS)]
    before = network.outputs(few)
    moved: list[list[list[tuple[float, ...]]]] = []
    for k, column in enumerate(zip(*rows, strict=True)):
        ends = min(column), max(column)
        tries = [[(*row[:k], rng.uniform(*ends), *row[k + 1 :]) for row in few] for _ in range(TRIED)]
        moved.append([network.outputs(other) for other in tries])
    out = []
    for name, outputs, part in network.heads():
        actions, values = None, None
        changed: Callable[[Sequence[float], Sequence[float]], float]
        if len(outputs) > 1:
            taken = [_argmax(result[part]) for result in results]
            actions = {action: taken.count(a) / len(taken) for a, action in enumerate(outputs)}
            changed = _other_action
        else:
            given = [result[part][0] for result in results]
            values = min(given), _mean(given), max(given)
            changed = partial(_distance, max(values[2] - values[0], SAME))
        sensitivity = {
            network.names[k]: _mean(
                [changed(new[part], old[part]) for other in tries for new, old in zip(other, before, strict=True)]
            )
            for k, tries in enumerate(moved)
        }
        out.append(Behaviour(name, actions, values, sensitivity))
    return out


def _other_action(new: Sequence[float], old: Sequence[float]) -> float:
    return float(_argmax(new) != _argmax(old))


def _distance(width: float, new: Sequence[float], old: Sequence[float]) -> float:
    return abs(new[0] - old[0]) / width


def _argmax(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# A recorded run. -----------------------------------------------------------------------------------------------------


def recorded(network: Network) -> tuple[str, Rows]:
    """Run the network's own task; return a description of it and the network's inputs at each evaluation.

    Both are empty for a network of an unknown task.
    """
    width = len(network.names)
    if network.names == ["delay_ms", "utilisation", "drop"]:
        return "the built-in scenario rl-aqm", network_inputs(Scenario("rl-aqm"), "rlaqm", model=network.data)
    if PROBABILITIES.issuperset(network.names):
        scenario = Scenario("rl-aqm")
        played = _core.episode(scenario, "rlaqm", scenario.run_seed(0), model=network.data)
        return "the built-in scenario rl-aqm", _rows(played.inputs, width)
    if width == len(_core.lfq_features()):
        return "100 flows of LFQ's training", _flows(network)
    for observation in OBSERVATIONS:
        if network.names == _core.a3c_readings(observation):
            return "the built-in scenario l4s", _coupled(observation, width)
    return "", []


def network_inputs(scenario: Scenario, queue: str, *, model: bytes | None = None) -> Rows:
    """Run RL-AQM; return the inputs of its network at decisions not made by a rule."""
    played = _core.episode(scenario, queue, scenario.run_seed(0), model=model)
    return [row for row in _rows(played.inputs, 3) if row[0] >= RULE_BELOW_MS]


def action_counts(scenario: Scenario, queue: str) -> dict[int, int]:
    """Run RL-AQM; count the actions of its network."""
    played = _core.episode(scenario, queue, scenario.run_seed(0))
    counts: dict[int, int] = {}
    for row, action in zip(_rows(played.inputs, 3), array("f", played.actions), strict=True):
        if row[0] >= RULE_BELOW_MS:
            counts[int(action)] = counts.get(int(action), 0) + 1
    return counts


def _rows(data: bytes | bytearray, width: int) -> Rows:
    values = array("f", bytes(data))
    return [tuple(values[k : k + width]) for k in range(0, len(values), width)]


def _flows(network: Network) -> Rows:
    header, body = origin.split(network.data)
    names = [f"layers.{k}" for k in range(len(network.card["hidden"]))] + ["heads.0"]
    weights = []
    for name in (f"{layer}.{part}" for layer in names for part in ("weight", "bias")):
        begin, end = header[name]["data_offsets"]
        weights.append(array("f", bytes(body[begin:end])))
    columns = _core.lfq_experiments(weights, 1, 100, 0.01)
    return [
        row
        for row, decided in zip(_rows(columns["features"], len(network.names)), columns["decided"], strict=True)
        if decided
    ]


def _coupled(observation: Observation, width: int) -> Rows:
    """Return readings of the sub-queues of `l4s` under its own law."""
    scenario = Scenario("l4s")
    queues = CoupledQueues([scenario], "l4s", [scenario.run_seed(0)], observation=observation)
    law = array("f", [-1.0] * queues.sub_queues).tobytes()
    rows: Rows = []
    for _ in range(POINTS):
        period = queues.step(law)
        in_use = [busy for busy, *_ in _rows(period.sub_queues, 3)]
        rows += [row for row, busy in zip(_rows(period.readings, width), in_use, strict=True) if busy]
        if len(rows) >= POINTS or array("f", period.queues)[2]:
            break
    return rows
