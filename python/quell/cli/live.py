"""`quell live`: a queue for the traffic of an interface, failing open (docs/how-to/live.md). Linux only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from quell import _core
from quell._core import InputError
from quell.cli import complete
from quell.cli.options import Dashboard

EXAMPLES = (
    "Examples:\n\n"
    "  sudo quell live --dev eth0 --rate 18mbit --aqm fq_codel\n\n"
    "  sudo quell live --dev eth0 --rate 18mbit --ingress 90mbit --aqm cake --metrics 9100\n\n"
    "  sudo quell live --dev eth0 --autorate --reflector 192.0.2.1 --reflector 192.0.2.2\n\n"
    "  sudo quell live --config /etc/quell/live.toml\n\n"
    "  sudo quell live --dev eth0 --rate 18mbit --dry-run --duration 60s\n\n"
    "  sudo quell live --restore"
)


def live(
    dev: Annotated[
        str | None, typer.Option(metavar="NAME", help="The interface.", autocompletion=complete.interfaces)
    ] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Rate of egress traffic, as in tc: 18mbit.")] = None,
    aqm: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Queue words as in tc (quell queues). Default: fq_codel.",
            autocompletion=complete.words,
        ),
    ] = None,
    ingress: Annotated[
        str | None, typer.Option(metavar="RATE", help="Rate of ingress traffic. Default: not managed.")
    ] = None,
    ingress_aqm: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS", help="Queue of ingress traffic. Default: as --aqm.", autocompletion=complete.words
        ),
    ] = None,
    autorate: Annotated[
        bool | None,
        typer.Option(
            "--autorate",
            help="Both directions, at rates that a loop sets by the delay of reflectors' answers, or of TCP traffic "
            "where none answers (pace). --aqm is then pace (default), cake_autorate or sqm_autorate; --rate and "
            "--ingress are where pace starts.",
        ),
    ] = None,
    reflector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDR",
            help="With --autorate: a host behind the line that is asked some 5 times a second; repeat for more.",
        ),
    ] = None,
    overhead: Annotated[
        int | None, typer.Option(metavar="BYTES", min=0, max=1000, help="Link-layer bytes per packet. Default: 14.")
    ] = None,
    tunnels: Annotated[
        bool | None, typer.Option("--tunnels", help="Distinguish flows by the inner headers of GRE, 6in4 and VXLAN.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="In line: forward frames between --dev and this interface.",
            autocompletion=complete.interfaces,
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="In line: af_packet (default) or af_xdp.",
            autocompletion=complete.one_of("af_packet", "af_xdp"),
        ),
    ] = None,
    door: Annotated[str | None, typer.Option(hidden=True, help="The former name of --backend.")] = None,
    no_fail_open: Annotated[
        bool | None, typer.Option("--no-fail-open", help="In line: accept that traffic stops when quell stops.")
    ] = None,
    cpu: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="One packet loop on each of these CPUs: 0,2-3. Default: one, on any."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with these options as keys; read again on SIGHUP.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(metavar="PATH", help="Unix socket that serves the state as JSON.")
    ] = None,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", min=1, max=65535, help="Port on 127.0.0.1 for Prometheus metrics.")
    ] = None,
    dashboard: Dashboard = None,
    view: Annotated[bool, typer.Option("--view", help="Show the directions live, in the terminal.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Work on copies of the packets; change nothing.")] = False,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Stop after this time: 60s.")] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Remove what a killed quell live left behind, and exit.")
    ] = False,
    print_dropin: Annotated[
        bool, typer.Option("--print-dropin", help="Print a drop-in that lets the unit ask the reflectors, and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> int:
    """Shape and queue the traffic that leaves (and enters) an interface, with any queue. Fails open.

    SIGTERM and Ctrl-C send all held packets and restore the previous state; SIGHUP reads --config again.
    """
    if not sys.platform.startswith("linux"):
        raise InputError("quell live needs Linux: NFQUEUE")
    _core.live(
        dev=dev, rate=rate, aqm=aqm, ingress=ingress, ingress_aqm=ingress_aqm, overhead=overhead, status=status,
        metrics=metrics, dashboard=dashboard, tunnels=tunnels, to=to, backend=backend or door,
        no_fail_open=no_fail_open, cpu=cpu, autorate=autorate, reflector=reflector or None, config=config,
        dry_run=dry_run, duration=duration, restore=restore, print_dropin=print_dropin, quiet=quiet, view=view,
    )  # fmt: skip
    return 0
