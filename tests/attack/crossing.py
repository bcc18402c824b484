"""Traffic through a managed router while `quell live` is attacked: lost packets, gaps, rules left behind.

A datagram leaves host a every 4 ms while quell-live manages the router's interface and is attacked. The longest gap
between arrivals is compared with the longest one without quell on the same machine, so that a busy machine changes no
verdict.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from conftest import QUELL_LIVE
from live_net import Net

SOURCE = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK: AF_XDP sees no checksum that is yet to be made
until, number = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < until:
    try:
        s.sendto(b"%d" % number + bytes(50), ("10.9.2.2", 5000))
        number += 1
    except OSError:
        pass
    time.sleep(0.004)
for _ in range(3):
    s.sendto(b"end", ("10.9.2.2", 5000))
print(number)
"""
SINK = """
import contextlib, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
with contextlib.suppress(PermissionError):
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
s.bind(("0.0.0.0", 5000)); s.settimeout(0.2)
print("ready", flush=True)
until, last, longest, count = time.monotonic() + float(sys.argv[1]), 0.0, 0.0, 0
while time.monotonic() < until:
    try:
        if s.recv(2000) == b"end":
            break
    except TimeoutError:
        continue
    now = time.monotonic()
    longest, last, count = max(longest, now - last if last else 0.0), now, count + 1
print(count, longest)
"""
FLOOD = """
import os, socket, struct, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("v0", 0))
gateway = open("/proc/net/arp").read().split("10.9.1.1")[1].split()[2]
head = bytes(int(x, 16) for x in gateway.split(":")) + bytes(6)
ends = bytes([10, 9, 1, 2, 10, 9, 2, 2])

def header(tos, length):
    ip = struct.pack(">BBHHHBBH", 0x45, tos, length, 0, 0, 64, 17, 0) + ends
    total = sum(struct.unpack(">10H", ip))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return head + b"\\x08\\0" + ip[:10] + struct.pack(">H", ~total & 0xFFFF) + ip[12:]

small, large, ports = header(0, 46), header(2, 1400), struct.Struct(">HHHH").pack

def flow(n):
    return small + ports(n & 0xFFFF, 1024 + (n >> 16), 26, 0) + bytes(18)

def capable(n):
    return large + ports(n & 0xFF, 9, 1380, 0) + bytes(1372)

def noise(n):
    frame = os.urandom(2 + n % 200)
    return head + (b"\\x08\\0\\x45" + frame if n % 2 else frame)

make = {"flows": flow, "bytes": noise, "ecn": capable}[sys.argv[2]]
# Until the time is over or, where a number is given, so many frames are sent.
until, most, burst, n = time.monotonic() + float(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]), 0
while time.monotonic() < until and (n < most or not most):
    for _ in range(burst):
        n += 1
        s.send(make(n))
    time.sleep(0.01)
print(n)
"""
RATE = ("--rate", "50mbit", "--aqm", "fq_codel")
MILLION = 1_000_000
SLOW = {"million": 12.0}
"""Attacks that run only with --long, and the shortest duration of their traffic, s."""
SLACK_S = 1.2
"""quell-live's watchdog lets traffic pass within a second; this allows some slack."""


class UnableError(Exception):
    """This machine does not permit an attack; the message has the reason."""


@dataclass(frozen=True)
class Outcome:
    """The results of one attack."""

    name: str
    sent: int
    arrived: int
    gap_s: float
    allowed_s: float
    left: int
    """Rules left after the end or, if quell-live was killed, after `--restore`."""
    said: str
    """quell-live's standard error."""

    @property
    def held(self) -> bool:
        """Whether traffic continued and no rules were left."""
        return self.arrived > 0 and self.gap_s <= self.allowed_s and self.left == 0


HEAD = "| attack | what | sent | lost | longest gap | allowed | rules left | held |"
"""Heading of the table that `make attack` prints."""


