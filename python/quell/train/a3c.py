"""The paper's procedure for coupled queues: A3C, one queue per worker.

Source: Satish, Kua and Pokhrel 2024, section 3.2, and the authors' notebooks. Every worker copies the global network,
acts on its own queue for some periods, and applies its gradients to the global network (quell.train.asynchronous).

After an episode of all workers, the only state is the global network and Adam's moments, since the random numbers of an
episode follow from the seed, the worker and its number. `quell.train.worlds` has the procedure that learns.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from quell import _core
from quell.common import files
from quell.experiments.executor import HERE, Executor
from quell.train import asynchronous, coupled, kit
from quell.train.asynchronous import EpisodeMeans, Global
from quell.train.coupled import MAX_MS, Environment, Floats, Ranges, Step

MIN_SPREAD, MAX_SPREAD = 0.01, 1.0
HALF_MS = 10.0
"""Delay scale of the utility, ms: it charges for the logarithm of 1 + delay / this."""
FIRST_BIAS, FIRST_SLOPE, FIRST_SPREAD = -3.5, 0.125, -3.0
"""The initial actor is tanh(bias + slope * delay in ms), spread 0.05: p' is small up to 15 ms, large from 30 ms on."""
PUBLISHED_DELAY = -15.0
"""The notebooks scale the delay to [-15, 0]; it is also the reward."""
KEEP = 8
"""Number of global networks of the last quarter that are judged; the best one becomes the model."""


@dataclass(frozen=True)
class Arguments:
    """Parameters of the training; the defaults are the paper's."""

    environment: Literal["loop", "lookup"] = "loop"
    reward: Literal["utility", "rtt"] = "utility"
    reward_scale: float = 15.0
    weights: tuple[float, float, float] = (1.0, 0.1, 0.0)
    """Weights of throughput, of the delay's logarithm, and of loss in the utility."""
    workers: int = 4
    episodes: int = 100
    steps: int = 100
    update_every: int = 5
    gamma: float = 0.99
    actor_rate: float = 5e-4
    critic_rate: float = 1e-3
    entropy: float = 0.0
    p_max: float = 1.0
    start: Literal["proportional", "random"] = "proportional"
    """Initial weights of the actor: p' proportional to the delay, or torch's random weights."""
    testbed: bool = False
    """Use only the paper's link instead of 1 to 100 Mbit/s, 10 to 100 ms, 1 to 20 flows in each direction."""
    as_published: bool = False
    """Use gauges as in the kernel's log, scaled by the minima and maxima of a recorded trace."""
    seed: int = 1
    command: str = ""

    def rewards(self, step: Step) -> Floats:
        """Return each sub-queue's reward for a period, as scaled for the learner."""
        if self.reward == "rtt":
            reward = -self.reward_scale * np.minimum(step.delay_ms / MAX_MS, 1.0)
            return np.asarray((reward + 8.0) / 8.0, np.float32)
        throughput, wait, loss = self.weights
        delay = np.log1p(step.delay_ms / HALF_MS)
        return np.asarray(throughput * step.utilisation - wait * delay - loss * step.loss, np.float32)


@dataclass(frozen=True)
class Scaling:
    """Scaling of the actor's inputs: (reading - offset) * scale."""

    offset: Floats
    scale: Floats

    def __call__(self, readings: Floats) -> Tensor:
        """Scale rows of readings."""
        return torch.from_numpy((readings - self.offset) * self.scale)

    def probability(self, actions: Floats) -> Floats:
        """Decode actions to p' by inverting the scaling of `drop_prob`."""
        p = actions / self.scale[1] + self.offset[1]
        return np.asarray(np.clip(p, 0.0, 1.0), np.float32)


