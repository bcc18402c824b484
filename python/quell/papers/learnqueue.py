"""LearnQueue: Figures 5 to 12 and Table 2, in a cell like its radio boards: no aggregation, one frame per access.

Parameters that the paper leaves open are calibrated once, on one and on five TCP flows (LQ3 and LQ5), and shown as a
table; the words `learnqueue published_reward` have the result. Everything else is then predicted. `learnqueue` alone,
whose reward has the sign of the action, is not the paper's: rows `signed` show that it holds the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from quell import _core
from quell._core import Scenario
from quell.inputs.keys import Flow, Wifi
from quell.papers import learnqueue_room, learnqueue_table2
from quell.papers.bench import Bench, Sample, mean
from quell.papers.claim import Claim, estimate
from quell.papers.learnqueue_calibration import (
    CALIBRATION,
    GRID,
    LIMITS,
    calibration,
    calibration_note,
    grid_note,
    optimum_note,
    optimum_table,
)
from quell.papers.learnqueue_cell import (
    DEFAULT,
    LQ,
    NAMES,
    PIE,
    QUEUES,
    USUAL,
    WQM,
    Measurements,
    Results,
    cell,
    tcp,
    udp,
)
from quell.papers.learnqueue_kinds import kinds
from quell.papers.paper import Paper, short
from quell.papers.study import Study
from quell.results.stats import Estimate, Record
from quell.views.figures import Axis, Figure, Line, Panel, Table

Ends = tuple[str, str]


@dataclass(frozen=True)
class Setup:
    """An experiment: the queues whose delay is measured, and the paper's numbers."""

    id: str
    what: str
    scenario: Scenario
    quick: Scenario
    at: tuple[Ends, ...]
    """Sender and receiver of the queues whose mean delay is measured."""
    delays: tuple[float | None, ...]
    """Delays of default, WQM, PIE and LearnQueue, ms."""
    share: float | None = 1.0
    """LearnQueue's throughput over the default's."""
    order: bool = True


DOWN: Ends = ("ap", "sta1")


def _steps(seconds: int) -> Wifi:
    """Return MCS 0 to 7, each for an eighth of the run."""
    return {"schedule": [[f"{seconds * k * 125}ms", k] for k in range(8)]}


