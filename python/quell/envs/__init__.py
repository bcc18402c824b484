"""Environments for reinforcement learning: the agent controls a queue (Gymnasium, extra `envs`).

>>> import gymnasium
>>> import quell
>>> env = gymnasium.make("quell/RlAqm-v0")
>>> envs = gymnasium.make_vec("quell/RlAqm-v0", num_envs=32)       # steps in Rust, on all cores

`import quell` after `import gymnasium`, `import quell.envs`, or a name with its module registers the names:
`gymnasium.make("quell:quell/RlAqm-v0")`.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias, Unpack

from quell.common.extras import install

try:
    import gymnasium
    import numpy as np
    from gymnasium import spaces
    from gymnasium.error import ResetNeeded
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
    from numpy.typing import NDArray
except ImportError as error:
    raise ImportError(f"quell's environments need {error.name}: {install('envs')}") from error

from quell import _core
from quell._core import Environments, InputError, Scenario
from quell.common.names import keywords
from quell.envs import render
from quell.experiments import experiment
from quell.inputs.shortcuts import Network

__all__ = [
    "READINGS",
    "LearnQueueEnv",
    "LearnQueueVectorEnv",
    "LfqEnv",
    "LfqVectorEnv",
    "QueueEnv",
    "QueueVectorEnv",
    "RlAqmEnv",
    "RlAqmVectorEnv",
    "Task",
    "baseline",
    "env",
    "make_task",
    "vector_env",
]

Observation: TypeAlias = "NDArray[np.float32]"
Info: TypeAlias = dict[str, Any]
RewardFunction: TypeAlias = Callable[[Mapping[str, float]], float]

READINGS: dict[str, str] = {name: meaning for name, _, _, meaning in _core.readings()}
"""Readings of a period between two decisions that can be observed, with their meanings."""

_KNOBS: dict[str, tuple[tuple[float, float], float, str]] = {
    "drop": ((0.0, 0.5), 0.0, "fifo limit 5000"),
    "limit": ((1.0, 1000.0), 1000.0, "fifo limit 5000"),
    "base_probability": ((0.0, 1.0), 0.0, "dualpi2"),
    "flow_limit": ((1.0, 1000.0), 1.0, "lfq"),
}
"""For each knob its bounds, its value at the start of an episode, and the queue that has it."""
_OTHER: tuple[tuple[float, float], float, str] = ((0.0, 1.0), 0.0, "fifo")
_SEEDS = 2**64


@dataclass(frozen=True)
class Task:
    """Definition of an environment; see `quell.env` for the meaning of the fields."""

    scenario: Scenario
    queue: str | None = None
    knob: str = "drop"
    bounds: tuple[float, float] | None = None
    initial: float | None = None
    period: float = 0.02
    steps: Sequence[float] | None = None
    along: Sequence[float] | None = None
    """Values of the knob, ascending from bound to bound; steps are then numbers of places along them."""
    observe: Sequence[str] = ("delay_ms", "utilisation", "knob")
    reward: str | RewardFunction = "rlaqm"
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    path: bool = False
    """Whether every queue of the path has an agent, not only the bottleneck."""

    @property
    def limits(self) -> tuple[float, float]:
        """Least and greatest value of the knob."""
        return self.bounds or _KNOBS.get(self.knob, _OTHER)[0]

    def start(self, seeds: Sequence[int], threads: int, *, own_law: bool = False) -> Environments:
        """Build one environment per seed; with `own_law` the queue follows its own law and actions are ignored."""
        if self.knob == "flow_limit" and self.queue is not None:
            raise InputError("queue: the knob flow_limit is that of LFQ's own queue; leave queue out")
        _, initial, queue = _KNOBS.get(self.knob, _OTHER)
        bounds = self.limits
        return Environments(
            self.scenario,
            _core.queue(self.queue or queue),
            [seed % _SEEDS for seed in seeds],
            knob=self.knob,
            bounds=bounds,
            initial=min(max(initial, bounds[0]), bounds[1]) if self.initial is None else self.initial,
            period_s=self.period,
            steps=self.steps,
            along=self.along,
            observe=[self.observe] if isinstance(self.observe, str) else list(self.observe),
            reward=self.reward if isinstance(self.reward, str) else "rlaqm",
            vary=_ranges(self.vary),
            path=self.path,
            own_law=own_law,
            threads=threads,
        )

    def spaces(self, core: Environments) -> tuple[spaces.Box, spaces.Space[Any]]:
        """Return the spaces of one environment's observations and actions."""
        low, high = np.array(core.ranges, dtype=np.float32).T
        observations = spaces.Box(low, high, dtype=np.float32)
        if self.steps is not None:
            return observations, spaces.Discrete(len(self.steps))
        return observations, spaces.Box(0.0, 1.0, (1,), np.float32)


