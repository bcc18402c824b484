"""Forged answers of reflectors, and ICMP errors that quote requests to them, while `quell steer` sets a rate."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from conftest import QUELL_LIVE
from live_net import built, require, stop
from modem import REFLECTORS, Modem, Traffic

pytestmark = pytest.mark.real_time

QUEUES = """
tc qdisc add dev rb root handle 1: htb default 10
tc class add dev rb parent 1: classid 1:10 htb rate 5mbit
tc qdisc add dev rb parent 1:10 handle 10: pfifo limit 200
"""
LISTEN = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
print("ready", flush=True)
while True:
    packet = s.recv(100)
    if packet[20] == 13:
        print(int.from_bytes(packet[24:26], "big"), flush=True)
        break
"""
"""Prints the identifier of the requests, which a stranger would have to guess."""
FORGE = """
import random, socket, struct, sys, time
random.seed(7)
mode, identifier, until = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
us, reflectors, sent = socket.inet_aton("10.9.2.1"), [socket.inet_aton(one) for one in sys.argv[4:]], 0
def packet(source, target, icmp):
    icmp += bytes(len(icmp) % 2)
    total = sum(struct.unpack(f">{len(icmp) // 2}H", icmp))
    total = (total & 0xFFFF) + (total >> 16)
    icmp = icmp[:2] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + icmp[4:]
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0) + source + target + icmp
while time.monotonic() < until:
    for _ in range(100):
        sent += 1
        source, word = random.choice(reflectors), random.getrandbits(32)
        if mode == "errors":
            kind, code = random.choice(((3, 1), (3, 3), (3, 4), (3, 13), (4, 0), (5, 1), (11, 0), (12, 0)))
            quote = packet(us, source, struct.pack(">BBHHHI", 13, 0, 0, identifier, sent & 0xFFFF, word))
            icmp = struct.pack(">BBHI", kind, code, 0, random.choice((0, 68, 0x0A090202))) + quote
        else:
            number = identifier if mode == "answers" else sent & 0xFFFF
            times = struct.pack(">II", random.getrandbits(32), random.getrandbits(32))
            icmp = struct.pack(">BBHHHI", 14, 0, 0, number, sent & 0xFF, word) + times
        s.sendto(packet(source, us, icmp), ("10.9.2.1", 0))
    time.sleep(0.01)
print(sent)
"""


@pytest.mark.parametrize("mode", ["answers", "identifiers", "errors"])
def test_forged_packets_change_no_rate(mode: str, record_property: Callable[[str, object], None]) -> None:
    require()
    with built(Modem) as net:
        # The forged packets need a small share of the line.
        net.line(100, 5)
        assert (done := net.run(net.r, "sh", "-ec", QUEUES)).returncode == 0, done.stderr
        heard = net.start(net.b, sys.executable, "-c", LISTEN)
        assert heard.stdout is not None
        assert heard.stdout.readline() == "ready\n"
        named = REFLECTORS[:3]
        words = [word for one in named for word in ("--reflector", one)]
        command = net.start(net.r, QUELL_LIVE, "steer", "rb", "1:10", "pace", "--with", "rate", *words)
        try:
            identifier = heard.communicate(timeout=20)[0].strip()
            with Traffic(net, "uuu") as traffic:
                traffic.measure(6, 100, 5)
                before = traffic.measure(6, 100, 5)[1]
                forging = net.start(net.b, sys.executable, "-c", FORGE, mode, identifier, "8", *named)
                during = traffic.measure(7, 100, 5)[1]
                out, errors = forging.communicate(timeout=30)
                assert not errors
        finally:
            code, said = stop(command)
        rate = net.run(net.r, "tc", "class", "show", "dev", "rb").stdout
    record_property(
        "| forged | packets | used before | used meanwhile |",
        f"| {mode} | {out.strip()} | {before:.0%} | {during:.0%} |",
    )
    assert code == 0, said
    assert int(out) > 1000
    assert re.search("rate 5Mbit", rate), rate
    assert during > 0.6 * before
