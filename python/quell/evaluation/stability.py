"""Section 8 of RFC 7928: levels of congestion, changes of load and capacity, sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable

from quell.evaluation.candidate import Candidate
from quell.evaluation.entry import (
    CHOICE,
    FAIRNESS,
    HEAVY,
    MEDIUM,
    MILD,
    MUST,
    RECOMMENDED,
    USUAL,
    VARIATION,
    Entry,
    Keys,
    Measured,
    Run,
    Runs,
    load,
    scenario,
    tcp,
)
from quell.evaluation.link import Link
from quell.evaluation.verdict import Bar, at_most


def _late(link: Link, start: float, stop: float | None, count: int) -> Keys:
    flow = tcp(link, count, start=link.at(start), stagger=link.at(0.5))
    return flow if stop is None else flow | {"stop": link.at(stop)}


def _congestion(level: float) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: scenario(link, [tcp(link, load(link, level))])


def _level(section: str, name: str, level: float) -> Entry:
    about = (
        f"ROUND({level:g} S) NewReno flows, S the bandwidth-delay product and the buffer in packets. Loss "
        "synchronisation is the share of flows that cut their window together."
    )
    bars = (*USUAL, FAIRNESS, VARIATION)
    return Entry(section, f"{name} congestion", RECOMMENDED, about, (Run("", _congestion(level)),), bars)


_PHASE = 20.0


def _varying_congestion(link: Link, _: Candidate) -> Keys:
    mild, medium, heavy = (load(link, level) for level in (MILD, MEDIUM, HEAVY))
    flows = [tcp(link, mild)]
    for cycle in (0.0, 3 * _PHASE):
        end = cycle + 3 * _PHASE
        flows.append(_late(link, cycle + _PHASE, end, max(1, medium - mild)))
        flows.append(_late(link, cycle + 2 * _PHASE, end, max(1, heavy - medium)))
    return scenario(link, flows, 6 * _PHASE)


def _varying_capacity(phase: float, seconds: float) -> Callable[[Link, Candidate], Keys]:
    def keys(link: Link, _: Candidate) -> Keys:
        steps = math.ceil(link.seconds(seconds) / phase)
        schedule = [[f"{round(k * phase * 1000)}ms", link.rate(0.1 if k % 2 else 1.0)] for k in range(steps)]
        table = {key: value for key, value in link.table().items() if key != "rate"} | {"schedule": schedule}
        return scenario(link, [tcp(link, 2)], seconds, link=table)

    return keys


def _turned(factor: float) -> Callable[[Candidate], str]:
    return lambda candidate: candidate.turned(factor)[0]


def _sensitivity(runs: Runs, _: Link) -> Measured:
    base = runs["as given"]
    goodput = [run["goodput_mbps"] / base["goodput_mbps"] for run in runs.values()]
    delays = [max(run["sojourn_ms"]["mean"], 0.1) / max(base["sojourn_ms"]["mean"], 0.1) for run in runs.values()]
    return {
        "goodput_change": max(abs(ratio - 1) for ratio in goodput),
        "delay_change": max(max(ratio, 1 / ratio) for ratio in delays),
    }


_STEADY = at_most("delay_sd_ms", 0.5, f"§8.1: delay stays stable as load and capacity change; {CHOICE}")

SECTION_8 = (
    _level("8.2.2", "mild", MILD),
    _level("8.2.3", "medium", MEDIUM),
    _level("8.2.4", "heavy", HEAVY),
    Entry(
        "8.2.5", "varying congestion", MUST,
        f"Mild, medium and heavy congestion, {_PHASE:g} s each, twice.",
        (Run("", _varying_congestion),), (*USUAL, _STEADY),
    ),
    Entry(
        "8.2.6", "capacity, slow", MUST,
        f"Two NewReno flows. The capacity is the link's and a tenth of it, {_PHASE:g} s each.",
        (Run("", _varying_capacity(_PHASE, 80)),), (*USUAL, _STEADY),
    ),
    Entry(
        "8.2.6", "capacity, fast", MUST,
        "Two NewReno flows. The capacity is the link's and a tenth of it, 100 ms each.",
        (Run("", _varying_capacity(0.1, 60)),), (*USUAL, _STEADY),
    ),
    Entry(
        "8.3", "sensitivity", RECOMMENDED,
        "Medium congestion with the queue's main parameter as given, halved and doubled: its target, else its limit.",
        (Run("as given", _congestion(MEDIUM)), Run("halved", _congestion(MEDIUM), _turned(0.5)),
         Run("doubled", _congestion(MEDIUM), _turned(2.0))),
        (Bar("goodput_change", False, 0.1, f"§8.3: a wrong setting must not cost much; {CHOICE}", of_reference=False),
         Bar("delay_change", False, 2.2, "§8.3: delay follows the parameter in proportion, and a tenth; quell's choice",
             of_reference=False)),
        _sensitivity, "as given",
    ),
)  # fmt: skip
