"""The search: every setting runs once, better ones run again, all with the same seeds (docs/how-to/tune.md).

An evolutionary algorithm proposes settings. Most are crossings of two of the best so far with random steps in some
options; the others are drawn from the whole space. The disciplines share the budget: after each round the better half
of them is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from quell.experiments import experiment
from quell.experiments.executor import HERE, Executor
from quell.experiments.experiment import Job
from quell.results import stats
from quell.tune import space
from quell.tune.aims import Aims
from quell.tune.line import Line, Shaped
from quell.tune.space import Setting

_BATCH = 16
"""Settings of a generation, which are simulated together."""
_PARENTS = 8
"""Number of best settings of a discipline from which others are derived."""
_P_ANYWHERE, _P_STEP = 0.15, 0.4
"""Probability that a setting is drawn from the whole space, and that an option takes a step from its parent's value."""
_RUNGS = ((64, 2), (4, 4))
"""Successive halving after the search: 1 setting in 64, but at least 8, run with 2 further seeds; of these 1 in 4, at
least 8 again, with 4 more."""
_MIN_FINALISTS = 8
_STALE = 4
"""Batches with only known settings after which the search of a discipline ends."""

Shapes = tuple[Shaped, Shaped]
"""The queues down and up."""


@dataclass(frozen=True)
class Run:
    """One simulation: a line with these queues and a seed."""

    line: Line
    shapes: Shapes
    seed: int
    """Index among the seeds derived from the scenario's seed."""


@dataclass
class Bench:
    """Simulates runs, each of them once."""

    aims: Aims
    threads: int = 0
    on: Executor = HERE
    records: dict[tuple[int, Shapes, int], dict[str, Any]] = field(default_factory=dict)
    simulated: int = 0

    def run(self, runs: Iterable[Run], on_done: Callable[[int], object] = lambda _: None) -> None:
        """Simulate runs that are not done yet. Raises KeyboardInterrupt after keeping finished runs."""
        missing = list({self._key(run): run for run in runs if self._key(run) not in self.records}.values())
        work = []
        for run in missing:
            scenario, words = run.line.scenario(*run.shapes)
            work.append((scenario, Job(words, scenario.run_seed(run.seed))))

        def done(index: int, record: dict[str, Any]) -> None:
            # Only the judged parts of records are kept, since there are thousands.
            self.records[self._key(missing[index])] = {key: record.get(key) for key in _KEPT}
            self.simulated += 1
            on_done(self.simulated)

        experiment.stream(work, done, threads=self.threads, on=self.on)

    def record(self, run: Run) -> dict[str, Any] | None:
        """Return the record of a run; None if it was not finished."""
        return self.records.get(self._key(run))

    def value(self, run: Run) -> float | None:
        """Return the objective of a run; None if it was not finished."""
        record = self.record(run)
        return None if record is None else self.aims.objective(record, run.line)

    def mean(self, line: Line, shapes: Shapes, seeds: Iterable[int]) -> float | None:
        """Return the mean objective over the finished seeds."""
        values = [value for seed in seeds if (value := self.value(Run(line, shapes, seed))) is not None]
        return stats.mean(values) if values else None

    @staticmethod
    def _key(run: Run) -> tuple[int, Shapes, int]:
        return id(run.line), run.shapes, run.seed


_KEPT = (
    "applications", "capacity_mbps", "flows", "grade_ms", "hops", "hosts", "jain", "sojourn_ms", "up", "goodput_mbps",
)  # fmt: skip


def shapes(setting: Setting, line: Line) -> Shapes:
    """Return the queues of a setting on a line."""
    return setting.shaped(line, "down"), setting.shaped(line, "up")


@dataclass
class Found:
    """Results of the search."""

    scores: dict[Setting, float] = field(default_factory=dict)
    """Objective of each setting with the search's seed."""
    finalists: list[Setting] = field(default_factory=list)
    """The best settings after further seeds, best first."""
    interrupted: bool = False

    def best(self) -> tuple[Setting, float]:
        """Return the best setting so far and its objective."""
        return max(self.scores.items(), key=lambda item: item[1])

    def ranked(self, kind: str) -> list[tuple[Setting, float]]:
        """List a discipline's settings and their objectives, best first."""
        seen = (item for item in self.scores.items() if item[0].kind == kind)
        return sorted(seen, key=lambda item: item[1], reverse=True)