def row(outcomes: list[Outcome]) -> str:
    """Format a line of the table: the worst of several runs of one attack."""
    worst = max(outcomes, key=lambda o: (not o.held, o.gap_s))
    about = (ATTACKS[worst.name].__doc__ or "").rstrip(".")
    return (
        f"| {worst.name} | {about} | {worst.sent} | {worst.sent - worst.arrived} | {1e3 * worst.gap_s:.0f} ms "
        f"| {1e3 * worst.allowed_s:.0f} ms | {worst.left} | {sum(o.held for o in outcomes)} of {len(outcomes)} |"
    )


Attack = Callable[[Net, "subprocess.Popen[str]", float], object]


def processes(command: subprocess.Popen[str]) -> list[int]:
    """List the processes of an instance, beginning with the one that was started."""
    found, at = [command.pid], 0
    while at < len(found):
        for task in Path(f"/proc/{found[at]}/task").glob("*"):
            found += [int(pid) for pid in (task / "children").read_text().split()]
        at += 1
    return found


def nothing(_net: Net, _command: subprocess.Popen[str], seconds: float) -> None:
    """No attack: the managed link alone."""
    time.sleep(seconds)


def kill(_net: Net, command: subprocess.Popen[str], seconds: float) -> None:
    """SIGKILL after half of the time."""
    time.sleep(seconds / 2)
    command.kill()
    time.sleep(seconds / 2)


def stop(_net: Net, command: subprocess.Popen[str], seconds: float) -> None:
    """SIGSTOP for half of the time."""
    time.sleep(seconds / 4)
    os.kill(command.pid, signal.SIGSTOP)
    time.sleep(seconds / 2)
    os.kill(command.pid, signal.SIGCONT)
    time.sleep(seconds / 4)


def reload(net: Net, _command: subprocess.Popen[str], seconds: float) -> None:
    """The firewall is reloaded, again and again: all rules removed."""
    for _ in range(4):
        time.sleep(seconds / 4)
        net.run(net.r, "iptables", "-t", "mangle", "-F")
    deadline = time.monotonic() + 10
    while not net.rules():
        assert time.monotonic() < deadline, "the rules were not put back"
        time.sleep(0.05)


def mtu(net: Net, _command: subprocess.Popen[str], seconds: float) -> None:
    """The interface's MTU goes up and down."""
    for k in range(8):
        net.ip(f"-n {net.r} link set rb mtu {1400 if k % 2 else 3000}")
        time.sleep(seconds / 8)


def link(net: Net, _command: subprocess.Popen[str], seconds: float) -> None:
    """The interface goes down for 100 ms, four times."""
    # A link that goes down loses its neighbours. ARP repeats a request after a second, which would be measured; this
    # shortens it to 50 ms.
    for space, dev in ((net.r, "rb"), (net.b, "v0")):
        net.run(space, "sh", "-c", f"echo 50 >/proc/sys/net/ipv4/neigh/{dev}/retrans_time_ms")
    for _ in range(4):
        time.sleep(seconds / 4)
        net.ip(f"-n {net.r} link set rb down")
        time.sleep(0.1)
        net.ip(f"-n {net.r} link set rb up")
    time.sleep(1)


def _flood(net: Net, seconds: float, kind: str, most: int = 0, burst: int = 200) -> int:
    done = net.run(net.a, sys.executable, "-c", FLOOD, str(seconds), kind, str(most), str(burst))
    assert done.returncode == 0 and int(done.stdout) > 1000, done.stderr
    return int(done.stdout)


def flows(net: Net, _command: subprocess.Popen[str], seconds: float) -> None:
    """Every packet of a flood belongs to another flow."""
    _flood(net, seconds, "flows")


def million(net: Net, _command: subprocess.Popen[str], _seconds: float) -> None:
    """A million flows of one packet each, 59 Mbit/s at most."""
    sent = _flood(net, 50, "flows", most=MILLION, burst=1000)
    if sent < MILLION:
        raise UnableError(f"this machine is too busy: it sent only {sent} of a million packets in 50 s")


def frames(net: Net, _command: subprocess.Popen[str], seconds: float) -> None:
    """Frames of random bytes, half of them as IPv4."""
    _flood(net, seconds, "bytes")


