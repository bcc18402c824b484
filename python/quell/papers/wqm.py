"""WQM: a mesh of 802.11n nodes on one channel with one to three hops and one or several flows.

The slides give ratios to the default queue of 1000 packets and to CoDel. The rule is a reconstruction, so every number
that the slides leave open is varied in a table. In addition there is the authors' future work: FQ-CoDel, PIE, selective
drop in place of drop-tail, and TCP pacing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quell._core import Scenario
from quell.inputs.keys import Flow, Wifi
from quell.papers.bench import Bench, Sample, mean
from quell.papers.claim import Claim, estimate
from quell.papers.paper import Paper, short
from quell.papers.study import Study
from quell.results.stats import Record
from quell.views.figures import Axis, Figure, Line, Panel, Table

DEFAULT, CODEL, WQM = "pfifo limit 1000", "codel", "wqm"
BESIDE = ("fq_codel", "pie", "wqm selective")
QUEUES = (DEFAULT, CODEL, WQM, *BESIDE)
UNKNOWNS = ("wqm target 15ms", "wqm target 25ms", "wqm target 100ms", "wqm arrt 20ms", "wqm arrt 100ms", "wqm min 16",
            "wqm step 8", "wqm alarms 1", "wqm contenders 2", "wqm efficiency 0.7", "wqm interval 20ms")  # fmt: skip
NODES = ["a", "b", "c", "d"]
STAGGER = 20
"""Seconds within which the five flows of one hop start; the slides give no start times."""
RATES = (6.5, 65.0, 600.0)
WHOLE_S = 200
"""Length of the slides' runs, for their Jain's index."""


def _mesh(hops: int, flows: Sequence[Flow], mcs: int, seconds: int, warmup: int = 5, hardware: int = 2) -> Scenario:
    names = NODES[: hops + 1]
    wifi: Wifi = {"mode": "mesh", "hardware": hardware, "node": [{"name": name, "mcs": mcs} for name in names]}
    if hops > 1:
        wifi["routes"] = [names]
    return Scenario.from_keys(name="wqm", duration=f"{seconds}s", warmup=f"{warmup}s", wifi=wifi, flow=flows)


def _flow(to: str, count: int = 1) -> Flow:
    return {"count": count, "from": "a", "to": to, "rtt": "5ms"}


FIVE: Flow = {**_flow("b", 5), "stagger": f"{STAGGER}s"}


@dataclass(frozen=True)
class Setup:
    """An experiment of the slides."""

    id: str
    what: str
    hops: int
    flows: Sequence[Flow]
    less_default: float | None = None
    """Printed RTT of the default over WQM's."""
    less_codel: float | None = None
    """Printed RTT of CoDel over WQM's."""
    jain: float | None = None
    """Jain's index of WQM."""
    jain_default: float | None = None
    warmup: int = 5
    """Warm-up, s."""


SETUPS = (
    Setup("W1.1", "one flow, one hop", 1, [_flow("b")]),
    Setup("W1.2", "one flow, two hops", 2, [_flow("c")]),
    Setup("W1.3", "one flow, three hops", 3, [_flow("d")], 8.0),
    Setup("W2", "five flows, one hop", 1, [FIVE], 5.0, 2.0, 0.99, 0.77, STAGGER),
    Setup("W3", "flows over one, two and three hops", 3, [_flow("b"), _flow("c"), _flow("d")], 8.0, 2.0),
)


def _id(queue: str) -> str:
    return queue.split()[0] if queue == DEFAULT else queue.replace(" ", "_")


PACED: dict[str, tuple[str, Flow]] = {
    "cubic": ("CUBIC, paced", {"pacing": True}),
    "newreno": ("NewReno, paced", {"cc": "newreno", "pacing": True}),
    "bbr": ("BBR, which paces", {"cc": "bbr"}),
}
"""By name, a description and the keys of the flows."""


