"""Quality of applications for their users, in words and figures, for the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quell.results.stats import Estimate, Record, estimate

Application = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A result of a kind of application."""

    kind: str
    title: str
    unit: str
    digits: int
    better: int
    """+1: more is better, -1: less is better."""
    of: Callable[[Application], float | None]
    bounds: tuple[float, float] | None = None
    """Values from which the result is good, and from which it is fair."""

    def text(self, value: float) -> str:
        """Write a value with its unit."""
        return f"{value:.{self.digits}f} {self.unit}".strip()

    def verdict(self, value: float) -> str:
        """Judge a value: good, fair or bad; empty if there are no bounds."""
        if self.bounds is None:
            return ""
        good, fair = (self.better * bound for bound in self.bounds)
        signed = self.better * value
        return "good" if signed >= good else "fair" if signed >= fair else "bad"


def _part(key: str, part: str = "", scale: float = 1.0) -> Callable[[Application], float | None]:
    def read(application: Application) -> float | None:
        value = application.get(key)
        if value is not None and part:
            value = value[part]
        return None if value is None else float(value) * scale

    return read


FIGURES = (
    Figure("call", "call", "MOS", 1, +1, _part("mos"), (4.0, 3.1)),
    Figure("video_call", "frame p95", "ms", 0, -1, _part("frame_delay_ms", "p95"), (150.0, 400.0)),
    Figure("video_call", "freezes", "/min", 1, -1, _part("freezes_per_minute"), (0.5, 3.0)),
    Figure("page", "page p50", "s", 1, -1, _part("page_load_ms", "p50", 1e-3), (3.0, 10.0)),
    Figure("video", "stalls", "%", 1, -1, _part("rebuffer_ratio", scale=100.0), (0.1, 1.0)),
    Figure("video", "video", "Mbit/s", 1, +1, _part("rate_mbps"), (3.0, 1.0)),
    Figure("game", "game p99", "ms", 0, -1, _part("round_trip_ms", "p99"), (50.0, 100.0)),
    Figure("probe", "responsiveness", "RPM", 0, +1, _part("rpm")),
    Figure("download", "download", "Mbit/s", 1, +1, _part("rate_mbps")),
    Figure("upload", "upload", "Mbit/s", 1, +1, _part("rate_mbps")),
    Figure("backup", "backup", "Mbit/s", 1, +1, _part("rate_mbps")),
)
"""Figures of each kind, in the order shown; docs/explanation/applications.md has the sources of the bounds."""


def shown(records: Iterable[Record]) -> list[Figure]:
    """List the figures that at least one record has."""
    kinds = {a.get("kind") for record in records for a in record.get("applications") or ()}
    return [figure for figure in FIGURES if figure.kind in kinds]


def mean(records: Sequence[Record], figure: Figure) -> Estimate | None:
    """Return the mean of a figure over runs; the value of a run is the mean over its applications of that kind."""

    def one(record: Record) -> float | None:
        of_kind = (a for a in record.get("applications") or () if a.get("kind") == figure.kind)
        values = [value for a in of_kind if (value := figure.of(a)) is not None]
        return math.fsum(values) / len(values) if values else None

    return estimate(one(record) for record in records)
