"""Send packets through Linux's disciplines and record the fate of each; run in a guest whose time is virtual.

    feed.py SEQUENCES FATES

A line of SEQUENCES is JSON: `queue` (quell's words), `tc` (words of the discipline), `below` (tc commands to run after
those, in which DEV means the device), `rate` (of the HTB above the discipline, bit/s; 0: no HTB), `slowest` (lowest
rate of a class, bit/s), `changes` (`[number of the packet before which it happens, words]`), `packets`: a list of
`[pause before it in ns, bytes with the Ethernet header, flow, ECN field]`; a TCP segment has a fifth number, its
acknowledgement (plus 2^32 for ECE). `labels`, by the flow's number, is `[source, destination, DSCP, mark]`; with labels
the discipline classifies by those. FATES gets a line with the discipline, then the events in order of time: `+ NS BYTES
FLOW ECN NUMBER` a packet arrived (followed by ` SOURCE DESTINATION DSCP MARK` if there are labels, and by the fifth
number), `- NS NUMBER ECN` it left, `! NS WORDS` the options changed.

HTB dequeues from its leaf only when it may send and the leaf holds something, so a departure is the discipline's
dequeue. Without labels, a flow's SO_PRIORITY names a class below the discipline's handle: flow queues take it as the
bucket and disciplines with classes as the class, so neither hash nor filter is used.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HANDLE = 0x20
ETHERNET = 14
UDP, TCP = 17, 6
ETH_P_IP = 0x800
ECE = 1 << 32
"""Added to a packet's acknowledgement number: the segment has ECE set."""
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 32, 33, 35


def run(*words: str) -> None:
    """Run a command."""
    subprocess.run(words, check=True)


def enter(space: str) -> None:
    """Enter a network namespace."""
    import ctypes

    with Path(f"/run/netns/{space}").open() as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), f"namespace {space}")


def build() -> None:
    """Join two namespaces by a veth pair."""
    for space in "ab":
        run("ip", "netns", "add", space)
        # No neighbour discovery: its packets would take places in the queue but are not recorded.
        run("ip", "netns", "exec", space, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        run("ip", "netns", "exec", space, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
    run("ip", "link", "add", "v0", "netns", "a", "type", "veth", "peer", "name", "v0", "netns", "b")
    for space, host in (("a", 1), ("b", 2)):
        run("ip", "-n", space, "addr", "add", f"10.0.0.{host}/24", "dev", "v0")
        run("ip", "-n", space, "link", "set", "v0", "address", f"02:00:00:00:00:0{host}", "up")
    run("ip", "-n", "a", "neigh", "replace", "10.0.0.2", "lladdr", "02:00:00:00:00:02", "dev", "v0", "nud", "permanent")
    # The other end does not have these addresses, so nothing answers.
    run("ip", "-n", "a", "route", "add", "10.0.1.0/24", "via", "10.0.0.2")


def discipline(words: str, below: list[str], rate: int) -> None:
    """Replace the discipline, below HTB if there is a rate."""
    subprocess.run(["tc", "-n", "a", "qdisc", "del", "dev", "v0", "root"], stderr=subprocess.DEVNULL, check=False)
    tc = ("tc", "-n", "a")
    parent = ["root"]
    if rate:
        parent = ["parent", "1:1"]
        run(*tc, "qdisc", "add", "dev", "v0", "root", "handle", "1:", "htb", "default", "1")
        leaf = ("parent", "1:", "classid", "1:1", "htb", "rate", f"{rate}bit", "burst", "1600")
        run(*tc, "class", "add", "dev", "v0", *leaf)
    run(*tc, "qdisc", "add", "dev", "v0", *parent, "handle", f"{HANDLE:x}:", *words.split())
    for command in below:
        run(*tc, *command.replace("DEV", "dev v0").split())


def change(words: str, rate: int) -> None:
    """Change a discipline's options while it holds packets."""
    parent = ["parent", "1:1"] if rate else ["root"]
    run("tc", "-n", "a", "qdisc", "change", "dev", "v0", *parent, "handle", f"{HANDLE:x}:", *words.split())


def sender(flow: int, label: list[int] | None) -> socket.socket:
    """Open a raw socket for packets of one flow; the caller writes the headers."""
    made = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    made.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20)
    if label is None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, HANDLE << 16 | flow + 1)
    else:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, label[3])
    return made


