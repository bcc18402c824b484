"""`quell live`: a queue of quell on what leaves or arrives at an interface, failing open (docs/live.md). Linux only."""

from __future__ import annotations

import fcntl
import json as _json
import re
import signal
import socket
import struct
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from quell import _core, gates, serve
from quell._core import InputError
from quell.output import err

if TYPE_CHECKING:
    from quell._core import Gate

EXAMPLES = (
    "Examples:\n\n"
    "  sudo quell live --dev eth0 --rate 18mbit --aqm fq_codel\n\n"
    "  sudo quell live --dev eth0 --rate 18mbit --ingress 90mbit --aqm cake --metrics 9100\n\n"
    "  sudo quell live --config /etc/quell/live.toml\n\n"
    "  sudo quell live --dev eth0 --rate 18mbit --dry-run --duration 60s\n\n"
    "  sudo quell live --restore"
)
_LOOK_S = 0.2
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CAP_NET_ADMIN, _CAP_NET_RAW = 12, 13
_FIRST_QUEUE = 29_000
_SIOCGIFMTU = 0x8921


@dataclass(frozen=True)
class Settings:
    """What a configuration file may hold; its keys are the options' names."""

    dev: str = ""
    rate: str | None = None
    aqm: str = "fq_codel"
    ingress: str | None = None
    ingress_aqm: str | None = None
    overhead: int = 14
    status: str | None = None
    metrics: int | None = None

    def directions(self) -> dict[str, tuple[str, str, int]]:
        """Give rate, queue words and overhead of each direction that is managed."""
        found = {}
        if self.rate is not None:
            found["egress"] = (self.rate, self.aqm, self.overhead)
        if self.ingress is not None:
            found["ingress"] = (self.ingress, self.ingress_aqm or self.aqm, self.overhead)
        return found


def live(
    dev: Annotated[str | None, typer.Option(metavar="NAME", help="The interface.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Of what leaves, as in tc: 18mbit.")] = None,
    aqm: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Queue words as in tc (quell queues). Default: fq_codel.")
    ] = None,
    ingress: Annotated[str | None, typer.Option(metavar="RATE", help="Of what arrives. Default: not managed.")] = None,
    ingress_aqm: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Queue of what arrives. Default: as --aqm.")
    ] = None,
    overhead: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Counts at the rate with every packet. Default: 14.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML with these options as keys; read again on SIGHUP.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(metavar="PATH", help="Unix socket that answers with the state as JSON.")
    ] = None,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port on 127.0.0.1 that answers with Prometheus metrics.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide on copies of the packets; touch nothing.")] = False,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Stop after this time: 60s.")] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Undo what a killed quell live left behind, and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> int:
    """Shape and manage what leaves (and arrives at) an interface, with any queue of quell. Fails open.

    SIGTERM and Ctrl-C let everything go on that is held and restore what was; SIGHUP reads --config again.
    """
    if not sys.platform.startswith("linux"):
        raise InputError("quell live needs Linux: NFQUEUE")
    _check_rights(_CAP_NET_RAW if dry_run else _CAP_NET_ADMIN)
    if restore:
        return _restore(dev, quiet)
    given = {
        "dev": dev, "rate": rate, "aqm": aqm, "ingress": ingress, "ingress_aqm": ingress_aqm, "overhead": overhead,
        "status": status, "metrics": metrics,
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    settings = _settings(config, given)
    end = None if duration is None else time.monotonic() + _seconds(duration)
    say: Callable[[str], None] = (lambda _: None) if quiet else _say
    # Waited for, not caught: from here on they come in _watch only.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    with ExitStack() as stack:
        # Before the interface is taken: a port that is taken must not cost a packet.
        looks: dict[str, Gate] = {}
        server = stack.enter_context(serve.Server(settings.status, settings.metrics, lambda: _state(settings, looks)))
        running = stack.enter_context((_dry if dry_run else _managed)(settings))
        looks.update(running)
        server.start()
        say(_announce(settings, dry_run))
        settings, why = _watch(settings, running, config, given, end, say)
    if why:
        raise InputError(why)
    if not quiet:
        last = {name: _json.loads(gate.look()) for name, gate in running.items()}
        (err if err.is_terminal else Console(stderr=True, width=100)).print(_table(settings, last))
    return 0


def _say(line: str) -> None:
    err.print(f"quell: {line}", style="dim", markup=False, soft_wrap=True)


def _check_rights(bit: int) -> None:
    effective = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    if effective is None or not int(effective[1], 16) >> bit & 1:
        name = {_CAP_NET_ADMIN: "CAP_NET_ADMIN", _CAP_NET_RAW: "CAP_NET_RAW"}[bit]
        raise InputError(f"quell live needs root ({name}); write sudo before it")


def _restore(dev: str | None, quiet: bool) -> int:
    done = gates.restore(dev)
    if not quiet:
        for name, count in done:
            _say(f"{name}: {count} rules removed")
        if not done:
            _say("nothing to restore")
    return 0


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text)
    if found is None:
        raise InputError(f"--duration {text}: is no time; write it as 60s")
    return float(found[1]) * {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, None: 1}[found[2]]


