"""LearnQueue's Q-table, learned in simulated runs, each of which continues from the one before. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quell import _core
from quell._core import InputError, LearnQueueTable, Scenario
from quell.files import write_bytes
from quell.output import bar
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
    scenario: Scenario, words: str, out: Path, *, episodes: int, which: int = 0, command: str = ""
) -> dict[str, Any]:
    """Train queue number `which` of a scenario for this many runs; return the last one's record.

    `words` are a `learnqueue`; one with a table continues from it. In every run after the first all such queues of the
    scenario start from the table of that one queue, which is written whole after each run.

    Raises InputError for words or a queue that do not learn, Stopped after Ctrl-C.
    """
    table: LearnQueueTable | None = None
    record: dict[str, Any] = {}
    done = 0
    try:
        with bar("Learning", episodes, "runs") as update:
            for k in range(episodes):
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
            kept = f"{out} holds {done} runs; continue with --aqm 'learnqueue table {out}'"
        raise Stopped(f"interrupted; {kept}", INTERRUPTED) from None
    return record
