"""LFQ: Tables I to VII and Figures 4 to 15. Each run has one flow and takes 5 s.

The evaluation is the authors' (their `rl.cc` and `plot_df.py`): 100 rates of 5 to 25 Mbit/s at 15 ms and 100 round
trips of 5 to 25 ms at 15 Mbit/s, for NewReno and for BIC. A run has no randomness, so shifted grids replace seeds: the
first grid is the paper's, the others are shifted by fractions of a step, and the confidence interval shows how much
depends on single losses. For figures over time, rates slightly below the paper's replace seeds. Throughput is
application bytes over 5 s. The queue called fq in the paper's tables was a plain FIFO; real `fq` is measured as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quell._core import Scenario
from quell.inputs import keys
from quell.papers import curves, lfq_beyond
from quell.papers.bench import Bench, Run, Sample, is_known, mean, missing_reason, undecided
from quell.papers.claim import SHARE, Claim, estimate
from quell.papers.lfq_beyond import NAMES, Where, shift
from quell.papers.paper import Paper, short
from quell.papers.study import Study
from quell.results.stats import Record
from quell.train.flows import CCS, Cc
from quell.train.flows import scenario as link_with_flow
from quell.views.figures import Axis, Figure, Line, Panel

AXES = {"bw": "rate", "delay": "round trip"}
LOW, HIGH, MIDDLE = 5.0, 25.0, 15.0
"""Ends and middle of both axes: rates in Mbit/s, round trips in ms."""
POINTS, QUICK_POINTS = 100, 12
PACKET = 1500
"""Bytes of a full packet on the link: 1446 of data, 52 of headers, 2 of PPP."""

QUEUES = {
    "offline_0.01": "lfq alpha 0.01",
    "offline_10": "lfq alpha 10",
    "online_10": "lfq alpha 10 online",
    "fq_codel": "fq_codel noecn",
    "fq100": "fifo limit 100",
    "fq1000": "fifo limit 1000",
    "real_fq100": "fq flow_limit 100",
    "real_fq1000": "fq flow_limit 1000",
}
LEARNED = ("offline_0.01", "offline_10", "online_10")

# Printed numbers. ----------------------------------------------------------------------------------------------------

CORRELATIONS = {
    "offline_0.01": ("T1", {"newreno": (98.3, 99.1), "bic": (80.2, 90.2)}),
    "offline_10": ("T3", {"newreno": (99.3, 96.5), "bic": (75.4, 62.0)}),
    "online_10": ("T5", {"newreno": (86.1, 87.7), "bic": (72.9, 73.6)}),
}
LIMITS = {
    "offline_0.01": ("T2", {"newreno": 22, "bic": 8}),
    "offline_10": ("T4", {"newreno": 13, "bic": 5}),
    "online_10": ("T6", {"newreno": 14, "bic": 8}),
}
TABLE_VII: dict[str, tuple[float | None, float | None, float | None]] = {
    "offline_0.01": (13.4, 23.9, 7.7),
    "offline_10": (12.5, 12.7, 3.4),
    "online_10": (12.8, 16.1, 4.5),
    "fq_codel": (13.7, 155.4, 15.4),
    "fq100": (11.7, 100, 51.1),
    "fq1000": (11.9, 1000, 630.4),
    "real_fq100": (None, None, None),
    "real_fq1000": (None, None, None),
}
"""Goodput in Mbit/s, largest and mean queue in packets; None: not in the paper."""


@dataclass(frozen=True)
class Flow:
    """One of Figures 5 to 15: a flow and its queue over time; `text` describes the printed figure."""

    id: str
    cc: Cc
    mbps: float
    rtt_ms: float
    queue: str
    text: str


FLOWS = (
    Flow("F5", "newreno", 25, 15, "offline_0.01", "the limit begins near 15 and is near 35 within a second"),
    Flow("F6", "newreno", 6, 15, "offline_0.01", "the limit settles near 10; the queue hardly ever empties"),
    Flow("F7", "bic", 25, 15, "offline_0.01", "the limit settles near 12"),
    Flow("F10", "newreno", 6, 15, "offline_10", "a smaller limit than Figure 6's; the queue is empty at times"),
    Flow("F12", "bic", 15, 5, "offline_0.01", "a short queue that hardly ever empties"),
    Flow("F13", "bic", 15, 5, "fq1000", "the queue grows to its limit"),
    Flow("F14", "bic", 15, 5, "fq100", "a standing queue of about 80 from 2 s on (captioned as 1000, drawn as 100)"),
    Flow("F15", "bic", 15, 5, "fq_codel", "a spike in slow start, then a short queue"),
)


ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII")


def _printed(
    which: str, what: str, unit: str, number: float | None, better: int = 0, digits: int = 2, **more: Any
) -> Claim:
    """Return the claim of a row of a table or figure; a row without a printed number is beyond the paper."""
    name = which.partition(".")[0]
    source = f"Table {ROMAN[int(name[1:]) - 1]}" if name[0] == "T" else f"Figure {name[1:]}"
    if number is None:
        return Claim(which, what, unit, digits=digits)
    return Claim(which, what, unit, number, better, digits=digits, kind="printed", source=source, **more)


def _claims() -> list[Claim]:
    out = []
    for queue in LEARNED:
        table, printed = CORRELATIONS[queue]
        for cc in CCS:
            for (axis, name), value in zip(AXES.items(), printed[cc], strict=True):
                what = f"{QUEUES[queue]}, {NAMES[cc]}: correlation of {name} and limit"
                out.append(_printed(f"{table}.{cc}.{axis}", what, "%", value, +1, 1))
        table, limits = LIMITS[queue]
        for cc in CCS:
            what = f"{QUEUES[queue]}, {NAMES[cc]}: mean limit"
            out.append(_printed(f"{table}.{cc}", what, "packets", limits[cc], 0, 1))
        ratio = limits["newreno"] / limits["bic"]
        what = f"{QUEUES[queue]}: NewReno's mean limit over BIC's"
        out.append(_printed(f"{table}.ratio", what, "", ratio, 0, of="amount"))
    out.sort(key=lambda claim: claim.id)
    for queue, (thr, most, avg) in TABLE_VII.items():
        learned, words = queue in LEARNED, QUEUES[queue]
        out += [
            _printed(f"T7.{queue}.thr", f"{words}: goodput", "Mbit/s", thr, +1 if learned else 0),
            _printed(f"T7.{queue}.max", f"{words}: largest queue, mean over runs", "packets", most,
                     -1 if learned else 0, 1),
            _printed(f"T7.{queue}.avg", f"{words}: mean queue", "packets", avg, -1 if learned else 0, 1),
        ]  # fmt: skip
    out += SENTENCES
    out += curves.LFQ_CLAIMS
    at = "25 Mbit/s, 15 ms: limit"
    out += [
        _printed("F5.start", f"NewReno, {at} in the first 0.2 s", "packets", 15, 0, 1),
        _printed("F5.end", f"NewReno, {at} in the last second", "packets", 35, 0, 1),
        Claim("F5.settled", f"NewReno, {at} for good within a fifth of its end", "s", 1, -1, kind="claim",
              source="section V.A", quote="less than a second"),
        _printed("F6.end", "NewReno, 6 Mbit/s, 15 ms: limit in the last second", "packets", 10, 0, 1),
        _printed("F7.end", f"BIC, {at} in the last second", "packets", 12, 0, 1),
        Claim("F10.end", "alpha 10, NewReno, 6 Mbit/s: limit in the last second", "packets", digits=1),
    ]  # fmt: skip
    for f in FLOWS:
        out.append(
            Claim(f"{f.id}.empty", f"{_flow_text(f)}: time with less than half a packet, from 1 s on", "%", digits=1)
        )
    out += [
        _printed("F13.max", f"{_flow_text(FLOWS[5])}: largest queue", "packets", 1000, 0, 0),
        _printed("F14.standing", f"{_flow_text(FLOWS[6])}: mean queue from 2 s on", "packets", 80, 0, 1),
        Claim("F15.max", f"{_flow_text(FLOWS[7])}: largest queue", "packets", digits=0),
        Claim("F15.rest", f"{_flow_text(FLOWS[7])}: mean queue from 2 s on", "packets", digits=1),
    ]
    return out + lfq_beyond.claims(LEARNED)


def _flow_text(f: Flow) -> str:
    return f"{QUEUES[f.queue]}, {NAMES[f.cc]}, {f.mbps:g} Mbit/s, {f.rtt_ms:g} ms"


# Measuring. ----------------------------------------------------------------------------------------------------------

PLAIN: keys.Flow = {}


def scenario(cc: Cc, mbps: float, rtt_ms: float, more: keys.Flow = PLAIN) -> Scenario:
    """Return the paper's link with one flow; `more` are further keys of the flow."""
    return link_with_flow(cc, round(mbps * 1e6), round(rtt_ms * 500), more)