def _bursty(seconds: int) -> list[Flow]:
    """Return two senders with exponential gaps of 1 ms and 30 ms on average, 5 s each (the paper gives no period)."""
    return [
        {"kind": "poisson", "rate": f"{12_000 / (30 if k % 2 else 1):.0f}kbit", "size": 1500, "from": a, "to": b,
         "start": f"{5 * k}s", "stop": f"{5 * k + 5}s"}
        for k in range(seconds // 5)
        for a, b in (DOWN, DOWN[::-1])
    ]  # fmt: skip


def _setup(
    which: str,
    what: str,
    flows: Sequence[Flow] | Callable[[int], list[Flow]],
    at: Sequence[Ends],
    delays: Sequence[float | None],
    share: float | None = 1.0,
    order: bool = True,
    wifi: Wifi | Callable[[int], Wifi] = USUAL,
    seconds: int = 100,
    stations: int = 1,
) -> Setup:
    def scenario(seconds: int) -> Scenario:
        of_flows = flows(seconds) if callable(flows) else flows
        of_wifi = wifi(seconds) if callable(wifi) else wifi
        return cell(of_flows, wifi=of_wifi, seconds=seconds, stations=stations)

    return Setup(which, what, scenario(seconds), scenario(seconds // 5), tuple(at), tuple(delays), share, order)


STATIONS: tuple[Ends, ...] = (("sta1", "ap"), ("sta2", "ap"))
SETUPS = (
    _setup("LQ1", "saturating UDP", [udp(30, *DOWN)], [DOWN], (None, None, None, None)),
    _setup("LQ2", "UDP both ways", [udp(30, *DOWN), udp(30, *DOWN[::-1])], [DOWN, DOWN[::-1]],
           (534.76, 102.38, 80.79, 41.61)),
    _setup("LQ3", "1 TCP", [tcp()], [DOWN], (None, 100.62, 26.94, 5.16)),
    _setup("LQ4.6", "1 TCP at 6.5 Mbit/s", [tcp()], [DOWN], (None,) * 4, wifi={"mcs": 0}),
    _setup("LQ4.52", "1 TCP at 52 Mbit/s", [tcp()], [DOWN], (None,) * 4, 1.041, wifi={"mcs": 5}),
    _setup("LQ4.65", "1 TCP at 65 Mbit/s", [tcp()], [DOWN], (None,) * 4, 1.171, wifi={"mcs": 7}),
    _setup("LQ5", "5 TCP", [tcp(count=5)], [DOWN], (285.3, 120.18, 33.07, 4.08)),
    _setup("LQ6", "1 TCP, 6.5 to 65 Mbit/s in steps", [tcp()], [DOWN], (224.47, 95.3, 25.63, 16.83), wifi=_steps,
           seconds=200),
    _setup("LQ7", "bursts, both ways", _bursty, [DOWN], (None,) * 4, None, order=False),
    _setup("LQ8", "UDP from station to station", [udp(30, "sta1", "sta2")], [STATIONS[0]],
           (537.1, 157.67, 47.27, 19.87), 8.97 / 8.98, stations=2),
    _setup("LQ9", "UDP between stations, both ways", [udp(30, "sta1", "sta2"), udp(30, "sta2", "sta1")], STATIONS,
           (603.56, None, 183.73, 60.19), 11.65 / 12.79, stations=2),
    _setup("LQ10", "TCP between stations, both ways", [tcp("sta1", "sta2"), tcp("sta2", "sta1")],
           STATIONS, (56.17, 48.17, 16.68, 5.61), 9.31 / 9.58, stations=2, wifi={"mcs": 3, "per": 0.35}),
)  # fmt: skip


@kinds
def _claims() -> list[Claim]:
    out = [
        Claim("LQ1.lq.below30", "saturating UDP: LearnQueue, packets within 30 ms", "%", 99.85, +1, 0.5),
        Claim("LQ1.lq.below50", "saturating UDP: LearnQueue, packets within 50 ms", "%", 98.0, +1, 0.5),
        Claim("LQ1.pie.below50", "saturating UDP: PIE, packets within 50 ms", "%", 98.0, +1, 1.0),
        Claim("LQ1.thr", "saturating UDP: LearnQueue, throughput", "Mbit/s", 17.0, +1, 0.5),
    ]
    for s in SETUPS:
        for queue, printed in zip(QUEUES, s.delays, strict=True):
            name, lq = NAMES[queue], queue == LQ
            slack = (0.2 if lq else 0.3) * (printed or 0)
            out.append(Claim(f"{s.id}.{name}", f"{s.what}: {_display_name(queue)}, mean delay", "ms", printed,
                             -1 if lq else 0, slack, detail=not lq))  # fmt: skip
        if s.order:
            what = f"{s.what}: how many of default, WQM and PIE have more delay than LearnQueue"
            out.append(Claim(f"{s.id}.least", what, "", 3, +1))
        if s.share is not None:
            least = 0.97
            out.append(Claim(f"{s.id}.share", f"{s.what}: LearnQueue's throughput over the default's", "", s.share, +1,
                             max(0.0, s.share - least), 3))  # fmt: skip
    out += [
        Claim("LQ2.thr", "UDP both ways: LearnQueue, throughput of both", "Mbit/s", 17.36, +1, 0.03 * 17.36),
        Claim("LQ6.thr", "1 TCP, steps: LearnQueue, throughput", "Mbit/s", 16.53, +1, 0.03 * 16.53),
        Claim("LQ7.lq.max", "bursts: LearnQueue, largest delay", "ms", 150, -1, 15, 1),
        Claim("LQ7.pie.max", "bursts: PIE, largest delay", "ms", 250, -1, 25, 1),
        Claim("LQ7.wqm.max", "bursts: WQM, largest delay", "ms", 500, 0, 150, 1, detail=True),
        Claim(
            "LQ7.wqm.worse",
            'bursts: WQM "even worse than the default buffering mechanism": mean delay over the default\'s',
            "",
            1,
            +1,
            0,
            2,
        ),
        Claim("LQ8.thr", "UDP from station to station: LearnQueue, throughput", "Mbit/s", 8.97, +1, 0.05 * 8.97),
    ]
    return [
        *out,
        *learnqueue_table2.CLAIMS,
        *learnqueue_room.CLAIMS,
        Claim("LQ14.fixed", "Q-tables of five stations, `fixed_point` (32 bits, as on the boards)", "KB", 16, -1, 0.5),
        Claim("LQ14.float", "Q-tables of five stations, floating point (64 bits)", "KB"),
        Claim("LQ14.all", "all that LearnQueue keeps for five stations, `fixed_point`", "KB"),
    ]


SHORT = {"default": "D", "wqm": "W", "pie": "P", "lq": "L"}


def _display_name(queue: str) -> str:
    return {DEFAULT: "default", WQM: "WQM", PIE: "PIE", LQ: "LearnQueue"}[queue]


# Measuring. ----------------------------------------------------------------------------------------------------------


def _reduce(at: Sequence[Ends]) -> Callable[[Record], Measurements]:
    def reduce(record: Record) -> Measurements:
        queues = {(q["from"], q["to"]): q for q in record["wifi"]["queues"]}
        return Measurements(
            delay=mean(queues[ends]["sojourn_ms"]["mean"] for ends in at),
            most=max(queues[ends]["sojourn_ms"]["max"] for ends in at),
            throughput=sum(queues[ends]["throughput_mbps"] for ends in at),
            goodput=record["delivered_in_order_mbps"],
            cdf=[(ms, share) for ms, share in record["sojourn_cdf"]],
            loss=record["drops_by_cause"]["overflow"] / max(record["packets"] + record["drops"], 1),
        )

    return reduce


def _simulate(
    bench: Bench, setups: Sequence[Setup], queues: Sequence[str], claims: Sequence[Claim] = ()
) -> dict[tuple[str, str], list[Measurements]]:
    """Simulate with as many seeds as the verdicts on `claims` need; without claims with those of the first check."""
    out: dict[tuple[str, str], list[Measurements]] = {}
    for s in setups:
        scenario = s.quick if bench.quick else s.scenario
        settings = {(s.id, queue): (scenario, queue) for queue in queues}
        samples = partial(_samples, s) if claims else None
        out.update(bench.seeds_of(s.id, settings, _reduce(s.at), samples=samples, claims=claims))
    return out


def _samples(s: Setup, results: Results) -> Iterator[Sample[tuple[str, str]]]:
    """Yield the values of each row that an experiment decides, one per seed."""
    of = {queue: results[s.id, queue] for queue in QUEUES}
    for queue in QUEUES:
        yield Sample(f"{s.id}.{NAMES[queue]}", [x.delay for x in of[queue]], ((s.id, queue),))
    if s.order:
        others = zip(*(of[queue] for queue in QUEUES if queue != LQ), of[LQ], strict=False)
        more = [float(sum(x.delay > lq.delay for x in rest)) for *rest, lq in others]
        yield Sample(f"{s.id}.least", more, tuple((s.id, queue) for queue in QUEUES))
    if s.share is not None:
        ratios = [a.goodput / b.goodput for a, b in zip(of[LQ], of[DEFAULT], strict=False)]
        yield Sample(f"{s.id}.share", ratios, ((s.id, LQ), (s.id, DEFAULT)))
    lq, pie = ((s.id, LQ),), ((s.id, PIE),)
    if s.id == "LQ1":
        for ms in (30, 50):
            yield Sample(f"LQ1.lq.below{ms}", [_within(x, ms) for x in of[LQ]], lq)
        yield Sample("LQ1.pie.below50", [_within(x, 50) for x in of[PIE]], pie)
    if s.id in ("LQ1", "LQ2", "LQ6", "LQ8"):
        yield Sample(f"{s.id}.thr", [x.goodput if s.id == "LQ6" else x.throughput for x in of[LQ]], lq)
    if s.id == "LQ7":
        for queue in (LQ, PIE, WQM):
            yield Sample(f"LQ7.{NAMES[queue]}.max", [x.most for x in of[queue]], ((s.id, queue),))
        ratios = [w.delay / d.delay for w, d in zip(of[WQM], of[DEFAULT], strict=False)]
        yield Sample("LQ7.wqm.worse", ratios, ((s.id, WQM), (s.id, DEFAULT)))


OTHERS = (*(f"{LQ} {words}" for words in ("initial 10", "initial 100", "bytes_max_delay", "delayed_credit",
                                          "printed_gamma", "alpha 0.1", "current_max_delay")),
          "learnqueue as_published")  # fmt: skip
"""Other readings of what the paper leaves open, for the calibration and for explanations."""
OTHER_BASELINES = ("wqm target 30ms", "wqm target 30ms no_aggregation")
FIXED = tuple(f"pfifo limit {n}" for n in (3, 8, 20, 60))
"""Constant limits, which no choice of limits can beat on a constant link."""


def measure(bench: Bench) -> None:
    """Measure the paper."""
    study = bench.study
    others, fixed = (OTHERS[-2:], FIXED[1:2]) if bench.quick else (OTHERS, FIXED)
    results = _simulate(bench, SETUPS, QUEUES, _claims())
    results |= _simulate(bench, SETUPS, [*others, *OTHER_BASELINES, *fixed])
    calibrating = [s for s in SETUPS if s.id in CALIBRATION]
    limits, grid = (LIMITS[::5], GRID[:2]) if bench.quick else (LIMITS, GRID)
    more = [q for q in (*(f"pfifo limit {n}" for n in limits), *grid) if ("LQ3", q) not in results]
    results |= _simulate(bench, calibrating, more)
    by_id = {s.id: s for s in SETUPS}
    for s in SETUPS:
        for sample in _samples(s, results):
            study.put(sample.claim, estimate(sample.values), _why(results, sample))
    _memory(study)
    study.tables.append(calibration(results, [LQ, *others]))
    study.tables.append(optimum_table(results, limits))
    study.tables.append(_all(results, by_id))
    study.figures.extend(_cdf(results, s) for s in SETUPS if s.id in ("LQ1", "LQ2", "LQ3", "LQ5", "LQ6", "LQ7", "LQ8"))
    study.notes.append(calibration_note(results, [LQ, *others]))
    study.notes.append(grid_note(results, [LQ, *grid]))
    study.notes.append(optimum_note(results, limits))
    learnqueue_table2.measure(study, bench, learnqueue_room.measure(study, bench))


def _within(x: Measurements, ms: float) -> float:
    return 100 * max((share for at, share in x.cdf if at <= ms), default=0.0)


def _memory(study: Study) -> None:
    def kilobytes(words: str, which: int) -> Estimate | None:
        return estimate([5 * _core.learnqueue_memory(words)[which] / 1000])

    study.put("LQ14.fixed", kilobytes(f"{LQ} fixed_point", 0), exact=True)
    study.put("LQ14.float", kilobytes(LQ, 0))
    study.put("LQ14.all", kilobytes(f"{LQ} fixed_point", 1))


def _spread(results: Results, which: str) -> str:
    delays = [x.delay for x in results[which, LQ]]
    return f"LearnQueue by seed {short(min(delays))} to {short(max(delays))} ms"


def _means_by_queue(results: Results, which: str, queues: Sequence[str], name: str) -> str:
    return ", ".join(
        f"{q} {short(mean(getattr(x, name) for x in results[which, q]))}" for q in queues if (which, q) in results
    )


def _why(results: Results, sample: Sample[tuple[str, str]]) -> str:
    """Return, as text, other measurements that concern a row."""
    (which, queue), row = sample.cells[0], sample.claim.rpartition(".")[2]
    if row == "least":
        return _why_order(results, which)
    if row == "share":
        return _why_share(results, which)
    if row == "worse":
        return _means_by_queue(results, which, QUEUES, "delay") + " ms"
    name = {"max": "most", "thr": "goodput" if which == "LQ6" else "throughput"}.get(row, "delay")
    unit = "Mbit/s" if row == "thr" else "ms"
    if queue == LQ:
        listed = f"other readings: {_means_by_queue(results, which, OTHERS, name)} {unit}"
        constant = f"{listed}; constant limits: {_means_by_queue(results, which, (*FIXED, DEFAULT), name)} {unit}"
        reward = f"{constant}; the reward's optimum is in a table above"
        return reward if which in CALIBRATION and name == "delay" else constant
    if queue == WQM:
        return f"other readings of the slides: {_means_by_queue(results, which, OTHER_BASELINES, name)} {unit}"
    return f"in the same cell: {_means_by_queue(results, which, QUEUES, name)} {unit}"


def _why_order(results: Results, which: str) -> str:
    delays = {q: mean(x.delay for x in results[which, q]) for q in QUEUES}
    ranked = sorted(delays, key=lambda q: -delays[q])
    listed = " > ".join(f"{_display_name(q)} {short(delays[q])}" for q in ranked) + " ms"
    other = ", ".join(f"{q} {short(mean(x.delay for x in results[which, q]))} ms" for q in OTHER_BASELINES)
    return f"{listed}; {_spread(results, which)}; {other}"


def _why_share(results: Results, which: str) -> str:
    base = mean(x.goodput for x in results[which, DEFAULT])
    listed = ", ".join(
        f"{q} {mean(x.goodput for x in results[which, q]) / base:.3f}"
        for q in (*OTHERS, *FIXED)
        if (which, q) in results
    )
    most = max(mean(x.goodput for x in results[which, q]) / base for q in FIXED if (which, q) in results)
    return f"no constant limit of these has more than {most:.3f} of the default's throughput: {listed}"


# What is shown. ------------------------------------------------------------------------------------------------------


def _all(results: Results, by_id: dict[str, Setup]) -> Table:
    rows = []
    for which, s in by_id.items():
        cells = []
        for queue, printed in zip(QUEUES, s.delays, strict=True):
            measured = short(mean(x.delay for x in results[which, queue]))
            cells.append(f"{measured} ({short(printed)})" if printed is not None else measured)
        ranked = sorted(QUEUES, key=lambda q: -mean(x.delay for x in results[which, q]))
        rows.append([f"{which} {s.what}", *cells, " > ".join(SHORT[NAMES[q]] for q in ranked)])
    columns = ["experiment", *(_display_name(q) for q in QUEUES), "order (printed D > W > P > L)"]
    return Table("Mean delay, ms (printed)", columns, rows)


def _cdf(results: Results, s: Setup) -> Figure:
    lines = [
        Line(_display_name(queue), [(max(ms, 0.1), share) for ms, share in results[s.id, queue][0].cdf], "line", k)
        for k, queue in enumerate(QUEUES)
    ]
    lines += [
        Line(f"{_display_name(queue)}, printed mean", [(printed, 0.5)], "dots", k, True)
        for k, (queue, printed) in enumerate(zip(QUEUES, s.delays, strict=True))
        if printed is not None
    ]
    figure = {"LQ1": "6a", "LQ2": "6b", "LQ3": "6c", "LQ5": "6d", "LQ6": "6e", "LQ7": "6f", "LQ8": "9a"}[s.id]
    return Figure(
        s.id,
        f"Figure {figure}: {s.what}",
        "Distribution of the queue's delay in one run; printed means are hollow, at one half.",
        [Panel("Delay", Axis("delay, ms", True), Axis("share of the packets"), lines)],
    )


PAPER = Paper(
    name="learnqueue",
    title="LearnQueue, reproduced",
    source="Bouacida, Shihada: Practical and Dynamic Buffer Sizing Using LearnQueue, IEEE Trans. Mobile Computing 2019",
    about="Figures 6, 9a, 11 and 12, and Table 2: delay and throughput of four queues on 802.11n without aggregation",
    claims=_claims(),
    measure=measure,
)
