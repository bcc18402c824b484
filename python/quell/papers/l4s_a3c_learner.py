"""The learner of the A3C-L4S paper: Figures 25 to 27, and the shipped network on sets held out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from pathlib import Path

from quell.papers import curves
from quell.papers.bench import Bench, mean, missing_reason
from quell.papers.claim import Claim, estimate
from quell.papers.paper import Study
from quell.train import coupled
from quell.train.coupled import Outcome, Setting
from quell.views.figures import Axis, Figure, Line, Panel, Table

MODEL = "a3c-l4s"
QUEUE = "a3c_l4s"
LAWS = ("l4s target 2ms",)
UNTRAINED = "a3c-l4s.untrained.safetensors"
"""`quell train a3c-l4s --environment loop --actor-rate 0 --episodes 1`: first weights, untrained."""
CONSTANTS = [0.001 * 2 ** (k / 2) for k in range(19)]
"""p' from 0.001 to 0.5: what a constant reaches where the network misses an aim."""

SETS = {"A3C": "held out", "FEW": "few flows", "GRID": "grid"}
"""Prefix of rows: the set."""
AIMS = (
    ("mean", "mean_delay", "mean delay over that of l4s's own law, geometric mean", 1.0, -1, 2),
    ("p99", "p99_delay", "99th percentile over that of the law, geometric mean", 1.0, -1, 2),
    ("throughput", "throughput", "throughput over that of the law, geometric mean", 0.98, +1, 3),
    ("least", "least_throughput", "throughput over that of the law, worst scenario", 0.98, +1, 3),
    ("met", "met", "scenarios where all three are met", float(len(coupled.HELD_OUT)), +1, 1),
)

CLAIMS = [
    Claim("F25.rise", "training: mean reward, last tenth of the episodes less first tenth", "", 0.0, +1,
          kind="claim", source="section 5.2.1, Figure 25", quote="average reward gradually increases"),
    Claim("F26.delay", "training: delay at the workers' queues, last tenth of the episodes", "ms", digits=1),
    *(
        Claim(f"{prefix}.{row}", f"{name}: {what}", "", wanted, better, digits=digits, kind="aim")
        for prefix, name in SETS.items()
        for row, _, what, wanted, better, digits in AIMS
    ),
    *(
        Claim(f"UNTRAINED.{prefix}.{row}", f"the hand-written first weights, {name}: {what}", digits=digits)
        for prefix, name in SETS.items()
        for row, _, what, _, _, digits in AIMS
    ),
]  # fmt: skip
"""The aims: less delay on average and at the 99th percentile, at no more than 2 % less throughput, everywhere."""


def measure(study: Study, bench: Bench) -> None:
    """Measure and draw the learner."""
    _curve(study)
    _sets(study, bench)


def _curve(study: Study) -> None:
    curve = curves.find(MODEL)
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


def _sets(study: Study, bench: Bench) -> None:
    if why := missing_reason(QUEUE):
        for claim in CLAIMS[2:]:
            study.put(claim.id, None, why)
        return
    misses: list[list[str]] = []
    for prefix, name in SETS.items():
        _judge(study, bench, prefix, name, misses)
    columns = [
        "set", "Mbit/s, RTT ms, flows", "l4s", QUEUE, "throughput's ratio", "constant p' that meets all aims",
        "least delay of a constant with the throughput",
    ]  # fmt: skip
    if misses:
        study.tables.append(
            Table("Where the network misses an aim, and what a constant p' reaches there", columns, misses)
        )


