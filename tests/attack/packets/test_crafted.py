"""Frames that cost much to handle: long header chains, nested tunnels, nested tags, frames to cut into many packets.

Thousands of them arrive at an interface that `quell live` manages in line (AF_PACKET, AF_XDP) or by a packet queue.
Meanwhile a datagram crosses every 4 ms, and the CPU time per packet is bounded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crossing import SLACK_S, lateness_s, processes, traffic
from live_net import Bump, Net, built, require, state

pytestmark = pytest.mark.real_time

HEAD = "| backend | frames | sent | packets | µs of CPU per packet | lost of the stream | longest gap | memory |"

CRAFT = """
import os, random, socket, struct, sys, time
kind, until, neighbour = sys.argv[1], time.monotonic() + float(sys.argv[2]), sys.argv[3]
random.seed(7)
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("v0", 0))
mac = open("/proc/net/arp").read().split(neighbour)[1].split()[2]
# No host has the source address, so that no host answers and bridges learn no wrong port.
ends = bytes(int(x, 16) for x in mac.split(":")) + b"\\2\\0\\0\\0\\7\\7"
addresses = bytes([10, 9, 9, 9]) + bytes(map(int, "10.9.2.2".split(".")))
six = bytes([0xfd] + [0] * 14 + [1]) + bytes([0xfd] + [0] * 14 + [2])

def four(protocol, rest, tos=0):
    ip = struct.pack(">BBHHHBBH", 0x45, tos, 20 + len(rest), 0, 0, 64, protocol, 0) + addresses
    total = sum(struct.unpack(">10H", ip))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ip[:10] + struct.pack(">H", ~total & 0xFFFF) + ip[12:] + rest

def datagram(n, payload=bytes(18)):
    return struct.pack(">HHHH", n & 0xFFFF, 1024 + (n >> 16), 8 + len(payload), 0) + payload

def plain(n):
    return ends + b"\\x08\\0" + four(17, datagram(1))

def flows(n):
    return ends + b"\\x08\\0" + four(17, datagram(n))

