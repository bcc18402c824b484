"""`quell doctor`: checks what `quell live`, `shell`, `steer` and `attach` need on this system."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import socket
import struct
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from quell import _core
from quell._core import InputError
from quell.cli import complete
from quell.cli.options import ShownJson
from quell.common.console import out
from quell.linux import kernel, suggestions
from quell.linux.finding import Finding
from quell.linux.programs import completed, find
from quell.linux.spaces import TemporaryNamespace, has_ipv6
from quell.views.targets import Targets

EXAMPLES = "Examples:\n\n  quell doctor\n\n  sudo quell doctor --dev eth0\n\n  quell doctor --json -"
_MARKS = {"ok": ("works", "green"), "warn": ("note", "yellow"), "fail": ("fails", "red"), "unknown": ("?", "")}
_CAPABILITIES = {
    "CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_IPC_LOCK": 14, "CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23,
    "CAP_PERFMON": 38, "CAP_BPF": 39,
}  # fmt: skip
_FRAMES = 64 << 20
"""Memory of frames that AF_XDP locks with the default queue in both directions, bytes."""
_SIOCETHTOOL = 0x8946
_AF_XDP = 44
_OFFLOADS = {"gso": 0x23, "tso": 0x1E, "gro": 0x2B}
"""ETHTOOL_GGSO, ETHTOOL_GTSO, ETHTOOL_GGRO (linux/ethtool.h)."""
_HOLDS = {"htb", "tbf", "hfsc", "cake", "netem", "cbs", "etf", "taprio"}
"""Disciplines that hold packets although the link is free."""


def doctor(
    dev: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check the queues of this interface alone, and its offloads.",
            autocompletion=complete.interfaces,
        ),
    ] = None,
    json: ShownJson = None,
) -> int:
    """Check what live, shell, steer and attach need, and name the remedy for what is missing."""
    targets = Targets(json)
    found = [_kernel()]
    if sys.platform.startswith("linux"):
        found += [*_capabilities(), _nfqueue(), *map(_rule, ("iptables", "ip6tables")), _xdp(), _tun(), *_leftovers()]
        found += _interface(dev) if dev is not None else []
        found += [*kernel.queues(dev), *kernel.bpf(), _loading(), *kernel.attached(dev)]
    targets.write_json([asdict(f) for f in found])
    if not targets.quiet:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for title in ("", "", "found", "remedy"):
            table.add_column(title, overflow="fold")
        for f in found:
            table.add_row(f.check, Text(*_MARKS[f.state]), f.found, f.remedy)
        out.print(table)
        out.print("Commands that work here:")
        for line in suggestions.commands(found, dev):
            out.print(f"  {line}", soft_wrap=True)
    return 1 if any(f.state == "fail" for f in found) else 0


def _kernel() -> Finding:
    name = f"{platform.system()} {platform.release()}"
    if not sys.platform.startswith("linux"):
        return Finding("kernel", "fail", name, "quell live and quell shell need Linux; everything else works here")
    return Finding("kernel", "ok", name)


def _held(*bits: int) -> bool:
    """Return whether one of these capabilities is effective."""
    effective = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    held = int(effective[1], 16) if effective else 0
    return any(held >> bit & 1 for bit in bits)


def _capabilities() -> list[Finding]:
    uses = {
        "CAP_NET_ADMIN": "quell live; quell steer; quell shell in this namespace",
        "CAP_NET_RAW": "quell live --dry-run",
        "CAP_SYS_NICE": "real-time priority: packets leave on time on a busy machine",
    }
    made = []
    for name, use in uses.items():
        held = _held(_CAPABILITIES[name])
        state = "ok" if held else "warn" if name == "CAP_SYS_NICE" else "fail"
        made.append(Finding(name, state, use, "" if held else "run it as root: sudo"))
    return made


def _nfqueue() -> Finding:
    if Path("/proc/net/netfilter/nfnetlink_queue").exists():
        return Finding("nfnetlink_queue", "ok", "the kernel has packet queues")
    return Finding("nfnetlink_queue", "fail", "no packet queues", "modprobe nfnetlink_queue")


def _rule(program: str) -> Finding:
    """Test quell live's rule in a temporary network namespace, where it has no effect."""
    if program == "ip6tables" and not has_ipv6():
        return Finding(program, "ok", "not needed: the kernel has no IPv6")
    if os.geteuid() != 0:
        return Finding(program, "unknown", "its rules can be tested as root only", "sudo quell doctor")
    if find(program) is None:
        return Finding(program, "fail", "missing", "on Debian: apt-get install iptables")
    words = [program, "-w", "-t", "mangle"]
    apart = True
    try:
        with TemporaryNamespace():
            done = completed(*words, "-A", *_core.live_rules("lo")[0][1:])
    except InputError:
        # Without the capability to create a namespace, existing rules can still be listed.
        apart, done = False, completed(*words, "-S")
    if done.returncode:
        why = (done.stderr.strip() or "it failed").splitlines()[-1]
        return Finding(program, "fail", why, "modprobe xt_NFQUEUE xt_mark (CONFIG_NETFILTER_XT_TARGET_NFQUEUE)")
    return Finding(
        program, "ok", "accepts the rules of quell live" if apart else "lists its rules; quell live's were not tested"
    )