def grid(points: int, number: int) -> list[float]:
    """Space values evenly from LOW to HIGH, shifted up by `shift(number)` steps; values above HIGH are reflected."""
    step = (HIGH - LOW) / (points - 1)
    shifted = [LOW + step * (k + shift(number)) for k in range(points)]
    return [value if value <= HIGH + 1e-9 else 2 * HIGH - value for value in shifted]


@dataclass(frozen=True)
class Measurements:
    """Results of a run: goodput in Mbit/s; largest and mean queue and mean limit in packets."""

    goodput: float
    most: float
    avg: float
    limit: float | None


def _reduce(record: Record) -> Measurements:
    queue = record["backlog_packets"]
    return Measurements(record["delivered_in_order_mbps"], queue["max"], queue["mean"], record["limit_packets"])


Grids = Sequence[Mapping[Where, Measurements]]


def _places(points: int, number: int) -> Iterator[Where]:
    for cc in CCS:
        for axis in AXES:
            for value in grid(points, number):
                yield cc, axis, value


def at(where: Where, more: keys.Flow = PLAIN) -> Scenario:
    """Return the scenario of a point of the grid."""
    cc, axis, value = where
    return scenario(cc, value, MIDDLE, more) if axis == "bw" else scenario(cc, MIDDLE, value, more)


