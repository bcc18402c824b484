"""Floods of requests to the dashboard and the metrics: clients are served, traffic continues. 10 s; --long: 600 s."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crossing import SLACK_S, traffic
from lateness import Lateness
from live_net import Net, built, require

pytestmark = pytest.mark.real_time

HEAD = "| hammering | connections | asked | answered | longest without an answer | lost | longest gap | memory |"

HAMMER = """
import random, socket, sys, time
until, seed = time.monotonic() + float(sys.argv[1]), int(sys.argv[2])
random.seed(seed)
questions = [
    b"", b"G", b"GET / HTTP/1.1\\r\\n\\r\\n", b"GET /metrics HTTP/1.1\\r\\n\\r\\n", b"A" * 70000, bytes(range(256)) * 8,
    b"GET /state?token=" + b"0" * 32 + b" HTTP/1.1\\r\\n\\r\\n", b"\\r\\n\\r\\n" * 500, b"GET /" + b"%00" * 900,
]
held, made = [], 0
while time.monotonic() < until:
    s = socket.socket()
    s.settimeout(0.2)
    try:
        s.connect(("127.0.0.1", random.choice((9141, 9142))))
        made += 1
        s.setblocking(False)
        s.send(random.choice(questions))
    except OSError:
        pass
    # Some close at once, some are held and read nothing, and end with a reset.
    if random.random() < 0.5:
        held.append(s)
    else:
        s.close()
    if len(held) > 200:
        gone = held.pop(random.randrange(len(held)))
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0\\0\\0\\0\\0")
        gone.close()
print(made)
"""

ASK = """
import socket, sys, time
until, token = time.monotonic() + float(sys.argv[1]), sys.argv[2]
asked = answered = 0
last, longest = time.monotonic(), 0.0
while time.monotonic() < until:
    for port, path, wanted in ((9142, "/state?" + token, b"queues"), (9141, "/metrics", b"quell_")):
        asked, said = asked + 1, b""
        try:
            with socket.create_connection(("127.0.0.1", port), 2) as s:
                s.sendall(f"GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode())
                while piece := s.recv(65536):
                    said += piece
        except OSError:
            pass
        now = time.monotonic()
        if said.startswith(b"HTTP/1.0 200") and wanted in said:
            answered, longest, last = answered + 1, max(longest, now - last), now
    time.sleep(0.05)
print(asked, answered, max(longest, time.monotonic() - last))
"""


@pytest.fixture
def net() -> Iterator[Net]:
    require()
    with built(Net) as made:
        yield made


def test_hammering_keeps_neither_packets_nor_who_may_ask(
    net: Net, long: bool, record_property: Callable[[str, object], None]
) -> None:
    seconds = 600.0 if long else 10.0
    live = net.live("--rate", "50mbit", "--metrics", "9141", "--dashboard", "9142")
    assert live.stderr is not None
    token = next(line for line in live.stderr if "/?" in line).split("/?")[1].strip()
    try:
        before = _resident(live.pid)
        # Three processes compete with quell-live.
        with Lateness() as late, traffic(net, seconds) as found:
            hammers = [net.start(net.r, sys.executable, "-c", HAMMER, str(seconds), str(k)) for k in range(2)]
            asking = net.start(net.r, sys.executable, "-c", ASK, str(seconds), token)
            made = sum(int(hammer.communicate(timeout=seconds + 60)[0]) for hammer in hammers)
            asked, answered, longest = map(float, asking.communicate(timeout=60)[0].split())
        more = _resident(live.pid) - before
    finally:
        live.send_signal(signal.SIGTERM)
        live.wait(20)
    sent, arrived, gap = found
    record_property(
        HEAD,
        f"| {seconds:.0f} s | {made} | {asked:.0f} | {answered:.0f} | {1e3 * longest:.0f} ms | {sent - arrived:.0f} "
        f"| {1e3 * gap:.0f} ms | {more} KiB |",
    )
    assert made > 500 * seconds
    assert answered >= 0.8 * asked
    assert longest < late.allowed_s(2.0)
    assert arrived >= 0.99 * sent and gap < late.allowed_s(SLACK_S)
    assert more < 2000
    assert live.returncode == 0


def _resident(pid: int) -> int:
    """Resident memory, KiB; quell-live has replaced the process of `ip netns exec`."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])
