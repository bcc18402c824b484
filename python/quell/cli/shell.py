"""`quell shell`: a program behind an emulated link with any queue (docs/how-to/shell.md). Linux only."""

from __future__ import annotations

import json as _json
import os
import re
import select
import shlex
import shutil
import signal
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from quell import _core
from quell._core import InputError, Scenario
from quell.cli import complete, prompt
from quell.cli.options import Dashboard, Flent, Html, Json, Series
from quell.common.console import Errors, err
from quell.common.status import BAD_INPUT, INTERRUPTED, OK
from quell.common.text import error_line
from quell.experiments import experiment, own
from quell.inputs import flent as flent_file
from quell.inputs import notes, shortcuts
from quell.linux import nat
from quell.linux.real import check_path
from quell.results import commands
from quell.results.limits import STATUS, Limit
from quell.results.stats import Record
from quell.views import commands as view_of
from quell.views.targets import Targets, write_each
from quell.views.targets import command as typed

if TYPE_CHECKING:
    from quell._core import Shell

CONTEXT = {"allow_interspersed_args": False}
EXAMPLES = (
    "Examples:\n\n"
    "  quell shell --rate 15mbit --delay 20ms --aqm fq_codel --nat -- curl http://example.org/\n\n"
    "  quell shell --rate 15mbit --delay 20ms --aqm pfifo --aqm hush --html both.html -- ./measure.sh\n\n"
    "  quell shell --rate 15mbit --fail-if 'down.p95>100ms' --json run.json -- ./measure.sh\n\n"
    "  quell shell --scenario lte --aqm codel --html run.html -- sh -c 'iperf3 -c $QUELL_SERVER'\n\n"
    "  quell shell --rate 10mbit --server 'python3 -m http.server 8000' -- sh -c 'curl http://$QUELL_SERVER:8000/'"
)
_DOWN, _UP = "Link, to the command (and from it, by default)", "Link, from the command"
_MIN_BINS = 2
"""Minimum number of bins of a data file for Flent."""
_BIN_S, _POLL_S = 0.1, 0.25
"""Default width of a series' bins, and longest wait between two checks of the running command, s."""

