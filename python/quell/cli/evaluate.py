"""The command `quell evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.text import Text

from quell._core import InputError
from quell.cli import complete
from quell.cli.options import OUTPUT, Html, Jobs, Ray
from quell.cli.written import same
from quell.common import files
from quell.common.console import bar, err, out
from quell.common.status import INTERRUPTED
from quell.common.text import counted
from quell.evaluation import candidate, link, run, show
from quell.experiments import experiment, own
from quell.experiments.executor import executor
from quell.views.targets import Targets, command

EXAMPLES = (
    "Examples:\n\n  quell evaluate --html evaluation.html\n\n"
    "  quell evaluate --aqm 'codel target 10ms' --aqm fq_pie 50mbit@rtt=40ms\n\n"
    "  quell evaluate --sections 5,8.2 --seeds 3 --json -"
)


def evaluate(
    line: Annotated[
        str | None,
        typer.Argument(
            metavar="LINK",
            help=escape(f"RATE[@rtt=TIME], or a scenario whose link it is. Default: {link.DEFAULT}."),
            show_default=False,
            autocompletion=complete.files,
        ),
    ] = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help=f"Queue words, or FILE.py:NAME; repeatable. Default: {', '.join(run.DEFAULT_QUEUES)}.",
            autocompletion=complete.queues,
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Evaluate a queue of every kind.")] = False,
    sections: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Only these sections of the RFC: 5,8.2.6. Default: all.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, max=run.MAX_SEEDS, help="Runs of each scenario and queue.")
    ] = run.SEEDS,
    jobs: Jobs = 0,
    ray: Ray = None,
    state: Annotated[
        Path, typer.Option(metavar="PATH", help="Where finished runs are kept until all is done.")
    ] = run.STATE,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|-",
            help="The matrix as JSON, an object per cell; - prints it and nothing else.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    html: Html = None,
) -> int:
    """Evaluate queues per RFC 7928: its scenarios, with a verdict and plots for each queue."""
    if all_ and aqm:
        raise InputError("--all and --aqm: give one of the two")
    targets = Targets(json, html)
    files.check_target("--state", state)
    for option, path in (("--json", json), ("--html", html)):
        if path is not None and same(str(path), str(state), written=True):
            raise InputError(f"{option} {path}: finished runs are kept there until all is done; name another file")
    given = aqm or (_every() if all_ else run.DEFAULT_QUEUES)
    queues = [candidate.Candidate(queue) for queue in own.parse(given, ray=ray)]
    plan = run.plan(link.parse(line), queues, sections=run.sections_of(sections), seeds=seeds)
    try:
        with executor(ray) as on, ExitStack() as shown:
            update = shown.enter_context(bar("Evaluating", run.count(plan), "runs"))

            def deliver(cells: Sequence[run.Cell]) -> None:
                shown.close()
                try:
                    _deliver(plan, targets, cells)
                except InputError as error:
                    raise InputError(f"{error}; the finished runs are kept in {state}") from None

            run.evaluate(plan, threads=jobs, state=state, on_done=lambda done: update(done, ""), deliver=deliver, on=on)
    except KeyboardInterrupt:
        kept = f"finished runs are kept in {state}; the same command continues from there"
        err.print(f"quell: interrupted: {kept if state.exists() else 'no run had begun'}", soft_wrap=True)
        return INTERRUPTED
    return 0


def _deliver(plan: run.Plan, targets: Targets, cells: Sequence[run.Cell]) -> None:
    """Print and write the results."""
    if not targets.quiet:
        seeds = counted(plan.seeds, "seed")
        about = f"{plan.link}; tail drop is {plan.candidates[0].name}; {seeds}"
        out.print(Text.assemble(("RFC 7928", "bold"), "  ", (about, "dim")))
        out.print(show.matrix(plan, cells, out.width))
        out.print(show.tally(plan, cells))
        for text in (*show.failures(cells), *show.reasons(cells)):
            out.print(text)
        out.print(show.LEGEND, style="dim")

    def made() -> str:
        from quell.evaluation import page

        return page.page(plan, cells, command())

    targets.write_with_page([cell.plain() for cell in cells], made)


def _every() -> list[str]:
    """List a queue of every kind, except those that equal pfifo unless a knob is set."""
    return [kind["name"] for kind in experiment.known_queues() if kind["name"] not in ("fifo", "fixed")]
