"""`quell shell --nat`: access to the Internet by iptables rules, which are removed however the shell ends."""

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
"""Pattern of the devices of all shells, for iptables."""
_TAG = re.compile(r'^(?=.* -[io] quell(?:\d|\+)).* --comment "?(quell-\d+-(\d)(?:-(\d))?)"?(?: |$)', re.MULTILINE)
"""Comment of a shell's rules: its process, and the previous values of ip_forward and accept_redirects."""
_BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
"""1: packets within a bridge pass FORWARD, too."""
_GUARD = Path(__file__).with_name("natguard.py")


def check() -> None:
    """Check what --nat needs on this machine. Raises InputError, which names what is missing."""
    if shutil.which("iptables") is None:
        raise InputError("--nat: needs iptables; on Debian: apt-get install iptables")
    if os.geteuid() != 0:
        raise InputError(f"--nat: {_FORWARDING}: only root may forward packets; run it as root")


@contextmanager
def translated(device: str, network: str) -> Iterator[None]:
    """Forward packets of a shell's network, with this machine's address as source, and the answers.

    Other machines cannot reach the shell and, if nothing was forwarded before, cannot send through this one. A separate
    process removes the rules when its standard input ends, which no signal to this process can prevent.
    """
    # Values before the first shell that still runs or has not restored them: of ip_forward, and of accept_redirects,
    # which the kernel sets whenever ip_forward changes.
    shown = _iptables("-S", "FORWARD")
    others = _TAG.search(shown)
    now = tuple(path.read_text().strip() for path in (_FORWARDING, _REDIRECTS))
    before, redirects = (others[2], others[3] or "1") if others else now
    if before == "0" and not others and (names := _forwarding()):
        raise InputError(
            f"--nat: net.ipv4.conf.{names[0]}.forwarding is 1 and ip_forward 0, which --nat could not restore; set "
            f"ip_forward to 1, or net.ipv4.conf.{names[0]}.forwarding to 0"
        )
    left, on = _remove_left(shown, device), now[0] != "0"
    tag = ["-m", "comment", "--comment", f"quell-{os.getpid()}-{before}-{redirects}"]
    # Each rule is inserted above the previous one. Those that drop must be in force before packets are forwarded, so
    # they are inserted first and end below the others.
    forward = [
        ["-o", device, "!", "-i", _SHELLS, "-j", "DROP"],
        ["-i", device, "!", "-s", network, "-j", "DROP"],
        ["!", "-i", device, "-s", network, "-j", "DROP"],
        ["-o", device, "!", "-i", _SHELLS, "-d", network, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED",
         "-j", "ACCEPT"],
        ["-i", device, "!", "-o", _SHELLS, "-s", network, "-j", "ACCEPT"],
    ]  # fmt: skip
    if before == "0":
        # What a bridge forwards does not depend on ip_forward.
        routed = ["-m", "physdev", "!", "--physdev-is-bridged"] if _is_on(_BRIDGED) else []
        forward.insert(0, ["!", "-i", _SHELLS, "!", "-o", _SHELLS, *routed, "-j", "DROP"])
    rules = [["-I", "FORWARD", *tag, *rule] for rule in forward]
    rules.append(["-t", "nat", "-I", "POSTROUTING", *tag, "-s", network, "!", "-o", _SHELLS, "-j", "MASQUERADE"])
    # Forwarding ends before the rules that block other machines are removed.
    remove = [["iptables", "-w", *("-D" if word == "-I" else word for word in rule)] for rule in reversed(rules)]
    command = [sys.executable, "-I", "-S", _GUARD, before, redirects, json.dumps(remove)]
    guard = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for rule in rules:
            _iptables(*rule)
        try:
            _FORWARDING.write_text("1")
        except OSError as error:
            raise InputError(f"--nat: {_FORWARDING}: {error.strerror}") from None
        on = True
        yield
    finally:
        guard.communicate()
        if guard.returncode:  # killed
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if on and before == "0":
            _tell(shown, "a quell shell --nat that was killed" if left else "--nat")


def _remove_left(shown: str, device: str) -> bool:
    """Remove the rules of shells that were killed together with their guards: their devices are gone.

    Return whether there were any.
    """
    left = set()
    for line in shown.splitlines():
        tag, own = _TAG.search(line), re.search(r"(?<!! )-i (quell\d+) ", line)
        if tag and own and (own[1] == device or not has_interface(own[1])):
            left.add(tag[1])
    for table, chain in (("filter", "FORWARD"), ("nat", "POSTROUTING")) if left else ():
        for line in _iptables("-t", table, "-S", chain).splitlines():
            if (tag := _TAG.search(line)) and tag[1] in left:
                # Their guard may be removing them at this moment.
                subprocess.run(["iptables", "-w", "-t", table, "-D", *shlex.split(line)[1:]], capture_output=True)
    return bool(left)


def _tell(before: str, shell: str) -> None:
    """Say if forwarding is off again: others may need it by now, and its value does not say who set it to 1."""
    if _FORWARDING.read_text().strip() != "0":
        return
    try:
        now = {line for line in _iptables("-S", "FORWARD").splitlines() if not _TAG.search(line)}
    except InputError:
        now = set()
    changed = "; other programs have changed the chain FORWARD meanwhile" if now - set(before.splitlines()) else ""
    print(f"quell: net.ipv4.ip_forward is 0 again, as before {shell}{changed}; if this machine is to forward packets: "
          "sysctl net.ipv4.ip_forward=1", file=sys.stderr)  # fmt: skip


def _is_on(setting: Path) -> bool:
    return setting.exists() and setting.read_text().strip() != "0"


def _forwarding() -> list[str]:
    """Return the interfaces that forward; a change of ip_forward changes them, too."""
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
