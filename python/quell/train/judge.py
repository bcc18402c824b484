"""Tables of the results of queues on random links: pooled, by kind of link and by congestion control.

Intervals are from a bootstrap over links within each kind, since the kinds are fixed, not drawn. All kinds have the
same number of links and so the same weight in pooled figures.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

from quell.common.console import bar
from quell.experiments.executor import HERE, Executor
from quell.train.kinds import SENDERS, SEVERAL, Link
from quell.train.links import CLASSICS, RESAMPLES, SLACK, Bar, Cache, Run, Score, bars, geometric, simulate

FEW_PACKETS = 2.0
"""Bandwidth-delay product per flow, packets, below which loss is counted separately."""
BESIDE = ("codel", "fq_codel", "cake", "cobalt")
"""Classics with which each queue's sojourn is compared individually."""
Figure = tuple[float, float, float]
"""A mean and its 95 % interval."""


def pooled(values: Sequence[float], strata: Sequence[str], seed: int = 1) -> Figure:
    """Return the mean and its 95 % interval, from a bootstrap within each stratum."""
    groups: dict[str, list[float]] = {}
    for value, stratum in zip(values, strata, strict=True):
        groups.setdefault(stratum, []).append(value)
    rng = random.Random(seed)
    again = sorted(
        fmean([value for group in groups.values() for value in rng.choices(group, k=len(group))])
        for _ in range(RESAMPLES)
    )
    return fmean(values), again[RESAMPLES // 40], again[-RESAMPLES // 40 - 1]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100), 1) - 1]


def summary(links: Sequence[Link], mine: Sequence[Run], cake: Sequence[Run], against: Sequence[Bar]) -> dict[str, Any]:
    """Return a queue's figures over these links; `quell.train.links` defines g, p and a win.

    p: geometric mean, 95th percentile and worst. wins, half: share of links won, and won with p at most 0.5.
    g: geometric mean, 1st percentile and worst. jain: mean and worst. unfair, very_unfair: share of links whose Jain
    index is more than 0.05 or 0.15 below codel's. loss/cake: loss divided by cake's, on links with `FEW_PACKETS` or
    more per flow.
    """
    score, kinds = Score.of(mine, against), [link.kind for link in links]

    def ratio(values: Sequence[float]) -> Figure:
        mean, low, high = pooled([math.log(max(value, 1e-9)) for value in values], kinds)
        return math.exp(mean), math.exp(low), math.exp(high)

    below = [bar.codel_jain - run.jain for bar, run in zip(against, mine, strict=True)]
    many = [i for i, link in enumerate(links) if link.packets_per_flow >= FEW_PACKETS]
    lost, cakes = (sum(runs[i].loss for i in many) for runs in (mine, cake))
    return {
        "count": len(links),
        "p": ratio(score.p), "p_95": percentile(score.p, 95), "p_worst": max(score.p),
        "wins": pooled(score.wins, kinds), "half": pooled(score.within(0.5), kinds),
        "g": ratio(score.g), "g_1": percentile(score.g, 1), "g_worst": min(score.g),
        "jain": fmean(run.jain for run in mine), "jain_worst": min(run.jain for run in mine),
        "unfair": fmean(float(x > 0.05) for x in below), "very_unfair": fmean(float(x > 0.15) for x in below),
        "loss/cake": lost / cakes if cakes else math.nan,
    }  # fmt: skip


def groups(links: Sequence[Link]) -> dict[str, list[int]]:
    """Return the groups of links: all, each kind, each set of congestion controls."""
    found = {"all": list(range(len(links)))}
    kinds = list(dict.fromkeys(link.kind for link in links))
    for kind in kinds if len(kinds) > 1 else []:
        found[kind] = [i for i, link in enumerate(links) if link.kind == kind]
    for name in (*SENDERS.values(), SEVERAL):
        if here := [i for i, link in enumerate(links) if link.senders == name]:
            found[name] = here
    return found


def table(links: Sequence[Link], runs: dict[str, list[Run]], queues: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows: each classic over all links, each of `queues` over every group."""
    against, rows = bars(runs), []
    for queue in runs:
        for name, chosen in groups(links).items() if queue in queues else [("all", list(range(len(links))))]:

            def of(values: Sequence[Any], chosen: list[int] = chosen) -> list[Any]:
                return [values[i] for i in chosen]

            figures = summary(of(links), of(runs[queue]), of(runs["cake"]), of(against))
            rows.append({"queue": queue, "links": name, **figures})
    return rows


def beside(links: Sequence[Link], runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """Return a row per queue that compares it with single classics over all links."""
    against, rows = bars(runs), []
    few = [i for i, link in enumerate(links) if link.packets_per_flow < FEW_PACKETS]
    many = [i for i, link in enumerate(links) if link.packets_per_flow >= FEW_PACKETS]
    for queue, mine in runs.items():
        row: dict[str, Any] = {
            "queue": queue, "g_worst": min(Score.of(mine, against).g), "jain_worst": min(run.jain for run in mine),
            "jain_below_codel": max(bar.codel_jain - run.jain for bar, run in zip(against, mine, strict=True)),
        }  # fmt: skip
        for kept, name in ((many, "loss"), (few, "loss_small")):
            row[name] = fmean(mine[i].loss for i in kept) if kept else math.nan
        for other in BESIDE:
            pairs = zip(mine, runs[other], strict=True)
            row[f"p95/{other}"] = geometric([max(a.p95, 1e-3) / max(b.p95, 1e-3) for a, b in pairs])
        fct = [a.fct / b.fct for a, b in zip(mine, runs["fq_codel"], strict=True) if a.fct > 0 and b.fct > 0]
        row["fct/fq_codel"] = geometric(fct) if fct else math.nan
        row["sojourn_ms"] = median(run.mean for run in mine)
        rows.append(row)
    return rows


def each(links: Sequence[Link], runs: dict[str, list[Run]], queue: str) -> list[dict[str, Any]]:
    """Return a row with a queue's results for every link, highest p first."""
    against = bars(runs)
    score = Score.of(runs[queue], against)
    rows = []
    for i in sorted(range(len(links)), key=lambda i: -score.p[i]):
        link, bar = links[i], against[i]
        best = next(
            name
            for name in CLASSICS
            if max(runs[name][i].p95, 1e-3) == bar.p95 and runs[name][i].goodput >= (1 - SLACK) * bar.goodput
        )
        rows.append({
            "link": link.scenario.name, "kind": link.kind, "rate_mbps": link.rate_mbps, "rtt_ms": link.rtt_ms,
            "flows": link.flows, "packets_per_flow": link.packets_per_flow, "what": link.what, "g": score.g[i],
            "p": score.p[i], "jain": runs[queue][i].jain, "below_codel": bar.codel_jain - runs[queue][i].jain,
            "loss": runs[queue][i].loss, "best": best, "best_ms": bar.p95,
        })  # fmt: skip
    return rows


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _figure(figure: Figure, form: Callable[[float], str]) -> str:
    mean, low, high = map(form, figure)
    return f"{mean} [{low}, {high}]"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Return `table` in Markdown, shares of links in percent."""
    heads = (
        "queue", "links", "", "p", "95 %", "worst", "wins, %", "half, %", "g", "1 %", "Jain", "> .05, %", "> .15, %",
        "loss/cake",
    )  # fmt: skip
    cells = [
        (
            f"`{row['queue']}`", row["links"], str(row["count"]), _figure(row["p"], "{:.2f}".format),
            f"{row['p_95']:.1f}", f"{row['p_worst']:.1f}", _figure(row["wins"], _percent), _percent(row["half"][0]),
            _figure(row["g"], "{:.3f}".format), f"{row['g_1']:.3f}", f"{row['jain']:.3f}",
            f"{100 * row['unfair']:.1f}", f"{100 * row['very_unfair']:.1f}", f"{row['loss/cake']:.2f}",
        )
        for row in rows
    ]  # fmt: skip
    return _markdown(heads, cells)


def text_beside(rows: Sequence[dict[str, Any]]) -> str:
    """Return `beside` in Markdown."""
    heads = (
        "queue", "worst g", "worst Jain", "below codel's", "loss", "loss < 2 pkt", *(f"/{name}" for name in BESIDE),
        "FCT/fq_codel",
    )  # fmt: skip
    cells = [
        (
            f"`{row['queue']}`", f"{row['g_worst']:.3f}", f"{row['jain_worst']:.2f}",
            f"{row['jain_below_codel']:.2f}", f"{row['loss']:.3f}", f"{row['loss_small']:.3f}",
            *(f"{row[f'p95/{name}']:.2f}" for name in BESIDE), f"{row['fct/fq_codel']:.2f}",
        )
        for row in rows
    ]  # fmt: skip
    return _markdown(heads, cells)


def text_each(rows: Sequence[dict[str, Any]]) -> str:
    """Return `each` in Markdown."""
    heads = (
        "link", "Mbit/s", "RTT ms", "flows", "packets per flow", "what", "g", "p", "Jain", "below codel's",
        "best classic",
    )  # fmt: skip
    cells = [
        (
            row["link"], f"{row['rate_mbps']:.3g}", f"{row['rtt_ms']:.3g}", str(row["flows"]),
            f"{row['packets_per_flow']:.3g}", row["what"], f"{row['g']:.3f}", f"{row['p']:.2f}", f"{row['jain']:.3f}",
            f"{row['below_codel']:.3f}", f"{row['best']} {row['best_ms']:.2f} ms",
        )
        for row in rows
    ]  # fmt: skip
    return _markdown(heads, cells)


def _finite(value: Any) -> Any:
    """Replace values that are not finite by None, since JSON does not have them."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def judge(
    links: Sequence[Link], queues: Sequence[str], *, each_link: bool = False, as_json: bool = False,
    cache: Cache | None = None, on: Executor = HERE,
) -> str:  # fmt: skip
    """Compare queues with the classics; return the tables, or with `as_json` their rows."""
    words = list(dict.fromkeys([*CLASSICS, *queues]))
    with bar("Judging", len(words) * len(links) * links[0].scenario.seeds, "runs") as update:
        runs = simulate(links, words, on_done=lambda done: update(done, ""), on=on, cache=cache)
    rows, others = table(links, runs, queues), beside(links, runs)
    found = {queue: each(links, runs, queue) for queue in queues} if each_link else {}
    if as_json:
        return json.dumps(_finite({"rows": rows, "beside": others} | ({"each": found} if each_link else {})), indent=1)
    parts = [text(rows), text_beside(others), *(f"{queue}\n\n{text_each(found[queue])}" for queue in found)]
    return "\n\n".join(parts)
