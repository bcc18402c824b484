"""The environment of LearnQueue: the limit of a FIFO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from quell import _core
from quell._core import Scenario
from quell.common.names import keywords
from quell.envs.queue import QueueEnv, QueueVectorEnv
from quell.envs.task import Task
from quell.experiments import experiment
from quell.inputs.shortcuts import Network


class LearnQueueOptions(Network, total=False):
    """Options of `LearnQueueEnv`."""

    scenario: str | Path | Scenario | None
    reward: str
    max_size: int | None
    vary: Mapping[str, Sequence[Any]] | None


def _learnqueue(
    scenario: str | Path | Scenario | None = None,
    reward: str = "learnqueue",
    max_size: int | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    **overrides: Unpack[Network],
) -> Task:
    if scenario is None and not overrides.keys() & {"rate", "trace"}:
        overrides = {"rate": "17mbit", "flows": ["cubic:1"], "duration": "100s", **overrides}
    words = reward if max_size is None else f"{reward} max {max_size}"
    limits, initial, period_s = _core.learnqueue_steps(words)
    return Task(
        experiment.load(scenario, **overrides),
        queue=f"fifo limit {limits[-1]}",
        knob="limit",
        bounds=(float(limits[0]), float(limits[-1])),
        initial=float(initial),
        period=period_s,
        steps=(-1.0, 1.0),
        along=[float(limit) for limit in limits],
        observe=("knob", "sojourn_ms", "enqueue_rate"),
        reward=words,
        vary=vary or {},
    )


class LearnQueueEnv(QueueEnv):
    """LearnQueue's queue.

    ## Description
    The decision process of the queue word `learnqueue`: every 15 ms the agent changes a FIFO's limit to the next
    smaller or the next larger of 39 limits from 1 to 400 packets, each 14 % and at least one packet above the previous
    one. The default is one flow of CUBIC over 17 Mbit/s and 20 ms for 100 s (`quell/LearnQueue-v0`).

    ## Action Space
    `Discrete(2)`: 0 is the next smaller limit, 1 the next larger one; at an end of the range the limit stays.

    ## Observation Space
    `Box((3,), float32)`

    | Num | Observation | Min | Max |
    |-----|-------------|-----|-----|
    | 0 | the limit, packets | 1 | 400 |
    | 1 | time in the queue of the packet that left last, ms | 0 | 1e6 |
    | 2 | share of arrivals that found room in the last 15 ms | 0 | 1 |

    The paper's agent observes only the limit.

    ## Rewards
    The reward is x = δ (target - delay) + η target (1 - enqueue_rate), in ms, after action 1, and -x after action 0:
    equation 11 with the sign of the action. δ is 0.5, η 0, the target 30 ms. `reward` takes the options of that queue:
    `learnqueue target 20ms`. With `learnqueue published_reward` the limit moves by one packet, and the reward is
    δ (target - delay) + η (max_delay - target) enqueue_rate for either action, or -max_delay if the limit would leave
    the range (equations 11 to 14; max_delay is the time of 400 packets at 6.5 Mbit/s). No policy that maximises this
    reward holds the target. A queue with a constant limit, as in `baseline`, gets 0 by the first reward.

    ## Starting State
    An empty queue with a limit of one packet. The first action is taken at time 0; the queue word takes its first 15 ms
    later.

    ## Episode End
    Truncated at the scenario's end, 6667 steps.

    ## Arguments
    `scenario`, `reward`, `max_size` (`max` of the `reward`), `vary` and the shortcuts of `quell.env`.
    """

    @keywords(LearnQueueOptions)
    def __init__(self, render_mode: str | None = None, **options: Unpack[LearnQueueOptions]) -> None:
        super().__init__(_learnqueue(**options), render_mode)


class LearnQueueVectorEnv(QueueVectorEnv):
    """`num_envs` of `LearnQueueEnv`, stepped together; see `QueueVectorEnv`."""

    @keywords(LearnQueueOptions)
    def __init__(
        self,
        num_envs: int = 1,
        *,
        threads: int = 0,
        render_mode: str | None = None,
        **options: Unpack[LearnQueueOptions],
    ) -> None:
        super().__init__(_learnqueue(**options), num_envs, threads, render_mode)
