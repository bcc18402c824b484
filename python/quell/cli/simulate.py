"""What the commands that simulate share: running jobs, heading, exit status."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from rich.text import Text

from quell import _core
from quell._core import InputError, Scenario
from quell.common.console import err, out
from quell.common.status import INTERRUPTED, OK
from quell.common.text import one_line
from quell.experiments import experiment
from quell.experiments.executor import executor
from quell.experiments.experiment import Outcome
from quell.views.targets import progress


def simulate(
    scenario: Scenario,
    jobs: Sequence[experiment.Job],
    threads: int,
    pcap: Path | None = None,
    ray: str | None = None,
) -> Outcome:
    """Run jobs, with a progress bar."""
    with executor(ray) as on, progress(len(jobs)) as update:
        return experiment.run_jobs(scenario, jobs, threads=threads, on_record=update, pcap=pcap, on=on)


def measure(
    scenario: Scenario,
    jobs: Sequence[experiment.Job],
    threads: int,
    rpm: bool | None,
    pcap: Path | None = None,
    ray: str | None = None,
) -> Outcome:
    """Run jobs, then all seeds (`rpm`), some (None) or none again with probes, for their responsiveness."""
    from quell.experiments import responsiveness

    probed = responsiveness.probed(scenario) if rpm else responsiveness.probed_if_possible(scenario)
    outcome = simulate(scenario, jobs, threads, pcap, ray)
    if rpm is not False:
        every = 1 if rpm else responsiveness.EVERY
        responsiveness.measure(outcome, probed, lambda s, again: simulate(s, again, threads, ray=ray), every=every)
    return outcome


def aqm_words(words: str) -> str:
    """Return the words of an `--aqm` in their canonical form. Raises InputError, which names the option."""
    try:
        return _core.queue(words)
    except InputError as error:
        raise InputError(f"--aqm: {error}") from None


def heading(scenario: Scenario, runs: int, swept: Collection[str] = ()) -> None:
    """Print what was run; keys that are `swept` have columns of their own."""
    about = [
        "" if any(key.startswith("link.") for key in swept) else one_line(experiment.rates(scenario)),
        ""
        if {"duration", "warmup"} & set(swept)
        else f"{scenario.duration_s:g} s, the first {scenario.warmup_s:g} s left out",
        f"{runs} run{'s' if runs != 1 else ''} per queue",
    ]
    text = "; ".join(part for part in about if part)
    out.print(Text.assemble((one_line(scenario.name), "bold"), (f"  {text}", "dim")), soft_wrap=True)


def status(outcome: Outcome) -> int:
    """Return the exit status; say how much of an interrupted experiment there is."""
    if not outcome.interrupted:
        return OK
    err.print(f"quell: interrupted: {len(outcome.by_job)} of {len(outcome.jobs)} runs had finished and were kept")
    return INTERRUPTED
