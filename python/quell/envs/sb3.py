"""The fast vector environment for stable-baselines3 (extra `sb3`).

>>> from stable_baselines3 import PPO
>>> from quell.envs.sb3 import VectorEnv
>>> PPO("MlpPolicy", VectorEnv("quell/RlAqm-v0", num_envs=16)).learn(100_000)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quell.common.extras import install

try:
    import gymnasium
    import numpy as np
    from numpy.typing import NDArray
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ImportError(f"quell.envs.sb3 needs {error.name}: {install('sb3')}") from error

from quell._core import InputError
from quell.envs.queue import QueueVectorEnv
from quell.envs.task import Observation


class VectorEnv(VecEnv):
    """A `QueueVectorEnv` with stable-baselines3's interface: the step that ends an episode also begins the next.

    `info` at the end of an episode has `terminal_observation`, `TimeLimit.truncated`, `episode` (return `r` and length
    `l`, which stable-baselines3 logs) and `readings` of its last period.
    """

    def __init__(self, env: str | QueueVectorEnv, num_envs: int = 8, **options: Any) -> None:
        made = gymnasium.make_vec(env, num_envs=num_envs, **options) if isinstance(env, str) else env
        if not isinstance(made.unwrapped, QueueVectorEnv):
            raise InputError(
                f"env: {env!r} is not an environment of quell; stable-baselines3's own make_vec_env takes it"
            )
        self.env = made.unwrapped
        self._actions: Any = None
        self._returns = np.zeros(self.env.num_envs)
        self._lengths = np.zeros(self.env.num_envs, np.int64)
        super().__init__(self.env.num_envs, self.env.single_observation_space, self.env.single_action_space)

    def reset(self) -> Observation:
        """Begin an episode in every environment, with the seeds from `seed`."""
        seeds = self._seeds if any(seed is not None for seed in self._seeds) else None
        observations, _ = self.env.reset(seed=seeds)
        self._reset_seeds()
        self._returns[:], self._lengths[:] = 0, 0
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> tuple[Observation, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Do the step; at the end of an episode, the observation is the first one of the next."""
        seen, rewards, _, over, _ = self.env.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self._returns += rewards
        self._lengths += 1
        ended = np.flatnonzero(over)
        for i in ended:
            infos[i] = {
                "terminal_observation": seen[i].copy(),
                "TimeLimit.truncated": True,
                "episode": {"r": float(self._returns[i]), "l": int(self._lengths[i])},
                "readings": self.env.readings(int(i)),
            }
        if len(ended):
            self._returns[ended], self._lengths[ended] = 0, 0
            seen = self.env.begin(ended)
        return seen, rewards.astype(np.float32), over, infos

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector, once per index."""
        return [getattr(self.env, attr_name)] * len(self._indices(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: the environments share one task."""
        raise InputError(f"{attr_name}: the environments of a vector share their attributes; make another vector")

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        """Call a method of the vector that takes an index first, such as `readings`."""
        return [getattr(self.env, method_name)(i, *arguments, **named) for i in self._indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each: no environment has its own wrapper."""
        return [False] * len(self._indices(indices))

    def _indices(self, indices: int | Sequence[int] | None) -> list[int]:
        return [int(i) for i in self._get_indices(indices)]
