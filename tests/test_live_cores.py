"""`quell live --cpu`: one loop per processor, a rate that they share exactly, flows that stay at one of them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import QUELL_LIVE
from live_net import Bump, Net, built, require, state, status, stop

# Datagrams of 1000 bytes of IP from several addresses: for each a number per second. A second batch of numbers may follow for the second half.
OFFER = """
import socket, sys, time
seconds, batches = float(sys.argv[1]), [[float(x) for x in batch.split(",")] for batch in sys.argv[2].split("/")]
sockets = []
for k in range(len(batches[0])):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
    s.bind(("10.9.%s.%d" % (sys.argv[3], 100 + k), 4000 + k)); sockets.append(s)
began, sent, last = time.monotonic(), [0.0] * len(sockets), 0.0
while (now := time.monotonic() - began) < seconds:
    rates = batches[min(int(now / seconds * len(batches)), len(batches) - 1)]
    for k, s in enumerate(sockets):
        sent[k] += rates[k] * (now - last)
        while sent[k] >= 1:
            sent[k] -= 1; s.sendto(b"%03d" % k + bytes(969), ("10.9.2.2", 5000))
    last = now
    time.sleep(0.001)
"""
# From the first arrival on for so many seconds: how many came in the window, and how long that was from its first to its last.
COUNT = """
import socket, sys, time
skip, seconds = float(sys.argv[1]), float(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
s.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
s.bind(("0.0.0.0", 5000)); s.settimeout(20)
print("ready", flush=True)
first, window, order = None, [], {}
while True:
    data, extra, _, peer = s.recvmsg(2000, 64)
    raw = extra[0][2]
    at = int.from_bytes(raw[:8], "little") * 10**9 + int.from_bytes(raw[8:16], "little")
    first = first or at
    if at - first >= skip * 1e9:
        window.append(at)
    if at - first >= (skip + seconds) * 1e9:
        break
print(len(window) - 1, (window[-1] - window[0]) / 1e9)
"""


@pytest.fixture(autouse=True, scope="module")
def able() -> None:
    require()


@pytest.fixture(scope="module")
def cpus() -> str:
    """Two processors, or one where there is no second: then two loops cannot be had."""
    two = sorted(os.sched_getaffinity(0))[:2]
    if len(two) < 2:
        pytest.skip("this machine has one processor")
    return ",".join(map(str, two))


@pytest.fixture
def net() -> Iterator[Net]:
    with built(Net) as made:
        for k in range(8):
            made.ip(f"-n {made.a} addr add 10.9.1.{100 + k}/24 dev v0")
        yield made


@pytest.fixture
def bump() -> Iterator[Bump]:
    with built(Bump) as made:
        for k in range(8):
            made.ip(f"-n {made.a} addr add 10.9.2.{100 + k}/24 dev v0")
        yield made


def rate_mbps(net: Net, offers: str, seconds: float, side: int) -> float:
    """What arrives of these offers, with 14 bytes of Ethernet each; the first half second is not counted."""
    sink = net.start(net.b, sys.executable, "-c", COUNT, "0.5", str(seconds))
    assert sink.stdout is not None
    sink.stdout.readline()
    source = net.start(net.a, sys.executable, "-c", OFFER, str(seconds + 1.5), offers, str(side))
    text, errors = sink.communicate(timeout=60)
    _, why = source.communicate(timeout=60)
    assert sink.returncode == 0 and source.returncode == 0, errors + why
    count, took = text.split()
    return int(count) * 1014 * 8 / float(took) / 1e6


# 20 Mbit/s are 2465 such datagrams per second. Each list offers half as much again, in all; the last moves from loop to loop.
LOADS = {
    "all": ",".join(["460"] * 8),
    "one": "3700" + ",0" * 7,
    "unequal": "3500,30,30,30,30,30,30,30",
    "moving": "3700" + ",0" * 7 + "/" + ",".join(["0"] * 4 + ["1850", "0", "0", "1850"]),
}


@pytest.mark.parametrize("load", LOADS)
def test_loops_share_the_rate_to_within_one_percent(net: Net, cpus: str, tmp_path: Path, load: str) -> None:
    command = net.live("--rate", "20mbit", "--aqm", "fq_codel", "--cpu", cpus, "--status", str(tmp_path / "s"))
    rate = rate_mbps(net, LOADS[load], 3.0, 1)
    look = state(tmp_path / "s")
    code, errors = stop(command)
    print(f"{load}: {rate:.3f} Mbit/s, read by loop {look['read_by_loop']}, missed {look['missed']}")
    assert code == 0, errors
    assert rate == pytest.approx(20, rel=0.01), look
    assert sum(look["read_by_loop"]) == look["read"] == look["sent"] + look["dropped"] + look["held"]
    used = sum(read > 100 for read in look["read_by_loop"])
    assert used == 1 if load == "one" else used == 2, look["read_by_loop"]
    assert not net.rules()
