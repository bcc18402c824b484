"""The environment of a queue, alone and as a vector: an agent sets its knob."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from quell._core import InputError
from quell.common.text import counted
from quell.envs import render
from quell.envs.task import SEEDS, Info, Observation, Task


class QueueEnv(gymnasium.Env[Observation, Any]):
    """A queue with a knob that the agent sets.

    ## Description
    A queue in a simulated network stops every `period` seconds; the agent sets one of its knobs. `quell.env` makes it;
    `RlAqmEnv` and `LearnQueueEnv` are two published environments.

    ## Action Space
    `Discrete(n)` if `steps` has n numbers: action k adds `steps[k]` to the knob. Without `steps` `Box(0, 1, (1,))`: a
    share of the knob's range, on a linear (`drop`) or logarithmic scale (`limit`).

    ## Observation Space
    `Box((len(observe),), float32)`, the readings named in `observe` (`quell.envs.READINGS`), in their own units. The
    first observation is that of the empty queue at time 0.

    ## Rewards
    The value of `reward` for the period.

    ## Starting State
    An empty network. The environment's seed determines each episode's seed and its random values from `vary`.

    ## Episode End
    Truncated at the scenario's duration; never terminated.

    ## Info
    Every reading of the period (`quell.envs.READINGS`), by name.

    ## Rendering
    The delay and the knob of the last periods, as a line of text (`ansi`) or a picture (`rgb_array`).
    """

    metadata: dict[str, Any] = {"render_modes": render.MODES, "render_fps": render.FPS}  # noqa: RUF012 (Gymnasium's)

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        _check_render_mode(render_mode, self.metadata["render_modes"])
        self.task = task
        self.render_mode = render_mode
        self._core = task.start([0], threads=1)
        self._chart = None if render_mode is None else render.Chart(task.limits)
        self.observation_space, self.action_space = task.spaces(self._core)  # type: ignore[assignment]
        self._discrete = task.steps is not None
        self._action = np.zeros(1, np.int64 if self._discrete else np.float32)
        self._observation = np.zeros((1, *(self.observation_space.shape or ())), np.float32)
        self._reward = np.zeros(1)
        self._over = np.zeros(1, np.uint8)
        self._seeded = self._ready = False

    @property
    def readings(self) -> dict[str, float]:
        """All readings of the last period, by name."""
        return self._core.readings(0)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        """Begin an episode; `seed` determines it and all following ones."""
        super().reset(seed=seed)
        if seed is None and self._seeded:
            self._core.reset(0)
        else:
            self._core.seed(0, int(self.np_random.integers(SEEDS, dtype=np.uint64)) if seed is None else seed % SEEDS)
        self._seeded = self._ready = True
        self._core.observe(self._observation)
        if self._chart is not None:
            self._chart.clear()
        return self._observation[0].copy(), self.readings

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Set the knob and run to the next decision."""
        if not self._ready:
            raise ResetNeeded("the episode is over, or none began: call reset()")
        self._action[0] = _index(action) if self._discrete else action[0]
        act = self._core.step if self._discrete else self._core.step_to
        act(self._action, self._observation, self._reward, self._over)
        over = bool(self._over[0])
        self._ready = not over
        reward = self.task.reward
        readings = self.readings
        value = float(self._reward[0]) if isinstance(reward, str) else float(reward(readings))
        if self._chart is not None:
            self._chart.add(readings)
        return self._observation[0].copy(), value, False, over, readings

    def render(self) -> Any:
        """Draw the last periods according to `render_mode`; return None without one."""
        if self._chart is None:
            return None
        return self._chart.text() if self.render_mode == "ansi" else self._chart.picture()

    def clone(self) -> Self:
        """Copy the environment in the middle of its episode: the same actions have the same results in both.

        For planners and A/B comparisons. `copy.deepcopy` does the same.
        """
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copied(self, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the task: the copy begins with `reset`, as a new environment."""
        return _remade, (type(self), self.task, self.render_mode, self.spec)


class QueueVectorEnv(VectorEnv[Observation, Any, Any]):
    """`num_envs` of `QueueEnv`, stepped in Rust on `threads` cores (0: all) without the interpreter's lock.

    Autoreset is next-step: the step after an episode's end ignores that environment's action, begins the next episode
    and returns its first observation with reward 0. With the same seeds, trajectories are those of single environments.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, task: Task, num_envs: int = 1, threads: int = 0, render_mode: str | None = None) -> None:
        _check_render_mode(render_mode, self.metadata["render_modes"])
        self.task = task
        self.num_envs = num_envs
        self.threads = threads
        self._core = task.start(range(num_envs), threads)
        self.single_observation_space, self.single_action_space = task.spaces(self._core)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._discrete = task.steps is not None
        self._shape = self.observation_space.shape or ()
        self._never = np.zeros(num_envs, np.bool_)
        self._seeded = False
        self._fresh = np.ones(num_envs, np.bool_)

    def readings(self, index: int) -> dict[str, float]:
        """All readings of environment `index` in its last period, by name."""
        return self._core.readings(index)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode everywhere. An int seeds environment i with `seed + i`; a list has one seed for each."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeds = (
            [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else list(seed or [None] * self.num_envs)
        )
        if len(seeds) != self.num_envs:
            raise ValueError(f"{counted(len(seeds), 'seed')} for {counted(self.num_envs, 'environment')}")
        for i, one in enumerate(seeds):
            if one is None and self._seeded:
                self._core.reset(i)
            else:
                drawn = int(self.np_random.integers(SEEDS, dtype=np.uint64)) if one is None else one % SEEDS
                self._core.seed(i, drawn)
        self._seeded = True
        self._fresh[:] = False
        observations = np.empty(self._shape, np.float32)
        self._core.observe(observations)
        return observations, {}

    def begin(self, indices: Sequence[int] | NDArray[np.int64]) -> Observation:
        """Begin the next episode of some environments at once, without the step that ignores their actions.

        Returns the current observations of all environments.
        """
        for i in indices:
            self._core.reset(int(i))
        self._fresh[indices] = False
        observations = np.empty(self._shape, np.float32)
        self._core.observe(observations)
        return observations

    def step(self, actions: Any) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Set every knob and run to the next decisions; the returned arrays belong to the caller."""
        if not self._seeded:
            raise ResetNeeded("no episode began: call reset()")
        n = self.num_envs
        observations, rewards, over = np.empty(self._shape, np.float32), np.empty(n), np.empty(n, np.uint8)
        if self._discrete:
            actions = np.asarray(actions)
            if actions.dtype.kind not in "iuf" or (actions.dtype.kind == "f" and (actions % 1 != 0).any()):
                raise TypeError(f"actions are indices, whole numbers; these are {actions.tolist()}")
            self._core.step(np.ascontiguousarray(actions, np.int64), observations, rewards, over)
        else:
            self._core.step_to(np.ascontiguousarray(actions, np.float32).reshape(n), observations, rewards, over)
        if not isinstance(self.task.reward, str):
            for i in np.flatnonzero(~self._fresh):
                rewards[i] = self.task.reward(self._core.readings(int(i)))
            self._fresh = over.astype(np.bool_)
        return observations, rewards, self._never.copy(), over.view(np.bool_), {}

    def clone(self) -> Self:
        """Copy all environments in the middle of their episodes: the same actions have the same results in both."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copied(self, memo)


