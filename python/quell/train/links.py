"""Random links, and how a queue does on links that it has not seen.

A link is a scenario drawn from a seed: rate, round trips, flows, ECN, what comes and goes. A queue is judged on each
beside seven classics with their defaults. G is the highest goodput of the seven (mean of the seeds), P the lowest 95th
percentile of the sojourn among those within 2 % of G. Of a queue, g is its goodput / G, p its 95th percentile / P; it
wins a link with g >= 0.99 and p <= 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any, cast

from quell._core import Scenario
from quell.common.console import bar
from quell.experiments.executor import HERE, Executor
from quell.experiments.experiment import Job, run_each

CLASSICS = ("codel", "cobalt", "pie", "fq_codel", "fq_pie", "cake", "dualpi2")
SLACK = 0.02
"""A classic within this of the highest goodput counts for P."""
PACKET_BITS = 8 * 1514
LARGEST_BDP_BITS = 8 * 8_000_000
RESAMPLES = 2000
"""Of the bootstrap over links."""


@dataclass(frozen=True)
class Link:
    """One link, and what is said of it in tables."""

    scenario: Scenario
    rate_mbps: float
    rtt_ms: float
    flows: int
    what: str

    @property
    def packets_per_flow(self) -> float:
        """Bandwidth-delay product per flow, packets."""
        return self.rate_mbps * self.rtt_ms * 1e3 / PACKET_BITS / self.flows


def draw(seed: int, count: int, seeds: int = 1, *, length: float = 1.0) -> list[Link]:
    """Draw links, the same for the same seed; `seeds` is the number of runs on each, `length` scales their time."""
    return [_draw(random.Random(f"hush {seed} {index}"), index, seeds, length) for index in range(count)]


def _draw(rng: random.Random, index: int, seeds: int, length: float) -> Link:
    def log(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    while True:
        rate, rtt = log(1e6, 1e9), log(1e-3, 0.3)
        if rate * rtt <= LARGEST_BDP_BITS:
            break
    flows = round(log(1, 100))
    # Long enough for flows to leave slow start, then for 100 round trips and 2500 packets, within reason.
    warmup = min(max(40 * rtt, 1.0), 10.0)
    measured = min(max(100 * rtt, 2500 * PACKET_BITS / rate, 3.0), 30.0) * length
    duration = warmup + measured
    parts = 1 if flows == 1 or rng.random() < 0.6 else min(flows, rng.choice((2, 3)))
    classic = rng.random() < 0.2
    tables: list[dict[str, Any]] = []
    names = rng.sample(("newreno", "cubic", "cubic", "bbr", "prague"), parts)
    cuts = [0, *sorted(rng.sample(range(1, flows), parts - 1)), flows]
    for cc, (first, last) in zip(names, pairwise(cuts), strict=True):
        own = rtt if parts == 1 else min(rtt * log(0.5, 2.0), 0.5)
        table = {"cc": cc, "count": last - first, "rtt": f"{own * 1e6:.0f}us", "stagger": f"{warmup * 500:.0f}ms"}
        if classic and cc in ("newreno", "cubic"):
            table["ecn"] = True
        tables.append(table)
    what = "+".join(dict.fromkeys(names)) + (" ecn" if classic and any("ecn" in t for t in tables) else "")
    link: dict[str, Any] = {"rate": f"{rate:.0f}bit"}
    if rng.random() < 1 / 3:
        what += " " + _comings(rng, tables, rate, rtt, warmup, duration)
    if rng.random() < 1 / 5:
        steps = rng.randint(2, 5)
        times = [0.0, *(warmup + measured * (k + 1) / (steps + 1) for k in range(steps))]
        rates = [rate, *(rate * log(0.4, 1.6) for _ in range(steps))]
        link = {"schedule": [[f"{t * 1e3:.0f}ms", f"{r:.0f}bit"] for t, r in zip(times, rates, strict=True)]}
        what += " changing"
    if rng.random() < 1 / 10:
        link["up"] = {"rate": f"{rate / rng.uniform(10, 25):.0f}bit"}
        what += " slow-up"
    if rng.random() < 1 / 10:
        tables.append({"kind": "cbr", "rate": f"{rate * rng.uniform(0.02, 0.2):.0f}bit", "size": 1200})
        what += " udp"
    scenario = Scenario.from_keys(
        name=f"link-{index}", duration=f"{duration * 1e3:.0f}ms", warmup=f"{warmup * 1e3:.0f}ms",
        seeds=seeds, seed=rng.randrange(1 << 31), link=cast(Any, link), flow=cast(Any, tables),
    )  # fmt: skip
    return Link(scenario, rate / 1e6, rtt * 1e3, flows, what)


def _comings(
    rng: random.Random, tables: list[dict[str, Any]], rate: float, rtt: float, warmup: float, duration: float
) -> str:
    """Let a table of flows come or go in the middle, or short transfers come all the time."""
    if rng.random() < 0.5:
        size = math.exp(rng.uniform(math.log(10e3), math.log(300e3)))
        arrivals = min(rate * rng.uniform(0.05, 0.2) / (8 * size), 200.0)
        web = {"kind": "web", "size": f"exp:{size:.0f}", "arrivals": arrivals, "rtt": f"{rtt * 1e6:.0f}us"}
        tables.append(web)
        return "web"
    changed = rng.choice(tables)
    half = changed["count"] // 2
    if half:
        tables.append(changed | {"count": half})
        changed["count"] -= half
        changed = tables[-1]
    middle = rng.uniform(warmup, duration)
    if rng.random() < 0.5 or len(tables) == 1:
        changed["start"], changed["stagger"] = f"{middle * 1e3:.0f}ms", "0ms"
        return "coming"
    changed["stop"] = f"{middle * 1e3:.0f}ms"
    return "going"


@dataclass(frozen=True)
class Run:
    """What is kept of a run."""

    goodput: float
    p95: float
    mean: float
    p99: float
    jain: float
    loss: float
    fct: float
    """Mean completion time of finite transfers, ms; not a number where there are none."""


def _reduce(record: dict[str, Any]) -> Run:
    sojourn = record["sojourn_ms"] or {}
    fct = record["fct_ms"] or {}
    jain = record["jain"]
    return Run(
        goodput=record["goodput_mbps"], p95=sojourn.get("p95") or 0.0, mean=sojourn.get("mean") or 0.0,
        p99=sojourn.get("p99") or 0.0, jain=1.0 if jain is None else jain, loss=record["loss_rate"] or 0.0,
        fct=fct.get("mean") or math.nan,
    )  # fmt: skip


def simulate(
    links: Sequence[Link],
    queues: Sequence[str],
    *,
    on_done: Callable[[int], object] = lambda _: None,
    on: Executor = HERE,
) -> dict[str, list[Run]]:
    """Run every queue on every link with each of its seeds; give each queue's mean of the seeds, link by link."""
    seeds = links[0].scenario.seeds
    runs = [
        (link.scenario, Job(queue, link.scenario.run_seed(k)))
        for queue in queues
        for link in links
        for k in range(seeds)
    ]
    done = run_each(runs, _reduce, on_done=on_done, on=on)
    fields = Run.__dataclass_fields__
    groups = [done[k : k + seeds] for k in range(0, len(done), seeds)]
    means = [Run(**{f: fmean(getattr(run, f) for run in group) for f in fields}) for group in groups]
    return {queue: means[k * len(links) : (k + 1) * len(links)] for k, queue in enumerate(queues)}


