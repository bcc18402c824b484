"""`quell shell --nat`: Internet access by iptables rules, which are removed in any case when the shell ends."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quell import _core
from quell._core import InputError
from quell.linux.programs import completed, find
from quell.linux.spaces import has_ipv6, interface_name

if TYPE_CHECKING:
    from quell._core import StateFile

_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_CONF = Path("/proc/sys/net/ipv4/conf")
_REDIRECTS = _CONF / "all/accept_redirects"
_SHELLS = "quell+"
"""Pattern of the devices of all shells, for iptables."""
_CHAINS = (("iptables", "nat", "POSTROUTING"), ("iptables", "filter", "FORWARD"), ("ip6tables", "filter", "FORWARD"))
_TAG = re.compile(r'^(?=.* -[io] quell(?:\d|\+)).* --comment "?quell-(\d+)"?(?: |$)', re.MULTILINE)
"""A rule of a shell. Its comment contains the index of the shell's device."""
_DEVICE = re.compile(r"quell\d+")
_BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
"""Exists if br_netfilter is loaded. Bridged packets also pass FORWARD if this or the bridge's own setting is 1."""
_GUARD = Path(__file__).with_name("natguard.py")
_POLL_S, _TRIES, _RETRY_S = 1.0, 5, 0.1
"""Seconds between two checks of the rules; number of attempts to remove rules; seconds before a repeated attempt."""


@dataclass(frozen=True)
class _State:
    """Contents of the state file, which exists while shells have changed ip_forward from 0 to 1."""

    redirects: int
    """The previous value of accept_redirects, which the kernel sets whenever ip_forward changes."""
    shells: list[int]
    """Indices of the devices of the shells that need it."""
    boot: int = 0
    """The boot of the system in which it was written; 0: unknown."""

    @classmethod
    def read(cls, file: StateFile) -> _State | None:
        """Read the file; None if it does not exist or is from another boot (where `/run` is persistent).

        Raises InputError for content that quell does not write.
        """
        text = file.read()
        if text is None:
            return None
        try:
            state = cls(**json.loads(text))
            numbers = ((state.boot, 2**64), *((n, 2**31) for n in (state.redirects, *state.shells)))
            if all(type(n) is int and 0 <= n < limit for n, limit in numbers):
                now = _core.StateFile.boot()
                return state if 0 in (now, state.boot) or now == state.boot else None
        except (TypeError, ValueError, RecursionError):
            pass
        raise InputError(
            f"--nat: {file.path} is not a state file of quell shell --nat; set net.ipv4.ip_forward to the right value, "
            "then delete it"
        )

    def write(self, file: StateFile) -> None:
        """Replace the file."""
        file.write(json.dumps(asdict(self)))

    def living(self) -> list[int]:
        """Return the shells whose devices exist."""
        return [index for index in self.shells if _is_shell_device(index)]


def check() -> None:
    """Check this machine's requirements for --nat. Raises InputError, which names what is missing."""
    if os.geteuid() != 0:
        raise InputError(f"--nat: {_FORWARDING}: only root may forward packets; run it as root")
    for program in _programs():
        if find(program) is None:
            raise InputError(f"--nat: needs {program}; on Debian: apt-get install iptables")


@contextmanager
def translated(device: str, network: str) -> Iterator[None]:
    """Forward packets of a shell's network with this machine's address as source, and the answers; not for IPv6.

    Other machines cannot reach the shell and, if this machine did not forward before, cannot send through it. A
    separate process removes the rules when its standard input ends, which no signal to this process can prevent.
    """
    shown, index = _ran("iptables", "-S", "FORWARD"), socket.if_nametoindex(device)
    file, guarding, told, redirects = _core.StateFile.nat(), None, "", None
    try:
        with file:
            restored, others = _settle(file)
            if restored:
                told = "a quell shell --nat that was killed"
            _check_alone(file, index, others)
            forwards = _is_on(_FORWARDING) and _State.read(file) is None
            if not forwards:
                redirects = _join(file, index)
            rules = _rules(device, network, index, block=not forwards)
            shell = json.dumps([device, network, index, redirects])
            guarding = _start_guard(shell)
            for rule in rules:
                _ran(*rule)
            if not forwards:
                _set(_FORWARDING, 1)
                told = told or "--nat"
        yield
    finally:
        if guarding:
            guarding.communicate()
        if not guarding or guarding.returncode:  # killed
            end(index, redirects)
        if told:
            _note_forwarding_off(shown, told)


def _start_guard(shell: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(_GUARD), shell]
    # The guard ignores these signals once it runs; until then they are blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(index: int, redirects: int | None) -> None:
    """Remove a shell's rules, and restore forwarding unless others need it.

    `redirects` is the value of accept_redirects in the state file, which may have been deleted since; None if the
    machine forwarded before.
    """
    with _core.StateFile.nat() as file:
        _settle(file, index, redirects)


