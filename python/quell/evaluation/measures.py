"""Measures of a run: the metrics of RFC 7928, section 2, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quell.results.stats import Record, mean

_POINTS = 240
"""Maximum number of points of a plotted series."""
_CDF = 60
"""Approximate maximum number of points of a plotted distribution."""
_CUT = 0.1
"""Minimum reduction of a flow's congestion window, as a share, that counts as a reaction to congestion."""


@dataclass(frozen=True)
class Measure:
    """Title and format of a measure."""

    title: str
    unit: str
    digits: int
    scale: float = 1.0

    def text(self, value: float) -> str:
        """Format a value with its unit."""
        shown = f"{value * self.scale:.{self.digits}f}"
        return f"{shown} {self.unit}" if self.unit else shown


MEASURES: dict[str, Measure] = {
    "goodput_mbps": Measure("goodput", "Mbit/s", 2),
    "delay_ms": Measure("mean queueing delay", "ms", 1),
    "delay_p95_ms": Measure("p95 of the queueing delay", "ms", 1),
    "delay_p99_ms": Measure("p99 of the queueing delay", "ms", 1),
    "delay_sd_ms": Measure("standard deviation of the queueing delay", "ms", 1),
    "loss_rate": Measure("loss ratio", "%", 2, 100.0),
    "mark_rate": Measure("marks", "%", 2, 100.0),
    "loss_gap_ms": Measure("mean time between losses", "ms", 0),
    "loss_burst": Measure("packets per loss event", "", 1),
    "synchronisation": Measure("loss synchronisation", "", 2),
    "jain": Measure("Jain's index", "", 3),
    "fct_ms": Measure("mean flow completion time", "ms", 0),
    "fct_p95_ms": Measure("p95 of the flow completion time", "ms", 0),
    "startup_ms": Measure("start-up time", "ms", 0),
    "cat1_mbps": Measure("goodput of category I", "Mbit/s", 2),
    "cat2_mbps": Measure("goodput of category II", "Mbit/s", 2),
    "cat_ratio": Measure("goodput of category II, of that of category I", "", 2),
    "cat1_loss": Measure("loss ratio of category I", "%", 2, 100.0),
    "cat2_loss": Measure("loss ratio of category II", "%", 2, 100.0),
    "size_bias": Measure("ratio of losses, large and small packets", "", 2),
    "ecn_loss": Measure("losses with ECN, of those without", "", 2),
    "ecn_delay": Measure("delay with ECN, of that without", "", 2),
    "ecn_goodput": Measure("goodput with ECN, of that without", "", 3),
    "sparse_ms": Measure("p95 of a sparse flow's queueing delay", "ms", 1),
    "isolation": Measure("sparse flow's p95 of all packets' p95", "", 2),
    "friendly_share": Measure("NewReno's share", "%", 1, 100.0),
    "tcp_mbps": Measure("goodput of TCP", "Mbit/s", 2),
    "tcp_delay_ms": Measure("mean delay of TCP beyond the path's", "ms", 1),
    "datagram_loss": Measure("loss ratio of datagrams", "%", 2, 100.0),
    "datagram_p95_ms": Measure("p95 of the datagrams' queueing delay", "ms", 1),
    "frames_loss": Measure("loss ratio of video frames' packets", "%", 2, 100.0),
    "goodput_change": Measure("largest change of goodput", "%", 1, 100.0),
    "delay_change": Measure("largest factor of the delay", "", 2),
    "mos": Measure("voice quality (MOS)", "", 2),
    "page_ms": Measure("median page load time", "ms", 0),
    "stalls": Measure("share of stalled playback", "%", 1, 100.0),
    "up_delay_ms": Measure("mean queueing delay upwards", "ms", 1),
    "up_mbps": Measure("goodput upwards", "Mbit/s", 2),
    "path_delay_ms": Measure("mean queueing delay of both queues", "ms", 1),
    "through_mbps": Measure("goodput of flows through both queues", "Mbit/s", 2),
    "total_mbps": Measure("goodput of all flows", "Mbit/s", 2),
    "cost_ns": Measure("CPU time of a packet", "ns", 0),
    "queue_ns": Measure("CPU time beyond tail drop's", "ns", 0),
    "parameters": Measure("parameters", "", 0),
}
"""All measures, in the order of the page."""

_MAYBE = (float, None)
_DISTRIBUTION = dict.fromkeys(("mean", "p50", "p95", "p99"), float)
_FLOW = {
    "kind": str, "cc": (str, None), "direction": (str, None), "base_rtt_ms": float, "goodput_mbps": float,
    "completed": _MAYBE, "delay_ms": (_DISTRIBUTION, None), "jitter_ms": _MAYBE, "loss_rate": _MAYBE,
}  # fmt: skip
"""Kept fields of each flow of a record, with their types."""
_RUN = {
    "seed": float, "measured_s": float, "goodput_mbps": float, "sojourn_ms": (_DISTRIBUTION, None), "loss_rate": _MAYBE,
    "mark_rate": _MAYBE, "jain": _MAYBE, "fct_ms": (_DISTRIBUTION, None), "packets": float, "cpu_s": float,
}  # fmt: skip
"""Kept fields of the record, with their types."""
_KEPT = (*_RUN, "applications", "hops")


