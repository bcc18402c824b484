"""The public tests of L4S by Heist and Morton: TCP Prague beside CUBIC and NewReno.

The printed numbers are single runs of flent's `tcp_2up` over an HTB of Linux, on L4STeam's kernel of August 2020, in
the tables "Scenario 6" and "Scenario 1" of the appendix of github.com/heistp/l4s-tests (README.md, commit e21cd91); the
settings are those of its `l4s.batch`. Queues that quell does not have (`cnq_codel_af`) and pairs of unequal round trips
are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from quell._core import Scenario
from quell.inputs.keys import Flow
from quell.papers.bench import Bench, Sample, mean
from quell.papers.claim import MISSED, OPEN, Claim, estimate
from quell.papers.paper import Paper, short
from quell.results.stats import Record
from quell.views.figures import Table

Scaling = Literal["additive", "rate"]
RATE_SCALING: Scaling = "rate"
"""RTT scaling of tcp_prague.c 0.7. The authors' kernel is older, and its Prague apparently had no scaling: at 50 Mbit/s
in DualPI2 a flow with a round trip of 160 ms beside one of 10 ms gets 1.56 of 47 Mbit/s. From 25 ms on, this scaling
has no effect either."""
ADDITIVE: Scaling = "additive"


@dataclass(frozen=True)
class Row:
    """A row of one of the two tables: Prague's rate and the other flow's, Mbit/s."""

    id: str
    queue: str
    other: str
    """The other congestion control; with `-noecn` its packets are not ECN-capable."""
    prague: float
    rival: float
    mbps: int = 50
    rtt_ms: int = 20
    window: tuple[int, int] = (18, 58)
    """Measured time, seconds: 40 s of tests of 60 s, which end 2 s before the end."""


_QUEUES = {
    "fq_codel_1q": "fq_codel flows 1",
    "fq_codel_1q_1ms": "fq_codel flows 1 target 1ms interval 20ms",
    "pie": "pie ecn",
    "pie_100p": "pie limit 100 target 5ms tupdate 32ms alpha 2 beta 20 ecn",
    "red_150": "red limit 150000 avpkt 1000 adaptive bandwidth 50mbit ecn",
    "red_400": "red limit 400000 avpkt 1000 adaptive bandwidth 50mbit ecn",
}
_SCENARIO_6 = {
    "cubic": ((45.70, 1.94), (45.94, 1.68), (45.69, 1.98), (45.41, 2.23), (45.93, 1.69), (45.62, 2.05)),
    "cubic-noecn": ((45.81, 1.81), (45.76, 1.83), (45.57, 2.01), (45.63, 2.00), (46.02, 1.57), (45.80, 1.81)),
    "newreno": ((46.60, 1.10), (46.34, 1.25), (46.94, 0.78), (45.86, 1.77), (45.86, 1.73), (45.90, 1.80)),
    "newreno-noecn": ((46.49, 1.17), (46.01, 1.59), (46.67, 0.96), (46.36, 1.32), (46.27, 1.34), (45.74, 1.87)),
}
"""By the other congestion control: Prague's rate and the other flow's, Mbit/s, for each of `_QUEUES`."""
_SCENARIO_1: dict[str, dict[tuple[int, int], tuple[float, float]]] = {
    "dualpi2": {
        (50, 10): (34.09, 13.04), (50, 20): (31.85, 15.51), (50, 80): (29.92, 17.48),
        (10, 10): (6.25, 2.93), (10, 20): (6.01, 3.23), (10, 80): (5.94, 3.42),
    },
    "pfifo": {
        (50, 10): (9.78, 37.77), (50, 20): (5.88, 41.63), (50, 80): (3.95, 43.59),
        (10, 10): (2.48, 6.97), (10, 20): (2.96, 6.48), (10, 80): (1.79, 7.64),
    },
    "fq_codel": {
        (50, 10): (23.83, 23.53), (50, 20): (24.03, 23.32), (50, 80): (25.29, 22.03),
        (10, 10): (4.68, 4.64), (10, 20): (4.78, 4.53), (10, 80): (5.28, 3.95),
    },
}  # fmt: skip
"""The lines `prague` against `cubic`, by rate in Mbit/s and round trip in ms."""
_LIMITS = {10: 200, 50: 1000}
"""Limits of `pfifo` in scenario 1, packets by Mbit/s."""


def _rows() -> list[Row]:
    out = [
        Row(f"S6.{name}.{other.replace('-', '_')}", words, other, *printed)
        for other, of_queues in _SCENARIO_6.items()
        for (name, words), printed in zip(_QUEUES.items(), of_queues, strict=True)
    ]
    for queue, printed_of in _SCENARIO_1.items():
        for (mbps, rtt), printed in printed_of.items():
            words = f"pfifo limit {_LIMITS[mbps]}" if queue == "pfifo" else queue
            out.append(Row(f"S1.{queue}.{mbps}m.{rtt}ms", words, "cubic", *printed, mbps, rtt, (118, 178)))
    return out


ROWS = _rows()
UNSCALED_MS = 25
"""Round trip from which `rtt_scaling = "rate"` changes nothing."""


def _claims() -> list[Claim]:
    out = []
    for row in ROWS:
        where = f"{row.queue}, {row.mbps} Mbit/s, {row.rtt_ms} ms"

        def add(part: str, what: str, unit: str, number: float, digits: int = 2, row: Row = row) -> None:
            out.append(Claim(f"{row.id}.{part}", what, unit, number, digits=digits, kind="printed",
                             source=f"Scenario {row.id[1]}", of=None if unit else "amount",
                             link=row.mbps if unit else None))  # fmt: skip

        add("prague", f"{where}: Prague beside {row.other}", "Mbit/s", row.prague)
        if row.id.startswith("S6"):
            add("ratio", f"{where}: Prague over {row.other}", "", row.prague / row.rival, 1)
        else:
            add("other", f"{where}: {row.other} beside Prague", "Mbit/s", row.rival)
    return out


CLAIMED = {claim.id: claim for claim in _claims()}


def _scenario(row: Row, scaling: Scaling = RATE_SCALING) -> Scenario:
    cc, _, noecn = row.other.partition("-")
    common: Flow = {"count": 1, "rtt": f"{row.rtt_ms}ms", "stagger": "100ms"}
    prague: Flow = {**common, "cc": "prague", "rtt_scaling": scaling}
    rival = cast("Flow", {**common, "cc": cc, "ecn": not noecn})
    return Scenario.from_keys(
        name="l4s-tests",
        warmup=f"{row.window[0]}s",
        duration=f"{row.window[1]}s",
        link={"rate": f"{row.mbps}mbit", "shaper": "htb", "queue": row.queue, "up": {}},
        flow=[prague, rival],
    )


def _rates(record: Record) -> tuple[float, float]:
    prague, rival = (flow["goodput_mbps"] for flow in record["flows"])
    return prague, rival


def measure(bench: Bench) -> None:
    """Measure both tables; repeat missed rows with possible differences from the authors' kernel."""
    rows = [row for row in ROWS if not bench.quick or row.id.startswith("S6")]
    study = bench.study
    settings = {row.id: (_scenario(row), row.queue) for row in rows}
    found = bench.seeds_of("Prague beside another", settings, _rates, samples=_samples, claims=CLAIMED.values())
    missed = {row.id: row for row in rows if _misses(row, found[row.id])}
    again = {
        (row.id, name): (_scenario(changed, scaling), changed.queue)
        for row in missed.values()
        for name, changed, scaling in _variants(row)
    }
    others = bench.seeds_of("With other settings", again, _rates)
    for row in ROWS:
        pairs = found.get(row.id)
        why = "left out of the quick version"
        if pairs is not None:
            why = _why(row, {name: others[row.id, name] for name, *_ in _variants(row)}) if row.id in missed else ""
        for part, of in _PARTS.items():
            if f"{row.id}.{part}" in CLAIMED:
                study.put(f"{row.id}.{part}", None if pairs is None else estimate(of(*pair) for pair in pairs), why)
    study.tables.append(_ratios(found))


