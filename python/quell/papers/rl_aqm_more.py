"""RL-AQM beyond its figures' means: learning, fairness, sentences of the paper, and a rule without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quell._core import Scenario
from quell.common import files
from quell.inputs.keys import Flow
from quell.papers import curves, rl_aqm_networks
from quell.papers.bench import Bench, mean
from quell.papers.claim import SHARE, Claim, estimate
from quell.papers.study import Study
from quell.results.stats import Record, jain
from quell.views.figures import Axis, Figure, Line, Panel, Table

WIDE, PROCESS = "rl-aqm.wide", "rl-aqm.process"
"""Tables written by `tools/rl_aqm.py`: queues on links not used for any choice; policies of the paper's process."""
WIDE_QUEUES = {
    "default": "rlaqm",
    "corrected": "the corrected network",
    "pi": "PI of three numbers",
}
WIDE_SENDERS = {"newreno": "32 links, NewReno", "mixed": "16 links, CUBIC and BBR, ECN"}
TRANSIENT_QUEUES = {
    **{f"seed {k}": f"a corrected network trained there, seed {k}" for k in range(1, 4)},
    "pi": "PI of three numbers found there",
}
TABLE = "rl-aqm.studies"
"""Table written by `tools/rl_aqm.py`: five trainings above a device of 100 packets at 10 Mbit/s, and five at 100."""
MEASURED_NIC = 100
QUIET_SECTIONS = (0, 1, 7, 8)
"""Sections with one or two flows."""
PERIODS_MS = (1, 2, 5, 10, 20)
FOUND = "found by CMA-ES"

POLICIES = {
    "cma": FOUND,
    **{f"steps{k}": name for k, name in enumerate(rl_aqm_networks.STEPS) if name != rl_aqm_networks.RULE},
}
"""Policies other than the rule, by the row that has them."""

CLAIMS = [
    Claim("F4.reward", "trained above 100 packets: mean reward per decision from episode 10 on", "", 0.82, +1,
          kind="printed", source="Figure 4"),
    Claim("F4.first_delay", "trained above 100 packets: largest delay of the first episode", "ms", 50, -1, digits=1,
          kind="printed", source="Figure 4"),
    Claim("F4.last_delay", "trained above 100 packets: largest delay, mean of the last ten episodes", "ms", 20, -1,
          digits=1, kind="printed", source="Figure 4"),
    Claim("F5.first_epsilon", "probability of exploring, first episode", "", 0.9, 0, kind="printed", source="Figure 5"),
    Claim("F5.last_epsilon", "probability of exploring, least", "", 0.01, 0, digits=3, kind="printed",
          source="Figure 5"),
    Claim("F4.bare.reward", "trained on the bare link: mean reward per decision from episode 10 on"),
    Claim("F4.shipped", "rlaqm, without exploring: reward per decision"),
    Claim("F8.trained.delay", "trained at 100 Mbit/s, there: mean delay", "ms", 0.17, -1, kind="printed",
          source="Figure 8"),
    Claim("F8.trained.thr", "trained at 100 Mbit/s, there: throughput", "Mbit/s", 95.46, +1, kind="printed",
          source="Figure 8", link=100),
    Claim("F8.trained.max", "trained at 100 Mbit/s, there: largest delay", "ms", 2.4, -1, digits=1, kind="printed",
          source="Figure 8"),
    Claim("C.reaction", "100 Mbit/s, 1 or 2 flows: delay of networks trained at 10 Mbit/s over that of those trained "
          "at 100", "", 1.0, +1, kind="claim", source="section IV.C", quote="longer than it is in"),
    Claim("C.utilisation", "10 Mbit/s, nic 100: throughput of rlaqm over PIE's", "", 1 - SHARE, +1, digits=3,
          kind="claim", source="abstract", quote="achieves comparable utilization to PIE"),
    Claim("C.delay", "10 Mbit/s, nic 100: delay of rlaqm over PIE's", "", 0.5, -1, kind="claim", source="abstract",
          quote="much smaller queueing delays"),
    Claim("C.fairness", "10 Mbit/s, nic 100: Jain's index of rlaqm over PIE's, sections of several flows", "",
          1 - SHARE, +1, digits=3, kind="claim", source="section IV.B", quote="also relatively the same"),
    *(
        claim
        for figure, where in (("F6", "10 Mbit/s, 20 ms"), ("F8", "100 Mbit/s, 20 ms"), ("F11", "10 Mbit/s, 100 ms"))
        for claim in (
            Claim(f"{figure}.rule.delay", f"a rule without a network, {where}, nic 100: mean delay", "ms"),
            Claim(f"{figure}.rule.thr", f"a rule without a network, {where}, nic 100: throughput", "Mbit/s"),
        )
    ),
    *(
        claim
        for name, what in (("ecn", "rlaqm ecn, senders with ECN"), ("pi", "PI of three numbers as rlaqm's network"))
        for nic in (0, MEASURED_NIC)
        for claim in (
            Claim(f"F6.{name}.nic{nic}.delay", f"{what}, 10 Mbit/s, 20 ms, nic {nic}: mean delay", "ms"),
            Claim(f"F6.{name}.nic{nic}.thr", f"{what}, 10 Mbit/s, 20 ms, nic {nic}: throughput", "Mbit/s"),
        )
    ),
    *(
        Claim(f"WIDE.{senders}.nic{nic}.{queue}", f"{where}, nic {nic}: reward of {what} less the rule's", digits=3)
        for senders, where in WIDE_SENDERS.items()
        for nic in (0, MEASURED_NIC)
        for queue, what in WIDE_QUEUES.items()
    ),
    *(
        Claim(f"TRANSIENT.nic{nic}.{queue.replace(' ', '')}",
              f"32 links where flows arrive and leave, nic {nic}: reward of {what} less the rule's", digits=3)
        for nic in (0, MEASURED_NIC)
        for queue, what in TRANSIENT_QUEUES.items()
    ),
    *(
        Claim(f"TRANSIENT.nic{nic}.over_pi",
              f"32 links where flows arrive and leave, nic {nic}: mean reward of three networks less PI's", digits=3)
        for nic in (0, MEASURED_NIC)
    ),
    *(
        Claim(f"PROCESS.{key}", f"paper's decision process, nic 100: reward of “{policy}” less the rule's", digits=3)
        for key, policy in POLICIES.items()
    ),
    Claim("PROCESS.asked", "paper's decision process, nic 100: share of the decisions that no rule takes", digits=3),
    Claim("PROCESS.full", "and of those, share at a utilisation of at least 0.95", digits=3),
    *(
        claim
        for nic in (0, MEASURED_NIC)
        for ms in PERIODS_MS
        for claim in (
            Claim(f"period.{ms}ms.nic{nic}.delay", f"rlaqm period {ms}ms, 10 Mbit/s, 20 ms, nic {nic}: mean delay",
                  "ms", detail=ms not in (1, 20)),
            Claim(f"period.{ms}ms.nic{nic}.thr", f"rlaqm period {ms}ms, 10 Mbit/s, 20 ms, nic {nic}: throughput",
                  "Mbit/s", detail=ms not in (1, 20)),
        )
    ),
]  # fmt: skip


