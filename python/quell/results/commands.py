"""Runs of a command behind a link: the records of `quell shell`, two for each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quell.results.stats import Record

WAYS = ("down", "up")
_MIN_PACKETS = 20
"""Fewer packets without data do not count as traffic: IPv6 and refused connections send some."""


@dataclass(frozen=True)
class Run:
    """A run of a command behind one pair of queues."""

    name: str
    """Name that distinguishes it from the other runs shown."""
    records: tuple[Record, Record]
    """Records of both directions, in the order of `WAYS`."""

    @property
    def command(self) -> Mapping[str, Any]:
        """The command and how it ended (`words`, `status`, `wall_s`); empty in records of earlier versions."""
        told: Mapping[str, Any] = self.records[0].get("command") or {}
        match told:
            case {"words": list(), "status": int(), "wall_s": int() | float()}:
                return told
        return {}

    @property
    def sent_nothing(self) -> bool:
        """Whether only a few packets without data of TCP or UDP crossed the link."""
        few = sum(record["packets"] for record in self.records) < _MIN_PACKETS
        return few and not any(record["goodput_mbps"] for record in self.records)

    @property
    def unanswered(self) -> bool:
        """Whether the command failed and received no data of TCP or UDP, as when a name cannot be resolved."""
        down = self.records[0]
        return bool(self.command.get("status")) and down["packets"] < _MIN_PACKETS and not down["goodput_mbps"]


def are_commands(records: Sequence[Record]) -> bool:
    """Return whether these are records of `quell shell`: of real packets, one down and one up for each run."""
    ways = [record["scenario"] for record in records]
    return ways == [*WAYS] * (len(ways) // 2) and all(isinstance(record.get("live"), Mapping) for record in records)


def runs(records: Sequence[Record], file: str = "") -> list[Run]:
    """Pair the records of one file; each run is named after its queues."""
    pairs = zip(records[::2], records[1::2], strict=True)
    return distinct([Run(_queues(down, up), (down, up)) for down, up in pairs], [file] * (len(records) // 2))


def _queues(down: Record, up: Record) -> str:
    return str(down["queue"]) if down["queue"] == up["queue"] else f"{down['queue']}, up {up['queue']}"


def distinct(found: Sequence[Run], files: Sequence[str]) -> list[Run]:
    """Add the file to the names of runs with equal names, and a number if that is not enough."""
    often = Counter(run.name for run in found)
    names = [
        f"{file}: {run.name}" if often[run.name] > 1 and len(set(files)) > 1 else run.name
        for run, file in zip(found, files, strict=True)
    ]
    often, seen = Counter(names), Counter[str]()
    out = []
    for run, name in zip(found, names, strict=True):
        seen[name] += 1
        out.append(replace(run, name=f"{name} #{seen[name]}" if often[name] > 1 else name))
    return out
