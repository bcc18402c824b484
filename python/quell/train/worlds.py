"""An advantage actor-critic that learns p' of coupled queues from random weights, in many worlds stepped together.

It differs from the paper's procedure (quell.train.a3c) in the points with which that procedure cannot learn, according
to experiments (docs/lab/l4s-a3c.md):

- The actor reads logarithms, and its action is p' on a logarithmic scale from 0.001 to 1, the range of useful values.
- An episode is 15 s long and begins with an empty queue, so that the cost of an idle link is in the same episode.
- Utilisation may exceed 1 in a period, and a link that always had packets to send is not idle.
- Exploration noise is correlated: Prague averages marks over 16 round trips, so a single deviation of 15 ms has no
  effect.
- The critic reads the simulator's state (rate, round trip, flows, backlog, time). A queue needs only the actor.
- Generalised advantage estimates (Schulman et al. 2016) and a clipped ratio (Schulman et al. 2017, equation 7), several
  passes over each batch.
"""

from __future__ import annotations

import json
import math
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from quell import _core
from quell._core import CoupledQueues, InputError
from quell.common import files
from quell.experiments.executor import HERE, Executor
from quell.train import asynchronous, coupled, kit
from quell.train.asynchronous import EpisodeMeans, Global
from quell.train.coupled import PERIOD_S, QUEUE, Floats, Ranges, Setting

MIN_SPREAD, FIRST_SPREAD = 0.1, 0.4
"""Minimum and initial standard deviation of the noise on actions, which are -1 to 1."""
NOISE_LASTS = 0.95
"""Autocorrelation of the noise from one period to the next."""
HALF_MS = 5.0
"""Delay scale of the reward, ms: it charges for the logarithm of 1 + delay / this."""
DISCOUNT, TRACE = 0.997, 0.97
"""Discount per period, and GAE's lambda."""
CLIP, PASSES, BATCH = 0.2, 4, 4096
REACH = 0.1
"""Weight of the squared excess of a mean action beyond -1 to 1, where p' no longer changes."""
ACTOR_NORM, CRITIC_NORM = 0.5, 1.0
"""Largest norms of the gradients, which are scaled down to them."""
EPISODE = 1000
"""Periods of 15 ms."""
PERIODS = 128
"""Periods of every world in a batch."""
WORLDS = 60
MAX_FLOWS, MAX_FEW_FLOWS = 20, 4
UP_TO_MAX = 0.4
"""Share of the worlds that have 1 to MAX_FLOWS flows; the others have 1 to MAX_FEW_FLOWS."""
LOSS = 0.0035
"""Mean loss of throughput, as a share, that validation does not charge for."""
AVERAGED = 20
"""Approximate number of batches over which judged weights are averaged."""
CANDIDATES = 12
"""Number of such means, evenly spaced over the last two fifths, of which validation chooses one."""
READINGS = len(_core.a3c_readings("logarithmic"))
KNOWN = 10
"""Number of the critic's inputs besides the readings."""


@dataclass(frozen=True)
class Arguments:
    """Parameters of the training."""

    workers: int = 1
    episodes: int = 400
    """Batches of each worker."""
    actor_rate: float = 1e-3
    critic_rate: float = 1e-3
    """Learning rate of the critic. Both rates fall to 0."""
    idle_price: float = 160.0
    """Cost of a period in which the link is idle; a delay of 5 ms costs ln 2."""
    seed: int = 1
    command: str = ""


def probability(action: Floats) -> Floats:
    """Decode actions (crates/quell-qdisc/src/control/a3c.rs)."""
    return np.asarray(np.exp(math.log(1e-3) * (1 - np.clip(action, -1, 1)) / 2), np.float32)


