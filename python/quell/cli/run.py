"""The command `quell run`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from quell import _core
from quell._core import InputError
from quell.cli import complete
from quell.cli.options import OUTPUT, File, Rpm
from quell.cli.simulate import Changes, Output, heading, simulate, spread, status
from quell.common import files
from quell.common.console import out
from quell.common.text import counted
from quell.experiments import own, responsiveness
from quell.experiments.experiment import Outcome
from quell.results import stats
from quell.views import table

EXAMPLES = (
    "Examples:\n\n"
    "  quell run home --aqm 'pie target 15ms'\n\n"
    "  quell run --rate 10mbit --flow prague --flow cubic --aqm dualpi2 --json -\n\n"
    "  quell run fibre --duration 5s --pcap bottleneck.pcapng"
)


@spread
def run(
    file: File = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Queue words as in tc, or FILE.py:NAME. Default: the file's queue.",
            autocompletion=complete.queues,
        ),
    ] = None,
    rpm: Rpm = None,
    *,
    changes: Changes,
    output: Output,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Capture the bottleneck's packets as pcapng, for Wireshark.", rich_help_panel=OUTPUT
        ),
    ] = None,
) -> int:
    """Run one queue once and show its flows."""
    targets = output.targets()
    files.check_target("--pcap", pcap)
    if aqm is not None and len(aqm) > 1:
        raise InputError(f"--aqm: {counted(len(aqm), 'queue')}; quell run takes one, quell compare several")
    scenario = changes.load(file, "1")
    # As in a comparison, only the bottleneck gets the queue, and the other direction keeps its own. So a run of a
    # comparison can be repeated here.
    [queue] = own.parse(aqm) if aqm else [_core.Queue(scenario.queue)]
    measure = partial(responsiveness.compare, scenario, [queue], simulate, rpm=rpm, **output.bins(targets))
    if pcap is None:
        outcome = measure()
    else:
        kept: list[Outcome] = []

        def capture(part: Path) -> None:
            kept.append(measure(pcap=part))
            if not kept[0].by_job:  # a part of a capture does not replace an earlier one
                raise KeyboardInterrupt

        try:
            files.write_whole(pcap, capture)
        except KeyboardInterrupt:
            if not kept:
                raise
        outcome = kept[0]
    if not targets.quiet and outcome.records:
        rows = stats.summarise(outcome.records)
        heading(scenario, [1])
        out.print(table.compare(rows, out.width))
        if quality := table.applications(outcome.records, out.width):
            out.print(quality)
        record = outcome.records[0]
        out.print(table.flows(record, out.width))
        if record.get("hosts"):
            out.print(table.hosts(record))
        for tins, title in ((record.get("tins"), "tin"), ((record.get("up") or {}).get("tins"), "tin of the up link")):
            if tins:
                out.print(table.tins(tins, title))
        if wifi := outcome.records[0].get("wifi"):
            out.print(table.cell(wifi))
        out.print(table.legend(rows, out.width, styled=out.is_terminal))
    targets.write(outcome, single=True, series=output.series is not None)
    return status(outcome)
