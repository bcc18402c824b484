"""`quell shell`: a program behind an emulated link with any queue (docs/how-to/shell.md). Linux only."""

from __future__ import annotations

import json as _json
import os
import re
import select
import shlex
import signal
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from quell import _core
from quell._core import InputError, Scenario
from quell.cli import complete
from quell.cli.options import Dashboard, Flent, Html, Json, Series
from quell.common.console import Screen, err
from quell.experiments import experiment
from quell.experiments.experiment import Job, Outcome
from quell.inputs import flent as flent_file
from quell.inputs import notes, shortcuts
from quell.linux import nat
from quell.linux.real import check_path
from quell.views.targets import Targets

if TYPE_CHECKING:
    from quell._core import Shell

CONTEXT = {"allow_interspersed_args": False}
EXAMPLES = (
    "Examples:\n\n"
    "  quell shell --rate 15mbit --delay 20ms --aqm fq_codel -- curl http://example.org/\n\n"
    "  quell shell --trace builtin:lte --up-trace builtin:lte-up --aqm codel --html run.html -- iperf3 -c 192.0.2.1\n\n"
    "  quell shell --rate 10mbit --server 'python3 -m http.server 8000' -- sh -c 'curl http://$QUELL_SERVER:8000/'"
)
_DOWN, _UP = "Link, to the command (and from it, by default)", "Link, from the command"
_LEAST_BINS = 2
"""Of a data file for Flent."""
_BIN_S, _LOOK_S = 0.1, 0.25

Forwarding = Callable[[str, str], AbstractContextManager[None]]
"""Gives the context in which the packets of a shell with this device and network are forwarded."""


def shell(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] COMMAND...", help="The command. Default: your shell.", show_default=False),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Rate, as in tc: 15mbit, or DOWN/UP.", rich_help_panel=_DOWN)
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Rate trace in Mahimahi's format.",
            rich_help_panel=_DOWN,
            autocompletion=complete.traces,
        ),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="One-way delay: 20ms.", rich_help_panel=_DOWN)
    ] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="P", help="Random loss behind the queue: 0.01 or 1%.", rich_help_panel=_DOWN)
    ] = None,
    aqm: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Queue words as in tc (quell queues).",
            rich_help_panel=_DOWN,
            autocompletion=complete.words,
        ),
    ] = None,
    up_rate: Annotated[str | None, typer.Option(metavar="RATE", help="Rate.", rich_help_panel=_UP)] = None,
    up_trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Trace.", rich_help_panel=_UP, autocompletion=complete.traces)
    ] = None,
    up_delay: Annotated[str | None, typer.Option(metavar="TIME", help="Delay.", rich_help_panel=_UP)] = None,
    up_loss: Annotated[str | None, typer.Option(metavar="P", help="Loss.", rich_help_panel=_UP)] = None,
    up_aqm: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Queue.", rich_help_panel=_UP, autocompletion=complete.words)
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Use \\[link] and \\[link.up] of a scenario file or a built-in scenario.",
            autocompletion=complete.files,
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Run this on the other side, in a separate namespace without network access.",
        ),
    ] = None,
    out: Annotated[
        bool,
        typer.Option("--nat", help="Give the command access to the Internet through NAT (IPv4; root)."),
    ] = False,
    mtu: Annotated[int, typer.Option(metavar="BYTES", help="Largest packet.")] = 1500,
    no_offload: Annotated[
        bool,
        typer.Option("--no-offload", help="Have the kernel deliver single packets only."),
    ] = False,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Random seed of queues and loss.")] = None,
    view: Annotated[bool, typer.Option("--view", help="Show the link live, below the command's output.")] = False,
    dashboard: Dashboard = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
    json: Json = None,
    html: Html = None,
    flent: Flent = None,
    series: Series = None,
) -> int:
    """Run a command behind an emulated link with any rate or trace, delay, loss and queue.

    The other side of the link is this machine, at the address in QUELL_SERVER. The exit status is the command's.
    """
    if not sys.platform.startswith("linux"):
        raise InputError("quell shell needs Linux: network namespaces and TUN devices")
    targets = Targets(json, html, flent=flent)
    down = {"rate": rate, "trace": trace, "delay": delay, "loss": loss, "queue": aqm}
    up = {"rate": up_rate, "trace": up_trace, "delay": up_delay, "loss": up_loss, "queue": up_aqm}
    link = _link(scenario, down, up, seed)
    words = command or [os.environ.get("SHELL") or "/bin/sh"]
    serve = _words("--server", server)

    def start(output: tuple[int, int] | None) -> Shell:
        return _core.Shell(
            link, words, base_rtt=scenario is not None, bin_s=targets.bins(series) or _BIN_S, server=serve, mtu=mtu,
            offload=not no_offload, output=output, hold=True, dashboard=dashboard,
        )  # fmt: skip

    began = time.monotonic()
    if out and serve:
        raise InputError("--nat: with --server the other side has no network access; give one of the two")
    if out:
        nat.check()
    forwarding = nat.translated if out else lambda _device, _network: nullcontext()
    with _command_gets_signals() as signals:
        run = _watch if view else _run
        running, status = run(start, forwarding, signals, link, quiet)
    if (why := running.not_executed()) is not None:
        not_found = status == 127 and "/" not in words[0]
        err.print(f"quell: {words[0]}: {'command not found' if not_found else why}", markup=False, soft_wrap=True)
        return status
    if serve and (ended := running.server_ended()) is not None:
        why = ended[1] or f"it ended before the command did, with status {ended[0]}"
        err.print(f"quell: --server {serve[0]}: {why}", markup=False, soft_wrap=True)
    records: list[dict[str, Any]] = _json.loads(running.finish())
    if not quiet:
        (err if err.is_terminal else Screen(stderr=True, width=100)).print(_table(records))
        _complain(records)
    plain = records if series else experiment.without_series(records)
    joined = []
    if flent and min(len(record["series"]["backlog_ms"]) for record in records) < _LEAST_BINS:
        err.print(
            f"quell: --flent: nothing to plot: the command ended within {_LEAST_BINS} bins; {flent} is not written"
        )
    elif flent:
        joined.append(flent_file.of_shell(records, _base_ms(link, of_flows=scenario is not None)))
    targets.write(_outcome(link, records, began), json=plain, flent=joined)
    return status


