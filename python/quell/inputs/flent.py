"""Flent's data files (https://flent.org, file format 4): runs written for Flent, and lines that Flent measured."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from quell import _core
from quell._core import InputError, Scenario
from quell.common import files
from quell.results.stats import jain, mean, quantile, row_name

SUFFIX = ".flent.gz"
STEP_S = 0.2
"""Flent's width of a bin, s."""
VERSION = 4
"""Version of the file format that Flent 2 writes."""
_GZIP = 31
"""zlib's `wbits` for gzip."""
_READ = (2, 3, VERSION)
"""Versions that quell reads; their series are the same."""
_MARGIN_S = 5
"""Time before and after the load in Flent's tests, which its box plots leave out."""
_MAX_BYTES = 256 << 20
"""Largest unpacked size; a test of an hour with 100 streams has about 100 MB."""
_MAX_VALUES = 8_000_000
"""Largest number of values. Empty lists take 25 times the size of their text in memory, so values are counted before
parsing."""
_MAX_SERIES = 1000
_MAX_LISTS = 10 * _MAX_SERIES
"""Largest number of lists. A series is a list in `results` and usually one in `raw_values`; metadata has a few."""
_MAX_VALUE = 1e12
"""Largest value, in any unit."""
_BULK = ("tcp", "download", "upload", "backup")
"""Kinds of flows that are streams in Flent."""
_PAYLOAD = 1448 / 1514
"""Payload of a full TCP segment with timestamps per byte on Ethernet."""

_SIMULATED = "simulated by quell; Ping (ms) ICMP is the mean of the TCP senders' smoothed round-trip times"
_MEASURED = (
    "quell shell: a stream is all traffic of a direction; Ping (ms) ICMP is the link's delays and the mean waits"
)
_ORIGIN = ("scenario", "queue", "seed", "trace_hash", "scenario_hash")
_STREAM = re.compile(r"TCP (download|upload)(?! avg| sum| fairness| totals)[^:]*(?:::\d+)?")
"""A stream of a test. After `::` comes its number, or the name of a value read from its socket (`tcp_cwnd`)."""

Values = list[float | None]