Forwarding = Callable[[str, str], AbstractContextManager[None]]
"""Returns the context in which packets of a shell with this device and network are forwarded."""


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
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Queue words as in tc (quell queues); repeatable: the command runs once behind each.",
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
        str | None,
        typer.Option(
            metavar="WORDS", help="Queue. Default: that of --aqm.", rich_help_panel=_UP, autocompletion=complete.words
        ),
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
    mtu: Annotated[int, typer.Option(metavar="BYTES", min=0, max=65535, help="Largest packet.")] = 1500,
    no_offload: Annotated[
        bool,
        typer.Option("--no-offload", help="Have the kernel deliver single packets only."),
    ] = False,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Random seed of queues and loss.")] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC>VALUE",
            help="Exit with status 117 if the command ends well and this holds, as 'down.p95>100ms'; repeatable.",
            autocompletion=complete.limits,
        ),
    ] = None,
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

    With --json - the command's output goes to standard error.
    """
    if not sys.platform.startswith("linux"):
        raise InputError("quell shell needs Linux: network namespaces and TUN devices")
    targets = Targets(json, html, flent=flent)
    limits = [Limit.parse(text) for text in fail_if or ()]
    down = {"rate": rate, "trace": trace, "delay": delay, "loss": loss}
    up = {"rate": up_rate, "trace": up_trace, "delay": up_delay, "loss": up_loss, "queue": up_aqm}
    queues: list[str | None] = [*(aqm or ())] or [None]
    for queue in aqm or ():
        own.one_queue(queue, "--aqm: ")
    links = [_link(scenario, down | {"queue": words}, dict(up), seed) for words in queues]
    serve = _words("--server", server)
    if out and serve:
        raise InputError("--nat: with --server the other side has no network access; give one of the two")
    if out:
        nat.check()
    words = command or prompt.interactive(experiment.rates(links[0]))
    given = _Given(
        words=words, serve=serve, of_flows=scenario is not None, bin_s=targets.bins(series) or _BIN_S, mtu=mtu,
        offload=not no_offload, dashboard=dashboard, quiet=quiet,
        # Standard output is for JSON only.
        output=(2, 2) if targets.quiet else None,
        forwarding=nat.translated if out else lambda _device, _network: nullcontext(),
    )  # fmt: skip
    runs, status, outside = _run_all(given, links, _watch if view else _run)
    if not runs:
        return status
    if len(runs) < len(links):
        targets.keep_earlier()
    if not quiet:
        _report(runs)
        if (hint := _unreached(runs, outside, out=out)) is not None:
            err.print(f"quell: {hint}", style="yellow", soft_wrap=True)
    flents = _flents(flent, given, list(zip(links, runs, strict=False)))
    records = [record for run in runs for record in run.records]
    plain = records if series else experiment.without_series(records)
    about = "; ".join(dict.fromkeys(_describe(link, given, queues=False) for link in links))
    write_each([
        partial(targets.write_json, plain, indent=None),
        partial(targets.write_flent, flents),
        partial(targets.write_page, lambda: view_of.page(runs, about, typed()), "Report"),
    ])  # fmt: skip
    return _exceeded(limits, runs) or status if status == OK else status


@dataclass(frozen=True, kw_only=True)
class _Given:
    """Parameters that are the same for each queue."""

    words: list[str]
    serve: list[str] | None
    of_flows: bool
    """Whether a link without delay gets half of the first flow's base round trip in each direction."""
    bin_s: float
    mtu: int
    offload: bool
    dashboard: int | None
    quiet: bool
    output: tuple[int, int] | None
    forwarding: Forwarding

    def start(self, link: Scenario, output: tuple[int, int] | None = None) -> Shell:
        return _core.Shell(
            link, self.words, base_rtt=self.of_flows, bin_s=self.bin_s, server=self.serve, mtu=self.mtu,
            offload=self.offload, output=output or self.output, hold=True, dashboard=self.dashboard,
        )  # fmt: skip


class _Signals:
    """Signals that arrived while a command ran."""

    def __init__(self) -> None:
        self.for_command: list[int] = []
        self.stop = False
        """Whether to stop before the next queue."""

    def note(self, number: int) -> None:
        self.stop = True
        # The terminal also sends Ctrl-C to the command.
        if number != signal.SIGINT:
            self.for_command.append(number)


def _run_all(
    given: _Given, links: Sequence[Scenario], run: Callable[..., tuple[Shell, int, float]]
) -> tuple[list[commands.Run], int, str]:
    """Run the command behind each link; return the runs, the first exit status other than 0, and `Shell.outside`.

    A failure to run the command ends the sequence; earlier runs are kept.
    """
    records: list[dict[str, Any]] = []
    statuses = []
    outside = ""
    with _command_gets_signals() as signals:
        for done, link in enumerate(links):
            turn = f"{done + 1} of {len(links)}: " if len(links) > 1 else ""
            try:
                running, ended, wall_s = run(given, link, signals, turn)
                outside = running.outside
                found, status = _records(given, running, ended, wall_s)
            except InputError as error:
                if not records:
                    raise
                _say(str(error))
                found, status = [], BAD_INPUT
            records += found
            statuses.append(status)
            if not found or signals.stop:
                break
    whole = len(records) == 2 * len(links)
    if records and not whole:
        _say(f"stopped after {len(records) // 2} of {len(links)} queues")
    status = next((status for status in statuses if status), OK if whole else INTERRUPTED)
    return commands.runs(records), status, outside


