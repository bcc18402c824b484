"""The command line's shortcuts as keyword arguments: their types and the values that a Python caller may pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from quell._core import InputError


class Network(TypedDict, total=False):
    """Link, traffic and time, written as on the command line; None: not given."""

    rate: str | None
    rtt: str | None
    trace: str | Path | None
    flows: Sequence[str] | None
    ecn: bool | None
    duration: str | None
    warmup: str | None
    seed: int | str | None


class Shortcuts(Network, total=False):
    """Link, traffic, time and the bottleneck's queue."""

    queue: str | None


class Overrides(Shortcuts, total=False):
    """All shortcuts: those of `Shortcuts`, the number of runs per queue, and lines of tc."""

    seeds: int | str | None
    tc: Sequence[str] | None


def plain(overrides: Mapping[str, object]) -> dict[str, Any]:
    """Return the keywords as on the command line: text, except for the lists `flows` and `tc` and the flag `ecn`.

    Raises InputError.
    """
    return {key: _plain(key, value) for key, value in overrides.items() if value is not None}


def both_ways(rate: str) -> tuple[str, str]:
    """Split DOWN/UP. Raises InputError."""
    down, slash, up = rate.partition("/")
    if not slash:
        raise InputError(f"--rate {rate}: give both directions, as in --rate 50mbit/10mbit (download/upload)")
    return down, up


def _plain(key: str, value: object) -> Any:
    if key in ("flows", "tc"):
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
            what = 'flows; write flows=["cubic:2", "bbr"]' if key == "flows" else "lines of tc"
            raise InputError(f"{key}: {value!r} is not a list of {what}")
        return items
    if key == "queue" and not isinstance(value, str):
        raise InputError(f"queue: {value!r} is not text; to compare several queues write aqm=[...]")
    if key == "ecn":
        if value not in (True, False):
            raise InputError(f"ecn: {value!r} is neither True nor False")
        return bool(value)
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
