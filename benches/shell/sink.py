"""Receives from TCP senders: counts bytes from the first connection on, and writes the goodput between two times.

Usage: sink.py FROM UNTIL FILE (seconds).
"""

import json
import selectors
import socket
import sys
import time
from pathlib import Path

start, end, file = float(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
selector = selectors.DefaultSelector()
listener = socket.create_server(("", 5001), backlog=100)
selector.register(listener, selectors.EVENT_READ)
total = 0
began: float | None = None
marks: list[tuple[float, int]] = []
while True:
    for key, _ in selector.select(0.01):
        if key.fileobj is listener:
            connection, _ = listener.accept()
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ)
            began = began or time.monotonic()
            continue
        assert isinstance(key.fileobj, socket.socket)
        try:
            data = key.fileobj.recv(1 << 18)
        except ConnectionError:
            data = b""
        total += len(data)
        if not data:
            selector.unregister(key.fileobj)
            key.fileobj.close()
    now = 0.0 if began is None else time.monotonic() - began
    if now >= (start, end)[min(len(marks), 1)] and len(marks) < 2:
        marks.append((now, total))
        if len(marks) == 2:
            (t0, b0), (t1, b1) = marks
            file.write_text(json.dumps({"goodput_mbps": (b1 - b0) * 8e-6 / (t1 - t0), "until_s": t1}))
