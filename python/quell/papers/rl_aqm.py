"""RL-AQM: Figures 4 to 11, with several lengths of the device's queue below the discipline.

The printed delays of RL-AQM cannot be reached if the discipline feeds the link directly. In ns-3 a device below the
discipline has a queue of its own, and the discipline holds only the packets that do not fit into it. So everything is
measured with a device's queue (`nic`) of 0, 100 (ns-3's default), 1000 and 5000 packets (from the authors' scripts).
Rows show the delay that the discipline sees and the delay that senders see, and name the `nic` that fits best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from quell._core import Scenario
from quell.common.text import counted
from quell.inputs.keys import Flow
from quell.papers import rl_aqm_frontier, rl_aqm_more
from quell.papers.bench import Bench, Sample, is_known, mean, missing_reason
from quell.papers.claim import Claim, Kind, estimate
from quell.papers.paper import Paper, short
from quell.papers.study import Study
from quell.results import behaviour
from quell.results.frontier import rl_aqm_reward
from quell.results.stats import Estimate, Record
from quell.views.figures import Axis, Figure, Line, Panel, Table

NICS = (0, 100, 1000, 5000)
"""Lengths of the device's queue, packets."""
SECTIONS = (1, 2, 5, 10, 50, 10, 5, 2, 1)
"""Flows in the nine sections, equal parts of the run (Fig. 2)."""
BINS_PER_SECTION = 40
BIN_S = 120 / len(SECTIONS) / BINS_PER_SECTION
PERIOD_S = 0.02
"""Time between decisions."""
MIN_MS = 0.01
"""Smaller delays are raised to this before their logarithm is taken or drawn."""

RL, PUBLISHED, PIE_RFC, PIE_NS3 = "rlaqm", "rlaqm as_published", "pie target 15ms", "pie ns3-2018"
QUEUES = (RL, PUBLISHED, PIE_RFC, PIE_NS3)
LINKS = ((10, 20), (100, 20), (10, 100), (100, 100))
"""Mbit/s and RTT in ms."""


@dataclass(frozen=True)
class Printed:
    """One of Figures 6 to 11, digitised from the vector drawings in the paper's source.

    Delays are in ms, throughputs in Mbit/s: means of the run (`max_delay`: the maximum), then of each section.
    """

    id: str
    queue: str
    link: tuple[int, int]
    delay: float
    max_delay: float
    sections: tuple[float, ...]
    throughput: float
    throughputs: tuple[float, ...] = ()

    @property
    def other(self) -> tuple[str, str]:
        """The other reading of the queue, and its name in rows."""
        # quell has two readings of the paper's RL-AQM. The paper's PIE is ns-3's, so that of RFC 8033 is a variant.
        return (PIE_RFC, "rfc") if self.queue == PIE_NS3 else (PUBLISHED, "as_published")


PRINTED = (
    Printed("F6", RL, (10, 20), 2.27, 85, (1.40, 0.90, 2.53, 5.11, 1.02, 0.75, 0.57, 0.56, 0.56), 9.98),
    Printed("F7", PIE_NS3, (10, 20), 17.69, 99, (9.97, 10.38, 17.73, 29.34, 21.07, 22.59, 18.86, 7.07, 5.69), 9.99),
    Printed("F8", RL, (100, 20), 0.17, 2.4, (0.09, 0.21, 0.15, 0.35, 0.30, 0.16, 0.11, 0.09, 0.09), 95.46,
            (92.7, 96.4, 97.0, 97.8, 97.4, 98.8, 98.7, 93.3, 90.5)),
    Printed("F9", PIE_NS3, (100, 20), 14.1, 68, (5.09, 14.40, 20.32, 22.55, 19.46, 20.09, 16.30, 9.61, 3.37), 99.78),
    Printed("F10", RL, (100, 20), 0.20, 3.2, (0.25, 0.35, 0.15, 0.32, 0.30, 0.17, 0.12, 0.09, 0.07), 91.15,
            (79.0, 90.4, 96.3, 99.0, 96.3, 97.8, 99.0, 95.2, 70.6)),
    Printed("F11", RL, (10, 100), 3.60, 142, (1.59, 1.00, 0.64, 5.83, 6.09, 2.72, 0.56, 0.56, 0.56), 9.81),
)  # fmt: skip
"""F8's network was trained at 100 Mbit/s, F10's at 10; quell ships one, trained at 10, and uses it for both. Rows
F8.trained are of five networks trained at 100 Mbit/s."""


