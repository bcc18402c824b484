"""Queues written in Python beside quell's own, and what they cost.

    python examples/own_queue.py [RECORDS.json]

Compares a FIFO and a CoDel in Python with quell's own on a link of 100 Mbit/s, and prints a row per queue with the
packets simulated per second of CPU time. `quell show RECORDS.json --html page.html` shows the records.
"""

from __future__ import annotations

import math
import sys
from collections import deque

import polars as pl

import quell
from quell.experiments.queue import Aqm, Packet


class TailDrop:
    """A FIFO that drops packets that arrive while it is full."""

    def __init__(self, limit: int = 1000) -> None:
        self.packets = deque[Packet]()
        self.limit = limit

    def enqueue(self, packet: Packet, now: float) -> bool:
        """Keep the packet unless the queue is full."""
        if len(self.packets) >= self.limit:
            return False
        self.packets.append(packet)
        return True

    def dequeue(self, now: float) -> Packet | None:
        """Return the oldest packet."""
        return self.packets.popleft() if self.packets else None


class OwnCoDel(TailDrop):
    """CoDel (RFC 8289): drops or marks at an increasing rate once the delay has been above a target for an interval."""

    def __init__(self, target: float = 0.005, interval: float = 0.1) -> None:
        super().__init__()
        self.target, self.interval = target, interval
        self.above_since: float | None = None
        self.dropping = False
        self.next_drop = 0.0
        self.count = self.last_count = 0

    def dequeue(self, now: float) -> Packet | None:
        """Return the oldest packet that the law lets through."""
        packet = self._pop(now)
        if not self._late(now):
            self.dropping = False
        elif self.dropping:
            while self.dropping and now >= self.next_drop and packet is not None:
                self.count += 1
                packet = self._signal(packet, now)
                if self._late(now):
                    self.next_drop += self.interval / math.sqrt(self.count)
                else:
                    self.dropping = False
        elif packet is not None:
            self.dropping = True
            packet = self._signal(packet, now)
            delta = self.count - self.last_count
            recently = now - self.next_drop < 16 * self.interval
            self.count = delta if delta > 1 and recently else 1
            self.last_count = self.count
            self.next_drop = now + self.interval / math.sqrt(self.count)
        return packet

    def _pop(self, now: float) -> Packet | None:
        packet = super().dequeue(now)
        if packet is None or now - packet.enqueued < self.target or not self.packets:
            self.above_since = None
        elif self.above_since is None:
            self.above_since = now
        return packet

    def _late(self, now: float) -> bool:
        return self.above_since is not None and now >= self.above_since + self.interval

    def _signal(self, packet: Packet, now: float) -> Packet | None:
        """Mark the packet, or drop it and return the next one."""
        if packet.mark():
            return packet
        packet.drop()
        return self._pop(now)


def main() -> None:
    """Print one row per queue."""
    queues: list[Aqm] = ["pfifo", TailDrop(), "codel", OwnCoDel()]
    runs = quell.compare(
        aqm=queues, rate="100mbit", rtt="20ms", flows=["cubic:10"], duration="30s", seeds=3, nested=True
    )
    p95 = pl.col("sojourn_ms.p95").mean().round(1).alias("sojourn p95, ms")
    goodput = pl.col("goodput_mbps").mean().round(2).alias("goodput, Mbit/s")
    speed = (pl.col("packets_per_cpu_s").median() / 1e6).round(2).alias("million packets per CPU-second")
    print(quell.flatten(runs).group_by("queue", maintain_order=True).agg(goodput, p95, speed))
    if len(sys.argv) > 1:
        runs.write_json(sys.argv[1])


if __name__ == "__main__":
    main()