def _claims() -> list[Claim]:
    out = []
    for s in SETUPS:
        for q in QUEUES:
            out.append(Claim(f"{s.id}.{_id(q)}.rtt", f"{s.what}: {q}, mean RTT", "ms", digits=1, detail=True))
            out.append(Claim(f"{s.id}.{_id(q)}.goodput", f"{s.what}: {q}, goodput", "Mbit/s", detail=True))
        for name, printed in (("default", s.less_default), ("codel", s.less_codel)):
            what = f"{s.what}: RTT of {name} over WQM's"
            if printed is None:
                out.append(Claim(f"{s.id}.over_{name}", what))
            else:
                source = "results, five flows" if s.id == "W2" else "conclusions"
                out.append(
                    Claim(f"{s.id}.over_{name}", what, "", printed, +1, kind="printed", source=source, of="amount")
                )
        out.append(Claim(f"{s.id}.lost", f"{s.what}: goodput that WQM costs, of the default's", "%", digits=1))
    s = SETUPS[3]
    out += [
        *(
            Claim(f"W2.jain{name}", f"{s.what}: {what}, Jain's index", "", number, better, kind="printed",
                  source="results, five flows")
            for name, what, number, better in (
                ("", "WQM", 0.99, +1), (".codel", "CoDel", 0.99, +1), (".default", f"default to {WHOLE_S} s", 0.77, 0),
            )
        ),
        *(
            Claim(f"W2.paced.{name}", f"{s.what} of {what}: RTT of default over WQM's", "")
            for name, (what, _) in PACED.items()
        ),
        Claim("W2.jain.default.early", f"{s.what}: default, {STAGGER} to 60 s, Jain's index"),
        Claim("W4.least_pie", "best RTT of PIE over WQM's, any experiment"),
    ]  # fmt: skip
    out += [
        Claim(f"W5.{rate:g}", f"1000 packets at {rate:g} Mbit/s: time to drain", "s", 12 / rate, digits=3)
        for rate in RATES
    ]  # fmt: skip
    return out


@dataclass(frozen=True)
class Measurements:
    """Results of one run: mean RTT in ms, goodput in Mbit/s, distribution of the sojourn time in ms."""

    rtt: float
    goodput: float
    jain: float
    cdf: list[tuple[float, float]]


def _reduce(record: Record) -> Measurements:
    cdf = [(ms, share) for ms, share in record["sojourn_cdf"]]
    return Measurements(record["rtt_ms"]["mean"], record["delivered_in_order_mbps"], record["jain"] or 0.0, cdf)


RATE_MCS = (3, 5, 7, 15, 21)
"""6.5 Mbit/s times 4, 8 and 10, then two and three streams; the slides do not give the nodes' rates."""


