"""RL-AQM on the bare link, compared with constant drop probabilities and with PIE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from quell._core import Scenario
from quell.papers.bench import Bench, is_known, mean, missing_reason
from quell.papers.claim import Claim, estimate
from quell.papers.study import Study
from quell.results import frontier
from quell.results.stats import Record, pareto
from quell.views.figures import Axis, Figure, Line, Panel

Pairs = Sequence[tuple[float, float]]
"""Delay in ms and throughput in Mbit/s of every seed."""

PIE = "pie target 15ms"
NETWORKS = {"F6.": "rlaqm", "F6.throughput.": "rlaqm throughput"}
"""Networks by row prefix: with the paper's reward, and with a reward for a full link."""
WHERE = "at nic 0, 10 Mbit/s, 20 ms"

CLAIMS = [
    claim
    for prefix, words in NETWORKS.items()
    for claim in (
        Claim(f"{prefix}frontier", f"{words} {WHERE}: delay over that of the best constant as fast", "ratio"),
        Claim(f"{prefix}over_pie.delay", f"{words} {WHERE}: delay over PIE's (RFC)", "ratio"),
        Claim(f"{prefix}over_pie.thr", f"{words} {WHERE}: throughput over PIE's (RFC)", "ratio", digits=3),
    )
]


def measure(
    study: Study, bench: Bench, at_nic_0: Mapping[str, Pairs], printed: Mapping[str, tuple[float, float]]
) -> None:
    """Judge the measurements at nic 0, by queue words, and draw them with the printed points."""
    constants = _constants(bench)
    points = [_mean_pair(pairs) for pairs in constants.values()]
    edge = sorted(p for p, on in zip(points, pareto([(t, d) for d, t in points]), strict=True) if on)
    measured = dict(at_nic_0)
    for prefix, words in NETWORKS.items():
        if not is_known(words):
            for what in ("frontier", "over_pie.delay", "over_pie.thr"):
                study.put(f"{prefix}{what}", None, missing_reason(words))
            continue
        if words not in measured:
            settings = {words: (Scenario("rl-aqm"), words)}
            measured[words] = bench.seeds_of("The bare link", settings, _pair)[words]
        _judge(study, prefix, words, measured[words], measured[PIE], edge)
    _draw(study, points, edge, {words: _mean_pair(pairs) for words, pairs in measured.items()}, printed)


def _constants(bench: Bench) -> Mapping[float, Pairs]:
    settings = {p: (Scenario("rl-aqm"), frontier.words("drop", p)) for p in frontier.DROPS}
    return bench.seeds_of("Constant drop probabilities", settings, _pair)


def _pair(record: Record) -> tuple[float, float]:
    return record["backlog_ms"]["mean"], record["throughput_mbps"]


def _mean_pair(pairs: Pairs) -> tuple[float, float]:
    return mean(d for d, _ in pairs), mean(t for _, t in pairs)


def _judge(study: Study, prefix: str, words: str, mine: Pairs, pie: Pairs, edge: Pairs) -> None:
    constant = [_delay_at(edge, throughput) for _, throughput in mine]
    ratio = estimate(delay / other if other else None for (delay, _), other in zip(mine, constant, strict=True))
    study.put(f"{prefix}frontier", ratio)
    study.put(f"{prefix}over_pie.delay", estimate(a / b for (a, _), (b, _) in zip(mine, pie, strict=True)))
    study.put(f"{prefix}over_pie.thr", estimate(a / b for (_, a), (_, b) in zip(mine, pie, strict=True)))
    if ratio is None:
        stands = "no constant drop probability is as fast"
    else:
        beyond = ratio.mean - (ratio.half or 0.0) <= 1
        stands = (
            f"{ratio.mean:.2f} of the delay of the best constant drop probability as fast, so it is "
            f"{'on the frontier or beyond it' if beyond else 'behind the frontier'}"
        )
    (delay, throughput), (others, full) = _mean_pair(mine), _mean_pair(pie)
    study.notes.append(
        f"On the bare link ({WHERE}) {words} has {delay:.2f} ms at {throughput:.2f} Mbit/s: {stands}. "
        f"{PIE} has {others:.2f} ms at {full:.2f} Mbit/s: {words} is {'' if delay < others else 'not '}below its "
        f"delay, and {'' if throughput >= 0.98 * full else 'not '}within 2 % of its throughput."
    )


def _delay_at(edge: Pairs, throughput: float) -> float | None:
    """Return the interpolated delay on the frontier at a throughput; None if no constant reaches it."""
    if throughput <= edge[0][1]:
        return edge[0][0]
    for (d0, t0), (d1, t1) in pairwise(edge):
        if t0 <= throughput <= t1:
            return d0 + (d1 - d0) * (throughput - t0) / ((t1 - t0) or 1.0)
    return None


def _draw(
    study: Study,
    points: Pairs,
    edge: Pairs,
    spots: Mapping[str, tuple[float, float]],
    printed: Mapping[str, tuple[float, float]],
) -> None:
    lines = [Line("constant drop probabilities", points, "dots", 0), Line("their frontier", edge, "line", 0)]
    for k, (words, spot) in enumerate(spots.items(), 1):
        lines.append(Line(f"{words}, nic 0", [spot], "dots", k))
        if words in printed:
            lines.append(Line(f"{words}, printed", [printed[words]], "dots", k, True))
    study.figures.append(
        Figure(
            "frontier",
            "The bare link: what constant drop probabilities reach, 10 Mbit/s, 20 ms",
            "nic 0: the delay that the discipline sees is all the queuing there is. Better is up and to the left.",
            [Panel("", Axis("delay, ms", True), Axis("throughput, Mbit/s"), lines)],
        )
    )
