"""For `quell doctor`: the kernel's queues, its support for BPF, and attached disciplines (docs/how-to/kernel.md)."""

from __future__ import annotations

import json
import mmap
import os
import platform
import re
from collections import Counter
from pathlib import Path

from quell import _core
from quell._core import InputError
from quell.linux.finding import Finding
from quell.linux.programs import completed, find
from quell.linux.spaces import TemporaryNamespace

_BTF = Path("/sys/kernel/btf/vmlinux")
_JIT = Path("/proc/sys/net/core/bpf_jit_enable")
_BPF = Path("/proc/sys/kernel/unprivileged_bpf_disabled")
_CLSACT_BPF, _QDISC_BPF = (5, 10), (6, 16)
"""The first versions of Linux that run quell's programs at clsact, and disciplines in BPF (NET_SCH_BPF)."""
WITHOUT_PACKETS = {"noqueue", "ingress", "clsact"}
"""Disciplines that hold no packets."""
ATTACHED_PREFIX = "quell_"
"""Prefix of the kinds of attached queues."""


def queues(dev: str | None) -> list[Finding]:
    """Report the disciplines of each interface (or of one), and which of them can be steered."""
    rows = [row for row in _core.disciplines() if dev in (None, row[0]) and row[1] not in WITHOUT_PACKETS]
    rows = [row for row in rows if not row[1].startswith(ATTACHED_PREFIX)]
    kinds = {(kind, is_class): (knobs, least) for kind, is_class, knobs, least in _core.steer_kinds()}
    found = []
    for name in sorted({row[0] for row in rows}):
        # Children of mq are mostly alike: one line for all of a kind.
        here = [row[1:] for row in rows if row[0] == name]
        alike = Counter((kind, handle == "0:", _place(parent)) for kind, handle, parent in here)
        found += [_queue(name, *key, count, kinds) for key, count in alike.items()]
    return found


def _place(parent: str) -> str:
    """Replace the minor number of a parent by `*`, so that children of mq have the same place."""
    return parent if parent == "root" else re.sub(r"[0-9a-f]+$", "*", parent)


def _queue(
    dev: str, kind: str, default: bool, place: str, count: int, kinds: dict[tuple[str, bool], tuple[list[str], int]]
) -> Finding:
    check = f"{dev} {kind}"
    where = f"at {place}" if count == 1 else f"{count} at {place}"
    if kind == "mq":
        return Finding(check, "ok", f"{where}: quell steer {dev} takes the queues below it")
    if (kind, True) in kinds:
        knobs, least = kinds[kind, True]
        return Finding(check, "ok", f"{where}: its classes have a {' and '.join(knobs)}, every {least} ms at most")
    if (kind, False) not in kinds:
        return Finding(check, "warn", f"{where}: cannot be steered: {_core.steer_why_not(kind)}", _replace(dev, place))
    knobs, least = kinds[kind, False]
    if default:
        what = f"{where}: a default discipline (handle 0:), whose settings the kernel does not change"
        return Finding(check, "warn", what, _replace(dev, place, kind))
    return Finding(check, "ok", f"{where}: {' and '.join(knobs)} can be steered, every {least} ms at most")


def _replace(dev: str, place: str, kind: str = "pfifo") -> str:
    at = "root" if place == "root" else f"parent {place.replace('*', 'N')}"
    return f"to steer it: tc qdisc replace dev {dev} {at} {kind}"


def bpf() -> list[Finding]:
    """Report the kernel's support for programs in BPF."""
    found = [_clsact()]
    if _BPF.exists():
        found.append(Finding("BPF", "ok", "the kernel loads programs"))
    else:
        found.append(Finding("BPF", "warn", "the kernel loads no programs", "a kernel with CONFIG_BPF_SYSCALL"))
    found.append(_jit())
    btf = _BTF.exists()
    remedy = "a kernel with CONFIG_DEBUG_INFO_BTF"
    what = "the kernel describes its types" if btf else "the kernel does not describe its types"
    found.append(Finding("BTF", "ok" if btf else "warn", what, "" if btf else remedy))
    found.append(_disciplines(btf))
    return found


