"""Keeps TCP connections to the other side of the link busy.

Usage: send.py CONGESTION_CONTROL CONNECTIONS SECONDS [SPREAD].

SPREAD: the connections start one after the other within this time, s (default 0).
"""

import contextlib
import os
import selectors
import socket
import sys
import time

control, connections, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
spread = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
selector = selectors.DefaultSelector()
data = bytes(1 << 18)


def connect() -> None:
    """Open one more connection."""
    sender = socket.socket()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    sender.setblocking(False)
    sender.connect_ex((os.environ["QUELL_SERVER"], 5001))
    selector.register(sender, selectors.EVENT_WRITE)


begin = time.monotonic()
until = begin + seconds + 0.2
opened = 0
while (now := time.monotonic()) < until:
    while opened < connections and now >= begin + spread * opened / connections:
        connect()
        opened += 1
    due = begin + spread * opened / connections - now if opened < connections else 0.05
    for key, _ in selector.select(min(max(due, 0.0), 0.05)):
        with contextlib.suppress(BlockingIOError):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.send(data)
