"""Sections 5 and 6 of RFC 7928: transport protocols, and fairness among round trips."""

from __future__ import annotations

from collections.abc import Callable

from quell.evaluation.candidate import Candidate
from quell.evaluation.entry import (
    CHOICE,
    FAIRNESS,
    MAY,
    MUST,
    USUAL,
    Entry,
    Keys,
    Measured,
    Run,
    Runs,
    cbr,
    only,
    scenario,
    tcp,
)
from quell.evaluation.link import Link
from quell.evaluation.verdict import at_least, at_most
from quell.stats import jain, mean


def _same_window(link: Link, _: Candidate) -> Keys:
    half_a_second = max(20_000, round(link.rate_bps * link.seconds(0.5) / 8))
    short = [tcp(link, 1, bytes=half_a_second, start=link.at(start)) for start in range(20, 120, 10)]
    return scenario(link, [tcp(link, 4), *short])


_NEWCOMER = 20.0


def _other_window(link: Link, _: Candidate) -> Keys:
    return scenario(link, [tcp(link, iw=3), tcp(link, iw=10, start=link.at(_NEWCOMER), stagger="0ms")])


def _newcomer(runs: Runs, link: Link) -> Measured:
    run = only(runs)
    first, tails = run["first_ms"][1], run["tail_mbps"][:2]
    begins = link.seconds(_NEWCOMER) * 1000
    return {"startup_ms": None if first is None else first - begins, "jain": jain(tails)}


def _against(cc: str) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: scenario(link, [tcp(link, 2), tcp(link, 2, cc)])


def _friendly_share(runs: Runs, _: Link) -> Measured:
    rates = [flow["goodput_mbps"] for flow in only(runs)["flows"]]
    return {"friendly_share": sum(rates[:2]) / sum(rates) if sum(rates) else None}


def _alone(link: Link, _: Candidate) -> Keys:
    return scenario(link, [cbr(link, 1.2)], 40)


def _beside_tcp(link: Link, _: Candidate) -> Keys:
    return scenario(link, [tcp(link, 4), cbr(link, 0.5)])


def _responsive(runs: Runs, _: Link) -> Measured:
    flows = [flow for flow in only(runs)["flows"] if flow["kind"] == "tcp"]
    delays = [flow["delay_ms"]["mean"] - flow["base_rtt_ms"] / 2 for flow in flows if flow["delay_ms"]]
    return {"tcp_mbps": sum(flow["goodput_mbps"] for flow in flows), "tcp_delay_ms": mean(delays) if delays else None}


def _background(link: Link, _: Candidate) -> Keys:
    return scenario(link, [tcp(link, 2), tcp(link, 2, "ledbat")])


_SHARE = at_least("friendly_share", 0.9, f"§5.2: TCP-friendly flows keep their share; {CHOICE}")

SECTION_5 = (
    Entry(
        "5.1.1", "TCP, same window", MUST,
        "Four long NewReno flows with the same initial window, and every ten seconds a short one, which would take "
        "half a second alone.",
        (Run("", _same_window),),
        (*USUAL, FAIRNESS, at_most("fct_ms", 1.1, f"§2.1: short flows complete as fast as at tail drop; {CHOICE}")),
    ),
    Entry(
        "5.1.2", "TCP, other window", MUST,
        f"A NewReno flow with an initial window of 3 packets; after {_NEWCOMER:g} s one with 10 packets joins it. "
        "Jain's index is that of the last third.",
        (Run("", _other_window),),
        (*USUAL, FAIRNESS,
         at_most("startup_ms", 1.0, "§2.2: a flow starts as soon as at tail drop; one bin of slack", slack=25.0)),
        _newcomer, bin=0.25,
    ),
    Entry(
        "5.2", "aggressive: CUBIC", MUST,
        "Two NewReno and two CUBIC flows.", (Run("", _against("cubic")),), (*USUAL, _SHARE), _friendly_share,
    ),
    Entry(
        "5.2", "aggressive: BBR", MUST,
        "Two NewReno and two BBR flows.", (Run("", _against("bbr")),), (*USUAL, _SHARE), _friendly_share,
    ),
    Entry(
        "5.3", "unresponsive alone", MUST,
        "Datagrams at 1.2 times the link's rate, which no signal slows down.",
        (Run("", _alone),),
        (at_least("goodput_mbps", 0.95, f"§5.3: the link stays full; {CHOICE}"),
         at_most("delay_ms", 1.0, "§5.3, RFC 7567 §4.6: the queue stays under control: no longer than tail drop's")),
    ),
    Entry(
        "5.3", "unresponsive, TCP", MUST,
        "Datagrams at half the link's rate beside four NewReno flows.",
        (Run("", _beside_tcp),),
        (at_least("tcp_mbps", 0.9, f"§5.3: responsive flows keep what is left; {CHOICE}"),
         at_most("tcp_delay_ms", 0.5, f"§5.3: responsive flows wait less than at tail drop; {CHOICE}")),
        _responsive,
    ),
    Entry(
        "5.4", "LEDBAT", MAY,
        "Two NewReno and two LEDBAT flows.",
        (Run("", _background),), (*USUAL, _SHARE), _friendly_share,
    ),
)  # fmt: skip


_OTHER_RTTS = (0.05, 0.5, 2.0, 5.6)
"""Of the base round trip: 5 to 560 ms beside 100 ms (section 6.2)."""


def _round_trips(factor: float) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: scenario(link, [tcp(link), tcp(link, rtt=link.rtt(factor))], 90)


def _rtt_fairness(runs: Runs, _: Link) -> Measured:
    found = [jain([flow["goodput_mbps"] for flow in run["flows"]]) for run in runs.values()]
    return {"jain": mean([one for one in found if one is not None])}


SECTION_6 = (
    Entry(
        "6.2", "RTT fairness", MUST,
        "Two NewReno flows, one with the base round trip, the other with 0.05, 0.5, 2 and 5.6 times as much. Measures "
        "are means over the four.",
        tuple(Run(f"{factor:g} × RTT", _round_trips(factor)) for factor in _OTHER_RTTS),
        (at_least("jain", 0.95, f"§6: round trips matter no more than at tail drop; {CHOICE}"), *USUAL),
        _rtt_fairness,
    ),
)  # fmt: skip