@dataclass(frozen=True)
class Measured:
    """A test by Flent: time series in Mbit/s and ms, with None for missing samples."""

    path: Path
    test: str
    title: str
    x: list[float]
    """Seconds since the start of the test."""
    results: dict[str, Values]

    @classmethod
    def load(cls, path: str | Path) -> Measured:
        """Read a data file. Raises InputError, one line that names the file and the remedy."""
        path = Path(path)
        data = _plain(path)
        if (version := data.get("version")) not in _READ:
            raise InputError(f"{path}: Flent's file format {version!r:.20}; quell reads {_READ[0]} to {VERSION}")
        x, results, about = data.get("x_values"), data.get("results"), data.get("metadata")
        if not isinstance(x, list) or not isinstance(results, dict) or not all(map(_number, x)) or len(x) < 2:
            raise InputError(f"{path}: no series in it (x_values, results); is it a data file of a finished test?")
        if any(later <= earlier for earlier, later in pairwise(x)):
            raise InputError(f"{path}: the times of its samples (x_values) do not increase; is the file whole?")
        if len(results) > _MAX_SERIES:
            raise _too_many_series(path)
        about = about if isinstance(about, dict) else {}
        series = {str(name): _values(path, name, values, len(x)) for name, values in results.items()}
        return cls(path, str(about.get("NAME") or "test"), str(about.get("TITLE") or ""), [float(t) for t in x], series)

    def streams(self, way: str) -> dict[str, Values]:
        """Return the TCP streams of a direction (`download`, `upload`) by name, without Flent's sums and means."""
        streams = {key: values for key, values in self.results.items() if (m := _STREAM.fullmatch(key)) and m[1] == way}
        return {key: values for key, values in streams.items() if any(v is not None for v in values)}

    @property
    def pings(self) -> dict[str, Values]:
        """Round-trip times, ms."""
        named = {key: values for key, values in self.results.items() if key.startswith("Ping (ms)")}
        return {key: values for key, values in named.items() if not key.endswith("avg")}

    def loaded(self) -> range:
        """Return the samples between Flent's margins."""
        first = next((i for i, t in enumerate(self.x) if t >= self.x[0] + _MARGIN_S), 0)
        last = next((i for i, t in enumerate(self.x) if t > self.x[-1] - _MARGIN_S), len(self.x))
        return range(first, last) if first < last else range(len(self.x))

    def total(self, way: str) -> list[float]:
        """Return the sum of the streams of a direction while the line was loaded, Mbit/s; empty without streams."""
        streams = list(self.streams(way).values())
        sums = over(streams, math.fsum) if streams else []
        return [v for i in self.loaded() if i < len(sums) and (v := sums[i]) is not None]

    def line(self) -> tuple[list[float], list[float | None]]:
        """Return times, s, and the total wire rate of the streams of the loaded direction, Mbit/s."""
        way = "download" if self.streams("download") else "upload"
        sums = over(list(self.streams(way).values()), math.fsum)
        return self.x, [None if value is None else value / _PAYLOAD for value in sums]

    def round_trips(self) -> list[float]:
        """Return the pings while the line was loaded, ms."""
        return [v for values in self.pings.values() for i in self.loaded() if (v := values[i]) is not None]

    def scenario(self, up_queue: str = "pfifo limit 1000") -> Scenario:
        """Return the line of the test, as far as the file describes it, with `up_queue` in the other direction.

        Rate: the 95th percentile of the streams' total, with headers, in each direction that the test loads. Round
        trip: the lowest ping. Flows: one CUBIC flow per stream. Raises InputError if the file has no streams or no
        pings.
        """
        down, up = self.total("download"), self.total("upload")
        lowest = min((v for values in self.pings.values() for v in values if v is not None), default=None)
        if not down and not up:
            raise InputError(
                f"{self.path}: no TCP streams in it, so its rate is unknown; use a test such as rrul or tcp_8down"
            )
        if lowest is None:
            raise InputError(
                f"{self.path}: no pings in it, so its round trip is unknown; use a test such as rrul or tcp_8down"
            )
        rtt = f"{max(lowest, 0.1):.3f}ms"
        rates = [f"{max(quantile(total, 0.95) / _PAYLOAD, 0.001):.3f}mbit" for total in (down, up) if total]
        link: dict[str, Any] = {"rate": rates[0]}
        if up and down:
            link["up"] = {"rate": rates[1], "queue": up_queue}
        # A test that loads only one direction gives no information about the other.
        flows = [
            {"count": len(self.streams(way)), "rtt": rtt, "stagger": "1s"}
            | ({"direction": "up"} if way == "upload" and down else {})
            for way in ("download", "upload")
            if self.streams(way)
        ]
        seconds = max(10.0, min(60.0, self.x[-1] - self.x[0]))
        keys: Any = {"duration": f"{seconds:g}s", "warmup": f"{_MARGIN_S}s", "link": link, "flow": flows}
        return Scenario.from_keys(name=self.path.name.removesuffix(SUFFIX), **keys)

    def summary(self) -> str:
        """Describe the measurement in one line of text."""
        parts = [f"{way} {mean(total):.2f} Mbit/s" for way in ("download", "upload") if (total := self.total(way))]
        if pings := self.round_trips():
            parts.append(f"ping mean {mean(pings):.1f} ms, p95 {quantile(pings, 0.95):.1f} ms")
        return f"measured ({self.test}): " + "; ".join(parts)


def is_flent(path: str | Path) -> bool:
    """Return whether a file is a data file of Flent, by its name."""
    return str(path).endswith(SUFFIX)


