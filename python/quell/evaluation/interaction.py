"""Section 4 of RFC 7928: packet sizes, ECN and scheduling."""

from __future__ import annotations

from collections.abc import Callable

from quell.evaluation.candidate import Candidate, LeftOut
from quell.evaluation.entry import (
    CHOICE,
    MILD,
    MUST,
    RECOMMENDED,
    Entry,
    Keys,
    Measured,
    Run,
    Runs,
    categories,
    cbr,
    load,
    only,
    p95_beyond_path,
    scenario,
    tcp,
)
from quell.evaluation.link import Link
from quell.evaluation.verdict import Bar, at_most


def _packet_sizes(link: Link, _: Candidate) -> Keys:
    half = max(1, load(link, MILD) // 2)
    return scenario(link, [tcp(link, half, mss=500 - 52), tcp(link, half, mss=1500 - 52)])


def _size_bias(runs: Runs, _: Link) -> Measured:
    flows = only(runs)["flows"]
    near, far = flows[: len(flows) // 2], flows[len(flows) // 2 :]
    # Losses below 0.1 % are only a few packets.
    found = categories(near, far)
    a, b = max(found["cat2_loss"], 0.001), max(found["cat1_loss"], 0.001)
    return {**found, "size_bias": max(a / b, b / a)}


def _ecn(on: bool) -> Callable[[Link, Candidate], Keys]:
    return lambda link, _: scenario(link, [tcp(link, ecn=on), tcp(link, rtt=link.rtt(0.5), ecn=on)])


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
    return scenario(link, [tcp(link, 4, "cubic"), cbr(link, 0.01, 200)])


def _isolation(runs: Runs, _: Link) -> Measured:
    run = only(runs)
    sparse = p95_beyond_path(run["flows"][4])
    whole = run["sojourn_ms"]["p95"]
    return {"sparse_ms": sparse, "isolation": sparse / whole if sparse is not None and whole else None}


SECTION_4 = (
    Entry(
        "4.4", "packet sizes", RECOMMENDED,
        "Mild congestion. Half of the NewReno flows send packets of 500 bytes (category I), half of 1500 (II). Is "
        "the chance of a loss independent of a packet's size?",
        (Run("", _packet_sizes),),
        (Bar("size_bias", False, 2.0, "§4.4 and RFC 7141: losses do not depend on the size; a factor of two is "
             "quell's choice", of_reference=False),),
        _size_bias,
    ),
    Entry(
        "4.5", "ECN", MUST,
        "Two NewReno flows as in 6.2, one with the base round trip and one with half of it, with and without ECN. A "
        "queue that marks only with an option gets the option.",
        (Run("with ECN", _ecn(True), Candidate.with_ecn), Run("without ECN", _ecn(False))),
        (
            Bar("ecn_loss", False, 0.5, "§4.5, RFC 7567 §4.2.1: marks take the place of losses; half is quell's choice",
                of_reference=False),
            Bar("ecn_delay", False, 1.25, f"§4.5: the same delay with ECN; {CHOICE}", of_reference=False),
            Bar("ecn_goodput", True, 0.95, f"§4.5, RFC 8087: no less goodput with ECN; {CHOICE}", of_reference=False),
        ),
        _ecn_effect, "with ECN",
    ),
    Entry(
        "4.6", "scheduling", RECOMMENDED,
        "Four CUBIC flows and a sparse flow of 1 % of the link. Queues that schedule flows keep the sparse flow out of "
        "the others' queue: its delay, and what share it is of the whole queue's, show how the AQM and a scheduler "
        "work together.",
        (Run("", _scheduling),),
        (at_most("sparse_ms", 0.5, f"§4.6: the combination must be feasible; {CHOICE}"),),
        _isolation,
    ),
)  # fmt: skip
