"""Responsiveness: probes beside a scenario's traffic, and working conditions of draft-ietf-ippm-responsiveness-09."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quell._core import InputError, Scenario
from quell.common.text import one_line
from quell.experiments.experiment import Job, Outcome, every_queue, plan
from quell.experiments.queue import Parsed
from quell.inputs.keys import Flow
from quell.results import stats

CONNECTIONS = 16
"""Maximum number of load-generating connections in each direction (MNP)."""
INTERVAL_S = 5
"""Seconds after which one more connection begins and stability is checked (ID, INC)."""
WINDOW = 4
"""Number of intervals in a moving average, and of moving averages that are compared (MAD)."""
LIMIT = 20
"""Largest number of intervals of a test; the draft leaves it to the tool."""
TOLERANCE = 0.05
"""Largest standard deviation of stable moving averages, as a share of the newest (SDT)."""


def working_conditions(scenario: Scenario, intervals: int = LIMIT) -> Scenario:
    """Replace the flows by transfers both ways, one more each interval, and probes; measure the last four intervals.

    Raises InputError if the scenario is a cell.
    """
    written = tomllib.loads(scenario.toml())
    if "wifi" in written:
        raise InputError("quell rpm is not for a Wi-Fi cell; choose a scenario with [link]")
    rtts = [flow["rtt"] for flow in written.get("flow", ()) if "rtt" in flow]
    common: Flow = {"count": 1, "rtt": rtts[0]} if rtts else {"count": 1}
    flows: list[Flow] = [{**common, "kind": "probe"}]
    for k in range(min(CONNECTIONS, intervals)):
        start = f"{k * INTERVAL_S}s"
        flows += [{**common, "kind": kind, "start": start, "stagger": "1s"} for kind in ("download", "upload")]
    warmup, duration = (intervals - WINDOW) * INTERVAL_S, intervals * INTERVAL_S
    return scenario.replace(flow=flows, warmup=f"{warmup}s", duration=f"{duration}s")


@dataclass
class Test:
    """Moving averages of a test so far, one for each interval from the first complete one."""

    goodputs: list[tuple[float, ...]] = field(default_factory=list)
    """Goodput of each direction with a queue, Mbit/s."""
    saturated: bool = False
    """Whether goodput has been stable in all directions."""
    responsiveness: list[float | None] = field(default_factory=list)
    """Round trips per minute since goodput was stable."""

    def note(self, record: Mapping[str, Any]) -> bool:
        """Add an interval; return whether goodput and then responsiveness are stable."""
        up = record.get("up")
        self.goodputs.append((record["goodput_mbps"], *(() if up is None else (up["goodput_mbps"],))))
        self.saturated = self.saturated or all(map(stable, zip(*self.goodputs, strict=True)))
        if self.saturated:
            self.responsiveness.append(of(record))
        return stable(self.responsiveness)


def stable(averages: Sequence[float | None]) -> bool:
    """Return whether the last four moving averages deviate from their mean by less than 5 % of the newest.

    The draft names no estimator: the standard deviation is the root of the mean square.
    """
    from statistics import pstdev

    last = averages[-WINDOW:]
    known = [value for value in last if value is not None]
    return len(known) == WINDOW and pstdev(known) < TOLERANCE * known[-1]


def saturate(scenario: Scenario, jobs: Sequence[Job], run: Callable[[Scenario, Sequence[Job]], Outcome]) -> Outcome:
    """Follow the draft's algorithm for each job, on the links of a scenario.

    A test ends with the first interval at which responsiveness is stable, or after 20. The record covers its last four
    intervals and has `intervals` and the draft's `confidence`: `high` if it was stable, else `medium`. Equal seeds give
    equal runs, so a continued test is simulated again from its beginning.
    """
    outcome = Outcome(None, list(jobs))
    tests = [Test() for _ in jobs]
    pending = list(range(len(jobs)))
    for intervals in range(WINDOW, LIMIT + 1):
        found = run(working_conditions(scenario, intervals), [jobs[place] for place in pending])
        outcome.wall_s += found.wall_s
        outcome.packets += found.packets
        outcome.interrupted, outcome.failure = found.interrupted, found.failure
        left = []
        for k, place in enumerate(pending):
            if k not in found.by_job:
                continue
            record, done = found.by_job[k], tests[place].note(found.by_job[k])
            if done or intervals == LIMIT:
                confidence = "high" if done else "medium"
                outcome.by_job[place] = record | {"intervals": intervals, "confidence": confidence}
            else:
                left.append(place)
        pending = left
        if outcome.interrupted or not pending:
            break
    return outcome


def about(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a note on the lengths of the tests and on those that were not stable."""
    lengths = [record["intervals"] * INTERVAL_S for record in records]
    unsure = Counter(stats.row_name(record) for record in records if record["confidence"] != "high")
    took = f"{min(lengths)} s" if min(lengths) == max(lengths) else f"{min(lengths)} to {max(lengths)} s"
    text = f"Tests of {took}, the last {WINDOW * INTERVAL_S} s counted"
    if not unsure:
        return f"{text}. All were stable: high confidence."
    names = ", ".join(f"{one_line(queue)} ({count})" for queue, count in unsure.items())
    rest = "; all others high" if unsure.total() < len(records) else ""
    return f"{text}. Not stable, medium confidence: {names}{rest}."