def extensions(n):
    # More than the 8 headers that are followed, each as long as it may be in a packet of 1400 bytes, or as short.
    each, count = (8, 150) if n % 2 else (136, 10)
    chain = b"".join(bytes([60, each // 8 - 1]) + bytes(each - 2) for _ in range(count)) + datagram(n)
    return ends + b"\\x86\\xdd" + struct.pack(">IHBB", 6 << 28, len(chain), 60, 64) + six + chain

def tunnels(n):
    inner = four(17, datagram(n))
    for level in range(12):
        inner = four(4, inner) if level % 2 else four(47, b"\\0\\0\\x08\\0" + inner)
    return ends + b"\\x08\\0" + inner

def tags(n):
    stack = b"".join(random.choice((b"\\x81\\0", b"\\x88\\xa8", b"\\x91\\0")) + os.urandom(2) for _ in range(n % 9))
    frame = ends + stack + b"\\x08\\0" + four(17, datagram(n))
    return frame if n % 5 else frame[: 14 + n % 40]

def bytes_(n):
    return ends + (b"\\x08\\0\\x45" if n % 2 else b"") + os.urandom(2 + n % 200)

def large(n):
    # Of this length each frame is thousands of packets, where the kernel takes it: a header of virtio_net.h says so.
    size = random.choice((1, 1, 1, 8, 100, 536, 1448, 65535))
    payload = random.choice((400, 3000, 20000, 60000))
    tcp = struct.pack(">HHIIBBHHH", n & 0xFFFF, 80, n, 0, 0x50, 0x10, 1000, 0, 0) + bytes(payload)
    udp = struct.pack(">HHHH", n & 0xFFFF, 80, (8 + payload) & 0xFFFF, 0) + bytes(payload)
    gso, body, protocol, offset = random.choice(((1, tcp, 6, 16), (0x81, tcp, 6, 16), (5, udp, 17, 6), (3, udp, 17, 6)))
    header = len(body) - payload
    if random.random() < 0.2:
        header, offset = random.randrange(200), random.randrange(100)
    about = struct.pack("<BBHHHH", 1, gso, 34 + header, size, 34, offset)
    return about + ends + b"\\x08\\0" + four(protocol, body)

def fragments(n):
    # Overlapping, tiny first ones, never completed, some with the same number, some atomic, over both versions.
    number, offset, more = n % 4000, random.choice((0, 0, 1, 2, 3, 185, 8189)), random.randrange(2)
    rest = datagram(n, os.urandom(random.choice((0, 8, 1200))))[: random.choice((1, 8, 24, 1208))]
    if n % 2:
        head = bytes([17, 0]) + struct.pack(">HI", offset << 3 | more, number)
        packet = struct.pack(">IHBB", 6 << 28, 8 + len(rest), 44, 64) + six + head + rest
        return ends + b"\\x86\\xdd" + packet
    packet = four(17, rest)
    packet = packet[:4] + struct.pack(">HH", number, more << 13 | offset) + packet[8:10] + bytes(2) + packet[12:]
    total = sum(struct.unpack(">10H", packet[:20]))
    total = (total & 0xFFFF) + (total >> 16)
    return ends + b"\\x08\\0" + packet[:10] + struct.pack(">H", ~total & 0xFFFF) + packet[12:]

def options(n):
    # IP and TCP options of every length, false and true, ECN and DSCP of every value, ICMP errors that quote them.
    flags, list_ = random.randrange(256), os.urandom(40)
    if n % 3 == 0:
        list_ = (bytes([1, 1, 8, 10]) + os.urandom(8)) * random.randrange(1, 4)
    elif n % 3 == 1:
        list_ = bytes(random.choice((0, 1, 2, 5, 8, 19, 30, 255)) for _ in range(40))
    list_ = list_[: 4 * random.randrange(11)]
    offset = random.choice((5 + len(list_) // 4, random.randrange(16)))
    tcp = struct.pack(">HHIIBBHHH", n & 0xFFFF, 80, n, n ^ 0xFFFF, offset << 4 | n & 15, flags, 1000, 0, 0) + list_
    packet = four(6, tcp[: random.choice((0, 4, 13, 19, 20, 60))], n & 0xFF)
    if n % 4 == 0:
        packet = four(1, struct.pack(">BBHI", random.choice((3, 5, 11, 12)), n & 15, 0, n) + packet[: n % 60])
    if n % 5 == 0:  # IP options
        more = 4 * random.randrange(11)
        words = (bytes([7, more, 4]) + bytes(37) if n % 2 else os.urandom(40))[:more]
        begin = struct.pack(">BBH", 0x45 + more // 4, n & 0xFF, len(packet) + more)
        packet = begin + packet[4:10] + bytes(2) + packet[12:20] + words + packet[20:]
        total = sum(struct.unpack(f">{10 + more // 2}H", packet[: 20 + more]))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        packet = packet[:10] + struct.pack(">H", ~total & 0xFFFF) + packet[12:]
    return ends + b"\\x08\\0" + packet

make = {"plain": plain, "flows": flows, "extensions": extensions, "tunnels": tunnels, "tags": tags, "bytes": bytes_,
        "large": large, "fragments": fragments, "options": options}[kind]
if kind == "large":
    s.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
sent = refused = n = 0
while time.monotonic() < until:
    for _ in range(4 if kind == "large" else 100):
        n += 1
        try:
            s.send(make(n))
            sent += 1
        except OSError:
            refused += 1
    time.sleep(0.01)
print(sent, refused)
"""

KINDS = ("plain", "flows", "extensions", "tunnels", "tags", "bytes", "large", "fragments", "options")
SHORT = {
    "queue": ("plain", "tunnels", "large", "fragments"),
    "af_packet": KINDS,
    "af_xdp": ("plain", "extensions", "tags"),
}
"""The kinds of frames that are sent to each backend without --long."""
CASES = [
    pytest.param(backend, kind, marks=[] if kind in short else [pytest.mark.long])
    for backend, short in SHORT.items()
    for kind in KINDS
]
COST_US = 100
"""The highest CPU time per packet, µs. The costliest frame takes 20 on an idle machine, 40 on a busy one."""
MAX_KIB = (256 + 32) << 10
"""Bound on the growth of memory, KiB: 256 MiB of packets in a loop, and 32 MiB for the rest."""
RATE = ("--rate", "1gbit", "--aqm", "fq_codel", "--tunnels")


def cpu_s(command: subprocess.Popen[str]) -> float:
    """CPU time of an instance's processes."""
    ticks = 0
    for pid in processes(command):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_kib(command: subprocess.Popen[str]) -> int:
    lines = Path(f"/proc/{command.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def begun(net: Net, backend: str, path: Path) -> subprocess.Popen[str]:
    words = (*RATE, "--status", str(path))
    if backend == "queue":
        return net.live(*words)
    assert isinstance(net, Bump)
    if backend == "af_xdp":
        net.bridge()
    server = net.echo()
    command = net.in_line("--backend", backend, *words, open_after=backend == "af_xdp")
    server.kill()
    server.communicate()
    return command


@pytest.mark.parametrize(("backend", "kind"), CASES)
@pytest.mark.machine_root
def test_crafted_frames_stop_nothing_and_cost_little(
    tmp_path: Path, backend: str, kind: str, long: bool, record_property: Callable[[str, object], None]
) -> None:
    require()
    seconds, path = 20.0 if long else 1.0, tmp_path / "s"
    with built(Net if backend == "queue" else Bump) as net:
        command = begun(net, backend, path)
        try:
            usual = lateness_s(net, 0.5)
            before, used, resident = state(path)["read"], cpu_s(command), resident_kib(command)
            with traffic(net, seconds + 0.5) as found:
                neighbour = "10.9.1.1" if backend == "queue" else "10.9.2.2"
                craft = net.run(net.a, sys.executable, "-c", CRAFT, kind, str(seconds), neighbour)
                assert craft.returncode == 0, craft.stderr
                frames, refused = map(int, craft.stdout.split())
            packets = state(path)["read"] - before
            cost = 1e6 * (cpu_s(command) - used) / max(packets, 1)
            more = resident_kib(command) - resident
            assert command.poll() is None
        finally:
            command.terminate()
            _, said = command.communicate(timeout=30)
        assert command.returncode == 0, said
    sent, arrived, gap = found
    record_property(
        HEAD,
        f"| {backend} | {kind} | {frames} | {packets} | {cost:.1f} | {sent - arrived:.0f} of {sent:.0f} "
        f"| {1e3 * gap:.0f} ms | {more} KiB |",
    )
    assert frames > refused
    assert arrived > 0 and gap <= SLACK_S + 4 * usual, (found, usual)
    assert net.rules() == []
    assert more < MAX_KIB
    if packets > frames / 2:  # otherwise most stayed in the kernel
        assert cost < COST_US
