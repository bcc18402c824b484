"""The queues of an interface: reading from the kernel and restoring (rtnetlink(7), linux/pkt_sched.h)."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quell._core import InputError

_TCM = struct.Struct("BxxxiIII")
_HEADER = struct.Struct("IHHII")
_QDISC, _CLASS, _FILTER = 36, 40, 44
"""RTM_NEW...; RTM_GET... is larger by 2."""
_DUMP, _CREATE = 0x301, 0x605
"""NLM_F_REQUEST with NLM_F_DUMP, and with NLM_F_ACK, NLM_F_CREATE and NLM_F_EXCL."""
_LINK = struct.Struct("BxHiII")
"""struct ifinfomsg."""
_GET_LINK, _LINK_INFO = 18, 18
"""RTM_GETLINK; IFLA_LINKINFO, whose IFLA_INFO_KIND has the number of TCA_KIND."""
_KIND, _OPTIONS, _STAB, _CHAIN, _BLOCK = 1, 2, 8, 11, 13
"""TCA_KIND...; the last is TCA_INGRESS_BLOCK."""
_KEPT = (_OPTIONS, _STAB, _CHAIN, _BLOCK)
_ERROR, _DONE = 2, 3
_DELETED = (17, 37, 41, 45)
"""RTM_DELLINK, RTM_DELQDISC, RTM_DELTCLASS, RTM_DELTFILTER."""
_REMOVALS = 1 << 0 | 1 << 3
"""RTMGRP_LINK, RTMGRP_TC: the groups whose notifications name what is deleted."""
_TRIES, _PAUSE = 20, 0.005
"""Number of retries for an incomplete list, and the seconds in between."""
_ROOT, _INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
_WITH_CLASSES = ("htb", "hfsc", "drr", "qfq")
"""Disciplines whose classes a user creates; others create their own."""

_HTB_INIT = 2
_ARRIVALS = 0xFFFF0000
"""The handle of ingress and clsact, ffff:."""
_EVERYTHING = socket.htons(3)
"""ETH_P_ALL."""
_ACT, _SELECTOR = {"u32": 7, "matchall": 2}, 5
"""TCA_U32_ACT, TCA_MATCHALL_ACT; TCA_U32_SEL (linux/pkt_cls.h)."""
_WITHOUT_CHOICE = {"u32": {1, 2, 5, 7, 9, 11, 12}, "matchall": {1, 2, 3, 4, 5}}
"""Attributes that do not select packets: class, table, selector, actions, counts, flags, padding."""
_MIRRED, _REDIRECT = struct.Struct("20xiI"), 1
"""The end of tc_mirred, action and interface; TCA_EGRESS_REDIR (linux/tc_act/tc_mirred.h)."""
_MAX_OPTIONS = 1 << 16
"""Largest attribute, bytes."""
_CODEL_TIMES = {"codel": (1, 3, 5), "fq_codel": (1, 3, 7)}
"""TARGET, INTERVAL and CE_THRESHOLD."""


@dataclass(frozen=True)
class Node:
    """A queue or a class; in lists of filters, a filter."""

    of: int
    """`_QDISC`, `_CLASS` or `_FILTER`."""
    kind: str
    handle: int
    parent: int
    options: str
    """Its netlink attributes, in hexadecimal digits."""

    @classmethod
    def read(cls, plain: Any) -> Node:
        """Read it from a state file. Raises ValueError for content that the kernel does not report."""
        node = cls(**fields(plain, "of", "kind", "handle", "parent", "options"))
        for value in (node.handle, node.parent):
            number(value)
        if node.of not in (_QDISC, _CLASS) or not isinstance(node.kind, str) or not isinstance(node.options, str):
            raise ValueError("of")
        if not re.fullmatch(r"[a-z0-9_]{1,15}", node.kind) or len(node.options) > 2 * _MAX_OPTIONS:
            raise ValueError("kind")
        if not {key for key, _ in _attributes(bytes.fromhex(node.options))} <= {_OPTIONS, _STAB}:
            raise ValueError("options")
        _recreation_attributes(node)
        return node

    @property
    def known(self) -> tuple[int, str, int, int, str]:
        """Return its identity and options without counters."""
        # The last field of htb's tc_htb_glob counts packets.
        text = self.options
        if self.kind == "htb" and self.of == _QDISC:
            text = text[: 2 * (4 + 4 + 16)] + "00000000" + text[2 * (4 + 4 + 20) :]
        return (self.of, self.kind, self.handle, self.parent, text)

    @property
    def place(self) -> str:
        """Where it or the queue above it is: `ingress` or `root`."""
        return "ingress" if self.parent == _INGRESS else "root"

    @property
    def is_whole(self) -> bool:
        """Whether the kernel reports it completely: netem may have a distribution of jitter that is not reported."""
        # The jitter is the last of the six fields of tc_netem_qopt, 4 bytes each.
        said = dict(_attributes(bytes.fromhex(self.options))).get(_OPTIONS, b"")
        return self.kind != "netem" or not any(said[20:24])

    @property
    def name(self) -> str:
        """Its name in the notation of tc."""
        return f"{self.kind} {self.handle >> 16:x}:{self.handle & 0xFFFF:x}" if self.of == _CLASS else self.kind


def link_kind(dev: str) -> str:
    """Return the kind of an interface as in `ip link add ... type`; empty for hardware."""
    index = _index(dev)
    body = _LINK.pack(0, 0, index, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as at:
        at.send(_HEADER.pack(_HEADER.size + len(body), _GET_LINK, 1, 1, 0) + body)
        data = at.recv(1 << 20)
    length, kind, _, _, _ = _HEADER.unpack_from(data)
    if kind == _ERROR:
        raise InputError(f"{dev}: the kernel does not say what it is: "
                         f"{os.strerror(-struct.unpack_from('i', data, _HEADER.size)[0])}")  # fmt: skip
    info = dict(_attributes(data[_HEADER.size + _LINK.size : length])).get(_LINK_INFO, b"")
    return dict(_attributes(info)).get(_KIND, b"").rstrip(b"\0").decode()


def tree(dev: str) -> list[Node]:
    """List an interface's queues and classes except the kernel's own, each after its parent; ingress is last."""
    index = _index(dev)
    qdiscs = [node for node in _dump(index, _QDISC) if node.handle]
    arrivals = [node for node in qdiscs if node.place == "ingress"]
    kinds = {node.handle >> 16: node.kind for node in qdiscs}
    # A class without a minor number is the root class of hfsc, which the kernel creates with the queue.
    classes = [node for node in _dump(index, _CLASS) if node.handle & 0xFFFF]
    wanted = [node for node in classes if kinds.get(node.handle >> 16) in _WITH_CLASSES]
    rest: list[Node] = [node for node in (*qdiscs, *wanted) if node not in arrivals]
    placed: list[Node] = []
    there, whole = {_ROOT}, {0}
    while rest:
        # Nodes without a known parent come last; the trial of the restoration shows whether the kernel refuses them.
        ready = [node for node in rest if node.parent in there or node.parent >> 16 in whole] or rest
        placed += ready
        there |= {node.handle for node in ready}
        # The classes of tbf, prio and others are created with the queue.
        whole |= {node.handle >> 16 for node in ready if node.of == _QDISC and node.kind not in _WITH_CLASSES}
        rest = [node for node in rest if node not in ready]
    return [*placed, *arrivals]


def has_filters(dev: str) -> bool:
    """Return whether a queue or class of the egress tree has filters."""
    index = _index(dev)
    parents = [0, *(node.handle for node in tree(dev) if node.place == "root")]
    return any(True for parent in parents for _ in _dump(index, _FILTER, parent))


def redirected(dev: str) -> int:
    """Return the interface to which all arriving packets are redirected; 0 without filters.

    Raises ValueError for other filters.
    """
    index, found = _index(dev), set()
    tables: list[int] = []
    arrivals = [node for node in _dump(index, _QDISC) if node.place == "ingress"]
    if not arrivals:
        return 0
    if any(_BLOCK in dict(_attributes(bytes.fromhex(node.options))) for node in arrivals):
        raise ValueError("filters of a block, which are listed with that alone")
    for node, info in _rows(index, _FILTER, _ARRIVALS):
        # A filter is listed with its hash tables, which have no selector.
        options = dict(_attributes(dict(_attributes(bytes.fromhex(node.options))).get(_OPTIONS, b"")))
        if node.kind == "u32" and _SELECTOR not in options and _ACT["u32"] not in options:
            tables += [info] if options else []
            continue
        if node.kind == "matchall" and not options:
            continue
        if info & 0xFFFF != _EVERYTHING:
            raise ValueError("a filter for one protocol")
        found.add(_redirect(node, options))
    if len(found) > 1:
        raise ValueError("several filters")
    if found and len(set(tables)) < len(tables):
        # Packets go to the first table of a priority; a filter in another table may get none.
        raise ValueError("several tables of filters")
    return found.pop() if found else 0


def _redirect(node: Node, options: dict[int, bytes]) -> int:
    """Return the interface to which a filter redirects every packet. Raises ValueError if it does anything else."""
    selector = options.get(_SELECTOR, b"")
    # tc_u32_sel: two bytes, the number of keys, 13 bytes, then the keys, each of which begins with the mask.
    keys = [selector[at : at + 4] for at in range(16, len(selector), 16)]
    if node.kind not in _ACT or any(map(any, keys)) or not options.keys() <= _WITHOUT_CHOICE[node.kind]:
        raise ValueError("a filter that chooses")
    if any(dict(_attributes(bytes.fromhex(node.options))).get(_CHAIN, b"")):
        raise ValueError("a chain to which packets come only from another filter")
    actions = list(_attributes(options.get(_ACT[node.kind], b"")))
    if len(actions) != 1:
        raise ValueError("not one action")
    action = dict(_attributes(actions[0][1]))
    if action.get(_KIND) != b"mirred\0":
        raise ValueError("another action")
    what, to = _MIRRED.unpack_from(dict(_attributes(action[_OPTIONS]))[2])
    if what != _REDIRECT:
        raise ValueError("no redirection")
    if not to:
        raise ValueError("a redirection to a block, or to an interface that no longer exists")
    return int(to)


def leads_to(dev: str, ifb: str) -> bool:
    """Return whether a filter at an interface's `ingress` or `clsact` sends any packets to another interface."""
    # struct tc_mirred ends with the action and the interface (linux/tc_act/tc_mirred.h).
    sent = [struct.pack("iI", what, _index(ifb)) for what in range(1, 5)]
    index = _index(dev)
    # Parents: `ingress`, and both directions of `clsact` (TC_H_MIN_INGRESS, TC_H_MIN_EGRESS).
    for parent in (_ARRIVALS, 0xFFFFFFF2, 0xFFFFFFF3):
        for node in _dump(index, _FILTER, parent):
            options = bytes.fromhex(node.options)
            if b"mirred\0" in options and any(action in options for action in sent):
                return True
    return False


