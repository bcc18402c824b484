"""Sections 9 and 10 of RFC 7928: mixed and bidirectional traffic, several AQMs in a row."""

from __future__ import annotations

import math
from collections.abc import Callable

from quell.evaluation.candidate import Candidate
from quell.evaluation.entry import (
    CHOICE,
    LONGER,
    MAY,
    RECOMMENDED,
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
from quell.evaluation.verdict import Bar, at_least, at_most
from quell.stats import Record, mean


def _mix(datagrams: bool, video: bool, bulk: bool) -> Callable[[Link, Candidate], Keys]:
    def keys(link: Link, _: Candidate) -> Keys:
        flows: list[Keys] = [{"kind": "call", "rtt": link.rtt()}, {"kind": "page", "think": "1s", "rtt": link.rtt()}]
        flows += [cbr(link, 0.1)] if datagrams else []
        flows += [{"kind": "video", "rtt": link.rtt()}] if video else []
        flows += [tcp(link, 2)] if bulk else []
        return scenario(link, flows, LONGER)

    return keys


def _apps(run: Record, kind: str, key: str) -> float | None:
    values = [app[key] for app in run.get("applications") or () if app["kind"] == kind and app.get(key) is not None]
    if not values:
        return None
    return mean([value["p50"] if isinstance(value, dict) else value for value in values])


def _experience(runs: Runs, _: Link) -> Measured:
    run = only(runs)
    return {
        "mos": _apps(run, "call", "mos"),
        "page_ms": _apps(run, "page", "page_load_ms"),
        "stalls": _apps(run, "video", "rebuffer_ratio"),
    }


_VOICE = Bar("mos", True, 3.6, "§9.1: voice quality; 3.6 is the least of medium quality in ITU-T G.109",
             of_reference=False)  # fmt: skip
_PAGES = at_most("page_ms", 1.1, f"§9.1: pages load as fast as at tail drop; {CHOICE}")
_PLAYS = at_most("stalls", 1.0, "§9.1: video stalls no more than at tail drop; a percent of slack is quell's choice",
                 slack=0.01)  # fmt: skip


def _both_ways(link: Link, candidate: Candidate) -> Keys:
    both = link.table() | {"up": {"queue": candidate.words}}
    return scenario(link, [tcp(link, 2), tcp(link, 2, direction="up")], link=both)


def _upwards(runs: Runs, _: Link) -> Measured:
    run = only(runs)
    up = sum(flow["goodput_mbps"] for flow in run["flows"] if flow["direction"] == "up")
    return {"up_mbps": up, "up_delay_ms": run["up"]["sojourn_ms"]["mean"]}


SECTION_9 = (
    Entry(
        "9.1", "voice, web", RECOMMENDED,
        "A voice call and web pages.",
        (Run("", _mix(False, False, False)),), (_VOICE, _PAGES), _experience,
    ),
    Entry(
        "9.1", "voice, web, bulk", RECOMMENDED,
        "A voice call, web pages and two long NewReno flows.",
        (Run("", _mix(False, False, True)),), (_VOICE, _PAGES, *USUAL), _experience,
    ),
    Entry(
        "9.1", "all together", RECOMMENDED,
        "A voice call, web pages, datagrams at a tenth of the rate, a video stream and two long NewReno flows.",
        (Run("", _mix(True, True, True)),), (_VOICE, _PAGES, _PLAYS, *USUAL), _experience,
    ),
    Entry(
        "9.2", "bidirectional", MAY,
        "Two NewReno flows in each direction, the same queue in both: data and ACKs share it.",
        (Run("", _both_ways),),
        (*USUAL, at_least("up_mbps", 0.9, f"§9.2: goodput upwards, too; {CHOICE}"),
         at_most("up_delay_ms", 0.5, f"§9.2: delay upwards, too; {CHOICE}")),
        _upwards,
    ),
)  # fmt: skip


def _chain(second: Callable[[Link, Candidate], str]) -> Callable[[Link, Candidate], Keys]:
    """Two links of one rate: two flows pass both queues, one the first alone, one the second alone."""

    def keys(link: Link, candidate: Candidate) -> Keys:
        queue = second(link, candidate)
        flows = [tcp(link, 2), tcp(link, hops=[0, 0]), tcp(link, hops=[1, 1])]
        return scenario(link, flows, LONGER, hop=[link.table() | {"queue": queue}])

    return keys


def _path(runs: Runs, _: Link) -> Measured:
    run = only(runs)
    rates = [flow["goodput_mbps"] for flow in run["flows"]]
    delays = [run["sojourn_ms"]["mean"], run["hops"][0]["sojourn_ms"]["mean"]]
    return {"path_delay_ms": math.fsum(delays), "through_mbps": sum(rates[:2]), "total_mbps": sum(rates)}


def _other_aqm(_: Link, candidate: Candidate) -> str:
    return "codel" if candidate.words.split()[0] == "pie" else "pie"


_CHAIN = (
    at_least("total_mbps", 0.9, f"§10.2: goodput, beside tail drop in this queue's place; {CHOICE}"),
    at_most("path_delay_ms", 0.5, f"§10.2: delay along the path, beside tail drop in this queue's place; {CHOICE}"),
    at_least("through_mbps", 0.8, f"§10.2: flows that meet both queues keep their goodput; {CHOICE}"),
)
_ONE_OF_TWO = (
    _CHAIN[0],
    at_most("path_delay_ms", 0.85, f"§10.2: delay along the path, of which the second queue has its part; {CHOICE}"),
    _CHAIN[2],
)


def _multi(name: str, about: str, second: Callable[[Link, Candidate], str], bars: tuple[Bar, ...]) -> Entry:
    text = f"Two links of one rate in a row. Two NewReno flows pass both, one the first, one the second. {about}"
    return Entry("10.2", name, MAY, text, (Run("", _chain(second)),), bars, _path)


SECTION_10 = (
    _multi("twice this queue", "Both have this queue.", lambda _, candidate: candidate.words, _CHAIN),
    _multi("before another AQM", "The second has PIE; for PIE, CoDel.", _other_aqm, _CHAIN),
    _multi("before tail drop", "The second has tail drop.", lambda link, _: f"pfifo limit {link.packets}", _ONE_OF_TWO),
)