def _judge(study: Study, bench: Bench, prefix: str, name: str, misses: list[list[str]]) -> None:
    """Run the network and the law over a set of scenarios."""
    settings, first = coupled.SETS[name], coupled.FIRST_SEEDS[name]
    settings = settings[::5] if bench.quick else settings
    queues = ["l4s", QUEUE, *LAWS]

    def run(which: Sequence[str], where: Sequence[Setting]) -> dict[str, list[list[Outcome]]]:
        return coupled.held_out(
            which, settings=where, seeds=bench.first, duration_s=6.0 if bench.quick else coupled.HELD_OUT_S,
            first_seed=first, threads=bench.threads, on=bench.on,
        )  # fmt: skip

    with as_file(files(__package__) / "trained" / UNTRAINED) as path:
        first_weights = f"{QUEUE} model {path}"
        got = run([*queues, first_weights], settings)
    mine, law = got[QUEUE], got["l4s"]

    def by_seed(cells: list[list[Outcome]]) -> list[dict[str, float]]:
        return [coupled.versus([[c[k]] for c in cells], [[c[k]] for c in law]) for k in range(bench.first)]

    each, untrained = by_seed(mine), by_seed(got[first_weights])
    named = {QUEUE: mine, "untrained": got[first_weights], **{q: got[q] for q in LAWS}}
    relative = "; ".join(_relative(cells, law, q) for q, cells in named.items())
    missed = [k for k in range(len(settings)) if not _meets(mine[k], law[k])]
    short = [
        f"{_where(settings[k])}: {_figures(mine[k])} against {_figures(law[k])}, "
        f"throughput {_share(mine[k], law[k]):.3f}"
        for k in missed
    ]
    listed = "; ".join(short) or "none"
    why = f"scenarios that miss an aim, mean of seeds (mean ms / 99th percentile / Mbit/s): {listed}. {relative}"
    for row, key, *_ in AIMS:
        study.put(f"{prefix}.{row}", estimate(e[key] for e in each), why)
        study.put(f"UNTRAINED.{prefix}.{row}", estimate(e[key] for e in untrained))
    study.notes.append(f"{name.capitalize()}, {len(settings)} scenarios: {relative}.")
    if name == "held out":
        rows = [[_where(s), *(_figures(got[q][k]) for q in queues)] for k, s in enumerate(settings)]
        title = "Held out: mean delay, ms / 99th percentile, ms / throughput, Mbit/s"
        study.tables.append(Table(title, ["Mbit/s, RTT ms, flows", *queues], rows))
    if missed:
        misses += _constants(
            name, [settings[k] for k in missed], [mine[k] for k in missed], [law[k] for k in missed], run
        )


def _constants(
    name: str,
    settings: Sequence[Setting],
    mine: Sequence[Sequence[Outcome]],
    law: Sequence[Sequence[Outcome]],
    run: Callable[[Sequence[str], Sequence[Setting]], dict[str, list[list[Outcome]]]],
) -> list[list[str]]:
    """Sweep a constant p' where the network misses an aim."""
    with tempfile.TemporaryDirectory() as folder:
        words = {}
        for p in CONSTANTS:
            path = Path(folder) / f"{p:.4f}.safetensors"
            path.write_bytes(coupled.constant(p))
            words[p] = f"a3c_l4s model {path}"
        got = run(list(words.values()), settings)
    rows = []
    for k, setting in enumerate(settings):
        cells = {p: got[word][k] for p, word in words.items()}
        meets = [f"{p:.3f}" for p, cell in cells.items() if _meets(cell, law[k])]
        full = [cell for cell in cells.values() if _share(cell, law[k]) >= 0.98]
        best = min(full, key=lambda cell: _cell(cell, "mean_ms"), default=None)
        rows.append([
            name, _where(setting), _figures(law[k]), _figures(mine[k]), f"{_share(mine[k], law[k]):.3f}",
            ", ".join(meets) or "none", "none has it" if best is None else _figures(best),
        ])  # fmt: skip
    return rows


def _where(setting: Setting) -> str:
    return ", ".join(f"{x:g}" for x in setting)


def _figures(cell: Sequence[Outcome]) -> str:
    return f"{_cell(cell, 'mean_ms'):.1f} / {_cell(cell, 'p99_ms'):.0f} / {_cell(cell, 'mbps'):.2f}"


def _share(mine: Sequence[Outcome], law: Sequence[Outcome]) -> float:
    return _cell(mine, "mbps") / _cell(law, "mbps")


def _meets(mine: Sequence[Outcome], law: Sequence[Outcome]) -> bool:
    return coupled.versus([mine], [law])["met"] == 1


def _relative(mine: Sequence[Sequence[Outcome]], law: Sequence[Sequence[Outcome]], name: str) -> str:
    v = coupled.versus(mine, law)
    return (
        f"{name} has {v['mean_delay']:.2f} of the law's mean delay, {v['p99_delay']:.2f} of its 99th percentile, at "
        f"least {v['least_throughput']:.3f} of its throughput, and all aims in {v['met']:.0f}"
    )