def _records(given: _Given, running: Shell, status: int, wall_s: float) -> tuple[list[dict[str, Any]], int]:
    """Return the records of a command that has ended (none if it could not be executed) and the exit status."""
    if (why := running.not_executed()) is not None:
        not_found = status == 127 and "/" not in given.words[0]
        _say(f"{given.words[0]}: {'command not found' if not_found else why}")
        return [], status
    if given.serve and (ended := running.server_ended()) is not None:
        why = ended[1] or f"it ended before the command did, with status {ended[0]}"
        _say(f"--server {given.serve[0]}: {why}")
        # There was no server for the command to reach.
        status = status or (ended[0] if ended[1] else 0)
    told = {"words": given.words, "status": status, "wall_s": wall_s}
    return [record | {"command": told} for record in _json.loads(running.finish())], status


def _say(text: str) -> None:
    err.print(f"quell: {error_line(text)}", soft_wrap=True)


def _report(runs: Sequence[commands.Run]) -> None:
    """Print the tables, and warn of conditions that invalidate their figures."""
    width = None if err.is_terminal or "COLUMNS" in os.environ else 100
    screen = Errors(width=width)
    screen.print(view_of.table(runs, screen.width))
    if (flows := view_of.flows(runs)) is not None:
        screen.print(flows)
    for run in runs:
        _warn_if_late(run.records)


def _unreached(runs: Sequence[commands.Run], outside: str, *, out: bool) -> str | None:
    """Return what to do if no run reached anything, else None."""
    if all(run.sent_nothing for run in runs):
        what = "no data of TCP or UDP crossed the link"
    elif all(run.sent_nothing or run.unanswered for run in runs):
        what = "no data of TCP or UDP came back over the link"
    else:
        return None
    if outside == "unprivileged":
        return f"{what}. Without root nothing is on the other side; start a server there with --server"
    server = "--server's" if outside == "server" else "a server on this machine"
    # Without quotes, the caller's own shell would replace the variable by an empty text.
    connect = "To reach a server, connect to $QUELL_SERVER, as in -- sh -c 'curl http://$QUELL_SERVER:8000/'"
    reach = f"{connect}; {server} must listen on 0.0.0.0 or ::, not only on 127.0.0.1"
    return f"{what}. {reach}" if out or outside == "server" else f"{what}. {reach}. The Internet needs --nat"


def _exceeded(limits: Sequence[Limit], runs: Sequence[commands.Run]) -> int:
    """Print each limit that a run exceeds; return the exit status."""
    found = [(limit, run.name, had) for run in runs for limit in limits if (had := limit.exceeded(run)) is not None]
    for limit, name, had in found:
        _say(f"--fail-if {limit.text}: {name}: {had}")
    return STATUS if found else OK


def _flents(path: Path | None, given: _Given, found: Sequence[tuple[Scenario, commands.Run]]) -> list[dict[str, Any]]:
    """Make the data files for Flent; a run too short to plot has none."""
    joined, several = [], len(found) > 1
    for link, run in found if path is not None else ():
        if min(len(record["series"]["backlog_ms"]) for record in run.records) < _MIN_BINS:
            _say(f"--flent: nothing to plot: the command ended within {_MIN_BINS} bins; {path} is not written")
        else:
            # A file's name contains the queue; several runs behind the same queue get a number.
            file = flent_file.of_shell(run.records, _base_ms(link, of_flows=given.of_flows))
            joined.append(file | ({"queue": run.name} if several else {}))
    return joined


def _base_ms(link: Scenario, *, of_flows: bool) -> float:
    """Return the delays of both links."""
    return sum(delay for _, delay, _ in _ways(link, of_flows=of_flows))


def _ways(link: Scenario, *, of_flows: bool) -> list[tuple[dict[str, Any], float, str]]:
    """Return the keys, the delay in ms and the queue of both directions.

    If a direction has no delay, `of_flows` sets it to half of the first flow's round trip.
    """
    written = tomllib.loads(link.toml())
    flows = written.get("flow", ()) if of_flows else ()
    half = _core.quantity(flows[0]["rtt"], "time") / 2 if flows else 0.0
    ways = (written["link"], written["link"].get("up", written["link"]))
    return [(way, (_core.quantity(way.get("delay", "0ms"), "time") or half) / 1e6, way["queue"]) for way in ways]


