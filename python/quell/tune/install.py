"""`quell tune --apply DEV` and `--undo DEV`: the lines of tc on this machine's interface, and what was there before.

What was there is written to /run/quell before anything is changed, as `quell live` does, and the file goes when it is
back. So an interruption at any moment leaves what `--undo` needs. Both the new lines and the way back are tried in a
network namespace first, where a refusal of the kernel changes nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from quell._core import InputError
from quell.tune import netlink, search, space, targets
from quell.tune.line import Line
from quell.tune.netlink import Node
from quell.tune.spaces import Away
from quell.tune.spaces import shell as shell  # a test ends the process at a command

_FOLDER = Path("/run/quell")
_COOKIE = 71
"""SO_NETNS_COOKIE: the namespace that names of interfaces belong to."""


@dataclass
class Side:
    """An interface before the change."""

    dev: str
    index: int
    """Its number; 0: it was not there."""
    tree: list[Node] = field(default_factory=list)
    ingress: str = ""
    """Where everything that arrives was redirected to; empty: nowhere."""
    had_ingress: bool = False

    @classmethod
    def of(cls, dev: str) -> Side:
        """Read it. Raises InputError for what could not be put back."""
        if not _there(dev):
            return cls(dev, 0)
        index = socket.if_nametoindex(dev)
        if netlink.has_filters(dev):
            raise InputError(f"{dev} has queues with filters, which could not be put back; remove them: "
                             f"tc qdisc del dev {dev} root")  # fmt: skip
        side = cls(dev, index, netlink.tree(dev), had_ingress=netlink.has_ingress(dev))
        if side.had_ingress:
            side.ingress = _redirected(dev)
        return side

    @property
    def somebodys(self) -> str:
        """Name what somebody else made; empty if nothing."""
        return next((node.name for node in self.tree), "ingress" if self.had_ingress else "")

    def put_back(self) -> None:
        """Make it as it was."""
        shell(f"tc qdisc del dev {self.dev} root 2>/dev/null", f"tc qdisc del dev {self.dev} ingress 2>/dev/null")
        netlink.put_back(self.dev, self.tree)
        if self.had_ingress:
            shell(f"tc qdisc add dev {self.dev} handle ffff: ingress")
        if self.ingress:
            shell(targets.redirect(self.dev, self.ingress))

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Side:
        """Read what the state file says."""
        return cls(**{**plain, "tree": [Node(**node) for node in plain["tree"]]})


def _redirected(dev: str) -> str:
    """Return the interface to which all that arrives is redirected; empty without filters. Raises InputError."""
    done = subprocess.run(["tc", "filter", "show", "dev", dev, "ingress"], capture_output=True, text=True)
    if not done.stdout.strip():
        return ""
    kinds = re.findall(r"^\s+action order \d+: (\w+) \(.* (Redirect) to device (\S+)\)", done.stdout, re.MULTILINE)
    matches = re.findall(r"match (\S+)/(\S+) at", done.stdout)
    plain = all(mask == "00000000" for _, mask in matches) and ("matchall" in done.stdout or len(matches) == 1)
    if len(kinds) != 1 or kinds[0][0] != "mirred" or not plain or done.stdout.count("action order") != 1:
        raise InputError(f"{dev} has filters on what arrives, which could not be put back; remove them: "
                         f"tc qdisc del dev {dev} ingress")  # fmt: skip
    return str(kinds[0][2])


def check(dev: str, *, replace: bool) -> None:
    """Raise InputError where lines could not be installed, before they are searched."""
    _system("--apply")
    targets.interface(dev, "--apply")
    if not _there(dev):
        raise InputError(f"--apply {dev}: there is no such interface (`ip link` lists them)")
    with _state(dev) as file:
        sides = _before(dev, file, replace=replace)
        # A file system that is full shows it only now.
        with _part(file, sides, []):
            pass


def fits(dev: str, rates: Sequence[float]) -> None:
    """Raise InputError where the interface is slower than the line (Mbit/s): no shaper on it would hold the queue."""
    try:
        speed = int(Path(f"/sys/class/net/{dev}/speed").read_text())
    except (OSError, ValueError):
        return  # Wi-Fi and virtual interfaces have none
    if 0 < speed < max(rates):
        raise InputError(f"--apply {dev}: it runs at {speed} Mbit/s and cannot shape a line of {max(rates):g} Mbit/s; "
                         "give the rates that get through, or a faster interface")  # fmt: skip


def refused(dev: str, kinds: Sequence[str], line: Line) -> dict[str, str]:
    """Try each discipline in a namespace, with its defaults and with all its options: why this machine refuses some."""
    found = {}
    for kind in kinds:
        try:
            with Away() as space_:
                space_.run(f"ip link add {dev} type veth peer name quell-other")
                for setting in (space.default(kind), space.moved(kind)):
                    space_.run(*targets.tc_lines(dev, line, *search.shapes(setting, line)))
        except InputError as error:
            found[kind] = str(error)
    return found


def apply(dev: str, lines: Sequence[str], *, replace: bool) -> None:
    """Install lines of tc on an interface. Raises InputError with nothing changed."""
    with _state(dev) as file:
        sides = _before(dev, file, replace=replace)
        _rehearse(dev, lines, sides)
        try:
            _write(file, sides, [])
            shell(*lines)
            _write(file, sides, _kinds(sides))
        except BaseException:
            if file.exists():
                _back(sides)
                file.unlink()
            raise


def undo(dev: str, *, replace: bool) -> str:
    """Put back what was there before `apply`; return what was done. Raises InputError."""
    _system("--undo")
    targets.interface(dev, "--undo")
    with _state(dev) as file:
        if not file.exists():
            raise InputError(f"--undo {dev}: quell tune has installed nothing there")
        try:
            plain = json.loads(file.read_text())
            sides, made = [Side.read(side) for side in plain["sides"]], plain["made"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"--undo {dev}: {file} is no state of quell tune; look at `tc qdisc show`, and remove "
                             "the file") from None  # fmt: skip
        own, inner = sides
        if not _there(dev) or socket.if_nametoindex(dev) != own.index:
            if _there(inner.dev) and not inner.index:
                shell(f"ip link del dev {inner.dev}")
            file.unlink()
            return f"{dev} is not the interface any more that was changed; there is nothing to put back on it"
        if made and made != _kinds(sides) and not replace:
            raise InputError(f"--undo {dev}: its queues are not those that quell tune installed; to have those from "
                             "before anyway, add --replace")  # fmt: skip
        # An undo that is interrupted leaves what is neither: the next one does not compare.
        _write(file, sides, [])
        _back(sides)
        file.unlink()
    return f"{dev} has again what it had before"


def _system(option: str) -> None:
    if not sys.platform.startswith("linux"):
        raise InputError(f"{option} needs Linux")
    if os.geteuid() != 0:
        raise InputError(f"{option} needs root; run it with sudo, or paste the lines that are printed without it")
    if absent := [name for name in ("ip", "tc", "nsenter") if shutil.which(name) is None]:
        raise InputError(f"{option}: {absent[0]} is missing; install iproute2 and util-linux")


def _before(dev: str, file: Path, *, replace: bool) -> list[Side]:
    """Read what is there now. Raises InputError where it is not to be changed."""
    if file.exists():
        raise InputError(f"--apply {dev}: quell tune has changed it before; first `quell tune --undo {dev}`")
    if not _there(dev):
        raise InputError(f"--apply {dev}: there is no such interface (`ip link` lists them)")
    try:
        sides = [Side.of(dev), Side.of(targets.ifb(dev))]
    except InputError as error:
        raise InputError(f"--apply: {error}") from None
    for side in sides:
        if side.somebodys and not replace:
            raise InputError(f"--apply {dev}: {side.dev} has a queue that somebody made ({side.somebodys}); to have it "
                             "replaced, and kept for --undo, add --replace")  # fmt: skip
    return sides


def _rehearse(dev: str, lines: Sequence[str], sides: Sequence[Side]) -> None:
    """Try in a namespace whether the kernel takes the lines, and would take back what they replace."""
    with Away() as space:
        space.run(f"ip link add {dev} type veth peer name quell-other")
        for name in (*(side.dev for side in sides if side.index), *(side.ingress for side in sides if side.ingress)):
            if not _there(name):
                space.run(f"ip link add {name} type ifb")
        for side in sides:
            if side.index and not _returns(side):
                raise InputError(f"--apply {dev}: {side.dev}'s {side.somebodys} could not be put back as it is; remove "
                                 f"it first: tc qdisc del dev {side.dev} root")  # fmt: skip
        space.run(*lines)


def _returns(side: Side) -> bool:
    """Say whether the kernel makes the same of what it said, on the interface of this name here."""
    try:
        side.put_back()
    except InputError:
        return False
    return [node.known for node in netlink.tree(side.dev)] == [node.known for node in side.tree]


def _back(sides: Sequence[Side]) -> None:
    """Make both interfaces as they were; once more does no harm."""
    own, inner = sides
    if _there(own.dev):
        own.put_back()
    if not inner.index:
        shell(f"ip link del dev {inner.dev} 2>/dev/null")
    elif _there(inner.dev):
        inner.put_back()


def _kinds(sides: Sequence[Side]) -> list[list[Any]]:
    """List the queues that there are now, to see later whether somebody changed them."""
    return [[side.dev, node.kind, node.handle] for side in sides if _there(side.dev) for node in netlink.tree(side.dev)]


def _there(dev: str) -> bool:
    try:
        socket.if_nametoindex(dev)
    except OSError:
        return False
    return True


# The state file. ------------------------------------------------------------------------------------------------------


def _namespace() -> str:
    with socket.socket() as at:
        try:
            return str(struct.unpack("Q", at.getsockopt(socket.SOL_SOCKET, _COOKIE, 8))[0])
        except OSError:
            return f"i{Path('/proc/self/ns/net').stat().st_ino}"


@contextmanager
def _state(dev: str) -> Iterator[Path]:
    """Give the state file of an interface, which no other process has meanwhile. Raises InputError."""
    file = _FOLDER / f"tune-{_namespace()}-{dev}.json"
    try:
        _FOLDER.mkdir(parents=True, exist_ok=True)
        lock = os.open(file.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; what is there now must be noted before it is changed") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InputError(f"{dev}: another quell tune is at work on it") from None
    try:
        yield file
    finally:
        os.close(lock)


def _write(file: Path, sides: Sequence[Side], made: Sequence[Any]) -> None:
    """Write the state as a whole, or not at all. Raises InputError."""
    with _part(file, sides, made) as part:
        part.rename(file)


@contextmanager
def _part(file: Path, sides: Sequence[Side], made: Sequence[Any]) -> Iterator[Path]:
    """Give a file beside the state file that has the state; it goes unless it is renamed. Raises InputError."""
    part = file.with_suffix(".part")
    try:
        with part.open("w") as opened:
            json.dump({"sides": [asdict(side) for side in sides], "made": made}, opened)
            opened.flush()
            os.fsync(opened.fileno())
        yield part
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; what is there now must be noted before it is changed") from None
    finally:
        part.unlink(missing_ok=True)
