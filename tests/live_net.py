"""Hosts in network namespaces with `quell live` between them, for several tests."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from conftest import QUELL_LIVE
from quell.linux.spaces import has_ipv6


def missing() -> str:
    """Return what keeps these tests from running; empty if nothing does."""
    if not sys.platform.startswith("linux"):
        return "NFQUEUE is Linux's"
    if os.geteuid() != 0:
        return "only root may make namespaces and iptables rules"
    if absent := [name for name in ("ip", "iptables", "ip6tables") if shutil.which(name) is None]:
        return f"{', '.join(absent)} missing"
    if not Path("/proc/net/netfilter/nfnetlink_queue").exists():
        return "the kernel has no nfnetlink_queue"
    if not QUELL_LIVE.exists():
        return "quell-live is not built: make quell-live"
    return ""


def require() -> None:
    """Skip the test where `quell live` cannot run; in CI it fails."""
    if reason := missing():
        reason = f"quell live cannot run here: {reason}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def cgroup2() -> Path:
    """Return the mount point of cgroup version 2; skip the test if there is none."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next((Path(where) for _, where, kind, *_ in mounts if kind == "cgroup2"), None)
    if root is None:
        pytest.skip("no cgroup2 is mounted")
    return root


SINK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
except PermissionError:  # root of a user namespace has what everyone has
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
s.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
s.bind(("0.0.0.0", 5000)); s.settimeout(3)
print("ready", flush=True)
while True:
    try:
        data, extra, _, _ = s.recvmsg(2000, 64)
    except TimeoutError:
        break
    if data == b"end":
        break
    print(int(data[:6]), extra[0][2][0] & 3, flush=False)
"""
SOURCE = """
import socket, sys, time
count, ect, gap = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ect); s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
for k in range(count):
    s.sendto(b"%06d" % k + bytes(954), ("10.9.2.2", 5000))
    if gap: time.sleep(gap)
time.sleep(float(sys.argv[4]))
for k in range(3):
    s.sendto(b"end", ("10.9.2.2", 5000))
"""
REACHES = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.setsockopt(socket.SOL_SOCKET, 11, 1)
for k in range(3):
    s.sendto(b"x", ("10.9.2.2", 7))
    try:
        s.recv(10); break
    except TimeoutError: pass
else:
    raise SystemExit("no answer")
"""
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", 7)); s.setsockopt(socket.SOL_SOCKET, 11, 1)
print("ready", flush=True)
while True:
    data, peer = s.recvfrom(100); s.sendto(data, peer)