def _describe(link: Scenario, given: _Given, *, queues: bool = True) -> str:
    """Describe each direction."""
    told = []
    for way, delay, queue in _ways(link, of_flows=given.of_flows):
        parts = [experiment.rate(way), f"{delay:g} ms" if delay else "", queue if queues else ""]
        loss = float(way.get("loss", 0))
        parts.insert(2, f"{100 * loss:g} % loss" if loss else "")
        told.append(", ".join(part for part in parts if part))
    down, up = told
    return f"{down} each way" if down == up else f"down {down}; up {up}"


# The link. ------------------------------------------------------------------------------------------------------------


def _link(source: str | None, down: dict[str, str | None], up: dict[str, str | None], seed: str | None) -> Scenario:
    """Make a scenario from the options; its errors name the options."""
    if source is not None:
        others = [f"--{key}" for key in ("delay", "loss") if down[key] is not None]
        others += [f"--up-{key}" for key, value in up.items() if value is not None and key != "queue"]
        if others:
            raise InputError(f"{others[0]}: not with --scenario; write it into the file's [link] or [link.up]")
        found = experiment.load(source, rate=down["rate"], trace=down["trace"], seed=seed)
        check_path(f"--scenario {source}", tomllib.loads(found.toml()))
        way_up = up["queue"] or down["queue"]
        queues: Any = {"queue": down["queue"]} if down["queue"] else {}
        queues |= {"up": {"queue": way_up}} if way_up else {}
        return _named_by_options(lambda: found.replace(link=queues)) if queues else found
    if down["rate"] is None and down["trace"] is None:
        if any(up.values()) or any(down.values()):
            raise InputError("there is no link; give --rate, as in --rate 15mbit, or --trace or --scenario")
        return experiment.load(seed=seed)
    if down["rate"] is not None and "/" in down["rate"]:
        if up["rate"] is not None:
            raise InputError(f"--rate {down['rate']}: not with --up-rate; both say the rate of the way up")
        down["rate"], up["rate"] = shortcuts.both_ways(down["rate"])
    of_link: Any = {**down, "up": up if any(value is not None for value in up.values()) else None}
    link = _named_by_options(lambda: experiment.load(Scenario.from_keys(link=of_link), seed=seed))
    notes.warn_of_keys({"link": of_link})
    return link


def _named_by_options(make: Callable[[], Scenario]) -> Scenario:
    """Make a scenario; its errors name the options."""
    try:
        return make()
    except InputError as error:
        raise InputError(re.sub(r"^link\.(up\.)?(\w+)", _named, str(error))) from None


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
    if shutil.which(words[0]) is None:
        raise InputError(f"{option} {words[0]}: no such command; write one that is on PATH, or its path")
    return words


# Running. -------------------------------------------------------------------------------------------------------------


@contextmanager
def _command_gets_signals() -> Iterator[_Signals]:
    """While the command runs, ignore Ctrl-C, which the terminal also sends to it, and forward SIGTERM and SIGHUP."""
    signals = _Signals()
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, lambda n, _frame: signals.note(n))
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(running: Shell, signals: _Signals, timeout_s: float) -> int | None:
    status = running.wait(timeout_s)
    if running.link_lost():
        lost = f"quell: the link is gone: its device {running.device} was deleted; the command continues without it"
        _print_if_writable(lost)
    while signals.for_command:
        running.signal(signals.for_command.pop(0))
    return status


def _run(given: _Given, link: Scenario, signals: _Signals, turn: str) -> tuple[Shell, int, float]:
    """Run the command once; return the shell, the command's exit status and its duration in seconds."""
    running = given.start(link)
    _say_dashboard(running)
    with given.forwarding(running.device, running.network):
        if not given.quiet:
            _announce(running, f"{turn}{_describe(link, given)}")
        running.go()
        began = time.monotonic()
        while (status := _wait(running, signals, _POLL_S)) is None:
            pass
        wall_s = time.monotonic() - began
    return running, status, wall_s