def descriptors(_net: Net, command: subprocess.Popen[str], seconds: float) -> None:
    """From the middle on: no new descriptor or process, and no file may grow."""
    import resource

    time.sleep(seconds / 2)
    for pid in processes(command):
        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
            resource.prlimit(pid, limit, (13 if limit == resource.RLIMIT_NOFILE else 0, 4096))
    time.sleep(seconds / 2)


@contextmanager
def _memory_group(limit: int) -> Iterator[Path]:
    """Make a cgroup whose processes may use `limit` bytes."""
    root = Path("/sys/fs/cgroup")
    controllers = root / "cgroup.controllers"
    one = not controllers.exists() or "memory" not in controllers.read_text()
    group = root / ("memory" if one else "") / f"quell-attack-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise UnableError(f"no cgroup for memory can be made here: {error}") from None
    try:
        name = "memory.limit_in_bytes" if one else "memory.max"
        try:
            (group / name).write_text(str(limit))
        except OSError as error:
            raise UnableError(f"memory cannot be limited here: {error}") from None
        yield group
    finally:
        parent = group.parent / "cgroup.procs"
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                parent.write_text(pid)
        with suppress(OSError):
            group.rmdir()


def _killed_for_memory(group: Path) -> int:
    """Return the number of a cgroup's processes that the kernel has killed for lack of memory."""
    for name in ("memory.events", "memory.oom_control"):
        if (group / name).exists():
            counts = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(counts["oom_kill"])
    return 0


def oom(net: Net, command: subprocess.Popen[str], seconds: float) -> None:
    """Its cgroup runs out of memory as its queue grows, and the kernel kills it."""
    with _memory_group(1 << 20) as group:
        time.sleep(seconds / 4)
        for pid in processes(command):
            (group / "cgroup.procs").write_text(str(pid))
        # ECN-capable packets, because quell-live keeps their bytes.
        _flood(net, seconds / 2, "ecn")
        deadline = time.monotonic() + 20
        while not _killed_for_memory(group):
            assert time.monotonic() < deadline, "the kernel killed no process"
            time.sleep(0.05)
        time.sleep(seconds / 4)


def second(net: Net, _command: subprocess.Popen[str], seconds: float) -> None:
    """A second instance with two directions starts and ends on the other interface."""
    other = net.live("--rate", "100mbit", "--ingress", "100mbit", dev="ra")
    time.sleep(seconds)
    other.terminate()
    other.communicate(timeout=60)


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (nothing, kill, stop, reload, mtu, link, flows, million, frames, descriptors, oom, second)
}  # fmt: skip


@contextmanager
def traffic(net: Net, seconds: float) -> Iterator[list[float]]:
    """Send from a to b; at the end the list holds: sent, arrived, longest gap."""
    found: list[float] = []
    sink = net.start(net.b, sys.executable, "-c", SINK, str(seconds + 1))
    assert sink.stdout is not None
    sink.stdout.readline()
    source = net.start(net.a, sys.executable, "-c", SOURCE, str(seconds))
    yield found
    sent, why = source.communicate(timeout=120)
    assert source.returncode == 0, why
    arrived, longest = sink.communicate(timeout=120)[0].split()
    found += [float(sent), float(arrived), float(longest)]


def lateness_s(net: Net, seconds: float) -> float:
    """Return the longest gap without quell, which is due to this machine's scheduling."""
    with traffic(net, seconds) as found:
        pass
    return found[2]


def run(net: Net, name: str, seconds: float) -> Outcome:
    """Attack one instance while traffic flows, end it, and restore what it changed."""
    usual = lateness_s(net, 0.5)
    attack = ATTACKS[name]
    seconds = max(seconds, SLOW.get(name, 0))
    command = net.live(*RATE)
    try:
        with traffic(net, seconds + 1) as found:
            attack(net, command, seconds)
    finally:
        command.terminate()
        try:
            _, said = command.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            command.kill()
            _, said = command.communicate()
    if command.returncode != 0:
        net.run(net.r, QUELL_LIVE, "--restore")
    sent, arrived, gap = found
    allowed = SLACK_S + 4 * usual
    return Outcome(name, int(sent), int(arrived), gap, allowed, len(net.rules()), said.strip())
