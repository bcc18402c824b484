"""The queues of an interface, read from the kernel and put back as they were (rtnetlink(7), linux/pkt_sched.h)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from quell._core import InputError

_TCM = struct.Struct("BxxxiIII")
_HEADER = struct.Struct("IHHII")
_QDISC, _CLASS, _FILTER = 36, 40, 44
"""RTM_NEW...; reading is 2 above."""
_DUMP, _CREATE = 0x301, 0x605
_KIND, _OPTIONS, _STAB = 1, 2, 8
_ERROR, _DONE = 2, 3
_ROOT, _INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
_WITH_CLASSES = ("htb", "hfsc", "drr", "qfq")
"""Whose classes somebody made; other disciplines make theirs themselves."""

_HTB_INIT = 2
_CODEL_TIMES = {"codel": (1, 3, 5), "fq_codel": (1, 3, 7)}
"""TARGET, INTERVAL and CE_THRESHOLD."""


@dataclass(frozen=True)
class Node:
    """A queue or a class."""

    of: int
    kind: str
    handle: int
    parent: int
    options: str
    """Its attributes for the kernel, in hexadecimal digits."""

    @property
    def known(self) -> tuple[int, str, int, int, str]:
        """Return what it is, without what it has counted."""
        # The last field of htb's tc_htb_glob counts packets.
        text = self.options
        if self.kind == "htb" and self.of == _QDISC:
            text = text[: 2 * (4 + 4 + 16)] + "00000000" + text[2 * (4 + 4 + 20) :]
        return (self.of, self.kind, self.handle, self.parent, text)

    @property
    def name(self) -> str:
        """Write it as tc does."""
        return f"{self.kind} {self.handle >> 16:x}:{self.handle & 0xFFFF or '':x}" if self.of == _CLASS else self.kind


def tree(dev: str) -> list[Node]:
    """List the queues and classes that somebody made on an interface, each behind its parent."""
    index = _index(dev)
    qdiscs = [node for node in _dump(index, _QDISC) if node.handle and node.parent != _INGRESS]
    kinds = {node.handle >> 16: node.kind for node in qdiscs}
    wanted = [node for node in _dump(index, _CLASS) if kinds.get(node.handle >> 16) in _WITH_CLASSES]
    rest, placed = [*qdiscs, *wanted], []
    there = {_ROOT}
    while rest:
        ready = [node for node in rest if node.parent in there or (node.of == _CLASS and node.parent >> 16 == 0)]
        if not ready:
            break
        placed += ready
        there |= {node.handle for node in ready}
        rest = [node for node in rest if node not in ready]
    return placed


def has_ingress(dev: str) -> bool:
    """Say whether there is an ingress or clsact qdisc."""
    return any(node.parent == _INGRESS for node in _dump(_index(dev), _QDISC))


def has_filters(dev: str) -> bool:
    """Say whether a queue of the tree has filters."""
    index = _index(dev)
    parents = [0, *(node.handle for node in tree(dev) if node.of == _QDISC)]
    return any(True for parent in parents for _ in _dump(index, _FILTER, parent))


def put_back(dev: str, nodes: list[Node]) -> None:
    """Make queues and classes. Raises InputError where the kernel refuses one."""
    index = _index(dev)
    for node in nodes:
        body = _TCM.pack(0, index, node.handle, node.parent, 0)
        body += _attribute(_KIND, node.kind.encode() + b"\0") + _said_again(node)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as at:
            at.send(_HEADER.pack(_HEADER.size + len(body), node.of, _CREATE, 1, 0) + body)
            error = struct.unpack_from("i", at.recv(1 << 16), _HEADER.size)[0]
        if error:
            raise InputError(f"{dev}: the kernel does not take {node.name} back: {os.strerror(-error)}")


def _said_again(node: Node) -> bytes:
    """Return the attributes from which the kernel makes the same again.

    CoDel's times have units of 1.024 us, and both ways are rounded down (include/net/codel.h): one more microsecond
    than what was read gives what was there. htb says its whole version, and takes the upper half (sch_htb.c).
    """
    times = _CODEL_TIMES.get(node.kind, ())

    def again(key: int, value: bytes) -> bytes:
        if key in times:
            return struct.pack("I", struct.unpack("I", value)[0] + 1)
        if node.of == _QDISC and node.kind == "htb" and key == _HTB_INIT:
            return struct.pack("I", struct.unpack_from("I", value)[0] >> 16) + value[4:]
        return value

    parts = []
    for key, value in _attributes(bytes.fromhex(node.options)):
        # Of some disciplines the options are a structure, not attributes.
        nested = key == _OPTIONS and node.kind in ("htb", *_CODEL_TIMES)
        inner = b"".join(_attribute(k, again(k, v)) for k, v in _attributes(value)) if nested else value
        parts.append(_attribute(key, inner))
    return b"".join(parts)


def _index(dev: str) -> int:
    try:
        return socket.if_nametoindex(dev)
    except OSError:
        raise InputError(f"{dev}: there is no such interface (`ip link` lists them)") from None


def _dump(index: int, what: int, parent: int = 0) -> Iterator[Node]:
    body = _TCM.pack(0, index, 0, parent, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as at:
        at.send(_HEADER.pack(_HEADER.size + len(body), what + 2, _DUMP, 1, 0) + body)
        while True:
            data = at.recv(1 << 20)
            while data:
                length, kind, _, _, _ = _HEADER.unpack_from(data)
                if kind in (_DONE, _ERROR):
                    return
                _, dev, handle, above, _ = _TCM.unpack_from(data, _HEADER.size)
                if kind == what and dev == index:
                    found = dict(_attributes(data[_HEADER.size + _TCM.size : length]))
                    name = found.get(_KIND, b"").rstrip(b"\0").decode()
                    kept = b"".join(_attribute(key, found[key]) for key in (_OPTIONS, _STAB) if key in found)
                    yield Node(what, name, handle, above, kept.hex())
                data = data[length + 3 & ~3 :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[length + 3 & ~3 :]


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