def _claims() -> list[Claim]:
    out = list(rl_aqm_more.CLAIMS)
    out += [claim for p in PRINTED for claim in _of_figure(p)]
    for nic in NICS:
        at = f"nic{nic}"
        for p in PRINTED:
            name = f"{p.queue}, {_link(p.link)}, nic {nic}"
            out += [
                Claim(f"{p.id}.{at}.delay", f"{name}: delay that the queue sees", "ms", detail=True),
                Claim(f"{p.id}.{at}.true_delay", f"{name}: delay that senders see", "ms", detail=True),
                Claim(f"{p.id}.{at}.thr", f"{name}: throughput", "Mbit/s", detail=True),
            ]
    out += rl_aqm_frontier.CLAIMS
    return out


def _of_figure(p: Printed) -> list[Claim]:
    # PIE's numbers are to be reached, RL-AQM's may be better. The paper allows both readings of RL-AQM, one of PIE.
    is_pie = p.queue == PIE_NS3
    lower, higher = (0, 0) if is_pie else (-1, +1)
    queue, where = p.queue, _link(p.link)
    source = p.id.replace("F", "Figure ")

    def row(which: str, what: str, unit: str, number: float, better: int, digits: int = 2, *, detail: bool = False,
            variant: bool = False) -> Claim:  # fmt: skip
        """Return a row's claim; `variant`: the paper does not have this queue."""
        kind: Kind = "beyond" if variant else "printed"
        link = float(p.link[0]) if unit == "Mbit/s" else None
        return Claim(f"{p.id}.{which}", what, unit, number, better, digits=digits, detail=detail, kind=kind,
                     source=source, link=link)  # fmt: skip

    out = [
        row("delay", f"{queue}, {where}: mean delay", "ms", p.delay, lower),
        row("max", f"{queue}, {where}: largest delay", "ms", p.max_delay, lower, 1),
        row("thr", f"{queue}, {where}: throughput", "Mbit/s", p.throughput, higher),
    ]
    other, name = p.other
    out += [
        row(f"{name}.delay", f"{other}, {where}: mean delay", "ms", p.delay, lower, variant=is_pie),
        row(f"{name}.thr", f"{other}, {where}: throughput", "Mbit/s", p.throughput, higher, variant=is_pie),
    ]
    for k, (flows, ms) in enumerate(zip(SECTIONS, p.sections, strict=True), 1):
        what = f"{queue}, {where}: delay, section {k} ({counted(flows, 'flow')})"
        out.append(row(f"s{k}.delay", what, "ms", ms, lower, detail=True))
    for k, (flows, mbps) in enumerate(zip(SECTIONS, p.throughputs, strict=False), 1):
        what = f"{queue}, {where}: throughput, section {k} ({counted(flows, 'flow')})"
        out.append(row(f"s{k}.thr", what, "Mbit/s", mbps, +1, 1, detail=True))
    return out


def _link(link: tuple[int, int]) -> str:
    return f"{link[0]} Mbit/s, {link[1]} ms"


# Measuring. ----------------------------------------------------------------------------------------------------------

Key = tuple[str, tuple[int, int], int]
"""Queue, link, nic."""


@dataclass(frozen=True)
class Measurements:
    """Results of a run: delays in ms, throughput in Mbit/s."""

    delay: float
    max_delay: float
    true_delay: float
    throughput: float
    sections: tuple[float, ...]
    throughputs: tuple[float, ...]
    course: tuple[list[float], list[float]]
    """Delay and throughput in bins of BIN_S."""


def reduce(record: Record) -> Measurements:
    """Reduce a record to what the tables and figures show."""
    series = record["series"]
    delay, rate = series["backlog_ms"], series["throughput_mbps"]
    base = min(flow["base_rtt_ms"] for flow in record["flows"])
    return Measurements(
        delay=record["backlog_ms"]["mean"],
        max_delay=record["backlog_ms"]["max"],
        true_delay=record["rtt_ms"]["mean"] - base,
        throughput=record["throughput_mbps"],
        sections=_by_section(delay),
        throughputs=_by_section(rate),
        course=(delay, rate),
    )