def measure(bench: Bench) -> None:
    """Measure the slides."""
    study = bench.study
    seconds, setups = (STAGGER + 15 if bench.quick else 60), SETUPS
    queues = (*QUEUES, *(UNKNOWNS[:2] if bench.quick else UNKNOWNS))
    scenarios = {s.id: _mesh(s.hops, s.flows, RATE_MCS[0], seconds, s.warmup) for s in setups}
    settings = {(s.id, q): (scenarios[s.id], q) for s in setups for q in queues}
    got = bench.seeds_of("WQM", settings, _reduce, samples=_samples, claims=_claims())
    rates = RATE_MCS[:2] if bench.quick else RATE_MCS
    by_rate = bench.seeds_of(
        "Rates",
        {
            (mcs, q): (_mesh(1, SETUPS[3].flows, mcs, seconds, STAGGER), q)
            for mcs in rates
            for q in (DEFAULT, CODEL, WQM)
        },
        _reduce,
    )

    def value(key: tuple[str, str], name: str = "rtt") -> float:
        return mean(getattr(x, name) for x in got[key])

    def why(s: Setup, name: str) -> str:
        listed = ", ".join(f"{q} {short(value((s.id, q), name))}" for q in queues)
        over = "; ".join(
            f"MCS {m} {short(mean(x.rtt for x in by_rate[m, DEFAULT]) / mean(x.rtt for x in by_rate[m, WQM]))}"
            for m in rates
        )
        return f"{name}: {listed}; RTT of the default over WQM's with five flows over one hop: {over}"

    below, started = _driver_queues(study, bench, seconds), _start_times(study, bench)
    for s in setups:
        for q in QUEUES:
            for name in ("rtt", "goodput"):
                study.put(f"{s.id}.{_id(q)}.{name}", estimate(getattr(x, name) for x in got[s.id, q]))
        for q, name in ((DEFAULT, "default"), (CODEL, "codel")):
            ratios = [a.rtt / b.rtt for a, b in zip(got[s.id, q], got[s.id, WQM], strict=False)]
            study.put(f"{s.id}.over_{name}", estimate(ratios), f"{why(s, 'rtt')}; {below}")
        pairs = zip(got[s.id, WQM], got[s.id, DEFAULT], strict=False)
        study.put(f"{s.id}.lost", estimate(100 * (1 - a.goodput / b.goodput) for a, b in pairs), why(s, "goodput"))
    for q, row in ((WQM, "W2.jain"), (CODEL, "W2.jain.codel"), (DEFAULT, "W2.jain.default.early")):
        study.put(row, estimate(x.jain for x in got["W2", q]), f"{why(SETUPS[3], 'jain')}; {started}")
    _pacing(study, bench, seconds)
    _full_queues(study, bench)
    best = max(SETUPS, key=lambda s: value((s.id, "pie")) / value((s.id, WQM)))
    ratios = [a.rtt / b.rtt for a, b in zip(got[best.id, "pie"], got[best.id, WQM], strict=False)]
    study.put("W4.least_pie", estimate(ratios), why(best, "rtt"))
    rows = []
    for q in queues:
        cells = [f"{short(value((s.id, q)))} / {short(value((s.id, q), 'goodput'))}" for s in setups]
        rows.append([q, *cells, f"{value(('W2', q), 'jain'):.2f}"])
    study.tables.append(Table("Mean RTT, ms / goodput, Mbit/s; what the slides leave open varied",
                              ["queue", *(s.what for s in setups), "Jain, five flows"], rows))  # fmt: skip
    rows = [
        [f"MCS {m}", *(f"{short(mean(x.rtt for x in by_rate[m, q]))}" for q in (DEFAULT, CODEL, WQM))] for m in rates
    ]
    study.tables.append(Table("Five flows over one hop: mean RTT, ms", ["rate", DEFAULT, CODEL, WQM], rows))
    for s in (setups[0], setups[3]):
        lines = [Line(q, [(max(ms, 0.1), share) for ms, share in got[s.id, q][0].cdf], "line", k)
                 for k, q in enumerate(QUEUES)]  # fmt: skip
        panel = Panel("Delay of the first queue", Axis("delay, ms", True), Axis("share of the packets"), lines)
        study.figures.append(Figure(s.id, s.what.capitalize(), "One run.", [panel]))


def _samples(got: Mapping[tuple[str, str], Sequence[Measurements]]) -> Iterator[Sample[tuple[str, str]]]:
    """Yield the values of each row that the slides' experiments decide."""
    for s in SETUPS:
        for q, name in ((DEFAULT, "default"), (CODEL, "codel")):
            cells = (s.id, q), (s.id, WQM)
            ratios = [a.rtt / b.rtt for a, b in zip(got[cells[0]], got[cells[1]], strict=False)]
            yield Sample(f"{s.id}.over_{name}", ratios, cells)
    for q, row in ((WQM, "W2.jain"), (CODEL, "W2.jain.codel")):
        yield Sample(row, [x.jain for x in got["W2", q]], (("W2", q),))


def _pacing(study: Study, bench: Bench, seconds: int) -> None:
    """Measure pacing, the authors' future work."""
    queues = (DEFAULT, CODEL, WQM, "fq_codel")
    kinds: dict[str, tuple[str, Flow]] = {"plain": ("CUBIC", {}), "reno": ("NewReno", {"cc": "newreno"}), **PACED}
    scenarios = {name: _mesh(1, [{**FIVE, **keys}], RATE_MCS[0], seconds, STAGGER) for name, (_, keys) in kinds.items()}
    got = bench.seeds_of("Paced", {(name, q): (scenarios[name], q) for name in kinds for q in queues}, _reduce)
    for name in PACED:
        ratios = [a.rtt / b.rtt for a, b in zip(got[name, DEFAULT], got[name, WQM], strict=True)]
        study.put(f"W2.paced.{name}", estimate(ratios))
    rows = [[what, *(_cell(got[name, q]) for q in queues)] for name, (what, _) in kinds.items()]
    title = "Five flows over one hop, with and without pacing: mean RTT, ms / goodput, Mbit/s / Jain"
    study.tables.append(Table(title, ["senders", *queues], rows))