def put_back(dev: str, nodes: list[Node]) -> None:
    """Create queues and classes. Raises InputError if the kernel refuses one."""
    index = _index(dev)
    for node in nodes:
        body = _TCM.pack(0, index, node.handle, node.parent, 0)
        body += _attribute(_KIND, node.kind.encode() + b"\0") + _recreation_attributes(node)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as at:
            at.send(_HEADER.pack(_HEADER.size + len(body), node.of, _CREATE, 1, 0) + body)
            error = struct.unpack_from("i", at.recv(1 << 16), _HEADER.size)[0]
        if error:
            raise InputError(f"{dev}: the kernel does not take {node.name} back: {os.strerror(-error)}")


def _recreation_attributes(node: Node) -> bytes:
    """Return the attributes from which the kernel creates an equal node.

    CoDel's times have units of 1.024 us and are rounded down in both directions (include/net/codel.h), so one
    microsecond is added to the reported value. htb reports its full version, but accepts the upper half (sch_htb.c).
    """
    times = _CODEL_TIMES.get(node.kind, ())

    def accepted(key: int, value: bytes) -> bytes:
        if key in times:
            return struct.pack("I", struct.unpack("I", value)[0] + 1)
        if node.of == _QDISC and node.kind == "htb" and key == _HTB_INIT:
            return struct.pack("I", struct.unpack_from("I", value)[0] >> 16) + value[4:]
        return value

    parts = []
    for key, value in _attributes(bytes.fromhex(node.options)):
        # The options of some disciplines are a structure, not attributes.
        nested = key == _OPTIONS and node.kind in ("htb", *_CODEL_TIMES)
        inner = b"".join(_attribute(k, accepted(k, v)) for k, v in _attributes(value)) if nested else value
        parts.append(_attribute(key, inner))
    return b"".join(parts)


