"""Runs the suite: every scenario with every queue and seed. A file keeps finished runs until all are done."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quell import _core
from quell._core import InputError, Scenario
from quell.common.names import known
from quell.evaluation import suite, verdict
from quell.evaluation.candidate import Candidate, LeftOut
from quell.evaluation.entry import Entry, Run
from quell.evaluation.link import Link
from quell.evaluation.measures import compact, ellipse
from quell.evaluation.state import RunStore
from quell.evaluation.verdict import LEFT_OUT, Judged, Values
from quell.experiments import experiment
from quell.experiments.executor import HERE, Executor
from quell.results.stats import estimate

DEFAULT_QUEUES = ("codel", "pie", "fq_codel", "cake", "dualpi2", "hush")
"""Besides tail drop: standardised or deployed AQMs, and quell's own."""
SEEDS, MAX_SEEDS = 5, 1000
STATE = Path("quell-evaluate.state")
"""File of finished runs during an evaluation."""


@dataclass(frozen=True)
class Plan:
    """Parameters of an evaluation."""

    link: Link
    candidates: tuple[Candidate, ...]
    """The queues; the first is tail drop, the reference."""
    entries: tuple[Entry, ...]
    seeds: int


@dataclass
class Cell:
    """Results of a scenario with a queue."""

    entry: Entry
    candidate: Candidate
    verdict: str = LEFT_OUT
    reason: str = ""
    """Reason why it was not run."""
    values: dict[str, list[float | None]] = field(default_factory=dict)
    judged: list[Judged] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Compact records by the run's name, seed by seed."""

    def plain(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        measures: dict[str, float | None] = {}
        for key, values in self.values.items():
            if (found := estimate(values)) is not None:
                measures[key], measures[f"{key}.ci95"] = found.mean, found.half
        return {
            "section": self.entry.section,
            "requirement": self.entry.requirement,
            "scenario": self.entry.name,
            "queue": self.candidate.name,
            "verdict": self.verdict,
            "measures": measures,
            "seeds": self.seeds,
            "bars": [one.plain() for one in self.judged],
            "reason": self.reason or None,
        }

    def ellipse(self) -> dict[str, float] | None:
        """Return the delay-goodput ellipse of all runs and seeds."""
        return ellipse([run["ellipse"] for runs in self.runs.values() for run in runs]) if self.runs else None


def plan(
    link: Link, candidates: Sequence[Candidate], *, sections: Sequence[str] | None = None, seeds: int = SEEDS
) -> Plan:
    """Plan an evaluation; tail drop with a buffer of the bandwidth-delay product comes first. Raises InputError."""
    if not 1 <= seeds <= MAX_SEEDS:
        raise InputError(f"seeds: {seeds} is not 1 to {MAX_SEEDS}")
    reference = Candidate(_core.Queue(f"pfifo limit {link.packets}"))
    others = [one for one in candidates if one.name != reference.name]
    return Plan(link, (reference, *others), tuple(_chosen(sections)), seeds)


def _chosen(sections: Sequence[str] | None) -> list[Entry]:
    if sections is None:
        return list(suite.SUITE)
    wanted: set[str] = set()
    for one in sections:
        within = [s for s in suite.SECTIONS if s == one or s.startswith(f"{one}.")]
        if not within:
            known("section", one, suite.SECTIONS, "--sections")
        wanted.update(within)
    if not wanted:
        raise InputError(f"--sections: names no section; write some of {', '.join(suite.SECTIONS)}")
    return [entry for entry in suite.SUITE if entry.section in wanted]


def sections_of(text: str | None) -> list[str] | None:
    """Read `5,8.2`. None: all."""
    return None if text is None else [part for part in re.split(r"[,\s]+", text) if part]


# Runs. ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    cell: int
    run: str
    scenario: Scenario
    candidate: Candidate
    job: experiment.Job
    first: bool
    key: str
    """Its key in the state file."""


def _key(scenario_hash: str, candidate: Candidate, job: experiment.Job) -> str:
    parts = [scenario_hash, candidate.name, str(job.queue), job.seed, job.series_bin_s]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _tasks(plan: Plan, cells: Sequence[Cell]) -> list[_Task]:
    """List all runs, seed by seed; set the reason of cells without runs."""
    tasks: list[_Task] = []
    for index, cell in enumerate(cells):
        try:
            own = [task for run in cell.entry.runs for task in _tasks_of(plan, index, cell, run)]
        except LeftOut as why:
            cell.reason = str(why)
            continue
        cell.seeds = [task.job.seed for task in own if task.run == own[0].run]
        tasks += own
    tasks.sort(key=lambda task: not task.first)
    return tasks


def _tasks_of(plan: Plan, index: int, cell: Cell, run: Run) -> list[_Task]:
    candidate, entry = cell.candidate, cell.entry
    keys = run.keys(plan.link, candidate)
    name = f"RFC 7928 {entry.id} {run.name}".strip()
    try:
        queue = candidate.queue if run.words is None else _core.Queue(run.words(candidate))
        scenario = Scenario.from_keys(**{**keys, "name": name, "seeds": plan.seeds, "seed": 1})
    except InputError as error:
        # Not the user's error: the simulator or the queue does not support what the scenario needs.
        raise LeftOut(f"cannot be simulated: {str(error).partition('; known: ')[0]}") from None
    bin_s = round(entry.bin * plan.link.rtt_s, 6)
    # A series has at most a few thousand bins, even with a short round trip.
    bin_s = max(bin_s, scenario.duration_s / 3000)
    scenario_hash = experiment.fingerprint(scenario)
    jobs = [experiment.Job(queue, scenario.run_seed(k), bin_s) for k in range(plan.seeds)]
    return [
        _Task(index, run.name, scenario, candidate, job, k == 0, _key(scenario_hash, candidate, job))
        for k, job in enumerate(jobs)
    ]


def count(plan: Plan) -> int:
    """Count the runs of a plan."""
    return len(_tasks(plan, _cells(plan)))


def _cells(plan: Plan) -> list[Cell]:
    return [Cell(entry, candidate) for entry in plan.entries for candidate in plan.candidates]


def evaluate(
    plan: Plan,
    *,
    threads: int = 0,
    state: Path | None = None,
    on_done: Callable[[int], object] = lambda _: None,
    deliver: Callable[[Sequence[Cell]], object] = lambda _: None,
    on: Executor = HERE,
) -> list[Cell]:
    """Run everything that is not in the state file, and judge all runs; return the cells, row by row.

    Finished runs are added to `state`; the file is removed when all is done and `deliver` has returned. Raises
    InputError; KeyboardInterrupt on Ctrl-C; exceptions of `deliver`, or of a queue or controller written in Python.
    """
    cells = _cells(plan)
    tasks = _tasks(plan, cells)
    with RunStore(state) as kept:
        missing = list({task.key: task for task in reversed(tasks) if task.key not in kept.runs}.values())[::-1]
        alike = Counter(task.key for task in tasks)
        finished = sum(count for key, count in alike.items() if key in kept.runs)
        on_done(finished)

        def done(task: _Task, record: Mapping[str, Any]) -> None:
            nonlocal finished
            # Python code may have changed when the evaluation is continued.
            words = isinstance(task.candidate.queue, _core.Queue)
            kept.add(task.key, compact(record, plot=task.first), to_file=words)
            finished += alike[task.key]
            on_done(finished)

        experiment.stream(
            [(task.scenario, task.job) for task in missing],
            lambda k, record: done(missing[k], record),
            threads=threads,
            on=on,
        )
        keys = {task.key for task in tasks}
        with kept.judged(keys):
            for task in tasks:
                cells[task.cell].runs.setdefault(task.run, []).append(kept.runs[task.key])
            for row in range(0, len(cells), len(plan.candidates)):
                _judge_row(plan, cells[row : row + len(plan.candidates)])
            deliver(cells)
        kept.finished(keys)
    return cells


def _judge_row(plan: Plan, row: Sequence[Cell]) -> None:
    for cell in row:
        if cell.reason:
            continue
        try:
            cell.values = _values(plan, cell)
        except LeftOut as why:
            cell.reason = str(why)
    reference: Values = row[0].values
    for cell in row:
        if cell.reason:
            continue
        if cell.entry.least:
            cell.values["queue_ns"] = [_difference(cell.values["cost_ns"], reference["cost_ns"])]
        cell.judged = [verdict.judge(bar, cell.values, reference) for bar in cell.entry.bars]
        cell.verdict = verdict.overall(cell.judged)


def _difference(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    return None if a[0] is None or b[0] is None else a[0] - b[0]


def _values(plan: Plan, cell: Cell) -> dict[str, list[float | None]]:
    """Return the values of each measure by seed. Raises LeftOut."""
    if not cell.entry.runs:
        if not (options := cell.candidate.options()):
            raise LeftOut("is written in Python: its parameters are its author's to list")
        return {"parameters": [float(len(options))]}
    per_seed = [
        cell.entry.measures({name: runs[k] for name, runs in cell.runs.items()}, plan.link) for k in range(plan.seeds)
    ]
    values = {key: [one[key] for one in per_seed] for key in per_seed[0]}
    if cell.entry.least:
        costs = [value for value in values[cell.entry.shown] if value is not None]
        return {cell.entry.shown: [min(costs, default=None)]}
    return values
