"""`quell live`: a queue for the traffic of an interface, failing open (docs/how-to/live.md). Linux only."""

from __future__ import annotations

import sys
from typing import Any

from quell import _core
from quell._core import InputError
from quell.cli import table

EXAMPLES = table.examples("live")


@table.options("live")
def live(**options: Any) -> int:
    """Shape and queue an interface's traffic, with any queue. If quell stops, traffic continues.

    SIGTERM and Ctrl-C send all held packets and restore the previous state; SIGHUP reads --config again.
    """
    if not sys.platform.startswith("linux"):
        raise InputError("quell live needs Linux: NFQUEUE")
    return _core.live(**options)