_PARTS: Mapping[str, Callable[[float, float], float]] = {
    "prague": lambda prague, _: prague,
    "other": lambda _, rival: rival,
    "ratio": lambda prague, rival: prague / rival,
}


def _samples(found: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[Sample[str]]:
    for row, pairs in found.items():
        for part, of in _PARTS.items():
            if (which := f"{row}.{part}") in CLAIMED:
                yield Sample(which, [of(*pair) for pair in pairs], (row,))


def _misses(row: Row, pairs: Sequence[tuple[float, float]]) -> bool:
    claims = [(part, CLAIMED[f"{row.id}.{part}"]) for part in _PARTS if f"{row.id}.{part}" in CLAIMED]
    return any(
        claim.verdict(estimate(_PARTS[part](*pair) for pair in pairs)) in (MISSED, OPEN) for part, claim in claims
    )


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return mean(pair[0] for pair in pairs), mean(pair[1] for pair in pairs)


def _variants(row: Row) -> list[tuple[str, Row, Scaling]]:
    """List possible differences: Prague's RTT scaling, and when the step of DualPI2 marks."""
    out: list[tuple[str, Row, Scaling]] = []
    if row.rtt_ms < UNSCALED_MS:
        unscaled = replace(row, rtt_ms=UNSCALED_MS)
        out.append((f"a round trip of {UNSCALED_MS} ms, which Prague does not scale,", unscaled, RATE_SCALING))
    if row.queue == "dualpi2":
        words = "dualpi2 min_qlen_step 2"
        out.append((f"`{words}`", replace(row, queue=words), RATE_SCALING))
    return out or [(f"`rtt_scaling` {ADDITIVE}", row, ADDITIVE)]


def _why(row: Row, others: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    found = [f"with {name} {short(a)} and {short(b)}" for name, pairs in others.items() for a, b in [_means(pairs)]]
    return f"Prague and {row.other}, Mbit/s, {'; '.join(found)}"


def _ratios(found: Mapping[str, Sequence[tuple[float, float]]]) -> Table:
    rows = []
    for row in ROWS:
        if row.id in found:
            prague, rival = _means(found[row.id])
            link = f"{row.mbps} Mbit/s, {row.rtt_ms} ms"
            rows.append([row.queue, row.other, link, f"{row.prague / row.rival:.1f}", f"{prague / rival:.1f}"])
    return Table("Prague's rate over the other's", ["queue", "other", "link", "printed", "measured"], rows)


PAPER = Paper(
    name="l4s-tests",
    title="L4S Tests: TCP Prague beside CUBIC and NewReno",
    source="Heist and Morton, github.com/heistp/l4s-tests, 2020 and 2021",
    about="scenario 6 (queues of RFC 3168, 24 rows) and the equal round trips of scenario 1 (DualPI2, pfifo, FQ-CoDel)",
    claims=list(CLAIMED.values()),
    measure=measure,
)