def guard(device: str, network: str, index: int, redirects: int | None) -> None:
    """Restore rules removed by other programs until standard input or the device ends; then call `end`."""
    block = redirects is not None
    while _is_shell_device(index) and not select.select([sys.stdin], [], [], _POLL_S)[0]:
        try:
            rules, found = _rules(device, network, index, block=block), _of(index)
            if len(found) == len(rules) and not _outdated(found):
                continue
            # The lock excludes changes by this or another shell.
            with _core.StateFile.nat():
                found = _of(index)
                if len(found) != len(rules):
                    _remove(index.__eq__)
                    for rule in rules:
                        _ran(*rule)
                else:
                    for rule in _outdated(found):
                        _ran(*rules[0])  # before the old one is removed, since other packets must not pass in between
                        _ran(*rule)
        except InputError:
            break  # `end` restores forwarding: without rules, other machines could send through this one
    end(index, redirects)


def _join(file: StateFile, index: int) -> int:
    """Add a shell to those that need forwarding; return the previous value of accept_redirects.

    Raises InputError if forwarding could not be changed or restored.
    """
    try:
        os.close(os.open(_FORWARDING, os.O_WRONLY))
    except OSError as error:
        raise InputError(f"--nat: {_FORWARDING}: {error.strerror}") from None
    state = _State.read(file)
    if state is None:
        if names := _forwarding():
            raise InputError(
                f"--nat: net.ipv4.conf.{names[0]}.forwarding is 1 and ip_forward 0, which --nat could not restore; set "
                f"ip_forward to 1, or net.ipv4.conf.{names[0]}.forwarding to 0"
            )
        state = _State(int(_REDIRECTS.read_text()), [], _core.StateFile.boot())
    replace(state, shells=[*state.living(), index]).write(file)
    return state.redirects


def _check_alone(file: StateFile, index: int, others: Sequence[_Rule]) -> None:
    """Raise InputError if a live shell that is in no state file here has turned forwarding on: it will turn it off.

    Such a shell has another /run, as in a container that shares this network namespace. `index` is that of the calling
    shell, `others` are the rules of all shells.
    """
    state = _State.read(file)
    known = [index, *(state.shells if state else [])]
    for rule in others:
        if _blocks(rule.removal) and rule.shell not in known:
            raise InputError(
                f"--nat: the quell shell of {interface_name(rule.shell)} has another /run and will turn forwarding "
                "off when it ends; end it first, or give both the same /run/quell"
            )


def _settle(file: StateFile, ending: int = 0, redirects: int | None = None) -> tuple[bool, list[_Rule]]:
    """Remove the rules of ended shells, and restore forwarding if no shell needs it any more.

    `ending` is the index of a shell that ends now; `redirects` is as in `end`. Return whether forwarding was restored,
    and the rules of live shells. Nothing is removed if forwarding cannot be restored, because other machines could send
    through this one.
    """
    state, restored = _State.read(file), False
    if state is None and redirects is not None:  # file deleted meanwhile: the rules show who needs forwarding
        blocking = [rule.shell for rule in _listed() if _blocks(rule.removal)]
        state = _State(redirects, blocking, _core.StateFile.boot())
    if state:
        living = [index for index in state.living() if index != ending]
        if living:
            replace(state, shells=living).write(file)
        else:
            restored = _set(_FORWARDING, 0)
            _set(_REDIRECTS, state.redirects)  # last, because the kernel changes it together with ip_forward
            file.remove()
    else:
        file.remove()  # a file from another boot
    return restored, _remove(lambda index: index == ending or not _is_shell_device(index))


def _is_shell_device(index: int) -> bool:
    """Return whether this is the index of a shell's device; after its end another interface may have the index."""
    return bool(_DEVICE.fullmatch(interface_name(index)))


def _set(setting: Path, value: int) -> bool:
    """Set a kernel setting; return whether that changed it."""
    if int(setting.read_text()) == value:
        return False
    try:
        setting.write_text(str(value))
    except OSError as error:
        raise InputError(f"--nat: {setting}: {error.strerror}") from None
    return True


