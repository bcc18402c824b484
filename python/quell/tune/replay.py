"""A line made of network namespaces with real Linux TCP over it, for `quell tune --verify` as root.

    python -m quell.tune.replay SPEC

SPEC is JSON, as `quell.tune.verify` writes it. Namespaces: the home's hosts - the router - the provider - the servers.
The router runs the commands of tc that `quell tune` prints. At each of the provider's two interfaces, htb limits the
rate to that of the line, and a bfifo replaces the FIFO of the provider (down) or of the modem (up). netem delays
packets at both ends. The namespaces belong to child processes and end with this process. It prints the record as JSON,
with the keys of a simulated one.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import json
import random
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quell import _core
from quell._core import InputError
from quell.linux.programs import Command
from quell.linux.spaces import Space
from quell.results import stats

_OFFLOADS = (0x1F, 0x24, 0x2C)
"""TSO, GSO and GRO off (linux/ethtool.h), so that packets on the links are single packets."""
_PORT = 5001
_CHUNK = bytes(1 << 16)
_STAMP = struct.Struct("!IQQ")
_SPEECH, _COMMAND, _STATE = 172, 48, 141
"""UDP payloads, bytes: 20 ms of G.711 with RTP's header; the mean sizes of a game's commands and states
(docs/explanation/applications.md)."""
_GAPS = {"call": (0.02, 0.02), "game": (1 / 30, 1 / 60)}
"""Seconds between packets from the home and from the server."""


def main() -> None:
    """Replay a line and print its record."""
    spec = json.loads(sys.argv[1])
    try:
        print(json.dumps(_probe() if "probe" in spec else _replay(spec)))
    except InputError as error:
        sys.exit(str(error))


# The line. ------------------------------------------------------------------------------------------------------------


def _join(a: Space, dev_a: str, b: Space, dev_b: str, net: str) -> None:
    """Connect two namespaces; `a` gets address 1 of the network `net`, `b` address 2."""
    import fcntl

    a.run(Command.of("ip link add {a} type veth peer name {b} netns {pid}", a=dev_a, b=dev_b, pid=b.pid))
    for space, dev, host in ((a, dev_a, 1), (b, dev_b, 2)):
        space.run(
            Command.of("ip addr add {net}.{host}/24 dev {dev}", net=net, host=host, dev=dev),
            Command.of("ip link set {dev} up", dev=dev),
        )
        space.enter()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as at:
            for command in _OFFLOADS:
                value = ctypes.create_string_buffer(struct.pack("II", command, 0))
                fcntl.ioctl(at, 0x8946, struct.pack("16sP", dev.encode(), ctypes.addressof(value)))


def _build(spec: dict[str, Any]) -> tuple[Space, Space]:
    """Make the line; return the home's and the servers' namespaces."""
    home, router, provider, servers = spaces = [Space() for _ in range(4)]
    _join(home, "lan", router, "quell-lan", "10.97.0")
    _join(router, spec["dev"], provider, "modem", "10.97.1")
    _join(provider, "net", servers, "net", "10.97.2")
    for space in spaces:
        space.run(Command.of("ip link set lo up"))
        space.enter()
        for name, value in spec["sysctl"].items():
            Path(f"/proc/sys/net/ipv4/{name}").write_text(value)
    for space in (router, provider):
        space.enter()
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for space, to, via in (
        (home, "default", "10.97.0.2"), (router, "10.98.0.0/16", "10.97.0.1"), (router, "default", "10.97.1.2"),
        (provider, "10.98.0.0/16", "10.97.1.1"), (provider, "10.99.0.0/16", "10.97.2.2"),
        (servers, "default", "10.97.2.1"),
    ):  # fmt: skip
        space.run(Command.of("ip route add {to} via {via}", to=to, via=via))
    for flow in spec["flows"]:
        # An address that several flows have is already there.
        for space, address in ((home, flow["client"]), (servers, flow["server"])):
            space.run(Command.of("ip addr add {address}/32 dev lo", address=address, may_fail=True))
    # Servers with the same RTT, number N in `rtts_ms`, are in one network: 10.99.N.0/24.
    for space, dev, end in ((home, "lan", "dst"), (servers, "net", "src")):
        bands = max(3, len(spec["rtts_ms"]))
        space.run(Command.of("tc qdisc add dev {dev} root handle 1: prio bands {bands}", dev=dev, bands=bands))
        for number, ms in enumerate(spec["rtts_ms"]):
            values = {"dev": dev, "end": end, "ms": ms / 2, "number": number, "band": number + 1}
            space.run(
                Command.of("tc qdisc add dev {dev} parent 1:{band} netem delay {ms:.6f}ms limit 100000", **values),
                Command.of(
                    "tc filter add dev {dev} parent 1: protocol ip u32 match ip {end} 10.99.{number}.0/24 "
                    "flowid 1:{band}", **values,
                ),
            )  # fmt: skip
    for dev, way in (("modem", spec["down"]), ("net", spec["up"])):
        values = {"dev": dev, **way}
        provider.run(
            Command.of(f"tc qdisc add dev {{dev}} root handle 1: {spec['stab']}htb default 1", **values),
            Command.of(
                "tc class add dev {dev} parent 1: classid 1:1 htb rate {rate}bit burst 1600 cburst 1600 quantum 1514",
                **values,
            ),
            Command.of("tc qdisc add dev {dev} parent 1:1 bfifo limit {fifo}", **values),
        )
    router.run(*map(Command.read, spec["commands"]))
    return home, servers


def _probe() -> dict[str, Any]:
    """Check whether this kernel has everything that a line needs."""
    space = Space()
    for text in (
        "ip link add lan type veth peer name other",
        "ip link add ifb4lan type ifb",
        "tc qdisc add dev lan root handle 1: prio",
        "tc qdisc add dev lan parent 1:1 netem delay 1ms",
        "tc qdisc add dev other root handle 1: htb default 1",
        "tc qdisc replace dev ifb4lan root cake bandwidth 1mbit",
        "tc qdisc add dev lan handle ffff: ingress",
    ):
        space.run(Command.of(text))
    return {}


# The traffic. ---------------------------------------------------------------------------------------------------------


@dataclass
class _Received:
    """Packets that one end of a call or game received."""

    flow: dict[str, Any]
    way: str
    arrivals: list[tuple[int, int, float]] = field(default_factory=list)
    """Serial number, delay in ns and arrival time in s of each packet."""
    newest: int = 0
    """One-way delay of the newest packet, ns; the next packet in the other direction reports it to the sender."""
    round_trips: list[tuple[float, float]] = field(default_factory=list)
    """For each packet that reports a delay: its arrival time, s, and the sum of that delay and its own, ms."""


@dataclass
class _Traffic:
    """All flows of both ends, in one loop with one clock."""

    spec: dict[str, Any]
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    due: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    """A heap of functions by time, s; the serial number keeps the order of those at the same time."""
    bytes: dict[int, int] = field(default_factory=dict)
    """Bytes received by each TCP flow so far."""
    before: dict[int, int] = field(default_factory=dict)
    """Of these, the bytes before the end of the warm-up."""
    received: list[_Received] = field(default_factory=list)
    serial: int = 0

    def at(self, when: float, do: Callable[[float], None]) -> None:
        """Schedule a function at a time of the run."""
        self.serial += 1
        heapq.heappush(self.due, (when, self.serial, do))

    def run(self, home: Space, servers: Space) -> None:
        """Run all flows."""
        draws = random.Random(self.spec["seed"])
        servers.enter()
        listener = socket.create_server(("", _PORT), backlog=512)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, lambda now: self._accept(listener))
        pairs = [(flow, self._datagrams(flow["server"])) for flow in self.spec["flows"] if flow["kind"] in _GAPS]
        home.enter()
        for flow, far in pairs:
            self._exchange(flow, self._datagrams(flow["client"]), far)
        for number, flow in enumerate(self.spec["flows"]):
            if flow["kind"] not in _GAPS:
                self.bytes[number] = 0
                start = flow["start_s"] + draws.random() * flow["stagger_s"]
                self.at(start, lambda now, n=number, f=flow: self._connect(n, f))  # type: ignore[misc]
        self.at(self.spec["warmup_s"], lambda now: self.before.update(self.bytes))
        begin = time.monotonic()
        while (now := time.monotonic() - begin) < self.spec["duration_s"]:
            while self.due and self.due[0][0] <= now:
                heapq.heappop(self.due)[2](now)
            wait = min(self.due[0][0] if self.due else now + 1, self.spec["duration_s"]) - now
            for key, _ in self.selector.select(max(0.0, wait)):
                key.data(time.monotonic() - begin)

    def _connect(self, number: int, flow: dict[str, Any]) -> None:
        at = socket.socket()
        at.bind((flow["client"], 0))
        at.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, flow["cc"].encode())
        at.setblocking(False)
        at.connect_ex((flow["server"], _PORT))
        hello = struct.pack("!BI", flow["direction"] == "up", number)

        def connected(now: float) -> None:
            at.send(hello)
            self._transfer(at, number, sends=flow["direction"] == "up")

        self.selector.register(at, selectors.EVENT_WRITE, connected)

    def _accept(self, listener: socket.socket) -> None:
        at, _ = listener.accept()
        at.setblocking(False)

        def hello(now: float) -> None:
            up, number = struct.unpack("!BI", at.recv(5))
            self._transfer(at, number, sends=not up)

        self.selector.register(at, selectors.EVENT_READ, hello)

    def _transfer(self, at: socket.socket, number: int, *, sends: bool) -> None:
        def send(now: float) -> None:
            try:
                at.send(_CHUNK)
            except BlockingIOError:
                return

        def receive(now: float) -> None:
            self.bytes[number] += len(at.recv(1 << 18))

        events = selectors.EVENT_WRITE if sends else selectors.EVENT_READ
        self.selector.modify(at, events, send if sends else receive)

    @staticmethod
    def _datagrams(address: str) -> socket.socket:
        at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        at.bind((address, 0))
        at.setblocking(False)
        return at

    def _exchange(self, flow: dict[str, Any], near: socket.socket, far: socket.socket) -> None:
        """Send packets in both directions at the rates of a call or game, and record arrivals."""
        up, down = _Received(flow, "up"), _Received(flow, "down")
        self.received += [up, down]
        sizes = (_COMMAND, _STATE) if flow["kind"] == "game" else (_SPEECH, _SPEECH)
        ways = ((near, far, up, down), (far, near, down, up))
        for (source, sink, received, back), gap, size in zip(ways, _GAPS[flow["kind"]], sizes, strict=True):
            self._pace(source, sink.getsockname(), gap, size, back)
            self.selector.register(sink, selectors.EVENT_READ, self._receiver(sink, received))

    def _pace(self, at: socket.socket, to: Any, gap: float, size: int, back: _Received) -> None:
        serial = 0

        def send(now: float) -> None:
            nonlocal serial
            # Packets that the kernel refuses count as lost, like the queue's losses.
            with contextlib.suppress(OSError):
                at.sendto(_STAMP.pack(serial, time.monotonic_ns(), back.newest).ljust(size, b"\0"), to)
            serial += 1
            self.at(serial * gap, send)

        self.at(0.0, send)

    @staticmethod
    def _receiver(at: socket.socket, received: _Received) -> Callable[[float], None]:
        """Return a function that receives one packet and records it in `received`."""

        def receive(now: float) -> None:
            serial, sent, newest = _STAMP.unpack_from(at.recv(2048))
            received.newest = time.monotonic_ns() - sent
            received.arrivals.append((serial, received.newest, now))
            if newest:
                received.round_trips.append((now, (newest + received.newest) / 1e6))

        return receive


def _replay(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the traffic over the line; return the record."""
    home, servers = _build(spec)
    traffic = _Traffic(spec)
    traffic.run(home, servers)
    warmup, span = spec["warmup_s"], spec["duration_s"] - spec["warmup_s"]
    flows = [
        {
            "kind": "tcp", "direction": flow["direction"], "host": flow["host"],
            "goodput_mbps": (traffic.bytes[n] - traffic.before.get(n, 0)) * 8e-6 / span,
        }
        for n, flow in enumerate(spec["flows"]) if n in traffic.bytes
    ]  # fmt: skip
    applications = []
    for up, down in zip(traffic.received[::2], traffic.received[1::2], strict=True):
        if up.flow["kind"] == "call":
            applications.append(_call([up, down], warmup, round(span / _GAPS["call"][0])))
        else:
            trips = sorted(ms for now, ms in down.round_trips if now >= warmup)
            summary = {"p99": stats.quantile(trips, 0.99)} if trips else None
            applications.append({"kind": "game", "round_trip_ms": summary})
    hosts = [
        {"host": host, "direction": way, "goodput_mbps": sum(
            flow["goodput_mbps"] for flow in flows if (flow["host"], flow["direction"]) == (host, way))}
        for host, way in dict.fromkeys((flow["host"], flow["direction"]) for flow in flows)
    ]  # fmt: skip
    jain = stats.jain([flow["goodput_mbps"] for flow in flows])
    return {"flows": flows, "applications": applications, "hosts": hosts, "jain": jain}


def _call(ends: list[_Received], warmup: float, sent: int) -> dict[str, Any]:
    """Judge both ends of a call; the result of the call is that of the worse end."""
    heard = []
    for end in ends:
        text = _core.heard([(serial, delay, now >= warmup) for serial, delay, now in end.arrivals], sent)
        heard.append(json.loads(text) if text else {"mos": 1.0})
    return {"kind": "call", **min(heard, key=lambda end: float(end["mos"]))}


if __name__ == "__main__":
    main()
