"""Runs the experiments of a paper's module on all cores, with a progress bar."""

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
"""Numbers of runs after which a setting's verdicts are checked; it stops once they are decided."""
SEEDS, QUICK_SEEDS = LOOKS[-1], 2


@dataclass(frozen=True)
class Sample(Generic[K]):
    """Data for the verdict on a row: one value per seed, and the settings in which they were measured."""

    claim: str
    values: Sequence[float | None]
    cells: tuple[K, ...]


@dataclass(frozen=True)
class Run:
    """A run: scenario, queue words, and the number of its seed."""

    scenario: Scenario
    queue: str
    seed: int = 0
    """Number k of the run; its seed is derived from the scenario's."""
    bin_s: float | None = None
    """Width of the bins of a time series; None keeps none."""


@dataclass(frozen=True)
class Bench:
    """Executor, number of seeds and results of a measurement by a paper's module."""

    quick: bool = False
    """Whether to run a smaller version for tests."""
    seeds: int = SEEDS
    """Largest number of runs of a setting."""
    threads: int = 0
    """Cores; 0: all."""
    on: Executor = HERE
    """The executor of simulations."""
    study: Study = field(default_factory=Study)
    """The module's results, filled row by row: after Ctrl-C it has the complete rows."""

    def run(self, what: str, runs: Sequence[Run], reduce: Callable[[Record], T]) -> list[T]:
        """Simulate; return `reduce` of each record in the order of `runs`. `what` is the title of the progress bar."""
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
        """Return the number of runs at the first check, which is also that of settings without a verdict."""
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

        `samples` returns the data for the rows of `claims`. Settings with open rows continue to the next check, the
        others stop; without `samples` all stop at the first. So settings may have different numbers of results; results
        of equal index have equal seeds.
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
    """Return the settings of rows with an open verdict."""
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
