"""RouterOS 7: console commands (manual.mikrotik.com, `/queue/type` and CAKE).

One simple queue on the interface to the line has a queue type per direction. RouterOS calls arrivals on that interface
upload, so the download's words come first. All options are written out, since the defaults may differ from those of
Linux.
"""

from __future__ import annotations

from quell.inputs.framing import Framing
from quell.tune.line import Line, Shaped
from quell.tune.space import ISOLATION, TINS

KINDS = ("cake", "fq_codel", "codel", "pfifo")
"""Supported disciplines with options; its SFQ has none of the options that are searched."""

LACKS = frozenset({"ingress"})
"""Options that it does not support."""

_NAME = "quell"
_FILTERS = {"no-ack-filter": "none", "ack-filter": "filter", "ack-filter-aggressive": "aggressive"}
_CODEL = {"target": "5ms", "interval": "100ms"}
_DEFAULTS = {
    # As in Linux, where fq_codel marks and codel drops.
    "fq_codel": _CODEL | {"quantum": "1514", "limit": "10240", "flows": "1024", "ecn": "yes"},
    "codel": _CODEL | {"limit": "1000", "ecn": "no"},
    "pfifo": {"limit": "1000"},
}
_BUCKET = "0.001"
"""Burst of RouterOS's HTB, seconds at the rate; its default is 0.1."""


def commands(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return console commands; running them again replaces their earlier results."""
    queue = f"/queue/simple add name={_NAME} target={dev} queue={_NAME}-down/{_NAME}-up"
    if not down.itself:
        queue += f" max-limit={_rate(down)}/{_rate(up)} bucket-size={_BUCKET}/{_BUCKET}"
    return [
        "# FastTrack passes by simple queues: without this command they see only a part of the traffic.",
        "/ip/firewall/filter disable [find action=fasttrack-connection]",
        f"/queue/simple remove [find name={_NAME}]",
        f"/queue/type remove [find name={_NAME}-down]",
        f"/queue/type remove [find name={_NAME}-up]",
        f"/queue/type add name={_NAME}-down {_type(line, down)}",
        f"/queue/type add name={_NAME}-up {_type(line, up)}",
        "# The first simple queue that fits takes a packet: move this one above others.",
        queue,
    ]


def counts(kind: str, framing: Framing) -> bool:
    """Return whether the shaper counts packets like the line: its HTB has no size tables."""
    return kind == "cake" or not framing.given or (framing.beyond_ethernet <= 0 and framing.cells == "none")


def _type(line: Line, shaped: Shaped) -> str:
    kind, *words = shaped.queue.split()
    if kind == "cake":
        return f"kind=cake {_cake(line, shaped)}"
    name = kind.replace("_", "-")
    options = _DEFAULTS[kind] | dict(zip(words[::2], words[1::2], strict=True))
    return " ".join([f"kind={name}", *(f"{name}-{key}={value}" for key, value in options.items())])


def _cake(line: Line, shaped: Shaped) -> str:
    framing = Framing.of(line.framing)
    options = {
        "bandwidth": _rate(shaped),
        "rtt": shaped.value("rtt", "100ms"),
        "diffserv": shaped.choice(TINS, "diffserv3"),
        "flowmode": shaped.choice(ISOLATION, "triple-isolate"),
        "nat": "yes",
        "ack-filter": _FILTERS[shaped.choice(_FILTERS, "no-ack-filter")],
        "wash": "no",
    }
    if framing.given:
        options |= {"overhead": str(framing.overhead), "mpu": str(framing.mpu), "atm": framing.cells}
    return " ".join(f"cake-{key}={value}" for key, value in options.items())


def _rate(shaped: Shaped) -> str:
    return f"{shaped.bits // 1000}k"
