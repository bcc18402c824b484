"""Keeps TCP connections to the other side of the link busy.

Usage: send.py CONGESTION_CONTROL CONNECTIONS SECONDS.
"""

import contextlib
import os
import selectors
import socket
import sys
import time

control, connections, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
selector = selectors.DefaultSelector()
for _ in range(connections):
    sender = socket.socket()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    sender.setblocking(False)
    sender.connect_ex((os.environ["QUELL_SERVER"], 5001))
    selector.register(sender, selectors.EVENT_WRITE)
data = bytes(1 << 18)
until = time.monotonic() + seconds + 0.2
while time.monotonic() < until:
    for key, _ in selector.select(0.05):
        with contextlib.suppress(BlockingIOError):
            key.fileobj.send(data)
