"""Captures of a line (pcap, pcapng): its rates, base round trip and traffic, as far as packets show them."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

from quell._core import InputError, Scenario
from quell.inputs import shortcuts
from quell.inputs.pcap import TCP, UDP, Packet, Side, packets
from quell.results.stats import quantile

SUFFIXES = (".pcap", ".pcapng", ".cap")

_HEADER = 14
"""Bytes of Ethernet's header, which rates in quell include."""
_BIN_S = 0.25
_NEAR = 0.1
"""Largest relative deviation of a saturated bin from the rate."""
_MIN_BINS = 8
"""Minimum number of saturated bins of a bottleneck: 2 s."""
_BULK = 500_000
"""Minimum size of a transfer, bytes; smaller flows are parts of a page."""
_MAX_TIME_S = 86_400
_MAX_REPEATED = 0.4
"""Largest share of segments that were seen before. Retransmissions are few; in a capture of two interfaces of a router
without address translation, half of the segments are repeated."""
_MIN_SEGMENTS = 100
"""The share is taken of at least this many segments: a few retransmissions are a large share of a short capture."""
_MAX_FLOWS = 100_000
_MAX_COUNT = 64
_SITE = 7
"""Bytes of the prefix of a site's networks in IPv6: 56 bits, the usual delegation to a home (RFC 6177)."""

_PRIVATE = [ipaddress.ip_network(net) for net in (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8", "fc00::/7",
    "fe80::/10", "::1/128",
)]  # fmt: skip


def is_capture(path: str | Path) -> bool:
    """Return whether a file is a capture, by its name."""
    return str(path).endswith(SUFFIXES)


@dataclass(slots=True)
class _Way:
    """Traffic sent by one end of a connection."""

    packets: int = 0
    bytes: int = 0
    payload: int = 0
    ends: int = -1
    """Sequence number whose acknowledgment is awaited; -1: none."""
    sent: float = 0.0
    first: int = -1
    """Sequence number of the first segment with data."""
    highest: int = -1
    rtt: float = inf
    """Minimum time from a segment to its acknowledgment at the place of the capture, s."""
    segments: int = 0
    """Segments of TCP with data."""
    repeated: int = 0
    """Of these, those that end at or before the highest sequence number."""


@dataclass(slots=True)
class _Flow:
    protocol: int
    first: float
    last: float
    ways: dict[Side, _Way] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """Properties of a line inferred from a capture."""

    path: Path
    down_mbps: float | None
    """Rate down, with Ethernet's header, Mbit/s; None if the direction was not loaded."""
    up_mbps: float | None
    rtt_ms: float | None
    flows: dict[str, int]
    """Number of simultaneous flows by kind of traffic."""

    @classmethod
    def load(cls, path: str | Path) -> Seen:
        """Read a capture.

        Raises InputError if it cannot be read, is not a capture, has no IP packets, or has too many flows.
        """
        path = Path(path)
        reading = _Reading(path)
        try:
            for packet in packets(path):
                reading.add(packet)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        return reading.seen()

    def scenario(self, rate: str | None = None, rtt: str | None = None) -> Scenario:
        """Return the line and its traffic; `rate` (DOWN/UP) and `rtt` replace what was inferred.

        Raises InputError if a rate or the round trip was neither inferred nor given.
        """
        if rate is None:
            for way, seen in (("download", self.down_mbps), ("upload", self.up_mbps)):
                if seen is None:
                    raise InputError(
                        f"{self.path}: no bottleneck in the {way}: it was never full for {_BIN_S * _MIN_BINS:g} s; "
                        "capture while the line is loaded both ways, or name the rates: quell tune --rate DOWN/UP"
                    )
            down, up = f"{self.down_mbps:.3f}mbit", f"{self.up_mbps:.3f}mbit"
        else:
            down, up = shortcuts.both_ways(rate)
        if rtt is None and self.rtt_ms is None:
            raise InputError(f"{self.path}: no acknowledged data of TCP, so its round trip is unknown; give --rtt TIME")
        base = rtt or f"{max(self.rtt_ms or 0.0, 0.1):.3f}ms"
        if not self.flows:
            raise InputError(f"{self.path}: no transfer, page, call or game in it; capture while the line is in use")
        flows: list[dict[str, Any]] = [
            {"kind": kind, "count": count, "rtt": base, "stagger": "1s", "host": _HOSTS[kind]}
            | ({"direction": "up"} if kind == "upload" else {})
            for kind, count in self.flows.items()
        ]
        keys: Any = {
            "duration": "20s", "warmup": "4s",
            "link": {"rate": down, "queue": "pfifo limit 1000", "up": {"rate": up, "queue": "pfifo limit 1000"}},
            "flow": flows,
        }  # fmt: skip
        return Scenario.from_keys(name=self.path.name.partition(".")[0] or "capture", **keys)

    def summary(self) -> str:
        """Describe the line in one line of text."""
        rates = [
            f"{way} {'?' if rate is None else f'{rate:.1f}'} Mbit/s"
            for way, rate in (("download", self.down_mbps), ("upload", self.up_mbps))
        ]
        rtt = "?" if self.rtt_ms is None else f"{self.rtt_ms:.1f}"
        kinds = [f"{count} {kind}" for kind, count in self.flows.items()] or ["no flows"]
        return f"{self.path}: {', '.join(rates)}, base round trip {rtt} ms; {', '.join(kinds)}"


