"""The cell of LearnQueue's experiments: WARP boards, 26 Mbit/s, one frame at a time below the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quell import experiment
from quell._core import Scenario

DEFAULT, WQM, PIE, LQ = "pfifo limit 400", "wqm target 30ms min 128", "pie target 30ms", "learnqueue"
"""The four schemes. WQM's slides leave its least limit open; LearnQueue's paper prints delays of 75 packets or more."""
QUEUES = (DEFAULT, WQM, PIE, LQ)
NAMES = {DEFAULT: "default", WQM: "wqm", PIE: "pie", LQ: "lq"}


def cell(flows: str, *, wifi: str = "mcs = 3", seconds: int = 100, stations: int = 1) -> Scenario:
    """Return an access point with so many stations; `wifi` are more lines of `[wifi]`. The warm-up counts."""
    return experiment.load(
        f'name = "learnqueue"\nduration = "{seconds}s"\nwarmup = "0s"\n[wifi]\nstations = {stations}\n{wifi}\n'
        f'ampdu = false\nhardware = 1\nserve = "round_robin"\n{flows}'
    )


def udp(mbps: float, sender: str = "ap", receiver: str = "sta1", more: str = "") -> str:
    """Return a flow of packets of 1500 bytes at a constant rate."""
    return f'[[flow]]\nkind = "cbr"\nrate = "{mbps}mbit"\nsize = 1500\nfrom = "{sender}"\nto = "{receiver}"\n{more}'


def tcp(sender: str = "ap", receiver: str = "sta1", count: int = 1) -> str:
    """Return TCP flows whose hosts are at the boards."""
    return f'[[flow]]\ncount = {count}\nrtt = "500us"\nfrom = "{sender}"\nto = "{receiver}"\n'


@dataclass(frozen=True)
class Seen:
    """What one run gave."""

    delay: float
    most: float
    throughput: float
    goodput: float
    cdf: list[tuple[float, float]]
    loss: float
    """Share of the packets that found the node's queues full."""


Seens = Mapping[tuple[str, str], Sequence[Seen]]
"""By experiment and queue words, what each seed gave."""
