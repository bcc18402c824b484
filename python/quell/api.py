"""The functions of the library: `import quell`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard, Unpack

import polars as pl

from quell import _core
from quell._core import InputError, Scenario
from quell.common import files
from quell.common.names import keywords, known
from quell.evaluation import page as evaluation_page
from quell.evaluation import run as evaluation
from quell.evaluation.candidate import parse_all as parse_candidates
from quell.evaluation.link import parse as parse_link
from quell.experiments import experiment, grid, responsiveness
from quell.experiments.control import Controller, run_controlled
from quell.experiments.queue import Aqm, Parsed, parse, parse_all
from quell.inputs.shortcuts import Overrides, Shortcuts
from quell.results import frame, frontier

summary = frame.summary


@keywords(Overrides)
def scenario(source: str | Path | Scenario | None = None, **overrides: Unpack[Overrides]) -> Scenario:
    """Find and check a scenario: a TOML file, a built-in's name, TOML text, or only overrides (`rate="15mbit"`).

    Overrides are the command line's shortcuts as strings: `queue`, `rate`, `rtt`, `trace`, `flows` (a list), `ecn`,
    `duration`, `warmup`, `seeds`, `seed`.

    Raises InputError, one line that names the file, the key and what is allowed. Warns (UnitWarning of
    quell.inputs.notes) of rates in bytes per second, as in `rate="50mbps"`.
    """
    return experiment.load(source, **overrides)


@keywords(Overrides)
def run(
    source: str | Path | Scenario | None = None,
    aqm: Aqm | None = None,
    *,
    controller: Controller | None = None,
    series: float | None = None,
    pcap: str | Path | None = None,
    nested: bool = False,
    **overrides: Unpack[Overrides],
) -> pl.DataFrame:
    """Simulate one scenario with one queue and one seed.

    `aqm` is queue words (`"codel target 5ms"`; None: the scenario's own) or a queue written in Python, see
    quell.experiments.queue. `controller` sets the knobs of that queue: an object with `period` (seconds) and
    `decide(gauges) -> knobs`, see quell.experiments.control. `series` is the width in seconds of a time series' bins,
    `pcap` a file for the bottleneck's packets (pcapng). For the rest see `quell.scenario`.

    Returns a frame of one row: the numbers and texts of the result record (docs/reference/records.md), each in a column
    named by its path, such as `sojourn_ms.p95`. With `nested` or `series` the columns are the record's keys instead,
    with structs and lists (`flows`, `applications`, `sojourn_cdf`). Rates are in Mbit/s, times in ms.

    Raises InputError; KeyboardInterrupt on Ctrl-C; any exception of a queue or controller in Python.
    """
    checked = scenario(source, **overrides)
    queue, seed = parse(checked.queue if aqm is None else aqm), checked.run_seed(0)
    if pcap is None:
        return _shaped(_run(checked, queue, seed, controller, series, None), nested, series)
    files.check_target("pcap", Path(pcap))
    kept: list[pl.DataFrame] = []
    files.write_whole(Path(pcap), lambda part: kept.append(_run(checked, queue, seed, controller, series, part)))
    return _shaped(kept[0], nested, series)


def _run(
    checked: Scenario,
    queue: Parsed,
    seed: int,
    controller: Controller | None,
    series: float | None,
    pcap: Path | None,
) -> pl.DataFrame:
    if controller is not None:
        if not isinstance(queue, _core.Queue):
            raise InputError(f"controller: {queue} is written in Python and has no knobs; give words, as in aqm='fifo'")
        record = run_controlled(checked, queue, seed, controller, series, pcap)
        return frame.runs([{**record, "scenario_hash": experiment.fingerprint(checked)}])
    return _frame(experiment.run_jobs(checked, [experiment.Job(queue, seed, series)], pcap=pcap))


@keywords(Shortcuts)
def compare(
    source: str | Path | Scenario | None = None,
    aqm: Sequence[Aqm] | Aqm | None = None,
    *,
    seeds: int | None = None,
    jobs: int = 0,
    series: float | None = None,
    rpm: bool | None = False,
    nested: bool = False,
    **overrides: Unpack[Shortcuts],
) -> pl.DataFrame:
    """Simulate one scenario with several queues, each with several seeds, on `jobs` cores (0: all).

    `aqm` lists queues as `quell.run` takes them, or is one (None: the scenario's own first, then every other usual kind
    with its defaults). In a list, a tuple is a queue with a controller, such as `("fifo limit 100", Aimd)`: an object,
    or a class or function that makes one for each run. `seeds` is the number of runs per queue (None: the scenario's,
    and up to three times as many for a queue whose place on the Pareto front of goodput and p95 sojourn may be due to
    chance, as the command does). Queues and controllers in Python run one after another on the calling thread. `rpm`
    also measures responsiveness, in a second run of each seed with probes (None: of one seed in five, as the command
    does). For the rest see `quell.run`.

    Returns a frame as `quell.run` does, with one row per run; `quell.summary` reduces it to one row per queue. The same
    input gives the same figures on any number of cores (except `cpu_s` and figures derived from it). Raises InputError;
    KeyboardInterrupt on Ctrl-C; any exception of a queue or controller in Python.
    """
    checked = scenario(source, seeds=seeds, **overrides)
    queues = None if aqm is None else parse_all(aqm if _is_list(aqm) else [aqm])
    simulate = partial(experiment.run_jobs, threads=jobs)
    found = _frame(responsiveness.compare(checked, queues, simulate, rpm=rpm, more=seeds is None, series_bin_s=series))
    return _shaped(found, nested, series)


@keywords(Shortcuts)
def optimum(
    source: str | Path | Scenario | None = None,
    knob: str = "limit",
    *,
    values: Sequence[float] | None = None,
    reward: str = "power",
    seeds: int | None = None,
    jobs: int = 0,
    **overrides: Unpack[Shortcuts],
) -> pl.DataFrame:
    """Try constant values of a plain FIFO's knob: `limit` (packets) or `drop` (probability of dropping each arrival).

    Returns one row per value: `value`, mean `reward` (see quell.results.frontier.REWARDS), `best` (whether that is the
    highest), `front` (whether it is on the Pareto front of goodput and p95 sojourn) and the means of the measures that
    `quell.summary` has. Raises InputError; KeyboardInterrupt on Ctrl-C.
    """
    frontier.check(knob, reward)
    checked = scenario(source, seeds=seeds, **overrides)
    settings = list(values) if values is not None else frontier.values(knob, None)
    work = experiment.plan(checked, [frontier.words(knob, v) for v in settings])
    records = _finished(experiment.run_jobs(checked, work, threads=jobs))
    return pl.DataFrame([p.plain() for p in frontier.judge(knob, settings, records, reward)])


@keywords(Shortcuts)
def sweep(
    source: str | Path | Scenario | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    aqm: Sequence[Aqm] | Aqm | None = None,
    *,
    seeds: int | None = None,
    jobs: int = 0,
    nested: bool = False,
    **overrides: Unpack[Shortcuts],
) -> pl.DataFrame:
    """Simulate a scenario with all combinations of some keys' values, each queue with each seed, on `jobs` cores.

    `over` maps keys to lists of values: `{"link.rate": ["10mbit", "50mbit"], "flow.rtt": ["20ms", "80ms"]}`.
    `link.rate` is the key `rate` of the table `link`; keys of `flow` and `hop` change in every such table. `aqm` lists
    queues (None: the scenario's own).

    Returns a frame with one row per run: a column for each key of `over`, then those of `quell.run` (`nested`, too).
    Raises InputError; KeyboardInterrupt on Ctrl-C.
    """
    checked = scenario(source, seeds=seeds, **overrides)
    queues = [] if aqm is None else parse_all(aqm if _is_list(aqm) else [aqm])
    swept = grid.run(checked, over or {}, queues, threads=jobs)
    if swept.interrupted:
        raise KeyboardInterrupt
    return _shaped(frame.swept(swept.runs), nested)


@keywords()
def evaluate(
    aqm: list[Aqm] | Aqm | None = None,
    link: str | None = None,
    *,
    sections: Sequence[str] | str | None = None,
    seeds: int = evaluation.SEEDS,
    jobs: int = 0,
    html: str | Path | None = None,
    state: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Evaluate queues per RFC 7928 (docs/how-to/evaluate.md), compared with tail drop on the same link.

    `aqm` is a queue or a list of queues as `quell.compare` takes them (None: those of `quell evaluate`). `link` is
    `RATE[@rtt=TIME]` or a scenario. `sections` are the sections to run, as in `"5,8.2"` or `["5", "8.2"]`. `html` is a
    file for the page. `state` is a file for finished runs: after an interruption, the same call continues from it.

    Returns a list with a dictionary per scenario and queue: `section`, `requirement`, `scenario`, `queue`, `verdict`,
    `measures`, `seeds`, `bars`, `reason`. Raises InputError; KeyboardInterrupt on Ctrl-C; any exception of a queue or
    controller in Python.
    """
    given: list[Any] = list(evaluation.DEFAULT_QUEUES) if aqm is None else aqm if isinstance(aqm, list) else [aqm]
    for option, path in (("html", html), ("state", state)):
        files.check_target(option, None if path is None else Path(path))
    wanted = evaluation.sections_of(sections) if isinstance(sections, str) else sections
    plan = evaluation.plan(parse_link(link), parse_candidates(given), sections=wanted, seeds=seeds)

    def deliver(cells: Sequence[evaluation.Cell]) -> None:
        if html is not None:
            files.write_text(Path(html), evaluation_page.page(plan, cells, "quell.evaluate(...)"))

    kept = None if state is None else Path(state)
    return [cell.plain() for cell in evaluation.evaluate(plan, threads=jobs, state=kept, deliver=deliver)]


def flatten(runs: pl.DataFrame, each: str | None = None) -> pl.DataFrame:
    """Convert a nested frame of runs to columns of numbers and text, as in CSV files.

    A struct's fields become columns named with a dot (`sojourn_ms.p95`); lists are left out. With `each="flows"` or
    `"applications"` there is a row for each element of that list, with its fields in `flows.goodput_mbps` and so on.

    Raises InputError if there is no such list.
    """
    if each is None:
        return frame.flat(runs)
    if frame.is_flat(runs):
        raise InputError("each: the frame has no lists; make it with nested=True")
    known("list", each, [name for name, kind in runs.schema.items() if kind == pl.List(pl.Struct)], "each")
    return frame.each(runs, each)


def to_pandas(runs: pl.DataFrame) -> Any:
    """Convert the numbers and texts of a frame to a `pandas.DataFrame`, missing numbers to NaN.

    Needs pandas, but not pyarrow; raises ImportError without pandas.
    """
    import pandas as pd

    columns = frame.flat(runs).iter_columns()
    return pd.DataFrame({c.name: c.to_numpy() if c.dtype.is_numeric() else c.to_list() for c in columns})


def queues() -> pl.DataFrame:
    """List the kinds of queues: `name`, `summary`, `source`, `options` (`name`, `value`, `default`, `meaning`)."""
    return pl.DataFrame(experiment.known_queues())


def scenarios() -> pl.DataFrame:
    """List the built-in scenarios: `name`, `summary`, `toml`."""
    return pl.DataFrame(_core.scenarios(), schema=["name", "summary", "toml"], orient="row")


def _is_list(aqm: Sequence[Aqm] | Aqm) -> TypeGuard[Sequence[Aqm]]:
    return isinstance(aqm, Sequence) and not isinstance(aqm, str)


def _frame(outcome: experiment.Outcome) -> pl.DataFrame:
    return frame.runs(_finished(outcome))


def _shaped(runs: pl.DataFrame, nested: bool, series: float | None = None) -> pl.DataFrame:
    return runs if nested or series is not None else frame.flat(runs)


def _finished(outcome: experiment.Outcome) -> list[dict[str, Any]]:
    """Return the records of an experiment. Raises KeyboardInterrupt if it was interrupted."""
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.records
