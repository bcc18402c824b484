"""`quell attach` and `quell detach`: quell's queues in the kernel, as BPF (docs/how-to/kernel.md). Linux only."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from quell import _core
from quell._core import InputError
from quell.cli import complete, table

EXAMPLES = {"attach": table.examples("attach"), "detach": "Example:\n\n  sudo quell detach eth0"}


def _linux(command: str) -> None:
    if not sys.platform.startswith("linux"):
        raise InputError(f"quell {command} needs Linux: queue disciplines in BPF")


@table.options("attach")
def attach(
    dev: Annotated[str, table.argument("attach", last=1, autocompletion=complete.interfaces)],
    words: Annotated[list[str] | None, table.argument("attach", first=1)] = None,
    **options: Any,
) -> int:
    """Run one of quell's queues in the kernel, as BPF: no process remains, no packet leaves the kernel.

    Given again with the same name, it changes the rate and the limit of what is attached.
    """
    _linux("attach")
    _core.attach(dev, " ".join(words or ()) or None, **options)
    return 0


@table.options("detach")
def detach(devices: Annotated[list[str], table.argument("detach")], **options: Any) -> int:
    """Remove what quell attach put into the kernel and restore the previous queue."""
    _linux("detach")
    _core.detach(devices, **options)
    return 0