def scaling(arguments: Arguments, traces: list[coupled.Trace]) -> Scaling:
    """Return the scaling: by recorded traces if as published, else by the readings' definition; p' from 0 to p_max."""
    if arguments.as_published:
        rows = np.concatenate([t.readings for t in traces])
        low, high = rows.min(axis=0), rows.max(axis=0)
    else:
        high = np.array([most for _, most in coupled.readings(published=False)], np.float32)
        low = np.zeros(12, np.float32)
    span = np.where(high > low, high - low, 1.0).astype(np.float32)
    offset, scale = low.astype(np.float32), (1 / span).astype(np.float32)
    offset[11], scale[11] = 0.0, 1.0
    p_low, p_high = (float(low[1]), float(high[1])) if arguments.environment == "lookup" else (0.0, arguments.p_max)
    offset[1], scale[1] = (p_low + p_high) / 2, 2 / max(p_high - p_low, 1e-6)
    if arguments.as_published:
        scale[2] *= PUBLISHED_DELAY
    return Scaling(offset, scale)


class Networks(nn.Module):
    """Actor 12-32-32-(mean, spread) and critic 12-32-32-16-1, with all parameters in one vector."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.ModuleList([nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 1), nn.Linear(32, 1)])
        self.critic = nn.Sequential(
            nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)
        )
        self.all = list(self.parameters())
        self.flat = kit.in_one_row(self.all)
        self.actor_size = sum(p.numel() for p in self.actor.parameters())

    def begin_proportional(self) -> None:
        """Make the mean action proportional to the delay; all other weights stay random and can be learned."""
        first, second, mean, spread = ({k: p.data for k, p in layer.named_parameters()} for layer in self.actor)
        for layer, unit in ((first, 2), (second, 0)):
            layer["weight"][0] = 0.0
            layer["bias"][0] = 0.0
            layer["weight"][0, unit] = 1.0
        mean["weight"].zero_()
        mean["weight"][0, 0] = FIRST_SLOPE * coupled.readings(published=False)[2][1]
        mean["bias"].fill_(FIRST_BIAS)
        spread["weight"].zero_()
        spread["bias"].fill_(FIRST_SPREAD)

    def act(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the spread of each row's action."""
        first, second, mean, spread = self.actor
        held = second(first(rows).relu()).relu()
        return mean(held).tanh().squeeze(-1), nn.functional.softplus(spread(held)).squeeze(-1)

    def value(self, rows: Tensor) -> Tensor:
        """Return the critic's value of each row."""
        out: Tensor = self.critic(rows)
        return out.squeeze(-1)

    def tensors(self) -> dict[str, Tensor]:
        """Copy the actor's weights with their names in quell's policy files."""
        names = ("layers.0", "layers.1", "heads.0", "heads.1")
        pairs = [(f"{name}.{k}", p) for name, layer in zip(names, self.actor, strict=True)
                 for k, p in layer.named_parameters()]  # fmt: skip
        return {name: p.detach().clone() for name, p in pairs}


def first(arguments: Arguments) -> Networks:
    """Return the initial network."""
    kit.deterministic(arguments.seed)
    networks = Networks()
    if arguments.start == "proportional":
        networks.begin_proportional()
    return networks


