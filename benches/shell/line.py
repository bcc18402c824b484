"""A line with bulk TCP flows, for real Linux in virtual time and for simulation alike."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from quell._core import Scenario
from quell.experiments import experiment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BIN = ROOT / ".venv" / "bin"
MEASURES = {"goodput_mbps": "goodput, Mbit/s", "mean_ms": "mean backlog, ms", "p95_ms": "p95 backlog, ms"}
SEEDS = 20
"""Seeds of the simulation."""


@dataclass(frozen=True)
class Line:
    """Flows of one congestion control that share a bottleneck shaped by HTB."""

    rate: int = 10_000_000
    """Bits per second."""
    rtt_ms: float = 20.0
    cc: str = "cubic"
    """Congestion control, by its name in Linux."""
    flows: int = 4
    ecn: bool = False
    spread_s: float = 0.1
    """All flows start within this time."""
    warm_s: float = 5.0
    until_s: float = 30.0

    def scenario(self) -> Scenario:
        """Return the line as a scenario of the simulator."""
        cc: Any = {"reno": "newreno"}.get(self.cc, self.cc)
        return Scenario.from_keys(
            duration=f"{self.until_s * 1e3:.0f}ms",
            warmup=f"{self.warm_s * 1e3:.0f}ms",
            seeds=SEEDS,
            link={"rate": f"{self.rate}bit", "shaper": "htb"},
            flow=[{
                "cc": cc, "count": self.flows, "ecn": self.ecn,
                "rtt": f"{self.rtt_ms * 1e3:.0f}us", "stagger": f"{self.spread_s * 1e3:.0f}ms",
            }],
        )  # fmt: skip

    def text(self) -> str:
        """Encode the line for another process."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def of(text: str) -> Line:
        """Decode the result of `text`."""
        return Line(**json.loads(text))


def guest(kernel: Path, kind: str, queue: str, seed: int, line: Line) -> dict[str, float]:
    """Measure real TCP in virtual time: through quell shell, Linux's queue (`linux`) or a steered FIFO (`clsact`)."""
    words = [str(BIN / "python"), str(HERE / "virtual.py"), kind, queue, str(seed), line.text()]
    command: list[str | Path] = [
        ROOT / "tools" / "oracle" / "guest",
        "--kernel",
        kernel,
        "--limit",
        "3600",
        "--",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{kind} {queue}: {done.stderr.strip()}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def simulated(queue: str, line: Line) -> dict[str, float]:
    """Simulate the line; return means over the seeds."""
    scenario = line.scenario()
    jobs = experiment.plan(scenario, [queue])
    return averaged(experiment.run_each([(scenario, job) for job in jobs], measures))


def measures(record: dict[str, Any]) -> dict[str, float]:
    """Pick the measures from a run's record."""
    mean, p95 = record["backlog_ms"]["mean"], record["backlog_ms"]["p95"]
    measured = {"goodput_mbps": record["delivered_in_order_mbps"], "mean_ms": mean, "p95_ms": p95}
    return measured | {"drops": record["drops"], "marks": record["marks"]}


def averaged(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the means over runs."""
    return {key: fmean(run[key] for run in runs) for key in runs[0]}
