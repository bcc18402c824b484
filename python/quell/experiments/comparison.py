"""What `quell compare` and `quell.compare` do: runs of several queues, and some of them again for responsiveness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from quell._core import Scenario
from quell.experiments import experiment, responsiveness
from quell.experiments.experiment import Outcome
from quell.experiments.queue import Parsed

Simulate = Callable[..., Outcome]
"""Runs jobs as `experiment.run_jobs` does: simulate(scenario, jobs, pcap=None)."""


def compare(
    scenario: Scenario,
    queues: Sequence[Parsed] | None,
    simulate: Simulate,
    *,
    rpm: bool | None,
    series: float | None = None,
    first_series: bool = False,
    pcap: Path | None = None,
) -> Outcome:
    """Run each queue (None: every one that is usual) with each seed of a scenario.

    Then run all seeds (`rpm`), some (None) or none again with probes, for their responsiveness. For `series` and
    `first_series` see `experiment.plan`. Raises InputError if `rpm` and the scenario takes no probes.
    """
    probed = responsiveness.probed(scenario) if rpm else responsiveness.probed_if_possible(scenario)
    jobs = experiment.plan(
        scenario,
        experiment.every_queue(scenario) if queues is None else queues,
        series_bin_s=series,
        first_series=first_series,
    )
    outcome = simulate(scenario, jobs, pcap=pcap)
    if rpm is not False:
        responsiveness.measure(outcome, probed, simulate, every=1 if rpm else responsiveness.EVERY)
    return outcome
