"""Network namespaces that end with this process, for trying lines of tc."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
from functools import cache
from pathlib import Path
from typing import Any

from quell._core import InputError
from quell.linux import programs
from quell.linux.programs import Command

_NEW_NET = 0x40000000
_DEATH_SIGNAL = 1


def has_interface(name: str) -> bool:
    """Return whether the network namespace of this process has an interface of this name."""
    try:
        socket.if_nametoindex(name)
    except OSError:
        check_asked()
        return False
    return True


def has_ipv6() -> bool:
    """Return whether the kernel has IPv6, like quell-live: yes, unless it does not support the address family.

    Missing files in /proc, as in a container, are not evidence of absence.
    """
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError as error:
        return error.errno != errno.EAFNOSUPPORT
    return True


def interface_name(index: int) -> str:
    """Return the name of the interface with this index; empty if there is none."""
    try:
        return socket.if_indextoname(index)
    except OSError:
        check_asked()
        return ""


def check_asked() -> None:
    """Raise OSError if no file can be opened: queries then fail, and every interface seems to be missing."""
    socket.socket().close()


@cache
def _linux() -> Any:
    """Return the C library. It is loaded on use, since this fails on Windows."""
    return ctypes.CDLL(None, use_errno=True)


class Space:
    """A network namespace, held by a process."""

    def __init__(self) -> None:
        linux = _linux()
        ready, done = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            linux.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # killed before: this process would keep its locks for ever
                os._exit(1)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.write(done, bytes([linux.unshare(_NEW_NET) == 0]))
            while True:
                signal.pause()
        os.close(done)
        made = os.read(ready, 1) == b"\1"
        os.close(ready)
        if not made:
            self.close()
            raise InputError("a network namespace cannot be made here; it needs root")

    def run(self, *commands: Command) -> None:
        """Run commands in it. Raises InputError at the first failure that is not allowed."""
        programs.run(*commands, before=("nsenter", f"--net={self._file}"))

    def enter(self) -> None:
        """Move this thread into the namespace."""
        _enter(self._file)

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    @property
    def _file(self) -> str:
        return f"/proc/{self.pid}/ns/net"


class TemporaryNamespace:
    """A new network namespace, in which this thread is within a `with` block; it ends with the block."""

    def __enter__(self) -> Space:
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._space = Space()
        self._space.enter()
        return self._space

    def __exit__(self, *_: object) -> None:
        _linux().setns(self._home, _NEW_NET)
        os.close(self._home)
        self._space.close()


def _enter(file: str) -> None:
    with Path(file).open() as opened:
        if _linux().setns(opened.fileno(), _NEW_NET):
            raise InputError(f"setns: {os.strerror(ctypes.get_errno())}")
