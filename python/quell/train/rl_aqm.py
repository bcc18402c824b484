"""RL-AQM: a DQN that sets a FIFO's drop probability each 20 ms.

The default is the usual reading of the paper's "DQN": scaled inputs, a linear head, replay, a target network, Huber's
loss, a fit every fourth step. Rust simulates the next episode during the fits of the current one, with the weights at
their start. `as_published` follows the authors' code: raw inputs, a softmax head that is fitted to unbounded targets by
mean squares, one fit of the last transition after each step, no replay and no target network.
"""

from __future__ import annotations

import copy
import json
import math
import random
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn

from quell import _core
from quell._core import InputError, Scenario
from quell.experiments import experiment
from quell.experiments.executor import HERE, Executor
from quell.results.frontier import rl_aqm_reward
from quell.train import kit

PERIOD_S = 0.02
STEPS = (0, 1, -1, 10, -10)
"""Change of the drop probability by each action, in hundredths (Table I)."""
MAX_DROP = 0.5
"""Largest drop probability."""
EMPTY_MS = 1.0
"""Below this delay two rules take precedence over the network."""
QUEUE = "fifo limit 5000"
VALIDATION = 1_000_000
"""First number of validation runs, which are not used in training."""

State = tuple[float, float, float]
"""Delay in ms, utilisation, drop probability: raw."""


@dataclass(frozen=True)
class Arguments:
    """Parameters of a training."""

    scenario: str = "rl-aqm"
    nic: int | None = None
    """Size of the device's queue below the discipline, packets, in place of the scenario's. The authors' device held up
    to 5000, so their controller saw only the excess delay."""
    episodes: int = 200
    seed: int = 1
    as_published: bool = False
    hidden: tuple[int, ...] = (3, 32, 32)
    """Widths of the hidden layers, all ReLU."""
    utilisation_weight: float = 1.0
    """Factor on the utilisation part of the reward; the paper's is 1."""
    utilisation_power: int = 2
    """Power of the utilisation: 2 as in the paper, 1 as in its code."""
    delay_scale_ms: float = 5.0
    """Delay with half of the cost of an infinite delay; the paper's is 5 ms."""
    gamma: float = 0.95
    learning_rate: float = 1e-3
    epsilon: float = 0.9
    """Probability of exploring in the first episode."""
    epsilon_decay: float = 0.9
    """Factor after each episode."""
    epsilon_min: float = 0.01
    replay: int = 50_000
    """Number of transitions kept."""
    batch: int = 64
    fit_every: int = 4
    """Steps between fits."""
    sync_every: int = 1000
    """Fits between copies to the target network."""
    candidates: int = 20
    """Number of episodes with the highest rewards; of their weights, the best on `validation_runs` become the model."""
    validation_runs: int = 5
    command: str = "quell train rl-aqm"
    """Command on the model card."""

    def reward(self, delay_ms: Any, utilisation: Any) -> Any:
        """Compute the reward with these parameters, for numbers or arrays."""
        return rl_aqm_reward(
            delay_ms, utilisation, weight=self.utilisation_weight, power=self.utilisation_power,
            delay_scale_ms=self.delay_scale_ms,
        )  # fmt: skip


@dataclass
class Episode:
    """One run: states, actions and rewards, and its record."""

    states: torch.Tensor
    """For each decision delay in ms, utilisation, drop probability; raw."""
    actions: torch.Tensor
    rewards: torch.Tensor
    """Reward of the period before each decision."""
    record: dict[str, Any] = field(repr=False, default_factory=dict)
    losses: list[float] = field(repr=False, default_factory=list)

    @property
    def reward(self) -> float:
        """Mean reward per decision."""
        return float(self.rewards.mean())


