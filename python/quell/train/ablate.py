"""Ablation of Hush: the value of each of its parts, and the effect of each of its numbers.

Every variant runs on the same links with the same seeds as the model (common random numbers). A figure is the
difference of the mean cost (`quell.train.hush.cost`) from the model's, with a 95 % interval from a bootstrap over
links; above 0 the variant is worse. If a feature is removed, the constants of the settings that used it are changed so
that their geometric means over the links stay the same. Otherwise the table would show a wrong operating point, not a
missing feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from quell.common import files
from quell.common.console import bar
from quell.experiments.executor import HERE, Executor
from quell.experiments.experiment import Job, run_each
from quell.train.hush import Model, cost, write
from quell.train.kinds import Link
from quell.train.links import CLASSICS, Bar, Run, Score, bars, geometric, interval, simulate

FEATURES = (
    "round trip", "packet time", "flows", "idle share", "actions per round trip", "trough", "peak",
    "packets per flow",
)  # fmt: skip
"""Features of a row of a model, after its constant."""
OF_DRY = ("round trip", "flows", "packets per flow")
"""Features of the row `dry`, after its constant."""
SETTINGS = ("target", "wait", "hold", "cap")
"""The rows whose values are in a record."""
BY = 0.2
"""Relative change of a number; for a constant, whose exponential is a setting, relative change of the setting."""
BINS = 60
Levels = Callable[[Model], Mapping[str, float]]
"""A function that returns the mean of each setting's logarithm."""


def _varied(model: Model, word: str, k: int, factor: float) -> Model:
    """Multiply a number by a factor; for a row's constant, multiply its setting."""
    changed = {name: list(row) for name, row in model.items()}
    constant = len(changed[word]) > 1 and k == 0
    changed[word][k] = changed[word][k] + math.log(factor) if constant else changed[word][k] * factor
    return changed


def _with(model: Model, **rows: Sequence[float]) -> Model:
    return model | {word: list(row) for word, row in rows.items()}


def _columns(word: str) -> tuple[str, ...]:
    """Name the numbers of a row."""
    return ("constant", *(OF_DRY if word == "dry" else FEATURES))


def _without(model: Model, *features: int) -> Model:
    names = {FEATURES[k - 1] for k in features}
    return {
        word: [0.0 if len(row) > 1 and _columns(word)[k] in names else number for k, number in enumerate(row)]
        for word, row in model.items()
    }