"""


IPTABLES = ("iptables", "ip6tables") if has_ipv6() else ("iptables",)
"""Each program has one rule per shaped direction."""
REMOVED = "2 rules removed" if len(IPTABLES) == 2 else "1 rule removed"
"""Output of `--restore` for one direction."""


class Net:
    """Host a - router r - host b."""

    def __init__(self, tag: str) -> None:
        self.a, self.r, self.b = (f"q{tag}{end}" for end in "arb")

    def ip(self, words: str) -> None:
        subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True)

    def make(self) -> None:
        for space in (self.a, self.r, self.b):
            self.ip(f"netns add {space}")
        for host, dev, net in ((self.a, "ra", 1), (self.b, "rb", 2)):
            self.ip(f"link add v0 netns {host} type veth peer name {dev} netns {self.r}")
            self.ip(f"-n {host} addr add 10.9.{net}.2/24 dev v0")
            self.ip(f"-n {self.r} addr add 10.9.{net}.1/24 dev {dev}")
            for space, name in ((host, "v0"), (host, "lo"), (self.r, dev), (self.r, "lo")):
                self.ip(f"-n {space} link set {name} up")
            self.ip(f"-n {host} route add default via 10.9.{net}.1")
        self.run(self.r, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")

    def remove(self) -> None:
        for space in (self.a, self.r, self.b):
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def start(self, space: str, *words: str | Path, out: int = subprocess.PIPE) -> subprocess.Popen[str]:
        # These tests check the rules of iptables, tests/test_live_nftables.py those of nftables.
        environment = os.environ | {"QUELL_FIREWALL": "iptables"}
        words = ("ip", "netns", "exec", space, *words)
        return subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE, text=True, env=environment)

    def run(self, space: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"QUELL_FIREWALL": "iptables"}
        words = ("ip", "netns", "exec", space, *words)
        return subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment)

    def rules(self, program: str = "iptables") -> list[str]:
        done = self.run(self.r, program, "-t", "mangle", "-S")
        return [line for line in done.stdout.splitlines() if "NFQUEUE" in line]

    def live(self, *words: str, dev: str = "rb") -> subprocess.Popen[str]:
        """Start quell-live on the router and wait until it has made all its rules."""
        wanted = sum(word in ("--rate", "--ingress", "--config") for word in words)
        command = self.start(self.r, QUELL_LIVE, "--dev", dev, *words)
        for _ in range(1000):
            ours = [line for program in IPTABLES for line in self.rules(program) if f" {dev} " in line]
            if len(ours) >= wanted * len(IPTABLES) or command.poll() is not None:
                return command
            time.sleep(0.02)
        raise AssertionError("no rules after 20 s")

    def answers(self) -> bool:
        return self.run(self.a, sys.executable, "-c", REACHES).returncode == 0

    def echo(self) -> subprocess.Popen[str]:
        server = self.start(self.b, sys.executable, "-c", ECHO)
        assert server.stdout is not None
        server.stdout.readline()
        return server

    def datagrams(self, count: int, ect: int = 0, gap: float = 0.0, wait: float = 1.0) -> list[tuple[int, int]]:
        """Send datagrams from a to b; return those that arrive: number and ECN field."""
        sink = self.start(self.b, sys.executable, "-c", SINK)
        assert sink.stdout is not None
        sink.stdout.readline()
        sent = self.run(self.a, sys.executable, "-c", SOURCE, str(count), str(ect), str(gap), str(wait))
        assert sent.returncode == 0, sent.stderr
        text, errors = sink.communicate(timeout=60)
        assert not errors, errors
        return [(int(n), int(e)) for n, e in (line.split() for line in text.splitlines())]


N = TypeVar("N", bound=Net)


@contextlib.contextmanager
def built(kind: type[N]) -> Iterator[N]:
    made = kind(f"{os.getpid() % 100_000}")
    try:
        made.make()
        yield made
    finally:
        made.remove()


class Bump(Net):
    """Host a - bump r - host b, all on one Ethernet."""

    queues = 1
    """Number of receive queues, and of send queues, of each interface."""

    def make(self) -> None:
        for space in (self.a, self.r, self.b):
            self.ip(f"netns add {space}")
        many = f"numtxqueues {self.queues} numrxqueues {self.queues}"
        for host, dev, end in ((self.a, "ra", 1), (self.b, "rb", 2)):
            self.ip(f"link add v0 {many} netns {host} type veth peer name {dev} {many} netns {self.r}")
            self.ip(f"-n {host} addr add 10.9.2.{end}/24 dev v0")
            for space, name in ((host, "v0"), (host, "lo"), (self.r, dev)):
                self.ip(f"-n {space} link set {name} up")

    def bridge(self) -> None:
        self.ip(f"-n {self.r} link add br0 type bridge")
        for dev in ("ra", "rb"):
            self.ip(f"-n {self.r} link set {dev} master br0")
        self.ip(f"-n {self.r} link set br0 up")

    def in_line(self, *words: str, open_after: bool = False) -> subprocess.Popen[str]:
        risk = () if open_after else ("--no-fail-open",)
        command = self.start(self.r, QUELL_LIVE, "--dev", "rb", "--to", "ra", *risk, *words)
        # quell-live prints a line once it runs.
        assert command.stderr is not None
        while "egress: " not in (line := command.stderr.readline()) and "ingress: " not in line:
            assert line, "it has ended"
        deadline = time.monotonic() + 20
        while not self.answers():
            assert command.poll() is None and time.monotonic() < deadline
        return command


def next_error_line(command: subprocess.Popen[str]) -> str:
    """Read a command's next line of standard error."""
    assert command.stderr is not None
    return command.stderr.readline()


def wait_for_output(command: subprocess.Popen[str], words: str) -> None:
    """Wait until a command prints these words; it is killed after 20 s."""
    timeout = threading.Timer(20, command.kill)
    timeout.start()
    lines = []
    while words not in (line := next_error_line(command)):
        lines.append(line)
        assert line, f"it ended without printing {words!r}; its lines: {lines}"
    timeout.cancel()


def stop(command: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    command.send_signal(number)
    _, errors = command.communicate(timeout=30)
    return command.returncode, errors


def status(path: Path) -> dict[str, Any]:
    """Read a status socket."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(str(path))
        text = b"".join(iter(lambda: asked.recv(65536), b""))
    answer: dict[str, Any] = json.loads(text)
    return answer


def until(is_so: Callable[[], bool], within: float = 10.0) -> float:
    """Wait until a condition holds; return how long that took."""
    begin = time.monotonic()
    while not is_so():
        assert time.monotonic() < begin + within
        time.sleep(0.01)
    return time.monotonic() - begin


def state(path: Path) -> dict[str, Any]:
    """Return the egress direction of a status socket."""
    look: dict[str, Any] = status(path)["directions"]["egress"]
    return look
