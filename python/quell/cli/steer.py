"""`quell steer`: controllers set knobs of the kernel's queues over rtnetlink (docs/how-to/kernel.md). Linux only."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quell import _core
from quell._core import InputError
from quell.cli import complete

EXAMPLES = (
    "Examples:\n\n"
    "  sudo quell steer eth0 wqm --with limit\n\n"
    "  sudo quell steer eth0 rlaqm --with clsact --rate 20mbit\n\n"
    "  sudo quell steer eth0 1:10 'learnqueue initial 20' --with limit --rate 20mbit\n\n"
    "  sudo quell steer eth0 1:10 18mbit --with rate\n\n"
    "  sudo quell steer eth0 pace --with rate --reflector 192.0.2.1 --reflector 192.0.2.2\n\n"
    "  my-program | sudo quell steer eth0 - --with rate --min 1mbit --max 50mbit\n\n"
    "  quell steer eth0 wqm --with limit --dry-run --duration 10s\n\n"
    "  sudo quell steer --restore"
)


def steer(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DEV [PARENT] CONTROLLER",
            help="The interface; root (default), a class as in 1:10 or a handle as in 1:; "
            "wqm, learnqueue or fixed (limit), rlaqm, pie or fixed (clsact, bpf), pace, cake_autorate or sqm_autorate "
            "(rate), with options; a value that stays; or - for lines on standard input.",
            show_default=False,
            autocompletion=complete.interface_or_controller,
        ),
    ] = None,
    knobs: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="KNOB",
            help="limit, target or rate; clsact: a drop probability, by a BPF program; bpf: that of a queue of "
            "quell attach; several for lines: limit,rate.",
            autocompletion=complete.listed("limit", "target", "rate", "clsact", "bpf"),
        ),
    ] = None,
    reflector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDR",
            help="With --with rate and pace, cake_autorate or sqm_autorate: a host behind the line that is asked some "
            "5 times a second; repeat for more.",
        ),
    ] = None,
    ecn: Annotated[
        bool, typer.Option("--ecn", help="With clsact: mark packets of flows that use ECN instead of dropping them.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time between decisions, 1ms to 1s. Default: the controller's."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Rate of the line, where neither the queue nor the interface says it."),
    ] = None,
    least: Annotated[
        str | None,
        typer.Option("--min", metavar="VALUE", help="Set no less: packets, a time, a rate or a probability."),
    ] = None,
    most: Annotated[str | None, typer.Option("--max", metavar="VALUE", help="Set no more.")] = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="What a line on standard input sets holds for this time. Default: 10s."),
    ] = None,
    insist: Annotated[
        bool,
        typer.Option(
            "--insist/--hands-off", help="Put back what somebody else changes, or end then.", show_default="hands-off"
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be set; change nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Samples as JSON lines on standard output.")] = False,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Stop after this time: 60s.")] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Bring back what a killed quell steer left changed, and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> int:
    """Turn knobs of the kernel's own queues: a controller or program sets limit, target, rate or drops.

    SIGTERM and Ctrl-C bring back what was before; after kill -9 a second process does.
    """
    if not sys.platform.startswith("linux"):
        raise InputError("quell steer needs Linux: rtnetlink")
    given = [word for text in words or [] for word in text.split()]
    _core.steer(
        given, knobs=knobs, reflectors=reflector or [], ecn=ecn, every=every, rate=rate, least=least, most=most,
        valid=valid, duration=duration, dry_run=dry_run, insist=insist, json=json, restore=restore, quiet=quiet,
    )  # fmt: skip
    return 0