def _simulate(bench: Bench, queues: Mapping[str, str]) -> dict[str, Grids]:
    """Measure every queue on more and more grids, until the verdicts of its rows are clear."""
    points = QUICK_POINTS if bench.quick else POINTS
    out: dict[str, list[dict[Where, Measurements]]] = {queue: [] for queue in queues}
    wanted = list(queues)
    for look in bench.looks:
        grids = [list(_places(points, number)) for number in range(look)]
        cells = [(queue, number) for queue in wanted for number in range(len(out[queue]), look)]
        places = [(queue, number, where) for queue, number in cells for where in grids[number]]
        scenarios = {where: at(where) for _, _, where in places}
        runs = [Run(scenarios[where], queues[queue]) for queue, _, where in places]
        for queue in wanted:
            out[queue] += [{} for _ in range(look - len(out[queue]))]
        for (queue, number, where), got in zip(places, bench.run("Tables I to VII", runs, _reduce), strict=True):
            out[queue][number][where] = got
        still = undecided(_samples(out), CLAIMS)
        wanted = [queue for queue in queues if queue in still]
        if not wanted:
            break
    return dict(out)


def _samples(measured: Mapping[str, Grids]) -> Iterator[Sample[str]]:
    """Yield the values of each row, one for each grid."""
    for name, grids in measured.items():
        for what, column in COLUMNS.items():
            yield Sample(f"T7.{name}.{column}", [_mean(places, what) for places in grids], (name,))
        if name not in LEARNED:
            continue
        table, _ = CORRELATIONS[name]
        for cc in CCS:
            for axis in AXES:
                values = [_correlation(places, cc, axis) for places in grids]
                yield Sample(f"{table}.{cc}.{axis}", values, (name,))
        table, _ = LIMITS[name]
        for cc in CCS:
            yield Sample(f"{table}.{cc}", [_limit(places, cc) for places in grids], (name,))
        yield Sample(f"{table}.ratio", [_limit(p, "newreno") / _limit(p, "bic") for p in grids], (name,))
    yield from _sentences(measured)


