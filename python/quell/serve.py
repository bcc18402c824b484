"""What `quell live` answers when asked: its state as JSON on a Unix socket, Prometheus metrics on a loopback port."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from quell._core import InputError
from quell.gates import MARK

_PATIENCE_S = 2.0
_METRICS = {
    "read": ("counter", "packets_total", "Packets that came."),
    "sent": ("counter", "sent_packets_total", "Packets that went on."),
    "dropped": ("counter", "dropped_packets_total", "Packets that the discipline dropped."),
    "marked": ("counter", "marked_packets_total", "Packets that went on with a mark of ours."),
    "passed": ("counter", "passed_packets_total", "Packets that passed by the discipline at its end."),
    "missed": ("counter", "late_packets_total", "Packets that went on more than 1 ms late."),
    "held": ("gauge", "held_packets", "Packets held now."),
    "backlog_packets": ("gauge", "backlog_packets", "Packets in the discipline."),
    "backlog_bytes": ("gauge", "backlog_bytes", "Bytes in the discipline."),
    "capacity_mbps": ("gauge", "rate_mbps", "What the link offers, Mbit/s."),
    "throughput_mbps": ("gauge", "throughput_mbps", "What left in the last 100 ms, Mbit/s."),
    "sojourn_ms": ("gauge", "sojourn_ms", "Mean time in the queue of what left in the last 100 ms."),
    "limit_packets": ("gauge", "limit_packets", "The limit in force."),
    "probability": ("gauge", "probability", "The drop or mark probability in force."),
}


class Server:
    """Both sockets, bound at once and answering after `start`, until its context ends."""

    def __init__(self, path: str | None, port: int | None, state: Callable[[], Mapping[str, Any]]) -> None:
        self._state = state
        self._path = None if path is None else Path(path)
        self._sockets: list[tuple[socket.socket, Callable[[], bytes]]] = []
        if port is not None:
            if not 1 <= port <= 65_535:
                raise InputError(f"--metrics {port}: is no port; give 1 to 65535")
            self._listen(socket.AF_INET, ("127.0.0.1", port), f"--metrics {port}", self._http)
        if self._path is not None:
            _remove_dead(self._path)
            self._listen(socket.AF_UNIX, str(self._path), f"--status {self._path}", self._json)
            self._path.chmod(0o600)

    def _listen(self, family: int, address: Any, option: str, answer: Callable[[], bytes]) -> None:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with suppress(OSError):  # A dry run may not, and needs not.
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
            made.bind(address)
            made.listen(8)
        except OSError as error:
            made.close()
            raise InputError(f"{option}: {error.strerror or error}") from None
        self._sockets.append((made, answer))

    def __enter__(self) -> Server:
        return self

    def start(self) -> None:
        """Begin to answer."""
        for made, answer in self._sockets:
            threading.Thread(target=self._serve, args=(made, answer), daemon=True).start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for made, _ in self._sockets:
            with suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)
            made.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _serve(self, listening: socket.socket, answer: Callable[[], bytes]) -> None:
        while True:
            try:
                asked, _ = listening.accept()
            except OSError:
                return
            with suppress(OSError), asked:
                asked.settimeout(_PATIENCE_S)
                if listening.family == socket.AF_INET:
                    asked.recv(4096)
                asked.sendall(answer())

    def _json(self) -> bytes:
        return (json.dumps(self._state(), indent=1) + "\n").encode()

    def _http(self) -> bytes:
        body = metrics(self._state()).encode()
        head = f"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


def metrics(state: Mapping[str, Any]) -> str:
    """Write the state in Prometheus' text format."""
    lines = []
    for key, (kind, name, about) in _METRICS.items():
        lines += [f"# HELP quell_{name} {about}", f"# TYPE quell_{name} {kind}"]
        for direction, look in state["directions"].items():
            if look[key] is not None:
                lines.append(f'quell_{name}{{dev="{state["dev"]}",direction="{direction}"}} {look[key]}')
    return "\n".join(lines) + "\n"


def _remove_dead(path: Path) -> None:
    """Remove a socket that nobody listens on any more, as `kill -9` leaves it."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
