"""RFC 7928's scenarios as data: an entry for each, with what it needs, its measures and its bars.

Requirements are those of section 13. The RFC itself draws no line between good and bad: it asks for comparison with
tail drop (section 4.3). So most bars are multiples of what `pfifo` with a buffer of the bandwidth-delay product has in
the same run, and each bar says whose choice its factor is. Numbers that the RFC leaves open are quell's, at the place
where they stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from quell.evaluation.candidate import Candidate, LeftOut
from quell.evaluation.link import Link
from quell.evaluation.measures import common, mean_over_runs
from quell.evaluation.verdict import Bar, at_least, at_most
from quell.stats import Record, jain, mean

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
    """The scenario's keys; may raise LeftOut."""
    words: Callable[[Candidate], str] | None = None
    """Other words for the queue; may raise LeftOut."""


@dataclass(frozen=True)
class Entry:
    """One row of the matrix."""

    section: str
    name: str
    """Short, for the matrix."""
    requirement: str
    about: str
    runs: tuple[Run, ...] = ()
    bars: tuple[Bar, ...] = ()
    measure: Callable[[Runs, Link], Measured] = lambda _, __: {}
    """Measures beside the common ones; may raise LeftOut."""
    common: str = ""
    """The run that the common measures are of; otherwise their mean over all runs."""
    bin: float = 1.0
    """Width of the series' bins in base round trips."""
    shown: str = ""
    """The measure that stands in the matrix where there is no bar."""
    least: bool = False
    """The least over the seeds is the measure, not the mean: for CPU time, to which other programs only add."""

    @property
    def id(self) -> str:
        """What distinguishes it."""
        return f"{self.section} {self.name}"

    def measures(self, runs: Runs, link: Link) -> dict[str, float | None]:
        """Return all measures of one seed. Raises LeftOut."""
        of_each = {name: common(run) for name, run in runs.items()}
        base = of_each[self.common] if self.common else mean_over_runs(list(of_each.values()))
        return {**base, **self.measure(runs, link)}


# Parts of scenarios. -------------------------------------------------------------------------------------------------

_LONG, _WARM = 120.0, 10.0
"""Seconds of a run and of its warm-up: a thousand round trips, and past slow start."""
_LONGER = 300.0
"""Seconds of a run where pages or several queues make for rare events."""


def _tcp(link: Link, count: int = 1, cc: str = "newreno", **more: Any) -> Keys:
    return {"kind": "tcp", "cc": cc, "count": count, "rtt": link.rtt(), "stagger": link.at(1)} | more


def _late(link: Link, start: float, stop: float | None, count: int) -> Keys:
    flow = _tcp(link, count, start=link.at(start), stagger=link.at(0.5))
    return flow if stop is None else flow | {"stop": link.at(stop)}


def _cbr(link: Link, share: float, size: int = 1500, **more: Any) -> Keys:
    return {"kind": "cbr", "rate": link.rate(share), "size": size, "rtt": link.rtt(), "stagger": link.at(1)} | more


def _scenario(link: Link, flows: Sequence[Keys], seconds: float = _LONG, /, **more: Any) -> Keys:
    times = {"duration": link.at(seconds), "warmup": link.at(_WARM)}
    return {**times, "link": link.table(), "flow": list(flows), **more}


def _load(link: Link, loss: float) -> int:
    """Return how many NewReno flows see such a loss ratio at tail drop (section 8.2.1).

    A window of W packets goes with a loss ratio of 0.76 / W² (Morris), and N windows fill the bandwidth-delay product:
    N is 0.036, 0.081 and 0.115 of it for 0.1, 0.5 and 1 %.
    """
    return max(1, round(link.packets * math.sqrt(loss / 0.76)))


_MILD, _MEDIUM, _HEAVY = 0.001, 0.005, 0.01
"""Loss ratios that the congestion levels have at tail drop (section 8.2.1)."""


def _p95_beyond_path(flow: Record) -> float | None:
    """Return the 95th percentile of a flow's delay beyond half its base round trip, ms."""
    return None if flow["delay_ms"] is None else max(0.0, flow["delay_ms"]["p95"] - flow["base_rtt_ms"] / 2)


