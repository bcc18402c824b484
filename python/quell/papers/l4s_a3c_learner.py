"""The shipped network of A3C-L4S on sets of scenarios, compared with other networks and queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.resources import as_file, files

from quell.common.files import temporary_folder
from quell.papers.bench import Bench, mean, missing_reason
from quell.papers.claim import Claim, estimate
from quell.papers.l4s_a3c_studies import SHARES, shares
from quell.papers.study import Study
from quell.train import coupled
from quell.train.coupled import Outcome, Setting
from quell.views.figures import Table

QUEUE = "a3c_l4s"
TRAINED = {
    "BEFORE": ("the network that shipped before", "before"),
    "START": ("random first weights, untrained", "start"),
    "UNTRAINED": ("hand-written first weights, untrained", "untrained"),
    "SIX": ("a power law of six numbers, found by CMA-ES", "six"),
}
"""Networks for comparison by the prefix of their rows, with the files `trained/a3c-l4s.NAME.safetensors`.

- before: `quell train a3c-l4s --environment loop --actor-rate 5e-5`
- start: `quell train a3c-l4s --episodes 1 --actor-rate 0 --seed 2`
- untrained: `quell train a3c-l4s --environment loop --actor-rate 0 --episodes 1`
- six: the best of five searches by validation, `tools/a3c.py six`
"""
QUEUES = {"TARGET": "l4s target 2ms", "DUALPI2": "dualpi2", "HUSH": "hush"}
"""Queues without a network by the prefix of their rows."""
BESIDE = {**{prefix: what for prefix, (what, _) in TRAINED.items()}, **QUEUES}
CONSTANTS = [0.001 * 2 ** (k / 2) for k in range(19)]
"""Constant p' from 0.001 to 0.5, for scenarios in which the network misses an aim."""

SETS = {"A3C": "held out", "FEW": "few flows", "GRID": "grid", "NEW": "new"}
"""Sets by the prefix of their rows."""
AIMS = (
    ("mean", "mean_delay", "mean delay over that of l4s's own law, geometric mean", 1.0, -1, 2),
    ("p99", "p99_delay", "99th percentile over that of the law, geometric mean", 1.0, -1, 2),
    ("throughput", "throughput", "throughput over that of the law, geometric mean", 0.98, +1, 3),
    ("least", "least_throughput", "throughput over that of the law, worst scenario", 0.98, +1, 3),
    ("met", "met", "scenarios where all three are met", None, +1, 1),
)
KEPT = ("mean", "throughput", "met")
"""Rows of the networks and queues for comparison."""

CLAIMS = [
    *(
        Claim(f"{prefix}.{row}", f"{name}: {what}", "", wanted or float(len(coupled.SETS[name])), better, digits=digits,
              kind="aim")
        for prefix, name in SETS.items()
        for row, _, what, wanted, better, digits in AIMS
    ),
    Claim("NEW.before", "new: mean delay over that of the network that shipped before, geometric mean", "", 0.9, -1,
          kind="aim"),
    *(
        Claim(f"{other}.{prefix}.{row}", f"{label}, {name}: {what}", digits=digits, detail=True)
        for other, label in BESIDE.items()
        for prefix, name in SETS.items()
        for row, _, what, _, _, digits in AIMS
        if row in KEPT
    ),
]  # fmt: skip
"""The aims: less delay on average and at the 99th percentile with at most 2 % less throughput, in every scenario."""


def measure(study: Study, bench: Bench) -> None:
    """Measure the learner on the sets."""
    if why := missing_reason(QUEUE):
        for claim in CLAIMS:
            study.put(claim.id, None, why)
        return
    misses: list[list[str]] = []
    beside: list[list[str]] = []
    with ExitStack() as stack:
        folder = files(__package__) / "trained"
        words = {
            prefix: f"{QUEUE} model {stack.enter_context(as_file(folder / f'a3c-l4s.{name}.safetensors'))}"
            for prefix, (_, name) in TRAINED.items()
        }
        for prefix, name in SETS.items():
            _judge(study, bench, prefix, name, {**words, **QUEUES}, beside, misses)
    title = "The shipped network and what is beside it: shares of the law's, means of runs"
    study.tables.append(Table(title, ["set", "", *SHARES.values()], beside))
    columns = [
        "set", "Mbit/s, RTT ms, flows", "l4s", QUEUE, "throughput's ratio", "constant p' that meets all aims",
        "least delay of a constant with the throughput",
    ]  # fmt: skip
    if misses:
        study.tables.append(
            Table("Where the network misses an aim, and what a constant p' reaches there", columns, misses)
        )


def _cell(cell: Sequence[Outcome], name: str) -> float:
    return mean(getattr(o, name) for o in cell)


def _judge(
    study: Study,
    bench: Bench,
    prefix: str,
    name: str,
    others: dict[str, str],
    beside: list[list[str]],
    misses: list[list[str]],
) -> None:
    """Run the network, the law and the others over a set of scenarios."""
    settings, first = coupled.SETS[name], coupled.FIRST_SEEDS[name]
    settings = settings[::5] if bench.quick else settings

    def run(which: Sequence[str], where: Sequence[Setting]) -> dict[str, list[list[Outcome]]]:
        return coupled.held_out(
            which, settings=where, seeds=bench.first, duration_s=6.0 if bench.quick else coupled.HELD_OUT_S,
            first_seed=first, threads=bench.threads, on=bench.on,
        )  # fmt: skip

    got = run([coupled.QUEUE, QUEUE, *others.values()], settings)
    mine, law = got[QUEUE], got[coupled.QUEUE]

    def by_seed(cells: list[list[Outcome]], over: list[list[Outcome]]) -> list[dict[str, float]]:
        return [coupled.versus([[c[k]] for c in cells], [[c[k]] for c in over]) for k in range(bench.first)]

    missed = [k for k in range(len(settings)) if not _meets(mine[k], law[k])]
    short = [
        f"{_where(settings[k])}: {_figures(mine[k])} against {_figures(law[k])}, "
        f"throughput {_share(mine[k], law[k]):.3f}"
        for k in missed
    ]
    listed = "; ".join(short) or "none"
    why = f"scenarios that miss an aim, mean of seeds (mean ms / 99th percentile / Mbit/s): {listed}"
    each = by_seed(mine, law)
    for row, key, *_ in AIMS:
        study.put(f"{prefix}.{row}", estimate(e[key] for e in each), why)
    for other, words in others.items():
        own = by_seed(got[words], law)
        for row, key, *_ in AIMS:
            if row in KEPT:
                study.put(f"{other}.{prefix}.{row}", estimate(e[key] for e in own))
    if prefix == "NEW":
        pairs = by_seed(mine, got[others["BEFORE"]])
        study.put("NEW.before", estimate(e["mean_delay"] for e in pairs))
    labels = {"shipped": QUEUE, **{BESIDE[other]: words for other, words in others.items()}}
    for label, words in labels.items():
        beside.append([name, label, *shares(coupled.versus(got[words], law))])
    if name == "held out":
        queues = [coupled.QUEUE, QUEUE, QUEUES["TARGET"]]
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
    """Sweep a constant p' in scenarios in which the network misses an aim."""
    with temporary_folder("quell-paper-") as folder:
        words = {}
        for p in CONSTANTS:
            path = folder / f"{p:.4f}.safetensors"
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
