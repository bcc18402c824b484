"""An entry of the suite: a scenario of RFC 7928 with its runs, measures and bars; and parts that scenarios share.

Requirements are those of section 13 (Figure 4), and RECOMMENDED if it has none. The RFC defines no threshold between
good and bad, but asks for comparison with tail drop (section 1.2). So most bars are multiples of the value that `pfifo`
with a buffer of the bandwidth-delay product has with the same seed, and each bar names the source of its factor.
Numbers that the RFC leaves open are quell's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from quell.evaluation.candidate import Candidate
from quell.evaluation.link import Link
from quell.evaluation.measures import common, mean_over_runs
from quell.evaluation.verdict import Bar, at_least, at_most
from quell.results.stats import Record, mean

MUST, RECOMMENDED, MAY = "MUST", "RECOMMENDED", "MAY"

Keys: TypeAlias = dict[str, Any]
Measured: TypeAlias = Mapping[str, float | None]
Runs: TypeAlias = Mapping[str, Record]
"""Compact records (measures.compact) of one seed, by the run's name."""


@dataclass(frozen=True)
class Run:
    """One simulation of a scenario."""

    name: str
    keys: Callable[[Link, Candidate], Keys]
    """Returns the scenario's keys; may raise LeftOut."""
    words: Callable[[Candidate], str] | None = None
    """Returns other words for the queue; may raise LeftOut."""


@dataclass(frozen=True)
class Entry:
    """One row of the matrix."""

    section: str
    name: str
    """Short name for the matrix."""
    requirement: str
    about: str
    runs: tuple[Run, ...] = ()
    bars: tuple[Bar, ...] = ()
    measure: Callable[[Runs, Link], Measured] = lambda _, __: {}
    """Returns measures besides the common ones; may raise LeftOut."""
    common: str = ""
    """The run of the common measures; empty: their mean over all runs."""
    bin: float = 1.0
    """Width of the series' bins in base round trips."""
    shown: str = ""
    """The measure that the matrix shows if there is no bar."""
    least: bool = False
    """Whether the measure is the minimum over the seeds, not the mean: for CPU time, which other programs only
    increase."""

    @property
    def id(self) -> str:
        """Its identifier."""
        return f"{self.section} {self.name}"

    def measures(self, runs: Runs, link: Link) -> dict[str, float | None]:
        """Return all measures of one seed. Raises LeftOut."""
        of_each = {name: common(run) for name, run in runs.items()}
        base = of_each[self.common] if self.common else mean_over_runs(list(of_each.values()))
        return {**base, **self.measure(runs, link)}


DURATION_S, WARMUP_S = 120.0, 10.0
"""Length of a run and of its warm-up, s: over a thousand round trips of 100 ms, and time for slow start to end."""
RARE_EVENTS_S = 300.0
"""Length of a run with rare events, from pages or several queues, s."""


def tcp(link: Link, count: int = 1, cc: str = "newreno", **more: Any) -> Keys:
    """Return long TCP flows that start within a second."""
    return {"kind": "tcp", "cc": cc, "count": count, "rtt": link.rtt(), "stagger": link.at(1)} | more


def cbr(link: Link, share: float, size: int = 1500, **more: Any) -> Keys:
    """Return datagrams at a share of the link's rate."""
    return {"kind": "cbr", "rate": link.rate(share), "size": size, "rtt": link.rtt(), "stagger": link.at(1)} | more


def scenario(link: Link, flows: Sequence[Keys], seconds: float = DURATION_S, /, **more: Any) -> Keys:
    """Return the keys of a scenario on this link."""
    times = {"duration": link.at(seconds), "warmup": link.at(WARMUP_S)}
    return {**times, "link": link.table(), "flow": list(flows), **more}


def load(link: Link, level: float) -> int:
    """Return the number of flows for a congestion level (sections 8.2.1 to 8.2.4).

    It is a share of S, the sum of the bandwidth-delay product and the buffer, which is as large (section 3.2).
    """
    return max(1, round(level * 2 * link.packets))


MILD, MEDIUM, HEAVY = 0.036, 0.081, 0.114
"""Flows per packet of S (sections 8.2.2 to 8.2.4): projected losses at tail drop of 0.1, 0.5 and 1 %."""


def p95_beyond_path(flow: Record) -> float | None:
    """Return the 95th percentile of a flow's delay beyond half its base round trip, ms."""
    return None if flow["delay_ms"] is None else max(0.0, flow["delay_ms"]["p95"] - flow["base_rtt_ms"] / 2)


def categories(first: Sequence[Record], second: Sequence[Record]) -> dict[str, float]:
    """Return the metrics of two categories of flows (section 6.3): goodput, their ratio, loss ratios."""
    one, two = (sum(flow["goodput_mbps"] for flow in flows) for flows in (first, second))
    losses = [sum(flow["loss_rate"] or 0.0 for flow in flows) / len(flows) for flows in (first, second)]
    ratio = {"cat_ratio": two / one} if one else {}
    return {"cat1_mbps": one, "cat2_mbps": two, **ratio, "cat1_loss": losses[0], "cat2_loss": losses[1]}


def application(run: Record, kind: str, key: str) -> float | None:
    """Return the mean of a result over the applications of a kind; of a distribution, its median is used."""
    values = [app[key] for app in run.get("applications") or () if app["kind"] == kind and app.get(key) is not None]
    if not values:
        return None
    return mean([value["p50"] if isinstance(value, dict) else value for value in values])


def only(runs: Runs) -> Record:
    """Return the run of a scenario with a single run."""
    return next(iter(runs.values()))


# Bars that several scenarios share. ----------------------------------------------------------------------------------

CHOICE = "the factor is quell's choice"
GOODPUT = at_least("goodput_mbps", 0.9, f"§1.1, §2.5: reduce latency and keep goodput, beside tail drop; {CHOICE}")
DELAY = at_most("delay_ms", 0.5, f"§1.1, §2.6: the queue must be shorter than tail drop's; {CHOICE}")
VARIATION = at_most("delay_sd_ms", 1.0, "§2.6, §8.1: delay varies no more than at tail drop")
FAIRNESS = at_least("jain", 0.9, f"§5: flows of one kind share as evenly as at tail drop; {CHOICE}")
USUAL = (GOODPUT, DELAY)