def _print_if_writable(text: str, **how: Any) -> None:
    """Print a line, unless nothing reads standard error: SIGTERM goes to the command and could not end the wait."""
    if select.select((), (sys.stderr,), (), _POLL_S)[1]:
        err.print(text, soft_wrap=True, **how)


def _say_dashboard(running: Shell) -> None:
    """Print the dashboard's address even if nothing else is printed, because its port is unpredictable."""
    if running.dashboard:
        _print_if_writable(f"quell: dashboard: {running.dashboard}")


def _announce(running: Shell, link: str) -> None:
    address, six = running.server
    where = {
        "caller": "the other side is this machine",
        "server": "the other side is --server's, without network access",
        "unprivileged": "not root: the other side is an empty namespace without network access; --server runs "
        "something there",
    }[running.outside]
    both = f"{address} and {six}" if six else address
    _print_if_writable(f"quell: {link}; {where}: QUELL_SERVER={both}", style="dim")


def _watch(given: _Given, link: Scenario, signals: _Signals, turn: str) -> tuple[Shell, int, float]:
    """Like `_run`, with the command's output above a live view."""
    from rich.live import Live

    pipes = [os.pipe(), os.pipe()]
    running = given.start(link, (pipes[0][1], pipes[1][1]))
    for _, end in pipes:
        os.close(end)
    _say_dashboard(running)
    if turn:
        _print_if_writable(f"quell: {turn}{_describe(link, given)}", style="dim")
    shown = Live(console=err, refresh_per_second=8, transient=True)
    with given.forwarding(running.device, running.network), shown as live:
        running.go()
        began = time.monotonic()
        # Threads, because a command stops if its output is not read.
        printers = [threading.Thread(target=_print_lines, args=(os.fdopen(end, "rb"), live)) for end, _ in pipes]
        for printer in printers:
            printer.start()
        while (status := _wait(running, signals, _POLL_S)) is None:
            live.update(_view(_json.loads(running.view())))
        wall_s = time.monotonic() - began
        for printer in printers:
            printer.join(timeout=1)
    return running, status, wall_s


def _print_lines(pipe: IO[bytes], live: Any) -> None:
    with pipe:
        # A line without an end is printed in pieces.
        while line := pipe.readline(1 << 16):
            live.console.print(Text.from_ansi(line.decode(errors="replace").rstrip("\n")), soft_wrap=True)


# What is shown. -------------------------------------------------------------------------------------------------------


def _view(looks: Sequence[dict[str, Any]]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    titles = (
        "",
        "rate\nMbit/s",
        "of\nMbit/s",
        "wait\nms",
        "backlog\npackets",
        "drops",
        "marks",
        "limit",
        "p",
        "missed",
    )
    for title in titles:
        table.add_column(title, justify="right", min_width=5, no_wrap=True)
    for name, v in zip(("down", "up"), looks, strict=True):
        limit = str(v["limit_packets"] or "–")
        sojourn = "–" if v["sojourn_ms"] is None else f"{v['sojourn_ms']:.1f}"
        table.add_row(
            name, f"{v['throughput_mbps']:.2f}", f"{v['capacity_mbps']:.2f}", sojourn, str(v["backlog_packets"]),
            str(v["drops"]), str(v["marks"]), limit, f"{v['probability']:.3f}", str(v["missed"]),
        )  # fmt: skip
    return table


def _warn_if_late(records: Sequence[Record]) -> None:
    """Warn if the machine was too slow for the link."""
    for r in records:
        missed, late = r["live"]["missed"], r["live"]["late_ms"]["max"]
        if missed > r["packets"] / 100:
            err.print(
                f"quell: {r['scenario']}: {missed} of {r['packets']} packets left over 1 ms late (up to {late:.1f}): "
                "this machine is too slow, or too busy, for the link",
                style="yellow", soft_wrap=True,
            )  # fmt: skip
