"""How a paper's module runs its experiments: over all cores, with a progress bar."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from quell import _core
from quell._core import InputError, Scenario
from quell.experiments import experiment
from quell.experiments.executor import HERE, Executor
from quell.results.stats import Record
from quell.views.targets import bar

K = TypeVar("K")
T = TypeVar("T")

SEEDS, QUICK_SEEDS = 5, 2


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
    threads: int = 0
    """Cores; 0: all."""
    on: Executor = HERE
    """Where runs are simulated."""

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

    def seeds_of(
        self,
        what: str,
        settings: Mapping[K, tuple[Scenario, str]],
        reduce: Callable[[Record], T],
        *,
        bin_s: float | None = None,
    ) -> dict[K, list[T]]:
        """Simulate every setting, a scenario and queue words, with every seed; return the seeds' results by setting."""
        runs = [Run(*setting, seed, bin_s) for setting in settings.values() for seed in range(self.seeds)]
        out = self.run(what, runs, reduce)
        return {key: out[k * self.seeds : (k + 1) * self.seeds] for k, key in enumerate(settings)}


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
