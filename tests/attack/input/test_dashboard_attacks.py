"""The dashboard and the metrics under attack: other sites' pages, slow and many clients, guesses, kill -9."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from live_net import Net, built, require
from test_dashboard import dashboard  # noqa: F401

pytestmark = pytest.mark.real_time


class Target:
    """The dashboard's address and token."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.address = address
        self.at = (str(parts.hostname), int(parts.port or 0))
        self.token = parts.query

    def ask(self, question: bytes, wait: float = 5.0) -> bytes:
        """Send a question and return the whole answer, until the server closes."""
        with socket.create_connection(self.at, wait) as s:
            s.sendall(question)
            answer = b""
            # Data that the server had not read when it closed causes a reset.
            with contextlib.suppress(ConnectionResetError):
                while piece := s.recv(65536):
                    answer += piece
            return answer

    def state(self) -> bytes:
        return self.ask(f"GET /state?{self.token} HTTP/1.1\r\nHost: {self.at[0]}:{self.at[1]}\r\n\r\n".encode())


@pytest.fixture
def target(dashboard: str) -> Target:  # noqa: F811
    return Target(dashboard)


HOSTS = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example:80",
    "evil.example\r\nHost: 127.0.0.1",
    "127.0.0.1\r\nhost : evil.example",
    "127.0.0.1@evil.example",
    "[::1]",
    "0.0.0.0",
    "127.1",
    "localhost.",
    "",
]


@pytest.mark.parametrize("host", HOSTS)
def test_a_rebound_name_gets_nothing(target: Target, host: str) -> None:
    said = target.ask(f"GET /state?{target.token} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.0 403"), said
    assert b"queues" not in said


@pytest.mark.parametrize(
    "framing",
    [
        "HTTP/1.1\rHost: evil.example\r\n",  # CR alone
        "HTTP/1.1\r\nX: y\rHost: evil.example\r\n",
        "HTTP/1.1\r\nHost: 127.0.0.1\r\n\tevil.example\r\n",  # a folded line
        "HTTP/1.1\r\nHost:\r\n evil.example\r\n",
        "HTTP/1.1\r\nHo\0st: evil.example\r\n",
        "HTTP/1.1\r\nX: y\0\r\n",
    ],
)
def test_lines_that_may_be_read_in_two_ways_are_refused(target: Target, framing: str) -> None:
    said = target.ask(f"GET /state?{target.token} {framing}\r\n".encode())
    assert said.startswith(b"HTTP/1.0 400"), said
    assert b"queues" not in said


def test_a_question_that_hides_its_host_behind_its_length_gets_nothing(target: Target) -> None:
    for padding in (4096, 5000, 1_000_000):
        line = f"GET /state?{target.token}&{'a' * padding} HTTP/1.1\r\nHost: evil.example\r\n\r\n"
        with contextlib.suppress(ConnectionError):
            said = target.ask(line.encode())
            assert said.startswith((b"HTTP/1.0 431", b"")), said[:100]
            assert b"queues" not in said
    assert target.state().startswith(b"HTTP/1.0 200")


def test_no_other_site_can_embed_the_dashboards_answers(target: Target) -> None:
    for path in ("/", "/state", "/history"):
        head = target.ask(f"GET {path}?{target.token} HTTP/1.1\r\n\r\n".encode()).split(b"\r\n\r\n")[0].decode().lower()
        for header in ("x-content-type-options: nosniff", "cross-origin-resource-policy: same-origin"):
            assert header in head, path
        assert "frame-ancestors 'none'" in head
        assert "access-control" not in head


def test_guesses_of_the_token_get_nothing(target: Target) -> None:
    token = target.token.removeprefix("token=")
    assert re.fullmatch(r"[0-9a-f]{32}", token)
    guesses = [
        "",
        token[:-1],
        token + "0",
        token.upper().swapcase().upper() + "x",
        "0" * 32,
        token[::-1],
        "%00" + token,
        "*",
    ]
    for guess in guesses:
        said = target.ask(f"GET /state?token={guess} HTTP/1.1\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.0 403"), (guess, said)
        assert token.encode() not in said


