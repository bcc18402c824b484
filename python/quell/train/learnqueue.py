"""LearnQueue's Q-table, learned in simulated runs, each of which continues from the previous one. Needs no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any

from quell import _core
from quell._core import InputError, LearnQueueTable, Scenario
from quell.common.console import bar
from quell.common.files import check_own, write_bytes
from quell.common.text import counted
from quell.results.stats import Record
from quell.train import Stopped

INTERRUPTED = 130
JUDGE = 1_000_000
"""Number of the run that judges every table, larger than that of any training run."""


@dataclass(frozen=True)
class Point:
    """A point of the learning curve: a run that learned, and a run that started from its table."""

    run: int
    delay_ms: float
    throughput_mbps: float
    judged_delay_ms: float
    judged_throughput_mbps: float
    score: float
    """Score of the judged run, ms, less is better: the distance of its mean delay from the target; with the published
    reward, equation 14 of the run's means, negated."""


def episode(
    scenario: Scenario, words: str, seed: int, *, which: int = 0, table: LearnQueueTable | None = None
) -> tuple[str, LearnQueueTable]:
    """Run one world in which every LearnQueue starts from `table`; return its record and the table of queue `which`.

    Raises InputError if that queue does not learn.
    """
    played = _core.episode(scenario, words, seed, which=which, table=table)
    if played.table is None:
        if words.split()[0] != "learnqueue" or "guard" in words.split():
            raise InputError(f"{words}: has no table to train; write learnqueue with any of its options, but no guard")
        raise InputError(f"queue {which} of {scenario.name} has its own words, which are not a learnqueue")
    return played.record, played.table


def train(
    scenario: Scenario,
    words: str,
    out: Path,
    *,
    episodes: int,
    which: int = 0,
    command: str = "",
    resume: bool = False,
) -> Point:
    """Train queue number `which` of a scenario for this many runs; return the point of the best table.

    `words` are a `learnqueue`; one with a table continues from it. In every run after the first all such queues of the
    scenario start from the table of that one queue. After each run, its table is judged in another run with a seed that
    is not used for learning; the best table is written to `out`. Beside it are the table of the last run
    (`NAME.last.safetensors`), from which the next run learns, and the learning curve (`NAME.curve.csv`).

    With `resume` it continues after the finished runs, as if it had not been interrupted. Without `resume`, there must
    be no earlier training of this name, since the first run would replace its tables.

    Raises InputError for words or a queue that do not learn, or if another training writes these files meanwhile,
    Stopped after Ctrl-C.
    """
    drawn = _beside(out, "curve.csv")
    seen = _version(drawn)
    if not resume:
        _check_new(out)
    table, curve = _begun(scenario, out, episodes) if resume else (None, [])
    try:
        with bar("Learning", episodes, "runs") as update:
            for k in range(len(curve), episodes):
                text, table = episode(scenario, words, scenario.run_seed(k), which=which, table=table)
                judged, _ = episode(scenario, words, scenario.run_seed(JUDGE), which=which, table=table)
                learned = json.loads(text)
                point = _point(k + 1, learned, json.loads(judged), json.loads(table.card)["params"])
                trained_on = f"{counted(k + 1, 'run')} of {scenario.name}, {scenario.duration_s:g} s each: {command}"
                data = table.save(trained_on, scenario.seed)
                curve.append(point)
                if _version(drawn) not in (seen, None):
                    raise InputError(f"{drawn}: another training writes it; wait until that has ended and continue "
                                     "with --resume, or give another --out")  # fmt: skip
                # In this order, so that a run interrupted by a kill is repeated.
                write_bytes(drawn, _csv(curve).encode())
                seen = _version(drawn)
                if _best(curve) == point:
                    write_bytes(out, data)
                write_bytes(_beside(out, "last.safetensors"), data)
                update(len(curve), f"{learned['sojourn_ms']['mean']:.1f} ms")
    except KeyboardInterrupt:
        kept = "nothing learned yet"
        if curve:
            kept = f"{out} holds the best of {counted(len(curve), 'run')}; continue with --resume"
        raise Stopped(f"interrupted; {kept}", INTERRUPTED) from None
    return _best(curve)


