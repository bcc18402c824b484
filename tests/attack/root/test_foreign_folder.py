"""Commands that root runs in a folder of somebody else: no module and no program comes from there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import QUELL

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can make namespaces"),
]

MODULES = (
    "encodings", "io", "json", "multiprocessing", "os", "pathlib", "quell", "shlex", "signal", "site", "sitecustomize",
    "socket", "struct", "subprocess", "typing", "usercustomize",
)  # fmt: skip
PROGRAMS = ("ip", "ip6tables", "iptables", "nft", "nsenter", "python", "python3", "sh", "tc", "true", "unshare")
# Interfaces and /run/quell of its own.
APART = """
mount -t tmpfs none /run
mkdir -m 755 /run/quell
ip link set lo up
ip link add v0 type veth peer name v1
ip link set v0 up
tc qdisc add dev v0 root pfifo limit 1000
cd "$1"; shift
"$@"
"""
LINE = (
    "--rate",
    "5mbit/1mbit",
    "--trials",
    "1",
    "--seeds",
    "2",
    "--duration",
    "5s",
    "--queues",
    "pfifo",
    "--for",
    "bulk",
)
COMMANDS = {
    "verify": ("tune", *LINE, "--verify"),
    "apply": ("tune", *LINE, "--apply", "v0", "--replace"),
    "undo": ("tune", "--undo", "v0"),
    "nat": ("shell", "--rate", "5mbit", "--nat", "--", "/bin/true"),
    "real": ("compare", "--rate", "5mbit", "--real", "--duration", "2s", "--warmup", "1s", "--aqm", "pfifo"),
    "live": ("live", "--dev", "v0", "--rate", "5mbit", "--duration", "300ms"),
    "restore": ("live", "--restore"),
    "steer": ("steer", "v0", "77", "--with", "limit", "--duration", "300ms"),
    "watch": ("watch", "v0", "--duration", "300ms"),
    "attach": ("attach", "v0", "hush", "--replace"),
    "doctor": ("doctor", "--dev", "v0"),
}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Give a folder in which each module and program that quell may look for leaves a mark when it is run."""
    folder = tmp_path / "foreign"
    mark = tmp_path / "ran"
    for name in MODULES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"open({str(mark)!r}, 'a').write('import {name}\\n')\n")
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho run {name} >>{mark}\n")
        (folder / name).chmod(0o755)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    return folder


def ran(folder: Path) -> str:
    mark = folder.parent / "ran"
    return mark.read_text() if mark.exists() else ""


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_of_it_is_run(foreign: Path, name: str) -> None:
    words = ("unshare", "-n", "-m", "sh", "-ec", APART, "-", str(foreign), str(QUELL), *COMMANDS[name])
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, timeout=120)
    print(done.returncode, done.stdout, done.stderr)
    assert ran(foreign) == ""
    # It did something, or refused in a line what this machine lacks.
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr


def test_a_module_would_be_seen(foreign: Path) -> None:
    subprocess.run(["python3", "-c", "import quell"], cwd=foreign, check=True)
    assert "import quell" in ran(foreign)
