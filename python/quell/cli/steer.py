"""`quell steer`: controllers set knobs of the kernel's queues over rtnetlink (docs/how-to/kernel.md). Linux only."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from quell import _core
from quell._core import InputError
from quell.cli import complete, table

EXAMPLES = table.examples("steer")


@table.options("steer")
def steer(
    words: Annotated[list[str] | None, table.argument("steer", autocompletion=complete.interface_or_controller)] = None,
    **options: Any,
) -> int:
    """Set knobs of the kernel's own queues: a controller or program sets limit, target, rate or drops.

    SIGTERM and Ctrl-C restore the previous settings; after kill -9 a second process does so.
    """
    if not sys.platform.startswith("linux"):
        raise InputError("quell steer needs Linux: rtnetlink")
    _core.steer(words or [], **options)
    return 0