def _plain(path: Path) -> dict[str, Any]:
    """Unpack and parse in bounded memory."""
    packed = _core.read_file(path, "records")
    unpack = zlib.decompressobj(wbits=_GZIP)
    try:
        text = unpack.decompress(packed, _MAX_BYTES)
    except zlib.error:
        raise InputError(f"{path}: not a gzip file; Flent's data files are named *{SUFFIX}") from None
    if unpack.unconsumed_tail:
        raise InputError(f"{path}: more than {_MAX_BYTES >> 20} MiB unpacked; cut the test shorter")
    if not unpack.eof:
        raise InputError(f"{path}: the gzip data end too early; copy the file again")
    if sum(map(text.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise InputError(f"{path}: more than {_MAX_VALUES // 10**6} million values; cut the test shorter")
    if text.count(b"[") > _MAX_LISTS:
        raise _too_many_series(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON inside; is it a data file of Flent?") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a list inside; is it a data file of Flent?")
    return data


def _too_many_series(path: Path) -> InputError:
    return InputError(f"{path}: more than {_MAX_SERIES} series; take a test with fewer streams")


def _number(value: object) -> bool:
    """Return whether a value is a plausible time, rate or delay."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_VALUE


def _values(path: Path, name: object, values: object, length: int) -> Values:
    if not isinstance(values, list) or len(values) != length:
        raise InputError(f"{path}: {name}: not a list of {length} samples; is the file whole?")
    return [float(v) if _number(v) else None for v in values]


def document(record: Mapping[str, Any], when: datetime) -> dict[str, Any]:
    """Return the data file of one run as plain data.

    The test is Flent's `tcp_ndown`, `tcp_nup` or, with transfers both ways, `rrul_be_nflows`. `Ping (ms) ICMP` is the
    mean of the senders' smoothed round trips, because the scenario has no ping. Raises InputError for a record without
    time series or without TCP.
    """
    series = record.get("series")
    if series is None:
        raise InputError(f"--flent: the record has no time series; keep them, in bins of {STEP_S} s")
    step = float(series["bin_s"])
    bins = len(series["backlog_ms"])
    if not bins:
        raise InputError(f"--flent: the run has no whole bin of {step:g} s; give a longer --duration")
    streams: dict[str, list[Values]] = {"download": [], "upload": []}
    round_trips: list[Values] = []
    for flow, goodput, rtt in zip(record["flows"], series["goodput_mbps"], series["rtt_ms"], strict=True):
        if flow["kind"] in _BULK:
            streams["download" if flow["direction"] == "down" else "upload"].append(goodput)
            round_trips.append(rtt)
    if not round_trips:
        raise InputError("--flent: the scenario has no TCP flow, and Flent's tests are about TCP; add --flow cubic")
    both = all(streams.values())
    test = "rrul_be_nflows" if both else "tcp_ndown" if streams["download"] else "tcp_nup"
    results: dict[str, Values] = {}
    for way, flows in streams.items():
        if not flows:
            continue
        name = f"TCP {way}{' BE' if both else ''}"
        results |= {f"{name}::{i}": flow for i, flow in enumerate(flows, 1)}
        results[f"TCP {way} avg"] = over(flows, mean)
        results[f"TCP {way} sum"] = over(flows, math.fsum)
        if not both:
            results[f"TCP {way} fairness"] = over(flows, _fairness)
    if both:
        results["TCP totals"] = over([*streams["download"], *streams["upload"]], math.fsum)
    results["Ping (ms) ICMP"] = over(round_trips, mean)
    if both:
        results["Ping (ms) avg"] = results["Ping (ms) ICMP"]
    total = round(bins * step, 9)
    return {
        "version": VERSION,
        "x_values": [round(k * step, 9) for k in range(1, bins + 1)],
        "results": results,
        "metadata": {
            "NAME": test,
            "TITLE": f"{record['scenario']} {record['queue']}",
            "NOTE": record.get("note", _SIMULATED),
            "HOST": "simulation",
            "HOSTS": ["simulation"],
            "LOCAL_HOST": "simulation",
            "TIME": _iso(when),
            "T0": _iso(when),
            "STEP_SIZE": step,
            "LENGTH": max(total - 2 * _MARGIN_S, step),
            "TOTAL_LENGTH": total,
            "IP_VERSION": 4,
            "TEST_PARAMETERS": {f"{way}_streams": str(len(flows)) for way, flows in streams.items() if flows},
            "DATA_FILENAME": f"{record['scenario']}-{record['seed']}{SUFFIX}",
            "SERIES_META": {name: {} for name in results},
            "QUELL": {key: record[key] for key in _ORIGIN if key in record},
        },
        # Flent treats a run without raw samples as empty.
        "raw_values": {
            name: [{"t": when.timestamp() + k * step, "val": v} for k, v in enumerate(values, 1) if v is not None]
            for name, values in results.items()
            if name.startswith("Ping (ms) ICMP") or "::" in name
        },
    }


def of_shell(records: Sequence[Mapping[str, Any]], base_ms: float) -> dict[str, Any]:
    """Join the records of a shell's directions, [down, up], to one record for `document`.

    All traffic of a direction is one stream. A round trip is `base_ms` plus the mean sojourns in both queues.
    """
    down, up = (record["series"] for record in records)
    bins = min(len(down["backlog_ms"]), len(up["backlog_ms"]))
    waits = zip(down["sojourn_ms"], up["sojourn_ms"], strict=False)
    round_trips = [base_ms + (there or 0.0) + (back or 0.0) for there, back in waits][:bins]
    return {
        "scenario": "shell",
        "queue": " and ".join(dict.fromkeys(map(row_name, records))),
        "seed": records[0]["seed"],
        "note": _MEASURED,
        "flows": [{"kind": "tcp", "direction": way} for way in ("down", "up")],
        "series": {
            "bin_s": down["bin_s"],
            "backlog_ms": down["backlog_ms"][:bins],
            # If nothing was sent, there is no flow.
            "goodput_mbps": [(series["goodput_mbps"] or [[0.0] * bins])[0][:bins] for series in (down, up)],
            "rtt_ms": [round_trips, round_trips],
        },
    }


def write(path: Path, records: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write a data file per record: `path` for one, else with queue and seed before the suffix. Return the paths."""
    when = datetime.now(UTC)
    paths = [path] if len(records) == 1 else _names(path, records)
    for at, record in zip(paths, records, strict=True):
        text = json.dumps(document(record, when), allow_nan=False, indent=1)
        files.write_whole(at, partial(_pack, text))
    return paths


def _pack(text: str, part: Path) -> None:
    part.write_bytes(zlib.compress(text.encode(), wbits=_GZIP))


_MAX_QUEUE = 100
"""Largest number of characters of queue words in a file's name, which may have 255 bytes."""


def _names(path: Path, records: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Name a file for each record. Queues whose words differ only in replaced characters are numbered.

    So are runs with the same queue and seed, such as those of two scenarios.
    """
    queues: dict[str, list[tuple[str, int]]] = {}
    runs: Counter[tuple[str, int]] = Counter()
    names = []
    for record in records:
        queue = "".join(c if (c.isascii() and c.isalnum()) or c in ".-" else "_" for c in row_name(record))[:_MAX_QUEUE]
        same = queues.setdefault(queue, [])
        run = row_name(record), record["seed"]
        named_apart = row_name(record), runs[run]
        runs[run] += 1
        if named_apart not in same:
            same.append(named_apart)
        number = same.index(named_apart)
        named = f"{path.name.removesuffix(SUFFIX)}.{queue}{f'.{number + 1}' if number else ''}"
        names.append(path.with_name(f"{named}.{record['seed']}{SUFFIX}"))
    return names


def _iso(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def over(flows: Sequence[Values], combine: Callable[[Sequence[float]], float]) -> Values:
    """Combine the existing values of several series, sample by sample."""
    return [
        float(combine(there)) if (there := [v for v in column if v is not None]) else None
        for column in zip(*flows, strict=True)
    ]


def _fairness(rates: Sequence[float]) -> float:
    fair = jain(rates)
    return 1.0 if fair is None else fair
