"""IP packets in captures (pcap, pcapng)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from quell._core import InputError

TCP, UDP, _FRAGMENT = 6, 17, 44
"""Protocol numbers. `_FRAGMENT` is IPv6's; IPv4 fragments other than the first get it, too."""
_MAX_BLOCK = 16 << 20
"""Largest packet or block of pcapng, bytes."""
_MAX_EMPTY = 1000
"""Largest number of successive records without a byte of a packet."""
_ETHERNET, _RAW, _LINUX_SLL, _LINUX_SLL2, _NULL = 1, 101, 113, 276, 0
_IP_AT = {_ETHERNET: 14, _RAW: 0, 12: 0, 14: 0, _LINUX_SLL: 16, _LINUX_SLL2: 20, _NULL: 4}
"""Offset of the IP header by link type, bytes."""

Side = tuple[bytes, int]
"""One end of a connection: address and port, which is 0 if the packet does not have it."""


@dataclass(slots=True)
class Packet:
    """An IP packet."""

    at: float
    """Time of its capture, s."""
    source: Side
    target: Side
    protocol: int
    length: int
    """Length of the IP packet, bytes."""
    seq: int = 0
    ack: int = 0
    flags: int = 0
    payload: int = 0


class _Bounded:
    """A file that bounds reads by the largest block, because dpkt accepts lengths of 4 GiB and negative ones."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.fileno = file.seek, file.fileno

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_BLOCK:
            raise ValueError(f"a block of {size} bytes")
        return self._file.read(size)


def _interfaces(file: BinaryIO) -> int:
    """Count the interfaces that a pcapng file describes, in all of its sections; 0 for pcap.

    dpkt reads every packet with the link type and the clock of the first one.
    """
    # dpkt loads slowly and only captures need it.
    from dpkt import pcapng

    order, found = "<", 0
    while len(head := file.read(12)) == 12:
        if head[:4] == struct.pack(">I", pcapng.PCAPNG_BT_SHB):
            order = "<" if head[8:] == struct.pack("<I", pcapng.BYTE_ORDER_MAGIC) else ">"
        elif file.tell() == 12:
            return 0
        kind, length = struct.unpack(f"{order}II", head[:8])
        if not 12 <= length <= _MAX_BLOCK:
            break  # zeros, or a damaged block
        found += kind == pcapng.PCAPNG_BT_IDB
        file.seek(length - 12, os.SEEK_CUR)
    return found


def packets(path: Path) -> Iterator[Packet]:
    """Read the packets of IP one by one."""
    # dpkt loads slowly and only captures need it.
    import dpkt

    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: is not a regular file")
    with path.open("rb") as file:
        if _interfaces(file) > 1:
            raise InputError(f"{path}: packets of several interfaces; capture one: tcpdump -i eth0 -w FILE")
        file.seek(0)
        try:
            reader = dpkt.pcap.UniversalReader(_Bounded(file))
        except (ValueError, dpkt.Error, struct.error):
            raise InputError(f"{path}: neither a pcap nor a pcapng file") from None
        link = reader.datalink()
        if link not in _IP_AT:
            raise InputError(f"{path}: link type {link}; quell reads captures of Ethernet, IP and Linux's `any`")
        try:
            empty = 0
            for at, frame in reader:
                empty = 0 if frame else empty + 1
                if empty > _MAX_EMPTY:
                    return  # zeros: space that was reserved for the file and never written
                if (packet := _parse(float(at), frame, link)) is not None:
                    yield packet
        except (ValueError, dpkt.Error, struct.error):
            return  # the end is missing, as in a capture in progress


def _parse(at: float, frame: bytes, link: int) -> Packet | None:
    ip = _IP_AT[link]
    if link == _ETHERNET:
        while frame[ip - 2 : ip] in (b"\x81\x00", b"\x88\xa8"):
            ip += 4
        if frame[ip - 2 : ip] not in (b"\x08\x00", b"\x86\xdd"):
            return None
    if len(frame) < ip + 20:
        return None
    version = frame[ip] >> 4
    if version == 4:
        header = 4 * (frame[ip] & 15)
        protocol, length = frame[ip + 9], int.from_bytes(frame[ip + 2 : ip + 4])
        source, target = frame[ip + 12 : ip + 16], frame[ip + 16 : ip + 20]
        if header < 20:
            return None
        if int.from_bytes(frame[ip + 6 : ip + 8]) & 0x1FFF:
            protocol = _FRAGMENT
    elif version == 6 and len(frame) >= ip + 40:
        header, protocol, length = 40, frame[ip + 6], 40 + int.from_bytes(frame[ip + 4 : ip + 6])
        source, target = frame[ip + 8 : ip + 24], frame[ip + 24 : ip + 40]
    else:
        return None
    packet = Packet(at, (source, 0), (target, 0), protocol, max(length, header))
    at_l4 = ip + header
    least = {TCP: 14, UDP: 8}.get(protocol)
    if least is None:
        return packet
    if len(frame) < at_l4 + least:
        return None
    packet.source = source, int.from_bytes(frame[at_l4 : at_l4 + 2])
    packet.target = target, int.from_bytes(frame[at_l4 + 2 : at_l4 + 4])
    if protocol == TCP:
        packet.seq, packet.ack = struct.unpack_from("!II", frame, at_l4 + 4)
        packet.flags = frame[at_l4 + 13]
        packet.payload = max(0, length - header - 4 * (frame[at_l4 + 12] >> 4))
    return packet