def _release() -> tuple[int, int]:
    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _clsact() -> Finding:
    """Test clsact in a temporary network namespace, where it has no effect."""
    if _release() < _CLSACT_BPF:
        return Finding("clsact", "warn", "needs Linux 5.10", "a newer kernel")
    if find("tc") is None or os.geteuid() != 0:
        return Finding("clsact", "unknown", "can be tested as root only, with tc", "sudo quell doctor")
    try:
        with TemporaryNamespace():
            refused = completed("tc", "qdisc", "add", "dev", "lo", "clsact").returncode
    except InputError:
        return Finding("clsact", "unknown", "no network namespace can be made to test it", "sudo quell doctor")
    if refused:
        return Finding("clsact", "warn", "the kernel has none", "modprobe sch_ingress (CONFIG_NET_SCH_INGRESS)")
    return Finding("clsact", "ok", "quell steer --with clsact can drop packets before a queue")


def _jit() -> Finding:
    try:
        on = _JIT.read_text().strip() != "0"
    except OSError:
        what = "the kernel has no compiler for programs, or this is not its first network namespace"
        return Finding("BPF JIT", "unknown", what, "a kernel with CONFIG_BPF_JIT")
    if on:
        return Finding("BPF JIT", "ok", "programs are compiled")
    return Finding("BPF JIT", "warn", "programs are interpreted", "sysctl -w net.core.bpf_jit_enable=1")


def _disciplines(btf: bool) -> Finding:
    check, needs = "struct_ops", "Linux 6.16 with CONFIG_NET_SCH_BPF"
    if _release() < _QDISC_BPF:
        return Finding(check, "warn", f"queue disciplines in BPF need {needs}; quell attach needs them")
    if not btf:
        return Finding(check, "warn", "queue disciplines in BPF need BTF", "a kernel with CONFIG_DEBUG_INFO_BTF")
    try:
        with _BTF.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as types:
            has = types.find(b"bpf_struct_ops_Qdisc_ops\0") >= 0
    except (OSError, ValueError):
        has = b"bpf_struct_ops_Qdisc_ops\0" in _BTF.read_bytes()
    if has:
        return Finding(check, "ok", "queue disciplines in BPF can be loaded")
    return Finding(check, "warn", f"queue disciplines in BPF need {needs}; quell attach needs them")


def attached(dev: str | None) -> list[Finding]:
    """Report what `quell attach` installed on each interface (or on one), and what remains of it."""
    there: dict[str, Counter[str]] = {}
    for name, kind, *_ in _core.disciplines():
        if kind.startswith(ATTACHED_PREFIX):
            there.setdefault(name, Counter())[kind] += 1
    try:
        saved = {_device(path): path for path in _core.attached_left()}
    except InputError:  # quell doctor reports the folder
        saved = {}
    return [
        _attached(name, there.get(name), saved.get(name)) for name in sorted({*there, *saved}) if dev in (None, name)
    ]


def _device(path: Path) -> str:
    """Return the interface of a state file, `attach-NAMESPACE-DEV.json`."""
    return path.stem.split("-", 2)[2]


def _attached(dev: str, there: Counter[str] | None, saved: Path | None) -> Finding:
    check, detach = f"{dev} attached", f"sudo quell detach {dev}"
    if there is None:
        what = f"{saved}: its queue is gone: another program has replaced it, or a process was killed"
        return Finding(check, "warn", what, detach)
    what = ", ".join(kind if count == 1 else f"{count} {kind}" for kind, count in sorted(there.items()))
    if saved is None:
        return Finding(check, "warn", f"{what}: its state file is gone", f"tc qdisc del dev {dev} root removes it")
    if _marks(saved) and not _filtered(dev):
        name = next(iter(there)).removeprefix(ATTACHED_PREFIX)
        what = f"{what}: another program has removed the filter that marks packets"
        return Finding(check, "warn", what, f"sudo quell attach {dev} {name} ecn, or noecn")
    return Finding(check, "ok", f"{what}: {detach} removes it")


def _marks(saved: Path) -> bool:
    """Return whether a state file names a filter that marks packets."""
    try:
        return bool(json.loads(saved.read_text()).get("hooks"))
    except (OSError, ValueError, AttributeError):
        return False


def _filtered(dev: str) -> bool:
    """Return whether the filter exists; without tc this is unknown, and it is assumed to exist."""
    if find("tc") is None:
        return True
    done = completed("tc", "filter", "show", "dev", dev, "egress")
    return done.returncode != 0 or " quell " in done.stdout