def _cell(measured: list[Measurements]) -> str:
    rtt, goodput, jain = (mean(getattr(x, name) for x in measured) for name in ("rtt", "goodput", "jain"))
    return f"{short(rtt)} / {short(goodput)} / {jain:.2f}"


def _driver_queues(study: Study, bench: Bench, seconds: int) -> str:
    """Measure with more frames in the driver below the queue, which CoDel does not see."""
    depths = (2, 12) if bench.quick else (2, 4, 8, 12)
    queues = (DEFAULT, CODEL, "pie", WQM, "wqm target 15ms")
    flows = SETUPS[3].flows
    settings = {
        (n, q): (_mesh(1, flows, RATE_MCS[0], seconds, STAGGER, n), q) for n in depths for q in queues
    }  # fmt: skip
    got = bench.seeds_of("Drivers", settings, _reduce)
    rows = [[f"{n} aggregates", *(_cell(got[n, q]) for q in queues)] for n in depths]
    title = "Five flows over one hop, frames below the queue: mean RTT, ms / goodput, Mbit/s / Jain"
    study.tables.append(Table(title, ["the driver holds", *queues], rows))

    def rtt(n: int, q: str) -> float:
        return mean(x.rtt for x in got[n, q])

    deep, tight = depths[-1], "wqm target 15ms"
    ratios = ", ".join(f"{short(rtt(n, CODEL) / rtt(2, tight))} with {n}" for n in depths)
    return f"RTT of CoDel above so many aggregates in the driver over that of `{tight}` with 2 at most: {ratios} " + (
        f"(ath9k of Linux 3.9 held 123 frames, which is {deep} of MCS {RATE_MCS[0]}'s)"
    )


def _start_times(study: Study, bench: Bench) -> str:
    """Measure how Jain's index of the default depends on the flows' start times and the length of the run."""
    kinds = [(0, 60), (STAGGER, 60)] if bench.quick else [(0, 60), (STAGGER, 60), (STAGGER, 120), (STAGGER, WHOLE_S)]
    queues = (DEFAULT, CODEL, WQM)
    settings = {
        (stagger, end, q): (_mesh(1, [{**FIVE, "stagger": f"{stagger}s"}], RATE_MCS[0], end, STAGGER), q)
        for stagger, end in kinds
        for q in queues
    }
    got = bench.seeds_of("Starts", settings, _reduce)

    def jain(stagger: int, end: int, q: str) -> str:
        return f"{mean(x.jain for x in got[stagger, end, q]):.2f}"

    rows = [
        [f"within {a} s" if a else "together", f"{STAGGER} to {b} s", *(jain(a, b, q) for q in queues)]
        for a, b in kinds
    ]  # fmt: skip
    title = "Five flows over one hop: Jain's index"
    study.tables.append(Table(title, ["start", "measured", *queues], rows))
    why = "Jain's index of the default: " + ", ".join(f"{row[0]}, {row[1]}: {row[2]}" for row in rows)
    whole = got.get((STAGGER, WHOLE_S, DEFAULT))
    value = None if whole is None else estimate(x.jain for x in whole)
    study.put("W2.jain.default", value, why if whole else "left out of the quick version")
    return why


def _full_queues(study: Study, bench: Bench) -> None:
    """Measure the delay of the last packet of a full default queue on links of the slides' rates."""
    settings = {
        rate: (
            Scenario.from_keys(
                name="drain",
                duration="8s",
                warmup="4s",
                link={"rate": f"{rate * 1000:.0f}kbit"},
                flow=[{"kind": "cbr", "rate": f"{2 * rate * 1000:.0f}kbit", "size": 1500}],
            ),
            DEFAULT,
        )
        for rate in RATES
    }
    got = bench.seeds_of("Full queues", settings, lambda record: float(record["sojourn_ms"]["max"]) / 1000)
    for rate in RATES:
        study.put(f"W5.{rate:g}", estimate(got[rate]), "the wait of the last packet of a full queue")


PAPER = Paper(
    name="wqm",
    title="WQM, reproduced",
    source="Showail, Jamshaid, Shihada: WQM, an Aggregation-Aware Queue Management Scheme, CSWS 2014 (slides)",
    about="one to three hops of 802.11n with aggregation: round trips, goodput and fairness beside the default queue's",
    claims=_claims(),
    measure=measure,
)
