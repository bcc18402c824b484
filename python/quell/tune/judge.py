"""Judges candidates, the best default and the current setting on seeds and lines that the search has not used.

There are three sets of runs without common seeds. The first is the search's. The second one chooses among the finalists
and removes options without benefit, on the line and on similar lines. The third one, again on the line and its
neighbours, chooses nothing; its figures are shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quell.results import stats
from quell.results.stats import Estimate, estimate
from quell.tune import aims as aim
from quell.tune import space
from quell.tune.line import Line
from quell.tune.search import Bench, Found, Run, Shapes, shapes
from quell.tune.space import Setting

SEEDS = 5
_CHOOSING, _JUDGING = 100, 1000
"""The first seeds of the second and the third set."""
_CANDIDATES = 3
"""Number of finalists that also run on the neighbouring lines: those that are best on the line."""
_MIN_EFFECT = 0.002
"""An option with a smaller effect than this share of the objective is removed."""


@dataclass(frozen=True)
class Metrics:
    """Results of a setting on a line: means over seeds with their intervals."""

    values: Mapping[str, Estimate | None]

    def plain(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        ms = self.values["grade_ms"]
        numbers = {key: interval(value) for key, value in self.values.items()}
        return {
            "grade": None if ms is None else stats.grade(ms.mean),
            **{key: numbers[key] for key in ("grade_ms", "rpm", "mos")},
            **{key: {way: numbers[f"{key}.{way}"] for way in ("down", "up")} for key in ("goodput_mbps", "p95_ms")},
        }


def interval(value: Estimate | None) -> dict[str, float | None] | None:
    """Return an estimate as the object of `--json`: mean and ends of the interval."""
    if value is None:
        return None
    low = None if value.half is None else value.mean - value.half
    return {"mean": value.mean, "low": low, "high": None if low is None else 2 * value.mean - low}


def figures(record: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the `FIGURES` of a run except the objective."""
    # A download waits in the line's FIFO and in the router's queue: at most the sum of both 95th percentiles.
    waits = [record["sojourn_ms"], *(hop["sojourn_ms"] for hop in record.get("hops") or ())]
    down = [wait["p95"] for wait in waits if wait is not None and wait["p95"] is not None]
    up = record["up"]["sojourn_ms"]
    return {
        "grade_ms": record["grade_ms"],
        "rpm": aim.application(record, "responsiveness"),
        "mos": aim.application(record, "call"),
        "goodput_mbps.down": aim.goodput(record, "down"),
        "goodput_mbps.up": aim.goodput(record, "up"),
        "p95_ms.down": math.fsum(down) if down else None,
        "p95_ms.up": None if up is None else up["p95"],
    }


FIGURES = ("grade_ms", "rpm", "mos", "goodput_mbps.down", "goodput_mbps.up", "p95_ms.down", "p95_ms.up", "objective")


