"""systemd-networkd: sections of `.network` files (systemd.network(5)) and of an ifb's `.netdev`.

networkd cannot redirect arriving packets; two commands of tc do that once the interface is up.
"""

from __future__ import annotations

from quell.inputs.framing import Framing
from quell.tune.line import Line, Shaped
from quell.tune.space import ISOLATION, TINS

KINDS = ("cake", "fq_codel", "codel")
"""Disciplines whose options networkd supports; for PIE and fq_pie it has only a limit."""

LACKS = frozenset({"ingress"})
"""Options that it does not support."""

_FLAGS = {
    "nat": "NAT=yes",
    "ack-filter": "AckFilter=yes",
    "ack-filter-aggressive": "AckFilter=aggressive",
    "atm": "CompensationMode=atm",
    "ptm": "CompensationMode=ptm",
}
_CODEL = {
    "target": "TargetSec", "interval": "IntervalSec", "limit": "PacketLimit", "quantum": "QuantumBytes",
}  # fmt: skip
_SECTIONS = {"fq_codel": "FairQueueingControlledDelay", "codel": "ControlledDelay"}


def counts(kind: str, framing: Framing) -> bool:
    """Return whether the shaper can count packets as the line does: networkd has no size table for htb's cells."""
    return kind == "cake" or framing.cells == "none"


def files(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return the lines of the files, with each file's name in a comment."""
    inner = f"ifb4{dev}"[:15]
    return [
        f"# In the .network file of {dev}, or /etc/systemd/network/{dev}.network.d/queue.conf",
        *_side(line, up),
        "",
        f"# /etc/systemd/network/{inner}.netdev",
        "[NetDev]",
        f"Name={inner}",
        "Kind=ifb",
        "",
        f"# /etc/systemd/network/{inner}.network",
        "[Match]",
        f"Name={inner}",
        "",
        *_side(line, down),
        "",
        f"# Once {dev} is up (networkd has no option for this):",
        f"#   tc qdisc add dev {dev} handle ffff: ingress",
        f"#   tc filter add dev {dev} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 "
        f"action mirred egress redirect dev {inner}",
    ]


def _side(line: Line, shaped: Shaped) -> list[str]:
    kind, *words = shaped.queue.split()
    if kind == "cake":
        return ["[CAKE]", "Parent=root", *_cake(line, words)]
    framing = Framing.of(line.framing)
    extra = framing.beyond_ethernet if framing.given else 0
    pairs = zip(words[::2], words[1::2], strict=True)
    return [
        "[HierarchyTokenBucket]",
        "Parent=root",
        "Handle=0001",
        "DefaultClass=10",
        "",
        "[HierarchyTokenBucketClass]",
        "Parent=root",
        "ClassId=1:10",
        f"Rate={shaped.bits // 1000}K",
        *([f"OverheadBytes={extra}"] if extra > 0 else []),
        "",
        f"[{_SECTIONS[kind]}]",
        "Parent=1:10",
        *(f"{_CODEL[name]}={value}" for name, value in pairs),
    ]


def _cake(line: Line, words: list[str]) -> list[str]:
    framing = Framing.of(line.framing)
    lines = []
    if framing.given:
        lines = [f"OverheadBytes={framing.overhead}", *([f"MPUBytes={framing.mpu}"] if framing.mpu else [])]
        lines += [_FLAGS[framing.cells]] if framing.cells in _FLAGS else []
    rest = [word for word in words if word not in line.framing.split()]
    while rest:
        word, *rest = rest
        if word == "bandwidth":
            lines.insert(0, f"Bandwidth={_systemd_rate(rest.pop(0))}")
        elif word == "rtt":
            lines.append(f"RTTSec={rest.pop(0)}")
        elif word in _FLAGS:
            lines.append(_FLAGS[word])
        elif word in ISOLATION:
            lines.append(f"FlowIsolationMode={word}")
        elif word in TINS:
            lines.append(f"PriorityQueueingPreset={word}")
    return lines


def _systemd_rate(text: str) -> str:
    return text.replace("mbit", "M").replace("kbit", "K")