def _by_section(values: Sequence[float]) -> tuple[float, ...]:
    cut = [values[k * BINS_PER_SECTION : (k + 1) * BINS_PER_SECTION] for k in range(len(SECTIONS))]
    return tuple(mean(part) for part in cut)


Results = Mapping[Key, Sequence[Measurements]]


def _simulate(bench: Bench) -> Results:
    links = LINKS[:-1] if bench.quick else LINKS
    keys = [(queue, link, nic) for queue in QUEUES if is_known(queue) for link in links for nic in NICS]
    settings = {key: (scenario_of(*key[1:]), key[0]) for key in keys}
    return bench.seeds_of("Figures 6 to 11", settings, reduce, bin_s=BIN_S, samples=_samples, claims=_claims())


def _samples(results: Results) -> Iterator[Sample[Key]]:
    """Yield the values of each figure's rows, at the nic that fits best."""
    fit = {queue: _best_nic(results, queue) for queue in _queues(results)}

    def of(which: str, queue: str, link: tuple[int, int], name: str, section: int | None = None) -> Sample[Key]:
        key = queue, link, fit[queue]
        return Sample(which, [_field(s, name, section) for s in results[key]], (key,))

    for p in PRINTED:
        other, name = p.other
        for queue, prefix in ((p.queue, p.id), (other, f"{p.id}.{name}")):
            if queue in fit:
                yield of(f"{prefix}.delay", queue, p.link, "delay")
                yield of(f"{prefix}.thr", queue, p.link, "throughput")
        yield of(f"{p.id}.max", p.queue, p.link, "max_delay")
        for k in range(len(SECTIONS)):
            yield of(f"{p.id}.s{k + 1}.delay", p.queue, p.link, "sections", k)
            if p.throughputs:
                yield of(f"{p.id}.s{k + 1}.thr", p.queue, p.link, "throughputs", k)


SENDERS: dict[str, Flow] = {
    "with starts spread over a second": {"stagger": "1s"},
    "with an initial window of one segment": {"iw": 1},
    "with both": {"stagger": "1s", "iw": 1},
}
"""Senders that avoid the paper's burst: 40 flows that start at one instant, with ten segments each."""


def _with_other_senders(bench: Bench, fit: Mapping[str, int]) -> dict[tuple[str, str], list[Measurements]]:
    """Measure every figure with other senders; return the results by figure and sender."""
    settings = {
        (p.id, name): (scenario_of(p.link, fit[p.queue], flow), p.queue)
        for p in PRINTED
        for name, flow in SENDERS.items()
    }
    return bench.seeds_of("Other senders", settings, reduce, bin_s=BIN_S)


def scenario_of(link: tuple[int, int], nic: int, more: Flow | None = None) -> Scenario:
    """Return the nine sections on a link (Mbit/s, RTT in ms) whose device has a queue of `nic` packets."""
    flow: Flow = {"rtt": f"{link[1]}ms", **(more or {})}
    return Scenario("rl-aqm").replace(link={"rate": f"{link[0]}mbit", "nic": nic}, flow=flow)


def measure(bench: Bench) -> None:
    """Measure the paper."""
    study, results = bench.study, _simulate(bench)
    fit = {queue: _best_nic(results, queue) for queue in _queues(results)}
    others = _with_other_senders(bench, fit)
    for p in PRINTED:
        _enter(study, results, p, p.queue, fit, "", {name: others[p.id, name] for name in SENDERS})
        other, name = p.other
        if other in fit:
            _enter(study, results, p, other, fit, f"{name}.", {})
        else:
            for what in ("delay", "thr"):
                study.put(f"{p.id}.{name}.{what}", None, missing_reason(other))
        for nic in NICS:
            runs = results[p.queue, p.link, nic]
            study.put(f"{p.id}.nic{nic}.delay", _mean(runs, "delay"))
            study.put(f"{p.id}.nic{nic}.true_delay", _mean(runs, "true_delay"))
            study.put(f"{p.id}.nic{nic}.thr", _mean(runs, "throughput"))
        study.figures.append(_figure(results, p, fit))
    study.tables.append(_delay_table(results))
    at_nic_0 = {q: [(s.delay, s.throughput) for s in results[q, LINKS[0], 0]] for q in _queues(results)}
    printed = {p.queue: (p.delay, p.throughput) for p in PRINTED if p.link == LINKS[0]}
    rl_aqm_frontier.measure(study, bench, at_nic_0, printed)
    rl_aqm_more.measure(study, bench, scenario_of, PIE_NS3, RL)
    _reward(study, bench, fit)
    study.notes[:0] = [_fit_note(results, fit)]


