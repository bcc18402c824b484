"""The command `quell rpm`."""

from __future__ import annotations

from typing import Annotated

import typer

from quell.cli import complete
from quell.cli.options import (
    File,
    Jobs,
    Json,
    Rate,
    Rtt,
    Seed,
    Seeds,
    Tc,
    Trace,
)
from quell.cli.simulate import heading, simulate, status
from quell.common.console import out
from quell.experiments import experiment, own
from quell.views import table
from quell.views.targets import Targets

EXAMPLES = "Example:\n\n  quell rpm home --aqm pfifo --aqm fq_codel"


def rpm(
    file: File = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Queue words, or FILE.py:NAME; repeatable. Default: every queue.",
            autocompletion=complete.queues,
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    tc: Tc = None,
    seed: Seed = None,
    json: Json = None,
) -> int:
    """Measure responsiveness under working conditions, in round trips per minute."""
    from quell.experiments import responsiveness

    targets = Targets(json)
    given = experiment.load(file, rate=rate, rtt=rtt, trace=trace, tc=tc, seeds=seeds, seed=seed)
    queues = own.parse(aqm) if aqm else experiment.every_queue(given)
    plan = experiment.plan(responsiveness.working_conditions(given), queues)
    outcome = responsiveness.saturate(given, plan, lambda conditions, work: simulate(conditions, work, jobs))
    if not targets.quiet and outcome.records:
        heading(given, [given.seeds], ("duration",))
        if quality := table.applications(outcome.records, out.width):
            out.print(quality)
        out.print(responsiveness.about(outcome.records), style="dim")
    targets.write(outcome)
    return status(outcome)