def _sentences(measured: Mapping[str, Grids]) -> Iterator[Sample[str]]:
    """Yield the values of rows about sentences: ratios of the learned queue to another, one for each grid."""
    mine = "offline_0.01"

    def ratios(which: str, what: str, other: str, mine: str = mine) -> Sample[str]:
        pairs = zip(measured[mine], measured[other], strict=False)
        return Sample(which, [_mean(a, what) / _mean(b, what) for a, b in pairs], (mine, other))

    if "online_10" in measured:
        yield ratios("C.online", "goodput", "offline_10", "online_10")
    if mine in measured:
        yield ratios("C.queue", "avg", "fq_codel")
        yield ratios("C.throughput", "goodput", "fq_codel")
        yield ratios("C.most.fq100", "most", "fq100")
        yield ratios("C.most.fq_codel", "most", "fq_codel")


COLUMNS = {"goodput": "thr", "most": "max", "avg": "avg"}
SENTENCES = [
    Claim(which, what, "", bound, better, kind="claim", source=source, quote=quote)
    for which, what, bound, better, source, quote in (
        ("C.queue", "lfq alpha 0.01: mean queue over FQ-CoDel's", 0.5, -1, "section VII", "less than half"),
        ("C.throughput", "lfq alpha 0.01: goodput over FQ-CoDel's", 1.0, +1, "abstract",
         "the same or higher throughput"),
        ("C.online", "lfq alpha 10: goodput with online over offline learning", 1 - SHARE, +1, "section IX",
         "worked comparable to the offline"),
        ("C.most.fq100", "lfq alpha 0.01: largest queue over that of fq 100", 0.25, -1, "section IX",
         "less than one fourth"),
        ("C.most.fq_codel", "lfq alpha 0.01: largest queue over FQ-CoDel's", 1 / 6, -1, "section IX",
         "less than a sixth"),
    )
]  # fmt: skip


def _mean(places: Mapping[Where, Measurements], what: str) -> float:
    return mean(getattr(got, what) for got in places.values())


def _correlation(places: Mapping[Where, Measurements], cc: str, axis: str) -> float | None:
    return pearson([(value, s.limit or 0.0) for (c, a, value), s in places.items() if (c, a) == (cc, axis)])


def _limit(places: Mapping[Where, Measurements], cc: str) -> float:
    return mean(s.limit or 0.0 for (c, _, _), s in places.items() if c == cc)


def measure(bench: Bench) -> None:
    """Measure the paper."""
    study = bench.study
    queues = {name: words for name, words in QUEUES.items() if is_known(words)}
    for name in (name for name in QUEUES if name not in queues):
        _missing(study, name)
    static = lfq_beyond.regret(study, bench, queues, at)
    measured = _simulate(bench, queues)
    others = _with_another_tcp(bench, queues)
    for name in measured:
        _table_vii(study, name, measured, others.get(name, {}))
        if name in LEARNED:
            _tables_of_limits(study, name, measured, static)
    for sample in _sentences(measured):
        study.put(sample.claim, estimate(sample.values), "the mean of each queue is in the rows of Table VII")
    _flows(study, bench, queues)
    study.figures.insert(0, _figure_8(measured))
    curves.lfq(study)
    lfq_beyond.mixed(study, bench, queues)


def _missing(study: Study, name: str) -> None:
    owner = {f.id: f.queue for f in FLOWS}
    owner |= {table: queue for tables in (CORRELATIONS, LIMITS) for queue, (table, _) in tables.items()}
    for claim in CLAIMS:
        parts = claim.id.split(".")
        if owner.get(parts[0]) == name or f".{name}." in f"{claim.id}.":
            study.put(claim.id, None, missing_reason(QUEUES[name]))