def _apps(run: Record, kind: str, key: str) -> float | None:
    values = [app[key] for app in run.get("applications") or () if app["kind"] == kind and app.get(key) is not None]
    if not values:
        return None
    return mean([value["p50"] if isinstance(value, dict) else value for value in values])


def _only(runs: Runs) -> Record:
    return next(iter(runs.values()))


# Bars that several scenarios share. ----------------------------------------------------------------------------------

_CHOICE = "the factor is quell's choice"
GOODPUT = at_least("goodput_mbps", 0.9, f"§1.1, §2.5: reduce latency and keep goodput, beside tail drop; {_CHOICE}")
DELAY = at_most("delay_ms", 0.5, f"§1.1, §2.6: the queue must be shorter than tail drop's; {_CHOICE}")
VARIATION = at_most("delay_sd_ms", 1.0, "§2.6, §8.1: delay varies no more than at tail drop")
FAIRNESS = at_least("jain", 0.9, f"§5: flows of one kind share as evenly as at tail drop; {_CHOICE}")
_USUAL = (GOODPUT, DELAY)


# Section 4. ----------------------------------------------------------------------------------------------------------


def _packet_sizes(link: Link, _: Candidate) -> Keys:
    # As many packets of each; random times, so that neither keeps in step with the link.
    small, large = _cbr(link, 0.016, 200, kind="poisson"), _cbr(link, 0.12, 1500, kind="poisson")
    return _scenario(link, [_tcp(link, 3), small, large])


def _size_bias(runs: Runs, _: Link) -> Measured:
    small, large = (flow["loss_rate"] for flow in _only(runs)["flows"][3:5])
    # Losses below 0.1 % are a handful of packets.
    a, b = max(large, 0.001), max(small, 0.001)
    return {"loss_large": large, "loss_small": small, "size_bias": max(a / b, b / a)}


def _ecn(on: bool) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: _scenario(link, [_tcp(link, 4, "cubic", ecn=on)])


def _ecn_effect(runs: Runs, _: Link) -> Measured:
    with_, without = runs["with ECN"], runs["without ECN"]
    if not with_["mark_rate"]:
        raise LeftOut("marks no packet: ECN is to be discussed where it is supported")
    loss = with_["loss_rate"] / without["loss_rate"] if without["loss_rate"] else None
    return {
        "ecn_loss": loss,
        "ecn_delay": with_["sojourn_ms"]["mean"] / max(without["sojourn_ms"]["mean"], 0.1),
        "ecn_goodput": with_["goodput_mbps"] / without["goodput_mbps"],
    }


def _scheduling(link: Link, _: Candidate) -> Keys:
    return _scenario(link, [_tcp(link, 4, "cubic"), _cbr(link, 0.01, 200)])


def _isolation(runs: Runs, _: Link) -> Measured:
    run = _only(runs)
    sparse = _p95_beyond_path(run["flows"][4])
    whole = run["sojourn_ms"]["p95"]
    return {"sparse_ms": sparse, "isolation": sparse / whole if sparse is not None and whole else None}


_SECTION_4 = (
    Entry(
        "4.4", "packet sizes", RECOMMENDED,
        "Three NewReno flows beside datagrams of 200 and of 1500 bytes, as many of each a second: is the chance of "
        "a loss independent of a packet's size?",
        (Run("", _packet_sizes),),
        (Bar("size_bias", False, 2.0, "§4.4 and RFC 7141: losses do not depend on the size; a factor of two is "
             "quell's choice", of_reference=False),),
        _size_bias,
    ),
    Entry(
        "4.5", "ECN", MUST,
        "Four CUBIC flows with and without ECN. A queue that marks only with an option gets the option.",
        (Run("with ECN", _ecn(True), Candidate.with_ecn), Run("without ECN", _ecn(False))),
        (
            Bar("ecn_loss", False, 0.5, "§4.5, RFC 7567 §4.2.1: marks take the place of losses; half is quell's choice",
                of_reference=False),
            Bar("ecn_delay", False, 1.25, f"§4.5: the same delay with ECN; {_CHOICE}", of_reference=False),
            Bar("ecn_goodput", True, 0.95, f"§4.5, RFC 8087: no less goodput with ECN; {_CHOICE}", of_reference=False),
        ),
        _ecn_effect, "with ECN",
    ),
    Entry(
        "4.6", "scheduling", MUST,
        "Four CUBIC flows and a sparse flow of 1 % of the link. Queues that schedule flows keep the sparse flow out of "
        "the others' queue: its delay, and what share it is of the whole queue's, show how the AQM and a scheduler "
        "work together.",
        (Run("", _scheduling),),
        (at_most("sparse_ms", 0.5, f"§4.6: the combination must be feasible; {_CHOICE}"),),
        _isolation,
    ),
)  # fmt: skip