@dataclass(frozen=True)
class Reason:
    """Effect of leaving an option out, on the objective and the figures: value without it less value with it."""

    option: str
    effect: Metrics
    grade: str | None
    """The grade without it."""

    def plain(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return {"option": self.option, "effect": self.effect.plain() | {"grade": self.grade}}


@dataclass
class Judged:
    """Results that are printed."""

    setting: Setting
    """The offered setting: the tuned one, or the best default if that is no worse."""
    default: Setting
    tuned: bool
    """Whether the search found a gain that also holds elsewhere."""
    gain: Estimate | None = None
    """Gain in the objective of the search's setting over the default, on the line, seed by seed."""
    gain_elsewhere: Estimate | None = None
    """The same gain on the neighbouring lines."""
    gain_over_now: Estimate | None = None
    """Gain in the objective of the offered setting over the current one, on the line, seed by seed."""
    now: Metrics | None = None
    of_default: Metrics | None = None
    of_setting: Metrics | None = None
    held_out: Metrics | None = None
    default_held_out: Metrics | None = None
    why: list[Reason] = field(default_factory=list)

    @property
    def leave(self) -> bool:
        """Whether the current setting should stay, because the offered one has no certain gain."""
        return self.gain_over_now is not None and not _certain(self.gain_over_now)


class Judge:
    """Runs and compares settings on the line and its neighbours."""

    def __init__(self, bench: Bench, line: Line, now: Shapes, seeds: int) -> None:
        self.bench, self.line, self.now, self.seeds = bench, line, now, seeds
        self.neighbours = line.neighbours()

    def judge(self, found: Found, on_step: Callable[[str], object]) -> Judged:
        """Judge the results of the search. Raises KeyboardInterrupt."""
        defaults = sorted({space.default(s.kind) for s in found.scores}, key=lambda s: -found.scores.get(s, 0.0))[:3]
        on_step("choosing among the finalists")
        default = self._best(defaults, 2)
        candidates = [s for s in found.finalists if s not in defaults]
        best = self._best(candidates, _CANDIDATES) if candidates else default
        on_step("removing options without effect")
        best = self._plain(best)
        on_step("judging")
        judged = self._compare(best, default)
        self._measure(judged)
        return judged

    def _best(self, settings: Sequence[Setting], most: int) -> Setting:
        """Return the best setting: all run on the line, and the best `most` of them also on its neighbours."""
        self._on_line(settings)
        kept = sorted(settings, key=self._here, reverse=True)[:most]
        if len(kept) > 1:
            self._elsewhere_too(kept)
            kept.sort(key=self._merit, reverse=True)
        return kept[0]

    def _on_line(self, settings: Iterable[Setting]) -> None:
        line, seeds = next(iter(self._lines(_CHOOSING)))
        self.bench.run(Run(line, shapes(s, line), seed) for s in settings for seed in seeds)

    def _elsewhere_too(self, settings: Iterable[Setting]) -> None:
        _, *plan = self._lines(_CHOOSING)
        self.bench.run(Run(line, shapes(s, line), seed) for s in settings for line, seeds in plan for seed in seeds)

    def _lines(self, first: int) -> Iterable[tuple[Line, range]]:
        """Yield the line and its neighbours with their seeds, which differ for each neighbour."""
        yield self.line, range(first, first + self.seeds)
        for index, line in enumerate(self.neighbours, 1):
            start = first + 100 * index
            yield line, range(start, start + max(1, self.seeds // 2))

    def _means(self, setting: Setting) -> list[float]:
        """Return the mean objective on the line and on each of its neighbours; 0 without a run."""
        means = [self.bench.mean(line, shapes(setting, line), seeds) for line, seeds in self._lines(_CHOOSING)]
        return [0.0 if mean is None else mean for mean in means]

    def _here(self, setting: Setting) -> float:
        return self._means(setting)[0]

    def _merit(self, setting: Setting) -> float:
        here, *there = self._means(setting)
        return (here + stats.mean(there)) / 2

    def _plain(self, setting: Setting) -> Setting:
        """Set options with nearly no effect to their defaults, beginning with the least effect on the line."""
        changed = setting.changed()
        self._on_line([setting, *map(setting.without, changed)])
        for name in sorted(changed, key=lambda name: self._here(setting.without(name)), reverse=True):
            less = setting.without(name)
            self._on_line([less])
            # If the loss on the line alone exceeds the bound for the average, runs elsewhere are not needed.
            if self._here(less) < self._here(setting) * (1 - 2 * _MIN_EFFECT):
                continue
            self._elsewhere_too([setting, less])
            if self._merit(less) >= self._merit(setting) * (1 - _MIN_EFFECT):
                setting = less
        return setting

    def _compare(self, best: Setting, default: Setting) -> Judged:
        """Offer the search's setting only if it is better on the line, seed by seed, and on average elsewhere."""
        plan = list(self._lines(_JUDGING))
        self.bench.run(
            Run(line, shapes(s, line), seed) for s in (best, default) for line, seeds in plan for seed in seeds
        )
        here, *there = (self._differences(best, default, line, seeds) for line, seeds in plan)
        gain = None if best == default else estimate(here)
        elsewhere = estimate(stats.mean(values) for values in there if values)
        tuned = best != default and _certain(gain) and elsewhere is not None and elsewhere.mean > 0
        return Judged(best if tuned else default, default, tuned, gain, elsewhere)

    def _differences(self, a: Setting, b: Setting, line: Line, seeds: Iterable[int]) -> list[float]:
        return self._between(shapes(a, line), shapes(b, line), line, seeds)

    def _between(self, a: Shapes, b: Shapes, line: Line, seeds: Iterable[int]) -> list[float]:
        pairs = [[self.bench.value(Run(line, ways, seed)) for ways in (a, b)] for seed in seeds]
        return [x - y for x, y in pairs if x is not None and y is not None]

    def _measure(self, judged: Judged) -> None:
        seeds = range(_JUDGING, _JUDGING + self.seeds)
        changed = judged.setting.changed() if judged.tuned else []
        less = {name: judged.setting.without(name) for name in changed}
        self.bench.run(Run(self.line, ways, seed) for ways in (self.now, *self._ways(less.values())) for seed in seeds)
        judged.gain_over_now = estimate(self._between(shapes(judged.setting, self.line), self.now, self.line, seeds))
        judged.now = self._metrics([(self.line, self.now, seeds)])
        judged.of_default = self._metrics([(self.line, shapes(judged.default, self.line), seeds)])
        judged.of_setting = self._metrics([(self.line, shapes(judged.setting, self.line), seeds)])
        judged.held_out = self._elsewhere(judged.setting)
        judged.default_held_out = self._elsewhere(judged.default)
        judged.why = [self._reason(judged.setting, name, without, seeds) for name, without in less.items()]

    def _ways(self, settings: Iterable[Setting]) -> list[Shapes]:
        return [shapes(setting, self.line) for setting in settings]

    def _elsewhere(self, setting: Setting) -> Metrics:
        _, *plan = self._lines(_JUDGING)
        return self._metrics([(line, shapes(setting, line), seeds) for line, seeds in plan])

    def _metrics(self, plan: Iterable[tuple[Line, Shapes, Iterable[int]]]) -> Metrics:
        seen = [self._seen(Run(line, ways, seed)) for line, ways, seeds in plan for seed in seeds]
        return Metrics({key: estimate(run[key] for run in seen if run) for key in FIGURES})

    def _seen(self, run: Run) -> dict[str, float | None]:
        record = self.bench.record(run)
        return {} if record is None else figures(record) | {"objective": self.bench.value(run)}

    def _reason(self, setting: Setting, name: str, without: Setting, seeds: Iterable[int]) -> Reason:
        kept, left = self._ways([setting, without])
        pairs = [(self._seen(Run(self.line, left, seed)), self._seen(Run(self.line, kept, seed))) for seed in seeds]
        grade = estimate(a["grade_ms"] for a, _ in pairs if a)
        values = {key: estimate(_less(a, b, key) for a, b in pairs) for key in FIGURES}
        return Reason(setting.shown(name), Metrics(values), None if grade is None else stats.grade(grade.mean))


def _certain(gain: Estimate | None) -> bool:
    return gain is not None and gain.mean - (gain.half or 0.0) > 0


def _less(a: Mapping[str, float | None], b: Mapping[str, float | None], key: str) -> float | None:
    left, kept = a.get(key), b.get(key)
    return None if left is None or kept is None else left - kept
