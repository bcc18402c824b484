"""Runs over a grid of a scenario's keys, for `quell.sweep` and `quell sweep`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from quell import _core
from quell._core import InputError, Scenario
from quell.experiments import experiment
from quell.experiments.executor import HERE, Executor
from quell.experiments.queue import Parsed

MAX_RUNS = 100_000
"""Largest number of runs of a grid."""

Point = dict[str, Any]
"""One value for each key."""


class Swept(NamedTuple):
    """Results of a grid."""

    runs: list[tuple[Point, dict[str, Any]]]
    """The point and record of each finished run, by point, queue and seed."""
    total: int
    """Number of planned runs."""
    interrupted: bool


def points(over: Mapping[str, Sequence[Any]]) -> list[Point]:
    """List all combinations of the values, the last key changing first. Raises InputError."""
    for key, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InputError(
                f'over: {key}: {values!r} is not a list of values; write over={{"{key}": ["10mbit", "20mbit"]}}'
            )
    return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]


def parse(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read `link.rate=5mbit,50mbit`. Raises InputError."""
    over: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key and equals and values):
            raise InputError(f"--over: '{text}' is not a key with values; write --over link.rate=5mbit,50mbit")
        if key in over:
            raise InputError(f"--over: {key} is given twice; write --over {key}=A,B")
        over[key] = values.split(",")
    return over


def count(scenario: Scenario, over: Mapping[str, Sequence[Any]], queues: Sequence[Parsed]) -> int:
    """Count the runs of a grid. Raises InputError if they are too many."""
    total = math.prod(len(values) for values in over.values()) * max(1, len(queues)) * scenario.seeds
    if total > MAX_RUNS:
        raise InputError(f"over: {total} runs are more than {MAX_RUNS}; give fewer values or seeds")
    return total


def at(scenario: Scenario, point: Mapping[str, Any]) -> Scenario:
    """Return the scenario with a point's values: `link.rate` is the key `rate` of `[link]`. Raises InputError."""
    keys: dict[str, Any] = {}
    for path, value in point.items():
        *tables, last = path.split(".")
        place = keys
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = value
    return scenario.replace(**keys)


def run(
    scenario: Scenario,
    over: Mapping[str, Sequence[Any]],
    queues: Sequence[Parsed],
    *,
    threads: int = 0,
    on_done: Callable[[int], object] = lambda _: None,
    on: Executor = HERE,
) -> Swept:
    """Run every queue with every seed at every point. Ctrl-C ends it early and keeps the finished runs.

    Without `queues` each point runs its own queue. Raises InputError before the first run if a point is not a scenario.
    """
    combinations = points(over)
    count(scenario, over, queues)
    work = []
    for point in combinations:
        there = at(scenario, point)
        own = list(dict.fromkeys(queues)) or [_core.Queue(there.queue)]
        places: dict[Parsed | str, int] = {queue: place for place, queue in enumerate(own)}
        jobs = experiment.plan(there, own)
        work += [(point, there, job) for job in sorted(jobs, key=lambda job: places[job.queue])]
    kept: dict[int, dict[str, Any]] = {}

    def keep(index: int, record: dict[str, Any]) -> None:
        kept[index] = record
        on_done(len(kept))

    interrupted = False
    try:
        experiment.stream([(there, job) for _, there, job in work], keep, threads=threads, on=on)
    except KeyboardInterrupt:
        interrupted = True
    return Swept([(work[index][0], kept[index]) for index in sorted(kept)], len(work), interrupted)