def fields(plain: Any, *names: str) -> dict[str, Any]:
    """Check that a value of a state file is an object with exactly these fields. Raises ValueError."""
    if not isinstance(plain, dict) or plain.keys() != set(names):
        raise ValueError(f"not an object of {', '.join(names)}")
    return plain


def number(plain: Any) -> int:
    """Check that a value of a state file is a number of 32 bits. Raises ValueError."""
    if type(plain) is not int or not 0 <= plain <= 0xFFFFFFFF:
        raise ValueError("not a number of 32 bits")
    return plain


def _index(dev: str) -> int:
    try:
        return socket.if_nametoindex(dev)
    except OSError:
        raise InputError(f"{dev}: there is no such interface (`ip link` lists them)") from None


def _dump(index: int, what: int, parent: int = 0) -> Iterator[Node]:
    return (node for node, _ in _rows(index, what, parent))


def _rows(index: int, what: int, parent: int = 0) -> list[tuple[Node, int]]:
    """List the nodes of a kind with their tcm_info, which is a filter's priority and protocol.

    The kernel continues a list after the number of entries already sent. If one of these is deleted in between, it
    omits another entry without reporting it; the list is then read again. Raises InputError if retries do not help.
    """
    for _ in range(_TRIES):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as removals:
            removals.bind((0, _REMOVALS))
            rows = list(_listed(index, what, parent))
            if not _deleted(removals):
                return rows
        time.sleep(_PAUSE)
    raise InputError("interfaces or queues were deleted each time that they were listed; try again later")