# Section 5. ----------------------------------------------------------------------------------------------------------


def _same_window(link: Link, _: Candidate) -> Keys:
    half_a_second = max(20_000, round(link.rate_bps * link.seconds(0.5) / 8))
    short = [_tcp(link, 1, bytes=half_a_second, start=link.at(start)) for start in range(20, 120, 10)]
    return _scenario(link, [_tcp(link, 4), *short])


_NEWCOMER = 20.0


def _other_window(link: Link, _: Candidate) -> Keys:
    return _scenario(link, [_tcp(link, iw=3), _tcp(link, iw=10, start=link.at(_NEWCOMER), stagger="0ms")])


def _newcomer(runs: Runs, link: Link) -> Measured:
    run = _only(runs)
    first, old, new = run["first_ms"][1], *run["tail_mbps"][:2]
    begins = link.seconds(_NEWCOMER) * 1000
    return {"startup_ms": None if first is None else first - begins, "jain": jain([old, new])}


def _against(cc: str) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: _scenario(link, [_tcp(link, 2), _tcp(link, 2, cc)])


def _friendly_share(runs: Runs, _: Link) -> Measured:
    rates = [flow["goodput_mbps"] for flow in _only(runs)["flows"]]
    return {"friendly_share": sum(rates[:2]) / sum(rates) if sum(rates) else None}


def _alone(link: Link, _: Candidate) -> Keys:
    return _scenario(link, [_cbr(link, 1.2)], 40)


def _beside_tcp(link: Link, _: Candidate) -> Keys:
    return _scenario(link, [_tcp(link, 4), _cbr(link, 0.5)])


def _responsive(runs: Runs, _: Link) -> Measured:
    flows = [flow for flow in _only(runs)["flows"] if flow["kind"] == "tcp"]
    delays = [flow["delay_ms"]["mean"] - flow["base_rtt_ms"] / 2 for flow in flows if flow["delay_ms"]]
    return {"tcp_mbps": sum(flow["goodput_mbps"] for flow in flows), "tcp_delay_ms": mean(delays) if delays else None}


def _background(link: Link, _: Candidate) -> Keys:
    return _scenario(link, [_tcp(link, 2), _tcp(link, 2, "ledbat")])


_SHARE = at_least("friendly_share", 0.9, f"§5.2: TCP-friendly flows keep their share; {_CHOICE}")

_SECTION_5 = (
    Entry(
        "5.1.1", "TCP, same window", MUST,
        "Four long NewReno flows with the same initial window, and every ten seconds a short one, which would take half a second alone.",
        (Run("", _same_window),),
        (*_USUAL, FAIRNESS, at_most("fct_ms", 1.1, f"§2.1: short flows complete as fast as at tail drop; {_CHOICE}")),
    ),
    Entry(
        "5.1.2", "TCP, other window", MUST,
        f"A NewReno flow with an initial window of 3 packets; after {_NEWCOMER:g} s one with 10 packets joins it. "
        "Jain's index is that of the last third.",
        (Run("", _other_window),),
        (*_USUAL, FAIRNESS,
         at_most("startup_ms", 1.0, "§2.2: a flow starts as soon as at tail drop; one bin of slack", slack=25.0)),
        _newcomer, bin=0.25,
    ),
    Entry(
        "5.2", "aggressive: CUBIC", MUST,
        "Two NewReno and two CUBIC flows.", (Run("", _against("cubic")),), (*_USUAL, _SHARE), _friendly_share,
    ),
    Entry(
        "5.2", "aggressive: BBR", MUST,
        "Two NewReno and two BBR flows.", (Run("", _against("bbr")),), (*_USUAL, _SHARE), _friendly_share,
    ),
    Entry(
        "5.3", "unresponsive alone", MUST,
        "Datagrams at 1.2 times the link's rate, which no signal slows down.",
        (Run("", _alone),),
        (at_least("goodput_mbps", 0.95, f"§5.3: the link stays full; {_CHOICE}"),
         at_most("delay_ms", 1.0, "§5.3, RFC 7567 §4.6: the queue stays under control: no longer than tail drop's")),
    ),
    Entry(
        "5.3", "unresponsive, TCP", MUST,
        "Datagrams at half the link's rate beside four NewReno flows.",
        (Run("", _beside_tcp),),
        (at_least("tcp_mbps", 0.9, f"§5.3: responsive flows keep what is left; {_CHOICE}"),
         at_most("tcp_delay_ms", 0.5, f"§5.3: responsive flows wait less than at tail drop; {_CHOICE}")),
        _responsive,
    ),
    Entry(
        "5.4", "LEDBAT", MAY,
        "Two NewReno and two LEDBAT flows.",
        (Run("", _background),), (*_USUAL, _SHARE), _friendly_share,
    ),
)  # fmt: skip


