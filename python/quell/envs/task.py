"""Definition of an environment: scenario, queue, knob, observation, reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from quell.common.extras import install

try:
    import numpy as np
    from gymnasium import spaces
    from numpy.typing import NDArray
except ImportError as error:
    raise ImportError(f"quell's environments need {error.name}: {install('envs')}") from error

from quell import _core
from quell._core import Environments, InputError, Scenario

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
"""The same for an unknown knob, which `Environments` refuses."""
SEEDS = 2**64


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
        """Minimum and maximum of the knob."""
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
            [seed % SEEDS for seed in seeds],
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
