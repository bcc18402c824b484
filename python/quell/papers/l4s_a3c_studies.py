"""Comparison of trainings of A3C-L4S: seeds, reward scales (Figures 26 and 27), A2C, initial weights.

`tools/a3c.py` ran them and wrote `trained/a3c-l4s.studies.parquet`, which a reproduction reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quell.papers import curves
from quell.papers.bench import mean
from quell.papers.claim import Claim, estimate
from quell.papers.study import Study
from quell.train import coupled
from quell.views.figures import Axis, Figure, Line, Panel, Table

TABLE = "a3c-l4s.studies"
SCALES = ("10", "25", "50", "100")
ALL = float(len(coupled.HELD_OUT))
WHAT = {
    "seeds": "the paper's procedure from hand-written first weights, five seeds",
    "a3c": "A3C from random weights",
    "a2c": "stable-baselines3's A2C from random weights",
}

RISE = "mean reward, last tenth of the episodes less first tenth"

WORLDS = "many worlds from random weights, five seeds"
OF_WORLDS = (
    ("mean", "mean_delay", "mean delay over the law's, held out", 0.21, -1, 2),
    ("throughput", "throughput", "throughput over the law's, held out", 0.998, +1, 4),
    ("cut", "throughput_cut", "the same with each scenario's ratio at most 1", 0.996, +1, 4),
    ("met", "met", "scenarios held out where all aims are met", ALL, +1, 1),
    ("few", "few flows met", "scenarios with few flows where all aims are met", ALL - 1, +1, 1),
)
"""Row, column of the table, description, bound, direction, digits."""

SHARES = {
    "mean_delay": "mean delay",
    "p99_delay": "99th percentile",
    "throughput": "throughput",
    "throughput_cut": "the same, at most 1 a scenario",
    "least_throughput": "worst throughput",
    "met": "all aims met",
    "settings": "of",
}
"""Columns of tables that compare with the law, and their keys in `coupled.versus`."""

CLAIMS = [
    Claim("RANDOM.a3c.rise", f"{WHAT['a3c']}: {RISE}", "", 0.0, +1, kind="claim", source="section 5.2.1, Figure 25",
          quote="average reward gradually increases"),
    Claim("SEEDS.rise", f"{WHAT['seeds']}: {RISE}"),
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
    Claim("WORLDS.rise", f"{WORLDS}: mean reward, last tenth of the batches less first tenth"),
    *(
        Claim(f"WORLDS.{row}", f"{WORLDS}: {what}", "", bound, better, digits=digits, kind="aim")
        for row, _, what, bound, better, digits in OF_WORLDS
    ),
    Claim("RANDOM.reward", "from random weights: A3C's reward less A2C's, last fifth of the episodes", "", 0.0, +1,
          kind="aim"),
    *(
        Claim(f"F27.{scale}", f"reward scale {scale}, tables: delay looked up over the tables' own", "", 1.0, -1,
              kind="claim", source="section 5.2.2, Figure 26", quote="already very low after training")
        for scale in SCALES
    ),
]  # fmt: skip

Rows = Sequence[Mapping[str, Any]]


def shares(found: Mapping[str, float]) -> list[str]:
    """Return the result of `coupled.versus` as text, a cell for each of `SHARES`."""
    digits = {"mean_delay": 2, "p99_delay": 2, "throughput": 4, "throughput_cut": 4, "least_throughput": 3}
    return [f"{found[key]:.{digits.get(key, 0)}f}" for key in SHARES]


def measure(study: Study) -> None:
    """Judge and draw the results of the trainings."""
    rows = curves.table(TABLE).to_dicts()
    runs: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        runs.setdefault((row["study"], row["name"], row["seed"]), []).append(row)

    def of(what: str, name: str | None = None) -> list[list[dict[str, Any]]]:
        return [run for (s, n, _), run in runs.items() if s == what and name in (None, n)]

    seeds, a3c, a2c = of("seeds"), of("a2c", "A3C"), of("a2c", "A2C")
    for which, found in (("RANDOM.a3c.rise", a3c), ("SEEDS.rise", seeds)):
        rises = [_part(run, -10) - _part(run, 10) for run in found]
        study.put(which, estimate(rises), f"by seed: {', '.join(f'{x:.2f}' for x in rises)}; {_training_text(found)}")
    for prefix, found in (("SEEDS", seeds), ("RANDOM.a3c", a3c), ("RANDOM.a2c", a2c)):
        _judge(study, prefix, found)
    worlds = of("worlds")
    why = f"by seed: {', '.join(f'{_part(run, -10) - _part(run, 10):.2f}' for run in worlds)}"
    study.put("WORLDS.rise", estimate(_part(run, -10) - _part(run, 10) for run in worlds), why)
    for claim, key, _, _, _, digits in OF_WORLDS:
        values = [float(run[-1][key]) for run in worlds]
        why = f"by seed: {', '.join(f'{v:.{digits}f}' for v in values)}"
        study.put(f"WORLDS.{claim}", estimate(values), why)
    differences = [_part(mine, -5) - _part(its, -5) for mine, its in zip(a3c, a2c, strict=True)]
    study.put("RANDOM.reward", estimate(differences), f"A3C: {_training_text(a3c)}; A2C: {_training_text(a2c)}")
    _scales(study, {scale: of("scales", scale) for scale in SCALES})
    _table(study, runs)
    _seeds(study, {"network": worlds, "six numbers": of("six")})
    _draw(study, worlds, seeds, a3c, a2c, {scale: of("scales", scale) for scale in SCALES})


def _part(run: Rows, parts: int, key: str = "reward") -> float:
    """Return the mean over the first of `parts` parts of a training, or over the last if `parts` is negative."""
    n = max(1, len(run) // abs(parts))
    return mean(row[key] for row in (run[:n] if parts > 0 else run[-n:]))


def _training_text(found: Sequence[Rows]) -> str:
    """Return, as text, rewards by fifths of the training, averaged over the seeds."""
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


def _seeds(study: Study, found: Mapping[str, Sequence[Rows]]) -> None:
    """Show each training in many worlds, and each search for six numbers, on the sets not used for any choice."""
    rows = [
        [name, f"{what}, seed {run[-1]['seed']}", *shares({k: run[-1][f"{prefix}{k}"] for k in SHARES})]
        for name, prefix in (("held out", ""), ("few flows", "few flows "), ("new", "new "))
        for what, runs in found.items()
        for run in runs
    ]
    title = "Trainings in many worlds and searches for six numbers: shares of the law's, means of five runs"
    study.tables.append(Table(title, ["set", "", *SHARES.values()], rows))


# Figures. ------------------------------------------------------------------------------------------------------------


def _running(found: Sequence[Rows], key: str) -> list[tuple[float, float | None]]:
    """Return the mean over seeds and over the last tenth of the training, at each point."""
    n = max(1, len(found[0]) // 10)
    course = [mean(run[k][key] for run in found) for k in range(min(len(run) for run in found))]
    return [(float(k), mean(course[max(0, k - n + 1) : k + 1])) for k in range(len(course))]


def _draw(
    study: Study,
    worlds: Sequence[Rows],
    seeds: Sequence[Rows],
    a3c: Sequence[Rows],
    a2c: Sequence[Rows],
    scales: Mapping[str, Sequence[Rows]],
) -> None:
    note = "Running means over a tenth of a training. The shipped network is that of seed 2."
    x = Axis("batch")
    by_seed = [(f"seed {k + 1}", [run]) for k, run in enumerate(worlds)]
    study.figures.append(Figure("F25", "Figures 25 and 26: learning in many worlds, from random weights", note, [
        Panel("Figure 25: reward", x, Axis("reward per period"),
              [Line(name, _running(run, "reward"), "line", k) for k, (name, run) in enumerate(by_seed)]),
        Panel("Figure 26: delay while learning", x, Axis("backlog, ms", True),
              [Line(name, _running(run, "delay_ms"), "line", k) for k, (name, run) in enumerate(by_seed)]),
    ]))  # fmt: skip
    x = Axis("episode")
    note = "Running means over a tenth of a training."
    study.figures.append(Figure("seeds", "Five seeds, and A3C beside A2C", note, [
        Panel("the paper's procedure from hand-written first weights", x, Axis("reward per step"),
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