# Section 6. ----------------------------------------------------------------------------------------------------------

_OTHER_RTTS = (0.05, 0.5, 2.0, 5.6)
"""Of the base round trip: 5 to 560 ms beside 100 ms (section 6.2)."""


def _round_trips(factor: float) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: _scenario(link, [_tcp(link), _tcp(link, rtt=link.rtt(factor))], 90)


def _rtt_fairness(runs: Runs, _: Link) -> Measured:
    found = [jain([flow["goodput_mbps"] for flow in run["flows"]]) for run in runs.values()]
    return {"jain": mean([one for one in found if one is not None])}


_SECTION_6 = (
    Entry(
        "6.2", "RTT fairness", MUST,
        "Two NewReno flows, one with the base round trip, the other with 0.05, 0.5, 2 and 5.6 times as much. Measures "
        "are means over the four.",
        tuple(Run(f"{factor:g} × RTT", _round_trips(factor)) for factor in _OTHER_RTTS),
        (at_least("jain", 0.95, f"§6: round trips matter no more than at tail drop; {_CHOICE}"), *_USUAL),
        _rtt_fairness,
    ),
)  # fmt: skip


# Section 7. ----------------------------------------------------------------------------------------------------------


def _web(link: Link) -> Keys:
    """Transfers of 64 KiB on average with an initial window of 10, a fifth of the link."""
    arrivals = round(link.rate_bps * 0.2 / (65536 * 8), 3)
    return {"kind": "web", "size": "exp:64kb", "arrivals": arrivals, "cc": "newreno", "iw": 10, "rtt": link.rtt()}


def _frames(link: Link) -> Keys:
    """Frames, 30 a second, a fifth of the link: packets close together, then a pause."""
    packets = max(1.0, link.rate_bps * 0.2 / 30 / 12_000)
    gap_us = max(1, round(5_000 / packets))
    return {"kind": "onoff", "on": "5ms", "off": "28333us", "gap_on": f"{gap_us}us", "gap_off": "10s",
            "rtt": link.rtt(), "stagger": link.at(1)}  # fmt: skip


def _bursts(video: bool, bulk: bool) -> Callable[[Link, Candidate], Keys]:
    def keys(link: Link, _: Candidate) -> Keys:
        flows = [_web(link), _cbr(link, 0.1)]
        flows += [_frames(link)] if video else []
        flows += [_tcp(link, 2)] if bulk else []
        return _scenario(link, flows)

    return keys


def _burst_measures(runs: Runs, _: Link) -> Measured:
    flows = _only(runs)["flows"]
    cbr = next(flow for flow in flows if flow["kind"] == "cbr")
    frames = next((flow for flow in flows if flow["kind"] == "onoff"), None)
    return {
        "datagram_loss": cbr["loss_rate"],
        "datagram_p95_ms": _p95_beyond_path(cbr),
        "frames_loss": None if frames is None else frames["loss_rate"],
    }


_WEB = at_most("fct_p95_ms", 1.1, f"§2.1, §7.1: bursts of short flows complete as fast as at tail drop; {_CHOICE}")
_ABSORBED = at_most("datagram_loss", 1.0, "§7.1: bursts are absorbed: half a percent more losses at most than at tail "
                    "drop; the slack is quell's choice", slack=0.005)  # fmt: skip
