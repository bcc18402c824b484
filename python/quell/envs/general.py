"""Environments of any scenario, and what a queue earns there under its own law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from quell._core import InputError, Scenario
from quell.common.names import keywords
from quell.envs.queue import QueueEnv, QueueVectorEnv
from quell.envs.task import SEEDS, RewardFunction, Task
from quell.experiments import experiment
from quell.inputs.shortcuts import Network


class Options(Network, total=False):
    """Options of `quell.env`."""

    knob: str
    period: float
    reward: str | RewardFunction
    queue: str | None
    steps: Sequence[float] | None
    observe: Sequence[str]
    bounds: tuple[float, float] | None
    initial: float | None
    vary: Mapping[str, Sequence[Any]] | None


def make_task(
    source: str | Path | Scenario | None = None,
    *,
    knob: str = "drop",
    period: float = 0.02,
    reward: str | RewardFunction = "rlaqm",
    queue: str | None = None,
    steps: Sequence[float] | None = None,
    observe: Sequence[str] = ("delay_ms", "utilisation", "knob"),
    bounds: tuple[float, float] | None = None,
    initial: float | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    path: bool = False,
    **overrides: Unpack[Network],
) -> Task:
    """Describe an environment; the arguments are those of `quell.env`."""
    return Task(
        experiment.load(source, **overrides),
        queue=queue,
        knob=knob,
        bounds=bounds,
        initial=initial,
        period=period,
        steps=steps,
        observe=observe,
        reward=reward,
        vary=vary or {},
        path=path,
    )


@keywords(Options)
def env(source: str | Path | Scenario | None = None, **options: Unpack[Options]) -> QueueEnv:
    """Make the bottleneck of any scenario an environment in which the agent sets a knob.

    `knob` is `drop` (probability of dropping each arrival; `bounds` 0 to 0.5, `initial` 0), `limit` (packets; `bounds`
    1 to 1000, `initial` 1000) or `base_probability` (p' of coupled queues; `bounds` 0 to 1, `initial` 0). `queue` is
    the discipline with this knob (default: `fifo limit 5000`; for `base_probability` `dualpi2`). `period` is the time
    between two decisions in seconds (0.02). `steps` are the numbers that the discrete actions add to the knob; without
    them one continuous action from 0 to 1 sets it. `observe` lists readings (`quell.envs.READINGS`). `reward` is
    `rlaqm [u_power 1]`, `learnqueue` with that queue's options, `lfq [alpha 10]`, or a function of the readings by
    name. `vary` has ranges from which every episode draws random values:
    `{"rate": ("5mbit", "50mbit"), "rtt": ("10ms", "100ms"), "flows": (1, 20), "cc": ("cubic", "bbr")}`; rate and rtt
    are log-uniform, `flows` is the count of each TCP table, and `cc` is drawn for each table. For the rest see
    `quell.scenario`.

    Raises InputError.
    """
    return QueueEnv(make_task(source, **options))


def baseline(
    env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any],
    queue: str,
    *,
    seeds: Sequence[int] = (0,),
    threads: int = 0,
) -> NDArray[np.float64]:
    """Return the sum of rewards that a queue gets under its own law, for one episode per seed, float64.

    To compare an agent, sum its rewards after `env.reset(seed=s)` with the same seeds. `queue` is any queue word
    (`pie`, `fq_codel`, `rlaqm`); `env` is one of quell's environments, wrapped or not; only its task is used.

    >>> env = gymnasium.make("quell/RlAqm-v0")
    >>> quell.envs.baseline(env, "pie", seeds=range(10)).mean()

    Raises InputError for an unknown queue, for LFQ's environment (its reward exists for its own queue only), and for
    environments that are not quell's.
    """
    task = getattr(env.unwrapped, "task", None)
    if not isinstance(task, Task):
        raise InputError(f"baseline: {env} is not one of quell's environments")
    if task.knob == "flow_limit":
        raise InputError("baseline: LFQ's reward is that of each flow in its own queue; use another environment")
    seeds = [seed % SEEDS for seed in seeds]
    core = replace(task, queue=queue).start(seeds, threads, own_law=True)
    n = len(seeds)
    observations = np.empty((n * core.agents, len(core.ranges)), np.float32)
    actions, rewards = np.zeros(n * core.agents, np.float32), np.empty(n * core.agents)
    over, running, total = np.zeros(n, np.uint8), np.ones(n, np.bool_), np.zeros(n)
    while running.any():
        core.step_to(actions, observations, rewards, over)
        if isinstance(task.reward, str):
            earned = rewards.reshape(n, -1).sum(axis=1)
        else:
            earned = np.array(
                [sum(task.reward(core.readings(i, agent)) for agent in range(core.agents)) for i in range(n)],
                np.float64,
            )
        total += np.where(running, earned, 0.0)
        running &= over == 0
    return total


@keywords(Options)
def vector_env(
    source: str | Path | Scenario | None = None, num_envs: int = 8, *, threads: int = 0, **options: Unpack[Options]
) -> QueueVectorEnv:
    """Make `num_envs` of `quell.env(source, **options)`, stepped together in Rust on `threads` cores (0: all)."""
    return QueueVectorEnv(make_task(source, **options), num_envs, threads)