# What is asked for. ---------------------------------------------------------------------------------------------------


def _settings(config: Path | None, given: Mapping[str, Any]) -> Settings:
    """Read the file, put the options over it, and check all of it."""
    values: dict[str, Any] = {}
    if config is not None:
        values = _file(config)
    settings = Settings(**{**values, **given})
    source = f"{config}: " if config is not None else ""

    def name(key: str) -> str:
        return f"--{key.replace('_', '-')}" if key in given or not source else f"{source}{key}"

    if not settings.dev:
        raise InputError(f"{name('dev')}: there is no interface; give one, as in --dev eth0")
    if settings.rate is None and settings.ingress is None:
        raise InputError(f"{name('rate')}: there is no rate; give --rate for what leaves, --ingress for what arrives")
    for direction, (rate, aqm, overhead) in settings.directions().items():
        rate_key = "rate" if direction == "egress" else "ingress"
        aqm_key = "aqm" if direction == "egress" or settings.ingress_aqm is None else "ingress_aqm"
        try:
            _core.Gate.check(rate, aqm, overhead)
        except InputError as error:
            text = str(error)
            key, _, rest = text.partition(": ")
            raise InputError(f"{name(aqm_key if key.startswith('aqm') else rate_key)}: {rest or text}") from None
    if not 0 <= settings.overhead <= 1000:
        raise InputError(f"{name('overhead')}: {settings.overhead} is not between 0 and 1000 bytes")
    return settings


