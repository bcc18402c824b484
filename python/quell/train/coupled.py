"""Training and evaluation of A3C-L4S: coupled queues in a closed loop, lookup tables of them, held-out sets."""

from __future__ import annotations

import json
import math
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from quell import _core
from quell._core import CoupledQueues, Scenario
from quell.experiments import experiment
from quell.experiments.executor import HERE, Executor
from quell.inputs.keys import Flow, Link
from quell.results.stats import Record

# Only learners need numpy; judging by the sets below, as in `quell reproduce`, does not.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float32]"
Flags: TypeAlias = "NDArray[np.bool_]"

PERIOD_S = 0.015
LAW = -1.0
"""A probability that leaves a sub-queue to its own law."""
MAX_MS = 100.0
"""Delay that counts as 1 in a reward, as do longer ones."""
QUEUE = "l4s"


@dataclass(frozen=True)
class Step:
    """Observation of a period of one queue: a row per sub-queue."""

    readings: Floats
    """(sub-queues, 12): the actor's inputs."""
    busy: Flags
    """(sub-queues,): whether it held or got packets; the actor acts only on these."""
    delay_ms: Floats
    """(sub-queues,)"""
    loss: Floats
    """(sub-queues,): share of the offered packets that was dropped."""
    utilisation: float
    over: bool


class Environment(Protocol):
    """A queue, one per episode."""

    def begin(self, number: int) -> Step:
        """Begin episode `number`, which depends only on that number, the worker and the seed."""

    def step(self, probabilities: Floats) -> Step:
        """Set p' of every sub-queue and advance by a period."""


@dataclass(frozen=True)
class Ranges:
    """Ranges of the random values of episodes; rate and round trip are log-uniform."""

    mbps: tuple[float, float] = (1.0, 100.0)
    rtt_ms: tuple[float, float] = (10.0, 100.0)
    flows: tuple[int, int] = (1, 20)


PAPER = Ranges((10.0, 10.0), (20.0, 20.0), (2, 2))
"""The paper's second testbed: 10 Mbit/s, 20 ms, two flows in each direction."""


