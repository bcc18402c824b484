"""The command `quell optimum`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from quell._core import InputError
from quell.cli import complete
from quell.cli.options import File, Html, Jobs, Json, Seeds
from quell.cli.simulate import Changes, heading, simulate, spread, status
from quell.common.console import out
from quell.experiments import experiment
from quell.views import table
from quell.views.targets import Targets

EXAMPLES = (
    "Examples:\n\n"
    "  quell optimum home --knob limit\n\n"
    "  quell optimum --rate 10mbit --rtt 40ms --flow newreno --knob drop --reward rlaqm --json frontier.json"
)


@spread
def optimum(
    file: File = None,
    knob: Annotated[
        str,
        typer.Option(
            metavar="limit|drop",
            help="The constant: a limit in packets, or a drop probability.",
            autocompletion=complete.one_of("limit", "drop"),
        ),
    ] = "limit",
    values: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Settings to try instead of the built-in grid.")
    ] = None,
    reward: Annotated[
        str,
        typer.Option(
            metavar="|".join(("power", "rlaqm", "lfq")),
            help="Criterion for the best setting.",
            autocompletion=complete.one_of("power", "rlaqm", "lfq"),
        ),
    ] = "power",
    cc: Annotated[
        str | None,
        typer.Option(
            metavar="CC", help="Short for one --flow with this congestion control.", autocompletion=complete.flows
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    *,
    changes: Changes,
    json: Json = None,
    html: Html = None,
) -> int:
    """Find the best constant limit or drop probability of a plain FIFO, and the front of constants."""
    from quell.results import frontier

    frontier.check(knob, reward, "--")
    if cc is not None and changes.flow:
        raise InputError("--cc and --flow: give one of the two")
    settings = frontier.values(knob, values)
    targets = Targets(json, html)
    scenario = (replace(changes, flow=[cc]) if cc else changes).load(file, seeds)
    work = experiment.plan(scenario, [frontier.words(knob, v) for v in settings], first_series=html is not None)
    outcome = simulate(scenario, work, jobs)
    points = frontier.judge(knob, settings, outcome.records, reward)
    if not targets.quiet:
        heading(scenario, {p.row.runs for p in points})
        out.print(table.frontier(points, reward))
        about = f"reward {reward}: {frontier.REWARDS[reward][1]}; ▶ its best, ◆ others on the front"
        out.print(about, style="dim")
    targets.write(outcome, json=[p.plain() for p in points])
    return status(outcome)
