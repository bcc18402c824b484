"""OPNsense: what to enter in its shaper's pages.

Labels of fields are those of `controllers/OPNsense/TrafficShaper/forms/` and values those of
`models/OPNsense/TrafficShaper/TrafficShaper.xml`, both below `src/opnsense/mvc/app/` in opnsense/core (commit
f95e8151); the steps are those of `source/manual/how-tos/shaper_bufferbloat.rst` in opnsense/docs. The shaper is
FreeBSD's dummynet (`sys/netpfil/ipfw/ip_dn_io.c` and `dn_sched_fq_codel.c` in freebsd/freebsd-src): it counts IP
packets without a header of the line, and fq_codel is the only discipline with options like those of Linux.
"""

from __future__ import annotations

from quell.inputs.framing import Framing
from quell.tune.line import Line, Shaped

KINDS = ("fq_codel",)

_DEFAULTS = {"target": "5ms", "interval": "100ms", "quantum": "1514", "limit": "10240"}
"""Defaults of Linux and of dummynet."""


def steps(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return the values of fields, one per line, below the page to which they belong."""
    sides = {"quell-download": ("in", down, up), "quell-upload": ("out", up, down)}
    return [
        "Firewall > Shaper > Rules, Queues, Pipes: delete older entries whose descriptions begin with quell-",
        *(text for name, (_, *both) in sides.items() for text in _entry("Pipes", _pipe(name, line, *both))),
        *(text for name in sides for text in _entry("Queues", {"Pipe": name, "Description": f"{name}-queue"})),
        *(text for name, (way, *_) in sides.items() for text in _entry("Rules", _rule(name, dev, way))),
        "Apply",
    ]


def _entry(page: str, fields: dict[str, str]) -> list[str]:
    return [f"Firewall > Shaper > {page}: add", *(f"    {label}: {value}" for label, value in fields.items())]


def _pipe(name: str, line: Line, shaped: Shaped, opposite: Shaped) -> dict[str, str]:
    target, interval, quantum, limit = (shaped.value(key, value) for key, value in _DEFAULTS.items())
    return {
        "Bandwidth": str(Framing.of(line.framing).scaled(shaped.bits, 0, opposite.bits) // 1000),
        "Bandwidth Metric": "kbit/s",
        "Scheduler type": "FlowQueue-CoDel",
        "(FQ-)CoDel target": target.removesuffix("ms"),
        "(FQ-)CoDel interval": interval.removesuffix("ms"),
        "(FQ-)CoDel ECN": "checked",
        "FQ-CoDel quantum": quantum,
        "FQ-CoDel limit": limit,
        "FQ-CoDel flows": "1024",
        "Description": name,
    }


def _rule(name: str, dev: str, way: str) -> dict[str, str]:
    return {"Interface": dev, "Direction": way, "Target": f"{name}-queue", "Description": f"{name}-rule"}
