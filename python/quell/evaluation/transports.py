"""Sections 5 and 6 of RFC 7928: transport protocols, and fairness among round trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quell.evaluation.candidate import Candidate
from quell.evaluation.entry import (
    CHOICE,
    GOODPUT,
    MAY,
    MUST,
    USUAL,
    Entry,
    Keys,
    Measured,
    Run,
    Runs,
    categories,
    cbr,
    only,
    scenario,
    tcp,
)
from quell.evaluation.link import Link
from quell.evaluation.verdict import at_least, at_most
from quell.results.stats import mean


def _alone(cc: str, **more: Any) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: scenario(link, [tcp(link, 1, cc, **more)])


_SHORT_PACKETS, _FIRST = 50, 20


def _other_window(window: int) -> Callable[[Link, Candidate], Keys]:
    """Make a long flow and, from 20 s on, short ones 10 s apart, so that at most one is active."""

    def keys(link: Link, _: Candidate) -> Keys:
        size = _SHORT_PACKETS * 1448
        starts = range(_FIRST, 120, 10)
        short = [tcp(link, iw=window, bytes=size, start=link.at(start), stagger="0ms") for start in starts]
        return scenario(link, [tcp(link), *short])

    return keys


def _startup(runs: Runs, link: Link) -> Measured:
    begins = link.seconds(_FIRST) * 1000
    return {
        "startup_ms": mean([run["first_ms"][1] - begins for run in runs.values() if run["first_ms"][1] is not None])
    }


def _friendly_share(runs: Runs, _: Link) -> Measured:
    rates = [flow["goodput_mbps"] for flow in only(runs)["flows"]]
    return {"friendly_share": rates[0] / sum(rates) if sum(rates) else None}


def _too_fast(link: Link, _: Candidate) -> Keys:
    return scenario(link, [cbr(link, 1.2)], 40)


def _beside_tcp(link: Link, _: Candidate) -> Keys:
    return scenario(link, [tcp(link), cbr(link, 0.6)])


def _responsive(runs: Runs, _: Link) -> Measured:
    flows = [flow for flow in only(runs)["flows"] if flow["kind"] == "tcp"]
    delays = [flow["delay_ms"]["mean"] - flow["base_rtt_ms"] / 2 for flow in flows if flow["delay_ms"]]
    return {"tcp_mbps": sum(flow["goodput_mbps"] for flow in flows), "tcp_delay_ms": mean(delays) if delays else None}


def _background(link: Link, _: Candidate) -> Keys:
    return scenario(link, [tcp(link), tcp(link, 1, "ledbat")])


_SHARE = at_least("friendly_share", 0.9, f"§5.4: the TCP-friendly flow keeps its share; {CHOICE}")

SECTION_5 = (
    Entry(
        "5.1.1", "TCP, same window", MUST,
        "A long NewReno flow with an initial window of 3 packets.",
        (Run("", _alone("newreno", iw=3)),), USUAL,
    ),
    Entry(
        "5.1.2", "TCP, other window", MUST,
        f"A long NewReno flow, and every ten seconds a short one of {_SHORT_PACKETS} packets; once with an initial "
        "window of 3 packets, once of 10. Measures are means over both.",
        (Run("window of 3", _other_window(3)), Run("window of 10", _other_window(10))),
        (*USUAL, at_most("fct_ms", 1.1, f"§2.1: short flows complete as fast as at tail drop; {CHOICE}"),
         at_most("startup_ms", 1.0, "§2.2: a flow starts as soon as at tail drop; one bin of slack", slack=25.0)),
        _startup, bin=0.25,
    ),
    Entry(
        "5.2", "aggressive: CUBIC", MUST, "A long CUBIC flow.", (Run("", _alone("cubic")),), USUAL,
    ),
    Entry(
        "5.2", "aggressive: BBR", MUST,
        "A long BBR flow, which keeps the queue short at tail drop, too.", (Run("", _alone("bbr")),),
        (GOODPUT,
         at_most("delay_ms", 1.0, "§2.6: no longer than tail drop's; 5 ms of slack are quell's choice", slack=5.0)),
    ),
    Entry(
        "5.3", "unresponsive alone", MUST,
        "Datagrams at 1.2 times the link's rate, which no signal slows down.",
        (Run("", _too_fast),),
        (at_least("goodput_mbps", 0.95, f"§5.3: the link stays full; {CHOICE}"),
         at_most("delay_ms", 1.0, "§5.3, RFC 7567 §4.6: the queue stays under control: no longer than tail drop's")),
    ),
    Entry(
        "5.3", "unresponsive, TCP", MUST,
        "Datagrams at 0.6 of the link's rate beside a NewReno flow.",
        (Run("", _beside_tcp),),
        (at_least("tcp_mbps", 0.9, f"§5.3: responsive flows keep what is left; {CHOICE}"),
         at_most("tcp_delay_ms", 0.5, f"§5.3: responsive flows wait less than at tail drop; {CHOICE}")),
        _responsive,
    ),
    Entry(
        "5.4", "LEDBAT", MAY,
        "A NewReno and a LEDBAT flow.",
        (Run("", _background),), (*USUAL, _SHARE), _friendly_share,
    ),
)  # fmt: skip


_OTHER_RTTS = (0.05, 0.5, 2.0, 5.6)
"""Multiples of the base round trip: 5 to 560 ms beside 100 ms (section 6.2)."""


def _round_trips(factor: float) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: scenario(link, [tcp(link), tcp(link, rtt=link.rtt(factor))], 90)


def _categories(runs: Runs, _: Link) -> Measured:
    first, second = only(runs)["flows"]
    return categories([first], [second])


def _fairness(factor: float) -> Entry:
    about = (
        f"Two NewReno flows, one with the base round trip (category I), the other with {factor:g} times as much (II)."
    )
    bars = (at_least("jain", 0.95, f"§6: round trips matter no more than at tail drop; {CHOICE}"), *USUAL)
    return Entry("6.2", f"RTTs: 1, {factor:g}", MUST, about, (Run("", _round_trips(factor)),), bars, _categories)


SECTION_6 = tuple(_fairness(factor) for factor in _OTHER_RTTS)