TCPS: dict[str, keys.Flow] = {
    "without SACK": {"sack": False},
    "with socket buffers of 6 MB": {"buffer": "6MB"},
    "with both": {"sack": False, "buffer": "6MB"},
}
"""Senders that differ from the paper's settings. Results of a deep FIFO depend on them."""


def _with_another_tcp(bench: Bench, queues: Mapping[str, str]) -> dict[str, dict[str, list[Measurements]]]:
    """Measure the queues of Table VII that do not learn with other senders, on a coarser grid."""
    places = list(_places(QUICK_POINTS, 0))
    keys = [(name, tcp) for name in queues if name not in LEARNED for tcp in TCPS]
    runs = [Run(at(where, TCPS[tcp]), queues[name]) for name, tcp in keys for where in places]
    measured = bench.run("Other senders", runs, _reduce)
    out: dict[str, dict[str, list[Measurements]]] = {}
    for k, (name, tcp) in enumerate(keys):
        out.setdefault(name, {})[tcp] = measured[k * len(places) : (k + 1) * len(places)]
    return out


def _table_vii(
    study: Study, name: str, everyone: Mapping[str, Grids], others: Mapping[str, Sequence[Measurements]]
) -> None:
    grids = everyone[name]
    for what, column in COLUMNS.items():
        parts = [
            f"{NAMES[cc]} {short(mean(getattr(s, what) for p in grids for (c, _, _), s in p.items() if c == cc))}"
            for cc in CCS
        ]
        parts += [f"{tcp} {short(mean(getattr(s, what) for s in measured))}" for tcp, measured in others.items()]
        if name in LEARNED:
            parts += [
                f"{QUEUES[other]} {short(mean(getattr(s, what) for p in theirs for s in p.values()))}"
                for other, theirs in everyone.items()
                if other in LEARNED and other != name
            ]
        study.put(f"T7.{name}.{column}", estimate(_mean(places, what) for places in grids), ", ".join(parts))


def _tables_of_limits(
    study: Study, name: str, everyone: Mapping[str, Grids], static: Mapping[str, Mapping[Where, int]]
) -> None:
    grids, best = everyone[name], static[name.rsplit("_", 1)[1]]
    table, _ = CORRELATIONS[name]
    others = [other for other in LEARNED if other != name and other in everyone]
    for cc in CCS:
        for axis in AXES:
            why = [_by_fifths(grids, cc, axis), f"best static limits {_by_thirds(best, cc, axis)}"]
            for other in others:
                theirs = [_correlation(places, cc, axis) for places in everyone[other]]
                found = [value for value in theirs if value is not None]
                why += [f"{QUEUES[other]} {mean(found):.1f} %"] if found else []
            study.put(
                f"{table}.{cc}.{axis}", estimate(_correlation(places, cc, axis) for places in grids), "; ".join(why)
            )
    table, _ = LIMITS[name]
    for cc in CCS:
        why = [f"by {AXES[axis]} {_by_fifths(grids, cc, axis)}" for axis in AXES]
        why += [f"best static limits by {AXES[axis]} {_by_thirds(best, cc, axis)}" for axis in AXES]
        study.put(f"{table}.{cc}", estimate(_limit(p, cc) for p in grids), "; ".join(why))
    ratio = estimate(_limit(p, "newreno") / _limit(p, "bic") for p in grids)
    why = []
    for cc in CCS:
        optimum = mean(float(limit) for (c, _, _), limit in best.items() if c == cc)
        why.append(f"{NAMES[cc]} {mean(_limit(p, cc) for p in grids):.1f}, best static {optimum:.1f}")
    study.put(f"{table}.ratio", ratio, "; ".join(why))


