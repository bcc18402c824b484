"""A controller in a few lines: additive increase and multiplicative decrease set a queue's limit.

    python examples/aimd.py

Compares three queues on the built-in home scenario: the controlled FIFO, a FIFO with a fixed limit, and CoDel.
"""

from __future__ import annotations

import polars as pl

import quell
from quell.experiments.control import Gauges, Knobs


class Aimd:
    """Raises the limit by one packet while the queue is short, and halves it otherwise."""

    period = 0.02

    def __init__(self, target_s: float = 0.015) -> None:
        self.target_s = target_s

    def decide(self, gauges: Gauges) -> Knobs:
        """Set the limit for the next period."""
        limit = gauges["limit_packets"]
        return {"limit": max(4, limit // 2 if gauges["sojourn"] > self.target_s else limit + 1)}


def main() -> None:
    """Print one row per queue."""
    steered = quell.run("home", aqm="fifo limit 100", controller=Aimd())
    runs = pl.concat(
        [
            steered.with_columns(queue=pl.lit("fifo with AIMD")),
            quell.run("home", aqm="fifo limit 100"),
            quell.run("home", aqm="codel"),
        ]
    )
    p95 = pl.col("sojourn_ms.p95").alias("sojourn p95, ms")
    print(runs.select("queue", "goodput_mbps", p95, "loss_rate"))


if __name__ == "__main__":
    main()
