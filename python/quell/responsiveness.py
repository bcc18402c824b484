"""Responsiveness: probes beside a scenario's traffic, and working conditions of draft-ietf-ippm-responsiveness-09."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quell._core import InputError, Scenario
from quell.experiment import Job, Outcome
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


EVERY = 5
"""Of so many seeds one is run again with probes, where nobody asks for more."""
TRANSFERS = ("tcp", "download", "upload", "backup")
"""Kinds of flows that load the network."""


def probed(scenario: Scenario) -> Scenario:
    """Add probes to a scenario's traffic. Raises InputError if it is a cell or has no room for another flow."""
    written = tomllib.loads(scenario.toml())
    if "wifi" in written:
        raise InputError("--rpm is not for a Wi-Fi cell; choose a scenario with [link]")
    flows = written.get("flow", [])
    rtts = [flow["rtt"] for flow in flows if "rtt" in flow]
    probe: Flow = {"kind": "probe", "count": 1, "rtt": rtts[0]} if rtts else {"kind": "probe", "count": 1}
    return scenario.replace(flow=[*flows, probe])


def probed_if_possible(scenario: Scenario) -> Scenario | None:
    """Add probes to a scenario's traffic; None for one whose responsiveness `probed` or the measure itself excludes."""
    kinds = {flow.get("kind", "tcp") for flow in tomllib.loads(scenario.toml()).get("flow", ())}
    if kinds.isdisjoint(TRANSFERS):
        return None
    try:
        return probed(scenario)
    except InputError:
        return None


def again(jobs: Sequence[Job], *, every: int) -> list[int]:
    """List the places of the jobs to run again: all jobs of the first seeds, one of so many begun."""
    seeds = list(dict.fromkeys(job.seed for job in jobs))
    chosen = set(seeds[: math.ceil(len(seeds) / every)])
    return [place for place, job in enumerate(jobs) if job.seed in chosen]


def measure(
    outcome: Outcome, probed: Scenario | None, run: Callable[[Scenario, Sequence[Job]], Outcome], *, every: int = EVERY
) -> None:
    """Run one of `every` seeds again with probes; give those records `rpm`, and the others null.

    Nothing else in a record comes from the runs with probes.
    """
    places = [] if probed is None or outcome.interrupted else again(outcome.jobs, every=every)
    found: dict[int, float | None] = {}
    if probed is not None and places:
        second = run(probed, [replace(outcome.jobs[place], series_bin_s=None) for place in places])
        outcome.interrupted |= second.interrupted
        outcome.wall_s += second.wall_s
        outcome.packets += second.packets
        outcome.again = len(second.by_job)
        found = {places[k]: of(record) for k, record in second.by_job.items()}
    for place, record in outcome.by_job.items():
        record["rpm"] = found.get(place)


def of(record: Mapping[str, Any]) -> float | None:
    """Read the responsiveness that a run's probes measured; None where nothing loaded the network."""
    found = (a.get("rpm") for a in record.get("applications") or () if a["kind"] == "probe")
    return next((rpm for rpm in found if rpm is not None), None)
