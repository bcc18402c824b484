"""RL-AQM: a DQN that sets a FIFO's drop probability each 20 ms.

The default is the usual reading of the paper's "DQN": scaled inputs, a linear head, replay, a target network, Huber's
loss, a fit every fourth step. `as_published` is what the authors' code does: raw inputs, a softmax head that is fitted
to unbounded targets by mean squares, one fit of the last transition per step, no replay and no target network.
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from quell import _core, experiment, files
from quell._core import Scenario
from quell.control import Gauges, Knobs, run_controlled

PERIOD_S = 0.02
STEPS = (0, 1, -1, 10, -10)
"""What each action adds to the drop probability, in hundredths (Table I)."""
MOST = 50
"""Largest drop probability, in hundredths."""
QUEUE = "fifo limit 5000"
VALIDATION = 1_000_000
"""Runs from this number on are the validation's; training never sees them."""

State = tuple[float, float, float]
"""Delay in ms, utilisation, drop probability: raw."""


@dataclass(frozen=True)
class Arguments:
    """What a training is made with; the defaults are the shipped model's."""

    scenario: str = "rl-aqm"
    nic: int = 0
    """Packets that the device holds below the discipline; the authors' device held 5000, so that the delay which their
    controller saw was the excess only."""
    episodes: int = 200
    seed: int = 1
    as_published: bool = False
    hidden: tuple[int, ...] = (3, 32, 32)
    """Widths of the hidden layers, all ReLU."""
    gamma: float = 0.95
    learning_rate: float = 1e-3
    epsilon: float = 0.9
    """Probability of exploring in the first episode."""
    epsilon_decay: float = 0.9
    """Factor after each episode."""
    epsilon_min: float = 0.01
    replay: int = 50_000
    """Transitions kept."""
    batch: int = 64
    fit_every: int = 4
    """Steps between fits."""
    sync_every: int = 1000
    """Fits between copies to the target network."""
    candidates: int = 5
    """Checkpoints of the most rewarding episodes, of which the best on `validation_runs` becomes the model."""
    validation_runs: int = 3
    command: str = "quell train rl-aqm"
    """For the model card."""


@dataclass
class Episode:
    """What came of one run."""

    number: int
    reward: float
    """Mean per decision."""
    delay_ms: float
    """Mean of the delays that the controller saw."""
    utilisation: float
    epsilon: float
    loss: float
    record: dict[str, Any] = field(repr=False, default_factory=dict)


def reward(delay_ms: float, utilisation: float) -> float:
    """Compute the paper's R(U, D): above -2, 1 for a full link and an empty queue."""
    return utilisation**2 - 0.5 + 2.0 / (1.0 + delay_ms / 5.0) - 1.5


class Observer:
    """Turns gauges into states, as quell's controller `rlaqm` does."""

    def __init__(self) -> None:
        self._now, self._bytes, self._rate = 0.0, 0, 1

    def __call__(self, gauges: Gauges, drop: float) -> State:
        """Read the state and start the next period."""
        self._rate = gauges["rate_bps"] or self._rate
        seconds = max(gauges["now"] - self._now, 1e-9)
        sent = gauges["departed_bytes"] - self._bytes
        self._now, self._bytes = gauges["now"], gauges["departed_bytes"]
        return gauges["backlog_bytes"] * 8e3 / self._rate, min(1.0, sent * 8 / (self._rate * seconds)), drop


class Replay:
    """The last so many transitions."""

    def __init__(self, capacity: int) -> None:
        self._rows = torch.zeros(capacity, 8)
        self._next = self.held = 0

    def add(self, before: State, action: int, gain: float, after: State) -> None:
        """Keep one, in place of the oldest where the memory is full."""
        self._rows[self._next] = torch.tensor((*before, action, gain, *after))
        self._next = (self._next + 1) % len(self._rows)
        self.held = max(self.held, self._next)
        if self._next == 0:
            self.held = len(self._rows)

    def draw(self, n: int, generator: torch.Generator) -> torch.Tensor:
        """Draw `n` of them at random."""
        return self._rows[torch.randint(self.held, (n,), generator=generator)]