def _base_ms(link: Scenario, *, of_flows: bool) -> float:
    """Return the delays of both links; where one has none, with `of_flows`, half of the first flow's round trip."""
    written = tomllib.loads(link.toml())
    flows = written.get("flow", ()) if of_flows else ()
    half = _core.quantity(flows[0]["rtt"], "time") / 2 if flows else 0.0
    ways = (written["link"], written["link"].get("up", written["link"]))
    return sum(_core.quantity(way.get("delay", "0ms"), "time") or half for way in ways) / 1e6


def _outcome(link: Scenario, records: Sequence[dict[str, Any]], began: float) -> Outcome:
    """Convert the records to an experiment for the report, with each direction as a queue."""
    named = {i: record | {"queue": f"{record['scenario']}: {record['queue']}"} for i, record in enumerate(records)}
    jobs = [Job(record["queue"], record["seed"]) for record in named.values()]
    packets = float(sum(record["packets"] for record in records))
    return Outcome(link, jobs, named, wall_s=time.monotonic() - began, packets=packets, real=True)


# The link. ------------------------------------------------------------------------------------------------------------


def _link(source: str | None, down: dict[str, str | None], up: dict[str, str | None], seed: str | None) -> Scenario:
    """Make a scenario of the options; its errors name the options."""
    if source is not None:
        others = [f"--{key}" for key in ("delay", "loss") if down[key] is not None]
        others += [f"--up-{_option(key)}" for key, value in up.items() if value is not None]
        if others:
            raise InputError(f"{others[0]}: not with --scenario; write it into the file's [link] or [link.up]")
        found = experiment.load(source, rate=down["rate"], trace=down["trace"], queue=down["queue"], seed=seed)
        check_path(f"--scenario {source}", tomllib.loads(found.toml()))
        return found
    if down["rate"] is None and down["trace"] is None:
        if any(up.values()) or any(down.values()):
            raise InputError("there is no link; give --rate, as in --rate 15mbit, or --trace or --scenario")
        return experiment.load(seed=seed)
    if down["rate"] is not None and "/" in down["rate"]:
        if up["rate"] is not None:
            raise InputError(f"--rate {down['rate']}: not with --up-rate; both say the rate of the way up")
        down["rate"], up["rate"] = shortcuts.both_ways(down["rate"])
    of_link: Any = {**down, "up": up if any(value is not None for value in up.values()) else None}
    try:
        link = experiment.load(Scenario.from_keys(link=of_link), seed=seed)
    except InputError as error:
        raise InputError(re.sub(r"^link\.(up\.)?(\w+)", _named, str(error))) from None
    notes.warn_of_keys({"link": of_link})
    return link


def _option(key: str) -> str:
    return "aqm" if key == "queue" else key


def _named(found: re.Match[str]) -> str:
    return f"--{'up-' if found[1] else ''}{_option(found[2])}"


def _words(option: str, line: str | None) -> list[str] | None:
    if line is None:
        return None
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"{option}: {error}; quote it as in a shell") from None
    if not words:
        raise InputError(f"{option}: it is empty; write a command")
    return words


# Running. -------------------------------------------------------------------------------------------------------------


@contextmanager
def _command_gets_signals() -> Iterator[list[int]]:
    """While the command runs, leave Ctrl-C to it (the terminal sends it there, too) and forward SIGTERM and SIGHUP."""
    caught: list[int] = []
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, lambda n, _frame: caught.append(n))
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(running: Shell, caught: list[int], timeout_s: float) -> int | None:
    status = running.wait(timeout_s)
    if running.link_lost():
        lost = f"quell: the link is gone: its device {running.device} was deleted; the command continues without it"
        _tell(lost, markup=False)
    while caught:
        running.signal(caught.pop(0))
    return status


