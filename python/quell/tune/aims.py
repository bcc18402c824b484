"""A user's aims for a line, as words, and the score of a run for each, from 0 to 1 (docs/how-to/tune.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quell._core import InputError
from quell.common.names import known
from quell.results import experience, stats
from quell.tune.line import BULK, Line

Record = Mapping[str, Any]

DEFAULT = "calls,games,bulk,responsive,fair"
"""Default aims."""

_FREEZES_PER_MINUTE, _GAME_MS, _PAGE_S = 3.0, 50.0, 3.0
"""Values that halve a score: the bounds of docs/explanation/applications.md."""
_BEST_MOS = 4.41
"""MOS of the E-model for a call without delay or loss (ITU-T G.107)."""
_MIN_SCORE = 1e-3
"""The minimum score. With a zero, a geometric mean would ignore all other scores."""


def goodput(record: Record, direction: str) -> float:
    """Return the goodput of all flows of a direction, Mbit/s."""
    return math.fsum(flow["goodput_mbps"] for flow in record["flows"] if flow["direction"] == direction)


def application(record: Record, title: str) -> float | None:
    """Return one of `experience`'s figures, averaged over the applications of that kind; None if there is none."""
    figure = next(figure for figure in experience.FIGURES if figure.title == title)
    value = experience.mean([record], figure)
    return None if value is None else value.mean


def _calls(record: Record, _line: Line) -> float | None:
    mos, freezes = application(record, "call"), application(record, "freezes")
    parts = [] if mos is None else [(mos - 1) / (_BEST_MOS - 1)]
    if freezes is not None:
        parts.append(1 / (1 + freezes / _FREEZES_PER_MINUTE))
    return stats.mean(parts) if parts else None


def _games(record: Record, line: Line) -> float | None:
    p99 = application(record, "game p99")
    return None if p99 is None else 1 / (1 + max(0.0, p99 - line.rtt_ms) / _GAME_MS)


def _pages(record: Record, _line: Line) -> float | None:
    seconds = application(record, "page p50")
    return None if seconds is None else _page_score(seconds)


def _page_score(seconds: float) -> float:
    return 1 / (1 + seconds / _PAGE_S)


def _bulk(record: Record, line: Line) -> float | None:
    ways = [(way, rate) for way, rate in zip(("down", "up"), line.rates, strict=True) if line.transfers[way]]
    shares = [goodput(record, way) / rate for way, rate in ways]
    return stats.mean(shares) if shares else None


def _responsive(record: Record, line: Line) -> float | None:
    rpm = application(record, "responsiveness")
    return None if rpm is None else rpm * line.rtt_ms / 60_000


def _fair(record: Record, line: Line) -> float | None:
    """Return Jain's index over the hosts with transfers (without hosts: over flows), averaged over both directions."""
    indices = []
    for way, hosts in line.transfers.items():
        # A host with only a call or a game uses only what it needs.
        shares = [
            host["goodput_mbps"]
            for host in record.get("hosts") or ()
            if host["direction"] == way and host["host"] in hosts
        ]
        if len(shares) > 1 and (index := stats.jain(shares)) is not None:
            indices.append(index)
    if indices:
        return stats.mean(indices)
    return None if record["jain"] is None else float(record["jain"])


_SCORES: dict[str, Callable[[Record, Line], float | None]] = {
    "calls": _calls,
    "games": _games,
    "pages": _pages,
    "bulk": _bulk,
    "responsive": _responsive,
    "fair": _fair,
}
WORDS = tuple(_SCORES)
"""Every aim."""


class Aims:
    """The aims with their weights: `calls,bulk:2`."""

    def __init__(self, text: str | None = None) -> None:
        """Read the words. Raises InputError."""
        self.weights: dict[str, float] = {}
        for word in (text or DEFAULT).split(","):
            name, colon, weight = word.strip().partition(":")
            known("aim", name, WORDS, "--for")
            if name in self.weights:
                raise InputError(f"--for {text}: {name} is there twice; give each aim once, with one weight")
            self.weights[name] = _weight(word.strip(), weight) if colon else 1.0

    @property
    def text(self) -> str:
        """The aims in the notation of `--for`."""
        return ",".join(name if weight == 1 else f"{name}:{weight:g}" for name, weight in self.weights.items())

    def measured(self, record: Record, line: Line) -> Aims:
        """Leave out aims that the traffic cannot measure. Raises InputError if none is left."""
        kept = {name: weight for name, weight in self.weights.items() if _SCORES[name](record, line) is not None}
        if not kept:
            raise InputError(f"--for {self.text}: no flow of the scenario measures any of it; {_remedy('bulk')}")
        less = Aims()
        less.weights = kept
        return less

    def check(self, records: Iterable[Record], line: Line) -> None:
        """Raise InputError for an aim that none of the runs measured."""
        kept = list(records)
        for name in self.weights:
            if all(_SCORES[name](record, line) is None for record in kept):
                raise InputError(f"--for {name}: {_missing(name, line)}")

    def scores(self, record: Record, line: Line) -> dict[str, float]:
        """Score each aim of a run on a line.

        An aim without a measurement has the minimum score; for pages, the score of a page that takes the whole run.
        """
        found = {}
        for name in self.weights:
            value = _SCORES[name](record, line)
            if value is None:
                value = _page_score(line.measured_s) if name == "pages" else _MIN_SCORE
            found[name] = min(1.0, max(_MIN_SCORE, value))
        return found

    def objective(self, record: Record, line: Line) -> float:
        """Return the weighted geometric mean of the scores: equal relative changes of any aims count equally."""
        scores = self.scores(record, line)
        total = math.fsum(self.weights.values())
        return math.exp(math.fsum(w * math.log(scores[name]) for name, w in self.weights.items()) / total)


def _weight(word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 100:
        raise InputError(f"--for {word}: a weight is a number above 0 and at most 100; leave out what does not matter")
    return value


_MEASURED_BY: dict[str, Iterable[str]] = {
    "calls": ("call", "video_call"), "games": ("game",), "pages": ("page",), "bulk": BULK, "responsive": BULK,
    "fair": BULK,
}  # fmt: skip


def _missing(name: str, line: Line) -> str:
    """Return why a run has no figure for an aim: no flow measures it, or the time was too short."""
    flows = [flow for flow in line.keys["flow"] if flow.get("kind", "tcp") in _MEASURED_BY[name]]
    if sum(flow.get("count", 1) for flow in flows) > (name == "fair"):
        return f"no flow has measured it in {line.keys.get('duration', 'this time')}; give a longer --duration"
    return f"no flow of the scenario measures it; {_remedy(name)}"


def _remedy(name: str) -> str:
    kinds = ("two transfers",) if name == "fair" else _MEASURED_BY[name]
    return f"add a flow ({' or '.join(kinds)}), or leave the aim out"