def _by_fifths(grids: Grids, cc: str, axis: str) -> str:
    """Return, as text, the mean limit in each fifth of the axis."""
    fifths: list[list[float]] = [[] for _ in range(5)]
    for places in grids:
        for (c, a, value), measured in places.items():
            if (c, a) == (cc, axis):
                fifths[min(4, int((value - LOW) / (HIGH - LOW) * 5))].append(measured.limit or 0.0)
    return "its limits, by fifths, " + ", ".join(f"{mean(part):.1f}" for part in fifths)


def _by_thirds(best: Mapping[Where, int], cc: str, axis: str) -> str:
    """Return, as text, the mean best static limits in the first and last third of the axis, and the correlation."""
    pairs = sorted((value, float(limit)) for (c, a, value), limit in best.items() if (c, a) == (cc, axis))
    correlation = pearson(pairs)
    suffix = "" if correlation is None else f", correlation {correlation:.0f} %"
    third = max(1, len(pairs) // 3)
    least, last = mean(v for _, v in pairs[:third]), mean(v for _, v in pairs[-third:])
    return f"{least:.1f} in the least third, {last:.1f} in the last{suffix}"


def pearson(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Pearson's correlation coefficient in per cent; None if one side is constant."""
    xs, ys = zip(*pairs, strict=True)
    mx, my = mean(xs), mean(ys)
    xx, yy = math.fsum((x - mx) ** 2 for x in xs), math.fsum((y - my) ** 2 for y in ys)
    xy = math.fsum((x - mx) * (y - my) for x, y in pairs)
    return 100 * xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else None


def _figure_8(measured: Mapping[str, Grids]) -> Figure:
    panels = []
    for axis, title, unit in (
        ("bw", "Limit by rate, 15 ms", "rate, Mbit/s"),
        ("delay", "Limit by round trip, 15 Mbit/s", "RTT, ms"),
    ):
        lines = []
        for k, (name, cc) in enumerate((name, cc) for name in LEARNED if name in measured for cc in CCS):
            points = [(v, s.limit) for (c, a, v), s in measured[name][0].items() if (c, a) == (cc, axis)]
            lines.append(Line(f"{QUEUES[name]}, {NAMES[cc]}", points, "line", k))
        panels.append(Panel(title, Axis(unit), Axis("mean limit, packets"), lines))
    note = "The limit that the network set, mean of each run, on the paper's grid. Figure 8 is alpha 0.01's."
    return Figure("F8", "Figure 8: limits follow rate, round trip and congestion control", note, panels)


# One flow over time. -------------------------------------------------------------------------------------------------


def _flows(study: Study, bench: Bench, queues: Mapping[str, str]) -> None:
    shown = [f for f in FLOWS if f.queue in queues]
    others = _plain_flows_with_another_tcp(bench, queues)
    near = [(f, shift(number) * NEAR_MBPS) for f in shown for number in range(bench.first)]
    runs = [Run(scenario(f.cc, f.mbps - less, f.rtt_ms), queues[f.queue], 0, BIN_S) for f, less in near]
    got = bench.run("Figures 5 to 15", runs, lambda record: record["series"])
    panels = []
    for at_flow, f in enumerate(shown):
        own = range(at_flow * bench.first, (at_flow + 1) * bench.first)
        courses = [_course(f.mbps - near[k][1], got[k]) for k in own]
        _judge_flow(study, f, courses, others.get(f.id, ""))
        backlog, limit = courses[0]
        bin_s = got[own[0]]["bin_s"]
        times = [(k + 0.5) * bin_s for k in range(len(backlog))]
        lines = [Line("queue", list(zip(times, backlog, strict=True)), "line", 0)]
        if f.queue in LEARNED:
            lines.append(Line("limit", list(zip(times, limit, strict=True)), "steps", 1))
        title = f"Figure {f.id[1:]}: {_flow_text(f)}. In print {f.text}"
        panels.append(Panel(title, Axis("time, s"), Axis("packets"), lines))
    note = "The paper's flows, queue and limit in bins of 10 ms."
    study.figures.append(Figure("F5", "Figures 5 to 7, 10, 12 to 15: one flow over time", note, panels))


def _plain_flows_with_another_tcp(bench: Bench, queues: Mapping[str, str]) -> dict[str, str]:
    """Return, as text, the queues of Figures 13 and 14 with other senders."""
    flows = [f for f in FLOWS if f.id in ("F13", "F14")]
    runs = [
        Run(scenario(f.cc, f.mbps, f.rtt_ms, more), queues[f.queue], 0, BIN_S) for f in flows for more in TCPS.values()
    ]

    def reduce(record: Record) -> tuple[float, float]:
        series = record["series"]
        late = series["backlog_ms"][round(2.0 / series["bin_s"]) :]
        return record["backlog_packets"]["max"], mean(late) * record["capacity_mbps"] * 1e3 / 8 / PACKET

    measured = bench.run("Figures 13 and 14", runs, reduce)
    return {
        f.id: ", ".join(
            f"{tcp} largest {most:.0f}, mean from 2 s on {late:.0f}"
            for tcp, (most, late) in zip(TCPS, measured[k * len(TCPS) :], strict=False)
        )
        for k, f in enumerate(flows)
    }


BIN_S = 0.01
NEAR_MBPS = (HIGH - LOW) / (POINTS - 1)
"""A step of the paper's grid. A run has no randomness: rates that are lower by up to this replace seeds."""

Course = tuple[Sequence[float], Sequence[float]]
"""Queue and limit in packets, in bins of BIN_S."""


def _course(mbps: float, series: Mapping[str, Any]) -> Course:
    """Return the course of a run; `mbps` is the rate at which it was simulated."""
    return [ms * mbps * 1e3 / 8 / PACKET for ms in series["backlog_ms"]], series["limit_packets"]


def _part(values: Sequence[float], start: float, end: float = 5.0) -> list[float]:
    return list(values[round(start / BIN_S) : round(end / BIN_S)])


def _settles(limit: Sequence[float]) -> float:
    """Return the time in s after which the limit stays within 20 % of its mean over the last second."""
    last = mean(_part(limit, 4.0))
    off = [k for k, value in enumerate(limit) if abs(value - last) > 0.2 * last]
    return (off[-1] + 1) * BIN_S if off else 0.0


def _judge_flow(study: Study, f: Flow, courses: Sequence[Course], others: str) -> None:
    """Judge a figure by the flow at the paper's rate, the first course, and at rates slightly below."""

    def put(which: str, value: Callable[[Course], float], why: str = "") -> None:
        study.put(f"{f.id}.{which}", estimate(value(course) for course in courses), why)

    def by_second(values: Sequence[float], digits: int) -> str:
        return ", ".join(f"{mean(_part(values, s, s + 1.0)):.{digits}f}" for s in range(5))

    backlog, limit = courses[0]
    put("empty", lambda course: 100 * mean(float(b < 0.5) for b in _part(course[0], 1.0)))
    course = f"limit by second {by_second(limit, 1)}" if f.queue in LEARNED else ""
    if f.id == "F5":
        put("start", lambda course: mean(_part(course[1], 0.0, 0.2)), course)
        put("settled", lambda course: _settles(course[1]), course)
    if f.id in ("F5", "F6", "F7", "F10"):
        put("end", lambda course: mean(_part(course[1], 4.0)), course)
    queue = f"{others}; mean queue by second {by_second(backlog, 0)}"
    if f.id in ("F13", "F15"):
        put("max", lambda course: max(course[0]), queue)
    if f.id == "F14":
        put("standing", lambda course: mean(_part(course[0], 2.0)), queue)
    if f.id == "F15":
        put("rest", lambda course: mean(_part(course[0], 2.0)))


CLAIMS = _claims()
PAPER = Paper(
    name="lfq",
    title="LFQ, reproduced",
    source="Bachl, Fabini, Zseby: LFQ: Online Learning of Per-flow Queuing Policies using Deep RL, LCN 2020",
    about="Tables I to VII, Figures 4 to 15: one flow at 5 to 25 Mbit/s, 5 to 25 ms; beyond: many flows, regret",
    claims=CLAIMS,
    measure=measure,
)