# The host of each kind of flow, in the order in which kinds are shown.
_HOSTS = {
    "download": "laptop", "upload": "laptop", "page": "laptop",
    "call": "phone", "video_call": "phone", "game": "console",
}  # fmt: skip


class _Reading:
    """Sums over a capture; memory is bounded by the number of flows and the duration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.flows: dict[tuple[Side, Side, int], _Flow] = {}
        self.sent: dict[tuple[bytes, bytes], defaultdict[int, int]] = {}
        """By source and target, bytes in each bin."""
        self.start: float | None = None

    def add(self, p: Packet) -> None:
        self.start = p.at if self.start is None else self.start
        at = p.at - self.start
        if not 0 <= at < _MAX_TIME_S:
            return  # the clock was set
        key = (p.source, p.target, p.protocol) if p.source < p.target else (p.target, p.source, p.protocol)
        flow = self.flows.get(key)
        if flow is None:
            if len(self.flows) >= _MAX_FLOWS:
                raise InputError(f"{self.path}: over {_MAX_FLOWS} flows; capture one line, for some minutes")
            flow = self.flows[key] = _Flow(p.protocol, at, at, {p.source: _Way(), p.target: _Way()})
        flow.last = at
        way, back = flow.ways[p.source], flow.ways[p.target]
        way.packets += 1
        way.bytes += p.length
        way.payload += p.payload
        if p.protocol == TCP:
            _time(p, at, way, back)
        bins = self.sent.setdefault((p.source[0], p.target[0]), defaultdict(int))
        bins[int(at / _BIN_S)] += p.length + _HEADER

    def seen(self) -> Seen:
        if not any(flow.protocol in (TCP, UDP) for flow in self.flows.values()):
            raise InputError(f"{self.path}: no packets of TCP or UDP in it")
        inside = self._inside()
        crossing = [flow for flow in self.flows.values() if sum(end[0] in inside for end in flow.ways) == 1]
        self._check_once(crossing, inside)
        kinds = _kinds(crossing, inside)
        # Acknowledgments and calls are as steady as traffic on a full line, but only a transfer fills a line.
        down = self._rate(inside, arriving=True) if kinds["download"] else None
        up = self._rate(inside, arriving=False) if kinds["upload"] else None
        ways = [(end[0] in inside, way) for flow in crossing for end, way in flow.ways.items()]
        # Round trips from the place of the capture to the servers, and to the hosts of the line.
        outside, near = (min((way.rtt for inner, way in ways if inner == side), default=inf) for side in (True, False))
        # A capture on the host itself shows no round trip to the host; it is close to zero.
        rtt = (outside + (near if near < inf else 0.0)) * 1e3
        return Seen(
            self.path, down, up, rtt if rtt < inf else None, {kind: kinds[kind] for kind in _HOSTS if kinds[kind]}
        )

    def _inside(self) -> frozenset[bytes]:
        """Find the addresses on the near side of the line, for each version of IP.

        They are the private addresses if more bytes crossed between private and public addresses than between public
        ones; a few packets, such as those of the provider's DHCP server, do not suffice. Otherwise it is the IPv4
        address that received most bytes, and for IPv6 every address in the network that exchanged most bytes. If all
        traffic is between private addresses, it is the address that received most bytes.
        """
        private = {
            address for address in set(chain.from_iterable(self.sent))
            if any(ipaddress.ip_address(address) in net for net in _PRIVATE)
        }  # fmt: skip
        inside, crossed = set(private), False
        for length in (4, 16):
            flows = [flow for flow in self.flows.values() if len(next(iter(flow.ways))[0]) == length]
            carried: Counter[int] = Counter()
            for flow in flows:
                ends = sum(address in private for address, _ in flow.ways)
                carried[ends] += sum(way.bytes for way in flow.ways.values())
            crossed |= carried[0] + carried[1] > 0
            if carried[0] >= max(carried[1], 1):
                inside = {address for address in inside if len(address) != length}
                inside |= self._network(flows) if length == 16 else {self._receiver(length)}
        return frozenset(inside) if crossed else frozenset([self._receiver(4, 16)])

    def _receiver(self, *lengths: int) -> bytes:
        """Return the address of one of these lengths that received most bytes."""
        received: Counter[bytes] = Counter()
        for (_, target), bins in self.sent.items():
            if len(target) in lengths:
                received[target] += sum(bins.values())
        return max(received, key=received.__getitem__)

    def _network(self, flows: list[_Flow]) -> set[bytes]:
        """Return the addresses of the IPv6 network that exchanged most bytes; if two are equal, of the clients' one."""
        exchanged: Counter[bytes] = Counter()
        clients: Counter[bytes] = Counter()
        for flow in flows:
            carried = sum(way.bytes for way in flow.ways.values())
            for network in {address[:_SITE] for address, _ in flow.ways}:
                exchanged[network] += carried
            client = max(flow.ways, key=lambda end: end[1])
            clients[client[0][:_SITE]] += carried
        site = max(exchanged, key=lambda network: (exchanged[network], clients[network]))
        return {address for address in chain.from_iterable(self.sent) if len(address) == 16 and address[:_SITE] == site}

    def _check_once(self, crossing: list[_Flow], inside: frozenset[bytes]) -> None:
        """Raise InputError if packets that cross the line were captured more than once: their rate would be doubled."""
        ways = [way for flow in crossing for way in flow.ways.values()]
        segments = sum(way.segments for way in ways)
        repeated = sum(way.repeated for way in ways) > _MAX_REPEATED * max(segments, _MIN_SEGMENTS)
        # If a router translates private addresses to other private ones, the copies of a connection differ in the near
        # end, but not in the far end and the first sequence number.
        copies = Counter(
            (end, way.first) for flow in crossing for end in flow.ways for way in flow.ways.values()
            if end[0] not in inside and flow.protocol == TCP and way.bytes >= _BULK
        )  # fmt: skip
        if repeated or max(copies.values(), default=0) > 1:
            raise InputError(f"{self.path}: packets are in it more than once; capture one interface: "
                             "tcpdump -i eth0 -w FILE")  # fmt: skip

    def _rate(self, inside: frozenset[bytes], *, arriving: bool) -> float | None:
        """Return the rate of a direction, if the line was full; None if not."""
        ends = (False, True) if arriving else (True, False)
        return _full(_sum(
            bins for (source, target), bins in self.sent.items() if (source in inside, target in inside) == ends
        ))  # fmt: skip


