"""Packets of a captured line, for tests of captures and of damaged files."""

from __future__ import annotations

import struct

HOME = "192.168.1.10"
DOWN, UP = 20e6, 4e6
"""Rates, bit/s, including Ethernet headers."""


def address(text: str) -> bytes:
    return bytes(int(part) for part in text.split("."))


def frame(source: str, target: str, l4: bytes, protocol: int, payload: int) -> bytes:
    total = 20 + len(l4) + payload
    header = struct.pack("!BBHHHBBH", 0x45, 0, total, 0, 0, 64, protocol, 0)
    # A frame ends after its headers, as in a capture with a short snap length; `payload` is only in the IP length.
    return b"\0" * 12 + b"\x08\0" + header + address(source) + address(target) + l4


def over_ipv6(data: bytes) -> bytes:
    """Return the frame with IPv6; each host has a network of its own."""
    header, l4 = data[14:34], data[34:]
    length = int.from_bytes(header[2:4]) - len(header)
    ends = (b"\x20\x01\x0d\xb8" + end + bytes(7) + b"\1" for end in (header[12:16], header[16:20]))
    return data[:12] + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, length, header[9], 64) + b"".join(ends) + l4


def tcp(source: str, target: str, ports: tuple[int, int], seq: int, ack: int, payload: int) -> bytes:
    l4 = struct.pack("!HHIIBBHHH", *ports, seq & 0xFFFF_FFFF, ack & 0xFFFF_FFFF, 5 << 4, 0x10, 1000, 0, 0)
    return frame(source, target, l4, 6, payload)


def udp(source: str, target: str, ports: tuple[int, int], payload: int) -> bytes:
    return frame(source, target, struct.pack("!HHHH", *ports, 8 + payload, 0), 17, payload)


def transfer(
    start: float, seconds: float, rate: float, server: str, port: int, rtt: float, *, up: bool
) -> list[tuple[float, bytes]]:
    """Return a transfer as captured on the host `HOME`: times (s) and frames.

    Its sequence numbers begin 2^16 below 2^32, where they wrap.
    """
    found, size, seq = [], 1460, 0xFFFF_0000
    gap = (size + 40 + 14) * 8 / rate
    for k in range(int(seconds / gap)):
        at, end = start + k * gap, seq + (k + 1) * size
        if up:
            found.append((at, tcp(HOME, server, (port, 443), end - size, 1, size)))
            found.append((at + rtt + 0.01 * (k % 7), tcp(server, HOME, (443, port), 1, end, 0)))
        else:
            found.append((at, tcp(server, HOME, (443, port), end - size, 1, size)))
            found.append((at + 0.0002, tcp(HOME, server, (port, 443), 1, end, 0)))
    return found


def udp_exchange(
    host: str, seconds: float, interval: float, sizes: tuple[int, int], port: int
) -> list[tuple[float, bytes]]:
    found = []
    for k in range(int(seconds / interval)):
        found.append((k * interval, udp(host, "203.0.113.9", (port, 4000), sizes[0])))
        found.append((k * interval + 0.004, udp("203.0.113.9", host, (4000, port), sizes[1])))
    return found