def _ranges(vary: Mapping[str, object]) -> dict[str, list[str]]:
    """Return ranges as lists of text; a single value is a list of one, which only `cc` takes. Raises InputError."""
    if not isinstance(vary, Mapping):
        raise InputError(f'vary: {vary!r} is not a dict of ranges; write vary={{"rate": ("5mbit", "50mbit")}}')
    return {
        key: [str(value) for value in (values if isinstance(values, list | tuple) else [values])]
        for key, values in vary.items()
    }


def _check_render_mode(mode: str | None, modes_available: Sequence[str]) -> None:
    """Check that the environment has this render mode. Raises InputError."""
    if mode is not None and mode not in modes_available:
        modes = f"it is one of {', '.join(modes_available)}" if modes_available else "there are none; leave it out"
        raise InputError(f"render_mode: this environment has no mode {mode!r}: {modes}")


class QueueEnv(gymnasium.Env[Observation, Any]):
    """A queue with a knob that the agent sets.

    ## Description
    A queue in a simulated network stops every `period` seconds; the agent sets one of its knobs. `quell.env` makes it;
    `RlAqmEnv` and `LearnQueueEnv` are two published environments.

    ## Action Space
    `Discrete(n)` if `steps` has n numbers: action k adds the k-th to the knob. Without `steps` `Box(0, 1, (1,))`: a
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
            self._core.seed(0, int(self.np_random.integers(_SEEDS, dtype=np.uint64)) if seed is None else seed % _SEEDS)
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
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        for i, one in enumerate(seeds):
            if one is None and self._seeded:
                self._core.reset(i)
            else:
                drawn = int(self.np_random.integers(_SEEDS, dtype=np.uint64)) if one is None else one % _SEEDS
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
    """Many `RlAqmEnv`."""

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
    limits, initial, period_s = _core.learnqueue_walk(words)
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
    x = δ (target - delay) + η target (1 - enqueue_rate) in ms after an action 1, -x after an action 0: equation 11 with
    the action's sign. δ is 0.5, η 0, the target 30 ms. `reward` takes the options of that queue: `learnqueue target
    20ms`. With `learnqueue published_reward` the limit moves by one packet, and the reward is δ (target - delay) + η
    (max_delay - target) enqueue_rate for either action, or -max_delay if the limit would leave the range (equations 11
    to 14; max_delay is the time of 400 packets at 6.5 Mbit/s). No policy that maximises this reward holds the target. A
    queue with a constant limit, as in `baseline`, gets 0 by the first reward.

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
    """Many `LearnQueueEnv`."""

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


_LFQ_DRAWS: dict[str, tuple[str, ...]] = {
    "rate": ("5mbit", "25mbit"),
    "rtt": ("5ms", "25ms"),
    "cc": ("newreno", "bic"),
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
    one, the agent sets the FIFO's limit from 60 features of that flow's traffic; the packet waits for it. The default
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
    """Many `LfqEnv`. Each runs to its own next decision, so their clocks differ."""

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

    `knob` is `drop` (probability of dropping each arrival, `bounds` 0 to 0.5, `initial` 0), `limit` (packets, 1 to
    1000, 1000) or `base_probability` (p' of coupled queues, 0 to 1, 0); `queue` is the discipline with this knob
    (default: `fifo limit 5000`; for `base_probability` `dualpi2`). `period` is the time between two decisions in
    seconds (0.02). `steps` are the numbers that the discrete actions add to the knob; without them one continuous
    action from 0 to 1 sets it. `observe` lists readings (`quell.envs.READINGS`). `reward` is `rlaqm [u_power 1]`,
    `learnqueue` with that queue's options, `lfq [alpha 10]`, or a function of the readings by name. `vary` has ranges
    from which every episode draws random values:
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
    other than quell's environments.
    """
    task = getattr(env.unwrapped, "task", None)
    if not isinstance(task, Task):
        raise InputError(f"baseline: {env} is not one of quell's environments")
    if task.knob == "flow_limit":
        raise InputError("baseline: LFQ's reward is that of each flow in its own queue; use another environment")
    seeds = [seed % _SEEDS for seed in seeds]
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


for _name in ("RlAqm", "LearnQueue", "Lfq"):
    gymnasium.register(
        id=f"quell/{_name}-v0",
        entry_point=f"quell.envs:{_name}Env",
        vector_entry_point=f"quell.envs:{_name}VectorEnv",
    )