def router(mbps: float, rtt_ms: float, flows: int, *, both_ways: bool, duration_s: float) -> Scenario:
    """Make a link with this many flows, alternately CUBIC and Prague, in one direction or in each."""
    half_us = round(500 * rtt_ms)
    senders: tuple[Flow, ...] = ({"cc": "cubic", "count": (flows + 1) // 2}, {"cc": "prague", "count": flows // 2})
    down: list[Flow] = [{**s, "rtt": f"{2 * half_us}us", "stagger": "1s"} for s in senders if s["count"]]
    link: Link = {"rate": f"{round(mbps * 1e6)}bit", "queue": QUEUE, "delay": f"{half_us}us"}
    tables = list(down)
    if both_ways:
        link["up"] = {"queue": QUEUE}
        tables += [{**flow, "direction": "up"} for flow in down]
    return Scenario.from_keys(
        name="coupled", duration=f"{duration_s}s", warmup=f"{duration_s / 4}s", link=link, flow=tables
    )


def _rows(data: bytes, width: int) -> Floats:
    """Read rows of float32 numbers."""
    import numpy as np

    return np.frombuffer(data, np.float32).reshape(-1, width)


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    """Draw a log-uniform number."""
    return float(low * (high / low) ** rng.random())


def _world(scenario: Scenario, seed: int, port: int, *, published: bool) -> CoupledQueues:
    observation: Literal["linear", "published"] = "published" if published else "linear"
    return CoupledQueues([scenario], QUEUE, [seed], observation=observation, port=port, period_s=PERIOD_S)


def _advance(world: CoupledQueues, probabilities: Floats) -> Step:
    """Advance one world by a period."""
    period = world.step(probabilities.astype("float32").tobytes())
    busy, delay_ms, loss = _rows(period.sub_queues, 3).T
    ((utilisation, _, over),) = _rows(period.queues, 3)
    return Step(_rows(period.readings, 12), busy > 0, delay_ms, loss, min(float(utilisation), 1.0), over > 0)


class Loop:
    """The closed loop: two routers, each with a queue in both directions; worker k has the k-th of these four queues.

    A router's link, round trip and flows are drawn for each episode. Before it, the queue's own law runs for one to
    three seconds; the queue in the other direction always keeps its own law.
    """

    def __init__(self, seed: int, worker: int, ranges: Ranges, steps: int, *, published: bool = False) -> None:
        self._seed, self._worker = seed, worker
        self._ranges, self._steps, self._published = ranges, steps, published
        self._world: CoupledQueues
        self._drops: Floats

    def begin(self, number: int) -> Step:
        """Start an episode in a new world."""
        import numpy as np

        rng = random.Random(f"{self._seed} {number} {self._worker // 2}")
        mbps, rtt_ms = log_uniform(rng, *self._ranges.mbps), log_uniform(rng, *self._ranges.rtt_ms)
        flows, before = rng.randint(*self._ranges.flows), rng.uniform(1.0, 3.0)
        duration = before + (self._steps + 2) * PERIOD_S
        scenario = router(mbps, rtt_ms, flows, both_ways=True, duration_s=duration)
        self._world = _world(scenario, rng.getrandbits(48), self._worker % 2, published=self._published)
        law = np.full(self._world.sub_queues, LAW, np.float32)
        while True:
            step = _advance(self._world, law)
            if self._world.now_s[0] >= before:
                return step

    def step(self, probabilities: Floats) -> Step:
        """Advance by 15 ms."""
        return _advance(self._world, probabilities)


@dataclass(frozen=True)
class Trace:
    """Readings of one sub-queue under its own law, by period."""

    readings: Floats
    delay_ms: Floats
    loss: Floats
    utilisation: Floats


def record(seed: int, worker: int, *, published: bool, duration_s: float = 75.0) -> Trace:
    """Record the sub-queue with the longest delays in worker k's queue, under its own law, in the second testbed.

    Only classic sub-queues are considered. A second one is as busy, but with the ACKs of the other direction.
    """
    import numpy as np

    ranges = PAPER
    scenario = router(ranges.mbps[0], ranges.rtt_ms[0], ranges.flows[0], both_ways=True, duration_s=duration_s)
    world = _world(scenario, seed * 1009 + worker // 2, worker % 2, published=published)
    law = np.full(world.sub_queues, LAW, np.float32)
    steps = [_advance(world, law)]
    while not steps[-1].over:
        steps.append(_advance(world, law))
    seen = np.stack([step.readings for step in steps])
    delays, losses = (np.stack([getattr(step, name) for step in steps]) for name in ("delay_ms", "loss"))
    pick = int(delays[:, : seen.shape[1] // 2].sum(axis=0).argmax())
    uses = np.array([step.utilisation for step in steps], np.float32)
    return Trace(seen[:, pick], delays[:, pick], losses[:, pick], uses)


class Lookup:
    """The published environment: a table instead of a queue. The next state is the row with the nearest probability.

    An agent's actions do not change the table. The tables are recorded from quell's own queues, one per worker.
    """

    def __init__(self, seed: int, worker: int, trace: Trace) -> None:
        import numpy as np

        self._seed, self._worker, self._trace = seed, worker, trace
        self._probability = trace.readings[:, 1]
        self._busy: Flags = np.ones(1, np.bool_)

    def begin(self, number: int) -> Step:
        """Begin an episode at a row drawn at random."""
        rng = random.Random(f"{self._seed} {number} {self._worker}")
        return self._at(rng.randrange(len(self._probability)))

    def step(self, probabilities: Floats) -> Step:
        """Return the row with the probability nearest to the action."""
        return self._at(int(abs(self._probability - probabilities[0]).argmin()))

    def _at(self, row: int) -> Step:
        t = self._trace
        one = slice(row, row + 1)
        return Step(t.readings[one], self._busy, t.delay_ms[one], t.loss[one], float(t.utilisation[row]), False)


# Sets of scenarios to judge by. --------------------------------------------------------------------------------------

Setting = tuple[float, float, int]
"""Mbit/s, round trip in ms, flows."""


def _drawn(name: str, most_flows: int, count: int = 36) -> list[Setting]:
    """Draw scenarios: rate and round trip log-uniformly, as in training, with a name as seed."""
    rng = random.Random(name)
    return [
        (round(log_uniform(rng, 1, 100), 1), round(log_uniform(rng, 10, 100)), rng.randint(1, most_flows))
        for _ in range(count)
    ]


HELD_OUT = _drawn("held out, drawn once", 20)
"""Scenarios with which neither initial weights nor a network were chosen."""
FEW_FLOWS = _drawn("few flows, drawn once", 4)
"""Harder scenarios, with which nothing was chosen either: a single one of few flows can leave the link idle."""
NEW = _drawn("new, drawn once", 20, 72)
"""Scenarios drawn after the choice of the first shipped network, with which nothing was chosen either."""
GRID: list[Setting] = [(mbps, rtt, flows) for mbps in (1, 4, 16, 100) for rtt in (10, 30, 100) for flows in (1, 4, 20)]
"""The slope of the hand-written initial weights, and the previously shipped network, were chosen with this set."""
VALIDATION: list[Setting] = [(m, r, n) for m in (2, 8, 50) for r in (20, 60) for n in (1, 2, 10)]
"""Set with which the paper's procedure chooses its network."""
CHOICE = [*_drawn("val A", 20, 24), *_drawn("val F", 4, 12)]
"""Set with which a training in many worlds chooses its network."""
HELD_OUT_S = 20.0
FIRST_SEEDS = {"held out": 950_001, "few flows": 960_001, "grid": 900_001, "new": 980_001, "choice": 970_001}
"""No training episode has these seeds."""
SETS = {"held out": HELD_OUT, "few flows": FEW_FLOWS, "grid": GRID, "new": NEW}


@dataclass(frozen=True)
class Outcome:
    """Results of one run of a scenario of a set."""

    mean_ms: float
    p99_ms: float
    mbps: float
    loss: float


def _outcome(record: Record) -> Outcome:
    sojourn = record["sojourn_ms"]
    return Outcome(sojourn["mean"], sojourn["p99"], record["throughput_mbps"], record["loss_rate"])


def held_out(
    queues: Sequence[str],
    *,
    settings: Sequence[Setting] = tuple(HELD_OUT),
    seeds: int = 1,
    duration_s: float = HELD_OUT_S,
    first_seed: int = FIRST_SEEDS["held out"],
    threads: int = 0,
    on: Executor = HERE,
) -> dict[str, list[list[Outcome]]]:
    """Run queues over a set of scenarios; return outcomes by queue, setting and seed."""
    jobs = []
    for queue in queues:
        for mbps, rtt, flows in settings:
            scenario = router(mbps, rtt, flows, both_ways=False, duration_s=duration_s)
            jobs += [(scenario, experiment.Job(queue, first_seed + seed, None)) for seed in range(seeds)]
    out = experiment.run_each(jobs, _outcome, threads=threads, on=on)
    cells = [out[k : k + seeds] for k in range(0, len(out), seeds)]
    n = len(settings)
    return {queue: cells[k * n : (k + 1) * n] for k, queue in enumerate(queues)}


def versus(mine: Sequence[Sequence[Outcome]], law: Sequence[Sequence[Outcome]]) -> dict[str, float]:
    """Compare by setting: geometric means of the ratios, worst throughput, number of settings that meet all three aims.

    In `throughput_cut` a ratio above 1 counts as 1, so that more throughput in one setting does not offset less in
    another.
    """

    def mean(cell: Sequence[Outcome], name: str) -> float:
        return math.fsum(getattr(o, name) for o in cell) / len(cell)

    rows = [
        [mean(a, name) / max(mean(b, name), 1e-9) for name in ("mean_ms", "p99_ms", "mbps")]
        for a, b in zip(mine, law, strict=True)
    ]
    by_factor = [math.exp(math.fsum(math.log(max(r[k], 1e-9)) for r in rows) / len(rows)) for k in range(3)]
    cut = math.exp(math.fsum(math.log(min(1.0, max(r[2], 1e-9))) for r in rows) / len(rows))
    met = sum(r[0] < 1 and r[1] < 1 and r[2] >= 0.98 for r in rows)
    return {
        "mean_delay": by_factor[0],
        "p99_delay": by_factor[1],
        "throughput": by_factor[2],
        "throughput_cut": cut,
        "least_throughput": min(r[2] for r in rows),
        "met": met,
        "settings": len(rows),
    }


def readings(*, published: bool) -> list[tuple[str, float]]:
    """Return the names of an actor's inputs, in order, with their maxima."""
    if published:
        return [(name, math.inf) for name in _core.a3c_readings("published")]
    return list(zip(_core.a3c_readings("linear"), _core.a3c_maxima(), strict=True))


def constant(p: float) -> bytes:
    """Return the policy file of a network with the constant output p', for sweeps of a constant."""
    names = [name for name, _ in readings(published=False)]
    card = {
        "format": 1,
        "name": "constant",
        "what": f"p' {p:g}",
        "inputs": [{"name": n, "offset": 0.5 * (n == "drop_prob"), "scale": 1 + (n == "drop_prob")} for n in names],
        "hidden": [],
        "heads": [{"name": n, "activation": "linear", "outputs": [n]} for n in ("mean", "spread")],
        "trained_on": "nothing",
        "seed": 0,
        "quell": _core.__version__,
        "results": {},
    }
    weights = array("f", bytes(4 * len(names)))
    layers = [(weights, array("f", [bias])) for bias in (2 * p - 1, 0.0)]
    return _core.policy_bytes(json.dumps(card), layers)