def _queues(results: Results) -> list[str]:
    return list(dict.fromkeys(queue for queue, _, _ in results))


def _mean(runs: Sequence[Measurements], name: str) -> Estimate | None:
    return estimate(getattr(s, name) for s in runs)


def _value(runs: Sequence[Measurements], name: str) -> float:
    return mean(getattr(s, name) for s in runs)


def _misfit(results: Results, queue: str, nic: int) -> float:
    """Return the mean error of a queue's figures at a nic: doublings of the delay plus per cent of the throughput."""
    figures = [p for p in PRINTED if queue in (p.queue, p.other[0])]
    off = 0.0
    for p in figures:
        runs = results[queue, p.link, nic]
        off += abs(math.log2(max(_value(runs, "delay"), MIN_MS) / p.delay))
        off += 100 * abs(_value(runs, "throughput") / p.throughput - 1)
    return off / len(figures)


def _best_nic(results: Results, queue: str) -> int:
    return min(NICS, key=lambda nic: _misfit(results, queue, nic))


def _enter(
    study: Study,
    results: Results,
    p: Printed,
    queue: str,
    fit: Mapping[str, int],
    prefix: str,
    others: Mapping[str, Sequence[Measurements]],
) -> None:
    """Enter a figure's values at the nic that fits best; `prefix` begins the rows of another reading of the queue."""

    def put(claim: str, field: str, section: int | None = None) -> None:
        value = estimate(_field(s, field, section) for s in results[queue, p.link, fit[queue]])
        why = _why(results, p, queue, fit[queue], field, section, others)
        study.put(f"{p.id}.{prefix}{claim}", value, why, constant=_is_constant(queue))

    put("delay", "delay")
    put("thr", "throughput")
    if prefix:
        return
    put("max", "max_delay")
    for k in range(len(SECTIONS)):
        put(f"s{k + 1}.delay", "sections", k)
        if p.throughputs:
            put(f"s{k + 1}.thr", "throughputs", k)


def _field(run: Measurements, name: str, section: int | None) -> float:
    value = getattr(run, name)
    return float(value if section is None else value[section])


@cache
def _is_constant(queue: str) -> bool:
    """Return whether a network chose the same action at every decision of Figure 6's run."""
    if not queue.startswith(RL):
        return False
    return len(behaviour.action_counts(scenario_of(LINKS[0], rl_aqm_more.MEASURED_NIC), queue)) == 1


UNITS = {"delay": "ms", "max_delay": "ms", "sections": "ms", "throughput": "Mbit/s", "throughputs": "Mbit/s"}


def _why(
    results: Results,
    p: Printed,
    queue: str,
    nic: int,
    name: str,
    section: int | None,
    others: Mapping[str, Sequence[Measurements]],
) -> str:
    """Return, as text, the same value at every nic, for the other reading of the discipline and for other senders."""

    def describe(runs: Sequence[Measurements]) -> str:
        return short(mean(_field(s, name, section) for s in runs))

    other = p.other[0] if queue == p.queue else p.queue
    parts = [
        f"{words} has {'/'.join(describe(results[words, p.link, n]) for n in NICS)} {UNITS[name]}"
        for words in (queue, other)
        if (words, p.link, nic) in results
    ]
    parts += [f"{how} {describe(runs)} {UNITS[name]}" for how, runs in others.items()]
    return f"measured at nic {nic}, which fits best; at nic {'/'.join(map(str, NICS))} {'; '.join(parts)}"


