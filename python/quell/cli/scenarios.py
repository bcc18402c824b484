"""The command `quell scenarios`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quell import _core
from quell._core import InputError
from quell.cli import complete
from quell.cli.options import ShownJson
from quell.common import names
from quell.common.console import out
from quell.common.status import OK
from quell.views import table
from quell.views.targets import Targets

EXAMPLES = (
    "Examples:\n\n  quell scenarios\n\n  quell scenarios home > my.toml\n\n"
    "  quell scenarios --schema > scenario.schema.json"
)


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Print the file of this scenario.",
            show_default=False,
            autocompletion=complete.scenarios,
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print a JSON Schema of scenario files, for editors.")
    ] = False,
    json: ShownJson = None,
) -> int:
    """List the built-in scenarios, or print one as a file."""
    if schema:
        if name is not None or json is not None:
            raise InputError("--schema: the schema is the same for all scenarios; leave out the other arguments")
        print(_core.scenario_schema())
        return OK
    targets = Targets(json)
    known = _core.scenarios()
    if name is not None:
        names.known("built-in scenario", name, [s[0] for s in known])
    chosen = [s for s in known if name in (None, s[0])]
    if json is not None:
        targets.write_json([dict(zip(("name", "summary", "toml"), s, strict=True)) for s in chosen])
    elif name is not None:
        sys.stdout.write(chosen[0][2])
    if not targets.quiet and (name is None):
        out.print(table.scenarios([(n, about) for n, about, _ in chosen]))
    return OK
