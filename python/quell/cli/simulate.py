"""Shared parts of the commands that simulate: groups of options, running jobs, heading, exit status."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

from rich.text import Text

from quell._core import Scenario
from quell.cli.options import (
    Csv,
    Duration,
    Ecn,
    Flent,
    Flow,
    Html,
    Json,
    Parquet,
    Rate,
    Rtt,
    Seed,
    Series,
    Tc,
    Trace,
    Warmup,
)
from quell.common.console import err, out
from quell.common.status import INTERRUPTED, OK
from quell.common.text import counted_range, one_line
from quell.experiments import experiment
from quell.experiments.executor import executor
from quell.experiments.experiment import Outcome
from quell.views.targets import Targets, progress


@dataclass(frozen=True)
class Changes:
    """Options that override a scenario's keys."""

    rate: Rate = None
    rtt: Rtt = None
    trace: Trace = None
    tc: Tc = None
    flow: Flow = None
    ecn: Ecn = False
    duration: Duration = None
    warmup: Warmup = None
    seed: Seed = None

    def load(self, source: str | Scenario | None, seeds: str | None) -> Scenario:
        """Load a scenario with these changes. Raises InputError."""
        given = vars(self).copy()
        return experiment.load(source, seeds=seeds, flows=given.pop("flow"), **given)


@dataclass(frozen=True)
class Output:
    """Options for the destinations of results."""

    json: Json = None
    html: Html = None
    parquet: Parquet = None
    csv: Csv = None
    flent: Flent = None
    series: Series = None

    def bins(self, targets: Targets) -> dict[str, Any]:
        """Return which time series the records keep, as arguments of `experiment.plan`."""
        return {"series_bin_s": targets.bins(self.series), "first_series": self.html is not None}

    def targets(self) -> Targets:
        """Check that all of them can be written. Raises InputError."""
        return Targets(self.json, self.html, self.parquet, self.csv, self.flent)


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """Turn each field of a command's dataclass parameters into an option."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            group = groups[parameter.name]
            types = get_type_hints(group, include_extras=True)
            parameters += [
                inspect.Parameter(field.name, parameter.kind, default=field.default, annotation=types[field.name])
                for field in fields(group)
            ]
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    signature = inspect.Signature(parameters)

    @wraps(command)
    def with_groups(*words: Any, **options: Any) -> int:
        given = signature.bind(*words, **options).arguments
        for name, group in groups.items():
            own = [field.name for field in fields(group)]
            given[name] = group(**{key: given.pop(key) for key in own if key in given})
        return command(**given)

    vars(with_groups)["__signature__"] = signature
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups


def simulate(
    scenario: Scenario,
    jobs: Sequence[experiment.Job],
    threads: int = 0,
    pcap: Path | None = None,
    ray: str | None = None,
) -> Outcome:
    """Run jobs, with a progress bar."""
    with executor(ray) as on, progress(len(jobs)) as update:
        return experiment.run_jobs(scenario, jobs, threads=threads, on_record=update, pcap=pcap, on=on)


def heading(scenario: Scenario, runs: Collection[int], swept: Collection[str] = ()) -> None:
    """Print what was run; `swept` keys have their own columns."""
    about = [
        "" if any(key.startswith("link.") for key in swept) else one_line(experiment.rates(scenario)),
        ""
        if {"duration", "warmup"} & set(swept)
        else f"{scenario.duration_s:g} s, the first {scenario.warmup_s:g} s left out",
        f"{counted_range(runs, 'run')} per queue",
    ]
    text = "; ".join(part for part in about if part)
    out.print(Text.assemble((one_line(scenario.name), "bold"), (f"  {text}", "dim")), soft_wrap=True)


def status(outcome: Outcome) -> int:
    """Return the exit status. After an interruption, print how many runs are finished; raise its error, if any."""
    if not outcome.interrupted:
        return OK
    ended = kept(len(outcome.by_job), len(outcome.jobs))
    if outcome.failure is not None:
        raise outcome.failure
    return ended


def kept(finished: int, total: int) -> int:
    """Print how many runs had finished at Ctrl-C; return the exit status."""
    err.print(f"quell: interrupted: {finished} of {total} runs had finished and were kept")
    return INTERRUPTED
