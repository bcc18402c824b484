"""The learner of the A3C-L4S paper: Figures 25 to 27, and the shipped network on a set held out."""

from __future__ import annotations

from collections.abc import Sequence

from quell.papers import curves
from quell.papers.bench import Bench, lacks, mean
from quell.papers.paper import Axis, Claim, Figure, Line, Panel, Study, Table
from quell.stats import estimate
from quell.train import coupled
from quell.train.coupled import HELD_OUT, Outcome

MODEL = "a3c-l4s"
QUEUE = "a3c_l4s"
LAWS = ("l4s target 2ms",)
MOST_SEEDS = 2

CLAIMS = [
    Claim("F25.rise", "training: mean reward, last tenth of the episodes less first tenth", "", 0.0, +1),
    Claim("F26.delay", "training: delay at the workers' queues, last tenth of the episodes", "ms", digits=1),
    Claim("A3C.mean", "held-out set: mean delay over that of l4s's own law, geometric mean", "", 1.0, -1),
    Claim("A3C.p99", "held-out set: 99th percentile over that of the law, geometric mean", "", 1.0, -1),
    Claim("A3C.throughput", "held-out set: throughput over that of the law, geometric mean", "", 0.98, +1, digits=3),
    Claim("A3C.least", "held-out set: throughput over that of the law, worst scenario", "", 0.98, +1, digits=3),
    Claim("A3C.met", "held-out set: scenarios where all three are met", "", float(len(HELD_OUT)), +1, digits=1),
]
"""The aims: less delay on average and at the 99th percentile, at no more than 2 % less throughput, everywhere."""


def measure(study: Study, bench: Bench) -> None:
    """Measure and draw the learner."""
    _curve(study)
    _held_out(study, bench)


def _curve(study: Study) -> None:
    curve = curves.find(MODEL)
    if curve is None:
        for claim in CLAIMS[:2]:
            study.put(claim.id, None, f"no models/{MODEL}.curve.parquet here, the curve that the training leaves")
        return
    episodes, rewards, delays = curve["step"], curve["rewards"], curve["delays_ms"]
    n = max(1, len(episodes) // 10)
    tenths = [mean(curve["reward"][k : k + n]) for k in range(0, len(episodes) - n + 1, n)]
    course = "; by tenth of the training: " + ", ".join(f"{t:.3f}" for t in tenths)
    study.put("F25.rise", estimate([tenths[-1] - tenths[0]]), f"it begins as a proportional controller{course}")
    study.put("F26.delay", estimate([mean(v for row in delays[-n:] for v in row)]))

    def workers(rows: Sequence[Sequence[float]]) -> list[Line]:
        smooth = max(1, n)
        lines = []
        for k in range(len(rows[0])):
            values = [mean(row[k] for row in rows[max(0, t - smooth + 1) : t + 1]) for t in range(len(rows))]
            lines.append(Line(f"worker {k + 1}", list(zip(episodes, values, strict=True)), "line", k + 1))
        return lines

    whole = [mean(curve["reward"][max(0, t - n + 1) : t + 1]) for t in range(len(episodes))]
    x = Axis("episode")
    panels = [
        Panel("Figure 25: reward", x, Axis("reward per step"),
              [Line("global", list(zip(episodes, whole, strict=True)), "line", 0), *workers(rewards)]),
        Panel("Figure 26: delay while learning", x, Axis("delay, ms", True), workers(delays)),
    ]  # fmt: skip
    note = "The training of the shipped network; running means over a tenth of it. Episodes have links of their own."
    study.figures.append(Figure("F25", "Figures 25 and 26: learning", note, panels))


def _cell(cell: Sequence[Outcome], name: str) -> float:
    return mean(getattr(o, name) for o in cell)


def _held_out(study: Study, bench: Bench) -> None:
    settings = HELD_OUT[::5] if bench.quick else HELD_OUT
    if why := lacks(QUEUE):
        for claim in CLAIMS[2:]:
            study.put(claim.id, None, why)
        return
    queues = ["l4s", QUEUE, *LAWS]
    got = coupled.held_out(
        queues, settings=settings, seeds=min(bench.seeds, MOST_SEEDS), duration_s=6.0 if bench.quick else 20.0,
        threads=bench.threads, on=bench.on,
    )  # fmt: skip
    seeds = range(min(bench.seeds, MOST_SEEDS))
    each = [coupled.versus([[cell[k]] for cell in got[QUEUE]], [[cell[k]] for cell in got["l4s"]]) for k in seeds]
    told = "; ".join(_against(got[law], got["l4s"], law) for law in (QUEUE, *LAWS))
    missed = [
        f"{mbps:g} Mbit/s {rtt:g} ms {flows}: {_cell(mine, 'mean_ms'):.1f}/{_cell(law, 'mean_ms'):.1f} ms mean, "
        f"{_cell(mine, 'p99_ms'):.0f}/{_cell(law, 'p99_ms'):.0f} ms p99, {_cell(mine, 'mbps') / _cell(law, 'mbps'):.3f}"
        for (mbps, rtt, flows), mine, law in zip(settings, got[QUEUE], got["l4s"], strict=True)
        if not _meets(mine, law)
    ]
    why = f"scenarios that miss an aim (network/law, throughput's ratio): {'; '.join(missed) or 'none'}. {told}"
    for name, key in (("mean", "mean_delay"), ("p99", "p99_delay"), ("throughput", "throughput"),
                      ("least", "least_throughput"), ("met", "met")):  # fmt: skip
        study.put(f"A3C.{name}", estimate(e[key] for e in each), why)
    study.notes.append(f"On the held-out set of {len(settings)} scenarios: {told}.")
    rows = [
        [f"{mbps:g}, {rtt:g}, {flows}", *(
            f"{_cell(got[q][k], 'mean_ms'):.1f} / {_cell(got[q][k], 'p99_ms'):.0f} / {_cell(got[q][k], 'mbps'):.2f}"
            for q in queues[:3]
        )]
        for k, (mbps, rtt, flows) in enumerate(settings)
    ]  # fmt: skip
    title = "Held out: mean delay, ms / 99th percentile, ms / throughput, Mbit/s"
    study.tables.append(Table(title, ["Mbit/s, RTT ms, flows", *queues[:3]], rows))


def _meets(mine: Sequence[Outcome], law: Sequence[Outcome]) -> bool:
    return coupled.versus([mine], [law])["met"] == 1


def _against(mine: Sequence[Sequence[Outcome]], law: Sequence[Sequence[Outcome]], name: str) -> str:
    v = coupled.versus(mine, law)
    return (
        f"{name} has {v['mean_delay']:.2f} of the law's mean delay, {v['p99_delay']:.2f} of its 99th percentile, at "
        f"least {v['least_throughput']:.3f} of its throughput, and all aims in {v['met']:.0f}"
    )
