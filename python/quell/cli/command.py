"""The class of all commands."""

from __future__ import annotations

from math import isnan
from typing import Any

import typer.core


class Command(typer.core.TyperCommand):
    """A command that refuses `nan`, which Python reads as a number and no range of an option excludes."""

    def invoke(self, ctx: Any) -> Any:
        """Check the numbers, then run the command."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, float) and isnan(value):
                raise typer.BadParameter("nan is not a number", ctx=ctx, param=parameter)
        return super().invoke(ctx)
