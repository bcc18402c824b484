"""Sections 11 and 12 of RFC 7928: costs and parameters."""

from __future__ import annotations

from quell.evaluation.candidate import Candidate
from quell.evaluation.entry import RECOMMENDED, Entry, Keys, Measured, Run, Runs, only
from quell.evaluation.link import Link


def _same_packets(link: Link, _: Candidate) -> Keys:
    """Send the same packets through every queue: no sender reacts, and the queue is short."""
    fast = Link(1_000_000_000, link.rtt_s)
    flows = [{"kind": "poisson", "rate": fast.rate(0.225), "count": 4, "rtt": fast.rtt()}]
    return {"duration": "1s", "warmup": "100ms", "link": fast.table(), "flow": flows}


def _cost(runs: Runs, _: Link) -> Measured:
    run = only(runs)
    # CPU time is that of the whole run, but packets are counted after the warm-up.
    packets = run["packets"] * (run["measured_s"] + 0.1) / run["measured_s"]
    return {"cost_ns": run["cpu_s"] / packets * 1e9}


SECTIONS_11_12 = (
    Entry(
        "11.2", "cost, ns a packet", RECOMMENDED,
        "CPU time of a simulated packet, from its source to its receiver, in a run of 70,000 packets that are the same "
        "for every queue (four Poisson flows, 90 % of 1 Gbit/s). The least over the seeds counts, because other "
        "programs only add to it. The excess over tail drop is the queue's cost. Memory, state and arithmetic are "
        "described with each queue's source.",
        (Run("", _same_packets),), (), _cost, shown="cost_ns", least=True,
    ),
    Entry(
        "12.2", "parameters", RECOMMENDED,
        "The number of parameters; they are listed with their defaults below the matrix of the page. Those of a queue "
        "that tunes itself can stay as they are on every link; 8.3 shows what a wrong setting costs.",
        shown="parameters",
    ),
)  # fmt: skip
