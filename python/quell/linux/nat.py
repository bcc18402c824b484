"""`quell shell --nat`: the way out into the world, by iptables rules that no end of the shell leaves behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quell._core import InputError
from quell.linux.spaces import has_interface

_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_CONF = Path("/proc/sys/net/ipv4/conf")
_REDIRECTS = _CONF / "all/accept_redirects"
_SHELLS = "quell+"
"""Every shell's device, to iptables."""
_TAG = re.compile(r"\bquell-\d+-(\d+)(?:-(\d+))?\b")
"""The comment of a shell's rules: its process, and ip_forward and accept_redirects before."""
_GUARD = Path(__file__).with_name("natguard.py")


def check() -> None:
    """Say in one line what --nat lacks here. Raises InputError."""
    if shutil.which("iptables") is None:
        raise InputError("--nat: needs iptables; on Debian: apt-get install iptables")
    if os.geteuid() != 0:
        raise InputError(f"--nat: {_FORWARDING}: only root may forward packets; run it as root")


@contextmanager
def translated(device: str, network: str) -> Iterator[None]:
    """Forward what a shell's network sends through its device, under this machine's own address, and what answers it.

    Other machines cannot reach the shell and, if nothing was forwarded before, cannot send through this one. A separate
    process removes the rules when its standard input ends, which no signal to this process can prevent.
    """
    # What was before the first of the shells that run or have not yet restored it: ip_forward, and accept_redirects, to
    # which the kernel gives a value of its own whenever the other changes.
    shown = _iptables("-S", "FORWARD")
    others = _TAG.search(shown)
    now = tuple(path.read_text().strip() for path in (_FORWARDING, _REDIRECTS))
    before, redirects = others.groups("1") if others else now
    if before == "0" and not others and (names := _forwarding()):
        raise InputError(
            f"--nat: net.ipv4.conf.{names[0]}.forwarding is 1 and ip_forward 0, which --nat could not restore; set "
            f"ip_forward to 1, or net.ipv4.conf.{names[0]}.forwarding to 0"
        )
    _remove_left(shown, device)
    tag = ["-m", "comment", "--comment", f"quell-{os.getpid()}-{before}-{redirects}"]
    # Each is inserted above the one before. The last ones are needed before packets are forwarded, so they come first.
    forward = [
        ["-o", device, "!", "-i", _SHELLS, "-j", "DROP"],
        ["-i", device, "!", "-s", network, "-j", "DROP"],
        ["!", "-i", device, "-s", network, "-j", "DROP"],
        ["-o", device, "!", "-i", _SHELLS, "-d", network, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED",
         "-j", "ACCEPT"],
        ["-i", device, "!", "-o", _SHELLS, "-s", network, "-j", "ACCEPT"],
    ]  # fmt: skip
    if before == "0":
        forward.insert(0, ["!", "-i", _SHELLS, "!", "-o", _SHELLS, "-j", "DROP"])
    rules = [["-I", "FORWARD", *tag, *rule] for rule in forward]
    rules.append(["-t", "nat", "-I", "POSTROUTING", *tag, "-s", network, "!", "-o", _SHELLS, "-j", "MASQUERADE"])
    # Nothing is forwarded any more before the rules that keep strangers out go.
    remove = [["iptables", "-w", *("-D" if word == "-I" else word for word in rule)] for rule in reversed(rules)]
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", _GUARD, before, redirects, json.dumps(remove)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        for rule in rules:
            _iptables(*rule)
        try:
            _FORWARDING.write_text("1")
        except OSError as error:
            raise InputError(f"--nat: {_FORWARDING}: {error.strerror}") from None
        yield
    finally:
        guard.communicate()
        _tell(shown)


def _remove_left(shown: str, device: str) -> None:
    """Remove the rules of shells that were killed together with their guards: their devices are gone."""
    left = set()
    for line in shown.splitlines():
        tag, own = _TAG.search(line), re.search(r"(?<!! )-i (quell\d+) ", line)
        if tag and own and (own[1] == device or not has_interface(own[1])):
            left.add(tag[0])
    for table, chain in (("filter", "FORWARD"), ("nat", "POSTROUTING")) if left else ():
        for line in _iptables("-t", table, "-S", chain).splitlines():
            if (tag := _TAG.search(line)) and tag[0] in left:
                # The one that removes them may be at it.
                subprocess.run(["iptables", "-w", "-t", table, "-D", *shlex.split(line)[1:]], capture_output=True)


def _tell(before: str) -> None:
    """Say that forwarding is off again where another program may have come to need it."""
    try:
        now = {line for line in _iptables("-S", "FORWARD").splitlines() if not _TAG.search(line)}
    except InputError:
        return
    if now - set(before.splitlines()) and _FORWARDING.read_text().strip() == "0":
        print("quell: net.ipv4.ip_forward is 0 again, as before --nat; other programs have changed the chain FORWARD "
              "meanwhile: if they forward packets, set it to 1", file=sys.stderr)  # fmt: skip


def _forwarding() -> list[str]:
    """Name the interfaces that forward, which a change of ip_forward changes, too."""
    each = (path for path in sorted(_CONF.iterdir()) if path.name != "all")
    return [path.name for path in each if (path / "forwarding").read_text().strip() != "0"]


def _iptables(*arguments: str) -> str:
    done = subprocess.run(["iptables", "-w", *arguments], capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip() or "it failed").splitlines()[0]
        raise InputError(
            f"--nat: {why}; it needs root and the kernel's NAT (modules iptable_nat, xt_MASQUERADE, xt_conntrack)"
        )
    return done.stdout