def _rules(device: str, network: str, index: int, *, block: bool) -> list[list[str]]:
    """Return the commands that insert a shell's rules, in order; `block` if the machine did not forward before."""
    tag = ["-m", "comment", "--comment", f"quell-{index}"]
    # Each rule is inserted above the previous one. Drop rules must be in force before packets are forwarded, so they
    # are inserted first and end up below the others.
    forward = [
        ["-o", device, "!", "-i", _SHELLS, "-j", "DROP"],
        ["-i", device, "!", "-s", network, "-j", "DROP"],
        ["!", "-i", device, "-s", network, "-j", "DROP"],
        ["-o", device, "!", "-i", _SHELLS, "-d", network, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED",
         "-j", "ACCEPT"],
        ["-i", device, "!", "-o", _SHELLS, "-s", network, "-j", "ACCEPT"],
    ]  # fmt: skip
    if block:
        # Forwarding by a bridge does not depend on ip_forward.
        routed = ["-m", "physdev", "!", "--physdev-is-bridged"] if _BRIDGED.exists() else []  # loads br_netfilter
        forward.insert(0, ["!", "-i", _SHELLS, "!", "-o", _SHELLS, *routed, "-j", "DROP"])
    # On a machine that forwards IPv6, others could reach the shell by its address, and it could reach them with any
    # source address.
    six = [["-o", device, "!", "-i", _SHELLS, "-j", "DROP"], ["-i", device, "!", "-o", _SHELLS, "-j", "DROP"]]
    return [
        *(["iptables", "-I", "FORWARD", *tag, *rule] for rule in forward),
        *(["ip6tables", "-I", "FORWARD", *tag, *rule] for rule in six if has_ipv6()),
        ["iptables", "-t", "nat", "-I", "POSTROUTING", *tag, "-s", network, "!", "-o", _SHELLS, "-j", "MASQUERADE"],
    ]


class _Rule(NamedTuple):
    shell: int
    """Its index."""
    removal: list[str]
    """The command that removes it."""


def _listed() -> list[_Rule]:
    """Return the rules of all shells."""
    found = []
    for program, table, chain in _CHAINS:
        if program not in _programs():
            continue
        shown = _ran(program, "-t", table, "-S", chain)
        if not shown:
            raise InputError(f"--nat: {program} does not list {chain}")
        for line in shown.splitlines():
            if tag := _TAG.search(line):
                found.append(_Rule(int(tag[1]), [program, "-t", table, "-D", *shlex.split(line)[1:]]))
    return found


def _of(index: int) -> list[list[str]]:
    """Return the commands that remove a shell's rules."""
    return [rule.removal for rule in _listed() if rule.shell == index]


def _outdated(listed: Sequence[list[str]]) -> list[list[str]]:
    """Return the blocking rule if it was made before br_netfilter was loaded, since it drops bridged packets."""
    blocks = [rule for rule in listed if _blocks(rule)]
    return [rule for rule in blocks if "physdev" not in rule] if _BRIDGED.exists() else []


def _blocks(rule: Sequence[str]) -> bool:
    """Return whether this is a shell's rule that drops packets of others through this machine."""
    return rule.count(_SHELLS) == 2


def _remove(of: Callable[[int], bool]) -> list[_Rule]:
    """Remove rules until none is listed, because another program may change them at the same time.

    Return the rules of the other shells.
    """
    error = None
    for _ in range(_TRIES):
        try:
            listed = _listed()
            wanted = {shell: of(shell) for shell, _ in listed}
            if not any(wanted.values()):
                return listed
            for rule in listed:
                if wanted[rule.shell]:
                    _ran(*rule.removal)
        except InputError as why:
            error = why
            time.sleep(_RETRY_S)
    raise error or InputError("--nat: iptables does not remove its rules")


def _note_forwarding_off(before: str, shell: str) -> None:
    """Print a note if forwarding is off again, because programs that started meanwhile may need it."""
    if _FORWARDING.read_text().strip() != "0":
        return
    try:
        now = {line for line in _ran("iptables", "-S", "FORWARD").splitlines() if not _TAG.search(line)}
    except InputError:
        now = set()
    changed = "; other programs have changed the chain FORWARD meanwhile" if now - set(before.splitlines()) else ""
    print(f"quell: net.ipv4.ip_forward is 0 again, as before {shell}{changed}; if this machine is to forward packets: "
          "sysctl net.ipv4.ip_forward=1", file=sys.stderr)  # fmt: skip


def _is_on(setting: Path) -> bool:
    return setting.exists() and setting.read_text().strip() != "0"


def _forwarding() -> list[str]:
    """Return the interfaces that forward; a change of ip_forward also changes these settings."""
    each = (path for path in sorted(_CONF.iterdir()) if path.name != "all")
    return [path.name for path in each if (path / "forwarding").read_text().strip() != "0"]


def _programs() -> tuple[str, ...]:
    return ("iptables", "ip6tables") if has_ipv6() else ("iptables",)


def _ran(program: str, *arguments: str) -> str:
    """Run iptables or ip6tables; return its output. Raises InputError if it fails."""
    done = completed(program, "-w", *arguments)
    if done.returncode:
        why = (done.stderr.strip() or "it failed").splitlines()[0]
        modules = "iptable_nat, ip6table_filter, xt_MASQUERADE, xt_conntrack"
        raise InputError(f"--nat: {why}; it needs root and the kernel's NAT (modules {modules})")
    return done.stdout