@pytest.mark.parametrize(
    "question",
    [
        b"\r\n\r\n",
        b"\x00\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET  HTTP/9\r\n: :\r\n\r\n",
        b"POST /state HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /state HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nOrigin: http://evil.example\r\n\r\n",
        b"OPTIONS /state HTTP/1.1\r\nAccess-Control-Request-Private-Network: true\r\n\r\n",
        b"GET /state?token=\xff\xfe HTTP/1.1\r\nX: \xc3\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_a_malformed_request_is_refused(target: Target, question: bytes) -> None:
    said = target.ask(question)
    assert re.match(rb"HTTP/1.0 (400|403|404|405|431) ", said), said
    assert target.state().startswith(b"HTTP/1.0 200")


def test_slow_and_many_clients_do_not_delay_others(target: Target) -> None:
    over = threading.Event()

    def trickle() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(target.at, 2) as s:
                while not over.is_set():
                    s.send(b"G")
                    time.sleep(0.05)

    def hammer() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                socket.create_connection(target.at, 2).close()

    def deaf() -> None:
        """Request the page repeatedly and read nothing."""
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(target.at, 2) as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                s.send(f"GET /?{target.token} HTTP/1.1\r\n\r\n".encode())
                over.wait(0.2)

    threads = [threading.Thread(target=attack, daemon=True) for attack in [trickle] * 40 + [hammer] * 4 + [deaf] * 40]
    for thread in threads:
        thread.start()
    try:
        answered = 0
        for _ in range(50):
            with contextlib.suppress(OSError):
                answered += target.state().startswith(b"HTTP/1.0 200")
    finally:
        over.set()
        for thread in threads:
            thread.join(5)
    # The server may close a connection in favour of one that arrives at the same time; the page retries after 250 ms.
    assert answered >= 40
    assert target.state().startswith(b"HTTP/1.0 200")


@pytest.fixture
def net() -> Iterator[Net]:
    require()
    with built(Net) as made:
        yield made


METRICS = """
import socket, sys
with socket.create_connection(("127.0.0.1", 9141), 5) as s:
    s.sendall(sys.argv[1].encode())
    said = b""
    try:
        while piece := s.recv(65536):
            said += piece
    except ConnectionResetError:
        pass
print(said.decode()[:300])
"""


def test_metrics_go_only_to_clients_that_request_them(net: Net) -> None:
    live = net.live("--rate", "8mbit", "--metrics", "9141")

    def ask(question: str) -> str:
        done = net.run(net.r, sys.executable, "-c", METRICS, question)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        assert ask("GET /metrics HTTP/1.1\r\n\r\n").startswith("HTTP/1.0 200")
        assert ask("POST /metrics HTTP/1.1\r\n\r\n").startswith("HTTP/1.0 405")
        # A long path (of a page reached by DNS rebinding) cannot push the Host header beyond what the server reads.
        said = ask(f"GET /metrics?{'a' * 8000} HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert "quell_" not in said
        said = ask("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n")
        assert said.startswith("HTTP/1.0 403")
    finally:
        live.send_signal(signal.SIGTERM)
        live.wait(20)


HOLD = """
import signal, socket
held = [socket.create_connection(("127.0.0.1", port), 5) for port in (9141, 9142) for _ in range(5)]
for s in held:
    s.send(b"GET / HT")
print("held", flush=True)
signal.pause()
"""


def test_after_a_kill_while_it_serves_the_next_one_has_the_same_ports(net: Net, tmp_path: Path) -> None:
    words = ("--rate", "8mbit", "--metrics", "9141", "--dashboard", "9142", "--status", str(tmp_path / "s"))
    for _ in range(3):
        live = net.live(*words)
        holder = net.start(net.r, sys.executable, "-c", HOLD)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        live.kill()
        live.wait(20)
        holder.kill()
        holder.communicate()
    live = net.live(*words)
    # Rules may be those of the killed instances, so wait for the new one's port.
    connect = "import socket; socket.create_connection(('127.0.0.1', 9141), 5)"
    while net.run(net.r, sys.executable, "-c", connect).returncode != 0:
        assert live.poll() is None, live.communicate()
    live.send_signal(signal.SIGTERM)
    assert live.wait(20) == 0


FLOOD = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for k in range(int(sys.argv[1])):
    udp = struct.pack("!HHHH", k & 65535, 9, 8, 0)
    source = bytes([10, 9, 1, 2 + (k >> 16) % 200])
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, 64, 17, 0, source, bytes([10, 9, 2, 2]))
    s.sendto(head + udp, ("10.9.2.2", 0))
"""


def test_endless_flows_cost_no_memory_and_a_heavy_one_is_named(net: Net) -> None:
    command = net.live("--rate", "100mbit", "--dashboard", "9142")
    assert command.stderr is not None
    address = command.stderr.readline().split()[-1].replace("/?", "/state?")
    resident = Path(f"/proc/{command.pid}/status")
    ask = f"import urllib.request as r; print(r.urlopen('{address}', timeout=5).read().decode())"

    def kilobytes() -> int:
        return int(re.findall(r"VmRSS:\s+(\d+)", resident.read_text())[0])

    try:
        assert net.datagrams(20)
        heavy = net.start(net.a, sys.executable, "-c", HEAVY)
        assert net.run(net.a, sys.executable, "-c", FLOOD, "20000").returncode == 0
        before = kilobytes()
        flood = net.start(net.a, sys.executable, "-c", FLOOD, "80000")
        looks = [""]
        deadline = time.monotonic() + 20
        # If the flood ends during a look, the next look shows the heavy flow.
        while flood.poll() is None or (HEAVY_NAME not in looks[-1] and time.monotonic() < deadline):
            looks.append(net.run(net.r, sys.executable, "-c", ask).stdout)
        heavy.kill()
        heavy.communicate()
        assert flood.returncode == 0
        assert HEAVY_NAME in looks[-1]
        assert all(said.count("→") <= 8 for said in looks)
        assert kilobytes() - before < 2000
    finally:
        command.send_signal(signal.SIGTERM)
        command.wait(20)


HEAVY_NAME = "udp 10.9.1.2:4321 → 10.9.2.2:9"
HEAVY = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.9.1.2", 4321))
while True:
    s.sendto(bytes(1400), ("10.9.2.2", 9))
    time.sleep(0.005)
"""
