"""A Debian kernel in qemu, with counted instructions: what tests of `quell attach` share."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT

QUELL_ATTACH = ROOT / ".venv" / "bin" / "quell-attach"
_CACHE = ROOT / ".cache" / "kernel"
_MODULES = (
    "veth", "sch_netem", "sch_htb", "sch_fq_codel", "sch_codel", "sch_cake", "tcp_bbr",
    "sch_ingress", "cls_bpf", "cls_u32", "act_gact",
)  # fmt: skip


@cache
def _guest() -> ModuleType:
    """tools/kernel/guest, which is a program."""
    loader = importlib.machinery.SourceFileLoader("guest", str(ROOT / "tools" / "kernel" / "guest"))
    spec = importlib.util.spec_from_loader("guest", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def need(what: str, has: Callable[[], bool], *packages: str) -> None:
    """Skip the test unless the machine has something. In CI its Debian packages are installed, or the test fails."""
    if has():
        return
    reason = f"{what} missing; on Debian: apt-get install {' '.join(packages)}"
    if not os.environ.get("CI"):
        pytest.skip(reason)
    if os.geteuid() == 0 and shutil.which("apt-get"):
        words = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
        subprocess.run(words, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, capture_output=True, check=False)
    if not has():
        pytest.fail(reason)


def _make(*words: str | Path) -> None:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it failed"]
        pytest.fail(f"{words[0]}: {lines[-1]}")


@cache
def _ready() -> Path | None:
    """Get all that the guest needs; the program that makes TCP flows."""
    need("qemu is", lambda: shutil.which("qemu-system-x86_64") is not None, "qemu-system-x86", "seabios")
    need("ip and tc are", lambda: None not in (shutil.which("ip"), shutil.which("tc")), "iproute2")
    need("make, cc or pkg-config is", lambda: None not in map(shutil.which, ("make", "cc", "pkg-config")), "pkg-config")
    headers = [Path("/usr/include", name) for name in ("gelf.h", "zlib.h")]
    need("a header is", lambda: all(file.exists() for file in headers), "libelf-dev", "zlib1g-dev")
    kernel = _guest().KERNEL
    if not (kernel / "vmlinuz").exists():
        done = subprocess.run([ROOT / "tools/kernel/fetch"], capture_output=True, text=True)
        if done.returncode:
            reason = f"no kernel: {(done.stderr.strip().splitlines() or ['tools/kernel/fetch failed'])[-1]}"
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    _make("make", "--silent", "attach")
    source, traffic = ROOT / "tools/kernel/traffic.c", _CACHE / "traffic"
    if not traffic.exists() or traffic.stat().st_mtime < source.stat().st_mtime:
        _make("cc", "-static", "-O2", "-o", traffic, source)
    return traffic


def in_kernel(script: Path, *arguments: str, limit_s: float = 200, more: Callable[[], Path] | None = None) -> str:
    """Run a shell script as root of the guest, with tc, ip, quell-attach and traffic; what it printed.

    `more` makes one more program of quell-attach, once that is built.
    """
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        pytest.skip("the guest's programs are this machine's, and it is x86-64 Linux")
    traffic = _ready()
    programs = ["tc", "ip", str(QUELL_ATTACH), str(traffic), *([str(more())] if more else ())]
    status, out = _guest().run(
        ["sh", "/script", *arguments], names=_MODULES, programs=programs,
        files={"/script": script}, limit_s=limit_s,
    )  # fmt: skip
    assert status == 0, out[-3000:]
    assert isinstance(out, str)
    return out