def _index(action: Any) -> int:
    """Return the index of a step. Raises TypeError unless it is a whole number."""
    try:
        return operator.index(action)
    except TypeError:
        if isinstance(action, float | np.floating) and float(action).is_integer():
            return int(action)
        raise TypeError(f"an action is an index, a whole number; this is {action!r}") from None


def _copied(environment: Any, memo: dict[int, Any]) -> Any:
    """Copy an environment: the core clones the worlds, the immutable task is shared, the rest is copied."""
    new = object.__new__(type(environment))
    for name, value in vars(environment).items():
        if name == "_core":
            value = value.clone(environment.threads) if isinstance(environment, QueueVectorEnv) else value.clone(1)
        elif name != "task":
            value = copy.deepcopy(value, memo)
        setattr(new, name, value)
    return new


def _remade(kind: type[QueueEnv], task: Task, render_mode: str | None, spec: Any) -> QueueEnv:
    new = object.__new__(kind)
    QueueEnv.__init__(new, task, render_mode)
    new.spec = spec
    return new


def _check_render_mode(mode: str | None, modes_available: Sequence[str]) -> None:
    """Check that the environment has this render mode. Raises InputError."""
    if mode is not None and mode not in modes_available:
        modes = f"it is one of {', '.join(modes_available)}" if modes_available else "there are none; leave it out"
        raise InputError(f"render_mode: this environment has no mode {mode!r}: {modes}")