class Network:
    """A multilayer perceptron with an explicit gradient: it is so small that autograd costs three times the arithmetic.

    All parameters are one vector, which the optimiser changes; weights and biases are views of it.
    """

    def __init__(self, widths: tuple[int, ...], *, softmax: bool) -> None:
        self.softmax = softmax
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]  # for torch's initial values
        self.flat = torch.cat([p.detach().flatten() for layer in layers for p in (layer.weight, layer.bias)])
        self.gradient = torch.zeros_like(self.flat)
        self.layers = self._views(self.flat, widths)
        self._gradients = self._views(self.gradient, widths)

    @staticmethod
    def _views(flat: torch.Tensor, widths: tuple[int, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        views, at = [], 0
        for inputs, outputs in pairwise(widths):
            weight = flat[at : at + inputs * outputs].view(outputs, inputs)
            at += inputs * outputs
            views.append((weight, flat[at : at + outputs]))
            at += outputs
        return views

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the values of the five actions, a row per row of inputs."""
        return self.forward(inputs)[-1]

    def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        """Return the inputs and every layer's outputs."""
        held = [inputs]
        for weight, bias in self.layers[:-1]:
            held.append(torch.addmm(bias, held[-1], weight.t()).relu_())
        weight, bias = self.layers[-1]
        held.append(torch.addmm(bias, held[-1], weight.t()))
        if self.softmax:
            held[-1] = held[-1].softmax(dim=-1)
        return held

    def backward(self, held: list[torch.Tensor], gradient: torch.Tensor) -> None:
        """Compute the gradient of the loss by the parameters from that by the outputs."""
        if self.softmax:
            gradient = held[-1] * (gradient - (gradient * held[-1]).sum(dim=-1, keepdim=True))
        for at in range(len(self.layers) - 1, -1, -1):
            weight, bias = self._gradients[at]
            torch.mm(gradient.t(), held[at], out=weight)
            torch.sum(gradient, dim=0, out=bias)
            if at:
                gradient = torch.mm(gradient, self.layers[at][0]).mul_(held[at] > 0)


class Learner:
    """The network, its replay memory and its fits."""

    def __init__(self, arguments: Arguments) -> None:
        kit.deterministic(arguments.seed)
        self.arguments = arguments
        widths = (3, *arguments.hidden, len(STEPS))
        self.network = Network(widths, softmax=arguments.as_published)
        self.target = copy.deepcopy(self.network)
        self.scale = (1.0, 1.0, 1.0) if arguments.as_published else (1 / 50, 1.0, 1 / MAX_DROP)
        self._scale = torch.tensor(self.scale)
        self._moments = torch.zeros(2, len(self.network.flat))
        self._generator = torch.Generator().manual_seed(arguments.seed)
        self._rows = torch.zeros(0, 8)
        self._fits = 0

    def best(self, state: State) -> int:
        """Return the action with the highest value."""
        return int(self.network(torch.tensor([state]) * self._scale).argmax())

    def learn(self, episode: Episode) -> list[float]:
        """Add an episode's transitions to the replay memory and fit once for every few of them; return the losses."""
        chosen = self.arguments
        before, after = episode.states[:-1], episode.states[1:]
        rows = torch.cat((before, episode.actions[:-1, None], episode.rewards[1:, None], after), dim=1)
        self._rows = torch.cat((self._rows, rows))[-chosen.replay :]
        fits = len(before) // chosen.fit_every
        draws = torch.randint(len(self._rows), (fits, chosen.batch), generator=self._generator)
        inputs, taken = self._rows[:, 0:3] * self._scale, _mask(self._rows[:, 3])
        aims = self._aims(self._rows, self.target)
        losses = []
        for draw in draws:
            if self._fits % chosen.sync_every == 0:
                self.target.flat.copy_(self.network.flat)
                aims = self._aims(self._rows, self.target)
            losses.append(self._fit(inputs[draw], taken[draw], aims[draw]))
        return torch.stack(losses).mean(dim=1).tolist()

    def _fit(self, inputs: torch.Tensor, taken: torch.Tensor, aims: torch.Tensor) -> torch.Tensor:
        """Take one step down Huber's loss of a batch; return the losses."""
        held = self.network.forward(inputs)
        errors = (held[-1] - aims) * taken
        self.network.backward(held, errors.clamp(-1.0, 1.0).div_(len(aims)))
        self._descend()
        off = errors.abs()
        return torch.where(off < 1.0, 0.5 * errors**2, off - 0.5).sum(dim=1)

    def learn_one(self, before: State, action: int, gain: float, after: State) -> float:
        """Fit one transition, as published: mean square over five outputs, four of which are their own targets."""
        row = torch.tensor([[*before, action, gain, *after]])
        held = self.network.forward(row[:, 0:3] * self._scale)
        errors = (held[-1] - self._aims(row, self.network)) * _mask(row[:, 3])
        self.network.backward(held, errors * (2 / len(STEPS)))
        self._descend()
        return float((errors**2).mean())

    def _descend(self) -> None:
        """Take a step of Adam."""
        mean, square = self._moments
        self._fits += 1
        spread = kit.adam(self.network.gradient, mean, square, self._fits)
        self.network.flat.addcdiv_(mean, spread, value=-self.arguments.learning_rate / (1 - 0.9**self._fits))

    def _aims(self, rows: torch.Tensor, judge: Network) -> torch.Tensor:
        """Return the targets of transitions: the reward plus the discounted best value of `judge` after it."""
        later = judge(rows[:, 5:8] * self._scale).amax(dim=1, keepdim=True)
        return rows[:, 4:5] + self.arguments.gamma * later

    def tensors(self) -> dict[str, torch.Tensor]:
        """Copy the weights with their names in quell's policy files."""
        names = [f"layers.{i}" for i in range(len(self.network.layers) - 1)] + ["heads.0"]
        named = zip(names, self.network.layers, strict=True)
        return {f"{n}.{p}": v.clone() for n, layer in named for p, v in zip(("weight", "bias"), layer, strict=True)}

    def start_from(self, model: bytes) -> None:
        """Load the weights of a policy file. Raises InputError if its shape differs."""
        _core.Policy("--from", model)
        tensors = safetensors.torch.load(model)
        for name, value in self.tensors().items():
            if name not in tensors or tensors[name].shape != value.shape:
                widths = ",".join(map(str, self.arguments.hidden))
                raise InputError(f"--from: not a network of five steps with hidden layers of {widths}; see --hidden")
        self.network.flat.copy_(torch.cat([tensors[name].flatten() for name in self.tensors()]))
        self.target = copy.deepcopy(self.network)

    def state(self) -> dict[str, Any]:
        """Return the state on which the next fit depends."""
        return {
            "network": self.network.flat,
            "target": self.target.flat,
            "moments": self._moments,
            "generator": self._generator.get_state(),
            "rows": self._rows,
            "fits": self._fits,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.network.flat.copy_(state["network"])
        self.target.flat.copy_(state["target"])
        self._moments = state["moments"]
        self._generator.set_state(state["generator"])
        self._rows, self._fits = state["rows"], state["fits"]


def _mask(actions: torch.Tensor) -> torch.Tensor:
    """Return each action's row: 1 at its index, 0 elsewhere."""
    return nn.functional.one_hot(actions.long(), len(STEPS)).float()


def load(arguments: Arguments) -> Scenario:
    """Load the scenario and set the device's queue below its discipline."""
    scenario = experiment.load(arguments.scenario)
    return scenario if arguments.nic is None else scenario.replace(link={"nic": arguments.nic})


def simulate(item: tuple[int, float], arguments: Arguments, scenario: Scenario, model: bytes) -> Episode:
    """Simulate a run of the scenario, `(number, epsilon)`, under a network (a policy file), in Rust."""
    run, epsilon = item
    exploration = arguments.seed * 1_000_003 + run
    words = f"rlaqm period {PERIOD_S}s epsilon {epsilon!r}"
    played = _core.episode(scenario, words, scenario.run_seed(run), model=model, explore=exploration)
    seen = torch.frombuffer(bytearray(played.inputs), dtype=torch.float32).reshape(-1, 3)
    taken = torch.frombuffer(bytearray(played.actions), dtype=torch.float32).to(torch.uint8)
    return Episode(seen, taken, arguments.reward(seen[:, 0], seen[:, 1]), json.loads(played.record))


def play(learner: Learner, scenario: Scenario, run: int, epsilon: float) -> Episode:
    """Simulate a run step by step, with a fit after each step, as published."""
    chosen = learner.arguments
    rng = random.Random(chosen.seed * 1_000_003 + run)
    env = _core.Environments(
        scenario, QUEUE, [scenario.run_seed(run)], knob="drop", bounds=(0.0, MAX_DROP), initial=0.0, period_s=PERIOD_S,
        steps=[step / 100 for step in STEPS], observe=["delay_ms", "utilisation", "knob"],
        reward="rlaqm", vary={}, threads=1,
    )  # fmt: skip
    seen, unused, over = np.zeros((1, 3), np.float32), np.zeros(1), np.zeros(1, np.uint8)
    before: State = (0.0, 0.0, 0.0)
    states, actions, rewards, losses = [before], [], [0.0], []
    while not over[0]:
        action = act(learner, before, epsilon, rng)
        env.step(np.array([action]), seen, unused, over)
        after: State = tuple(seen[0].tolist())
        gain = chosen.reward(after[0], after[1])
        losses.append(learner.learn_one(before, action, gain, after))
        states.append(after)
        actions.append(action)
        rewards.append(gain)
        before = after
    return Episode(torch.tensor(states), torch.tensor(actions), torch.tensor(rewards[1:]), losses=losses)


def act(learner: Learner, state: State, epsilon: float, rng: random.Random) -> int:
    """Choose an action: the two rules for an empty queue, exploring, the network."""
    delay_ms, _, drop = state
    if delay_ms < EMPTY_MS:
        return 4 if drop else 0
    if rng.random() < epsilon:
        return rng.randrange(len(STEPS))
    return learner.best(state)


class Episodes:
    """Yields one episode after another; the next one is simulated while the learner fits the current one."""

    def __init__(
        self, learner: Learner, first: int, model: bytes, pool: ThreadPoolExecutor, on: Executor = HERE
    ) -> None:
        self._learner, self._pool, self._on = learner, pool, on
        self._scenario = load(learner.arguments)
        self.model = model
        """The network of the next episode."""
        self._coming = None if learner.arguments.as_published else self._begin(first)

    def _begin(self, number: int) -> Future[list[Episode]]:
        chosen = self._learner.arguments
        item = number, epsilon(chosen, number)
        return self._pool.submit(self._on.map, simulate, [item], chosen, self._scenario, self.model)

    def play(self, number: int) -> Episode:
        """Train the learner with episode `number`."""
        if self._coming is None:
            return play(self._learner, self._scenario, number, epsilon(self._learner.arguments, number))
        (episode,) = self._coming.result()
        self.model = as_file(self._learner)
        if number + 1 < self._learner.arguments.episodes:
            self._coming = self._begin(number + 1)
        episode.losses = self._learner.learn(episode)
        return episode


def train(
    arguments: Arguments,
    out: Path,
    *,
    start: bytes | None = None,
    resume: bool = False,
    tensorboard: Path | None = None,
    on: Executor = HERE,
) -> dict[str, Any]:
    """Train, with a checkpoint after each episode; write the model to `out` and return its card.

    `start` is a model file from whose weights the training continues. The executor `on` simulates; training step by
    step (as published) stays in this process.
    """
    learner = Learner(arguments)
    if start is not None:
        learner.start_from(start)
    model = as_file(learner)
    kept: list[tuple[float, int, dict[str, torch.Tensor]]] = []
    options = kit.options(arguments, start, without=("episodes", "command"))
    options["scenario"] = load(arguments).toml()
    session = kit.Session(
        out, options, total=arguments.episodes, unit="episodes", every=1, resume=resume, tensorboard=tensorboard
    )
    if session.state is not None:
        with session.restoring():
            learner.load_state(session.state["learner"])
            kept = session.state["kept"]
            model = bytes(session.state["model"].tolist())
    with session, ThreadPoolExecutor(1) as pool:
        episodes = Episodes(learner, session.done, model, pool, on)

        def state() -> kit.State:
            held = torch.frombuffer(bytearray(episodes.model), dtype=torch.uint8)
            return {"learner": learner.state(), "kept": kept, "model": held}

        for number in range(session.done, arguments.episodes):
            episode = episodes.play(number)
            kept = sorted([*kept, (episode.reward, -number, learner.tensors())], key=lambda k: k[:2])
            kept = kept[-arguments.candidates :]
            delays = episode.states[:, 0]
            session.point(
                number,
                reward=episode.reward,
                delay_ms=float(delays.mean()),
                max_delay_ms=float(delays.max()),
                utilisation=float(episode.states[:, 1].mean()),
                epsilon=epsilon(arguments, number),
                loss=session.finite("loss", math.fsum(episode.losses) / max(1, len(episode.losses))),
            )
            session.advance(number + 1, f"reward {episode.reward:.3f}, {float(delays.mean()):.1f} ms", state)
        seconds = session.seconds
    judged = [(validate(learner, tensors, on), -minus, tensors) for _, minus, tensors in kept]
    results, number, tensors = max(judged, key=lambda j: (j[0]["reward"], j[1]))
    chosen = card(learner, {"episode": number, **results, "training_s": round(seconds, 1)})
    return kit.write_model(
        out, tensors, chosen, chosen_by=f"greatest mean reward of the last {len(kept)} episodes' weights"
    )


def epsilon(arguments: Arguments, number: int) -> float:
    """Return an episode's probability of exploring."""
    return max(arguments.epsilon_min, arguments.epsilon * arguments.epsilon_decay**number)


def validate(learner: Learner, tensors: dict[str, torch.Tensor], on: Executor = HERE) -> dict[str, Any]:
    """Measure weights without exploring, on runs that are not used in training."""
    chosen = learner.arguments
    scenario, model = load(chosen), as_file(learner, tensors)
    runs = range(VALIDATION, VALIDATION + chosen.validation_runs)
    episodes = on.map(simulate, [(run, 0.0) for run in runs], chosen, scenario, model)
    return {
        "runs": len(episodes),
        "reward": round(mean([e.reward for e in episodes]), 4),
        "delay_ms": round(mean([e.record["sojourn_ms"]["mean"] for e in episodes]), 3),
        "throughput_mbps": round(mean([e.record["throughput_mbps"] for e in episodes]), 4),
    }


def mean(values: list[float]) -> float:
    """Return the arithmetic mean."""
    return math.fsum(values) / len(values)


def as_file(learner: Learner, tensors: dict[str, torch.Tensor] | None = None) -> bytes:
    """Return a policy file's bytes, with the present or the given weights."""
    return kit.model_bytes(tensors or learner.tensors(), card(learner, {}))


def card(learner: Learner, results: dict[str, Any]) -> dict[str, Any]:
    """Describe the model (crates/quell-qdisc/src/policy/card.rs)."""
    chosen = learner.arguments
    names = ("delay_ms", "utilisation", "drop")
    reading = "as published" if chosen.as_published else "default reading"
    paid = f"{chosen.utilisation_weight:g} U^{chosen.utilisation_power} + 2/(1 + D/{chosen.delay_scale_ms:g} ms)"
    device = "" if chosen.nic is None else f"nic {chosen.nic}, "
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
        "trained_on": f"{chosen.episodes} episodes of {chosen.scenario}, {device}reward {paid}; {chosen.command}",
        "seed": chosen.seed,
        "quell": _core.__version__,
        "results": results,
    }
