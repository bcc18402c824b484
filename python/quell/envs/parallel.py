"""A path of several queues with an agent at each (PettingZoo, extra `envs`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from quell._core import Scenario
from quell.common.extras import install
from quell.common.names import keywords

try:
    import numpy as np
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise ImportError(f"quell's parallel environments need {error.name}: {install('envs')}") from error

from quell.envs.general import Options, make_task
from quell.envs.task import Observation, Task

__all__ = ["PathEnv", "parallel_env"]


class PathEnv(ParallelEnv[str, Observation, Any]):  # type: ignore[misc]
    """A path in which an agent sets the knob of each queue.

    ## Description
    Packets pass `link`, then `hop1`, `hop2` and so on, the scenario's `[[hop]]` tables. All queues stop every `period`
    seconds at the same instant, and each agent sets the knob of its queue.

    ## Action Space
    For each agent as in `QueueEnv`: `Discrete(n)` with `steps`, else `Box(0, 1, (1,))`.

    ## Observation Space
    For each agent `Box((len(observe),), float32)`: the readings of its queue that `observe` names.

    ## Rewards
    The value of `reward` for the period, per queue.

    ## Starting State
    An empty network. The environment's seed determines each episode's seed and its random values from `vary`.

    ## Episode End
    Truncated for all agents at the scenario's duration; never terminated.
    """

    metadata: dict[str, Any] = {"render_modes": [], "name": "quell_path"}  # noqa: RUF012 (PettingZoo's)
    render_mode = None

    def __init__(self, task: Task) -> None:
        self.task = task
        self._core = task.start([0], threads=1)
        observations, acts = task.spaces(self._core)
        self.possible_agents = ["link", *(f"hop{i}" for i in range(1, self._core.agents))]
        self.agents: list[str] = []
        self.observation_spaces: dict[str, spaces.Space[Any]] = dict.fromkeys(self.possible_agents, observations)
        self.action_spaces: dict[str, spaces.Space[Any]] = dict.fromkeys(self.possible_agents, acts)
        n = len(self.possible_agents)
        self._discrete = task.steps is not None
        self._actions = np.zeros(n, np.int64 if self._discrete else np.float32)
        self._observation = np.zeros((n, *(observations.shape or ())), np.float32)
        self._rewards = np.zeros(n)
        self._over = np.zeros(1, np.uint8)
        self._seeded = False

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return an agent's observation space; always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return an agent's action space; always the same object."""
        return self.action_spaces[agent]

    def readings(self, agent: str) -> dict[str, float]:
        """All readings of an agent's queue in the last period, by name."""
        return self._core.readings(0, self.possible_agents.index(agent))

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Begin an episode; `seed` determines it and all following ones."""
        if seed is None and self._seeded:
            self._core.reset(0)
        else:
            fresh = int(np.random.default_rng().integers(2**63)) if seed is None else seed % 2**64
            self._core.seed(0, fresh)
        self._seeded = True
        self.agents = list(self.possible_agents)
        self._core.observe(self._observation)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Set every knob and run to the next decision. Raises KeyError if an agent's action is missing."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        for i, agent in enumerate(self.agents):
            self._actions[i] = actions[agent] if self._discrete else actions[agent][0]
        act = self._core.step if self._discrete else self._core.step_to
        act(self._actions, self._observation, self._rewards, self._over)
        over, reward = bool(self._over[0]), self.task.reward
        rewards = {
            agent: float(self._rewards[i]) if isinstance(reward, str) else float(reward(self.readings(agent)))
            for i, agent in enumerate(self.agents)
        }
        observations, here = self._observations(), self.agents
        self.agents = [] if over else here
        return (
            observations,
            rewards,
            dict.fromkeys(here, False),
            dict.fromkeys(here, over),
            {agent: {} for agent in here},
        )

    def _observations(self) -> dict[str, Observation]:
        return {agent: self._observation[i].copy() for i, agent in enumerate(self.agents)}


@keywords(Options)
def parallel_env(source: str | Path | Scenario | None = None, **options: Unpack[Options]) -> PathEnv:
    """Make every queue of a scenario's path, `[link]` and its `[[hop]]` tables, an agent of a PettingZoo environment.

    `options` are those of `quell.env`; every queue of the path has the discipline `queue`. Raises InputError.
    """
    return PathEnv(make_task(source, path=True, **options))