EVERY = 5
"""One in this many seeds is run again with probes, unless more are requested."""
ROUNDS = 3
"""Largest number of runs of a queue whose place on the front is uncertain, in multiples of the scenario's seeds."""
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
    """Add probes to a scenario's traffic; None if `probed` refuses it or the measure does not apply to it."""
    kinds = {flow.get("kind", "tcp") for flow in tomllib.loads(scenario.toml()).get("flow", ())}
    if kinds.isdisjoint(TRANSFERS):
        return None
    try:
        return probed(scenario)
    except InputError:
        return None


def again(jobs: Sequence[Job], *, every: int) -> list[int]:
    """List the indices of jobs to run again: all jobs of the first seeds, one seed for every `every` (rounded up)."""
    seeds = list(dict.fromkeys(job.seed for job in jobs))
    chosen = set(seeds[: math.ceil(len(seeds) / every)])
    return [place for place, job in enumerate(jobs) if job.seed in chosen]


def measure(
    outcome: Outcome, probed: Scenario | None, run: Callable[[Scenario, Sequence[Job]], Outcome], *, every: int = EVERY
) -> None:
    """Run one of `every` seeds again with probes; set `rpm` in their records, and null in the others.

    The runs with probes change nothing else in a record.
    """
    places = [] if probed is None or outcome.interrupted else again(outcome.jobs, every=every)
    found: dict[int, float | None] = {}
    if probed is not None and places:
        second = run(probed, [replace(outcome.jobs[place], series_bin_s=None) for place in places])
        outcome.interrupted |= second.interrupted
        outcome.failure = outcome.failure or second.failure
        outcome.wall_s += second.wall_s
        outcome.packets += second.packets
        outcome.again = len(second.by_job)
        found = {places[k]: of(record) for k, record in second.by_job.items()}
    for place, record in outcome.by_job.items():
        record["rpm"] = found.get(place)


def compare(
    scenario: Scenario,
    queues: Sequence[Parsed] | None,
    run: Callable[..., Outcome],
    *,
    rpm: bool | None,
    pcap: Path | None = None,
    more: bool = False,
    **series: Any,
) -> Outcome:
    """Run each queue (None: all usual ones) with each seed, by `run(scenario, jobs, pcap=)`; for `series` see `plan`.

    Then run all seeds (`rpm`), some (None) or none again with probes. With `more`, queues whose place on the front may
    be due to chance run with further seeds, up to `ROUNDS` times as many in total. Raises InputError if `rpm` is true
    and the scenario does not allow probes.
    """
    again = probed(scenario) if rpm else probed_if_possible(scenario)

    def do(jobs: Sequence[Job]) -> Outcome:
        outcome = run(scenario, jobs, pcap=pcap)
        if rpm is not False:
            measure(outcome, again, run, every=1 if rpm else EVERY)
        return outcome

    outcome = do(plan(scenario, every_queue(scenario) if queues is None else queues, **series))
    for rounds in range(1, ROUNDS if more else 1):
        unsure = {row.queue for row in stats.summarise(outcome.records) if row.unsure}
        chosen = [outcome.jobs[k].queue for k, record in outcome.by_job.items() if stats.row_name(record) in unsure]
        if not chosen or outcome.interrupted:
            break
        outcome.add(do(plan(scenario, chosen, rounds=rounds, **series)))
    return outcome


def of(record: Mapping[str, Any]) -> float | None:
    """Return the responsiveness that a run's probes measured; None if nothing loaded the network."""
    found = (a.get("rpm") for a in record.get("applications") or () if a["kind"] == "probe")
    return next((rpm for rpm in found if rpm is not None), None)