def _kinds(crossing: list[_Flow], inside: frozenset[bytes]) -> Counter[str]:
    """Count the traffic by kind: transfers by their bytes, calls and games by their packets."""
    found: Counter[str] = Counter()
    short = 0
    for flow in crossing:
        if len(flow.ways) < 2 or flow.protocol not in (TCP, UDP):
            continue
        near, far = sorted(flow.ways, key=lambda end: end[0] not in inside)
        up, down = flow.ways[near], flow.ways[far]
        if max(up.bytes, down.bytes) >= _BULK and (flow.protocol == TCP or _one_way(up, down)):
            found["download" if down.bytes >= up.bytes else "upload"] += 1
        elif flow.protocol == TCP:
            short += down.payload > 0
        elif (kind := _call_or_game(flow, up, down)) is not None:
            found[kind] += 1
    if short >= 5:
        found["page"] = 1
    return Counter({kind: min(count, _MAX_COUNT) for kind, count in found.items()})


def _time(p: Packet, at: float, way: _Way, back: _Way) -> None:
    """Measure the time from a segment to its acknowledgment: one segment at a time, no retransmissions."""
    end = (p.seq + p.payload + bool(p.flags & 2)) & 0xFFFF_FFFF
    if p.payload or p.flags & 2:
        new = way.highest < 0 or 0 < (end - way.highest) & 0xFFFF_FFFF < 1 << 31
        if not new:
            way.ends = -1
        elif way.ends < 0:
            way.ends, way.sent = end, at
        way.highest = end if new else way.highest
        if p.payload and way.first < 0:
            way.first = p.seq
        way.segments += p.payload > 0
        way.repeated += p.payload > 0 and not new
    if p.flags & 16 and back.ends >= 0 and (p.ack - back.ends) & 0xFFFF_FFFF < 1 << 31:
        back.rtt = min(back.rtt, max(at - back.sent, 0.0))
        back.ends = -1


