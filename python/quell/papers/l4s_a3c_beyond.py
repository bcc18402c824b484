"""Beyond A3C-L4S's testbed: the effect of coupling, why L4S's RTT is not the lowest, and the traffic of future work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from quell._core import Scenario
from quell.inputs.keys import Flow, Link
from quell.papers.bench import Bench, mean, missing_reason
from quell.papers.claim import Claim, estimate
from quell.papers.study import Study
from quell.results.stats import Record
from quell.views.figures import Axis, Figure, Line, Panel, Table

READINGS = {"designed": "l4s pairs 1", "published": "l4s as_published pairs 1"}
QUEUES = {"l4s": "l4s", "as_published": "l4s as_published", "dualpi2": "dualpi2", "a3c_l4s": "a3c_l4s"}
"""Queue words by their name in rows."""


_CUBICS: Flow = {"cc": "cubic", "count": 2, "rtt": "20ms", "stagger": "1s"}
_PAIR: tuple[Flow, ...] = (_CUBICS, {**_CUBICS, "cc": "prague"})
_LINK: Link = {"rate": "20mbit", "delay": "10ms"}
_COUPLED: Flow = {"cc": "cubic", "count": 3, "rtt": "10ms", "stagger": "1s"}
COUPLED: tuple[Link, tuple[Flow, ...]] = (
    {"rate": "40mbit", "delay": "5ms"}, (_COUPLED, {**_COUPLED, "cc": "prague", "count": 1})
)  # fmt: skip
"""One scalable flow beside three classic ones, in one pair of sub-queues."""
TRAFFIC: dict[str, tuple[str, Link, tuple[Flow, ...]]] = {
    "udp": ("CUBIC 2, Prague 2, UDP 5 of 20 Mbit/s", _LINK, (*_PAIR, {"kind": "cbr", "rate": "5mbit"})),
    "flood": ("CUBIC 2, Prague 2, UDP 30 of 20 Mbit/s", _LINK, (*_PAIR, {"kind": "cbr", "rate": "30mbit"})),
    "mixed": ("Prague 2, DCTCP 2, CUBIC 2, 20 Mbit/s", _LINK, (*_PAIR, {**_CUBICS, "cc": "dctcp", "ect": 1})),
    "steps": ("CUBIC 2, Prague 2, rate 20, 5, 40, 10 Mbit/s for 10 s each",
              {"schedule": [["0s", "20mbit"], ["15s", "5mbit"], ["25s", "40mbit"], ["35s", "10mbit"]],
               "delay": "10ms"}, _PAIR),
    "lte": ("CUBIC 2, Prague 2, LTE trace", {"trace": "builtin:lte", "delay": "10ms"}, _PAIR),
}  # fmt: skip
"""Traffic that the paper leaves as future work."""
MEASURES = (("mean", "mean sojourn", "ms", 1), ("p99", "99th percentile of the sojourn", "ms", 0),
            ("mbps", "throughput", "Mbit/s", 2), ("jain", "Jain's index of the TCP flows", "", 2))  # fmt: skip

CLAIMS = [
    *(
        claim
        for reading in READINGS
        for claim in (
            Claim(f"coupling.{reading}.ratio",
                  f"coupling as {reading}: rate of a Prague beside three CUBICs, over theirs"),
            Claim(f"coupling.{reading}.delay", f"coupling as {reading}: what the Prague waits", "ms", digits=1),
        )
    ),
    *(
        Claim(f"future.{name}.{queue}.{measure}", f"{traffic[0]}: {queue}, {what}", unit, digits=digits, detail=True)
        for name, traffic in TRAFFIC.items()
        for queue in QUEUES
        for measure, what, unit, digits in MEASURES
    ),
]  # fmt: skip
"""Section 2.1.5 of the paper expects about the same throughput per flow, and sub-millisecond delay of L4S flows."""


def _scenario(link: Link, flows: Sequence[Flow], *, quick: bool, warmup: int = 5) -> Scenario:
    return Scenario.from_keys(
        name="beyond", duration=f"{20 if quick else 45}s", warmup=f"{warmup}s", link=link, flow=flows
    )


def measure(study: Study, bench: Bench) -> None:
    """Measure and draw all except round trips, which the testbed's module measures."""
    _coupling(study, bench)
    _future(study, bench)


# Coupling. -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurements:
    """Results of one run of the coupled pair."""

    ratio: float
    delay: float
    courses: Mapping[str, Sequence[Sequence[float | None]]]
    times: Sequence[float]


def _reduce(record: Record) -> Measurements:
    series, flows = record["series"], record["flows"]
    classic = mean(f["delivered_in_order_mbps"] for f in flows if f["cc"] == "cubic")
    prague = flows[-1]
    return Measurements(
        ratio=prague["delivered_in_order_mbps"] / classic,
        delay=prague["rtt_ms"]["mean"] - prague["base_rtt_ms"],
        courses={"goodput": series["delivered_in_order_mbps"], "rtt": series["rtt_ms"]},
        times=[(k + 0.5) * series["bin_s"] for k in range(len(series["backlog_ms"]))],
    )