@dataclass(frozen=True)
class Bar:
    """What the classics reach on a link: G (Mbit/s), P (ms), and the values of single ones."""

    goodput: float
    p95: float
    cake_loss: float
    codel_jain: float
    fq_codel_jain: float


def bars(classics: dict[str, list[Run]]) -> list[Bar]:
    """Find what the classics reach on each link."""
    found = []
    for index in range(len(classics[CLASSICS[0]])):
        here = {name: classics[name][index] for name in CLASSICS}
        most = max(run.goodput for run in here.values())
        least = min(run.p95 for run in here.values() if run.goodput >= (1 - SLACK) * most)
        found.append(
            Bar(most, max(least, 1e-3), here["cake"].loss, here["codel"].jain, here["fq_codel"].jain)
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Score:
    """A queue against the bars, link by link."""

    g: list[float]
    p: list[float]

    @staticmethod
    def of(runs: Sequence[Run], against: Sequence[Bar]) -> Score:
        """Divide by what the classics reach; a sojourn below a microsecond counts as one."""
        return Score(
            [run.goodput / bar.goodput for run, bar in zip(runs, against, strict=True)],
            [max(run.p95, 1e-3) / bar.p95 for run, bar in zip(runs, against, strict=True)],
        )

    @property
    def wins(self) -> list[float]:
        """1 where the queue wins, 0 elsewhere."""
        return [float(g >= 0.99 and p <= 1) for g, p in zip(self.g, self.p, strict=True)]


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(fmean(math.log(max(value, 1e-9)) for value in values))


def interval(
    values: Sequence[float], of: Callable[[Sequence[float]], float], seed: int = 1
) -> tuple[float, float, float]:
    """Give a figure over links and its 95 % interval, from a bootstrap over links."""
    rng = random.Random(seed)
    again = sorted(of(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return of(values), again[RESAMPLES // 40], again[-RESAMPLES // 40 - 1]


def table(links: Sequence[Link], runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """Make a row of figures per queue; `runs` has the classics and whatever is judged."""
    against = bars(runs)
    few = [i for i, link in enumerate(links) if link.packets_per_flow < 2]
    rows = []
    for queue, mine in runs.items():
        score = Score.of(mine, against)
        row: dict[str, Any] = {
            "queue": queue, "g": interval(score.g, geometric), "g_worst": min(score.g),
            "p": interval(score.p, geometric), "p_worst": max(score.p),
            "wins": interval(score.wins, fmean), "jain": fmean(run.jain for run in mine),
            "jain_worst": min(run.jain for run in mine),
            "jain_below_codel": max(bar.codel_jain - run.jain for bar, run in zip(against, mine, strict=True)),
        }  # fmt: skip
        for kept, name in ((set(range(len(links))) - set(few), "loss"), (set(few), "loss_small")):
            row[name] = fmean(mine[i].loss for i in kept) if kept else math.nan
        for other in ("codel", "fq_codel", "cake", "cobalt"):
            pairs = zip(mine, runs[other], strict=True)
            row[f"p95/{other}"] = geometric([max(a.p95, 1e-3) / max(b.p95, 1e-3) for a, b in pairs])
        fct = [a.fct / b.fct for a, b in zip(mine, runs["fq_codel"], strict=True) if a.fct > 0 and b.fct > 0]
        row["fct/fq_codel"] = geometric(fct) if fct else math.nan
        row["sojourn_ms"] = median(run.mean for run in mine)
        rows.append(row)
    return rows


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Write the rows as a Markdown table, intervals in brackets."""
    heads = [
        "queue", "g", "worst", "p", "worst", "wins", "Jain", "worst", "below codel's", "loss", "loss < 2 pkt",
        "/codel", "/fq_codel", "/cake", "/cobalt", "FCT/fq_codel",
    ]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        g, p, wins = row["g"], row["p"], row["wins"]
        cells = [
            f"`{row['queue']}`", "{:.3f} [{:.3f}, {:.3f}]".format(*g), f"{row['g_worst']:.3f}",
            "{:.2f} [{:.2f}, {:.2f}]".format(*p), f"{row['p_worst']:.1f}",
            "{:.0f} % [{:.0f}, {:.0f}]".format(*(100 * w for w in wins)), f"{row['jain']:.3f}",
            f"{row['jain_worst']:.2f}", f"{row['jain_below_codel']:.2f}", f"{row['loss']:.3f}",
            f"{row['loss_small']:.3f}", *(f"{row[f'p95/{o}']:.2f}" for o in ("codel", "fq_codel", "cake", "cobalt")),
            f"{row['fct/fq_codel']:.2f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def each(links: Sequence[Link], runs: dict[str, list[Run]], queue: str) -> str:
    """Write a Markdown table of a queue's figures on every link, the highest p first."""
    against = bars(runs)
    score = Score.of(runs[queue], against)
    lines = [
        "| link | Mbit/s | RTT ms | flows | packets per flow | what | g | p | Jain | best classic |",
        "|" + "---|" * 10,
    ]
    for i in sorted(range(len(links)), key=lambda i: -score.p[i]):
        link, bar = links[i], against[i]
        best = next(
            name
            for name in CLASSICS
            if max(runs[name][i].p95, 1e-3) == bar.p95 and runs[name][i].goodput >= (1 - SLACK) * bar.goodput
        )
        lines.append(
            f"| {i} | {link.rate_mbps:.3g} | {link.rtt_ms:.3g} | {link.flows} | {link.packets_per_flow:.3g} "
            f"| {link.what} | {score.g[i]:.3f} | {score.p[i]:.2f} | {runs[queue][i].jain:.3f} "
            f"| {best} {bar.p95:.2f} ms |"
        )
    return "\n".join(lines)


def judge(links: Sequence[Link], queues: Sequence[str], *, each_link: bool = False, on: Executor = HERE) -> str:
    """Judge queues beside the classics: `table` as text, and with `each_link` a row for every link."""
    words = list(dict.fromkeys([*CLASSICS, *queues]))
    with bar("Judging", len(words) * len(links) * links[0].scenario.seeds, "runs") as update:
        runs = simulate(links, words, on_done=lambda done: update(done, ""), on=on)
    parts = [text(table(links, runs))]
    if each_link:
        parts += [f"{queue}\n\n{each(links, runs, queue)}" for queue in queues]
    return "\n\n".join(parts)