def _one_way(up: _Way, down: _Way) -> bool:
    return max(up.bytes, down.bytes) > 10 * min(up.bytes, down.bytes)


def _call_or_game(flow: _Flow, up: _Way, down: _Way) -> str | None:
    """Classify a two-way datagram flow as call or game by packet rate and size; None if it is neither."""
    seconds = flow.last - flow.first
    if seconds < 2 or min(up.packets, down.packets) < 10 * seconds:
        return None
    if max(up.bytes, down.bytes) * 8 / seconds >= 200_000:
        return "video_call"
    # Speech codecs send a packet every 10 to 60 ms, and both ends send alike.
    alike = 0.8 <= up.packets / down.packets <= 1.25 and 0.5 <= up.bytes / down.bytes <= 2
    return "call" if alike else "game"


def _sum(each: Iterable[Mapping[int, int]]) -> list[float]:
    """Return the rate of each bin, Mbit/s, without the first and last, which are incomplete."""
    total: Counter[int] = Counter()
    for bins in each:
        total.update(bins)
    whole = range(1, max(total, default=0))
    return [total[k] * 8e-6 / _BIN_S for k in whole]


def _full(rates: list[float]) -> float | None:
    """Return the rate of a full line, Mbit/s: the median of the highest bins; None if too few bins are close to it.

    The highest bins are 5 %, but at least `_MIN_BINS`.
    """
    top = sorted(rates)[-max(_MIN_BINS, len(rates) // 20) :]
    if len(top) < _MIN_BINS or top[0] < 0.1:
        return None
    rate = quantile(top, 0.5)
    near = [value for value in rates if abs(value - rate) <= _NEAR * rate]
    return rate if len(near) >= _MIN_BINS else None
