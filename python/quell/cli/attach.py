"""`quell attach` and `quell detach`: queues of quell's in the kernel, as BPF (docs/how-to/kernel.md). Linux only."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quell import _core
from quell._core import InputError
from quell.cli import complete

EXAMPLES = (
    "Examples:\n\n"
    "  sudo quell attach eth0 hush --rate 18mbit\n\n"
    "  sudo quell attach eth0 hush --rate 20mbit\n\n"
    "  sudo quell attach eth0 hush noecn --rate 20mbit\n\n"
    "  sudo quell attach eth0\n\n"
    "  sudo quell detach eth0"
)


def _linux(command: str) -> None:
    if not sys.platform.startswith("linux"):
        raise InputError(f"quell {command} needs Linux: queue disciplines in BPF")


def attach(
    dev: Annotated[
        str,
        typer.Argument(metavar="DEV", help="The interface.", show_default=False, autocompletion=complete.interfaces),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME [ecn|noecn]]",
            help="hush, fq_codel (with noecn they drop packets of flows that use ECN, too), codel (with ecn it marks "
            "them), rlaqm or fifo; without: print what is attached, with gauges, as JSON lines.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Shape to this rate. Without it, each queue of an interface with several (mq) gets one.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Packets at most.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a discipline that somebody has chosen; detach brings it back.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> int:
    """Put a queue of quell's into the kernel as BPF: no process stays, no packet leaves the kernel.

    Given again with the same name, it changes the rate and the limit of what is attached.
    """
    _linux("attach")
    _core.attach(
        dev, " ".join(words or ()) or None, rate=rate, limit=limit, replace=replace, dry_run=dry_run, quiet=quiet
    )
    return 0


def detach(
    devices: Annotated[list[str], typer.Argument(metavar="DEV...", help="The interfaces.", show_default=False)],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> int:
    """Take away what quell attach put there, and bring back what was before."""
    _linux("detach")
    _core.detach(devices, quiet=quiet)
    return 0
