"""The search: every setting runs once, the better ones again, with the same seeds for all (docs/how-to/tune.md).

Optuna proposes (NSGA-II's evolution: of its samplers that take words as well as numbers the one whose proposals cost
less than the simulation; TPE's cost 10 to 20 ms each). The disciplines share the budget: after each round the better
half of them is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from quell._core import InputError
from quell.common.extras import install
from quell.experiments import experiment
from quell.experiments.executor import HERE, Executor
from quell.experiments.experiment import Job
from quell.results import stats
from quell.tune import space
from quell.tune.aims import Aims
from quell.tune.line import Line, Shaped
from quell.tune.space import Setting

if TYPE_CHECKING:
    from optuna import Study

_BATCH = 64
"""Settings that are simulated together: a generation."""
_RUNGS = ((64, 2), (4, 4))
"""Successive halving after the search: of 2,000 settings 1 in 64, but at least 8, run with 2 further seeds; of these 1
in 4, again at least 8, with 4 more."""
_LEAST = 8
_FRESH = _BATCH // 2
"""If fewer of a batch are new, the search starts again."""
_STALE = 4
"""Batches of nothing but known settings after which a discipline has been searched."""

Shapes = tuple[Shaped, Shaped]
"""What is in the way down and up."""


@dataclass(frozen=True)
class Run:
    """One simulation: a line with these queues and a seed."""

    line: Line
    shapes: Shapes
    seed: int
    """Which one of the seeds that derive from the scenario's."""


@dataclass
class Bench:
    """Where runs are simulated, each once."""

    aims: Aims
    threads: int = 0
    on: Executor = HERE
    records: dict[tuple[int, Shapes, int], dict[str, Any]] = field(default_factory=dict)
    simulated: int = 0

    def run(self, runs: Iterable[Run], on_done: Callable[[int], object] = lambda _: None) -> None:
        """Simulate what has not been. Raises KeyboardInterrupt after keeping what was finished."""
        missing = list({self._key(run): run for run in runs if self._key(run) not in self.records}.values())
        work = []
        for run in missing:
            scenario, words = run.line.scenario(*run.shapes)
            work.append((scenario, Job(words, scenario.run_seed(run.seed))))

        def done(index: int, record: dict[str, Any]) -> None:
            # Of a record only what is judged: thousands are kept.
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
        """Return the mean objective over the seeds that were finished."""
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
    """What the search has seen."""

    scores: dict[Setting, float] = field(default_factory=dict)
    """Of each setting the objective with the search's seed."""
    finalists: list[Setting] = field(default_factory=list)
    """The best, after further seeds, best first."""
    interrupted: bool = False

    def best(self) -> tuple[Setting, float]:
        """Return the best setting so far and its objective."""
        return max(self.scores.items(), key=lambda item: item[1])


def check() -> None:
    """Raise InputError where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise InputError(f"quell tune needs optuna: {install('tune')}")


@dataclass(frozen=True)
class Plan:
    """What to search."""

    line: Line
    kinds: Sequence[str]
    trials: int
    """Settings."""
    seed: int
    """Of the proposals."""
    lacks: frozenset[str] = frozenset()
    """Options that stay at their defaults."""

    def propose(self, study: Study, kind: str) -> tuple[Any, Setting]:
        """Return a trial of Optuna's and its setting."""
        trial = study.ask()
        values = {o.name: o.default if o.name in self.lacks else o.suggest(trial) for o in space.options(kind)}
        return trial, space.of(kind, values)


def search(bench: Bench, plan: Plan, on_best: Callable[[Found], object]) -> Found:
    """Search; Ctrl-C ends it early with `interrupted` set and the best so far."""
    found = Found()
    try:
        _rounds(bench, plan, found, on_best)
        _halve(bench, plan.line, found)
    except KeyboardInterrupt:
        found.interrupted = True
    if not found.finalists:
        found.finalists = sorted(found.scores, key=found.scores.__getitem__, reverse=True)[:_LEAST]
    return found


def _rounds(bench: Bench, plan: Plan, found: Found, on_best: Callable[[Found], object]) -> None:
    """Let the disciplines share the trials, the better half of them after each round."""
    # Defaults first: the search has something to beat, and an interruption something to give.
    _evaluate(bench, plan.line, [space.default(kind) for kind in plan.kinds], found)
    on_best(found)
    studies = {kind: _study(plan.seed) for kind in plan.kinds}
    alive = list(plan.kinds)
    rounds = max(1, math.ceil(math.log2(len(alive)))) + (len(alive) > 1)
    for number in range(rounds):
        left = plan.trials - len(found.scores)
        share = left // (rounds - number) // len(alive)
        for kind in alive:
            most = left if number == rounds - 1 and kind == alive[-1] else share
            most = min(most, plan.trials - len(found.scores))
            studies[kind] = _extend(bench, plan, kind, studies[kind], most, found, on_best)
        alive.sort(key=lambda kind: max(found.scores[s] for s in found.scores if s.kind == kind), reverse=True)
        alive = alive[: math.ceil(len(alive) / 2)]


def _study(seed: int) -> Study:
    # Slow to load: only who searches waits for it.
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.NSGAIISampler(seed=seed, population_size=_BATCH)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _extend(
    bench: Bench, plan: Plan, kind: str, study: Study, count: int, found: Found, on_best: Callable[[Found], object]
) -> Study:
    """Search `count` further settings of a discipline; return the study so far."""
    wanted, stale = len(found.scores) + count, 0
    while len(found.scores) < wanted and stale < _STALE:
        before = len(found.scores)
        asked: list[tuple[Any, Setting]] = []
        new: set[Setting] = set()
        # A proposal that is known costs nothing, and is no setting more.
        while len(asked) < _BATCH and len(found.scores) + len(new) < wanted:
            trial, setting = plan.propose(study, kind)
            asked.append((trial, setting))
            if setting not in found.scores:
                new.add(setting)
        _evaluate(bench, plan.line, new, found)
        for trial, setting in asked:
            study.tell(trial, found.scores[setting])
        stale = 0 if len(found.scores) > before else stale + 1
        if len(asked) == _BATCH and len(new) < _FRESH:
            # It has converged; and a proposal costs Optuna a walk through all trials of the study, known ones too.
            study = _study(plan.seed + len(found.scores))
        on_best(found)
    return study


def _evaluate(bench: Bench, line: Line, settings: Iterable[Setting], found: Found) -> None:
    runs = [(setting, Run(line, shapes(setting, line), 0)) for setting in settings]
    try:
        bench.run(run for _, run in runs)
    finally:
        for setting, run in runs:
            if (value := bench.value(run)) is not None:
                found.scores[setting] = value


def _halve(bench: Bench, line: Line, found: Found) -> None:
    """Give the better settings further seeds, fewer and fewer of them: one seed flatters some of thousands."""
    ranked = sorted(found.scores, key=found.scores.__getitem__, reverse=True)
    seeds = 1
    for divisor, more in _RUNGS:
        ranked = ranked[: max(_LEAST, len(ranked) // divisor)]
        bench.run(Run(line, shapes(s, line), seed) for s in ranked for seed in range(seeds, seeds + more))
        seeds += more
        means = {s: bench.mean(line, shapes(s, line), range(seeds)) or 0.0 for s in ranked}
        ranked.sort(key=means.__getitem__, reverse=True)
        found.finalists = ranked[:_LEAST]