def _deleted(removals: socket.socket) -> bool:
    """Return whether anything was deleted since this socket was bound."""
    try:
        while data := removals.recv(1 << 16, socket.MSG_DONTWAIT):
            if _HEADER.unpack_from(data)[1] in _DELETED:
                return True
    except BlockingIOError:
        return False
    except OSError as error:
        # There were more messages than the socket's buffer can hold.
        if error.errno != errno.ENOBUFS:
            raise
    return True


def _listed(index: int, what: int, parent: int) -> Iterator[tuple[Node, int]]:
    body = _TCM.pack(0, index, 0, parent, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as at:
        at.send(_HEADER.pack(_HEADER.size + len(body), what + 2, _DUMP, 1, 0) + body)
        while True:
            data = at.recv(1 << 20)
            while data:
                length, kind, _, _, _ = _HEADER.unpack_from(data)
                if kind in (_DONE, _ERROR):
                    if error := struct.unpack_from("i", data, _HEADER.size)[0]:
                        raise InputError(f"the kernel does not list what is on the interface: {os.strerror(-error)}")
                    return
                _, dev, handle, above, info = _TCM.unpack_from(data, _HEADER.size)
                if kind == what and dev == index:
                    found = dict(_attributes(data[_HEADER.size + _TCM.size : length]))
                    name = found.get(_KIND, b"").rstrip(b"\0").decode()
                    kept = b"".join(_attribute(key, found[key]) for key in _KEPT if key in found)
                    yield Node(what, name, handle, above, kept.hex()), info
                data = data[length + 3 & ~3 :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        if not 4 <= length <= len(data):
            raise ValueError("an attribute's length")
        yield kind & 0x3FFF, data[4:length]
        data = data[length + 3 & ~3 :]


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
