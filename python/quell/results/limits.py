"""Limits on measurements of `quell shell`, as in `--fail-if 'down.p95>100ms'`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quell import _core
from quell._core import InputError
from quell.common.names import known
from quell.results.commands import WAYS, Run

STATUS = 117
"""Exit status of `quell shell` if the command succeeded and a limit was exceeded."""
_ONE = re.compile(r"\s*([\w.]+)\s*(>=|<=|>|<)\s*(\S.*?)\s*")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


@dataclass(frozen=True)
class _Metric:
    unit: str
    """Kind of unit: `time` (compared in ms), `rate` (Mbit/s), `share` (0..1) or `count`."""
    keys: tuple[str, ...]
    """Path of keys in the record."""


METRICS = {
    **{key: _Metric("time", ("sojourn_ms", key)) for key in ("mean", "p50", "p95", "p99", "max")},
    "goodput": _Metric("rate", ("goodput_mbps",)),
    "throughput": _Metric("rate", ("throughput_mbps",)),
    "used": _Metric("share", ("utilisation",)),
    "loss": _Metric("share", ("loss_rate",)),
    "drops": _Metric("count", ("drops",)),
    "marks": _Metric("count", ("marks",)),
    "missed": _Metric("count", ("live", "missed")),
}
"""Metrics, which follow `down.` or `up.`; `wall` has no direction."""
_WALL = _Metric("time", ("wall_s",))
NAMES = [f"{way}.{name}" for way in WAYS for name in METRICS] + ["wall"]
_EXAMPLE = {"time": "100ms", "rate": "5mbit", "share": "1%", "count": "10"}


@dataclass(frozen=True)
class Limit:
    """A condition under which a run fails."""

    text: str
    name: str
    relation: str
    value: float
    """Bound, in the unit of the metric."""

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Parse a condition. Raises InputError, which names the metric and a correct form."""
        where = f"--fail-if {text}"
        found = _ONE.fullmatch(text)
        if found is None:
            raise InputError(f"{where}: not a condition; write METRIC>VALUE, as in 'down.p95>100ms' (also >=, <, <=)")
        name, relation, value = found.groups()
        if (down := f"down.{name}") in NAMES:
            raise InputError(f"{where}: {name} of which direction? Write {down} or up.{name}")
        known("metric", name, NAMES, where)
        return cls(text, name, relation, _value(where, _metric(name).unit, value))

    def exceeded(self, run: Run) -> str | None:
        """Return a run's value as text if it exceeds the limit, else None."""
        metric = _metric(self.name)
        record: Any = run.command if self.name == "wall" else run.records[WAYS.index(self.name.split(".")[0])]
        if self.name != "wall" and run.sent_nothing:
            return "no data of TCP or UDP crossed the link"
        for key in metric.keys:
            record = record[key]
        measured = float(record) * (1000 if self.name == "wall" else 1)
        return _written(metric.unit, measured) if _COMPARE[self.relation](measured, self.value) else None


def _metric(name: str) -> _Metric:
    return _WALL if name == "wall" else METRICS[name.split(".")[1]]


def _value(where: str, unit: str, text: str) -> float:
    if unit in ("time", "rate"):
        try:
            return _core.quantity(text, "time" if unit == "time" else "rate") / 1e6
        except InputError:
            raise InputError(f"{where}: {text} is not a {unit}; write it as {_EXAMPLE[unit]}") from None
    number, percent = (text[:-1], 100.0) if unit == "share" and text.endswith("%") else (text, 1.0)
    if re.fullmatch(r"\d{1,15}(\.\d{1,15})?", number) is None:
        raise InputError(f"{where}: {text} is not a {unit}; write it as {_EXAMPLE[unit]}")
    return float(number) / percent


def _written(unit: str, value: float) -> str:
    match unit:
        case "time":
            return f"{value:.2f} ms"
        case "rate":
            return f"{value:.3f} Mbit/s"
        case "share":
            return f"{100 * value:.2f} %"
    return f"{value:.0f}"