def _file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"--config {path}: {error.strerror}") from None
    except (ValueError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    known = {field.name: int if field.name in ("overhead", "metrics") else str for field in fields(Settings)}
    for key, value in values.items():
        if key not in known:
            raise InputError(f"{path}: {key}: unknown key; known are {', '.join(known)}")
        if type(value) is not known[key]:
            raise InputError(f"{path}: {key}: {value!r} is not {'a number' if known[key] is int else 'a text'}")
    return values


def _index(dev: str) -> int:
    try:
        return socket.if_nametoindex(dev)
    except (OSError, ValueError):
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise InputError(f"--dev {dev}: there is no such interface; there are {names}") from None


# Running. -------------------------------------------------------------------------------------------------------------


@contextmanager
def _managed(settings: Settings) -> Iterator[dict[str, Gate]]:
    """Take the interface; at the end, let everything go on that is held, then remove the rules: no packet is lost."""
    index = _index(settings.dev)
    with gates.only_one(settings.dev) as path:
        first = _FIRST_QUEUE + 2 * index % 10_000
        running: dict[str, Gate] = {}
        for name, (rate, aqm, overhead) in settings.directions().items():
            running[name] = _core.Gate(rate, aqm, queue=first, overhead=overhead, mtu=_mtu(settings.dev))
        numbers = {name: gate.queue for name, gate in running.items()}
        try:
            gates.insert(path, gates.rules(settings.dev, numbers.get("egress"), numbers.get("ingress")))
            yield running
        finally:
            for gate in running.values():
                gate.open()
            try:
                gates.undo(path)
            finally:
                for gate in running.values():
                    gate.finish()


@contextmanager
def _dry(settings: Settings) -> Iterator[dict[str, Gate]]:
    index = _index(settings.dev)
    running = {
        name: _core.Gate(rate, aqm, copies=(index, name == "egress"), overhead=overhead, mtu=_mtu(settings.dev))
        for name, (rate, aqm, overhead) in settings.directions().items()
    }
    yield running
    for gate in running.values():
        gate.finish()


def _mtu(dev: str) -> int:
    """Ask the kernel, not /sys, which may be another namespace's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked, _SIOCGIFMTU, struct.pack("16si12x", dev.encode(), 0))
    mtu: int = struct.unpack("16si12x", answer)[1]
    return mtu


def _watch(
    settings: Settings,
    running: Mapping[str, Gate],
    config: Path | None,
    given: Mapping[str, Any],
    end: float | None,
    say: Callable[[str], None],
) -> tuple[Settings, str]:
    """Wait for a signal, the end of the time or of the interface; gives the last settings and what went wrong."""
    index = _index(settings.dev)
    while True:
        left = _LOOK_S if end is None else max(0.0, min(_LOOK_S, end - time.monotonic()))
        came = signal.sigtimedwait(_SIGNALS, left)
        if came is not None and came.si_signo != signal.SIGHUP:
            return settings, ""
        if came is not None:
            settings = _reload(settings, running, config, given, say)
        if end is not None and time.monotonic() >= end:
            return settings, ""
        try:
            gone = socket.if_nametoindex(settings.dev) != index
        except OSError:
            gone = True
        if gone:
            return settings, f"{settings.dev} has vanished; start again when it is back"
        if not all(gate.alive() for gate in running.values()):
            return settings, "the loop of a direction has ended; traffic flows unmanaged"


def _reload(
    old: Settings,
    running: Mapping[str, Gate],
    config: Path | None,
    given: Mapping[str, Any],
    say: Callable[[str], None],
) -> Settings:
    """Read the configuration again; one that is wrong changes nothing."""
    if config is None:
        say("SIGHUP: there is no --config to read again")
        return old
    try:
        new = _settings(config, given)
        for key in ("dev", "status", "metrics"):
            if getattr(new, key) != getattr(old, key):
                raise InputError(f"{config}: {key}: cannot change while quell live runs; start it again")
        if new.directions().keys() != old.directions().keys():
            raise InputError(f"{config}: a direction cannot come or go while quell live runs; start it again")
    except InputError as error:
        err.print(f"quell: not reloaded: {error}", markup=False, soft_wrap=True)
        return old
    before = old.directions()
    for name, (rate, aqm, overhead) in new.directions().items():
        if (rate, aqm, overhead) != before[name]:
            running[name].change(rate, aqm, overhead)
    say(f"reloaded: {_announce(new, False)}")
    return replace(new)


# What is told. --------------------------------------------------------------------------------------------------------


def _announce(settings: Settings, dry: bool) -> str:
    ways = {"egress": "leaves", "ingress": "arrives"}
    each = [f"what {ways[name]}: {rate}, {aqm}" for name, (rate, aqm, _) in settings.directions().items()]
    return f"{settings.dev}: {'; '.join(each)}{' (dry run: nothing is touched)' if dry else ''}"


def _state(settings: Settings, looks: Mapping[str, Gate]) -> dict[str, Any]:
    return {"dev": settings.dev, "directions": {name: _json.loads(gate.look()) for name, gate in looks.items()}}


def _table(settings: Settings, looks: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in ("", "queue", "rate", "packets", "went on", "drops", "marks", "missed"):
        table.add_column(title, justify="left" if title in ("", "queue") else "right", no_wrap=title != "queue")
    for name, (rate, aqm, _) in settings.directions().items():
        v = looks[name]
        counts = (v["read"], v["sent"], v["dropped"], v["marked"], v["missed"])
        table.add_row(name, aqm, rate, *(str(count) for count in counts))
    return table
