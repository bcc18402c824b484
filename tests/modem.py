"""A host behind a modem whose FIFOs hold seconds, for tests, attacks and benches of the loops over the rate."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import QUELL_LIVE, no_tun
from live_net import Net

REFLECTORS = [f"10.9.3.{k}" for k in range(2, 6)]
SERVER = """
import socket, threading
def serve(s):
    word = s.recv(1)
    try:
        while (s.send(bytes(1 << 16)) if word == b"d" else s.recv(1 << 16)): pass
    except OSError: pass
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(("", 5001)); l.listen(20)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("", 7))
def echo():
    while True:
        data, peer = u.recvfrom(100); u.sendto(data, peer)
threading.Thread(target=echo, daemon=True).start()
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""
LOAD = """
import socket, sys, threading, time
def load(word):
    s = socket.socket(); s.connect((sys.argv[2], 5001)); s.send(word)
    while (s.recv(1 << 16) if word == b"d" else s.send(bytes(1 << 16))): pass
for word in sys.argv[1]:
    threading.Thread(target=load, args=(word.encode(),), daemon=True).start()
time.sleep(1000)
"""
PROBE = """
import socket, struct, threading, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("10.9.3.2", 7)); s.settimeout(0.5)
def send():
    while True:
        s.send(struct.pack("d", time.monotonic())); time.sleep(0.05)
threading.Thread(target=send, daemon=True).start()
while True:
    try: sent = struct.unpack("d", s.recv(100))[0]
    except TimeoutError: continue
    print(sent, 1000 * (time.monotonic() - sent), flush=True)
"""


