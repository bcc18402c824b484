"""Means over seeds, their confidence intervals and the Pareto front, in plain Python: tables need no data frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quell._core import grade as grade

Record = Mapping[str, Any]

# Student's t, 0.975 quantile, for 1 to 30 degrees of freedom (any statistics table).
_T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def t975(degrees: int) -> float:
    """Return the 0.975 quantile of Student's t; above 30 degrees of freedom by Fisher's expansion."""
    if degrees <= len(_T975):
        return _T975[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def t_quantile(p: float, degrees: int) -> float:
    """Return a quantile of Student's t for 0.5 < p < 1 by bisection (a finite sum for whole degrees of freedom).

    Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    low, high = 0.0, 1.0
    while _t_within(high, degrees) < 2 * p - 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, degrees) < 2 * p - 1 else (low, middle)
    return (low + high) / 2


def _t_within(t: float, degrees: int) -> float:
    """Probability that Student's t lies within -t and t."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(odd, degrees - 1, 2):
        total += term
        term *= square * (k + 1) / (k + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@dataclass(frozen=True)
class Estimate:
    """A mean over runs. `half` is half the width of its confidence interval; None with fewer than two runs.

    The level is 95 % unless `estimate` was called with another one.
    """

    mean: float
    half: float | None
    runs: int


def estimate(values: Iterable[float | None], level: float = 0.95) -> Estimate | None:
    """Mean and confidence interval of the values that are not None; None without any."""
    present = [v for v in values if v is not None]
    if not present:
        return None
    n = len(present)
    mean = math.fsum(present) / n
    if n < 2:
        return Estimate(mean, None, n)
    variance = math.fsum((v - mean) ** 2 for v in present) / (n - 1)
    t = t975(n - 1) if level == 0.95 else t_quantile((1 + level) / 2, n - 1)
    return Estimate(mean, t * math.sqrt(variance / n), n)


def quantile(values: Iterable[float], q: float) -> float:
    """Return the smallest value that a share `q` of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value."""
    return math.fsum(values) / len(values)


def jain(rates: Sequence[float]) -> float | None:
    """Return Jain's index of fairness, 1 for equal rates; None if nothing was sent."""
    squares = math.fsum(rate * rate for rate in rates)
    return math.fsum(rates) ** 2 / (len(rates) * squares) if squares else None


@dataclass(frozen=True)
class Measure:
    """A column: its name, format and direction of improvement."""

    key: str
    title: str
    unit: str
    digits: int
    better: int
    """+1: more is better, -1: less is better, 0: neither."""
    scale: float = 1.0
    letter: Callable[[float], str] | None = None
    """Letter that tables show instead of the value."""

    def text(self, value: float) -> str:
        """Format a value for tables."""
        return self.letter(value) if self.letter else f"{value:.{self.digits}f}"

    def of(self, record: Record) -> float | None:
        """Return a record's value in this measure's unit; None if the record has none."""
        value: Any = record
        for part in self.key.split("."):
            if value is None:
                return None
            value = value.get(part)
        return None if value is None else float(value) * self.scale


MEASURES = (
    Measure("goodput_mbps", "goodput", "Mbit/s", 2, +1),
    Measure("utilisation", "used", "%", 1, +1, 100.0),
    Measure("sojourn_ms.mean", "mean", "ms", 1, -1),
    Measure("sojourn_ms.p95", "p95", "ms", 1, -1),
    Measure("sojourn_ms.p99", "p99", "ms", 1, -1),
    Measure("grade_ms", "grade", "", 0, 0, letter=grade),
    Measure("grade_down_ms", "grade down", "", 0, 0, letter=grade),
    Measure("grade_up_ms", "grade up", "", 0, 0, letter=grade),
    Measure("rpm", "RPM", "", 0, +1),
    Measure("loss_rate", "loss", "%", 2, -1, 100.0),
    Measure("mark_rate", "marks", "%", 2, 0, 100.0),
    Measure("jain", "Jain", "0..1", 3, +1),
    Measure("up.goodput_mbps", "up goodput", "Mbit/s", 2, +1),
    Measure("up.utilisation", "up used", "%", 1, +1, 100.0),
    Measure("up.sojourn_ms.mean", "up mean", "ms", 1, -1),
    Measure("up.sojourn_ms.p95", "up p95", "ms", 1, -1),
    Measure("up.loss_rate", "up loss", "%", 2, -1, 100.0),
    Measure("rtt_ms.p95", "RTT p95", "ms", 1, -1),
    Measure("fct_ms.p95", "FCT p95", "ms", 0, -1),
)
"""Measures of tables, in this order. Keys are paths into the result record."""

FRONT = ("goodput_mbps", "sojourn_ms.p95")
"""Gain and cost of the Pareto front."""
UPWARD = ("up.goodput_mbps", "up.utilisation", "up.sojourn_ms.mean", "up.loss_rate")
"""Measures of the other direction, shown in place of `DOWNWARD` if no data go down."""
DOWNWARD = (
    "goodput_mbps",
    "utilisation",
    "sojourn_ms.mean",
    "sojourn_ms.p95",
    "sojourn_ms.p99",
    "loss_rate",
    "mark_rate",
)


@dataclass(frozen=True)
class Row:
    """One queue's means over its runs."""

    queue: str
    runs: int
    values: dict[str, Estimate | None]
    on_front: bool
    unsure: bool = False
    """On the front, possibly by chance (see `by_chance`)."""

    def mean(self, key: str) -> float | None:
        """Return the mean of a measure; None if no run has it."""
        value = self.values[key]
        return None if value is None else value.mean

    def plain(self) -> dict[str, float | None]:
        """Return all means and, as `KEY.ci95`, half the widths of their intervals, in the record's units."""
        out: dict[str, float | None] = {}
        for m in MEASURES:
            value = self.values[m.key]
            out[m.key] = None if value is None else value.mean / m.scale
            out[f"{m.key}.ci95"] = None if value is None or value.half is None else value.half / m.scale
        return out


