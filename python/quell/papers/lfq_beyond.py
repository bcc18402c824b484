"""Beyond LFQ's paper, whose experiments had one flow each: many flows of mixed kinds, and regret to the best limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from quell._core import Scenario
from quell.inputs.keys import Flow
from quell.papers.bench import Bench, Run, is_known, mean
from quell.papers.claim import Claim, estimate
from quell.papers.study import Study
from quell.results import frontier
from quell.results.stats import Record
from quell.train.flows import Cc
from quell.views.figures import Axis, Figure, Line, Panel, Table

FLOWS = (2, 4, 8, 16, 32, 64)
CCS: tuple[Literal["cubic", "bbr", "newreno", "dctcp"], ...] = ("cubic", "bbr", "newreno", "dctcp")
RTTS = (10, 20, 40, 80)
RATE = 100
"""Rate of the link, Mbit/s."""
CEILINGS = {"ceiling_20ms": "lfq ceiling 20ms", "ceiling_40ms": "lfq ceiling 40ms"}
"""Options that bound the output of alpha 0.01's network, for flows with other rates than in its training."""
MIXED = ("offline_0.01", *CEILINGS, "offline_10", "online_10", "fq_codel", "fq100", "real_fq100")
ALPHAS = {"0.01": 0.01, "10": 10.0}
STATIC = [limit for limit in frontier.LIMITS if limit <= 256]
POINTS, QUICK_POINTS = 10, 3
REGRET_OF = ("offline_0.01", "offline_10", "online_10", "fq_codel", "fq100")
NAMES: dict[Cc, str] = {"newreno": "NewReno", "bic": "BIC"}

Where = tuple[Cc, str, float]
"""Congestion control, axis, value on the axis."""


def claims(learned: Sequence[str]) -> list[Claim]:
    """List the measured quantities, none of which is in the paper."""
    out = []
    for count in FLOWS:
        for queue in MIXED:
            name = f"{queue}: {count} flows of mixed congestion control and RTT"
            plain = queue not in learned or count not in (4, 16, 64)
            out += [
                Claim(f"mixed.{count}.{queue}.jain", f"{name}, Jain's index", "", digits=3, detail=plain),
                Claim(f"mixed.{count}.{queue}.delay", f"{name}, mean sojourn", "ms", digits=1, detail=plain),
                Claim(f"mixed.{count}.{queue}.thr", f"{name}, goodput", "Mbit/s", digits=1, detail=True),
            ]
    for alpha in ALPHAS:
        for cc in NAMES:
            out += [
                Claim(f"regret.{alpha}.{cc}.{queue}", f"{queue}, {NAMES[cc]}, reward with alpha {alpha}: "
                      "lost to the best static limit of each setting", "%", digits=1, detail=queue not in learned)
                for queue in REGRET_OF
            ]  # fmt: skip
    return out


# Many flows. ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurements:
    """Results of one run."""

    jain: float
    delay: float
    goodput: float
    limit: float | None
    flows: list[tuple[str, float, float]]
    """For each flow congestion control, goodput in Mbit/s, and RTT beyond the base in ms."""


def _reduce(record: Record) -> Measurements:
    flows = [
        (f["cc"], f["delivered_in_order_mbps"], f["rtt_ms"]["mean"] - f["base_rtt_ms"])
        for f in record["flows"]
        if f["rtt_ms"]
    ]
    read = record["delivered_in_order_mbps"]
    return Measurements(record["jain"], record["sojourn_ms"]["mean"], read, record["limit_packets"], flows)