def _tun() -> Finding:
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except PermissionError as error:
        remedy = "run it as root, or let users open it: sudo chmod 666 /dev/net/tun"
        return Finding("/dev/net/tun", "fail", f"quell shell needs it: {error.strerror}", remedy)
    except OSError as error:
        remedy = "modprobe tun; in a container: mkdir -p /dev/net; mknod /dev/net/tun c 10 200"
        return Finding("/dev/net/tun", "fail", f"quell shell needs it: {error.strerror}", remedy)
    return Finding("/dev/net/tun", "ok", "quell shell can create devices")


def _xdp() -> Finding:
    import resource

    use = "quell live --backend af_xdp"
    try:
        socket.socket(_AF_XDP, socket.SOCK_RAW, 0).close()
    except OSError as error:
        remedy = "a kernel with CONFIG_XDP_SOCKETS, and root; or --backend af_packet"
        return Finding("AF_XDP", "warn", f"{use} needs it: {error.strerror}", remedy)
    lacks = [
        name for name in ("CAP_NET_ADMIN", "CAP_BPF") if not _held(_CAPABILITIES[name], _CAPABILITIES["CAP_SYS_ADMIN"])
    ]
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if not _held(_CAPABILITIES["CAP_IPC_LOCK"]) and soft != resource.RLIM_INFINITY and soft < _FRAMES:
        lacks.append(f"CAP_IPC_LOCK (or a memlock limit of {_FRAMES >> 20} MiB)")
    if lacks:
        return Finding("AF_XDP", "warn", f"{use} lacks {' and '.join(lacks)}", "run it as root: sudo")
    return Finding("AF_XDP", "ok", f"{use} can run")


def _loading() -> Finding:
    """Report whether this process may load the programs of `quell attach`."""
    lacks = [
        name for name in ("CAP_BPF", "CAP_PERFMON") if not _held(_CAPABILITIES[name], _CAPABILITIES["CAP_SYS_ADMIN"])
    ]
    if lacks:
        return Finding("BPF rights", "warn", f"quell attach lacks {' and '.join(lacks)}", "run it as root: sudo")
    return Finding("BPF rights", "ok", "quell attach may load queues")


def _leftovers() -> list[Finding]:
    made = []
    try:
        left = [("live", path) for path in _core.live_left()] + [("steer", path) for path in _core.steer_left()]
    except InputError as error:
        what, _, remedy = str(error).partition("; ")
        return [Finding("state files", "fail", what, remedy)]
    for command, path in left:
        remedy = f"if no quell {command} runs on it: sudo quell {command} --restore"
        made.append(Finding("state file", "warn", f"{path}: in use, or left by a killed process", remedy))
    return made


def _interface(dev: str) -> list[Finding]:
    try:
        socket.if_nametoindex(dev)
    except OSError:
        raise InputError(f"--dev {dev}: there is no such interface") from None
    return [*_offloads(dev), _qdisc(dev)]


def _offloads(dev: str) -> list[Finding]:
    import fcntl

    made = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for name, command in _OFFLOADS.items():
            value = bytearray(struct.pack("II", command, 0))
            # struct ifreq with a pointer to struct ethtool_value.
            held = (ctypes.c_char * len(value)).from_buffer(value)
            request = struct.pack("16sP16x", dev.encode(), ctypes.addressof(held))
            try:
                fcntl.ioctl(asked, _SIOCETHTOOL, request)
            except OSError as error:
                made.append(Finding(f"{dev} {name}", "unknown", str(error.strerror)))
                continue
            on = struct.unpack("II", value)[1] != 0
            about = "on: the kernel splits large packets before the queue, which costs some CPU" if on else "off"
            made.append(Finding(f"{dev} {name}", "ok", about))
    return made


def _qdisc(dev: str) -> Finding:
    check = f"{dev} qdisc"
    if find("tc") is None:
        return Finding(check, "unknown", "tc is missing", "on Debian: apt-get install iproute2")
    done = completed("tc", "qdisc", "show", "dev", dev)
    kinds = re.findall(r"^qdisc (\S+)", done.stdout, re.MULTILINE)
    if holding := sorted(_HOLDS & set(kinds)):
        remedy = f"two shapers in a row: give the lower rate to quell, or tc qdisc del dev {dev} root"
        return Finding(check, "warn", f"{', '.join(holding)} delays packets, too", remedy)
    return Finding(check, "ok", f"{', '.join(kinds) or 'none'}: does not delay packets")
