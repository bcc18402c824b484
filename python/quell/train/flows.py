"""Flows for LFQ's training and evaluation. No torch, which cluster nodes and evaluations do not need."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from quell import _core
from quell._core import Scenario
from quell.inputs import keys

if TYPE_CHECKING:
    from quell._core import Buffer

RATES, RTTS = (5e6, 25e6), (5e-3, 25e-3)
"""Ranges of the flows' rates, bit/s, and round trips, s."""
Cc = Literal["newreno", "bic"]
"""Congestion controls by their names in rows and results; `bic` is ns-3's BIC."""
CCS: tuple[Cc, ...] = ("newreno", "bic")


def simulate(part: tuple[int, int], weights: Sequence[Buffer], options: dict[str, Any]) -> dict[str, bytearray]:
    """Run the experiments of `part`: the seed of the first one, and their number."""
    return _core.lfq_experiments(weights, *part, **options)


def evaluate(queue: str, points: int = 100) -> dict[str, Any]:
    """Measure a queue on the paper's evaluation (Table VII): single flows of 5 s, NewReno's and BIC's.

    The flows have `points` rates at 15 ms and as many round trips at 15 Mbit/s, evenly spaced over the ranges. Returns
    mean goodput, mean backlog and the mean of the largest backlogs; per congestion control the mean limit and the
    correlation of a run's mean limit with the rate and with the round trip (Tables I to VI; null for a queue without a
    variable limit).
    """
    cases = [
        (cc, axis, value)
        for cc in CCS
        for axis, (low, high) in (("rate", RATES), ("rtt", RTTS))
        for value in _spaced(low, high, points)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        records = list(threads.map(lambda case: _run(queue, *case), cases))
    runs = [(*case, record) for case, record in zip(cases, records, strict=True)]
    results: dict[str, Any] = {
        "throughput_mbps": round(_mean([r["delivered_in_order_mbps"] for r in records]), 3),
        "backlog_packets": round(_mean([r["backlog_packets"]["mean"] for r in records]), 2),
        "backlog_max_packets": round(_mean([r["backlog_packets"]["max"] for r in records]), 2),
    }
    if any(r["limit_packets"] is None for r in records):
        return results
    for cc in CCS:
        results[f"limit_{cc}"] = round(_mean([r["limit_packets"] for c, *_, r in runs if c == cc]), 2)
        for axis in ("rate", "rtt"):
            pairs = [(value, r["limit_packets"]) for c, a, value, r in runs if (c, a) == (cc, axis)]
            results[f"correlation_{cc}_{axis}"] = _correlation(pairs)
    return results


def scenario(cc: Cc, rate_bps: int, half_us: int, more: keys.Flow | None = None) -> Scenario:
    """Return the paper's link with one flow: its rate, half of its round trip, and further keys of the flow."""
    flow: keys.Flow = {"cc": "bic_ns3" if cc == "bic" else cc, "rtt": f"{2 * half_us}us", **(more or {})}
    return Scenario("lfq").replace(link={"rate": f"{rate_bps}bit", "delay": f"{half_us}us"}, flow=flow)


def _run(queue: str, cc: Cc, axis: str, value: float) -> dict[str, Any]:
    rate_bps, rtt_s = (value, 15e-3) if axis == "rate" else (15e6, value)
    link = scenario(cc, round(rate_bps), round(rtt_s * 1e6 / 2))
    records: list[str] = []
    _core.run_many(link, [(queue, 1, None)], lambda _, record: records.append(record), threads=1)
    record: dict[str, Any] = json.loads(records[0])
    return record


def _spaced(low: float, high: float, points: int) -> list[float]:
    return [low + (high - low) * k / (points - 1) for k in range(points)]


def _correlation(pairs: list[tuple[float, float]]) -> float | None:
    """Return Pearson's correlation; None if one side is constant."""
    try:
        return round(statistics.correlation(*zip(*pairs, strict=True)), 4)
    except statistics.StatisticsError:
        return None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
