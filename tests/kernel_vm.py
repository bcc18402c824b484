"""A Debian kernel in qemu, with counted instructions, for tests of `quell attach`."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
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

MODELS = ROOT / "crates" / "quell-link" / "models"
STATIC_LIVE = ROOT / "dist" / "quell-live"
"""The static program that `make quell-live` builds and `make deb` packs."""
_CACHE = ROOT / ".cache" / "kernel"
_RELEASE = os.environ.get("QUELL_KERNEL", "")
"""A different kernel, by a release that tools/kernel/fetch accepts."""
_MODULES = (
    "veth", "sch_netem", "sch_htb", "sch_fq_codel", "sch_codel", "sch_cake", "tcp_bbr",
    "bridge", "sch_ingress", "cls_bpf", "cls_u32", "act_gact",
)  # fmt: skip


def steps(out: str) -> Callable[..., str]:
    """Return a function that returns the next step's output and checks its command and words."""
    parts = [part.strip().partition("\n")[::2] for part in out.split("== ")[1:]]
    lines = iter([(command, said.strip()) for command, said in parts])

    def expect(command: str, *words: str, failed: bool = False) -> str:
        found, said = next(lines)
        assert found == command
        assert all(word in said for word in words), f"{found}: {said}"
        assert said.endswith("status 2") == failed, f"{found}: {said}"
        return said

    return expect


def packaged(program: Path, files: dict[str, Path]) -> None:
    """Attach a queue in the guest with a packaged program, which needs these files."""
    expect = steps(in_kernel(ROOT / "tests" / "packaged_guest.sh", str(program), files=files))
    expect("quell attach va hush --rate 8mbit", "quell_hush in place of noqueue")
    expect("tc qdisc show dev va", "qdisc quell_hush 9e00: root")
    gauges = json.loads(expect("quell attach va"))
    assert gauges["present"] and gauges["kind"] == "quell_hush"
    expect("quell detach va", "the kernel's default is back")
    expect("tc qdisc show dev va", "qdisc noqueue 0: root")


@cache
def _guest() -> ModuleType:
    """Load tools/kernel/guest, a program, as a module."""
    loader = importlib.machinery.SourceFileLoader("guest", str(ROOT / "tools" / "kernel" / "guest"))
    spec = importlib.util.spec_from_loader("guest", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _kernel() -> Path:
    kernel = _CACHE / _RELEASE if _RELEASE else _guest().KERNEL
    assert isinstance(kernel, Path)
    return kernel


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
def ready() -> Path | None:
    """Prepare all that the guest needs; return the program that makes TCP flows."""
    need("qemu is", lambda: shutil.which("qemu-system-x86_64") is not None, "qemu-system-x86", "seabios")
    need("ip and tc are", lambda: None not in (shutil.which("ip"), shutil.which("tc")), "iproute2")
    need("make or cc is", lambda: None not in map(shutil.which, ("make", "cc")), "make", "gcc", "libc6-dev")
    if not (_kernel() / "vmlinuz").exists():
        chosen = {"RELEASE": _RELEASE} if _RELEASE else {}
        done = subprocess.run([ROOT / "tools/kernel/fetch"], env=os.environ | chosen, capture_output=True, text=True)
        if done.returncode:
            reason = f"no kernel: {(done.stderr.strip().splitlines() or ['tools/kernel/fetch failed'])[-1]}"
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
        if not (_kernel() / "vmlinuz").exists():
            pytest.fail(f"Debian's archive has no kernel {_RELEASE}")
    _make("make", "--silent", "quell-live")
    source, traffic = ROOT / "tools/kernel/traffic.c", _CACHE / "traffic"
    if not traffic.exists() or traffic.stat().st_mtime < source.stat().st_mtime:
        _make("cc", "-static", "-O2", "-o", traffic, source)
    return traffic


def in_kernel(
    script: Path, *arguments: str, limit_s: float = 500, more: Callable[[], Path] | None = None,
    files: dict[str, Path] | None = None,
) -> str:  # fmt: skip
    """Run a shell script as root of the guest, with tc, ip, quell-live and traffic; return its output.

    `more` makes one more program, once quell-live is built; `files` are more files, by their path in the guest.
    """
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        pytest.skip("the guest's programs are this machine's, and it is x86-64 Linux")
    traffic = ready()
    # The static program contains no networks.
    networks = {f"/usr/share/quell/models/{path.name}": path for path in MODELS.glob("rl-aqm*.safetensors")}
    programs = ["tc", "ip", str(STATIC_LIVE), str(traffic), *([str(more())] if more else ())]
    status, out = _guest().run(
        ["sh", "/script", *arguments], kernel=_kernel().resolve(), names=_MODULES, programs=programs,
        files={"/script": script} | networks | (files or {}), limit_s=limit_s,
    )  # fmt: skip
    assert status == 0, out[-3000:]
    assert isinstance(out, str)
    return out