Scenarios = Callable[[tuple[int, int], int, Flow | None], Scenario]
"""A function that makes the nine sections: Mbit/s and RTT in ms, packets in the device, other keys of the flows."""


def measure(study: Study, bench: Bench, scenario_of: Scenarios, pie: str, network: str) -> None:
    """Measure and draw all except the shipped network's reward."""
    _learning(study)
    _against_pie(study, bench, scenario_of((10, 20), MEASURED_NIC, None), pie, network)
    _rule(study, bench, scenario_of)
    _periods(study, bench, scenario_of, network)
    _variants(study, bench, scenario_of)
    _other_links(study)
    _process(study)


# Learning. -----------------------------------------------------------------------------------------------------------


def _learning(study: Study) -> None:
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in curves.table(TABLE).to_dicts():
        runs.setdefault((row["study"], row["seed"]), []).append(row)
    at_10 = [run for (name, _), run in runs.items() if name == "10mbit"]
    at_100 = [run for (name, _), run in runs.items() if name == "100mbit"]

    def course(found: Sequence[Sequence[Mapping[str, Any]]]) -> str:
        marks = [k for k in (0, 4, 9, 19, 29, 39) if k < len(found[0])]

        def at(k: int, key: str) -> float:
            return mean(run[k][key] for run in found)

        listed = ", ".join(f"{k + 1}: {at(k, 'reward'):.2f} ({at(k, 'max_delay_ms'):.0f} ms)" for k in marks)
        return f"mean reward and largest delay by episode {listed}"

    why = f"five trainings: {course(at_10)}"
    study.put("F4.reward", estimate(mean(row["reward"] for row in run[10:]) for run in at_10), why)
    study.put("F4.first_delay", estimate(run[0]["max_delay_ms"] for run in at_10), why)
    study.put("F4.last_delay", estimate(mean(row["max_delay_ms"] for row in run[-10:]) for run in at_10), why)
    bare = curves.find("rl-aqm")
    epsilon = bare["epsilon"]
    study.put("F5.first_epsilon", estimate(epsilon[:1]), exact=True)
    study.put("F5.last_epsilon", estimate(epsilon[-1:]), exact=True)
    late = bare["reward"][10:]
    study.put("F4.bare.reward", estimate([sum(late) / len(late)]))
    last = [run[-1] for run in at_100]
    delays = ", ".join(f"{row['delay_100']:.2f} ms" for row in last)
    why = f"by training: {delays}"
    for name, key in (("delay", "delay_100"), ("thr", "throughput_100"), ("max", "max_100")):
        study.put(f"F8.trained.{name}", estimate(run[key] for run in last), why)
    few = [
        mean(a[-1]["sections_100"][k] for k in QUIET_SECTIONS) / mean(b[-1]["sections_100"][k] for k in QUIET_SECTIONS)
        for a, b in zip(at_10, at_100, strict=True)
    ]
    study.put("C.reaction", estimate(few), f"by pair of trainings: {', '.join(f'{ratio:.2f}' for ratio in few)}")
    x = Axis("episode")

    def lines(key: str) -> list[Line]:
        out = [
            Line(f"above 100 packets, seed {k + 1}", [(float(n), row[key]) for n, row in enumerate(run)], "line", k)
            for k, run in enumerate(at_10)
        ]
        return [*out, Line("shipped, bare link", list(zip(bare["step"], bare[key], strict=True)), "line", 5)]

    panels = [
        Panel("Figure 4: reward", x, Axis("reward per decision"), lines("reward")),
        Panel("Figure 4: largest delay", x, Axis("delay, ms", True), lines("max_delay_ms")),
        Panel("Figure 5: exploring", x, Axis("probability"),
              [Line("probability of exploring", list(zip(bare["step"], epsilon, strict=True)), "line", 0)]),
    ]  # fmt: skip
    note = "Five trainings above a device of 100 packets, as in the paper, and that of the shipped network."
    study.figures.insert(0, Figure("F4", "Figures 4 and 5: learning", note, panels))