class Worker(asynchronous.Worker):
    """A worker of the paper's procedure: its own queue, a gradient every few steps."""

    def __init__(self, number: int, arguments: Arguments, scale: Scaling, traces: list[coupled.Trace]) -> None:
        self._number, self._arguments, self._scale = number, arguments, scale
        self._environment = environment(arguments, number, traces)
        self.networks: Networks = Networks()

    def play(self, number: int) -> Generator[Tensor, None, EpisodeMeans]:
        """Play an episode; yield a gradient every few steps."""
        chosen, networks = self._arguments, self.networks
        rng = torch.Generator().manual_seed(chosen.seed * 1_000_003 + number * 101 + self._number)
        step = self._environment.begin(number)
        held: list[tuple[Tensor, Tensor, Floats, coupled.Flags]] = []
        rewards, delays, uses, spreads, losses = [], [], [], [], []
        for k in range(chosen.steps):
            rows = self._scale(step.readings)
            with torch.no_grad():
                mean, spread = networks.act(rows)
                noise = torch.randn(len(rows), generator=rng)
                actions = (mean + spread * noise).clamp_(-1.0, 1.0)
            busy = step.busy
            step = self._environment.step(np.where(busy, self._scale.probability(actions.numpy()), 0.0))
            gain = chosen.rewards(step)
            held.append((rows, actions, gain, busy))
            if busy.any():
                rewards.append(float(gain[busy].mean()))
                delays.append(float(step.delay_ms[busy].mean()))
                spreads.append(float(spread[torch.from_numpy(busy)].mean()))
            uses.append(step.utilisation)
            if len(held) == chosen.update_every or k + 1 == chosen.steps or step.over:
                if any(b.any() for *_, b in held):
                    gradient, loss = self._gradient(held, self._scale(step.readings))
                    losses.append(loss)
                    yield gradient
                held = []
            if step.over:
                break
        return EpisodeMeans(*(math.fsum(v) / max(1, len(v)) for v in (rewards, delays, uses, spreads, losses)))

    def _gradient(
        self, held: list[tuple[Tensor, Tensor, Floats, coupled.Flags]], after: Tensor
    ) -> tuple[Tensor, float]:
        """Return the gradient of some steps and the critic's loss. Targets are n-step returns."""
        chosen, networks = self._arguments, self.networks
        with torch.no_grad():
            ahead = networks.value(after)
        aims = []
        for _, _, gain, _ in reversed(held):
            ahead = torch.from_numpy(gain) + chosen.gamma * ahead
            aims.append(ahead)
        busy = torch.from_numpy(np.concatenate([b for *_, b in held]))
        rows = torch.cat([h[0] for h in held])[busy]
        actions = torch.cat([h[1] for h in held])[busy]
        aim = torch.cat(aims[::-1])[busy]
        mean, spread = networks.act(rows)
        value = networks.value(rows)
        spread = spread.clamp(MIN_SPREAD, MAX_SPREAD)
        density = -0.5 * ((actions - mean) / spread) ** 2 - spread.log() - 0.5 * math.log(2 * math.pi)
        entropy = spread.log() + 0.5 * math.log(2 * math.pi * math.e)
        policy = -(density * (aim - value.detach()) + chosen.entropy * entropy).sum()
        critic = nn.functional.mse_loss(value, aim)
        parts = torch.autograd.grad(policy + critic, networks.all)
        return torch.cat([g.reshape(-1) for g in parts]), float(critic.detach())


def environment(arguments: Arguments, worker: int, traces: list[coupled.Trace]) -> Environment:
    """Make worker k's environment."""
    if arguments.environment == "lookup":
        return coupled.Lookup(arguments.seed, worker, traces[worker % len(traces)])
    ranges = coupled.PAPER if arguments.testbed else Ranges()
    return coupled.Loop(arguments.seed, worker, ranges, arguments.steps, published=arguments.as_published)


def start_workers(
    arguments: Arguments, shared: Global, scale: Scaling, traces: list[coupled.Trace], on: Executor = HERE
) -> contextlib.AbstractContextManager[asynchronous.Workers | asynchronous.Cluster]:
    """Start workers, which end with the context."""
    return asynchronous.started(Worker, arguments.workers, shared, arguments, scale, traces, on=on)


def start_global(arguments: Arguments) -> Global:
    """Return the global network with its initial weights."""
    return Global(first(arguments), arguments.actor_rate, arguments.critic_rate)