def _reward(study: Study, bench: Bench, fit: Mapping[str, int]) -> None:
    """Measure Figure 4's reward for the shipped network, at every nic."""
    link = LINKS[0]
    settings = {(queue, nic): (scenario_of(link, nic), queue) for queue in (RL, PIE_NS3) for nic in NICS}

    def earned(record: Record) -> float:
        series = record["series"]
        pairs = zip(series["backlog_ms"], series["throughput_mbps"], strict=True)
        return mean(rl_aqm_reward(d, min(1.0, t / link[0])) for d, t in pairs)

    got = bench.seeds_of("Figure 4", settings, earned, bin_s=PERIOD_S)
    parts = "; ".join(f"{queue} {'/'.join(f'{mean(got[queue, nic]):.2f}' for nic in NICS)}" for queue in (RL, PIE_NS3))
    note = f"without exploring, reward at nic {'/'.join(map(str, NICS))}: {parts}"
    study.put("F4.shipped", estimate(got[RL, fit[RL]]))
    study.notes.append(f"Figure 4, {note}.")


# Tables and figures. -------------------------------------------------------------------------------------------------


def _fit_note(results: Results, fit: Mapping[str, int]) -> str:
    def describe(queue: str) -> str:
        misses = ", ".join(f"{nic}: {_misfit(results, queue, nic):.1f}" for nic in NICS)
        return f"{queue}: nic {fit[queue]} (misfit at nic {misses})"

    return (
        "The nic that fits the figures, with the misfit (doublings of the delay plus per cent of the throughput): "
        + "; ".join(describe(queue) for queue in fit)
        + "."
    )


def _delay_table(results: Results) -> Table:
    rows = []
    for queue in _queues(results):
        for link in dict.fromkeys(link for _, link, _ in results):
            cells = [
                "/".join(short(_value(runs, name)) for name in ("delay", "true_delay", "throughput"))
                for runs in (results[queue, link, nic] for nic in NICS)
            ]
            rows.append([f"{queue} {link[0]}/{link[1]}", *cells])
    title = "Delay that the queue sees, ms / delay that senders see, ms / throughput, Mbit/s"
    return Table(title, ["Mbit/s, RTT ms", *(f"nic {nic}" for nic in NICS)], rows)


def _figure(results: Results, p: Printed, fit: Mapping[str, int]) -> Figure:
    numbers = range(1, len(SECTIONS) + 1)
    readings = (p.queue, p.other[0])
    shown = list(dict.fromkeys([*((q, fit[q]) for q in readings if q in fit), (readings[0], 0)]))

    def sections(field: str, printed: Sequence[float]) -> list[Line]:
        lines = [Line("printed", list(zip(numbers, printed, strict=True)), "both", 0, True)] if printed else []
        for k, (queue, nic) in enumerate(shown):
            runs = results[queue, p.link, nic]
            values = [mean(getattr(s, field)[n] for s in runs) for n in range(len(SECTIONS))]
            floor = [max(v, MIN_MS) for v in values]
            lines.append(Line(f"{queue}, nic {nic}", list(zip(numbers, floor, strict=True)), "both", k))
        return lines

    def course(which: int) -> list[Line]:
        return [
            Line(f"{queue}, nic {nic}",
                 [((n + 0.5) * BIN_S, v) for n, v in enumerate(results[queue, p.link, nic][0].course[which])],
                 "line", k)
            for k, (queue, nic) in enumerate(shown)
        ]  # fmt: skip

    section, time = Axis("section"), Axis("time, s")
    return Figure(
        p.id,
        f"{p.id.replace('F', 'Figure ')}: {p.queue.split()[0]}, {_link(p.link)}",
        "Means of the nine sections (1, 2, 5, 10, 50, 10, 5, 2, 1 flows) over all seeds beside the printed ones; "
        "below, one run. The delay is the one that the discipline sees, above a device of nic packets.",
        [
            Panel("Delay by section", section, Axis("delay, ms", True), sections("sections", p.sections)),
            Panel("Throughput by section", section, Axis("throughput, Mbit/s"), sections("throughputs", p.throughputs)),
            Panel("Delay in one run", time, Axis("delay, ms"), course(0)),
            Panel("Throughput in one run", time, Axis("throughput, Mbit/s"), course(1)),
        ],
    )


PAPER = Paper(
    name="rl-aqm",
    title="RL-AQM, reproduced",
    source="AlWahab, Gombos, Laki: On a Deep Q-Network-based Approach for Active Queue Management, EuCNC 2021",
    about="Figures 4 to 11: learning; delay and throughput of RL-AQM and PIE at 10 and 100 Mbit/s, RTT 20 and 100 ms",
    claims=_claims(),
    measure=measure,
)