def _point(run: int, learned: Record, judged: Record, params: dict[str, Any]) -> Point:
    """Judge a table; less is better."""
    target, delay = params["target_ns"] / 1e6, judged["sojourn_ms"]["mean"]
    score = abs(delay - target)
    if params["published_reward"]:
        lost = judged["drops_by_cause"]["overflow"] / max(judged["packets"] + judged["drops"], 1)
        max_delay = 8e3 * params["packet_bytes"] * params["max_size"] / params["basic_bps"]
        score = -params["delta"] * (target - delay) - params["eta"] * (max_delay - target) * (1 - lost)
    first = learned["sojourn_ms"]["mean"]
    return Point(run, first, learned["throughput_mbps"], delay, judged["throughput_mbps"], score)


def _best(curve: Sequence[Point]) -> Point:
    """Return the first point with the lowest score."""
    return min(curve, key=lambda point: point.score)


def _beside(out: Path, what: str) -> Path:
    return out.with_name(f"{out.name.removesuffix('.safetensors')}.{what}")


def _version(file: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from the one that replaces it; None if there is no file."""
    try:
        found = file.stat()
    except OSError:  # no file yet, or an error that writing it reports
        return None
    return found.st_ino, found.st_mtime_ns


def _check_new(out: Path) -> None:
    for file in (_beside(out, "curve.csv"), _beside(out, "last.safetensors")):
        if file.exists():
            raise InputError(
                f"{file}: of an earlier training; continue with --resume, remove it, or give another --out"
            )


def _csv(curve: Sequence[Point]) -> str:
    rows = [[f"{value:.17g}" for value in astuple(point)] for point in curve]
    return "\n".join([",".join(f.name for f in fields(Point)), *map(",".join, rows)]) + "\n"


def _begun(scenario: Scenario, out: Path, episodes: int) -> tuple[LearnQueueTable, list[Point]]:
    """Return the table of the last run and the curve. Raises InputError if it was not learned here."""
    last, drawn = _beside(out, "last.safetensors"), _beside(out, "curve.csv")
    for file, other in ((last, drawn), (drawn, last)):
        if not file.exists():
            remedy = f"remove {other}, and leave" if other.exists() else "leave"
            raise InputError(f"--resume: there is no {file}; {remedy} --resume out to start")
        check_own(file)
    table = LearnQueueTable(str(last), _core.read_file(last, "model"))
    card = json.loads(table.card)
    found = re.fullmatch(r"([0-9]{1,9}) runs? of (.*)", card["trained_on"], re.DOTALL)
    runs, of = found.groups() if found else ("0", "")
    here = f"{scenario.name}, {scenario.duration_s:g} s each: "
    if not (of.startswith(here) and card["seed"] == scenario.seed):
        what = f"{card['trained_on'][:200]!r} with seed {card['seed']}"
        raise InputError(f"--resume: {out} was learned in {what}; give the same options or another --out")
    if int(runs) >= episodes:
        raise InputError(f"--resume: {out} holds {runs} runs; give more --episodes")
    lines = _core.read_file(drawn, "model").decode(errors="replace").splitlines()[1 : 1 + int(runs)]
    try:
        rows = [list(map(float, line.split(","))) for line in lines]
        curve = [Point(int(run), *rest) for run, *rest in rows if all(map(isfinite, (run, *rest)))]
    except (TypeError, ValueError):
        curve = []
    if [point.run for point in curve] != list(range(1, int(runs) + 1)):
        raise InputError(
            f"--resume: {drawn} is not the curve of {runs} runs; remove it and {last}, and leave --resume out to start"
        )
    return table, curve
