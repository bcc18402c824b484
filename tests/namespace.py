"""A network namespace for tests of the kernel's own queues."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import QUELL_LIVE

VETH = """
ip link add v0 type veth peer name v1
ip addr add 10.7.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
ip neigh replace 10.7.0.2 lladdr 02:00:00:00:00:01 dev v0 nud permanent
"""
"""A pair of devices; packets to 10.7.0.2 leave v0 and are not answered."""


class Space:
    """A network namespace with queues."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str | Path, stdin: int | None = None) -> subprocess.Popen[str]:
        words = ("ip", "netns", "exec", self.name, *words)
        started = subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._started.append(started)
        return started

    def end(self) -> None:
        """End the programs that a failed test has left."""
        for started in self._started:
            if started.poll() is None:
                started.kill()
                started.wait()

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        words = ("ip", "netns", "exec", self.name, *words)
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    def watch(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run(QUELL_LIVE, "watch", *words)


@contextmanager
def space_with(prefix: str, queues: str) -> Iterator[Space]:
    """Yield a namespace in which the shell has run `queues`; skip the test, with the reason, if it cannot be made."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root may make network namespaces, on Linux")
    if absent := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(absent)} missing")
    made = Space(f"{prefix}{os.getpid() % 100_000}")
    subprocess.run(["ip", "netns", "add", made.name], check=True)
    try:
        done = made.run("sh", "-ec", queues)
        if done.returncode:
            pytest.skip(f"this kernel lacks a queue: {done.stderr.strip()}")
        yield made
    finally:
        made.end()
        subprocess.run(["ip", "netns", "del", made.name], capture_output=True)