def _coupling(study: Study, bench: Bench) -> None:
    scenario = _scenario(*COUPLED, quick=bench.quick, warmup=15)  # slow start overfills both queues for seconds
    results = bench.seeds_of("coupling", {r: (scenario, w) for r, w in READINGS.items()}, _reduce, bin_s=0.5)
    for reading, measured in results.items():
        why = (
            "in the kernel file a packet is dropped or marked by its own sub-queue's probability alone: the Prague has "
            "the half of the link that round robin gives its sub-queue, and waits for PIE's target"
        )
        study.put(f"coupling.{reading}.ratio", estimate(s.ratio for s in measured), why)
        study.put(f"coupling.{reading}.delay", estimate(s.delay for s in measured), why)
    parts = [
        f"as {reading} {mean(s.ratio for s in measured):.2f} and {mean(s.delay for s in measured):.1f} ms"
        for reading, measured in results.items()
    ]
    study.notes.append(
        "One Prague beside three CUBICs in one pair, 40 Mbit/s, 10 ms, ratio of its rate to theirs and its delay: "
        f"coupled {'; '.join(parts)}."
    )
    names = ["CUBIC 1", "CUBIC 2", "CUBIC 3", "Prague"]
    x = Axis("time, s")
    panels = [
        Panel(f"as {reading}: {what}", x, Axis(axis, key == "rtt"), [
            Line(name, list(zip(measured[0].times, course, strict=True)), "line", k)
            for k, (name, course) in enumerate(zip(names, measured[0].courses[key], strict=True))
        ])
        for reading, measured in results.items()
        for key, what, axis in (("goodput", "goodput", "Mbit/s"), ("rtt", "smoothed RTT", "ms"))
    ]  # fmt: skip
    note = "Three CUBIC flows in the classic half of a pair, a Prague in the L4S half; 40 Mbit/s, 10 ms, one run each."
    study.figures.append(Figure("coupling", "Coupling as designed and as published", note, panels))


# Why L4S's round trips are not the lowest. ---------------------------------------------------------------------------

ECN = "l4s any_ect max_ecnth 0.1"
SWEEP = {
    "paper's settings, 3 pairs": ECN,
    "coupling_factor 1": f"{ECN} coupling_factor 1",
    "coupling_factor 8": f"{ECN} coupling_factor 8",
    "1 pair": f"{ECN} pairs 1",
    "2 pairs": f"{ECN} pairs 2",
    "6 pairs": f"{ECN} pairs 6",
    "64 pairs": f"{ECN} pairs 64",
    "marks at any p'": "l4s any_ect",
    "never marks": "l4s any_ect max_ecnth 0",
    "ECT(1) alone to the L4S half": "l4s max_ecnth 0.1",
    "no burst allowance": f"{ECN} max_burst 0ms",
    "alpha, beta four times": f"{ECN} alpha 0.5 beta 5",
    "target 5 ms": f"{ECN} target 5ms",
    "as_published, 3 pairs": "l4s as_published",
    "FreeBSD's PIE": "l4s as_published pairs 1",
    "FreeBSD's FQ-PIE, 6": "l4s as_published pairs 6",
    "Linux's PIE": "pie target 15ms tupdate 15ms ecn",
    "Linux's FQ-PIE, 6": "fq_pie target 15ms tupdate 15ms flows 6 ecn",
}
"""Possible readings of what the paper leaves open, and the family for comparison."""


def round_trips(
    study: Study, bench: Bench, scenario: Callable[[int], Scenario], rates: Sequence[int]
) -> dict[tuple[str, int], float]:
    """Sweep the possible readings in the paper's testbed with ECN; add a table of mean smoothed RTTs."""
    settings = {(name, rate): (scenario(rate), words) for name, words in SWEEP.items() for rate in rates}
    got = bench.seeds_of("readings", settings, lambda record: float(record["rtt_ms"]["mean"]))
    means = {key: mean(values) for key, values in got.items()}
    rows = [[name, f"`{words}`", *(f"{means[name, r]:.0f}" for r in rates)] for name, words in SWEEP.items()]
    columns = ["", "queue", *(f"{r} Mbit/s, ms" for r in rates)]
    study.tables.append(Table("Mean smoothed RTT with ECN, by reading", columns, rows))
    return means


# Future work. --------------------------------------------------------------------------------------------------------


def _measured(record: Record) -> dict[str, float]:
    shares = [f["delivered_in_order_mbps"] for f in record["flows"] if f["kind"] == "tcp"]
    return {
        "mean": record["sojourn_ms"]["mean"],
        "p99": record["sojourn_ms"]["p99"],
        "mbps": record["throughput_mbps"],
        "jain": sum(shares) ** 2 / max(len(shares) * sum(s * s for s in shares), 1e-9),
    }


def _future(study: Study, bench: Bench) -> None:
    known = {queue: words for queue, words in QUEUES.items() if not missing_reason(words)}
    settings = {
        (name, queue): (_scenario(link, flows, quick=bench.quick), words)
        for name, (_, link, flows) in TRAFFIC.items()
        for queue, words in known.items()
    }
    got = bench.seeds_of("future work", settings, _measured)
    rows = []
    for name, (what, *_) in TRAFFIC.items():
        cells = []
        for queue, words in QUEUES.items():
            measured = got.get((name, queue))
            for measure, *_ in MEASURES:
                value = None if measured is None else estimate(s[measure] for s in measured)
                study.put(f"future.{name}.{queue}.{measure}", value, missing_reason(words))
            if measured is not None:
                values = [mean(s[m] for s in measured) for m, *_ in MEASURES]
                cells.append("{:.1f} / {:.0f} / {:.2f} / {:.2f}".format(*values))
            else:
                cells.append("")
        rows.append([what, *cells])
    title = "Future work: mean sojourn, ms / 99th percentile, ms / throughput, Mbit/s / Jain's index of TCP"
    study.tables.append(Table(title, ["", *QUEUES], rows))
