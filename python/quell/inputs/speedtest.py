"""Results of speed tests: rates and round trip of a line (docs/how-to/tune.md#measuring-the-line).

Formats: Ookla's `speedtest --format=json` (bandwidths in bytes per second), and `--output-format json` of
github.com/code-inflation/cfspeedtest, a client of Cloudflare's test, in Mbit/s: an object with `latency`, `download`
and `upload` (src/engine/types.rs of version 2), or a list of one entry per direction and size (src/measurements.rs of
version 1).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from quell import _core
from quell._core import InputError

TAKEN = 0.95
"""Share of the measured rates that is used, because a single test may show the line at a good moment."""

_MAX_RTT_MS = 10_000


@dataclass(frozen=True)
class Speedtest:
    """Results of a speed test."""

    program: str
    down_mbps: float
    up_mbps: float
    rtt_ms: float | None

    @property
    def rate(self) -> str:
        """The rates to use, in the notation of `--rate`."""
        return "/".join(f"{round(TAKEN * mbps * 1000)}kbit" for mbps in (self.down_mbps, self.up_mbps))

    @property
    def rtt(self) -> str | None:
        """The round trip, in the notation of `--rtt`."""
        return None if self.rtt_ms is None else f"{max(1, round(self.rtt_ms))}ms"

    def summary(self) -> str:
        """Describe the measured and the used values."""
        rtt = "" if self.rtt_ms is None else f", {self.rtt_ms:.0f} ms"
        return (
            f"{self.program} measured {self.down_mbps:.1f}/{self.up_mbps:.1f} Mbit/s{rtt}; {100 - 100 * TAKEN:.0f} % "
            "less is taken. A test over Wi-Fi or with one connection may show less than the line carries"
        )


def load(path: str) -> Speedtest:
    """Read a file, or standard input if `path` is `-`. Raises InputError."""
    where = f"--speedtest {path}"
    text = _core.read_file("/dev/stdin" if path == "-" else path, "scenario")
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{where}: not a speed test: nested too deeply") from None
    found = _ookla(plain) or _cloudflare(plain)
    if found is None:
        raise InputError(
            f"{where}: has no rates of a speed test; write it with `speedtest --format=json` or "
            "`cfspeedtest --output-format json`"
        )
    if not all(0.1 <= mbps <= 100_000 for mbps in (found.down_mbps, found.up_mbps)):
        raise InputError(f"{where}: {found.down_mbps:g}/{found.up_mbps:g} Mbit/s: rates are to be from 0.1 to 100000")
    if (found.rtt_ms or 0) > _MAX_RTT_MS:
        raise InputError(f"{where}: {found.rtt_ms:g} ms: a round trip is to be at most {_MAX_RTT_MS} ms")
    return found


def _ookla(plain: Any) -> Speedtest | None:
    down, up = (_number(plain, way, "bandwidth") for way in ("download", "upload"))
    if down is None or up is None:
        return None
    return Speedtest("Ookla's speedtest", down * 8e-6, up * 8e-6, _number(plain, "ping", "latency"))


def _cloudflare(plain: Any) -> Speedtest | None:
    entries = plain
    if isinstance(plain, Mapping):
        sides = [plain.get(way) for way in ("download", "upload")]
        entries = [entry for side in sides if isinstance(side, Mapping) for entry in _list(side.get("stats"))]
    # Small transfers do not reach the line's rate.
    down, up = (
        max((rate for entry in _list(entries) if (rate := _of(entry, way)) is not None), default=None)
        for way in ("download", "upload")
    )
    if down is None or up is None:
        return None
    return Speedtest("cfspeedtest", down, up, _number(plain, "latency", "min_ms"))


def _of(entry: Any, way: str) -> float | None:
    """Return the median rate of an entry of cfspeedtest, if it is one of this direction."""
    named = entry.get("test_type") if isinstance(entry, Mapping) else None
    return _number(entry, "median") if isinstance(named, str) and named.lower() == way else None


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _number(plain: Any, *keys: str) -> float | None:
    for key in keys:
        plain = plain.get(key) if isinstance(plain, Mapping) else None
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return None
    try:
        value = float(plain)
    except OverflowError:
        return None
    return value if math.isfinite(value) and value > 0 else None