def train(
    arguments: Arguments, out: Path, *, resume: bool = False, tensorboard: Path | None = None, on: Executor = HERE
) -> dict[str, Any]:
    """Train, with a checkpoint after each episode; write the model to `out` and return its card."""
    shared = start_global(arguments)
    traces: list[coupled.Trace] = []
    if arguments.environment == "lookup" or arguments.as_published:
        traces = [coupled.record(arguments.seed, k, published=arguments.as_published) for k in range(4)]
    scale = scaling(arguments, traces)
    kept: list[tuple[float, int, Tensor]] = []
    options = {k: v for k, v in asdict(arguments).items() if k not in ("episodes", "command")}
    session = kit.Session(
        out, options, total=arguments.episodes, unit="episodes", every=1, resume=resume, tensorboard=tensorboard
    )
    if session.state is not None:
        with session.restoring():
            shared.load_state(session.state["global"])
            kept = session.state["kept"]
    with start_workers(arguments, shared, scale, traces, on) as workers, session:

        def state() -> kit.State:
            return {"global": shared.state(), "kept": kept}

        for number in range(session.done, arguments.episodes):
            means = workers.play(number)
            mean = asynchronous.point(session, number, means)
            if number >= arguments.episodes - max(1, arguments.episodes // 4):
                kept = [*kept, (mean.reward, -number, shared.flat.clone())]
            session.advance(number + 1, f"reward {mean.reward:.3f}, {mean.delay_ms:.1f} ms", state)
        seconds = session.seconds
    return _choose(arguments, scale, kept, out, seconds)


def _choose(
    arguments: Arguments, scale: Scaling, kept: list[tuple[float, int, Tensor]], out: Path, seconds: float
) -> dict[str, Any]:
    """Judge the last global networks with separate runs, and write the best one."""
    networks = Networks()
    every = max(1, len(kept) // KEEP)
    judged = []
    for _, minus, flat in kept[::-every]:
        networks.flat.copy_(flat)
        judged.append((judge(arguments, scale, networks), -minus, networks.tensors()))
    best, number, tensors = max(judged, key=lambda j: (j[0]["score"], j[1]))
    rounded = {name: round(value, 4) for name, value in best.items()}
    chosen = card(arguments, scale, {"episode": number, **rounded, "training_s": round(seconds, 1)})
    return kit.write_model(out, tensors, chosen, chosen_by=f"best score of {len(judged)} on the validation scenarios")


def judge(arguments: Arguments, scale: Scaling, networks: Networks) -> dict[str, float]:
    """Compare the mean action with the queue's own law, in scenarios of neither the training nor the held-out sets."""
    with files.temporary_folder("quell-a3c-") as folder:
        path = folder / "judged.safetensors"
        path.write_bytes(as_file(arguments, scale, networks))
        mine, law = (f"a3c_l4s model {path}", coupled.QUEUE)
        got = coupled.held_out([mine, law], settings=coupled.VALIDATION, duration_s=10.0, first_seed=700_001)
    found = coupled.versus(got[mine], got[law])
    score = found["met"] / found["settings"] - 0.1 * math.log(found["mean_delay"])
    return {"score": score, **found}


def as_file(arguments: Arguments, scale: Scaling, networks: Networks) -> bytes:
    """Return a policy file's bytes."""
    return kit.model_bytes(networks.tensors(), card(arguments, scale, {}))


def card(arguments: Arguments, scale: Scaling, results: dict[str, Any]) -> dict[str, Any]:
    """Describe the model (crates/quell-qdisc/src/policy/card.rs)."""
    names = [name for name, _ in coupled.readings(published=arguments.as_published)]
    weights = ", ".join(f"{w:g}" for w in arguments.weights)
    paid = f"-{arguments.reward_scale:g} delay" if arguments.reward == "rtt" else f"utility {weights}"
    low, high = scale.probability(np.array([-1.0, 1.0], np.float32))
    return {
        "format": 1,
        "name": "a3c-l4s-as-published" if arguments.as_published else "a3c-l4s",
        "what": f"A3C-L4S: sets p' of a sub-queue of coupled queues, {low:g} to {high:g}, every 15 ms",
        "inputs": [
            {"name": n, "offset": float(o), "scale": float(s)}
            for n, o, s in zip(names, scale.offset, scale.scale, strict=True)
        ],
        "hidden": ["relu", "relu"],
        "heads": [
            {"name": "mean", "activation": "tanh", "outputs": ["mean action"]},
            {"name": "spread", "activation": "softplus", "outputs": ["spread of actions"]},
        ],
        "trained_on": f"{arguments.workers} workers, {arguments.episodes} episodes of {arguments.steps} steps, "
        f"{arguments.environment}, reward {paid}; {arguments.command}",
        "seed": arguments.seed,
        "quell": _core.__version__,
        "results": results,
    }