class Modem(Net):
    """Host a - router r - modem m - host b: the modem's line is slow in both directions, and its FIFOs hold 3 MB."""

    def __init__(self, tag: str) -> None:
        super().__init__(tag)
        self.m = f"q{tag}m"

    def make(self) -> None:
        super().make()
        # The base class's host b becomes the modem; the real host b is behind it.
        self.ip(f"netns add {self.m}")
        self.b, self.m = self.m, self.b
        self.ip(f"link add mb netns {self.m} type veth peer name v0 netns {self.b}")
        self.ip(f"-n {self.m} addr add 10.9.3.1/24 dev mb")
        for address in REFLECTORS:
            self.ip(f"-n {self.b} addr add {address}/24 dev v0")
        for space, name in ((self.m, "mb"), (self.b, "v0"), (self.b, "lo")):
            self.ip(f"-n {space} link set {name} up")
        self.ip(f"-n {self.b} route add default via 10.9.3.1")
        self.ip(f"-n {self.r} route add 10.9.3.0/24 via 10.9.2.2")
        self.run(self.m, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        self.line(20, 5)

    def remove(self) -> None:
        super().remove()
        subprocess.run(["ip", "netns", "del", self.m], capture_output=True)

    def line(self, down: float, up: float) -> None:
        """Set the rates of the line, Mbit/s."""
        for dev, rate in (("v0", down), ("mb", up)):
            words = f"tc qdisc replace dev {dev} root handle 1: tbf rate {rate}mbit burst 5k limit 3000000"
            done = self.run(self.m, *words.split())
            assert done.returncode == 0, done.stderr

    def sent(self) -> dict[str, int]:
        """Bytes sent on the line so far."""
        found = {}
        for way, dev in (("down", "v0"), ("up", "mb")):
            [queue] = json.loads(self.run(self.m, "tc", "-j", "-s", "qdisc", "show", "dev", dev).stdout)
            found[way] = int(queue["bytes"])
        return found

    def refuse(self, verb: str) -> None:
        """Drop all ICMP that the modem forwards (`-A`), or stop dropping it (`-D`)."""
        done = self.run(self.m, "iptables", verb, "FORWARD", "-p", "icmp", "-j", "DROP")
        assert done.returncode == 0, done.stderr


@dataclass
class Traffic:
    """Loads and a probe of the round trip, from host a."""

    net: Modem
    loads: str
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    delays: list[tuple[float, float]] = field(default_factory=list)

    def __enter__(self) -> Traffic:
        server = self.net.start(self.net.b, sys.executable, "-c", SERVER)
        assert server.stdout is not None
        server.stdout.readline()
        probe = self.net.start(self.net.a, sys.executable, "-c", PROBE)
        self.processes = [server, probe]
        threading.Thread(target=self._read, args=(probe,), daemon=True).start()
        time.sleep(0.5)
        self.load(self.loads)
        return self

    def load(self, loads: str, address: str = "10.9.3.2") -> None:
        """Start a transfer for each letter of `loads`: a download from (`d`) or an upload to (`u`) the host."""
        self.processes.append(self.net.start(self.net.a, sys.executable, "-c", LOAD, loads, address))

    def _read(self, probe: subprocess.Popen[str]) -> None:
        assert probe.stdout is not None
        for line in probe.stdout:
            sent, ms = map(float, line.split())
            self.delays.append((sent, ms))

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def measure(self, seconds: float, down: float, up: float) -> tuple[float, float, float]:
        """Return the utilisation of the line, down and up, and the median round trip, ms."""
        before, begin = self.net.sent(), time.monotonic()
        time.sleep(seconds)
        after, end = self.net.sent(), time.monotonic()
        used = [(after[way] - before[way]) * 8e-6 / (end - begin) / rate for way, rate in (("down", down), ("up", up))]
        delays = sorted(ms for sent, ms in list(self.delays) if begin <= sent)
        found = (used[0], used[1], delays[len(delays) // 2] if delays else float("inf"))
        print(f"down {found[0]:.0%}, up {found[1]:.0%}, round trip {found[2]:.0f} ms")
        return found


RELAY = """
import ctypes, fcntl, heapq, os, select, struct, sys, time
def tun(space):
    with open("/run/netns/" + space) as at:
        assert ctypes.CDLL(None).setns(at.fileno(), 0x40000000) == 0
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH14x", b"relay", 1 | 0x1000))
    return fd
here, there = tun(sys.argv[1]), tun(sys.argv[2])
begin, end, hold, growth = map(float, sys.argv[3:7])
print("ready", flush=True)
since, waiting, count = time.monotonic(), [], 0
while True:
    wait = max(0, waiting[0][0] - time.monotonic()) if waiting else 1
    for fd in select.select([here, there], [], [], wait)[0]:
        try: packet = os.read(fd, 70000)
        except OSError: continue
        now = time.monotonic()
        lies = fd == there and begin <= now - since < end
        due = now + (hold + growth * (now - since - begin) if lies else 0)
        count += 1
        heapq.heappush(waiting, (due, count, here if fd == there else there, packet))
    while waiting and waiting[0][0] <= time.monotonic():
        _, _, fd, packet = heapq.heappop(waiting)
        try: os.write(fd, packet)
        except OSError: pass
"""
LIAR = "10.9.4.2"


class Liar:
    """Another host behind the line of `net`, at the address LIAR.

    From second `begin` to `end`, its packets are delayed by `hold` s plus `growth` s for each second since `begin`.
    """

    def __init__(self, net: Modem, begin: float, end: float, hold: float = 0.26, growth: float = 0.025) -> None:
        self.net, self.space = net, f"{net.a}c"
        self.times = [str(value) for value in (begin, end, hold, growth)]
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Liar:
        if why := no_tun():
            pytest.skip(why)
        net, space = self.net, self.space
        net.ip(f"netns add {space}")
        self._start(net.b, RELAY, net.b, space, *self.times)
        for at, end in ((net.b, 1), (space, 2)):
            net.ip(f"-n {at} addr add 10.9.4.{end}/30 dev relay")
            net.ip(f"-n {at} link set relay up")
        net.ip(f"-n {space} route add default via 10.9.4.1")
        net.run(net.b, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for at, via in ((net.m, "10.9.3.2"), (net.r, "10.9.2.2")):
            net.ip(f"-n {at} route add 10.9.4.0/30 via {via}")
        self._start(space, SERVER)
        return self

    def _start(self, space: str, *words: str) -> None:
        process = self.net.start(space, sys.executable, "-c", *words)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        subprocess.run(["ip", "netns", "del", self.space], capture_output=True)


def live(net: Modem, *words: str, program: str | Path = QUELL_LIVE) -> subprocess.Popen[str]:
    """Start quell-live on the interface before the modem, and wait until it reports that it runs."""
    command = net.start(net.r, program, "--dev", "rb", *words)
    assert command.stderr is not None
    line = command.stderr.readline()
    assert "egress: " in line, line + command.communicate()[1]
    return command
