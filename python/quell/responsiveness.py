"""Working conditions of draft-ietf-ippm-responsiveness-09, as a scenario."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from quell._core import InputError, Scenario
from quell.keys import Flow

CONNECTIONS = 16
"""Load-generating connections in each direction at the end (MNP)."""
INTERVAL_S = 5
"""Seconds after which one more begins (ID, INC)."""
INTERVALS = 4
"""Intervals at the end that are measured (MAD)."""


def working_conditions(scenario: Scenario) -> Scenario:
    """Replace the flows by transfers both ways, one more every 5 s up to 16, and probes; measure the last 20 s.

    Raises InputError if the scenario is a cell.
    """
    written = tomllib.loads(scenario.toml())
    if "wifi" in written:
        raise InputError("quell rpm is not for a Wi-Fi cell; choose a scenario with [link]")
    rtts = [flow["rtt"] for flow in written.get("flow", ()) if "rtt" in flow]
    common: Flow = {"count": 1, "rtt": rtts[0]} if rtts else {"count": 1}
    flows: list[Flow] = [{**common, "kind": "probe"}]
    for k in range(CONNECTIONS):
        start = f"{k * INTERVAL_S}s"
        flows += [{**common, "kind": kind, "start": start, "stagger": "1s"} for kind in ("download", "upload")]
    full = CONNECTIONS * INTERVAL_S
    return scenario.replace(flow=flows, warmup=f"{full}s", duration=f"{full + INTERVALS * INTERVAL_S}s")


def probed(scenario: Scenario) -> Scenario:
    """Add probes to a scenario's traffic. Raises InputError if it is a cell."""
    written = tomllib.loads(scenario.toml())
    if "wifi" in written:
        raise InputError("--rpm is not for a Wi-Fi cell; choose a scenario with [link]")
    flows = written.get("flow", [])
    rtts = [flow["rtt"] for flow in flows if "rtt" in flow]
    probe: Flow = {"kind": "probe", "count": 1, "rtt": rtts[0]} if rtts else {"kind": "probe", "count": 1}
    return scenario.replace(flow=[*flows, probe])


def of(record: Mapping[str, Any]) -> float | None:
    """Read the responsiveness that a run's probes measured; None where nothing loaded the network."""
    found = (a.get("rpm") for a in record.get("applications") or () if a["kind"] == "probe")
    return next((rpm for rpm in found if rpm is not None), None)