# Beside PIE. ---------------------------------------------------------------------------------------------------------


def _beside(record: Record) -> tuple[float, float, float]:
    """Return delay, throughput, and Jain's index averaged over the sections with several flows."""
    series = record["series"]
    rates = series["delivered_in_order_mbps"]
    bins = len(series["backlog_ms"]) // 9
    indices = []
    for k, flows in enumerate((1, 2, 5, 10, 50, 10, 5, 2, 1)):
        if flows > 1:
            # The first quarter of a section is left out because flows start or end in it.
            own = sorted((mean(flow[k * bins + bins // 4 : (k + 1) * bins]) for flow in rates), reverse=True)
            indices.append(jain(own[:flows]) or 0.0)
    return record["backlog_ms"]["mean"], record["throughput_mbps"], mean(indices)


def _against_pie(study: Study, bench: Bench, scenario: Scenario, pie: str, network: str) -> None:
    got = bench.seeds_of("Beside PIE", {q: (scenario, q) for q in (network, pie)}, _beside, bin_s=120 / 360)
    pairs = list(zip(got[network], got[pie], strict=True))
    text = "; ".join(
        f"{q} {mean(r[0] for r in runs):.2f} ms, {mean(r[1] for r in runs):.2f} Mbit/s, Jain's index "
        f"{mean(r[2] for r in runs):.3f}"
        for q, runs in got.items()
    )
    for k, row in enumerate(("C.delay", "C.utilisation", "C.fairness")):
        study.put(row, estimate(a[k] / b[k] for a, b in pairs), text)
    study.notes.append(f"Above a device of {MEASURED_NIC} packets, 10 Mbit/s, 20 ms: {text}.")


# Without a network. --------------------------------------------------------------------------------------------------


def always_more() -> bytes:
    """Return the policy file of a network with the constant action "+0.1".

    With the paper's two rules this is: p - 0.1 below a delay of 1 ms, else p + 0.1, with 0 <= p <= 0.5.
    """
    return rl_aqm_networks.steps(*rl_aqm_networks.STEPS[rl_aqm_networks.RULE])


def _pair(record: Record) -> tuple[float, float]:
    return record["backlog_ms"]["mean"], record["throughput_mbps"]


def _rule(study: Study, bench: Bench, scenario_of: Scenarios) -> None:
    links = {"F6": (10, 20), "F8": (100, 20), "F11": (10, 100)}
    with files.temporary_folder("quell-paper-") as folder:
        path = folder / "rule.safetensors"
        path.write_bytes(always_more())
        settings = {f: (scenario_of(link, MEASURED_NIC, None), f"rlaqm model {path}") for f, link in links.items()}
        got = bench.seeds_of("A rule without a network", settings, _pair)
    for figure, runs in got.items():
        study.put(f"{figure}.rule.delay", estimate(delay for delay, _ in runs))
        study.put(f"{figure}.rule.thr", estimate(throughput for _, throughput in runs))


def _periods(study: Study, bench: Bench, scenario_of: Scenarios, network: str) -> None:
    settings = {
        (nic, ms): (scenario_of((10, 20), nic, None), f"{network} period {ms}ms")
        for nic in (0, MEASURED_NIC)
        for ms in PERIODS_MS
    }
    got = bench.seeds_of("Periods", settings, _pair)
    for (nic, ms), runs in got.items():
        study.put(f"period.{ms}ms.nic{nic}.delay", estimate(delay for delay, _ in runs))
        study.put(f"period.{ms}ms.nic{nic}.thr", estimate(throughput for _, throughput in runs))
    rows = [
        [f"{ms} ms", *(
            f"{mean(d for d, _ in got[nic, ms]):.2f} / {mean(t for _, t in got[nic, ms]):.2f}"
            for nic in (0, MEASURED_NIC)
        )]
        for ms in PERIODS_MS
    ]  # fmt: skip
    columns = ["period", *(f"nic {nic}" for nic in (0, MEASURED_NIC))]
    study.tables.append(
        Table("Time between decisions, 10 Mbit/s, 20 ms: delay, ms / throughput, Mbit/s", columns, rows)
    )


# Variants of the controller, and other links. ------------------------------------------------------------------------


def _variants(study: Study, bench: Bench, scenario_of: Scenarios) -> None:
    """Measure marking instead of dropping, and PI in place of the network."""
    with files.temporary_folder("quell-paper-") as folder:
        settings: dict[tuple[str, int], tuple[Scenario, str]] = {}
        for nic in (0, MEASURED_NIC):
            path = folder / f"pi-{nic}.safetensors"
            path.write_bytes(rl_aqm_networks.pi(*rl_aqm_networks.PI[nic]))
            settings["pi", nic] = (scenario_of((10, 20), nic, None), f"rlaqm model {path}")
            settings["ecn", nic] = (scenario_of((10, 20), nic, {"ecn": True}), "rlaqm ecn")
        got = bench.seeds_of("Marks, and PI", settings, _pair)
    for (name, nic), runs in got.items():
        study.put(f"F6.{name}.nic{nic}.delay", estimate(delay for delay, _ in runs))
        study.put(f"F6.{name}.nic{nic}.thr", estimate(throughput for _, throughput in runs))


def _other_links(study: Study) -> None:
    """Add the reward of queues above the rule's, by link."""
    earned: dict[tuple[str, int, str], dict[int, float]] = {}
    for row in curves.table(WIDE).to_dicts():
        earned.setdefault((row["senders"], row["nic"], row["queue"]), {})[row["link"]] = row["reward"]
    for (senders, nic, queue), links in earned.items():
        if queue != "rule":
            rule = earned[senders, nic, "rule"]
            prefix = f"TRANSIENT.nic{nic}" if senders == "transient" else f"WIDE.{senders}.nic{nic}"
            study.put(f"{prefix}.{queue.replace(' ', '')}", estimate(links[k] - rule[k] for k in links))
    for nic in (0, MEASURED_NIC):
        pi = earned["transient", nic, "pi"]
        learned = [earned["transient", nic, queue] for queue in TRANSIENT_QUEUES if queue != "pi"]
        over = estimate(mean(links[k] for links in learned) - pi[k] for k in pi)
        study.put(f"TRANSIENT.nic{nic}.over_pi", over)


def _process(study: Study) -> None:
    """Add the reward of policies of the paper's decision process above the rule's, by link."""
    rows = curves.table(PROCESS).to_dicts()
    earned: dict[str, dict[int, float]] = {}
    for row in rows:
        earned.setdefault(row["policy"], {})[row["link"]] = row["reward"]
    rule = earned[rl_aqm_networks.RULE]
    for key, policy in POLICIES.items():
        study.put(f"PROCESS.{key}", estimate(value - rule[link] for link, value in earned[policy].items()))
    for share in ("asked", "full"):
        study.put(f"PROCESS.{share}", estimate([rows[0][share]]), exact=True)