class Learner:
    """The network, what it learns from, and how."""

    def __init__(self, arguments: Arguments) -> None:
        torch.set_num_threads(1)  # the network is so small that a second thread only waits
        torch.manual_seed(arguments.seed)
        self.arguments = arguments
        widths = (3, *arguments.hidden)
        hidden = [
            layer
            for a, b in pairwise(widths)
            for layer in (nn.Linear(a, b), nn.ReLU())
        ]  # fmt: skip
        head = [nn.Softmax(dim=-1)] if arguments.as_published else []
        self.network = nn.Sequential(*hidden, nn.Linear(widths[-1], len(STEPS)), *head)
        self.target = copy.deepcopy(self.network)
        self.scale = (1.0, 1.0, 1.0) if arguments.as_published else (1 / 50, 1.0, 1 / 0.5)
        self._scale = torch.tensor(self.scale)
        self._optimiser = torch.optim.Adam(self.network.parameters(), lr=arguments.learning_rate, fused=True)
        self._replay = Replay(1 if arguments.as_published else arguments.replay)
        self._generator = torch.Generator().manual_seed(arguments.seed)
        self._steps = self._fits = 0

    def best(self, state: State) -> int:
        """Name the action that the network ranks highest."""
        with torch.inference_mode():
            return int(self.network(torch.tensor(state) * self._scale).argmax())

    def learn(self, before: State, action: int, gain: float, after: State) -> float | None:
        """Take one transition in; return the loss if that made a fit."""
        chosen = self.arguments
        self._steps += 1
        self._replay.add(before, action, gain, after)
        if chosen.as_published:
            return self._fit(1, nn.functional.mse_loss)
        if self._steps % chosen.fit_every or self._replay.held < chosen.batch:
            return None
        loss = self._fit(chosen.batch, nn.functional.smooth_l1_loss)
        if self._fits % chosen.sync_every == 0:
            self.target.load_state_dict(self.network.state_dict())
        return loss

    def _fit(self, batch: int, error: Callable[..., torch.Tensor]) -> float:
        rows = self._replay.draw(batch, self._generator)
        before, action, gain, after = rows[:, 0:3], rows[:, 3:4].long(), rows[:, 4], rows[:, 5:8]
        with torch.no_grad():
            later = (self.network if self.arguments.as_published else self.target)(after * self._scale)
            aim = gain + self.arguments.gamma * later.max(dim=1).values
        values = self.network(before * self._scale)
        if self.arguments.as_published:  # the mean runs over all five outputs, of which four are their own aims
            aims = values.detach().scatter(1, action, aim[:, None])
            loss = error(values, aims)
        else:
            loss = error(values.gather(1, action)[:, 0], aim)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self._optimiser.step()
        self._fits += 1
        value = float(loss.detach())
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss became {value} at step {self._steps}; the last checkpoint is good")
        return value

    def tensors(self) -> dict[str, torch.Tensor]:
        """Copy the weights under the names of quell's policy files."""
        linear = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        names = [f"layers.{i}" for i in range(len(linear) - 1)] + ["heads.0"]
        parts = ("weight", "bias")
        return {f"{n}.{p}": getattr(m, p).detach().clone() for n, m in zip(names, linear, strict=True) for p in parts}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take weights back that `tensors` gave."""
        linear = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        for values, layer in zip(zip(*[iter(tensors.values())] * 2, strict=True), linear, strict=True):
            layer.weight.data.copy_(values[0])
            layer.bias.data.copy_(values[1])


class Agent:
    """The controller of one run: the two rules for an empty queue, exploring, the network; learns if it may."""

    period = PERIOD_S

    def __init__(self, learner: Learner, dice: random.Random, epsilon: float, *, learning: bool = True) -> None:
        self._learner, self._dice, self._epsilon, self._learning = learner, dice, epsilon, learning
        self._observe = Observer()
        self._hundredths = 0
        self._before: tuple[State, int] | None = None
        self.gains: list[float] = []
        self.delays: list[float] = []
        self.utilisations: list[float] = []
        self.losses: list[float] = []

    def decide(self, gauges: Gauges) -> Knobs:
        """Credit the last action, choose the next one."""
        state = self._observe(gauges, self._hundredths / 100)
        gain = reward(state[0], state[1])
        self.gains.append(gain)
        self.delays.append(state[0])
        self.utilisations.append(state[1])
        if self._learning and self._before is not None:
            loss = self._learner.learn(*self._before, gain, state)
            if loss is not None:
                self.losses.append(loss)
        action = self._action(state)
        self._before = state, action
        self._hundredths = min(MOST, max(0, self._hundredths + STEPS[action]))
        return {"drop": self._hundredths / 100}

    def _action(self, state: State) -> int:
        if state[0] < 1.0:
            return 4 if self._hundredths else 0
        if self._dice.random() < self._epsilon:
            return self._dice.randrange(len(STEPS))
        return self._learner.best(state)


def load(arguments: Arguments) -> Scenario:
    """Find the scenario and put the device's queue under its discipline."""
    scenario = experiment.load(arguments.scenario)
    if arguments.nic:
        text = re.sub(r"^nic = .*$", f"nic = {arguments.nic}", scenario.toml(), count=1, flags=re.MULTILINE)
        scenario = Scenario(scenario.name, text=text)
    return scenario


