"""`quell shell`: real programs behind an emulated link, in namespaces made here. Counts and order, no timings."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL, Quell


def missing() -> str:
    """Say what keeps these tests from running; empty if nothing does."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root may make a network namespace beside its own"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"/dev/net/tun: {error.strerror}"
    return ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"quell shell cannot run here: {missing()}")

SERVE = f"{sys.executable} -m http.server 8000 --bind ::"
FETCH = """
import os, sys, urllib.request
host = os.environ[sys.argv[1]]
host = f"[{host}]" if ":" in host else host
data = urllib.request.urlopen(f"http://{host}:8000/file", timeout=60).read()
open("got", "wb").write(data)
"""


def records(folder: Path, name: str = "run.json") -> list[dict[str, Any]]:
    down, up = json.loads((folder / name).read_text())
    assert (down["scenario"], up["scenario"]) == ("down", "up")
    return [down, up]


def assert_nothing_is_lost_or_made(folder: Path, name: str = "run.json") -> None:
    for record in records(folder, name):
        live, causes = record["live"], record["drops_by_cause"]
        gone = live["sent"] + live["unsent"] + live["refused"] + sum(causes.values()) + live["inside"]
        assert live["read"] == gone, record


def python(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return name


@pytest.mark.parametrize("aqm", ["pfifo", "fq_codel", "dualpi2", "learnqueue", "rlaqm", "cake", "pie"])
def test_a_transfer_arrives_whole_behind_any_queue(quell: Quell, tmp_path: Path, aqm: str) -> None:
    data = random.Random(1).randbytes(1_500_000)
    (tmp_path / "file").write_bytes(data)
    fetch = python(tmp_path, "fetch.py", FETCH)
    done = quell(
        "shell", "--rate", "20mbit", "--delay", "5ms", "--aqm", aqm, "--json", "run.json", "--server", SERVE,
        "--", sys.executable, fetch, "QUELL_SERVER",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256((tmp_path / "got").read_bytes()).digest() == hashlib.sha256(data).digest()
    down, up = records(tmp_path)
    assert down["queue"].split()[0] == aqm
    assert down["packets"] >= len(data) / 1448
    assert up["packets"] > 100, "acknowledgements"
    assert_nothing_is_lost_or_made(tmp_path)


def test_ipv6_works_as_well(quell: Quell, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(200_000))
    fetch = python(tmp_path, "fetch.py", FETCH)
    arguments = ["--rate", "20mbit", "--server", SERVE, "--", sys.executable, fetch, "QUELL_SERVER6"]
    done = quell("shell", *arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got").stat().st_size == 200_000


def test_the_command_s_exit_status_is_passed_on(quell: Quell, tmp_path: Path) -> None:
    run = ["shell", "--rate", "5mbit", "--quiet", "--"]
    assert quell(*run, "true").returncode == 0
    assert quell(*run, "sh", "-c", "exit 7").returncode == 7
    assert quell(*run, "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    missing = quell(*run, "no-such-command")
    assert (missing.returncode, missing.stderr) == (127, "quell: no-such-command: command not found\n")
    (tmp_path / "data").write_text("not a program")
    refused = quell(*run, "./data")
    assert (refused.returncode, refused.stderr) == (126, "quell: ./data: Permission denied\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "0mbit"], '--rate: "0mbit" is less than one bit per second'),
        (["--rate", "5mbit", "--aqm", "codl"], "--aqm: unknown queue `codl`; did you mean `codel`?"),
        (["--rate", "5mbit", "--up-aqm", "codel target 5"], "--up-aqm: codel: target: the time"),
        (["--rate", "5mbit", "--up-rate", "fast"], '--up-rate: "fast" '),
        (["--rate", "5mbit", "--loss", "2"], '--loss: "2" is not a probability'),
        (["--delay", "5ms"], "there is no link; give --rate"),
        (["--trace", "no.trace"], "--trace: cannot read the trace no.trace"),
        (["--scenario", "home", "--delay", "5ms"], "--delay: not beside --scenario"),
        (["--rate", "5mbit", "--mtu", "20"], "--mtu: 20 bytes are no packet size; write 68 to 65535"),
        (["--rate", "5mbit", "--server", "'"], "--server: No closing quotation"),
    ],
)
def test_bad_input_is_one_line(quell: Quell, arguments: list[str], message: str) -> None:
    done = quell("shell", *arguments, "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith(f"quell: {message}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_machine_without_tun_is_told_what_is_missing(tmp_path: Path) -> None:
    hide = 'mount -t tmpfs none /dev/net && exec "$0" shell --rate 5mbit -- true'
    done = subprocess.run(["unshare", "-m", "sh", "-c", hide, QUELL], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("quell: /dev/net/tun is missing; load the module (modprobe tun)"), done.stderr
    assert done.stderr.count("\n") == 1
