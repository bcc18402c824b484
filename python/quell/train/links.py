"""Results of a queue on random links (`quell.train.kinds`), compared with seven classics with their defaults.

G is the highest goodput of the seven (mean of the seeds), P the lowest 95th percentile of the sojourn among those
within 2 % of G. Of a queue, g is its goodput / G, p its 95th percentile / P; it wins a link with g >= 0.99 and p <= 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from quell import _core
from quell._core import InputError
from quell.common import files
from quell.experiments.executor import HERE, Executor
from quell.experiments.experiment import Job, fingerprint, stream
from quell.train.kinds import Link

CLASSICS = ("codel", "cobalt", "pie", "fq_codel", "fq_pie", "cake", "dualpi2")
SLACK = 0.02
"""A classic counts for P if its goodput is within this share of the highest."""
RESAMPLES = 2000
"""Number of samples of the bootstrap over links."""


@dataclass(frozen=True)
class Run:
    """Kept results of a run."""

    goodput: float
    p95: float
    mean: float
    p99: float
    jain: float
    loss: float
    fct: float
    """Mean completion time of finite transfers, ms; NaN without any."""


def _reduce(record: dict[str, Any]) -> Run:
    sojourn = record["sojourn_ms"] or {}
    fct = record["fct_ms"] or {}
    jain = record["jain"]
    return Run(
        goodput=record["goodput_mbps"], p95=sojourn.get("p95") or 0.0, mean=sojourn.get("mean") or 0.0,
        p99=sojourn.get("p99") or 0.0, jain=1.0 if jain is None else jain, loss=record["loss_rate"] or 0.0,
        fct=fct.get("mean") or math.nan,
    )  # fmt: skip


def version() -> str:
    """Return the hash of the compiled quell: any change of it may change the results of runs."""
    return hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()


def _checksum(runs: Any) -> str:
    return files.checksum(json.dumps(runs))


class Cache:
    """The classics' runs, kept in a file by link, seed, queue and compiled quell. Raises InputError."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._version = version()
        self._runs = self._read()

    def _read(self) -> dict[str, Run]:
        runs: dict[str, Run] = {}
        if not self._file.exists():
            return runs
        files.check_own(self._file)
        try:
            found = json.loads(_core.read_file(self._file, "records"))
            if found["quell runs"] == self._version:
                if found["checksum"] != _checksum(found["runs"]):
                    raise ValueError("checksum")
                for key, values in found["runs"].items():
                    run = Run(*(math.nan if x is None else float(x) for x in values))
                    *others, fct = astuple(run)
                    if not all(0 <= x < math.inf for x in others) or abs(fct) == math.inf:
                        raise ValueError(key)
                    runs[key] = run
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InputError(f"{self._file}: is not a cache of runs; remove it, or name another file") from None
        return runs

    def get(self, key: str) -> Run | None:
        """Return a run; None if it is not in the file."""
        return self._runs.get(key)

    def add(self, runs: Mapping[str, Run]) -> None:
        """Add runs and write the file."""
        if runs:
            # Another process may have added its own meanwhile.
            self._runs |= self._read()
            self._runs |= runs
            plain = {key: [None if math.isnan(x) else x for x in astuple(run)] for key, run in self._runs.items()}
            whole = {"quell runs": self._version, "checksum": _checksum(plain), "runs": plain}
            files.write_text(self._file, json.dumps(whole))


def simulate(
    links: Sequence[Link],
    queues: Sequence[str],
    *,
    on_done: Callable[[int], object] = lambda _: None,
    on: Executor = HERE,
    cache: Cache | None = None,
) -> dict[str, list[Run]]:
    """Run every queue on every link with each of its seeds; return each queue's mean over the seeds for each link.

    The classics' runs are read from `cache` and added to it.
    """
    seeds = links[0].scenario.seeds
    runs = [
        (link.scenario, Job(queue, link.scenario.run_seed(k)))
        for queue in queues
        for link in links
        for k in range(seeds)
    ]
    keys: dict[int, str] = {}
    if cache is not None:
        prints = [fingerprint(link.scenario) for link in links]
        keys = {
            i: f"{prints[i // seeds % len(links)]} {job.seed} {job.queue}"
            for i, (_, job) in enumerate(runs)
            if job.queue in CLASSICS
        }
    known = {i: run for i, key in keys.items() if cache is not None and (run := cache.get(key)) is not None}
    on_done(len(known))
    left = [i for i in range(len(runs)) if i not in known]
    made: dict[int, Run] = {}

    def keep(k: int, record: dict[str, Any]) -> None:
        made[left[k]] = _reduce(record)
        on_done(len(known) + len(made))

    try:
        stream([runs[i] for i in left], keep, on=on)
    finally:
        if cache is not None:
            cache.add({key: made[i] for i, key in keys.items() if i in made})
    done = [known[i] if i in known else made[i] for i in range(len(runs))]
    fields = Run.__dataclass_fields__
    groups = [done[k : k + seeds] for k in range(0, len(done), seeds)]
    means = [Run(**{f: fmean(getattr(run, f) for run in group) for f in fields}) for group in groups]
    return {queue: means[k * len(links) : (k + 1) * len(links)] for k, queue in enumerate(queues)}


@dataclass(frozen=True)
class Bar:
    """The classics' results on a link: G (Mbit/s), P (ms), and values of single classics."""

    goodput: float
    p95: float
    cake_loss: float
    codel_jain: float
    fq_codel_jain: float


def bars(classics: dict[str, list[Run]]) -> list[Bar]:
    """Return the classics' results on each link."""
    found = []
    for index in range(len(classics[CLASSICS[0]])):
        here = {name: classics[name][index] for name in CLASSICS}
        most = max(run.goodput for run in here.values())
        least = min(run.p95 for run in here.values() if run.goodput >= (1 - SLACK) * most)
        found.append(
            Bar(most, max(least, 1e-3), here["cake"].loss, here["codel"].jain, here["fq_codel"].jain)
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Score:
    """A queue's results relative to the bars, by link."""

    g: list[float]
    p: list[float]

    @staticmethod
    def of(runs: Sequence[Run], against: Sequence[Bar]) -> Score:
        """Divide by the classics' results; a sojourn below a microsecond counts as one microsecond."""
        return Score(
            [run.goodput / bar.goodput for run, bar in zip(runs, against, strict=True)],
            [max(run.p95, 1e-3) / bar.p95 for run, bar in zip(runs, against, strict=True)],
        )

    @property
    def wins(self) -> list[float]:
        """1 for each link that the queue wins, else 0."""
        return self.within(1.0)

    def within(self, most: float) -> list[float]:
        """1 for each link with at least 0.99 G and a p of at most this, else 0."""
        return [float(g >= 0.99 and p <= most) for g, p in zip(self.g, self.p, strict=True)]


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(fmean(math.log(max(value, 1e-9)) for value in values))


def interval(
    values: Sequence[float], of: Callable[[Sequence[float]], float], seed: int = 1
) -> tuple[float, float, float]:
    """Return a figure over links and its 95 % interval, from a bootstrap over links."""
    rng = random.Random(seed)
    again = sorted(of(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return of(values), again[RESAMPLES // 40], again[-RESAMPLES // 40 - 1]