def link_of(count: int, *, quick: bool) -> Scenario:
    """Return a link of 100 Mbit/s with `count` flows whose kinds and round trips alternate."""
    dealt = [(CCS[k % 4], RTTS[(k + k // 4) % 4]) for k in range(count)]
    flows: list[Flow] = [
        {"cc": cc, "rtt": f"{rtt}ms", "count": dealt.count((cc, rtt)), "stagger": "1s"}
        for cc, rtt in dict.fromkeys(dealt)
    ]
    return Scenario.from_keys(
        name="mixed", duration=f"{12 if quick else 35}s", warmup="5s", link={"rate": f"{RATE}mbit"}, flow=flows
    )


def mixed(study: Study, bench: Bench, queues: Mapping[str, str]) -> None:
    """Measure many flows of mixed kinds."""
    known = {**queues, **{name: words for name, words in CEILINGS.items() if is_known(words)}}
    here = {name: known[name] for name in MIXED if name in known}
    for name in (name for name in MIXED if name not in here):
        for count in FLOWS:
            for what in ("jain", "delay", "thr"):
                study.put(f"mixed.{count}.{name}.{what}", None, "no such queue here")
    counts = FLOWS[:3] if bench.quick else FLOWS
    settings = {
        (name, count): (link_of(count, quick=bench.quick), words) for count in counts for name, words in here.items()
    }
    got = bench.seeds_of("Many flows", settings, _reduce)
    rows = []
    for count in FLOWS:
        cells = []
        for name in here:
            if (measured := got.get((name, count))) is None:
                for what in ("jain", "delay", "thr"):
                    study.put(f"mixed.{count}.{name}.{what}", None, "left out of the quick version")
                continue
            study.put(f"mixed.{count}.{name}.jain", estimate(s.jain for s in measured))
            study.put(f"mixed.{count}.{name}.delay", estimate(s.delay for s in measured))
            study.put(f"mixed.{count}.{name}.thr", estimate(s.goodput for s in measured))
            cells.append(f"{mean(s.jain for s in measured):.3f}/{mean(s.delay for s in measured):.3g}")
        if cells:
            rows.append([str(count), *cells])
    _note_limits(study, got, counts[-1])
    title = f"Flows of mixed congestion control and RTT on {RATE} Mbit/s: Jain's index / mean sojourn, ms"
    study.tables.append(Table(title, ["flows", *here], rows))
    many = counts[-1]
    panels = [
        Panel(
            f"{words}, {many} flows",
            Axis("goodput, Mbit/s"),
            Axis("RTT beyond the base, ms"),
            _by_cc(got[name, many][0]),
        )
        for name, words in here.items()
    ]
    note = "A dot is a flow of one run: what it carries, and how much later its packets are than on an empty path."
    study.figures.append(Figure("mixed", "Many flows: each flow's goodput and delay", note, panels))
    lines = {
        what: [
            Line(words, [(n, mean(getattr(s, what) for s in got[name, n])) for n in counts], "both", k)
            for k, (name, words) in enumerate(here.items())
        ]
        for what in ("jain", "delay")
    }
    panels = [
        Panel("Fairness", Axis("flows", True), Axis("Jain's index"), lines["jain"]),
        Panel("Delay", Axis("flows", True), Axis("mean sojourn, ms", True), lines["delay"]),
    ]
    study.figures.append(Figure("mixed-n", "Many flows: fairness and delay", "Means over seeds.", panels))


def _note_limits(study: Study, got: Mapping[tuple[str, int], Sequence[Measurements]], count: int) -> None:
    """Add a note on the limits when many flows share the link."""
    limits_text = []
    packet_ms = 1514 * 8 / (RATE * 1e3 / count)
    for name in MIXED:
        limits = [s.limit for s in got.get((name, count), ()) if s.limit is not None]
        if limits:
            limits_text.append(f"{name} {mean(limits):.1f} packets, {mean(limits) * packet_ms:.0f} ms")
    if limits_text:
        study.notes.append(
            f"Of {count} flows each sends a packet in {packet_ms:.1f} ms. The networks learned from flows with 5 to "
            f"25 Mbit/s each, 0.5 to 2.4 ms; mean limits, and the time they take to send: "
            f"{'; '.join(limits_text)}."
        )


def _by_cc(measured: Measurements) -> list[Line]:
    return [Line(cc, [(g, d) for c, g, d in measured.flows if c == cc], "dots", k) for k, cc in enumerate(CCS)]


# Regret. -------------------------------------------------------------------------------------------------------------


def shift(number: int) -> float:
    """Return the shift of grid `number` from the first, as a share of a step: 0, 1/2, 1/4, 3/4, 1/8 and so on.

    This is van der Corput's sequence: any number of grids is spread evenly.
    """
    share, weight = 0.0, 0.5
    while number:
        share += weight * (number % 2)
        number, weight = number // 2, weight / 2
    return share


def _places(points: int, number: int) -> Iterator[Where]:
    """Yield settings spread over the paper's ranges, in grid `number`."""
    step = 20.0 / points
    for cc in NAMES:
        for axis in ("bw", "delay"):
            for k in range(points):
                yield cc, axis, 5.0 + step * (k + shift(number))


def reward(record: Record, alpha: float) -> float:
    """Compute LFQ's reward: bytes per second through the queue less alpha times the queued bytes, in millions."""
    sent = record["throughput_mbps"] * 1e6 / 8
    return float((sent - alpha * record["backlog_packets"]["mean"] * 1446) / 1e6)


def regret(
    study: Study, bench: Bench, queues: Mapping[str, str], at: Callable[[Where], Scenario]
) -> dict[str, dict[Where, int]]:
    """Measure the loss of queues against the best static limit of each setting; return the best limits by alpha."""
    here = {name: queues[name] for name in REGRET_OF if name in queues}
    static = {limit: frontier.words("limit", limit) for limit in STATIC}
    points = QUICK_POINTS if bench.quick else POINTS
    grids = [list(_places(points, number)) for number in range(bench.first)]
    scenarios = {where: at(where) for places in grids for where in places}
    words = {**here, **{str(limit): queue for limit, queue in static.items()}}
    keys = [(name, where) for name in words for where in scenarios]
    runs = [Run(scenarios[where], words[name]) for name, where in keys]
    rewards = bench.run("Static limits", runs, lambda r: {a: reward(r, alpha) for a, alpha in ALPHAS.items()})
    got = dict(zip(keys, rewards, strict=True))
    best = {
        alpha: {where: max(STATIC, key=lambda limit: got[str(limit), where][alpha]) for where in scenarios}
        for alpha in ALPHAS
    }
    losses = []
    for alpha in ALPHAS:
        for cc in NAMES:
            for name in REGRET_OF:
                claim = f"regret.{alpha}.{cc}.{name}"
                if name not in here:
                    study.put(claim, None, "no such queue here")
                    continue
                lost = []
                for places in grids:
                    mine = [where for where in places if where[0] == cc]
                    most = sum(got[str(best[alpha][where]), where][alpha] for where in mine)
                    lost.append(100 * (1 - sum(got[name, where][alpha] for where in mine) / most))
                study.put(claim, estimate(lost))
                if name == f"offline_{alpha}":
                    losses.append(f"alpha {alpha}, {NAMES[cc]} {mean(lost):.1f} %")
    if losses:
        study.notes.append(
            "Of the reward that the best static limit of each setting earns, found by sweeping, the offline networks "
            "lose: " + "; ".join(losses) + "."
        )
    return best
