"""Clocks that jump under `quell live --autorate` with reflectors, as after a suspend of this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest

from live_net import built, require, stop
from modem import REFLECTORS, Modem, Traffic, live

pytestmark = pytest.mark.real_time

DOWN, UP = 20.0, 20.0
MARK = "77"
# Answers timestamp requests instead of the kernel, with a clock that goes back an hour once. SO_MARK is 36.
REFLECTOR = """
import socket, struct, sys, time
def made():
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    s.setsockopt(socket.SOL_SOCKET, 36, int(sys.argv[1]))
    return s
def summed(b):
    total = sum(struct.unpack(f"!{len(b) // 2}H", b))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff
reads, writers = made(), {}
print("ready", flush=True)
since = time.monotonic()
while True:
    data, peer = reads.recvfrom(2000)
    asked = data[4 * (data[0] & 15):]
    if asked[0] != 13: continue
    behind = 3_600_000 if time.monotonic() - since > float(sys.argv[2]) else 0
    now = (int(time.time() * 1000) - behind) % 86_400_000
    answer = b"\\x0e\\0\\0\\0" + asked[4:12] + struct.pack("!II", now, now)
    own = socket.inet_ntoa(data[16:20])
    if own not in writers:
        writers[own] = made()
        writers[own].bind((own, 0))
    writers[own].sendto(answer[:2] + struct.pack("!H", summed(answer)) + answer[4:], peer)
"""


def test_a_clock_that_is_set_back_costs_a_moment(record_property: Callable[[str, object], None]) -> None:
    require()
    with built(Modem) as net:
        net.line(DOWN, UP)
        rule = f"-p icmp --icmp-type timestamp-reply -m mark ! --mark {MARK} -j DROP"
        done = net.run(net.b, "iptables", "-A", "OUTPUT", *rule.split())
        if done.returncode:
            pytest.skip(f"iptables does not tell the kernel's answers from others: {done.stderr.strip()}")
        begin = 9.0
        reflectors = net.start(net.b, sys.executable, "-c", REFLECTOR, MARK, str(begin))
        assert reflectors.stdout is not None
        assert reflectors.stdout.readline() == "ready\n"
        since = time.monotonic()
        command = live(net, "--autorate", *(word for one in REFLECTORS for word in ("--reflector", one)))
        try:
            with Traffic(net, "d" * 5 + "u" * 5) as traffic:
                time.sleep(4)
                before = traffic.measure(since + begin - time.monotonic(), DOWN, UP)
                time.sleep(3)
                after = traffic.measure(6, DOWN, UP)
        finally:
            code, said = stop(command)
            reflectors.kill()
            reflectors.communicate()
    assert code == 0, said
    for way, (one, other) in {"down": (before[0], after[0]), "up": (before[1], after[1])}.items():
        record_property(
            "| the reflectors' clocks go back an hour | used before | used from 3 s after on |",
            f"| {way} | {one:.0%} | {other:.0%} |",
        )
        # A former version used 15 % for downloads, as long as there were uploads, until it was restarted.
        assert other > 0.6 * one