def play(learner: Learner, run: int, number: int, epsilon: float, *, learning: bool) -> Episode:
    """Simulate the scenario's run `run` under the learner's control."""
    scenario = load(learner.arguments)
    dice = random.Random(learner.arguments.seed * 1_000_003 + run)
    agent = Agent(learner, dice, epsilon, learning=learning)
    record = dict(run_controlled(scenario, QUEUE, scenario.run_seed(run), agent, None))
    loss = mean(agent.losses) if agent.losses else 0.0
    return Episode(number, mean(agent.gains), mean(agent.delays), mean(agent.utilisations), epsilon, loss, record)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return math.fsum(values) / len(values)


def train(arguments: Arguments, out: Path, on_episode: Callable[[Episode], object] = lambda _: None) -> dict[str, Any]:
    """Train, write the model to `out` and a checkpoint per episode beside it; return the model card."""
    started = time.monotonic()
    learner = Learner(arguments)
    folder = out.with_name(out.stem + "-checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    kept: list[tuple[float, int, dict[str, torch.Tensor]]] = []
    with (folder / "episodes.jsonl").open("w", encoding="utf-8") as log:
        for number, epsilon in enumerate(epsilons(arguments)):
            episode = play(learner, number, number, epsilon, learning=True)
            tensors = learner.tensors()
            results = {"episode": number, "reward": episode.reward}
            write(folder / f"episode-{number:03}.safetensors", tensors, card(learner, results))
            line = {k: v for k, v in vars(episode).items() if k != "record"}
            log.write(json.dumps(line) + "\n")
            log.flush()
            kept = sorted([*kept, (episode.reward, -number, tensors)], key=lambda k: k[:2])[-arguments.candidates :]
            on_episode(episode)
    judged = [(validate(learner, tensors), -minus, tensors) for _, minus, tensors in kept]
    results, number, tensors = max(judged, key=lambda j: (j[0]["reward"], j[1]))
    results = {"episode": number, **results, "training_s": round(time.monotonic() - started, 1)}
    chosen = card(learner, results)
    write(out, tensors, chosen)
    return chosen


def epsilons(arguments: Arguments) -> Iterator[float]:
    """Give each episode's probability of exploring."""
    for number in range(arguments.episodes):
        yield max(arguments.epsilon_min, arguments.epsilon * arguments.epsilon_decay**number)


def validate(learner: Learner, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Measure weights without exploring on runs that the training did not see."""
    now = learner.tensors()
    learner.load(tensors)
    runs = range(learner.arguments.validation_runs)
    episodes = [play(learner, VALIDATION + run, 0, 0.0, learning=False) for run in runs]
    learner.load(now)
    return {
        "runs": len(episodes),
        "reward": round(mean([e.reward for e in episodes]), 4),
        "delay_ms": round(mean([e.record["sojourn_ms"]["mean"] for e in episodes]), 3),
        "throughput_mbps": round(mean([e.record["throughput_mbps"] for e in episodes]), 4),
    }


def card(learner: Learner, results: dict[str, Any]) -> dict[str, Any]:
    """Describe the model (crates/quell-qdisc/src/policy/card.rs)."""
    chosen = learner.arguments
    names = ("delay_ms", "utilisation", "drop")
    reading = "as published" if chosen.as_published else "default reading"
    return {
        "format": 1,
        "name": "rl-aqm-as-published" if chosen.as_published else "rl-aqm",
        "what": f"RL-AQM ({reading}): ranks five steps of a FIFO's drop probability, every 20 ms",
        "inputs": [{"name": n, "scale": s} for n, s in zip(names, learner.scale, strict=True)],
        "hidden": ["relu"] * len(chosen.hidden),
        "heads": [
            {
                "name": "action",
                "activation": "softmax" if chosen.as_published else "linear",
                "outputs": [f"drop {step / 100:+g}" for step in STEPS],
            }
        ],
        "trained_on": f"{chosen.episodes} episodes of {chosen.scenario}, nic {chosen.nic}; {chosen.command}",
        "seed": chosen.seed,
        "quell": _core.__version__,
        "results": results,
    }


def write(path: Path, tensors: dict[str, torch.Tensor], model_card: dict[str, Any]) -> None:
    """Write a policy file under a temporary name and rename it."""
    data = save(tensors, metadata={"quell": json.dumps(model_card)})
    files.write_whole(path, lambda part: part.write_bytes(data))