def _levels(links: Sequence[Link], words: str, on: Executor) -> dict[str, float]:
    """Return the mean of each setting's logarithm over the bins after the warm-up and over the links."""

    def reduce(record: dict[str, Any]) -> dict[str, float | None]:
        policy = (record["series"] or {}).get("policy") or {}
        found: dict[str, float | None] = {}
        for name in SETTINGS:
            seen = [v for v in policy.get(f"{name}_ms", [])[BINS // 3 :] if v]
            found[name] = fmean(map(math.log, seen)) if seen else None
        return found

    jobs = [(link.scenario, Job(words, link.scenario.run_seed(0), link.scenario.duration_s / BINS)) for link in links]
    each = run_each(jobs, reduce, on=on)
    return {name: fmean([x for one in each if (x := one[name]) is not None] or [0.0]) for name in SETTINGS}


def _centred(model: Model, full: Model, features: Sequence[int], links: Sequence[Link], levels: Levels) -> Model:
    """Change the constants of a model without features so that the settings keep their geometric means."""
    changed = {word: list(row) for word, row in model.items()}
    before, now = levels(full), levels(model)
    for name in SETTINGS:
        if any(full[name][k] for k in features):
            changed[name][0] += before[name] - now[name]
    # Records do not have `step`. Of its inputs, only the known properties of the link can be compensated, with the
    # number of flows as for equal shares. The row `dry` is not changed.
    known = {
        1: fmean(math.log(x.rtt_ms / 30) for x in links), 2: fmean(math.log(12.112 / x.rate_mbps) for x in links),
        3: fmean(math.log(x.flows) for x in links),
    }  # fmt: skip
    changed["step"][0] += sum(full["step"][k] * known.get(k, 0.0) for k in features)
    return changed


def parts(model: Model, links: Sequence[Link], levels: Levels) -> dict[str, Model]:
    """Return the variants without a part, or with a different one, by name."""
    found = {}
    for k, name in enumerate(FEATURES, 1):
        if any(row[k] for row in model.values() if len(row) > len(FEATURES)):
            found[f"without {name}"] = _centred(_without(model, k), model, [k], links, levels)
    every = range(1, len(FEATURES) + 1)
    found["without all features"] = _centred(_without(model, *every), model, every, links, levels)
    return found | {
        "the flow with most bytes queued pays": _with(model, service=[0.0], steady=[0.0]),
        "steady service does not count for who pays": _with(model, steady=[0.0]),
        "service lately counts for four targets, steady service does not": _with(model, service=[4.0], steady=[0.0]),
        "packets leave in the order of arrival": _with(model, kappa=[0.0], lead=[0.0]),
        "lone packets get no lead": _with(model, lead=[0.0]),
        "flows are served nearly equally": _with(model, kappa=[4.0]),
        "ECT(1) is marked whichever flow built the queue": _with(model, own=[0.0]),
        "the target does not follow the dry share": _with(model, gain=[0.0]),
        "small windows are marked too": _with(model, window=[0.0]),
        "no flow is marked by the law": _with(model, window=[1000.0]),
        "no cap": _with(model, cap=[50.0] + [0.0] * len(FEATURES)),
    }


def numbers(model: Model) -> dict[str, tuple[Model, Model]]:
    """Return for each number the models with a smaller and a larger value."""
    return {
        word + (f", {_columns(word)[k]}" if len(row) > 1 else ""): (
            _varied(model, word, k, 1 - BY), _varied(model, word, k, 1 + BY)
        )
        for word, row in model.items() for k, number in enumerate(row) if number
    }  # fmt: skip


def _compare(mine: Sequence[Run], base: Sequence[float], against: Sequence[Bar]) -> tuple[float, float, float]:
    """Return the difference of the mean cost from the model's, and its interval."""
    costs = [cost(run, bar) for run, bar in zip(mine, against, strict=True)]
    return interval([a - b for a, b in zip(costs, base, strict=True)], fmean)


def _cell(change: tuple[float, float, float]) -> str:
    mean, low, high = change
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" + (" *" if low > 0 or high < 0 else "")


def ablate(model: Model, links: Sequence[Link], on: Executor = HERE) -> str:
    """Return two tables in Markdown: removed parts, varied numbers. A star means that the interval excludes 0."""
    with files.temporary_folder("quell-hush-") as folder:

        def words(variant: Model) -> str:
            text = write(variant)
            file = folder / f"{len(list(folder.iterdir()))}.txt"
            file.write_text(text)
            return f"hush model {file}"

        def levels(variant: Model) -> Mapping[str, float]:
            return _levels(links, words(variant), on)

        whole = words(model)
        lacking = {name: words(variant) for name, variant in parts(model, links, levels).items()}
        lacking["fq_codel's law on the same queues"] = "hush dry_run"
        varied = {name: (words(less), words(more)) for name, (less, more) in numbers(model).items()}
        queues = [*CLASSICS, whole, *lacking.values(), *(w for pair in varied.values() for w in pair)]
        with bar("Ablation", len(queues) * len(links) * links[0].scenario.seeds, "runs") as update:
            runs = simulate(links, queues, on_done=lambda done: update(done, ""), on=on)
    against = bars(runs)
    base = [cost(run, bar) for run, bar in zip(runs[whole], against, strict=True)]

    def row(name: str, queue: str, change: str) -> str:
        score = Score.of(runs[queue], against)
        loss, jain = fmean(run.loss for run in runs[queue]), fmean(run.jain for run in runs[queue])
        return (
            f"| {name} | {change} | {geometric(score.g):.3f} | {min(score.g):.3f} | {geometric(score.p):.2f} "
            f"| {max(score.p):.1f} | {100 * fmean(score.wins):.0f} % | {jain:.3f} | {loss:.3f} |"
        )

    lines = ["| variant | cost | g | worst | p | worst | wins | Jain | loss |", "|" + "---|" * 9]
    lines.append(row("as shipped", whole, f"{fmean(base):.2f}"))
    changes = {name: _compare(runs[queue], base, against) for name, queue in lacking.items()}
    for name in sorted(changes, key=lambda name: -changes[name][0]):
        lines.append(row(name, lacking[name], _cell(changes[name])))
    lines += ["", f"| number | {100 * BY:.0f} % less | {100 * BY:.0f} % more |", "|---|---|---|"]
    for name, pair in varied.items():
        less, more = (_cell(_compare(runs[queue], base, against)) for queue in pair)
        lines.append(f"| {name} | {less} | {more} |")
    return "\n".join(lines)
