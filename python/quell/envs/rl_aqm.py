"""The environment of RL-AQM: the drop probability of a FIFO."""

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


class RlAqmOptions(Network, total=False):
    """Options of `RlAqmEnv`."""

    scenario: str | Path | Scenario
    reward_u_power: int
    vary: Mapping[str, Sequence[Any]] | None


def _rl_aqm(
    scenario: str | Path | Scenario = "rl-aqm",
    reward_u_power: int = 2,
    vary: Mapping[str, Sequence[Any]] | None = None,
    **overrides: Unpack[Network],
) -> Task:
    return Task(
        experiment.load(scenario, **overrides),
        steps=(0.0, 0.01, -0.01, 0.1, -0.1),
        reward=f"rlaqm u_power {reward_u_power}",
        vary=vary or {},
    )


class RlAqmEnv(QueueEnv):
    """RL-AQM's queue.

    ## Description
    Every 20 ms the agent changes the probability p with which a FIFO of 5000 packets drops each arrival. The default
    scenario is the paper's: 10 Mbit/s, 20 ms, NewReno in nine sections of 1, 2, 5, 10, 50, 10, 5, 2, 1 flows over 120 s
    (`quell/RlAqm-v0`).

    ## Action Space
    `Discrete(5)`: 0 keeps p, 1 adds 0.01, 2 subtracts 0.01, 3 adds 0.1, 4 subtracts 0.1; p stays within 0 to 0.5.

    ## Observation Space
    `Box((3,), float32)`

    | Num | Observation | Min | Max |
    |-----|-------------|-----|-----|
    | 0 | D: time the queued bytes take at the link's rate, ms | 0 | 1e6 |
    | 1 | U: share of the link's capacity that the last 20 ms used | 0 | 1 |
    | 2 | p: the drop probability | 0 | 0.5 |

    Units are raw, as in the paper; for learning, scale them to D/50 and p/0.5.

    ## Rewards
    (U² - 0.5) + (2 / (1 + D/5) - 1.5), above -2 and at most 1. `reward_u_power=1` uses U in place of U², as in the
    paper's code.

    ## Starting State
    An empty queue, p = 0, U = 0 at time 0.

    ## Episode End
    Truncated after the scenario's 120 s: 6000 steps.

    ## Arguments
    `scenario`, `reward_u_power`, `vary` and the shortcuts of `quell.env` (`rate="100mbit"`, `rtt="100ms"`).
    """

    @keywords(RlAqmOptions)
    def __init__(self, render_mode: str | None = None, **options: Unpack[RlAqmOptions]) -> None:
        super().__init__(_rl_aqm(**options), render_mode)


class RlAqmVectorEnv(QueueVectorEnv):
    """`num_envs` of `RlAqmEnv`, stepped together; see `QueueVectorEnv`."""

    @keywords(RlAqmOptions)
    def __init__(
        self,
        num_envs: int = 1,
        *,
        threads: int = 0,
        render_mode: str | None = None,
        **options: Unpack[RlAqmOptions],
    ) -> None:
        super().__init__(_rl_aqm(**options), num_envs, threads, render_mode)
