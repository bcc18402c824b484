"""The metrics of docs/reference/metrics.md, for runs whose figures can be computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

import quell
from quell.inputs.keys import Flow, Hop, Link, Up

# 25 packets of 1 ms each arrive at the same instant and wait 0, 1, ... 24 ms. The next 25 come 100 ms later.
BURST: Flow = {"kind": "cbr", "count": 25, "size": 1250, "rate": "100kbit", "rtt": "60ms", "stagger": "0s"}
# 5 packets of 10 ms each: they wait 0, 10, ... 40 ms.
UPWARDS: Flow = {**BURST, "count": 5, "direction": "up"}


def record(limit: int, flows: list[Flow], more: Link | None = None, **keys: Any) -> dict[str, Any]:
    link: Link = {"rate": "10mbit", "overhead": 0, **(more or {})}
    scenario = quell.Scenario.from_keys(link=link, duration="20s", warmup="2s", flow=flows, **keys)
    return quell.run(scenario, aqm=f"pfifo limit {limit}", nested=True).to_dicts()[0]


def test_a_bursts_grade_follows_its_mean_sojourn_and_its_scores_follow_percentiles() -> None:
    run = record(1000, [BURST])
    assert (run["grade"], run["grade_ms"]) == ("A", pytest.approx(12.0))
    # The median round trip is 60 + 12 ms, the 99th percentile 60 + 24: 100 (1 - 42 / 70) and 100 (1 - 24 / 140).
    assert run["qoo"] == {"game": pytest.approx(40.0, abs=0.2), "video_call": 100.0, "streaming": 100.0}
    # Points: 0 for 60 ms of latency, 10 for an increase of 12 ms, 10 for no loss, 10 for no jitter, 5 for 2.5 Mbit/s.
    assert run["aim"] == {
        "streaming": {"points": 25.0, "score": "average"},
        "gaming": {"points": 20.0, "score": "average"},
        "rtc": {"points": 30.0, "score": "good"},
    }


def test_loss_counts_for_the_queue_and_for_the_flow_that_finds_it_full() -> None:
    # One packet is on the link and 23 wait: the last of 25 is dropped.
    run = record(23, [BURST])
    assert sorted(flow["loss_rate"] for flow in run["flows"]) == [0.0] * 24 + [1.0]
    assert run["loss_rate"] == pytest.approx(0.04)
    assert run["grade_ms"] == pytest.approx(11.5)
    # With 4 % of loss: 100 (1 - 3.5 / 4.5); 0, because it is more than 2 %; 100 (1 - 2 / 18).
    assert run["qoo"] == {
        "game": pytest.approx(100 / 4.5, abs=0.1), "video_call": 0.0, "streaming": pytest.approx(100 * 16 / 18, abs=0.1)
    }  # fmt: skip
    assert run["aim"]["gaming"]["points"] == 15.0, "5 points for 4 % of loss instead of 10"


def test_delays_of_flows_are_propagation_wait_and_service() -> None:
    delays = sorted(flow["delay_ms"]["mean"] for flow in record(1000, [BURST])["flows"])
    # Half of the round trip, 1 ms for each packet ahead, and 1 ms for the packet itself.
    assert delays == [pytest.approx(30 + wait + 1) for wait in range(25)]
    assert {flow["jitter_ms"] for flow in record(1000, [BURST])["flows"]} == {0.0}


def test_alternating_delays_are_jitter() -> None:
    # Packets of one flow have no packet or four packets ahead of them, alternately: delays differ by 4 ms.
    slow: Flow = {**BURST, "count": 4, "rate": "50kbit"}
    run = record(1000, [slow, {**BURST, "count": 1}])
    last = run["flows"][-1]
    assert (last["delay_ms"]["mean"], last["jitter_ms"]) == (
        pytest.approx(33.0, abs=0.05),
        pytest.approx(4.0, abs=0.05),
    )


def test_the_grade_is_of_the_worse_direction_and_adds_up_the_queues_on_the_path() -> None:
    # Packets leave the bottleneck 1 ms apart, and the hop needs 2 ms for each: they wait 0, 1, ... 24 ms again.
    hop: Hop = {"rate": "5mbit", "queue": "pfifo limit 1000", "overhead": 0}
    up: Up = {"rate": "1mbit", "queue": "pfifo limit 1000", "overhead": 0}
    both = record(1000, [BURST, UPWARDS], {"up": up}, hop=[hop])
    assert (both["grade_down_ms"], both["grade_up_ms"]) == (pytest.approx(24.0), pytest.approx(20.0))
    assert (both["grade"], both["grade_ms"]) == ("A", both["grade_down_ms"])
    assert both["up"]["sojourn_ms"]["mean"] == pytest.approx(20.0)
    # The median round trip, 60 + 12 + 12 + 20 ms, is above 100 ms.
    assert both["qoo"]["game"] == 0.0
    # The 99th percentile is 60 + 24 + 24 + 40 ms: 100 (1 - 48 / 100).
    assert both["qoo"]["video_call"] == pytest.approx(52.0, abs=1.0)
    slow = record(1000, [BURST, UPWARDS], {"up": {**up, "rate": "900kbit"}})
    assert (slow["grade_down_ms"], slow["grade_up_ms"]) == (pytest.approx(12.0), pytest.approx(20.0 / 0.9))
    assert slow["grade_ms"] == slow["grade_up_ms"]


def test_the_uplinks_record_has_the_bottlenecks_keys() -> None:
    up: Up = {"rate": "1mbit", "queue": "pfifo limit 3", "overhead": 0}
    run = record(1000, [BURST, UPWARDS], {"up": up})
    of_queues = {"queue", "sojourn_cdf", "limit_packets", "drops_by_cause", "tins"}
    metrics = {
        key for key in run if key.startswith(("sojourn", "backlog", "drops", "marks", "mark", "loss", "throughput"))
    }
    assert set(run["up"]) >= (metrics | of_queues | {"goodput_mbps", "capacity_mbps", "utilisation", "packets"})
    # Of five packets one is on the link and three wait: the fifth is dropped.
    assert run["up"]["drops_by_cause"]["overflow"] == run["up"]["drops"]
    assert run["up"]["loss_rate"] == pytest.approx(0.2)
    assert run["up"]["sojourn_cdf"][-1][1] == 1.0
