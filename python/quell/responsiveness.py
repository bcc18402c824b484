"""Working conditions of draft-ietf-ippm-responsiveness-09, as a scenario."""

from __future__ import annotations

import tomllib

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
