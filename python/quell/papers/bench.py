"""How a paper's module runs its experiments: over all cores, with a progress bar."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from quell import _core
from quell._core import InputError, Scenario
from quell.common.console import bar
from quell.experiments import experiment
from quell.experiments.executor import HERE, Executor
from quell.papers.claim import OPEN, Claim, estimate
from quell.papers.study import Study
from quell.results.stats import Record

K = TypeVar("K")
T = TypeVar("T")

LOOKS = (10, 20, 40, 80)
"""Runs of a setting after which its verdicts are checked; it stops once they are decided."""
SEEDS, QUICK_SEEDS = LOOKS[-1], 2


@dataclass(frozen=True)
class Sample(Generic[K]):
    """What a row is judged by: one value per seed, and the settings that they were measured in."""

    claim: str
    values: Sequence[float | None]
    cells: tuple[K, ...]


@dataclass(frozen=True)
class Run:
    """One run: scenario, queue words, and the number of its seed."""

    scenario: Scenario
    queue: str
    seed: int = 0
    """Number k of the run; the seed itself is derived from the scenario's."""
    bin_s: float | None = None
    """Width of the bins of a time series; None keeps none."""


@dataclass(frozen=True)
class Bench:
    """What a paper's module gets to measure with."""

    quick: bool = False
    """A smaller version for tests is wanted."""
    seeds: int = SEEDS
    """Most runs of a setting."""
    threads: int = 0
    """Cores; 0: all."""
    on: Executor = HERE
    """Where runs are simulated."""
    study: Study = field(default_factory=Study)
    """What the module measures, filled row by row: after Ctrl-C it has the rows that are complete."""

    def run(self, what: str, runs: Sequence[Run], reduce: Callable[[Record], T]) -> list[T]:
        """Simulate, and keep what `reduce` makes of each record, in the order of `runs`. `what` names the bar."""
        with bar(what, len(runs), "runs") as update:
            out = experiment.run_each(
                [(r.scenario, experiment.Job(r.queue, r.scenario.run_seed(r.seed), r.bin_s)) for r in runs],
                reduce,
                threads=self.threads,
                on=self.on,
                on_done=lambda done: update(done, ""),
            )
        return out

    @property
    def looks(self) -> list[int]:
        """Return the numbers of runs after which verdicts are checked."""
        return [*(look for look in LOOKS if look < self.seeds), min(self.seeds, LOOKS[-1])]

    @property
    def first(self) -> int:
        """Return the runs at the first look: as many as settings have that no verdict hangs on."""
        return self.looks[0]

    def seeds_of(
        self,
        what: str,
        settings: Mapping[K, tuple[Scenario, str]],
        reduce: Callable[[Record], T],
        *,
        bin_s: float | None = None,
        samples: Callable[[Mapping[K, list[T]]], Iterable[Sample[K]]] | None = None,
        claims: Iterable[Claim] = (),
    ) -> dict[K, list[T]]:
        """Simulate every setting, a scenario and queue words, with seeds; return the seeds' results by setting.

        `samples` says what rows of `claims` are judged by. Settings whose rows are open continue to the next look, the
        others stop; without it all stop at the first. So settings may have different numbers of results: those of
        equal index have equal seeds.
        """
        out: dict[K, list[T]] = {key: [] for key in settings}
        wanted: Iterable[K] = settings
        for look in self.looks:
            keys = [(key, seed) for key in wanted for seed in range(len(out[key]), look)]
            runs = [Run(*settings[key], seed, bin_s) for key, seed in keys]
            for (key, _), result in zip(keys, self.run(what, runs, reduce), strict=True):
                out[key].append(result)
            still = set() if samples is None else undecided(samples(out), claims)
            wanted = [key for key in settings if key in still]
            if not wanted:
                break
        return out


def undecided(samples: Iterable[Sample[K]], claims: Iterable[Claim]) -> set[K]:
    """Return the settings of rows whose verdict is open."""
    by_id = {claim.id: claim for claim in claims}
    return {
        cell
        for sample in samples
        if by_id[sample.claim].verdict(estimate(sample.values)) == OPEN
        for cell in sample.cells
    }


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean."""
    kept = list(values)
    return math.fsum(kept) / len(kept)


def missing_reason(words: str) -> str:
    """Return why these queue words are invalid here; empty if they are valid."""
    try:
        _core.queue(words)
    except InputError as error:
        return f"no queue `{words}` here: {error}"
    return ""


def is_known(words: str) -> bool:
    """Return whether these queue words are valid here."""
    return not missing_reason(words)
