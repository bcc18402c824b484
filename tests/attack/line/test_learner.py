"""A sender that bursts in step with the decisions of a queue that learns, or with its trials, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import quell

HEAD = "| attack on `rlaqm throughput learn` | mean delay, ms (without `learn`) | goodput, Mbit/s (without `learn`) |"
TCP: dict[str, Any] = {"cc": "cubic", "count": 2, "rtt": "30ms"}
BURST: dict[str, Any] = {"kind": "onoff", "on": "5ms", "off": "15ms", "gap_on": "400us", "gap_off": "10s"}
"""Its period of 20 ms is the time between two decisions."""
ATTACKS: dict[str, dict[str, Any]] = {
    "bursts right after decisions": BURST | {"start": "1s"},
    "bursts right before decisions": BURST | {"start": "1015ms"},
    "floods as long as a block of a trial": BURST | {"on": "5s", "off": "5s", "gap_on": "800us", "start": "1s"},
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_sender_does_not_teach_a_queue_to_be_slow(
    attack: str, record_property: Callable[[str, object], None]
) -> None:
    flows: list[Any] = [TCP, ATTACKS[attack]]
    scenario = quell.Scenario.from_keys(duration="180s", warmup="90s", link={"rate": "10mbit"}, flow=flows)
    queues = ["rlaqm throughput guard", "rlaqm throughput learn guard"]
    runs = quell.compare(scenario, aqm=queues, seeds=2, jobs=1, nested=True)
    means = {
        queue: (delay, goodput)
        for queue, delay, goodput in runs.group_by("queue")
        .agg(pl.col("sojourn_ms").struct.field("mean").mean(), pl.col("goodput_mbps").mean())
        .iter_rows()
    }
    (frozen, before), (learning, after) = (means[queue] for queue in queues)
    record_property(HEAD, f"| {attack} | {learning:.1f} ({frozen:.1f}) | {after:.2f} ({before:.2f}) |")
    # Without a bound on the delay during trials, the floods multiplied the mean delay by 6.7.
    assert learning < 2.5 * frozen and after > 0.9 * before