_WHOLE_FRAMES = at_most("frames_loss", 1.0, "§7.1: bursts of frames are absorbed: one percent more losses at most than "
                        "at tail drop; the slack is quell's choice", slack=0.01)  # fmt: skip


def _burst(case: str, video: bool, bulk: bool) -> Entry:
    what = ["web transfers", "datagrams at a tenth of the rate"]
    what += ["video frames in bursts"] if video else []
    what += ["two long NewReno flows"] if bulk else []
    bars = (_WEB, _ABSORBED, *([_WHOLE_FRAMES] if video else []), *([DELAY] if bulk else []))
    about = f"Case {case}: {', '.join(what[:-1])} and {what[-1]}."
    return Entry("7.2", f"bursts, case {case}", MUST, about, (Run("", _bursts(video, bulk)),), bars, _burst_measures)


_SECTION_7 = (
    _burst("I", False, False), _burst("II", False, True), _burst("III", True, False), _burst("IV", True, True),
)  # fmt: skip


# Section 8. ----------------------------------------------------------------------------------------------------------


def _congestion(loss: float) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: _scenario(link, [_tcp(link, _load(link, loss))])


def _level(section: str, name: str, loss: float) -> Entry:
    about = (
        f"As many NewReno flows as lose {100 * loss:g} % of their packets at tail drop. Loss synchronisation is the "
        "share of flows that cut their window together."
    )
    bars = (*_USUAL, FAIRNESS, VARIATION)
    return Entry(section, f"{name} congestion", RECOMMENDED, about, (Run("", _congestion(loss)),), bars)


_PHASE = 20.0


def _varying_congestion(link: Link, _: Candidate) -> Keys:
    mild, medium, heavy = (_load(link, loss) for loss in (_MILD, _MEDIUM, _HEAVY))
    flows = [_tcp(link, mild)]
    for cycle in (0.0, 3 * _PHASE):
        end = cycle + 3 * _PHASE
        flows.append(_late(link, cycle + _PHASE, end, max(1, medium - mild)))
        flows.append(_late(link, cycle + 2 * _PHASE, end, max(1, heavy - medium)))
    return _scenario(link, flows, 6 * _PHASE)


def _varying_capacity(phase: float, seconds: float) -> Callable[[Link, Candidate], Keys]:
    def keys(link: Link, _: Candidate) -> Keys:
        steps = math.ceil(link.seconds(seconds) / phase)
        schedule = [[f"{round(k * phase * 1000)}ms", link.rate(0.1 if k % 2 else 1.0)] for k in range(steps)]
        table = {key: value for key, value in link.table().items() if key != "rate"} | {"schedule": schedule}
        return _scenario(link, [_tcp(link, 2)], seconds, link=table)

    return keys


def _turned(factor: float) -> Callable[[Candidate], str]:
    return lambda candidate: candidate.turned(factor)[0]


def _sensitivity(runs: Runs, _: Link) -> Measured:
    base = runs["as given"]
    goodput = [run["goodput_mbps"] / base["goodput_mbps"] for run in runs.values()]
    delays = [max(run["sojourn_ms"]["mean"], 0.1) / max(base["sojourn_ms"]["mean"], 0.1) for run in runs.values()]
    return {
        "goodput_change": max(abs(ratio - 1) for ratio in goodput),
        "delay_change": max(max(ratio, 1 / ratio) for ratio in delays),
    }


_STEADY = at_most("delay_sd_ms", 0.5, f"§8.1: delay stays stable as load and capacity change; {_CHOICE}")

_SECTION_8 = (
    _level("8.2.2", "mild", _MILD),
    _level("8.2.3", "medium", _MEDIUM),
    _level("8.2.4", "heavy", _HEAVY),
    Entry(
        "8.2.5", "varying congestion", MUST,
        f"Mild, medium and heavy congestion, {_PHASE:g} s each, twice.",
        (Run("", _varying_congestion),), (*_USUAL, _STEADY),
    ),
    Entry(
        "8.2.6", "capacity, slow", MUST,
        f"Two NewReno flows. The capacity is the link's and a tenth of it, {_PHASE:g} s each.",
        (Run("", _varying_capacity(_PHASE, 80)),), (*_USUAL, _STEADY),
    ),
    Entry(
        "8.2.6", "capacity, fast", MUST,
        "Two NewReno flows. The capacity is the link's and a tenth of it, 100 ms each.",
        (Run("", _varying_capacity(0.1, 60)),), (*_USUAL, _STEADY),
    ),
    Entry(
        "8.3", "sensitivity", RECOMMENDED,
        "Medium congestion with the queue's main parameter as given, halved and doubled: its target, else its limit.",
        (Run("as given", _congestion(_MEDIUM)), Run("halved", _congestion(_MEDIUM), _turned(0.5)),
         Run("doubled", _congestion(_MEDIUM), _turned(2.0))),
        (Bar("goodput_change", False, 0.1, f"§8.3: a wrong setting must not cost much; {_CHOICE}", of_reference=False),
         Bar("delay_change", False, 2.2, "§8.3: delay follows the parameter in proportion, and a tenth; quell's choice",
             of_reference=False)),
        _sensitivity, "as given",
    ),
)  # fmt: skip