TIE = 0.01
"""Relative difference of two means below which the front treats them as equal."""


def differ(a: Estimate, b: Estimate) -> bool:
    """Return whether two means differ by at least 1 %, and by more than half the width of their joint 95 % interval."""
    apart = abs(a.mean - b.mean)
    return apart >= TIE * max(abs(a.mean), abs(b.mean)) and apart > math.hypot(a.half or 0.0, b.half or 0.0)


WIDE = 0.5
"""Width of an interval, as a share of its mean, above which a place on the front may be due to chance."""


def wide(value: Estimate | None) -> bool:
    """Return whether an interval is wider than half of its mean: such a queue ties with most others."""
    return value is not None and value.half is not None and 2 * value.half > WIDE * abs(value.mean)


Point = tuple[Estimate | None, Estimate | None]
"""Gain and cost."""


def pareto(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return for each point (gain, cost) whether no other point is better in one and not worse in the other."""

    def beaten(p: tuple[float, float]) -> bool:
        return any(q[0] >= p[0] and q[1] <= p[1] and q != p for q in points)

    return [not beaten(p) for p in points]


def by_chance(points: Sequence[Point], place: int) -> bool:
    """Return whether a point may be on the front by chance.

    It has a `wide` interval, and at the worse ends of its intervals another point's means beat it.
    """

    def at(value: Estimate | None, ends: int) -> Estimate | None:
        return value and Estimate(value.mean + ends * (value.half or 0.0), None, value.runs)

    if not any(map(wide, points[place])):
        return False
    moved = [(at(gain, -(k == place)), at(cost, k == place)) for k, (gain, cost) in enumerate(points)]
    return not front(moved)[place]


def front(points: Sequence[Point]) -> list[bool]:
    """Like `pareto`, for points whose gain and cost are estimates. Means that do not `differ` are ties."""

    def beats(q: Point, p: Point) -> bool:
        better, worse = False, False
        for sign, a, b in ((1, q[0], p[0]), (-1, q[1], p[1])):
            if a is not None and b is not None and differ(a, b):
                better |= sign * (a.mean - b.mean) > 0
                worse |= sign * (a.mean - b.mean) < 0
        return better and not worse

    return [not any(beats(q, p) for q in points) for p in points]


def row_name(record: Record) -> str:
    """Return the name of a record's row: its queue, and the controller that is not part of the queue."""
    controller = record.get("controller")
    return str(record["queue"]) if controller is None else f"{record['queue']} + {controller}"


def by_row(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by the names of their rows, in order of first appearance."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(row_name(record), []).append(record)
    return grouped


def summarise(records: Iterable[Record]) -> list[Row]:
    """Return one row per queue and controller, in order of first appearance.

    The front is goodput against p95 sojourn. Differences below 1 %, or within the joint 95 % interval, are ties: 0.1 %
    more goodput does not justify more delay.
    """
    rows = [
        Row(queue, len(runs), {m.key: estimate(m.of(r) for r in runs) for m in MEASURES}, on_front=False)
        for queue, runs in by_row(records).items()
    ]
    gain, cost = (f"up.{key}" for key in FRONT) if upward(rows) else FRONT
    points = [(row.values[gain], row.values[cost]) for row in rows]
    return [
        replace(row, on_front=on, unsure=on and by_chance(points, k))
        for k, (row, on) in enumerate(zip(rows, front(points), strict=True))
    ]


def upward(rows: Sequence[Row]) -> bool:
    """Return whether all data go up: the bottleneck's queue then has only acknowledgments."""
    return not any(row.mean("goodput_mbps") for row in rows) and any(row.mean("up.goodput_mbps") for row in rows)


def shown_measures(rows: Sequence[Row]) -> list[Measure]:
    """List the measures to show: those that some run has, and marks only if packets were marked.

    They are those of the direction of the data, with digits that fit the values.
    """
    left_out = DOWNWARD if upward(rows) else UPWARD
    present = [
        fitting(m, rows) for m in MEASURES if m.key not in left_out and any(r.values[m.key] is not None for r in rows)
    ]
    return [m for m in present if m.key != "mark_rate" or any(r.mean(m.key) for r in rows)]


def fitting(measure: Measure, rows: Sequence[Row]) -> Measure:
    """Give a rate or a time about three significant digits: more for small values, fewer for large rates."""
    means = [abs(mean) for row in rows if (mean := row.mean(measure.key))]
    if not means or measure.unit not in ("Mbit/s", "ms"):
        return measure
    if measure.unit == "Mbit/s":
        return replace(measure, digits=min(measure.digits + 2, max(0, 4 - math.floor(math.log10(max(means))) - 1)))
    return replace(measure, digits=measure.digits + (2 if min(means) < 0.1 else 1 if min(means) < 1 else 0))


def best(rows: Sequence[Row], measure: Measure) -> set[str]:
    """Return the queues with the best mean in the printed digits; none if all are equal."""
    shown = {r.queue: round(m, measure.digits) for r in rows if (m := r.mean(measure.key)) is not None}
    if not measure.better or len(set(shown.values())) < 2:
        return set()
    choose: Callable[[Iterable[float]], float] = max if measure.better > 0 else min
    top = choose(shown.values())
    return {queue for queue, value in shown.items() if value == top}