def packet(number: int, given: list[int], label: list[int]) -> bytes:
    """Write an IP packet; its identification is `number` + 1."""
    _, size, flow, ecn, *ack = given
    source, destination, dscp, _ = label
    length = size - ETHERNET
    ip = struct.pack(
        ">BBHHHBBH4B4B", 0x45, dscp << 2 | ecn, length, number + 1, 0, 64, TCP if ack else UDP, 0,
        10, 0, 2, source + 1, 10, 0, 1, destination + 1,
    )  # fmt: skip
    if ack:
        flags = 0x50 if ack[0] & ECE else 0x10
        tcp = struct.pack(">HHIIBBHHH", 1000 + flow, 5000, 1, ack[0] & 0xFFFFFFFF, 5 << 4, flags, 65535, 0, 0)
        return ip + tcp + bytes(length - len(ip) - len(tcp))
    return ip + struct.pack(">HHHH", 1000 + flow, 5000, length - len(ip), 0) + bytes(length - len(ip) - 8)


def arrivals(sink: socket.socket) -> list[tuple[int, str]]:
    """Read the packets that have arrived."""
    found: list[tuple[int, str]] = []
    while True:
        try:
            data, more, _, _ = sink.recvmsg(2048, 256)
        except BlockingIOError:
            return found
        at = 0
        for level, kind, value in more:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, ns = struct.unpack("ll", value)
                at = seconds * 1_000_000_000 + ns
        ip = data[ETHERNET:]
        found.append((at, f"- {{}} {struct.unpack('>H', ip[4:6])[0] - 1} {ip[1] & 3}"))


def sequence(sink: socket.socket, given: dict[str, Any]) -> list[str]:
    """Send packets and return what happened, in monotonic time, as disciplines count it (in steps of 256 ns).

    Returns nothing if one packet arrived and another left at the same instant, since their order is unknown.
    """
    rate, packets, changes = given["rate"], given["packets"], dict(given["changes"])
    labels = {int(flow): label for flow, label in given["labels"].items()}
    senders = {flow: sender(flow, labels.get(flow)) for _, _, flow, *_ in packets}
    events: list[tuple[int, str]] = []
    waiting, due = 0, time.clock_gettime_ns(time.CLOCK_REALTIME)
    for number, (pause, size, flow, ecn, *ack) in enumerate(packets):
        sent = packet(number, packets[number], labels.get(flow, [0, 0, 0, 0]))
        due += pause
        while (now := time.clock_gettime_ns(time.CLOCK_REALTIME)) < due:
            time.sleep((due - now) / 1e9)
        if number in changes:
            change(changes[number], rate)
            now = time.clock_gettime_ns(time.CLOCK_REALTIME)
            events.append((now, f"! {{}} {changes[number]}"))
        senders[flow].sendto(sent, (socket.inet_ntoa(sent[16:20]), 0))
        more = "".join(f" {value}" for value in [*labels.get(flow, []), *ack])
        events.append((now, f"+ {{}} {size} {flow} {ecn} {number}{more}"))
        waiting += size
    time.sleep(waiting * 8 / given["slowest"] + 0.5)
    for each in senders.values():
        each.close()
    arrived = [at for at, text in events if text[0] == "+"]
    left = arrivals(sink)
    instants = set(arrived)
    if any(at in instants and arrived[int(text.split()[2])] != at for at, text in left):
        return []
    boot = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return [text.format(at - boot >> 8 << 8) for at, text in sorted(events + left, key=lambda event: event[0])]


def main() -> None:
    """Read sequences, write fates."""
    sequences, fates = sys.argv[1:]
    build()
    enter("b")
    sink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
    sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
    sink.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sink.bind(("v0", ETH_P_IP))
    sink.setblocking(False)
    enter("a")
    with Path(fates).open("w") as out:
        for line in Path(sequences).read_text().splitlines():
            given = json.loads(line)
            discipline(given["tc"], given["below"], given["rate"])
            if events := sequence(sink, given):
                out.writelines(f"{event}\n" for event in [f"queue {given['queue']}", *events])


main()