def compact(record: Record, *, plot: bool) -> dict[str, Any]:
    """Reduce a record with series to the data that measures need, and with `plot` that plots need."""
    series = record["series"]
    warm = warm_bins(record)
    delays = [ms for ms in series["sojourn_ms"][warm:] if ms is not None]
    up = record.get("up")
    kept: dict[str, Any] = {key: record[key] for key in _KEPT if key in record}
    kept["flows"] = [{key: flow.get(key) for key in _FLOW} for flow in record["flows"]]
    kept["up"] = None if up is None else {"sojourn_ms": up["sojourn_ms"]}
    kept["delay_sd_ms"] = deviation(delays)
    kept["loss_gap_ms"], kept["loss_burst"] = loss_pattern(series["drops"][warm:], series["bin_s"])
    kept["synchronisation"] = synchronisation([windows[warm:] for windows in series["cwnd_packets"]])
    kept["first_ms"] = [first_delivery_ms(rates, series["bin_s"]) for rates in series["goodput_mbps"]]
    kept["tail_mbps"] = [mean(rates[-(len(rates) // 3) :]) for rates in series["goodput_mbps"]]
    kept["points"] = points = delay_goodput(series, warm)
    kept["ellipse"] = sums(points)
    if plot:
        kept["plot"] = _plot(record)
    del kept["points"]
    return kept


_COMPACT = _RUN | {
    "flows": [_FLOW], "up": ({"sojourn_ms": (_DISTRIBUTION, None)}, None), "delay_sd_ms": _MAYBE,
    "loss_gap_ms": _MAYBE, "loss_burst": _MAYBE, "synchronisation": _MAYBE, "first_ms": [_MAYBE], "tail_mbps": [float],
    "ellipse": [float],
}  # fmt: skip
_PLOT = {
    "bin": float, "warm": float, "delay": [_MAYBE], "throughput": [_MAYBE], "capacity": [_MAYBE], "cdf": [[float]],
    "flows": [[(str, float)]],
}  # fmt: skip
_MAX = 1e100
"""Largest plausible measurement; sums of squares of larger numbers may overflow."""


def is_compact(run: Mapping[str, Any]) -> bool:
    """Return whether this can be a result of `compact`: right keys and types, and no impossible number."""
    if "plot" in run and not _fits(run["plot"], _PLOT):
        return False
    return _plausible(run) and _fits(run, _COMPACT) and len(run["ellipse"]) == len(sums(()))


def _plausible(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_plausible, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int | float) or 0 <= value <= _MAX


def _fits(value: Any, shape: Any) -> bool:
    """Return whether a value has the type `shape` or one of its types, or recursively the shape of its parts."""
    if isinstance(shape, tuple):
        return any(_fits(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(one, shape[0]) for one in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(key in value and _fits(value[key], of) for key, of in shape.items())
    if shape is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return value is None if shape is None else isinstance(value, shape)


def warm_bins(record: Record) -> int:
    """Count the series' bins that belong to the warm-up."""
    series = record["series"]
    bins = len(series["throughput_mbps"])
    measured: int = round(record["measured_s"] / series["bin_s"])
    return max(0, bins - measured)


def common(run: Record) -> dict[str, float | None]:
    """Return the measures that every scenario has."""
    sojourn, fct = run["sojourn_ms"] or {}, run["fct_ms"] or {}
    return {
        "goodput_mbps": run["goodput_mbps"],
        "delay_ms": sojourn.get("mean"),
        "delay_p95_ms": sojourn.get("p95"),
        "delay_p99_ms": sojourn.get("p99"),
        "delay_sd_ms": run["delay_sd_ms"],
        "loss_rate": run["loss_rate"],
        "mark_rate": run["mark_rate"],
        "loss_gap_ms": run["loss_gap_ms"],
        "loss_burst": run["loss_burst"],
        "synchronisation": run["synchronisation"],
        "jain": run["jain"],
        "fct_ms": fct.get("mean"),
        "fct_p95_ms": fct.get("p95"),
    }


def mean_over_runs(runs: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Average the measures of a scenario's runs; None if no run has a value."""
    out: dict[str, float | None] = {}
    for key in runs[0]:
        values = [value for run in runs if (value := run[key]) is not None]
        out[key] = mean(values) if values else None
    return out


def deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation of means over bins, ms: the variation of latency (section 2.6)."""
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1))


def loss_pattern(drops: Sequence[int], bin_s: float) -> tuple[float | None, float | None]:
    """Return the mean time between loss events, ms, and the packets of an event (section 2.3).

    An event is a sequence of adjacent bins with drops. Both values are None without an event; the time is None with
    only one.
    """
    starts: list[int] = []
    last = -2
    for k, dropped in enumerate(drops):
        if dropped:
            if k > last + 1:
                starts.append(k)
            last = k
    if not starts:
        return None, None
    gap = (starts[-1] - starts[0]) * bin_s * 1000 / (len(starts) - 1) if len(starts) > 1 else None
    return gap, sum(drops) / len(starts)


def synchronisation(windows: Sequence[Sequence[float | None]]) -> float | None:
    """Return the share of flows that cut their window in bins in which at least one does, on average (section 2.4).

    A flow cuts its window in a bin if the window at its end is a tenth smaller than at the end of the previous bin.
    Only flows that run in both bins count. None with fewer than two flows, or if no flow cuts its window.
    """
    shares: list[float] = []
    for k in range(1, min((len(w) for w in windows), default=0)):
        both = [(before, after) for w in windows if (before := w[k - 1]) is not None and (after := w[k]) is not None]
        cut = sum(after <= (1 - _CUT) * before for before, after in both)
        if len(both) > 1 and cut:
            shares.append(cut / len(both))
    return mean(shares) if shares else None


def first_delivery_ms(rates: Sequence[float], bin_s: float) -> float | None:
    """Return the end of the first bin in which a flow delivered data, ms; None if it never did."""
    return next(((k + 1) * bin_s * 1000 for k, rate in enumerate(rates) if rate > 0), None)


def delay_goodput(series: Mapping[str, Any], warm: int) -> list[tuple[float, float]]:
    """Pair the queueing delay of each bin, ms, with the goodput of all flows in it, Mbit/s (section 2.7)."""
    totals = [math.fsum(rates) for rates in zip(*series["goodput_mbps"], strict=True)]
    pairs = zip(series["sojourn_ms"][warm:], totals[warm:], strict=False)
    return [(delay, total) for delay, total in pairs if delay is not None]


def sums(points: Sequence[tuple[float, float]]) -> list[float]:
    """Return count, sums, sums of squares and of products, which can be added over runs for an ellipse."""
    return [
        float(len(points)),
        math.fsum(x for x, _ in points),
        math.fsum(y for _, y in points),
        math.fsum(x * x for x, _ in points),
        math.fsum(y * y for _, y in points),
        math.fsum(x * y for x, y in points),
    ]


def ellipse(runs: Sequence[Sequence[float]]) -> dict[str, float] | None:
    """Return the ellipse of one standard deviation around the mean of delay and goodput, all runs together.

    `x` and `y` are the mean, `a` and `b` the half axes and `turn` the angle of `a` to the delay's axis in radians, in
    units of the standard deviations `sx` and `sy`. None with fewer than two points.
    """
    n, x, y, xx, yy, xy = (math.fsum(column) for column in zip(*runs, strict=True))
    if n < 2:
        return None
    x, y = x / n, y / n
    sx, sy = math.sqrt(max(0.0, xx / n - x * x)), math.sqrt(max(0.0, yy / n - y * y))
    # In units of the standard deviations the covariance matrix is [[1, r], [r, 1]]: axes along both diagonals.
    r = (xy / n - x * y) / (sx * sy) if sx and sy else 0.0
    r = max(-1.0, min(1.0, r))
    turn = math.copysign(math.pi / 4, r) if r else 0.0
    return {"x": x, "y": y, "sx": sx, "sy": sy, "a": math.sqrt(1 + abs(r)), "b": math.sqrt(1 - abs(r)), "turn": turn}


def _plot(record: Record) -> dict[str, Any]:
    series = record["series"]
    count = len(series["throughput_mbps"])
    step = max(1, math.ceil(count / _POINTS))

    def short(values: Sequence[float | None]) -> list[float | None]:
        out: list[float | None] = []
        for k in range(0, count, step):
            there = [v for v in values[k : k + step] if v is not None]
            out.append(_round(mean(there)) if there else None)
        return out

    capacity = short(series["capacity_mbps"])
    cdf = record["sojourn_cdf"] or []
    every = max(1, math.ceil(len(cdf) / _CDF))
    flows = [[_label(flow), _round(flow["goodput_mbps"])] for flow in record["flows"]]
    return {
        "bin": series["bin_s"] * step,
        "warm": warm_bins(record) * series["bin_s"],
        "delay": short(series["sojourn_ms"]),
        "throughput": short(series["throughput_mbps"]),
        "capacity": capacity,
        "cdf": [[_round(ms), _round(share)] for ms, share in [*cdf[::every], *cdf[-1:]]],
        "flows": flows,
    }


def _label(flow: Record) -> str:
    return f"{flow['cc'] or flow['kind']} {flow['base_rtt_ms']:g} ms{' up' if flow['direction'] == 'up' else ''}"


def _round(value: float) -> float:
    return float(f"{value:.4g}")
