"""The cell of LearnQueue's experiments: WARP boards, 26 Mbit/s, one frame at a time below the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quell._core import Scenario
from quell.inputs.keys import Flow, Wifi

DEFAULT, WQM, PIE, LQ = "pfifo limit 400", "wqm target 30ms min 128", "pie target 30ms", "learnqueue published_reward"
"""The four schemes, LearnQueue with the paper's reward.

WQM's slides do not give its minimum limit; LearnQueue's paper prints delays of 75 packets or more.
"""
QUEUES = (DEFAULT, WQM, PIE, LQ)
NAMES = {DEFAULT: "default", WQM: "wqm", PIE: "pie", LQ: "lq"}


USUAL: Wifi = {"mcs": 3}
"""Keys of the channel."""


def cell(flows: Sequence[Flow], *, wifi: Wifi = USUAL, seconds: int = 100, stations: int = 1) -> Scenario:
    """Return an access point with `stations` stations; `wifi` has further keys of `[wifi]`. There is no warm-up."""
    of_wifi: Wifi = {"stations": stations, **wifi, "ampdu": False, "hardware": 1, "serve": "round_robin"}
    return Scenario.from_keys(name="learnqueue", duration=f"{seconds}s", warmup="0s", wifi=of_wifi, flow=flows)


def udp(mbps: float, sender: str = "ap", receiver: str = "sta1") -> Flow:
    """Return a flow of packets of 1500 bytes at a constant rate."""
    return {"kind": "cbr", "rate": f"{mbps}mbit", "size": 1500, "from": sender, "to": receiver}


def tcp(sender: str = "ap", receiver: str = "sta1", count: int = 1) -> Flow:
    """Return TCP flows whose hosts are at the boards."""
    return {"count": count, "rtt": "500us", "from": sender, "to": receiver}


@dataclass(frozen=True)
class Measurements:
    """Results of one run: delays in ms, rates in Mbit/s."""

    delay: float
    most: float
    throughput: float
    goodput: float
    cdf: list[tuple[float, float]]
    loss: float
    """Share of packets that found the node's queues full."""


Results = Mapping[tuple[str, str], Sequence[Measurements]]
"""Results of each seed by experiment and queue words."""
