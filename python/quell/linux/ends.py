"""The two ends of `quell compare --real`: real TCP connections and datagrams over the link, with measurements.

    ends.py near|far SPEC

SPEC is JSON from `quell.linux.real`. The near end runs behind the link and opens every connection; the flow defines
which end sends. Both write their measurements into the folder that SPEC names; the far end first writes a file
`listening`.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

SAMPLE_S = 0.01
"""Interval between two samples of TCP_INFO, s, as of the simulator's probes."""
PORT = 5001
CHUNK = bytes(1 << 18)
INFO = struct.Struct("=8B24I")
"""The beginning of `struct tcp_info` (linux/tcp.h)."""
RTT, CWND, RESENT = 15 + 8, 18 + 8, 23 + 8
"""Indices in it of tcpi_rtt (us), tcpi_snd_cwnd (packets) and tcpi_total_retrans."""


class End:
    """One end of one flow."""

    def __init__(self, flow: dict[str, Any], at: socket.socket) -> None:
        self.flow, self.at = flow, at
        self.bytes, self.before = 0, 0
        """Bytes received, in total and before the end of the warm-up."""
        self.rtts: list[int] = []
        self.windows: list[int] = []
        self.resent, self.resent_before = 0, 0
        self.due = float(flow["start_s"])
        """Time at which the next datagram is due, s since the beginning."""
        self.peer_known = False
        """Whether the peer's address is known. The far end learns it from the first datagram."""

    def sends(self, side: str) -> bool:
        """Return whether this side sends the data."""
        return bool((self.flow["direction"] == "up") == (side == "near"))

    def sample(self, warm: bool) -> None:
        """Record what TCP_INFO reports."""
        if self.flow["kind"] != "tcp":
            return
        info = INFO.unpack(self.at.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size))
        self.resent = info[RESENT]
        if warm and info[RTT]:
            self.rtts.append(info[RTT])
            self.windows.append(info[CWND])


def main() -> None:
    """Run one end."""
    side, spec = sys.argv[1], json.loads(sys.argv[2])
    folder = Path(spec["folder"])
    for name, value in spec["sysctl"].items():
        Path(f"/proc/sys/net/ipv4/{name}").write_text(value)
    if side == "far":
        listeners = [listen(flow) for flow in spec["flows"]]
        write_new(folder / "listening", "")
        # The near end defines the start of time; both ends use the same clock.
        while not (folder / "start").exists():
            time.sleep(0.005)
        begin = float((folder / "start").read_text())
    else:
        while not (folder / "listening").exists():
            time.sleep(0.005)
        listeners = []
        begin = time.monotonic() + 0.1
        write_new(folder / "start", repr(begin))
    ends = run(side, spec, listeners, begin)
    seen = [
        {
            "flow": end.flow["number"], "bytes": end.bytes - end.before, "sends": end.sends(side), "rtts_us": end.rtts,
            "windows": end.windows, "resent": end.resent - end.resent_before,
        }
        for end in ends
    ]  # fmt: skip
    write_new(folder / f"{side}.json", json.dumps(seen))
    # When the near end exits, the link is removed, and the far end with it.
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not (folder / "far.json").exists():
        time.sleep(0.01)
    if side == "far":
        time.sleep(60)


def write_new(path: Path, text: str) -> None:
    """Create a file atomically. Fails if a file or link exists, because this runs as root."""
    part = path.with_suffix(".part")
    with part.open("x") as file:
        file.write(text)
    part.rename(path)