def _run(start: Any, forwarding: Forwarding, caught: list[int], link: Scenario, quiet: bool) -> tuple[Shell, int]:
    running: Shell = start(None)
    _say_dashboard(running)
    with forwarding(running.device, running.network):
        if not quiet:
            _announce(running, link)
        running.go()
        while (status := _wait(running, caught, _LOOK_S)) is None:
            pass
    return running, status


def _tell(text: str, **how: Any) -> None:
    """Print a line, unless nothing reads standard error: SIGTERM, which is for the command, could not end the wait."""
    if select.select((), (sys.stderr,), (), _LOOK_S)[1]:
        err.print(text, soft_wrap=True, **how)


def _say_dashboard(running: Shell) -> None:
    """Print the dashboard's address, also where nothing else is printed: its port cannot be guessed."""
    if running.dashboard:
        _tell(f"quell: dashboard: {running.dashboard}", markup=False)


def _announce(running: Shell, link: Scenario) -> None:
    address, six = running.server
    where = {
        "caller": "the other side is this machine",
        "server": "the other side is --server's, without network access",
        "unprivileged": "not root: the other side is an empty namespace without network access; --server runs "
        "something there",
    }[running.outside]
    both = f"{address} and {six}" if six else address
    _tell(f"quell: {experiment.rates(link)}, {link.queue}; {where}: QUELL_SERVER={both}", style="dim")


def _watch(start: Any, forwarding: Forwarding, caught: list[int], _link: Scenario, _quiet: bool) -> tuple[Shell, int]:
    """Run with the command's output above a live view."""
    from rich.live import Live

    pipes = [os.pipe(), os.pipe()]
    running: Shell = start((pipes[0][1], pipes[1][1]))
    for _, end in pipes:
        os.close(end)
    _say_dashboard(running)
    with forwarding(running.device, running.network), Live(console=err, refresh_per_second=8, transient=True) as live:
        running.go()
        # Threads, because a command that is not read from stops.
        printers = [threading.Thread(target=_print_lines, args=(os.fdopen(end, "rb"), live)) for end, _ in pipes]
        for printer in printers:
            printer.start()
        while (status := _wait(running, caught, _LOOK_S)) is None:
            live.update(_view(_json.loads(running.view())))
        for printer in printers:
            printer.join(timeout=1)
    return running, status


def _print_lines(pipe: IO[bytes], live: Any) -> None:
    with pipe:
        # A line without an end is printed in pieces.
        while line := pipe.readline(1 << 16):
            live.console.print(Text.from_ansi(line.decode(errors="replace").rstrip("\n")), soft_wrap=True)


# What is shown. -------------------------------------------------------------------------------------------------------


def _view(looks: Sequence[dict[str, Any]]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title_justify="left")
    titles = (
        "",
        "rate\nMbit/s",
        "of\nMbit/s",
        "in queue\nms",
        "backlog\npackets",
        "drops",
        "marks",
        "limit",
        "p",
        "missed",
    )
    for title in titles:
        table.add_column(title, justify="right", min_width=6)
    for name, v in zip(("down", "up"), looks, strict=True):
        limit = str(v["limit_packets"] or "–")
        sojourn = "–" if v["sojourn_ms"] is None else f"{v['sojourn_ms']:.1f}"
        table.add_row(
            name, f"{v['throughput_mbps']:.2f}", f"{v['capacity_mbps']:.2f}", sojourn, str(v["backlog_packets"]),
            str(v["drops"]), str(v["marks"]), limit, f"{v['probability']:.3f}", str(v["missed"]),
        )  # fmt: skip
    return table


def _table(records: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    titles = ("", "queue", "Mbit/s", "used", "wait ms", "p95", "packets", "drops", "marks", "missed")
    for title in titles:
        table.add_column(title, justify="left" if title in ("", "queue") else "right", no_wrap=title != "queue")
    for r in records:
        table.add_row(
            r["scenario"], r["queue"], f"{r['throughput_mbps']:.3f}", f"{100 * r['utilisation']:.1f} %",
            f"{r['sojourn_ms']['mean']:.2f}", f"{r['sojourn_ms']['p95']:.2f}", str(r["packets"]), str(r["drops"]),
            str(r["marks"]), str(r["live"]["missed"]),
        )  # fmt: skip
    return table


def _complain(records: Sequence[dict[str, Any]]) -> None:
    """Warn if the machine was too slow for the link."""
    for r in records:
        missed, late = r["live"]["missed"], r["live"]["late_ms"]["max"]
        if missed > r["packets"] / 100:
            err.print(
                f"quell: {r['scenario']}: {missed} of {r['packets']} packets left over 1 ms late (up to {late:.1f}): "
                "this machine is too slow, or too busy, for the link",
                style="yellow", soft_wrap=True,
            )  # fmt: skip
