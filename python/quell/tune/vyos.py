"""VyOS: configuration commands.

Paths and values are those of `interface-definitions/qos.xml.in` with its includes, `interfaces_input.xml.in` and
`include/interface/redirect.xml.i` in vyos/vyos-1x (commit 3710c587), and `flow-isolation-nat` that of pull request 4173
there. `python/vyos/qos/cake.py` and `trafficshaper.py` say which commands of tc they become: cake with neither
overhead, tins nor `ingress`, and a class of htb with fq_codel that never marks. The interface's queue shapes the
upload, and that of an ifb, to which the interface redirects arriving packets, the download.
"""

from __future__ import annotations

from quell.inputs.framing import ETHERNET, Framing
from quell.tune.line import Line, Shaped
from quell.tune.space import ISOLATION

KINDS = ("cake", "fq_codel")
"""Supported disciplines with options; it has further ones without."""

LACKS = frozenset({"tins", "ack filter", "ingress"})
"""Options that it does not support; versions since July 2025 have an ACK filter."""

SECTIONS = {
    "eth": "ethernet", "lan": "ethernet", "eno": "ethernet", "ens": "ethernet", "bond": "bonding", "br": "bridge",
    "peth": "pseudo-ethernet", "pppoe": "pppoe", "wlan": "wireless", "wwan": "wwan",
}  # fmt: skip
"""The section of `interfaces` for each beginning of a name (`python/vyos/ifconfig`, prefixes)."""

NAMES = rf"({'|'.join(SECTIONS)})\d+(\.\d+){{0,2}}"
"""Names of interfaces; numbers after dots are those of VLANs."""

_ISOLATION = dict(
    zip(
        ISOLATION,
        ("blind", "src-host", "dst-host", "host", "flow", "dual-src-host", "dual-dst-host", "triple-isolate"),
        strict=True,
    )
)
_BURST = 1600
"""Bytes, the default of tc, which the simulated htb has; that of VyOS is 15 kB."""
_FQ_CODEL = {
    "codel-quantum": ("quantum", "1514"), "interval": ("interval", "100ms"), "queue-limit": ("limit", "10240"),
    "target": ("target", "5ms"),
}  # fmt: skip
"""Names in VyOS, each with that in tc and its default there."""


def commands(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return commands of the configuration mode; they replace earlier results and other policies of the interface."""
    policies = {"quell-down": (down, up), "quell-up": (up, down)}
    return [
        f"delete qos interface {dev}",
        "delete qos interface ifb0",
        *(f"delete qos policy {kind} {name}" for kind in ("cake", "shaper") for name in policies),
        *(f"set qos policy {each}" for name, sides in policies.items() for each in _policy(name, dev, line, *sides)),
        f"set qos interface {dev} egress quell-up",
        "set qos interface ifb0 egress quell-down",
        "set interfaces input ifb0",
        f"set interfaces {path(dev)} redirect ifb0",
        "commit",
    ]


def path(dev: str) -> str:
    """Return the path of an interface below `interfaces`."""
    name, *vlans = dev.split(".")
    tags = ("vif",) if len(vlans) == 1 else ("vif-s", "vif-c")
    words = [SECTIONS.get(name.rstrip("0123456789"), "ethernet"), name]
    return " ".join([*words, *(word for pair in zip(tags, vlans, strict=False) for word in pair)])


def _policy(name: str, dev: str, line: Line, shaped: Shaped, opposite: Shaped) -> list[str]:
    """Return the paths and values of a policy below `qos policy`."""
    # The kernel counts Ethernet's header with a packet, but no header of PPPoE.
    counted = 0 if dev.startswith("pppoe") else ETHERNET
    rate = f"{Framing.of(line.framing).scaled(shaped.bits, counted, opposite.bits) // 1000}kbit"
    if shaped.itself:
        values = {
            "bandwidth": rate,
            "flow-isolation": _ISOLATION[shaped.choice(ISOLATION, "triple-isolate")],
            "rtt": _number(shaped.value("rtt", "100ms")),
        }
        lines = [f"cake {name} {key} {value}" for key, value in values.items()]
        return [*lines, f"cake {name} flow-isolation-nat"]
    values = {"bandwidth": rate, "burst": str(_BURST), "queue-type": "fq-codel", "flows": "1024"}
    values |= {key: _number(shaped.value(*option)) for key, option in _FQ_CODEL.items()}
    return [
        f"shaper {name} bandwidth {rate}",
        *(f"shaper {name} default {key} {value}" for key, value in values.items()),
    ]


def _number(value: str) -> str:
    """Return a number without its unit, which is always ms."""
    return value.removesuffix("ms")
