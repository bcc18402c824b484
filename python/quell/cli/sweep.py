"""The command `quell sweep`."""

from __future__ import annotations

from typing import Annotated

import typer

from quell._core import InputError
from quell.cli import complete
from quell.cli.options import Csv, File, Jobs, Json, Parquet, Seeds
from quell.cli.simulate import Changes, heading, kept, spread
from quell.common.console import bar, out
from quell.common.status import OK
from quell.experiments import own
from quell.results.stats import row_name
from quell.views import table
from quell.views.targets import Targets

EXAMPLES = (
    "Example:\n\n  quell sweep home --over link.rate=5mbit,50mbit --over flow.rtt=20ms,80ms --aqm pfifo --aqm fq_codel"
)


@spread
def sweep(
    file: File = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Key and its values; repeatable.", autocompletion=complete.keys),
    ] = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Queue words, or FILE.py:NAME; repeatable. Default: the file's queue.",
            autocompletion=complete.queues,
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    *,
    changes: Changes,
    json: Json = None,
    parquet: Parquet = None,
    csv: Csv = None,
) -> int:
    """Run a scenario with all combinations of some keys' values."""
    from quell.experiments import grid

    targets = Targets(json, None, parquet, csv)
    scenario = changes.load(file, seeds)
    if not over and len(aqm or ()) < 2:
        raise InputError("--over: nothing varies; give a key and its values, as in --over link.rate=10mbit,50mbit")
    values = grid.parse(over or ())
    queues = own.parse(aqm or ())
    total = grid.count(scenario, values, queues)
    with bar("Simulating", total, "runs") as update:
        swept = grid.run(scenario, values, queues, threads=jobs, on_done=lambda done: update(done, ""))
    found = swept.runs
    if found and not targets.quiet:
        runs = len(found) // max(1, len({(*map(str, p.values()), row_name(r)) for p, r in found}))
        heading(scenario, [runs], values)
        out.print(table.sweep(found, out.width))
    if found:
        targets.write_swept(found, interrupted=swept.interrupted)
    return kept(len(found), swept.total) if swept.interrupted else OK
