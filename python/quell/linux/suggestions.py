"""Commands that this machine can use, for the end of `quell doctor`."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from quell import _core
from quell.linux.finding import Finding
from quell.linux.kernel import WITHOUT_PACKETS
from quell.linux.programs import completed, find

MAX_COMMANDS = 3
_SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where sudo looks for programs."""
_ROUTES = Path("/proc/net/route")


def commands(found: Sequence[Finding], dev: str | None = None) -> list[str]:
    """Return up to three commands that work here according to doctor's findings, with `sudo` if they need root."""
    simulated = [f"{_program()} compare household --html report.html", f"{_program()} tune --ask"]
    if not sys.platform.startswith("linux"):
        return simulated
    works = {finding.check for finding in found if finding.state == "ok"}
    user = os.geteuid() != 0

    def with_right(right: bool, words: str) -> list[str]:
        """Return the command, with sudo if this process lacks the right; none if root lacks it."""
        return [f"{_program()} {words}"] if right else [f"sudo {_program(sudo=True)} {words}"] if user else []

    made = []
    if "/dev/net/tun" in works:
        made += with_right(
            "CAP_NET_ADMIN" in works or _may_have_spaces(), "shell --rate 10mbit --delay 20ms --aqm hush"
        )
    if (name := dev or interface()) is not None:
        shown = shlex.quote(name)
        if any(row[0] == name and row[1] not in WITHOUT_PACKETS for row in _core.disciplines()):
            made += with_right(True, f"watch {shown} --duration 10s")
        made += with_right("CAP_NET_RAW" in works, f"live {shown} --rate 18mbit --dry-run --duration 60s")
    return [*made, *simulated][:MAX_COMMANDS]


def _may_have_spaces() -> bool:
    """Whether this user may create namespaces."""
    return find("unshare") is not None and completed("unshare", "--user", "--net", "true").returncode == 0


def interface() -> str | None:
    """Return the interface of the default route, else the first one but `lo`; None if there is no other."""
    routes = [line.split() for line in _ROUTES.read_text().splitlines()[1:]] if _ROUTES.exists() else []
    default = [words[0] for words in routes if len(words) > 7 and words[1] == words[7] == "00000000"]
    return next((name for name in [*default, *(name for _, name in socket.if_nameindex())] if name != "lo"), None)


def _program(sudo: bool = False) -> str:
    """Return how this program is called from here, or by sudo: with its path if it is in no folder of PATH."""
    called = Path(sys.argv[0])
    there = shutil.which("quell", path=_SUDO_PATH if sudo else None)
    if called.name != "quell" or (there is not None and Path(there).resolve() == called.resolve()):
        return "quell"
    return shlex.quote(str(called.resolve()))
