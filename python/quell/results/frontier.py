"""The best results of a constant knob: the frontier with which controllers are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quell import _core
from quell._core import InputError
from quell.common.names import known
from quell.results.stats import Estimate, Record, Row, estimate, summarise

LIMITS = (1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 90, 128, 181, 256, 362, 512, 724, 1024)
"""Limits in packets, two steps per doubling."""
DROPS = (0.0, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.014, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15)
"""Probabilities p. By Mathis' law, one flow's window is 1.22/sqrt(p): 122 packets at 0.0001, 3 at 0.15."""


GRIDS: dict[str, tuple[float, ...]] = {"limit": LIMITS, "drop": DROPS}
"""The settings to try for each knob."""


def _power(record: Record) -> float | None:
    rtt = record["rtt_ms"]
    return None if rtt is None or not rtt["mean"] else record["goodput_mbps"] / (rtt["mean"] / 1e3)


def rl_aqm_reward(
    delay_ms: Any, utilisation: Any, *, weight: float = 1.0, power: float = 2, delay_scale_ms: float = 5.0
) -> Any:
    """Return RL-AQM's R(U, D) for numbers or arrays: above -2, and 1 for a full link with an empty queue."""
    return weight * (utilisation**power - 0.5) + 2.0 / (1.0 + delay_ms / delay_scale_ms) - 1.5


def _rlaqm(record: Record) -> float:
    return float(rl_aqm_reward(record["sojourn_ms"]["mean"], record["utilisation"]))


def _lfq(record: Record) -> float:
    return float((record["throughput_mbps"] * 1e6 / 8 - 10 * record["backlog_packets"]["mean"] * 1446) / 1e6)


REWARDS: dict[str, tuple[Callable[[Record], float | None], str]] = {
    "power": (_power, "goodput over mean RTT, Mbit/s per second (Kleinrock)"),
    "rlaqm": (_rlaqm, "U² − 0.5 + 2/(1 + D/5 ms) − 1.5: utilisation and mean sojourn, as RL-AQM's formula"),
    "lfq": (_lfq, "throughput less 10/s times the queued bytes, MB/s, as LFQ's with α = 10"),
}
"""Rewards by name: function of a record, and its definition. More is better."""


@dataclass(frozen=True)
class Point:
    """One setting of the knob."""

    knob: str
    value: float
    row: Row
    reward: Estimate | None
    best: bool

    def plain(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        reward = None if self.reward is None else self.reward.mean
        return {
            "knob": self.knob,
            "value": self.value,
            "queue": self.row.queue,
            "runs": self.row.runs,
            "reward": reward,
            "best": self.best,
            "front": self.row.on_front,
            **self.row.plain(),
        }


def check(knob: str, reward: str, dashes: str = "") -> None:
    """Check that the knob and the reward exist; `dashes` precede the option's name in errors. Raises InputError."""
    known("knob", knob, GRIDS, f"{dashes}knob")
    known("reward", reward, REWARDS, f"{dashes}reward")


def values(knob: str, given: str | None) -> list[float]:
    """List the settings to try: the default grid, or `given`, numbers separated by commas."""
    if given is None:
        return list(GRIDS[knob])
    out: list[float] = []
    for word in given.split(","):
        try:
            value = float(word)
        except ValueError:
            raise InputError(f"--values: '{word}' is not a number; write numbers with commas: 8,16,32") from None
        whole = knob == "drop" or value == int(value)
        if not (whole and (1 <= value <= 1e6 if knob == "limit" else 0 <= value <= 1)):
            proper = "a whole number of packets, at least 1" if knob == "limit" else "a probability, 0 to 1"
            raise InputError(f"--values: '{word}' is not {proper}")
        out.append(value)
    return out


def words(knob: str, value: float) -> str:
    """Return queue words of a FIFO with a constant knob."""
    return _core.queue(f"fifo limit {int(value)}" if knob == "limit" else f"fifo drop {value:g}")


def judge(knob: str, settings: Sequence[float], records: Sequence[Record], reward: str) -> list[Point]:
    """Reduce runs to one point per setting and mark the one with the best mean reward."""
    score, _ = REWARDS[reward]
    rows = {row.queue: row for row in summarise(records)}
    scores = {queue: estimate(score(r) for r in records if r["queue"] == queue) for queue in rows}
    top = max((s.mean for s in scores.values() if s is not None), default=None)
    points = []
    for value in settings:
        if (row := rows.get(words(knob, value))) is not None:
            mine = scores[row.queue]
            points.append(Point(knob, value, row, mine, mine is not None and mine.mean == top))
    return points
