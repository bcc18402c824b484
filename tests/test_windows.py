"""The commands without Python's Unix-only parts. The workflow also runs this file on Windows, with the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quell.cli import usage

# Runs before quell: removes what Windows lacks, and emulates its module for locks with fcntl.
ELSEWHERE = """
import ctypes, os, socket, subprocess, sys, types

if os.name != "nt":
    import fcntl

    def locking(descriptor, mode, count):
        assert (mode, count) == (2, 1)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, os.lseek(descriptor, 0, os.SEEK_CUR))
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error

    sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
    for name in ("fcntl", "resource", "termios", "pwd", "grp", "pty", "tty"):
        sys.modules[name] = None
    libraries = ctypes.CDLL.__init__

    def load(self, name, *arguments, **keywords):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        libraries(self, name, *arguments, **keywords)

    ctypes.CDLL.__init__ = load
    del socket.AF_NETLINK, os.fork, os.geteuid
    sys.platform = "elsewhere"
    from quell import _core

    linux = "attach attached_left detach disciplines live live_left live_rules Shell StateFile steer steer_kinds"
    for name in (*linux.split(), "steer_left", "steer_why_not", "watch"):
        delattr(_core, name)
from quell.__main__ import main

main()
"""
VERBS = [verb for group in usage.COMMANDS.values() for verb in group]
COMPARE = ("compare", "home", "--seeds", "1", "--duration", "5s", "--aqm", "fq_codel")
EVALUATE = ("evaluate", "10mbit@rtt=20ms", "--aqm", "codel", "--sections", "5.2", "--seeds", "1")
TUNE = (
    "tune", "--rate", "5mbit/1mbit", "--for", "calls", "--queues", "fq_codel", "--trials", "2", "--seeds", "2",
    "--duration", "10s",
)  # fmt: skip
LINUX_ONLY = {
    "shell": ("shell", "10mbit", "--", "true"),
    "live": ("live", "--dev", "lo", "--rate", "1mbit"),
    "watch": ("watch",),
    "steer": ("steer", "lo", "wqm", "--with", "limit"),
    "attach": ("attach", "lo"),
    "detach": ("detach", "lo"),
    "tune --apply": (*TUNE, "--apply", "lo"),
    "tune --undo": ("tune", "--undo", "lo"),
    "tune --verify": (*TUNE, "--verify"),
}


def elsewhere(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `quell WORDS` without the parts that Windows lacks."""
    return subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *words], cwd=folder, capture_output=True, text=True, timeout=300,
        encoding="utf-8", env=os.environ | {"COLUMNS": "100", "PYTHONUTF8": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_explains_itself(tmp_path: Path, verb: str) -> None:
    done = elsewhere(tmp_path, verb, "--help")
    assert done.returncode == 0, done.stderr
    assert f"quell {verb}" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("words", [COMPARE, EVALUATE, TUNE], ids=lambda words: words[0])
def test_simulations_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = elsewhere(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "codel" in done.stdout
    assert not list(tmp_path.glob("*.state"))


def test_a_file_is_written(tmp_path: Path) -> None:
    done = elsewhere(tmp_path, *COMPARE, "--html", "report.html", "--json", "records.json")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "records.json"}


def test_two_evaluations_do_not_share_a_state_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ELSEWHERE, *EVALUATE, "--sections", "5", "--seeds", "1000", "--jobs", "1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        try:
            state = tmp_path / "quell-evaluate.state"
            for _ in range(300):
                if state.exists() and state.stat().st_size:
                    break
                time.sleep(0.1)
            second = elsewhere(tmp_path, *EVALUATE)
            assert second.returncode == 2 and "is in use by another evaluation" in second.stderr, second.stderr
        finally:
            first.kill()
    done = elsewhere(tmp_path, *EVALUATE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", LINUX_ONLY)
def test_commands_that_need_linux_are_refused_in_one_line(tmp_path: Path, command: str) -> None:
    done = elsewhere(tmp_path, *LINUX_ONLY[command])
    assert done.returncode == 2, done.stderr
    assert "Linux" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_doctor_says_what_works_here(tmp_path: Path) -> None:
    done = elsewhere(tmp_path, "doctor")
    assert done.returncode == 1, done.stderr
    assert "need Linux; everything else works here" in " ".join(done.stdout.split()) and done.stderr == ""
