"""Commands for real packets, as root, run only the programs of ALLOWED, and no shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import live_net
from conftest import QUELL, QUELL_LIVE
from kernel_vm import in_kernel, need
from oracle import in_guest
from quell.linux.spaces import has_ipv6

HERE = Path(__file__).parent
ALLOWED = {"tc", "ip", "nft", "iptables", "iptables-save", "ip6tables", "ip6tables-save", "nsenter"}
# The interpreter has several names in one folder, one in quell's first line and one that runs these tests.
OWN = {str(QUELL), str(QUELL_LIVE), sys.executable, str(Path(sys.executable).with_name("python"))}
# `$TRACE NAME COMMAND...` records all programs that a command and its children execute in files NAME.PID.
TRACED = """
TRACE="strace -ff -qq -e trace=execve,execveat -o"
"""
# The beginning of a script: a /run and interfaces of its own.
APART = """
mount -t tmpfs none /run
mkdir -m 755 /run/quell
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 10.7.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
tc qdisc add dev v0 root handle 1: pfifo limit 1000
"""
LIVE = """
live="$QUELL live --dev v0 --rate 5mbit --ingress 5mbit"
$TRACE ended $live --duration 300ms
$TRACE killed $live & strace=$!
rules() { { iptables -t mangle -S; nft list ruleset; } 2>/dev/null | grep -q v0; }
rules6() { { ip6tables -t mangle -S; nft list ruleset; } 2>/dev/null | grep -q v0; }
until rules && rules6; do kill -0 $strace; sleep 0.1; done
kill -9 $(pgrep -P $strace)
wait $strace || true
rules && echo left
$TRACE restored $QUELL live --restore
rules || echo restored
"""
STEER = """
$TRACE ended $QUELL steer v0 77 --with limit --duration 300ms
$TRACE killed $QUELL steer v0 77 --with limit --quiet & strace=$!
until tc qdisc show dev v0 | grep -q 77p; do kill -0 $strace; sleep 0.1; done
kill -9 $(pgrep -P $strace)
wait $strace || true
$TRACE restored $QUELL steer --restore
tc qdisc show dev v0
"""
SHELL = """
$TRACE shell $QUELL shell --rate 5mbit --nat --quiet -- true
iptables-save | grep quell || echo no rules
"""
TUNE = """
ip link add wan type veth peer name other
line="--rate 5mbit/1mbit --duration 5s --seeds 2 --trials 1 --queues pfifo --for bulk"
$TRACE applied $QUELL tune $line --apply wan 2>&1 | tail -1
$TRACE undone $QUELL tune --undo wan 2>&1
"""
ATTACH = """
ip link add va numtxqueues 1 type veth peer name vb
ip link set va up
cd /tmp
$TRACE attached quell-live attach va hush --rate 8mbit
$TRACE attached quell-live detach va
echo == traced
cat attached.*
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    need("strace is", lambda: shutil.which("strace") is not None, "strace")
    return tmp_path


def run(folder: Path, script: str, **environment: str) -> str:
    """Run a script in namespaces of its own; return its output."""
    live_net.require()
    need("pgrep is", lambda: shutil.which("pgrep") is not None, "procps")
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*apart, "sh", "-ec", APART + TRACED + script], cwd=folder, text=True, timeout=90, capture_output=True,
        env=os.environ | {"QUELL": str(QUELL)} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_oracle(folder: Path, script: str) -> str:
    """Run a script in the oracle's kernel; return its output."""
    file = folder / "script.sh"
    file.write_text(f"set -e\ncd {folder}\nQUELL={QUELL}{TRACED}{script}")
    done = in_guest(file)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def traced(folder: Path, *names: str) -> str:
    files = [file for name in names for file in folder.glob(f"{name}.*")]
    assert len({file.name.partition(".")[0] for file in files}) == len(names)
    return "\n".join(file.read_text() for file in files)


def programs(text: str, own: set[str] = OWN) -> set[str]:
    """Return the names of a trace's programs, without quell; check that all are in ALLOWED."""
    assert "execveat(" not in text
    paths = Counter(re.findall(r'^execve\("([^"]+)", .* = 0$', text, re.MULTILINE))
    assert paths.keys() & own, text
    names = {Path(path).name for path in paths if path not in own}
    assert names <= ALLOWED, names - ALLOWED
    return names


def test_a_shell_would_be_seen(folder: Path) -> None:
    run(folder, f"$TRACE seen {sys.executable} -c 'import os; os.system(\"tc qdisc show\")'")
    with pytest.raises(AssertionError, match=r"\{'sh'\}"):
        programs(traced(folder, "seen"))


def test_live_and_its_restore_run_the_firewall_alone(folder: Path) -> None:
    assert run(folder, LIVE) == "left\nrestored\n"
    for name in ("ended", "killed", "restored"):
        assert {"iptables", "ip6tables"} <= programs(traced(folder, name)), name


def test_live_with_nftables_runs_nft(folder: Path) -> None:
    """In the oracle's kernel, because many kernels lack nftables' queue."""
    if missing := [name for name in ("nft", "iptables", "ip6tables", "pgrep") if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} missing")
    assert in_oracle(folder, APART + LIVE) == "left\nrestored\n"
    for name in ("ended", "killed", "restored"):
        assert "nft" in programs(traced(folder, name)), name


def test_steer_and_its_restore_run_nothing(folder: Path) -> None:
    assert "limit 1000p" in run(folder, STEER)
    assert programs(traced(folder, "ended", "killed", "restored")) == set()


def test_shell_with_nat_runs_iptables_and_its_command(folder: Path) -> None:
    assert run(folder, SHELL) == "no rules\n"
    command = {str(shutil.which("true"))}
    text = traced(folder, "shell")
    assert programs(text, OWN | command) == {"iptables", *(["ip6tables"] if has_ipv6() else [])}
    assert len(re.findall(r'execve\("[^"]+/true", .* = 0$', text, re.MULTILINE)) == 1


def test_tune_runs_ip_and_tc(folder: Path) -> None:
    said = run(folder, TUNE)
    if "this kernel refuses" in said:
        said = in_oracle(folder, TUNE)
    assert said.endswith("wan has again what it had before\n"), said
    assert programs(traced(folder, "applied")) == {"ip", "tc", "nsenter"}
    assert programs(traced(folder, "undone")) == {"ip", "tc"}


def test_doctor_runs_tc_and_iptables(folder: Path) -> None:
    run(folder, "$TRACE doctor $QUELL doctor --dev v0 || true")
    assert programs(traced(folder, "doctor")) == {"iptables", "ip6tables", "tc"}


@pytest.mark.guest
def test_attach_and_detach_run_nothing(folder: Path) -> None:
    """In a Debian kernel, which loads disciplines in BPF."""
    script = folder / "script.sh"
    script.write_text("set -e" + TRACED + ATTACH)
    out = in_kernel(script, more=lambda: Path(str(shutil.which("strace"))))
    assert "the kernel's default is back" in out
    text = out.partition("== traced\n")[2].replace("\r", "")
    assert programs(text, {"/bin/quell-live"}) == set()
