"""Trainings of A3C-L4S beside each other: seeds, reward scales (Figures 26 and 27), A2C, first weights.

They were run by `tools/a3c.py`, which left `trained/a3c-l4s.studies.parquet`; a reproduction reads that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quell.papers import curves
from quell.papers.bench import mean
from quell.papers.claim import Claim, estimate
from quell.papers.paper import Study
from quell.train import coupled
from quell.views.figures import Axis, Figure, Line, Panel, Table

TABLE = "a3c-l4s.studies"
SCALES = ("10", "25", "50", "100")
ALL = float(len(coupled.HELD_OUT))
WHAT = {
    "seeds": "the shipped network's training, five seeds",
    "a3c": "A3C from random weights",
    "a2c": "stable-baselines3's A2C from random weights",
}

CLAIMS = [
    Claim("SEEDS.rise", f"{WHAT['seeds']}: mean reward, last tenth of the episodes less first tenth", "", 0.0, +1,
          kind="claim", source="section 7", quote="A3C model can converge properly"),
    *(
        claim
        for prefix, key in (("SEEDS", "seeds"), ("RANDOM.a3c", "a3c"), ("RANDOM.a2c", "a2c"))
        for claim in (
            Claim(f"{prefix}.mean", f"{WHAT[key]}: mean delay over the law's, held out", "", 1.0, -1, kind="aim"),
            Claim(f"{prefix}.throughput", f"{WHAT[key]}: throughput over the law's, held out", "", 0.98, +1, digits=3,
                  kind="aim"),
            Claim(f"{prefix}.met", f"{WHAT[key]}: scenarios held out where all aims are met", "", ALL, +1, digits=1,
                  kind="aim"),
        )
    ),
    Claim("RANDOM.reward", "from random weights: A3C's reward less A2C's, last fifth of the episodes", "", 0.0, +1,
          kind="aim"),
    *(
        Claim(f"F27.{scale}", f"reward scale {scale}, tables: delay looked up over the tables' own", "", 1.0, -1,
              kind="claim", source="section 5.2.1, Figure 26", quote="already very low after training")
        for scale in SCALES
    ),
]  # fmt: skip

Rows = Sequence[Mapping[str, Any]]


def measure(study: Study) -> None:
    """Judge and draw what the trainings left."""
    rows = curves.table(TABLE).to_dicts()
    runs: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        runs.setdefault((row["study"], row["name"], row["seed"]), []).append(row)

    def of(what: str, name: str | None = None) -> list[list[dict[str, Any]]]:
        return [run for (s, n, _), run in runs.items() if s == what and name in (None, n)]

    seeds, a3c, a2c = of("seeds"), of("a2c", "A3C"), of("a2c", "A2C")
    study.put("SEEDS.rise", estimate(_part(run, -10) - _part(run, 10) for run in seeds), _training_text(seeds))
    for prefix, found in (("SEEDS", seeds), ("RANDOM.a3c", a3c), ("RANDOM.a2c", a2c)):
        _judge(study, prefix, found)
    differences = [_part(mine, -5) - _part(its, -5) for mine, its in zip(a3c, a2c, strict=True)]
    study.put("RANDOM.reward", estimate(differences), f"A3C: {_training_text(a3c)}; A2C: {_training_text(a2c)}")
    _scales(study, {scale: of("scales", scale) for scale in SCALES})
    _table(study, runs)
    _draw(study, seeds, a3c, a2c, {scale: of("scales", scale) for scale in SCALES})


def _part(run: Rows, parts: int, key: str = "reward") -> float:
    """Mean of the first of so many parts of a training, or of the last where it is negative."""
    n = max(1, len(run) // abs(parts))
    return mean(row[key] for row in (run[:n] if parts > 0 else run[-n:]))


def _training_text(found: Sequence[Rows]) -> str:
    """Tell rewards by fifth of the training, mean of the seeds."""
    n = max(1, len(found[0]) // 5)
    fifths = [mean(row["reward"] for run in found for row in run[k : k + n]) for k in range(0, 5 * n, n)]
    return "reward by fifth of the training " + ", ".join(f"{f:.3f}" for f in fifths)


def _judge(study: Study, prefix: str, found: Sequence[Rows]) -> None:
    last = [run[-1] for run in found]
    spread = ", ".join(f"{row['spread']:.3f}" for row in last if row["spread"] is not None)
    why = f"by seed, scenarios: {', '.join(str(row['met']) for row in last)}; {_training_text(found)}" + (
        f"; spread of actions in the end {spread}" if spread else ""
    )
    for row, key in (("mean", "mean_delay"), ("throughput", "throughput"), ("met", "met")):
        study.put(f"{prefix}.{row}", estimate(float(r[key]) for r in last), why)


def _scales(study: Study, found: Mapping[str, Sequence[Rows]]) -> None:
    for scale, runs in found.items():
        ratios = [mean(run[-1]["predicted_ms"]) / mean(run[-1]["actual_ms"]) for run in runs]
        delays = [_part(run, 5, "delay_ms") for run in runs], [_part(run, -5, "delay_ms") for run in runs]
        why = f"delay by episodes: first fifth {mean(delays[0]):.1f} ms, last {mean(delays[1]):.1f}"
        study.put(f"F27.{scale}", estimate(ratios), why)


def _table(study: Study, runs: Mapping[tuple[str, str, int], Rows]) -> None:
    rows = []
    for (what, name, _), run in runs.items():
        if what in ("first", "long", "follow"):
            last, n = run[-1], len(run) // 3
            reward_thirds = ", ".join(f"{mean(r['reward'] for r in run[k : k + n]):.2f}" for k in range(0, 3 * n, n))
            rows.append([
                name, reward_thirds, f"{last['spread']:.3f}", f"{last['mean_delay']:.2f}", f"{last['throughput']:.3f}",
                f"{last['met']:.0f}",
            ])  # fmt: skip
    columns = ["", "reward by third", "spread in the end", "mean delay over the law's", "throughput", "aims met"]
    study.tables.append(
        Table("From random weights with other options, one seed each, judged on the set held out", columns, rows)
    )


# Figures. ------------------------------------------------------------------------------------------------------------


def _running(found: Sequence[Rows], key: str) -> list[tuple[float, float | None]]:
    """Give the mean over seeds, over the last tenth of the training so far."""
    n = max(1, len(found[0]) // 10)
    course = [mean(run[k][key] for run in found) for k in range(min(len(run) for run in found))]
    return [(float(k), mean(course[max(0, k - n + 1) : k + 1])) for k in range(len(course))]


def _draw(
    study: Study, seeds: Sequence[Rows], a3c: Sequence[Rows], a2c: Sequence[Rows], scales: Mapping[str, Sequence[Rows]]
) -> None:
    x = Axis("episode")
    note = "Running means over a tenth of a training."
    study.figures.append(Figure("seeds", "Five seeds, and A3C beside A2C", note, [
        Panel("the shipped network's training", x, Axis("reward per step"),
              [Line(f"seed {k + 1}", _running([run], "reward"), "line", k) for k, run in enumerate(seeds)]),
        Panel("from random weights: reward", x, Axis("reward per step"),
              [Line("A3C", _running(a3c, "reward"), "line", 5), Line("A2C", _running(a2c, "reward"), "line", 6)]),
    ]))  # fmt: skip
    actual = [mean(values) for values in zip(*(run[-1]["actual_ms"] for run in scales[SCALES[0]]), strict=True)]
    panels = [
        Panel("Figure 27: delay while learning", x, Axis("delay, ms"), [
            Line(f"scale {s}", _running(found, "delay_ms"), "line", k) for k, (s, found) in enumerate(scales.items())
        ])
    ]  # fmt: skip
    lines = []
    for worker, own in enumerate(actual):
        points: list[tuple[float, float | None]] = [
            (float(s), mean(run[-1]["predicted_ms"][worker] for run in found)) for s, found in scales.items()
        ]
        flat: list[tuple[float, float | None]] = [(float(SCALES[0]), own), (float(SCALES[-1]), own)]
        lines += [
            Line(f"worker {worker + 1}", points, "both", worker),
            Line("its table's mean", flat, "line", worker, True),
        ]
    panels.append(Panel("Figures 26, 27: delay after learning", Axis("reward scale"), Axis("delay, ms"), lines))
    note = (
        "The published tables, RTT reward, mean of seeds. What the trained actor looks up (predicted), and what the "
        "table holds under the queue's own law (actual)."
    )
    study.figures.append(Figure("F27", "Figures 26 and 27: predicted and actual delay, reward scale", note, panels))
