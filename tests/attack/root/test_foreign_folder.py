"""Commands that root runs in another user's folder: no module and no program is loaded from there."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import time
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
PROGRAMS = ("ip", "ip6tables", "ip6tables-save", "iptables", "iptables-save", "nft", "nsenter", "python", "python3",
            "sh", "tc", "true", "unshare")  # fmt: skip
# Runs a command in a folder, with a /run and interfaces of its own.
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
    """Return a folder in which each module and program that quell may look for leaves a mark when it runs."""
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


@pytest.mark.machine_root
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_in_a_foreign_folder_is_run(foreign: Path, name: str) -> None:
    words = ("unshare", "-n", "-m", "sh", "-ec", APART, "-", str(foreign), str(QUELL), *COMMANDS[name])
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, timeout=120)
    print(done.returncode, done.stdout, done.stderr)
    assert ran(foreign) == ""
    # It worked, or named in one line what this machine lacks.
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr


@pytest.mark.machine_root
def test_a_module_would_be_seen(foreign: Path) -> None:
    subprocess.run(["python3", "-c", "import quell"], cwd=foreign, check=True)
    assert "import quell" in ran(foreign)


# zsh evaluates completions when Tab is pressed, with typer's script; bash inserts them without quotes.
NAMES = (
    "\\$(id>F).toml", "$(id>F).toml", "`id>F`.toml", "a;id.toml", "a\\", "a'b.toml", 'a"b.toml', "<(id>F).toml",
    "a b.toml", "a\nb.toml", "a|id.toml", "!id.toml", "*.toml",
)  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_no_name_that_a_shell_would_evaluate(tmp_path: Path, shell: str) -> None:
    asked = {"COMP_WORDS": "quell compare ", "COMP_CWORD": "2", "_TYPER_COMPLETE_ARGS": "quell compare "}
    asked |= {"_QUELL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}

    def offered() -> set[str]:
        done = subprocess.run([QUELL], cwd=tmp_path, env=os.environ | asked, capture_output=True, text=True, timeout=60)
        return set(done.stdout.replace("))'", "").splitlines())

    before = offered()
    for name in NAMES:
        (tmp_path / name).mkdir()
    (tmp_path / "good-Straße.toml").touch()
    assert [line.strip('"') for line in offered() - before] == ["good-Straße.toml"]


def test_tab_in_zsh_runs_nothing(tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    (tmp_path / NAMES[0]).touch()
    (tmp_path / "zigzag.toml").touch()
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        os.environ |= {"PATH": f"{QUELL.parent}:{os.environ['PATH']}", "TERM": "dumb"}
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        setup = "autoload -Uz compinit; compinit -D -u; source <(_QUELL_COMPLETE=source_zsh quell); PS1=rea''dy-\n"
        os.write(terminal, setup.encode())
        read_until(terminal, b"ready-")
        os.write(terminal, b"quell compare \t")
        read_until(terminal, b"zigzag.toml")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(pid, 0)
    assert not (tmp_path / "F").exists()


def read_until(terminal: int, wanted: bytes) -> None:
    said, end = b"", time.monotonic() + 30
    while wanted not in said:
        assert time.monotonic() < end, said
        if select.select([terminal], [], [], 0.2)[0]:
            said += os.read(terminal, 65536)
