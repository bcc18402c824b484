"""Sections 9 and 10 of RFC 7928: mixed and bidirectional traffic, several AQMs in a row."""

from __future__ import annotations

import math
from collections.abc import Callable

from quell.evaluation.candidate import Candidate
from quell.evaluation.entry import (
    CHOICE,
    MAY,
    MILD,
    RARE_EVENTS_S,
    RECOMMENDED,
    USUAL,
    Entry,
    Keys,
    Measured,
    Run,
    Runs,
    application,
    cbr,
    load,
    only,
    scenario,
    tcp,
)
from quell.evaluation.link import Link
from quell.evaluation.verdict import Bar, at_least, at_most


def _mix(pages: int, whole: bool, bulk: int) -> Callable[[Link, Candidate], Keys]:
    def keys(link: Link, _: Candidate) -> Keys:
        page = {"kind": "page", "http": "http/1.1", "think": "1s", "count": pages, "rtt": link.rtt()}
        flows: list[Keys] = [{"kind": "call", "rtt": link.rtt()}, page]
        flows += [cbr(link, 0.1), {"kind": "video", "rtt": link.rtt()}] if whole else []
        flows += [tcp(link, bulk)] if bulk else []
        return scenario(link, flows, RARE_EVENTS_S)

    return keys


def _experience(runs: Runs, _: Link) -> Measured:
    run = only(runs)
    return {
        "mos": application(run, "call", "mos"),
        "page_ms": application(run, "page", "page_load_ms"),
        "stalls": application(run, "video", "rebuffer_ratio"),
    }


_VOICE = Bar("mos", True, 3.6, "§9.1: voice quality; 3.6 is the least of medium quality in ITU-T G.109",
             of_reference=False)  # fmt: skip
_PAGES = at_most("page_ms", 1.1, f"§9.1: pages load as fast as at tail drop; {CHOICE}")
_PLAYS = at_most("stalls", 1.0, "§9.1: video stalls no more than at tail drop; a percent of slack is quell's choice",
                 slack=0.01)  # fmt: skip


def _both_ways(link: Link, candidate: Candidate) -> Keys:
    both = link.table() | {"up": {"queue": candidate.words}}
    count = load(link, MILD)
    return scenario(link, [tcp(link, count), tcp(link, count, direction="up")], link=both)


_UPLINK = 0.2
"""Upward capacity of the asymmetric link, as a share of the downward one."""


def _asymmetric(link: Link, _: Candidate) -> Keys:
    buffer = max(2, round(_UPLINK * link.packets))
    table = link.table() | {"up": {"rate": link.rate(_UPLINK), "queue": f"pfifo limit {buffer}"}}
    count = load(link, MILD)
    return scenario(link, [tcp(link, count), tcp(link, max(1, round(_UPLINK * count)), direction="up")], link=table)


def _upwards(runs: Runs, _: Link) -> Measured:
    run = only(runs)
    up = sum(flow["goodput_mbps"] for flow in run["flows"] if flow["direction"] == "up")
    return {"up_mbps": up, "up_delay_ms": run["up"]["sojourn_ms"]["mean"]}


SECTION_9 = (
    Entry(
        "9.1", "voice, web", RECOMMENDED,
        "A voice call and web pages.",
        (Run("", _mix(1, False, 0)),), (_VOICE, _PAGES), _experience,
    ),
    Entry(
        "9.1", "voice, web, bulk", RECOMMENDED,
        "A voice call, web pages and a long NewReno flow.",
        (Run("", _mix(1, False, 1)),), (_VOICE, _PAGES, *USUAL), _experience,
    ),
    Entry(
        "9.1", "all together", RECOMMENDED,
        "The mix that the RFC recommends: a call, six users who load pages, datagrams at a tenth of the rate, a video "
        "stream and five long NewReno flows.",
        (Run("", _mix(6, True, 5)),), (_VOICE, _PAGES, _PLAYS, *USUAL), _experience,
    ),
    Entry(
        "9.2", "bidirectional", MAY,
        "Mild congestion in each direction, the same queue in both: data and ACKs share it.",
        (Run("", _both_ways),),
        (*USUAL, at_least("up_mbps", 0.9, f"§9.2: goodput upwards, too; {CHOICE}"),
         at_most("up_delay_ms", 0.5, f"§9.2: delay upwards, too; {CHOICE}")),
        _upwards,
    ),
    Entry(
        "9.2", "asymmetric", MAY,
        f"Mild congestion in each direction. The capacity upwards is {_UPLINK:g} of that downwards; there is tail drop "
        "upwards and this queue downwards (section 3.1).",
        (Run("", _asymmetric),), USUAL, _upwards,
    ),
)  # fmt: skip


def _chain(second: Callable[[Candidate], str]) -> Callable[[Link, Candidate], Keys]:
    """Make two links, the first with half the rate. Half of the flows pass both, the others only the second."""

    def keys(link: Link, candidate: Candidate) -> Keys:
        half = max(1, load(link, MILD) // 2)
        flows = [tcp(link, half), tcp(link, half, hops=[1, 1])]
        return scenario(
            link, flows, RARE_EVENTS_S, link=link.table(0.5), hop=[link.table() | {"queue": second(candidate)}]
        )

    return keys


def _path(runs: Runs, _: Link) -> Measured:
    run = only(runs)
    rates = [flow["goodput_mbps"] for flow in run["flows"]]
    delays = [run["sojourn_ms"]["mean"], run["hops"][0]["sojourn_ms"]["mean"]]
    return {
        "path_delay_ms": math.fsum(delays),
        "through_mbps": sum(rates[: len(rates) // 2]),
        "total_mbps": sum(rates),
    }


def _other_aqm(candidate: Candidate) -> str:
    return "codel" if candidate.words.split()[0] == "pie" else "pie"


_CHAIN = (
    at_least("total_mbps", 0.9, f"§10.2: goodput, beside tail drop in this queue's place; {CHOICE}"),
    at_most("path_delay_ms", 0.5, f"§10.2: delay along the path, beside tail drop in this queue's place; {CHOICE}"),
    at_least("through_mbps", 0.8, f"§10.2: flows that meet both queues keep their goodput; {CHOICE}"),
)
_BESIDE_PIE = (
    _CHAIN[0],
    at_most("path_delay_ms", 0.85, f"§10.2: delay along the path, of which the second queue has its part; {CHOICE}"),
    _CHAIN[2],
)


def _multi(name: str, about: str, second: Callable[[Candidate], str], bars: tuple[Bar, ...]) -> Entry:
    text = f"Two links in a row, the first with half the rate. Mild congestion: half of the flows pass both. {about}"
    return Entry("10.2", name, MAY, text, (Run("", _chain(second)),), bars, _path)


SECTION_10 = (
    _multi("twice this queue", "Both have this queue.", lambda candidate: candidate.words, _CHAIN),
    _multi("other parameter", "Both have this queue, the second with its main parameter doubled (as in 8.3).",
           lambda candidate: candidate.turned(2.0)[0], _CHAIN),
    _multi("before another AQM", "The second has PIE; for PIE, CoDel.", _other_aqm, _BESIDE_PIE),
)  # fmt: skip