def listen(flow: dict[str, Any]) -> socket.socket:
    """Return the far end's socket of a flow."""
    port = PORT + flow["number"]
    if flow["kind"] == "tcp":
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        control(listener, flow)
    else:
        listener = socket.socket(type=socket.SOCK_DGRAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    listener.bind(("", port))
    if flow["kind"] == "tcp":
        listener.listen()
    listener.setblocking(False)
    return listener


def control(at: socket.socket, flow: dict[str, Any]) -> None:
    """Set the congestion control before the handshake: DCTCP negotiates ECN there."""
    at.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, flow["cc"].encode())
    at.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def connect(flow: dict[str, Any]) -> socket.socket:
    """Return the near end's socket of a flow, which is connecting."""
    where = (os.environ["QUELL_SERVER"], PORT + flow["number"])
    if flow["kind"] == "tcp":
        at = socket.socket()
        control(at, flow)
    else:
        at = socket.socket(type=socket.SOCK_DGRAM)
        at.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    at.setblocking(False)
    at.connect_ex(where)
    if flow["kind"] != "tcp":
        at.send(b"from here")
    return at


def run(side: str, spec: dict[str, Any], listeners: list[socket.socket], begin: float) -> list[End]:
    """Send and receive until the time is up."""
    selector = selectors.DefaultSelector()
    ends: list[End] = []
    waiting = []
    if side == "far":
        for flow, listener in zip(spec["flows"], listeners, strict=True):
            if flow["kind"] == "tcp":
                selector.register(listener, selectors.EVENT_READ, flow)
            else:
                add(selector, ends, End(flow, listener), side)
    else:
        waiting = sorted(spec["flows"], key=lambda flow: float(flow["start_s"]), reverse=True)
    warm, sampled, paced = False, 0.0, [end for end in ends if end.sends(side)]
    while (now := time.monotonic() - begin) < spec["duration_s"]:
        while waiting and now >= waiting[-1]["start_s"]:
            flow = waiting.pop()
            end = End(flow, connect(flow))
            end.peer_known = True
            add(selector, ends, end, side)
            if flow["kind"] != "tcp" and end.sends(side):
                paced.append(end)
        if not warm and now >= spec["warmup_s"]:
            warm = True
            for end in ends:
                end.sample(False)
                end.before, end.resent_before = end.bytes, end.resent
        if now - sampled >= SAMPLE_S:
            sampled = now
            for end in ends:
                if end.sends(side) and end.at.fileno() >= 0:
                    end.sample(warm)
                    if now >= end.flow["stop_s"]:
                        forget(selector, end)
        wait = min([SAMPLE_S, *(max(0.0, end.due - now) for end in paced)])
        for key, _ in selector.select(wait):
            if isinstance(key.data, End):
                move(selector, key.data, side)
            else:
                accepted, _ = key.fileobj.accept()  # type: ignore[union-attr]
                accepted.setblocking(False)
                add(selector, ends, End(key.data, accepted), side)
        for end in paced:
            pace(end, time.monotonic() - begin)
    return ends


def add(selector: selectors.BaseSelector, ends: list[End], end: End, side: str) -> None:
    """Register a flow's end."""
    ends.append(end)
    writes = end.flow["kind"] == "tcp" and end.sends(side)
    selector.register(end.at, selectors.EVENT_WRITE if writes else selectors.EVENT_READ, end)


def forget(selector: selectors.BaseSelector, end: End) -> None:
    """End a flow."""
    selector.unregister(end.at)
    end.at.close()


def move(selector: selectors.BaseSelector, end: End, side: str) -> None:
    """Send or receive as much as possible now."""
    try:
        if end.sends(side) and end.flow["kind"] == "tcp":
            end.at.send(CHUNK)
            return
        data, peer = end.at.recvfrom(1 << 18)
        if end.sends(side):
            if not end.peer_known:
                end.at.connect(peer)
                end.peer_known = True
            return
    except (BlockingIOError, InterruptedError):
        return
    except OSError:
        data = b""
    end.bytes += len(data)
    if not data and end.flow["kind"] == "tcp":
        forget(selector, end)


def pace(end: End, now: float) -> None:
    """Send the datagrams that are due."""
    size = end.flow["size"] - 28
    while end.due <= now and end.peer_known and end.at.fileno() >= 0:
        end.due += end.flow["size"] * 8 / end.flow["rate_bps"]
        try:
            end.at.send(bytes(size))
        except OSError:
            return


if __name__ == "__main__":
    main()
