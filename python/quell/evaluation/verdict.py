"""How a verdict follows: measures of several seeds against bars, each with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quell.evaluation.measures import MEASURES
from quell.results.stats import Estimate, estimate

PASS, FAIL, UNCLEAR, REPORTED, LEFT_OUT = "pass", "fail", "unclear", "reported", "not run"
VERDICTS = (PASS, FAIL, UNCLEAR, REPORTED, LEFT_OUT)

Values = Mapping[str, Sequence[float | None]]
"""Of each measure a value for each seed."""


@dataclass(frozen=True)
class Bar:
    """A limit that a measure keeps, or does not."""

    measure: str
    least: bool
    """The limit is a least value, not a greatest."""
    limit: float
    source: str
    """Where the limit comes from, or that it is quell's choice."""
    of_reference: bool = True
    """The limit is a multiple of what tail drop has in the same run."""
    slack: float = 0.0
    """Added to a greatest value: what a measure cannot resolve."""


def at_least(measure: str, factor: float, source: str) -> Bar:
    """At least so many times what tail drop has."""
    return Bar(measure, True, factor, source)


def at_most(measure: str, factor: float, source: str, slack: float = 0.0) -> Bar:
    """At most so many times what tail drop has, and some slack."""
    return Bar(measure, False, factor, source, slack=slack)


@dataclass(frozen=True)
class Judged:
    """What came of a bar."""

    bar: Bar
    value: Estimate | None
    limit: float | None
    """In the measure's unit."""
    verdict: str

    def plain(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        return {
            "measure": self.bar.measure,
            "sense": "at least" if self.bar.least else "at most",
            "limit": self.limit,
            "of_reference": self.bar.limit if self.bar.of_reference else None,
            "verdict": self.verdict,
            "source": self.bar.source,
        }

    def text(self) -> str:
        """Say it in a line."""
        measure = MEASURES[self.bar.measure]
        if self.value is None or self.limit is None:
            return f"{measure.title}: not measured"
        sense = "at least" if self.bar.least else "at most"
        slack = f" + {measure.text(self.bar.slack)}" if self.bar.slack else ""
        times = f" ({self.bar.limit:g} × tail drop{slack})" if self.bar.of_reference else ""
        return f"{measure.title} {measure.text(self.value.mean)}, {sense} {measure.text(self.limit)}{times}"


def judge(bar: Bar, values: Values, reference: Values) -> Judged:
    """Hold a measure against its bar.

    Both queues meet the same traffic with each seed, so the distance from the limit is taken seed by seed. It passes or
    fails where the whole 95 % interval of the mean distance lies on one side, and is unclear where the interval spans
    the limit, or where there is nothing to compare.
    """
    own = values.get(bar.measure, ())
    compared = reference.get(bar.measure, ()) if bar.of_reference else [1.0] * len(own)
    limits = [None if other is None else bar.limit * other + bar.slack for other in compared]
    pairs = [(v, lim) for v, lim in zip(own, limits, strict=False) if v is not None and lim is not None]
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
    """Fail where one bar fails, unclear where one is unclear, pass where all pass; reported where there is no bar."""
    found = {one.verdict for one in judged}
    return next((verdict for verdict in (FAIL, UNCLEAR, PASS) if verdict in found), REPORTED)
