"""LearnQueue's Q-table, learned in simulated runs, each of which continues from the one before. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quell import _core
from quell._core import InputError, LearnQueueTable, Scenario
from quell.common.console import bar
from quell.common.files import write_bytes
from quell.train import Stopped

INTERRUPTED = 130


def episode(
    scenario: Scenario, words: str, seed: int, *, which: int = 0, table: LearnQueueTable | None = None
) -> tuple[str, LearnQueueTable]:
    """Run one world, every LearnQueue starting from `table`; return its record and what queue `which` has learned.

    Raises InputError if that queue does not learn.
    """
    text, _, _, learned = _core.episode(scenario, words, seed, which=which, table=table)
    if learned is None:
        if words.split()[0] != "learnqueue" or "guard" in words.split():
            raise InputError(f"{words}: has no table to train; write learnqueue with any of its options, but no guard")
        raise InputError(f"queue {which} of {scenario.name} has its own words, which are not a learnqueue")
    return text, learned


def train(
    scenario: Scenario,
    words: str,
    out: Path,
    *,
    episodes: int,
    which: int = 0,
    command: str = "",
    resume: bool = False,
) -> dict[str, Any]:
    """Train queue number `which` of a scenario for this many runs; return the last one's record.

    `words` are a `learnqueue`; one with a table continues from it. In every run after the first all such queues of the
    scenario start from the table of that one queue, which is written whole after each run.

    With `resume` it continues after the runs that the table in `out` was learned in, as if it had not been interrupted.

    Raises InputError for words or a queue that do not learn, Stopped after Ctrl-C.
    """
    table, done = _begun(scenario, out, episodes) if resume else (None, 0)
    record: dict[str, Any] = {}
    try:
        with bar("Learning", episodes, "runs") as update:
            for k in range(done, episodes):
                seed = scenario.run_seed(k)
                text, table = episode(scenario, words, seed, which=which, table=table)
                record = json.loads(text)
                trained_on = f"{k + 1} runs of {scenario.name}, {scenario.duration_s:g} s each: {command}"
                write_bytes(out, table.save(trained_on, scenario.seed))
                done = k + 1
                update(done, f"{record['sojourn_ms']['mean']:.1f} ms")
    except KeyboardInterrupt:
        kept = "nothing learned yet"
        if done:
            kept = f"{out} holds {done} runs; continue with --resume"
        raise Stopped(f"interrupted; {kept}", INTERRUPTED) from None
    return record


def _begun(scenario: Scenario, out: Path, episodes: int) -> tuple[LearnQueueTable, int]:
    """Return the table in `out` and the number of its runs. Raises InputError if it was not learned here."""
    if not out.exists():
        raise InputError(f"--resume: there is no table {out}; leave --resume out to start")
    table = LearnQueueTable(str(out), _core.read_file(out, "model"))
    card = json.loads(table.card)
    runs, _, of = card["trained_on"].partition(" runs of ")
    here = f"{scenario.name}, {scenario.duration_s:g} s each: "
    if not (runs.isdecimal() and of.startswith(here) and card["seed"] == scenario.seed):
        what = f"{card['trained_on']!r} with seed {card['seed']}"
        raise InputError(f"--resume: {out} was learned in {what}; give the same options or another --out")
    if int(runs) >= episodes:
        raise InputError(f"--resume: {out} holds {runs} runs; give more --episodes")
    return table, int(runs)