# Section 9. ----------------------------------------------------------------------------------------------------------


def _mix(cbr: bool, video: bool, bulk: bool) -> Callable[[Link, Candidate], Keys]:
    def keys(link: Link, _: Candidate) -> Keys:
        flows: list[Keys] = [{"kind": "call", "rtt": link.rtt()}, {"kind": "page", "think": "1s", "rtt": link.rtt()}]
        flows += [_cbr(link, 0.1)] if cbr else []
        flows += [{"kind": "video", "rtt": link.rtt()}] if video else []
        flows += [_tcp(link, 2)] if bulk else []
        return _scenario(link, flows, _LONGER)

    return keys


def _experience(runs: Runs, _: Link) -> Measured:
    run = _only(runs)
    return {
        "mos": _apps(run, "call", "mos"),
        "page_ms": _apps(run, "page", "page_load_ms"),
        "stalls": _apps(run, "video", "rebuffer_ratio"),
    }


_VOICE = Bar("mos", True, 3.6, "§9.1: voice quality; 3.6 is the least of medium quality in ITU-T G.109",
             of_reference=False)  # fmt: skip
_PAGES = at_most("page_ms", 1.1, f"§9.1: pages load as fast as at tail drop; {_CHOICE}")
_PLAYS = at_most("stalls", 1.0, "§9.1: video stalls no more than at tail drop; a percent of slack is quell's choice",
                 slack=0.01)  # fmt: skip


def _both_ways(link: Link, candidate: Candidate) -> Keys:
    both = link.table() | {"up": {"queue": candidate.anywhere}}
    return _scenario(link, [_tcp(link, 2), _tcp(link, 2, direction="up")], link=both)


def _upwards(runs: Runs, _: Link) -> Measured:
    run = _only(runs)
    up = sum(flow["goodput_mbps"] for flow in run["flows"] if flow["direction"] == "up")
    return {"up_mbps": up, "up_delay_ms": run["up"]["sojourn_ms"]["mean"]}


_SECTION_9 = (
    Entry(
        "9.1", "voice, web", RECOMMENDED,
        "A voice call and web pages.",
        (Run("", _mix(False, False, False)),), (_VOICE, _PAGES), _experience,
    ),
    Entry(
        "9.1", "voice, web, bulk", RECOMMENDED,
        "A voice call, web pages and two long NewReno flows.",
        (Run("", _mix(False, False, True)),), (_VOICE, _PAGES, *_USUAL), _experience,
    ),
    Entry(
        "9.1", "all together", RECOMMENDED,
        "A voice call, web pages, datagrams at a tenth of the rate, a video stream and two long NewReno flows.",
        (Run("", _mix(True, True, True)),), (_VOICE, _PAGES, _PLAYS, *_USUAL), _experience,
    ),
    Entry(
        "9.2", "bidirectional", MAY,
        "Two NewReno flows in each direction, the same queue in both: data and ACKs share it.",
        (Run("", _both_ways),),
        (*_USUAL, at_least("up_mbps", 0.9, f"§9.2: goodput upwards, too; {_CHOICE}"),
         at_most("up_delay_ms", 0.5, f"§9.2: delay upwards, too; {_CHOICE}")),
        _upwards,
    ),
)  # fmt: skip


# Section 10. ---------------------------------------------------------------------------------------------------------


