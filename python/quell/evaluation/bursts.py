"""Section 7 of RFC 7928: absorption of bursts."""

from __future__ import annotations

from collections.abc import Callable

from quell.evaluation.candidate import Candidate
from quell.evaluation.entry import (
    CHOICE,
    DELAY,
    MUST,
    Entry,
    Keys,
    Measured,
    Run,
    Runs,
    application,
    cbr,
    only,
    p95_beyond_path,
    scenario,
    tcp,
)
from quell.evaluation.link import Link
from quell.evaluation.verdict import at_most


def _web(link: Link) -> Keys:
    """Return pages one after another on six connections with an initial window of 10."""
    return {"kind": "page", "http": "http/1.1", "think": "1s", "cc": "newreno", "iw": 10, "rtt": link.rtt()}


def _frames(link: Link) -> Keys:
    """Return 30 frames a second at a fifth of the link's rate: a burst of packets, then a pause."""
    packets = max(1.0, link.rate_bps * 0.2 / 30 / 12_000)
    gap_us = max(1, round(5_000 / packets))
    return {"kind": "onoff", "on": "5ms", "off": "28333us", "gap_on": f"{gap_us}us", "gap_off": "10s",
            "rtt": link.rtt(), "stagger": link.at(1)}  # fmt: skip


def _bursts(video: bool, bulk: bool) -> Callable[[Link, Candidate], Keys]:
    def keys(link: Link, _: Candidate) -> Keys:
        flows = [_web(link), cbr(link, 0.1)]
        flows += [_frames(link)] if video else []
        flows += [tcp(link)] if bulk else []
        return scenario(link, flows)

    return keys


def _burst_measures(runs: Runs, _: Link) -> Measured:
    flows = only(runs)["flows"]
    cbr = next(flow for flow in flows if flow["kind"] == "cbr")
    frames = next((flow for flow in flows if flow["kind"] == "onoff"), None)
    return {
        "page_ms": application(only(runs), "page", "page_load_ms"),
        "datagram_loss": cbr["loss_rate"],
        "datagram_p95_ms": p95_beyond_path(cbr),
        "frames_loss": None if frames is None else frames["loss_rate"],
    }


_WEB = at_most("page_ms", 1.1, f"§2.1, §7.1: pages load as fast as at tail drop; {CHOICE}")
_ABSORBED = at_most("datagram_loss", 1.0, "§7.1: bursts are absorbed: half a percent more losses at most than at tail "
                    "drop; the slack is quell's choice", slack=0.005)  # fmt: skip
_WHOLE_FRAMES = at_most("frames_loss", 1.0, "§7.1: bursts of frames are absorbed: one percent more losses at most than "
                        "at tail drop; the slack is quell's choice", slack=0.01)  # fmt: skip


def _burst(case: str, video: bool, bulk: bool) -> Entry:
    what = ["web pages on six connections", "datagrams at a tenth of the rate"]
    what += ["video frames in bursts"] if video else []
    what += ["a long NewReno flow"] if bulk else []
    bars = (_WEB, _ABSORBED, *([_WHOLE_FRAMES] if video else []), *([DELAY] if bulk else []))
    about = f"Case {case}: {', '.join(what[:-1])} and {what[-1]}."
    return Entry("7.2", f"bursts, case {case}", MUST, about, (Run("", _bursts(video, bulk)),), bars, _burst_measures)


SECTION_7 = (
    _burst("I", False, False), _burst("II", False, True), _burst("III", True, False), _burst("IV", True, True),
)  # fmt: skip