@dataclass(frozen=True)
class Plan:
    """Parameters of the search."""

    line: Line
    kinds: Sequence[str]
    trials: int
    """Number of settings."""
    seed: int
    """Seed of the proposals."""
    lacks: frozenset[str] = frozenset()
    """Options that stay at their defaults, and choices of options that are left out."""

    def propose(self, kind: str, parents: Sequence[Setting], rng: Random) -> Setting:
        """Draw a setting from the whole space, or cross two good ones and change some options."""
        options = space.options(kind)
        crossed = [dict(rng.choice(parents).values) for _ in range(2)]
        anywhere = rng.random() < _P_ANYWHERE
        values: dict[str, Any] = {}
        for option in options:
            value = rng.choice(crossed)[option.name]
            if option.name in self.lacks:
                value = option.default
            elif anywhere:
                value = option.anywhere(rng)
            elif rng.random() < _P_STEP:
                value = option.near(value, rng)
            values[option.name] = option.default if value in self.lacks else value
        return space.of(kind, values)


def search(bench: Bench, plan: Plan, on_best: Callable[[Found], object]) -> Found:
    """Search; Ctrl-C ends it early with `interrupted` set and the best so far."""
    found = Found()
    try:
        _rounds(bench, plan, found, on_best)
        _halve(bench, plan.line, found)
    except KeyboardInterrupt:
        found.interrupted = True
    if not found.finalists:
        found.finalists = sorted(found.scores, key=found.scores.__getitem__, reverse=True)[:_MIN_FINALISTS]
    return found


def _rounds(bench: Bench, plan: Plan, found: Found, on_best: Callable[[Found], object]) -> None:
    """Share the trials among the disciplines, and keep their better half after each round."""
    # Defaults come first, for comparison and as a result in case of an interruption.
    defaults = [space.default(kind) for kind in plan.kinds]
    _evaluate(bench, plan.line, defaults, found)
    records = (bench.record(Run(plan.line, shapes(setting, plan.line), 0)) for setting in defaults)
    bench.aims.check((record for record in records if record is not None), plan.line)
    on_best(found)
    rng = Random(plan.seed)
    alive = list(plan.kinds)
    rounds = max(1, math.ceil(math.log2(len(alive)))) + (len(alive) > 1)
    for number in range(rounds):
        left = plan.trials - len(found.scores)
        share = left // (rounds - number) // len(alive)
        for kind in alive:
            most = left if number == rounds - 1 and kind == alive[-1] else share
            most = max(0, min(most, plan.trials - len(found.scores)))
            _extend(bench, plan, kind, most, rng, found, on_best)
        alive.sort(key=lambda kind: found.ranked(kind)[0][1], reverse=True)
        alive = alive[: math.ceil(len(alive) / 2)]


def _extend(
    bench: Bench, plan: Plan, kind: str, count: int, rng: Random, found: Found, on_best: Callable[[Found], object]
) -> None:
    """Search `count` further settings of a discipline."""
    wanted = len(found.scores) + count
    starts = [s for s in space.starts(kind) if s not in found.scores and plan.lacks.isdisjoint(s.changed())]
    _evaluate(bench, plan.line, starts[:count], found)
    while len(found.scores) < wanted:
        new: dict[Setting, None] = {}
        parents = [setting for setting, _ in found.ranked(kind)[:_PARENTS]]
        for _ in range(_STALE * _BATCH):
            if len(new) == min(_BATCH, wanted - len(found.scores)):
                break
            setting = plan.propose(kind, parents, rng)
            if setting not in found.scores:
                new[setting] = None
        if not new:
            return
        _evaluate(bench, plan.line, new, found)
        on_best(found)


def _evaluate(bench: Bench, line: Line, settings: Iterable[Setting], found: Found) -> None:
    runs = [(setting, Run(line, shapes(setting, line), 0)) for setting in settings]
    try:
        bench.run(run for _, run in runs)
    finally:
        for setting, run in runs:
            if (value := bench.value(run)) is not None:
                found.scores[setting] = value


def _halve(bench: Bench, line: Line, found: Found) -> None:
    """Run ever fewer of the better settings with further seeds, since a single seed favours some by chance."""
    ranked = sorted(found.scores, key=found.scores.__getitem__, reverse=True)
    seeds = 1
    for divisor, more in _RUNGS:
        ranked = ranked[: max(_MIN_FINALISTS, len(ranked) // divisor)]
        bench.run(Run(line, shapes(s, line), seed) for s in ranked for seed in range(seeds, seeds + more))
        seeds += more
        means = {s: bench.mean(line, shapes(s, line), range(seeds)) or 0.0 for s in ranked}
        ranked.sort(key=means.__getitem__, reverse=True)
        found.finalists = ranked[:_MIN_FINALISTS]