def _chain(second: Callable[[Link, Candidate], str]) -> Callable[[Link, Candidate], Keys]:
    """Two links of one rate: two flows pass both queues, one the first alone, one the second alone."""

    def keys(link: Link, candidate: Candidate) -> Keys:
        queue = second(link, candidate)
        flows = [_tcp(link, 2), _tcp(link, hops=[0, 0]), _tcp(link, hops=[1, 1])]
        return _scenario(link, flows, _LONGER, hop=[link.table() | {"queue": queue}])

    return keys


def _path(runs: Runs, _: Link) -> Measured:
    run = _only(runs)
    rates = [flow["goodput_mbps"] for flow in run["flows"]]
    delays = [run["sojourn_ms"]["mean"], run["hops"][0]["sojourn_ms"]["mean"]]
    return {"path_delay_ms": math.fsum(delays), "through_mbps": sum(rates[:2]), "total_mbps": sum(rates)}


def _other_aqm(_: Link, candidate: Candidate) -> str:
    return "codel" if candidate.words.split()[0] == "pie" else "pie"


_CHAIN = (
    at_least("total_mbps", 0.9, f"§10.2: goodput, beside tail drop in this queue's place; {_CHOICE}"),
    at_most("path_delay_ms", 0.5, f"§10.2: delay along the path, beside tail drop in this queue's place; {_CHOICE}"),
    at_least("through_mbps", 0.8, f"§10.2: flows that meet both queues keep their goodput; {_CHOICE}"),
)
_ONE_OF_TWO = (
    _CHAIN[0],
    at_most("path_delay_ms", 0.85, f"§10.2: delay along the path, of which the second queue has its part; {_CHOICE}"),
    _CHAIN[2],
)


def _multi(name: str, about: str, second: Callable[[Link, Candidate], str], bars: tuple[Bar, ...]) -> Entry:
    text = f"Two links of one rate in a row. Two NewReno flows pass both, one the first, one the second. {about}"
    return Entry("10.2", name, MAY, text, (Run("", _chain(second)),), bars, _path)


_SECTION_10 = (
    _multi("twice this queue", "Both have this queue.", lambda _, candidate: candidate.anywhere, _CHAIN),
    _multi("before another AQM", "The second has PIE; for PIE, CoDel.", _other_aqm, _CHAIN),
    _multi("before tail drop", "The second has tail drop.", lambda link, _: f"pfifo limit {link.packets}", _ONE_OF_TWO),
)


# Sections 11 and 12. -------------------------------------------------------------------------------------------------


def _same_packets(link: Link, _: Candidate) -> Keys:
    """The same packets for every queue: nobody reacts, and the queue is short."""
    fast = Link(1_000_000_000, link.rtt_s)
    flows = [{"kind": "poisson", "rate": fast.rate(0.225), "count": 4, "rtt": fast.rtt()}]
    return {"duration": "1s", "warmup": "100ms", "link": fast.table(), "flow": flows}


def _cost(runs: Runs, _: Link) -> Measured:
    run = _only(runs)
    # CPU time is that of the whole run, packets those after the warm-up.
    packets = run["packets"] * (run["measured_s"] + 0.1) / run["measured_s"]
    return {"cost_ns": run["cpu_s"] / packets * 1e9}


_SECTIONS_11_12 = (
    Entry(
        "11.2", "cost, ns a packet", MUST,
        "CPU time of a simulated packet, from its source to its receiver, in one run of 70,000 packets that are the same "
        "for every queue (four Poisson flows, 90 % of 1 Gbit/s). The least over the seeds counts: others that use the "
        "machine only add. What exceeds tail drop is the queue's. Memory, state and arithmetic are described with each "
        "queue's source.",
        (Run("", _same_packets),), (), _cost, shown="cost_ns", least=True,
    ),
    Entry(
        "12.2", "parameters", MUST,
        "Parameters and their defaults. Those of a queue that tunes itself can stay as they are on every link; 8.3 "
        "shows what a wrong setting costs.",
        shown="parameters",
    ),
)  # fmt: skip

SUITE: tuple[Entry, ...] = (
    *_SECTION_4, *_SECTION_5, *_SECTION_6, *_SECTION_7, *_SECTION_8, *_SECTION_9, *_SECTION_10, *_SECTIONS_11_12,
)  # fmt: skip
"""Every scenario, in the RFC's order."""

SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(entry.section for entry in SUITE))
"""The sections, in the RFC's order."""
