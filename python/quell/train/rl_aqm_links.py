"""Links for training and judging RL-AQM's corrected network: the paper's nine sections over wide ranges."""

from __future__ import annotations

import json
import random
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

import numpy as np

from quell import _core
from quell._core import Scenario
from quell.results.frontier import rl_aqm_reward
from quell.train.kinds import log_uniform

Senders = Literal["newreno", "mixed", "transient"]
"""NewReno, as in the paper; CUBIC with ECN, and BBR; or NewReno flows that arrive and leave continually."""
STAYS_S = 1.0, 6.0
"""Range of a transient flow's duration, s, log-uniform; one arrives per second on average."""
RATES = 5e6, 100e6
"""Range of rates, bit/s, log-uniform."""
RTTS = 10e-3, 100e-3
"""Range of round trips, s."""
Readings = dict[str, Any]
"""Arrays of one value per decision, by name."""
SECONDS = 120.0
"""Length of the paper's runs, s."""
NICS = (0, 100)
STEPS = ("delay_ms", "utilisation", "drop")
"""Inputs of a network whose actions are steps."""


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads(Scenario("rl-aqm").toml())


def link(of: str, index: int, *, nic: int, seconds: float = SECONDS, senders: Senders = "newreno") -> Scenario:
    """Draw link `index` of the set named `of`: the same rate, round trip and senders for each `nic` and length."""
    rng = random.Random(f"rl-aqm {of} {index}")

    rate, one_way_us = log_uniform(rng, *RATES), round(log_uniform(rng, *RTTS) * 5e5)
    scale = seconds / SECONDS

    def ms(text: str) -> str:
        in_ms = float(text[:-2]) if text.endswith("ms") else 1e3 * float(text[:-1])
        return f"{in_ms * scale:.0f}ms"

    rtt = f"{2 * one_way_us}us"
    flows = []
    if senders == "transient":
        start = rng.expovariate(1.0)
        while start < seconds - 0.01:
            stop = min(start + log_uniform(rng, *STAYS_S), seconds)
            times = {"start": f"{1e3 * start:.0f}ms", "stop": f"{1e3 * stop:.0f}ms"}
            flows.append({"cc": "newreno", "rtt": rtt, **times})
            start += rng.expovariate(1.0)
    else:
        for table in _paper()["flow"]:
            own = {**table, "rtt": rtt, "start": ms(table["start"]), "stop": ms(table["stop"])}
            if senders == "mixed":
                own |= rng.choice(({"cc": "cubic", "ecn": True}, {"cc": "bbr"}))
            flows.append(own)
    what: dict[str, Any] = {**_paper()["link"], "rate": f"{rate:.0f}bit", "delay": f"{one_way_us}us", "nic": nic}
    name, duration = f"rl-aqm-{of.replace(' ', '-')}-{index}", f"{seconds * 1e3:.0f}ms"
    return Scenario.from_keys(name=name, duration=duration, warmup="0s", link=cast(Any, what), flow=cast(Any, flows))


# Judging. ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """Results of a run: means over its decisions, and the receivers' goodput."""

    reward: float
    delay_ms: float
    utilisation: float
    goodput_mbps: float


def played(words: str, scenario: Scenario, run: int, *, model: bytes | None = None) -> tuple[Readings, str]:
    """Run `rlaqm` words, or this network; return the inputs by name, and the record."""
    episode = _core.episode(scenario, words, scenario.run_seed(run), model=model)
    card = None if model is None else json.loads(_core.Policy("the model", model).card)
    names = STEPS if card is None else [read["name"] for read in card["inputs"]]
    columns = np.frombuffer(episode.inputs, np.float32).reshape(-1, len(names)).T.astype(float)
    return dict(zip(names, columns, strict=True)), episode.record


def judge(words: str, scenario: Scenario, run: int, *, model: bytes | None = None) -> Judged:
    """Return means and the paper's reward over a run's decisions, for a network that reads delay and utilisation."""
    read, record = played(words, scenario, run, model=model)
    used = read["utilisation"]
    delay = read["delay_ms"] if "delay_ms" in read else np.expm1(read["log_delay"])
    rewards = rl_aqm_reward(delay, used)
    goodput = json.loads(record)["goodput_mbps"]
    return Judged(float(rewards.mean()), float(delay.mean()), float(used.mean()), goodput)
