"""Verdicts: measures of several seeds against bars, each of which names its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quell.evaluation.measures import MEASURES
from quell.results.stats import Estimate, estimate

PASS, FAIL, UNCLEAR, REPORTED, LEFT_OUT = "pass", "fail", "unclear", "reported", "not run"
VERDICTS = (PASS, FAIL, UNCLEAR, REPORTED, LEFT_OUT)

Values = Mapping[str, Sequence[float | None]]
"""Values by measure, one per seed; None: not measured."""


@dataclass(frozen=True)
class Bar:
    """A limit of a measure."""

    measure: str
    least: bool
    """Whether the limit is a minimum, not a maximum."""
    limit: float
    source: str
    """Source of the limit, or that it is quell's choice."""
    of_reference: bool = True
    """Whether `limit` is multiplied by the measure of tail drop with the same seed."""
    slack: float = 0.0
    """Added to the limit, in the measure's unit: the resolution of the measure."""


def at_least(measure: str, factor: float, source: str) -> Bar:
    """Return a lower limit: `factor` times the measure of tail drop."""
    return Bar(measure, True, factor, source)


def at_most(measure: str, factor: float, source: str, slack: float = 0.0) -> Bar:
    """Return an upper limit: `factor` times the measure of tail drop, plus `slack`."""
    return Bar(measure, False, factor, source, slack=slack)


@dataclass(frozen=True)
class Judged:
    """A bar, the measured mean and the verdict."""

    bar: Bar
    value: Estimate | None
    limit: float | None
    """Mean limit in the measure's unit; None if there is nothing to compare."""
    verdict: str

    def plain(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "measure": self.bar.measure,
            "sense": "at least" if self.bar.least else "at most",
            "limit": self.limit,
            "of_reference": self.bar.limit if self.bar.of_reference else None,
            "verdict": self.verdict,
            "source": self.bar.source,
        }

    def text(self) -> str:
        """Return the comparison as one line."""
        measure = MEASURES[self.bar.measure]
        if self.value is None or self.limit is None:
            return f"{measure.title}: not measured"
        sense = "at least" if self.bar.least else "at most"
        slack = f" + {measure.text(self.bar.slack)}" if self.bar.slack else ""
        times = f" ({self.bar.limit:g} × tail drop{slack})" if self.bar.of_reference else ""
        return f"{measure.title} {measure.text(self.value.mean)}, {sense} {measure.text(self.limit)}{times}"


def judge(bar: Bar, values: Values, reference: Values) -> Judged:
    """Judge a measure by its bar.

    Both queues get the same traffic with each seed, so the distance from the limit is taken seed by seed. The verdict
    is pass or fail if the whole 95 % interval of the mean distance lies on one side of the limit, and unclear if the
    interval spans the limit or there is nothing to compare. A single seed has no interval; its value decides.
    """
    own = values.get(bar.measure, ())
    compared = reference.get(bar.measure, ()) if bar.of_reference else [1.0] * len(own)
    limits = [None if other is None else bar.limit * other + bar.slack for other in compared]
    # If one of them lacks the measure, there is nothing to compare; otherwise both have a value for each seed.
    seeds = zip(own, limits, strict=True) if own and limits else ()
    pairs = [(v, lim) for v, lim in seeds if v is not None and lim is not None]
    value, limit = estimate(own), estimate(limits)
    room = estimate((v - lim if bar.least else lim - v) for v, lim in pairs)
    shown = None if limit is None else limit.mean
    if room is None:
        return Judged(bar, value, shown, UNCLEAR)
    half = room.half or 0.0
    if room.mean >= half:
        return Judged(bar, value, shown, PASS)
    return Judged(bar, value, shown, FAIL if room.mean < -half else UNCLEAR)


def overall(judged: Sequence[Judged]) -> str:
    """Return fail if a bar fails, else unclear if one is unclear, else pass; reported if there is no bar."""
    found = {one.verdict for one in judged}
    return next((verdict for verdict in (FAIL, UNCLEAR, PASS) if verdict in found), REPORTED)
