"""The environment of LFQ: the limit of each flow of a fair queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from quell._core import Scenario
from quell.common.names import keywords
from quell.envs.queue import QueueEnv, QueueVectorEnv
from quell.envs.task import Task
from quell.experiments import experiment
from quell.inputs.shortcuts import Network

_LFQ_DRAWS: dict[str, tuple[str, ...]] = {
    "rate": ("5mbit", "25mbit"),
    "rtt": ("5ms", "25ms"),
    "cc": ("newreno", "bic_ns3"),
}


class LfqOptions(Network, total=False):
    """Options of `LfqEnv`."""

    scenario: str | Path | Scenario
    alpha: float
    steps: Sequence[float] | None
    vary: Mapping[str, Sequence[Any]] | None


def _lfq(
    scenario: str | Path | Scenario = "lfq",
    alpha: float = 10.0,
    steps: Sequence[float] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    **overrides: Unpack[Network],
) -> Task:
    return Task(
        experiment.load(scenario, **overrides),
        knob="flow_limit",
        steps=steps,
        reward=f"lfq alpha {alpha:g}",
        vary=_LFQ_DRAWS if vary is None else vary,
    )


class LfqEnv(QueueEnv):
    """LFQ's queue: at every tenth packet of a flow the agent sets that flow's limit.

    ## Description
    A fair queue in which each flow has its own FIFO. At the arrival of a flow's first packet and then of each tenth
    one, the agent sets the FIFO's limit from 60 features of that flow's traffic, before the packet enters. The default
    is one flow of NewReno or BIC for 5 s over 5 to 25 Mbit/s and 5 to 25 ms, drawn at random for every episode
    (`quell/Lfq-v0`).

    ## Action Space
    `Box(0, 1, (1,))`: action a sets the limit to 1000^a packets, rounded, so a = log(limit) / log(1000). With
    `steps=(-1, 1)` it is `Discrete(2)`: one packet less or more.

    ## Observation Space
    `Box((60,), float32)`: moving averages with the weights 2^-5, 2^-6, ..., 2^-14, ten numbers of each kind, as LFQ's
    network reads them (`crates/quell-qdisc/src/control/lfq.rs`)

    | Num | Observation | Min | Max |
    |-----|-------------|-----|-----|
    | 0-9 | backlog, hundreds of packets | 0 | 1e6 |
    | 10-19 | its deviation, hundreds of packets | 0 | 1e6 |
    | 20-29 | limit, hundreds of packets | 0 | 1e6 |
    | 30-39 | arrivals, 10000 packets per second | 0 | 1e6 |
    | 40-49 | departures, 10000 packets per second | 0 | 1e6 |
    | 50-59 | time since the last loss, tens of seconds | 0 | 1e6 |

    ## Rewards
    Megabytes that left the queue since the last decision, less alpha (1/s; default 10) times 1446 bytes for each
    packet-second queued. The sum over an episode is the value of the paper's formula for the episode times its length
    in seconds.

    ## Starting State
    The first packet of the flow arrives at an empty queue with a limit of 1 packet. As in the authors' code, it
    requires two actions.

    ## Episode End
    Truncated at the scenario's end.

    ## Arguments
    `alpha`, `steps`, `scenario`, `vary` (`{}`: the scenario unchanged; rate and round trip are drawn from log-uniform
    distributions) and the shortcuts of `quell.env`.
    """

    @keywords(LfqOptions)
    def __init__(self, render_mode: str | None = None, **options: Unpack[LfqOptions]) -> None:
        super().__init__(_lfq(**options), render_mode)


class LfqVectorEnv(QueueVectorEnv):
    """`num_envs` of `LfqEnv`; see `QueueVectorEnv`. Each runs to its own next decision, so their clocks differ."""

    @keywords(LfqOptions)
    def __init__(
        self,
        num_envs: int = 1,
        *,
        threads: int = 0,
        render_mode: str | None = None,
        **options: Unpack[LfqOptions],
    ) -> None:
        super().__init__(_lfq(**options), num_envs, threads, render_mode)
