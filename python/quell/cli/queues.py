"""The command `quell queues`."""

from __future__ import annotations

from typing import Annotated

import typer

from quell.cli import complete
from quell.cli.options import ShownJson
from quell.common import names
from quell.common.console import out
from quell.common.status import OK
from quell.experiments import experiment
from quell.views import table
from quell.views.targets import Targets

EXAMPLES = "Examples:\n\n  quell queues\n\n  quell queues fq_codel"


def queues(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="Show only this queue.", show_default=False, autocompletion=complete.kinds),
    ] = None,
    json: ShownJson = None,
) -> int:
    """List the queues with their options and defaults."""
    targets = Targets(json)
    known = experiment.known_queues()
    if kind is not None:
        names.known("queue", kind, [q["name"] for q in known])
    chosen = [q for q in known if kind in (None, q["name"])]
    if json is not None:
        targets.write_json(chosen)
    if not targets.quiet:
        out.print(table.queues(chosen))
    return OK