class Networks(nn.Module):
    """Actor 9-32-32-1 and critic 19-64-64-1 of tanh units, and the noise's spread; all parameters are one vector."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.ModuleList([nn.Linear(READINGS, 32), nn.Linear(32, 32), nn.Linear(32, 1)])
        self.raw_spread = nn.Parameter(torch.tensor([_raw(FIRST_SPREAD)]))
        self.critic = nn.Sequential(
            nn.Linear(READINGS + KNOWN, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        )
        for layer, gain in zip(self.actor, (2**0.5, 2**0.5, 0.01), strict=True):
            nn.init.orthogonal_(layer.weight, gain)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        self.all = list(self.parameters())
        self.flat = kit.in_one_row(self.all)
        self.actor_size = 1 + sum(p.numel() for p in self.actor.parameters())

    @property
    def spread(self) -> Tensor:
        """Standard deviation of the noise."""
        return MIN_SPREAD + (1 - MIN_SPREAD) * torch.sigmoid(self.raw_spread)

    def act(self, rows: Tensor) -> Tensor:
        """Return the mean action of each row."""
        first, second, last = self.actor
        out: Tensor = last(second(first(rows).tanh()).tanh())
        return out.squeeze(-1)

    def value(self, rows: Tensor) -> Tensor:
        """Return the critic's value of each row: the return, as a mean reward per period."""
        out: Tensor = self.critic(rows)
        return out.squeeze(-1)

    def tensors(self) -> dict[str, Tensor]:
        """Copy the actor's weights with their names in quell's policy files."""
        names = ("layers.0", "layers.1", "heads.0")
        pairs = [(f"{name}.{k}", p) for name, layer in zip(names, self.actor, strict=True)
                 for k, p in layer.named_parameters()]  # fmt: skip
        return {name: p.detach().clone() for name, p in pairs}

    def take(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        with torch.no_grad():
            for value, own in zip(self.actor.parameters(), self.tensors(), strict=True):
                value.copy_(tensors[own])


def _raw(spread: float) -> float:
    """Invert `Networks.spread`."""
    share = (spread - MIN_SPREAD) / (1 - MIN_SPREAD)
    return math.log(share / (1 - share))


@dataclass(frozen=True)
class Shown:
    """Observation of a period: a row per world, and in it a row per sub-queue."""

    readings: Floats
    """(worlds, sub-queues, READINGS)"""
    busy: coupled.Flags
    """(worlds, sub-queues)"""
    known: Floats
    """(worlds, sub-queues, KNOWN): inputs of the critic only."""
    reward: Floats
    """(worlds, sub-queues)"""
    ended: coupled.Flags
    """(worlds,): whether the period was the world's last."""
    utilisation: Floats
    """(worlds,)"""
    backlog_ms: Floats
    """(worlds,)"""


def draw(seed: int, worker: int, world: int, number: int) -> tuple[Setting, int]:
    """Draw the scenario of a world's episode, and its seed."""
    rng, ranges = random.Random(f"worlds {seed} {worker} {world} {number}"), Ranges()
    most = MAX_FLOWS if rng.random() < UP_TO_MAX else MAX_FEW_FLOWS
    setting = (coupled.log_uniform(rng, *ranges.mbps), coupled.log_uniform(rng, *ranges.rtt_ms), rng.randint(1, most))
    return setting, rng.getrandbits(48)


class Worlds:
    """Worlds in all phases of their episodes; a finished one is replaced by a new one.

    Their observations follow from `seed`, `worker` and the probabilities set so far.
    """

    def __init__(self, seed: int, worker: int, count: int, idle_price: float) -> None:
        self._seed, self._worker, self._count, self._idle_price = seed, worker, count, idle_price
        self._periods = 0
        self._number = np.zeros(count, np.int64)
        # The first episodes are shortened in equal steps, so that few end at the same time.
        self._begun = -(EPISODE * np.arange(count) // count)
        self._history: deque[Floats] = deque(maxlen=EPISODE)
        self._make()

    def _make(self) -> None:
        settings, scenarios, seeds = zip(*map(self._drawn, range(self._count)), strict=True)
        self._settings = np.array(settings, np.float32)
        self._fleet = CoupledQueues(scenarios, QUEUE, seeds, observation="logarithmic", period_s=PERIOD_S)
        shape = (self._count, self._fleet.sub_queues)
        self.readings = np.zeros((*shape, READINGS), np.float32)
        """Actor's inputs for each sub-queue of each world."""
        self.busy = np.zeros(shape, np.bool_)
        """Sub-queues that held or got packets."""
        self.reward = np.zeros(shape, np.float32)
        """Reward of the last period."""
        self.utilisation, self.backlog_ms = np.zeros(self._count, np.float32), np.zeros(self._count, np.float32)
        self._delay_ms = np.zeros(shape, np.float32)
        self._smooth = np.ones(self._count, np.float32)
        self._probability = np.zeros(shape, np.float32)

    def _drawn(self, world: int) -> tuple[Setting, _core.Scenario, int]:
        """Draw the present episode of a world."""
        setting, seed = draw(self._seed, self._worker, world, int(self._number[world]))
        mbps, rtt_ms, flows = setting
        length = (EPISODE + 2) * PERIOD_S
        return setting, coupled.router(mbps, rtt_ms, flows, both_ways=False, duration_s=length), seed

    @property
    def ended(self) -> coupled.Flags:
        """Whether each world's episode is over."""
        return np.asarray(self._periods - self._begun >= EPISODE)

    def known(self) -> Floats:
        """Return the critic's inputs besides the readings, (worlds, sub-queues, KNOWN)."""
        mbps, rtt_ms, flows = self._settings.T
        age = (self._periods - self._begun) * PERIOD_S
        whole = [
            np.log(mbps) / 4.6, np.log(rtt_ms / 10) / 2.3, np.log(flows) / 3, np.minimum(self._smooth, 1.5),
            np.log1p(self.backlog_ms / HALF_MS) / 3, np.minimum(age / 5, 1), self.busy.mean(axis=1),
        ]  # fmt: skip
        half = self._fleet.sub_queues // 2
        # Values of the partner sub-queue.
        partner = [np.log1p(self._delay_ms / HALF_MS) / 3, np.log1p(self._probability / 0.01) / 4.6, self.busy]
        columns = [np.repeat(column[:, None], 2 * half, axis=1) for column in whole]
        columns += [np.concatenate([column[:, half:], column[:, :half]], axis=1) for column in partner]
        return np.stack(columns, axis=-1).astype(np.float32)

    def step(self, probabilities: Floats) -> None:
        """Set p' of every sub-queue, (worlds, sub-queues), and simulate a period."""
        self._history.append(probabilities)
        self._step(probabilities)

    def _step(self, probabilities: Floats) -> None:
        period = self._fleet.step(probabilities.astype(np.float32).tobytes())
        shape = self.busy.shape
        self.readings = np.frombuffer(period.readings, np.float32).reshape(*shape, READINGS)
        busy, self._delay_ms, _ = np.moveaxis(np.frombuffer(period.sub_queues, np.float32).reshape(*shape, 3), -1, 0)
        self.busy = busy > 0
        self.utilisation, backlog_ms, _ = np.frombuffer(period.queues, np.float32).reshape(-1, 3).T
        # On a slow link a packet may take longer than a period.
        over = np.maximum(1, np.ceil(8 / self._settings[:, 0]))
        self._smooth = np.asarray(self._smooth + (self.utilisation - self._smooth) / over, np.float32)
        waiting = np.minimum(self.backlog_ms, backlog_ms) > 0
        idle = 1 - np.where(waiting, 1, np.minimum(self._smooth, 1))
        self.reward = np.asarray(-self._idle_price * idle[:, None] - np.log1p(self._delay_ms / HALF_MS), np.float32)
        self.backlog_ms = backlog_ms.copy()
        self._probability = probabilities
        self._periods += 1

    def renew(self) -> None:
        """Replace each world that is over by a new one."""
        for world in np.flatnonzero(self.ended):
            self._number[world] += 1
            self._begun[world] = self._periods
            self._place(int(world))

    def _place(self, world: int) -> None:
        self._settings[world], scenario, seed = self._drawn(world)
        self._fleet.replace(world, scenario, seed)
        self.readings = self.readings.copy()
        self.readings[world] = 0.0
        self.busy[world] = False
        self.backlog_ms[world] = 0.0
        self._smooth[world] = 1.0

    def state(self) -> kit.State:
        """Return the state on which the next period depends."""
        return {
            "periods": self._periods, "number": self._number.tolist(), "begun": self._begun.tolist(),
            "history": torch.from_numpy(np.array(self._history, np.float32)),
        }  # fmt: skip

    def load_state(self, state: kit.State) -> None:
        """Continue from what `state` returned; the present episodes are simulated again."""
        now = state["periods"]
        self._number, self._begun = np.array(state["number"], np.int64), np.array(state["begun"], np.int64)
        self._history.extend(state["history"].numpy())
        self._make()
        self._periods = now - len(self._history)
        for probabilities in self._history:
            for world in np.flatnonzero(self._begun == self._periods):
                self._place(int(world))
            self._step(probabilities)
        for world in np.flatnonzero(self._begun == now):
            self._place(int(world))


@dataclass(frozen=True)
class Scaling:
    """Scaling of the actor's inputs: (reading - offset) * scale."""

    offset: Floats
    scale: Floats

    def __call__(self, readings: Floats) -> Floats:
        """Scale rows of readings."""
        return np.asarray((readings - self.offset) * self.scale, np.float32)


def scaling(seed: int) -> Scaling:
    """Standardise the readings of worlds with constant, log-uniform random p'."""
    worlds = Worlds(seed, -1, WORLDS, 0.0)
    p = probability(np.random.RandomState(seed).uniform(-1, 1, worlds.busy.shape).astype(np.float32))
    seen = []
    for _ in range(2 * PERIODS):
        worlds.step(p)
        seen.append(worlds.readings[worlds.busy])
        worlds.renew()
    rows = np.concatenate(seen)
    return Scaling(rows.mean(axis=0), 1 / (rows.std(axis=0) + np.float32(0.01)))


@dataclass
class Batch:
    """Observations and actions of busy sub-queues in PERIODS periods."""

    rows: Tensor
    known: Tensor
    actions: Tensor
    advantages: Tensor
    returns: Tensor
    """Returns as mean rewards per period."""


class Worker(asynchronous.Worker):
    """A worker with its share of the worlds and its copy of the network. An episode of a worker is one batch."""

    def __init__(self, number: int, arguments: Arguments, scale: Scaling) -> None:
        share = -(-WORLDS // arguments.workers)
        self._worlds = Worlds(arguments.seed, number, share, arguments.idle_price)
        self._scale = scale
        self._generator = torch.Generator().manual_seed(arguments.seed * 1_000_003 + number)
        self._noise = torch.randn(self._worlds.busy.shape, generator=self._generator)
        self.networks: Networks = Networks()

    def state(self) -> kit.State:
        """Return the state on which the next batch depends."""
        return {"worlds": self._worlds.state(), "noise": self._noise.clone(), "generator": self._generator.get_state()}

    def load_state(self, state: kit.State) -> None:
        """Continue where `state` was taken."""
        self._worlds.load_state(state["worlds"])
        self._noise = state["noise"].clone()
        self._generator.set_state(state["generator"])

    def _inputs(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self._scale(self._worlds.readings)), torch.from_numpy(self._worlds.known())

    def _value(self, rows: Tensor, known: Tensor) -> Tensor:
        return self.networks.value(torch.cat([rows, known], dim=-1)) / (1 - DISCOUNT)

    def _collect(self) -> tuple[Batch, EpisodeMeans]:
        """Act for PERIODS periods in all worlds."""
        worlds, networks = self._worlds, self.networks
        kept = math.sqrt(1 - NOISE_LASTS**2)
        held: list[tuple[Tensor, ...]] = []
        uses, waits, rewards = [], [], []
        with torch.no_grad():
            spread = networks.spread
            rows, known = self._inputs()
            value = self._value(rows, known)
            for _ in range(PERIODS):
                fresh = torch.randn(self._noise.shape, generator=self._generator)
                self._noise = NOISE_LASTS * self._noise + kept * fresh
                actions = networks.act(rows) + spread * self._noise
                busy = torch.from_numpy(worlds.busy.copy())
                worlds.step(np.where(worlds.busy, probability(actions.numpy()), np.float32(0)))
                uses.append(np.minimum(worlds.utilisation, 1.2).mean())
                waits.append(worlds.backlog_ms.mean())
                rewards.append(worlds.reward[worlds.busy].sum() / max(1, worlds.busy.sum()))
                reward = torch.from_numpy(worlds.reward)
                ended = torch.from_numpy(worlds.ended)[:, None].expand_as(busy)
                after_rows, after_known = self._inputs()
                # A truncated episode would continue, so the critic's value is used for the rest.
                after = self._value(after_rows, after_known)
                held.append((rows, known, actions, busy, value, reward + DISCOUNT * after - value, ended))
                worlds.renew()
                rows, known = self._inputs()
                value = torch.where(ended, self._value(rows, known), after)
        advantage, advantages = torch.zeros_like(value), []
        for *_, delta, ended in reversed(held):
            advantage = delta + DISCOUNT * TRACE * torch.where(ended, 0.0, advantage)
            advantages.append(advantage)
        row, know, action, use, values, deltas, _ = (torch.stack(column) for column in zip(*held, strict=True))
        gain = torch.stack(advantages[::-1])[use]
        means = EpisodeMeans(
            reward=float(np.mean(rewards)), delay_ms=float(np.mean(waits)), utilisation=float(np.mean(uses)),
            spread=float(spread), loss=float(deltas[use].square().mean() * (1 - DISCOUNT) ** 2),
        )  # fmt: skip
        batch = Batch(
            row[use], know[use], action[use], (gain - gain.mean()) / (gain.std() + 1e-6),
            (gain + values[use]) * (1 - DISCOUNT),
        )  # fmt: skip
        return batch, means

    def play(self, number: int) -> Generator[Tensor, None, EpisodeMeans]:
        """Act for a batch; yield the gradients of several passes over it."""
        (batch, means), networks = self._collect(), self.networks
        with torch.no_grad():
            spread, mean = networks.spread, networks.act(batch.rows)
            before = -0.5 * ((batch.actions - mean) / spread) ** 2 - spread.log()
        for _ in range(PASSES):
            order = torch.randperm(len(batch.rows), generator=self._generator)
            for some in order.split(BATCH):
                rows, advantages = batch.rows[some], batch.advantages[some]
                spread, mean = networks.spread, networks.act(rows)
                density = -0.5 * ((batch.actions[some] - mean) / spread) ** 2 - spread.log()
                ratio = (density - before[some]).exp()
                gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
                reach = (mean.abs() - 1).clamp(min=0).square().mean()
                value = networks.value(torch.cat([rows, batch.known[some]], dim=-1))
                loss = -gain + REACH * reach + 0.5 * nn.functional.mse_loss(value, batch.returns[some])
                parts = torch.autograd.grad(loss, networks.all)
                yield _limited(torch.cat([g.reshape(-1) for g in parts]), networks.actor_size)
        return means


def _limited(gradient: Tensor, actor_size: int) -> Tensor:
    """Scale the actor's and the critic's parts down to their largest norms."""
    for part, most in ((gradient[:actor_size], ACTOR_NORM), (gradient[actor_size:], CRITIC_NORM)):
        part.mul_(min(1.0, most / (float(part.norm()) + 1e-9)))
    return gradient


def continued(model: bytes) -> tuple[Scaling, dict[str, Tensor]]:
    """Return scaling and actor's weights of a policy file. Raises InputError if its shape differs."""
    inputs = json.loads(_core.Policy("--from", model).card)["inputs"]
    tensors, own = safetensors.torch.load(model), Networks().tensors()
    same = {name: value.shape for name, value in tensors.items()} == {name: v.shape for name, v in own.items()}
    if not same or [read["name"] for read in inputs] != _core.a3c_readings("logarithmic"):
        raise InputError("--from: not a network of many worlds: it reads or gives something else")
    offset, scale = (np.array([read[key] for read in inputs], np.float32) for key in ("offset", "scale"))
    return Scaling(offset, scale), tensors


def train(
    arguments: Arguments,
    out: Path,
    *,
    start: bytes | None = None,
    resume: bool = False,
    tensorboard: Path | None = None,
    on: Executor = HERE,
) -> dict[str, Any]:
    """Train, with a checkpoint after every ten batches; write the model to `out` and return its card.

    `start` is a model file from whose actor the training continues; the critic starts from the beginning.
    """
    kit.deterministic(arguments.seed)
    scale, weights = (scaling(arguments.seed), None) if start is None else continued(start)
    kit.deterministic(arguments.seed)
    first = Networks()
    if weights is not None:
        first.take(weights)
    shared = Global(first, arguments.actor_rate, arguments.critic_rate, arguments.episodes)
    average = shared.flat.clone()
    kept: list[tuple[int, Tensor]] = []
    first_kept = arguments.episodes * 3 // 5
    every = max(1, (arguments.episodes - first_kept) // CANDIDATES)
    options = kit.options(arguments, start, without=("command",))
    session = kit.Session(
        out, options, total=arguments.episodes, unit="episodes", every=10, resume=resume, tensorboard=tensorboard
    )
    with asynchronous.started(Worker, arguments.workers, shared, arguments, scale, on=on) as workers, session:
        # Worlds in other processes start from the beginning.
        alone = workers.alone
        if session.state is not None:
            with session.restoring():
                shared.load_state(session.state["global"])
                average, kept = session.state["average"], session.state["kept"]
                if isinstance(alone, Worker):
                    alone.load_state(session.state["worker"])

        def state() -> kit.State:
            worker = alone.state() if isinstance(alone, Worker) else {}
            return {"global": shared.state(), "average": average, "kept": kept, "worker": worker}

        for number in range(session.done, arguments.episodes):
            means = workers.play(number)
            average = average.lerp(shared.flat, 1 / min(AVERAGED, number + 1))
            if number >= first_kept and (arguments.episodes - 1 - number) % every == 0:
                kept = [*kept, (number, average.clone())]
            mean = asynchronous.point(session, number, means)
            session.advance(number + 1, f"reward {mean.reward:.3f}, {mean.delay_ms:.1f} ms", state)
        seconds = session.seconds
    return _choose(arguments, scale, kept, out, seconds)


def _choose(
    arguments: Arguments, scale: Scaling, kept: list[tuple[int, Tensor]], out: Path, seconds: float
) -> dict[str, Any]:
    """Judge the means of weights with separate runs, and write the best one."""
    networks = Networks()
    law = validated(QUEUE)
    judged = []
    for number, flat in kept:
        networks.flat.copy_(flat)
        tensors = networks.tensors()
        with files.temporary_folder("quell-a3c-") as folder:
            path = folder / "judged.safetensors"
            path.write_bytes(kit.model_bytes(tensors, card(arguments, scale, {})))
            judged.append((score(validated(f"a3c_l4s model {path}"), law), number, tensors))
    best, number, tensors = min(judged, key=lambda j: (j[0]["score"], -j[1]))
    rounded = {name: round(value, 4) for name, value in best.items()}
    chosen = card(arguments, scale, {"episode": number, **rounded, "training_s": round(seconds, 1)})
    return kit.write_model(out, tensors, chosen, chosen_by=f"best score of {len(judged)} on the validation scenarios")


def validated(queue: str) -> list[list[coupled.Outcome]]:
    """Run a queue over the validation scenarios, which belong to neither training nor the held-out sets."""
    got = coupled.held_out([queue], settings=coupled.CHOICE, seeds=3, first_seed=coupled.FIRST_SEEDS["choice"])
    return got[queue]


def score(mine: list[list[coupled.Outcome]], law: list[list[coupled.Outcome]]) -> dict[str, float]:
    """Compare with the queue's own law; less is better: delay, plus a charge for throughput below the law's."""
    found = coupled.versus(mine, law)
    lost = -math.log(found["throughput_cut"])
    shares = [coupled.versus([a], [b])["throughput"] for a, b in zip(mine, law, strict=True)]
    short = math.fsum(max(0.0, 0.985 - share) for share in shares) / len(shares)
    by_delay = math.log(found["mean_delay"]) + 0.25 * math.log(found["p99_delay"])
    return {"score": by_delay + 200 * max(0.0, lost - LOSS) + 50 * short, **found}


def card(arguments: Arguments, scale: Scaling, results: dict[str, Any]) -> dict[str, Any]:
    """Describe the model (crates/quell-qdisc/src/policy/card.rs)."""
    names = _core.a3c_readings("logarithmic")
    return {
        "format": 1,
        "name": "a3c-l4s",
        "what": "A3C-L4S: sets p' of a sub-queue of coupled queues, 0.001 to 1, every 15 ms",
        "inputs": [
            {"name": n, "offset": float(o), "scale": float(s)}
            for n, o, s in zip(names, scale.offset, scale.scale, strict=True)
        ],
        "hidden": ["tanh", "tanh"],
        "heads": [{"name": "action", "activation": "linear", "outputs": ["action"]}],
        "trained_on": f"{WORLDS} worlds in {arguments.workers} workers, {arguments.episodes} batches of {PERIODS} "
        f"periods, price of idleness {arguments.idle_price:g}; {arguments.command}",
        "seed": arguments.seed,
        "quell": _core.__version__,
        "results": results,
    }
