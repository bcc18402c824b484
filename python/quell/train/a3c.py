"""A3C for coupled queues: an actor and a critic learn p' from several queues at once, asynchronously.

Source: Satish, Kua and Pokhrel 2024, section 3.2, and the authors' notebooks. One global network; every worker copies
it, acts for some periods on its own queue, and applies its gradients to the global one whenever it has them.
Workers are processes that share the global parameters and Adam's moments in memory; one worker is this process itself,
and then the training is the same bit for bit each time. On a Ray cluster they are actors, whose gradients this process
applies as they come.

An episode of all workers is one step of the training: what is then left is the global network and Adam's moments alone,
since everything that an episode draws follows from the seed, the worker and its number.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing as mp
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from quell import _core
from quell.experiments import executor
from quell.experiments.executor import HERE, Executor
from quell.train import Stopped, coupled, kit
from quell.train.coupled import MOST_MS, Environment, Floats, Ranges, Step

LEAST_SPREAD, MOST_SPREAD = 0.01, 1.0
HALF_MS = 10.0
"""The utility charges for the logarithm of 1 + delay / this."""
FIRST_BIAS, FIRST_SLOPE, FIRST_SPREAD = -3.5, 0.125, -3.0
"""The actor begins as tanh(bias + slope * delay in ms), spread 0.05: p' is small up to 15 ms, large from 30 ms on."""
PUBLISHED_DELAY = -15.0
"""The notebooks scale the delay to [-15, 0]: it is the reward as well."""
KEEP = 8
"""Number of global networks of the last quarter that are judged; the best is the model."""


@dataclass(frozen=True)
class Arguments:
    """What decides how the training goes; the paper's numbers by default."""

    environment: Literal["loop", "lookup"] = "loop"
    reward: Literal["utility", "rtt"] = "utility"
    reward_scale: float = 15.0
    weights: tuple[float, float, float] = (1.0, 0.1, 0.0)
    """Of throughput, of the delay's logarithm, and of loss in the utility."""
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
    """The actor's first weights: p' follows the delay, or torch's own."""
    testbed: bool = False
    """Only the paper's link, instead of 1 to 100 Mbit/s, 10 to 100 ms, 1 to 20 flows each way."""
    as_published: bool = False
    """Gauges as in the kernel's log, scaled by a recorded trace's least and greatest."""
    seed: int = 1
    command: str = ""

    def rewards(self, step: Step) -> Floats:
        """Give each sub-queue's reward of a period, as the learner scales it."""
        if self.reward == "rtt":
            reward = -self.reward_scale * np.minimum(step.delay_ms / MOST_MS, 1.0)
            return np.asarray((reward + 8.0) / 8.0, np.float32)
        throughput, wait, loss = self.weights
        delay = np.log1p(step.delay_ms / HALF_MS)
        return np.asarray(throughput * step.utilisation - wait * delay - loss * step.loss, np.float32)


@dataclass(frozen=True)
class Scaling:
    """What a reading becomes on its way into the actor: (reading - offset) * scale."""

    offset: Floats
    scale: Floats

    def __call__(self, readings: Floats) -> Tensor:
        """Scale rows of readings."""
        return torch.from_numpy((readings - self.offset) * self.scale)

    def probability(self, actions: Floats) -> Floats:
        """Decode actions: p' is what the scaling of `drop_prob` makes them of."""
        p = actions / self.scale[1] + self.offset[1]
        return np.asarray(np.clip(p, 0.0, 1.0), np.float32)


def scaling(arguments: Arguments, traces: list[coupled.Trace]) -> Scaling:
    """Find the ranges: of recorded traces as published, else of the readings' own definition; p' from 0 to p_max."""
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
    """Actor 12-32-32-(mean, spread) and critic 12-32-32-16-1, whose parameters lie in one row."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.ModuleList([nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 1), nn.Linear(32, 1)])
        self.critic = nn.Sequential(
            nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)
        )
        self.all = list(self.parameters())
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.all])
        at = 0
        for p in self.all:
            p.data = self.flat[at : at + p.numel()].view_as(p)
            at += p.numel()
        self.actor_size = sum(p.numel() for p in self.actor.parameters())

    def begin_proportional(self) -> None:
        """Let the mean action follow the delay; all else stays as drawn, and can be learned."""
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
        """Give the mean and the spread of each row's action."""
        first, second, mean, spread = self.actor
        held = second(first(rows).relu()).relu()
        return mean(held).tanh().squeeze(-1), nn.functional.softplus(spread(held)).squeeze(-1)

    def value(self, rows: Tensor) -> Tensor:
        """Give the critic's view of each row."""
        out: Tensor = self.critic(rows)
        return out.squeeze(-1)

    def tensors(self) -> dict[str, Tensor]:
        """Copy the actor's weights under the names of quell's policy files."""
        names = ("layers.0", "layers.1", "heads.0", "heads.1")
        pairs = [(f"{name}.{k}", p) for name, layer in zip(names, self.actor, strict=True)
                 for k, p in layer.named_parameters()]  # fmt: skip
        return {name: p.detach().clone() for name, p in pairs}


class Global:
    """The global network and Adam's moments, in memory that all workers share."""

    def __init__(self, arguments: Arguments) -> None:
        kit.deterministic(arguments.seed)
        first = Networks()
        if arguments.start == "proportional":
            first.begin_proportional()
        self.flat = first.flat.clone().share_memory_()
        self.moments = torch.zeros(2, len(self.flat)).share_memory_()
        self.count = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.rates = torch.full((len(self.flat),), arguments.critic_rate)
        self.rates[: first.actor_size] = arguments.actor_rate

    def apply(self, gradient: Tensor) -> None:
        """Take a step of Adam."""
        self.count += 1
        n, (mean, square) = int(self.count), self.moments
        spread = kit.adam(gradient, mean, square, n)
        self.flat.sub_(self.rates * mean / spread / (1 - 0.9**n))

    def state(self) -> kit.State:
        """Give everything that the next episode depends on."""
        return {"flat": self.flat.clone(), "moments": self.moments.clone(), "count": int(self.count)}

    def load_state(self, state: kit.State) -> None:
        """Go on where `state` was taken."""
        self.flat.copy_(state["flat"])
        self.moments.copy_(state["moments"])
        self.count.fill_(state["count"])


@dataclass
class EpisodeMeans:
    """Means over the steps of a worker's episode."""

    reward: float
    delay_ms: float
    utilisation: float
    spread: float
    loss: float


class Worker:
    """One worker: a copy of the network, and its own queue."""

    def __init__(self, number: int, arguments: Arguments, scale: Scaling, traces: list[coupled.Trace]) -> None:
        self._number, self._arguments, self._scale = number, arguments, scale
        self._environment = environment(arguments, number, traces)
        self._networks = Networks()
        self._steps: Generator[Tensor, None, EpisodeMeans]

    def begin(self, number: int, flat: Tensor) -> Tensor | EpisodeMeans:
        """Start an episode with these parameters; return the first gradient, or the result at the end."""
        self._networks.flat.copy_(flat)
        self._steps = self._play(number)
        return self._next()

    def advance(self, flat: Tensor) -> Tensor | EpisodeMeans:
        """Continue with these parameters; return the next gradient, or the result at the end of the episode."""
        self._networks.flat.copy_(flat)
        return self._next()

    def _next(self) -> Tensor | EpisodeMeans:
        try:
            return next(self._steps)
        except StopIteration as end:
            means: EpisodeMeans = end.value
            return means

    def episode(self, number: int, shared: Global, lock: contextlib.AbstractContextManager[Any]) -> EpisodeMeans:
        """Play an episode and send the global network a gradient every few steps."""
        answer = self.begin(number, shared.flat)
        while isinstance(answer, Tensor):
            with lock:
                shared.apply(answer)
                flat = shared.flat.clone()
            answer = self.advance(flat)
        return answer

    def _play(self, number: int) -> Generator[Tensor, None, EpisodeMeans]:
        """Play an episode; give the gradient of every few steps."""
        chosen, networks = self._arguments, self._networks
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
        """Give the gradient of some steps, and the critic's loss. Targets are n-step returns."""
        chosen, networks = self._arguments, self._networks
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
        spread = spread.clamp(LEAST_SPREAD, MOST_SPREAD)
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


class Workers:
    """All workers: this process alone, or one process each."""

    def __init__(self, arguments: Arguments, shared: Global, scale: Scaling, traces: list[coupled.Trace]) -> None:
        self.workers = [Worker(k, arguments, scale, traces) for k in range(arguments.workers)]
        self._shared = shared
        self._ends: list[Connection] = []
        self._processes: list[Any] = []
        self._lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if arguments.workers == 1:
            return
        # A forked child has this memory and does not import torch again.
        context: Any = mp.get_context("fork" if sys.platform == "linux" else "spawn")
        self._lock = context.Lock()
        for worker in self.workers:
            mine, its = context.Pipe()
            process = context.Process(target=_serve, args=(worker, shared, its, self._lock, os.getpid()), daemon=True)
            process.start()
            its.close()
            self._ends.append(mine)
            self._processes.append(process)

    def play(self, number: int) -> list[EpisodeMeans]:
        """Have every worker play an episode."""
        if not self._ends:
            return [self.workers[0].episode(number, self._shared, self._lock)]
        for end in self._ends:
            end.send(number)
        means = []
        for k, end in enumerate(self._ends):
            try:
                answer = end.recv()
            except EOFError:
                raise Stopped(f"worker {k} has died; continue with --resume", kit.FAILED) from None
            if isinstance(answer, str):
                raise Stopped(f"worker {k}: {answer}", kit.FAILED)
            means.append(answer)
        return means

    def close(self) -> None:
        """End the processes; they hold nothing that is not in the global network."""
        for process in self._processes:
            process.kill()
            process.join()


class Cluster:
    """All workers as actors of a Ray cluster; this process applies each gradient and answers with the outcome."""

    def __init__(self, actors: executor.Actors, arguments: Arguments, shared: Global) -> None:
        self._actors, self._count, self._shared = actors, arguments.workers, shared

    def play(self, number: int) -> list[EpisodeMeans]:
        """Have every worker play an episode."""
        means: dict[int, EpisodeMeans] = {}
        for k in range(self._count):
            self._actors.call(k, "begin", number, self._shared.flat.clone())
        while len(means) < self._count:
            try:
                k, answer = self._actors.first()
            except Exception as error:
                raise Stopped(f"{type(error).__name__}: {error}; continue with --resume", kit.FAILED) from None
            if isinstance(answer, EpisodeMeans):
                means[k] = answer
            else:
                self._shared.apply(answer)
                self._actors.call(k, "advance", self._shared.flat.clone())
        return [means[k] for k in range(self._count)]

    def close(self) -> None:
        """End the actors."""
        self._actors.close()


def _serve(
    worker: Worker, shared: Global, end: Connection, lock: contextlib.AbstractContextManager[Any], parent: int
) -> None:
    """Play episodes until killed or orphaned. The main process handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    while True:
        while not end.poll(5):
            if os.getppid() != parent:
                return
        number = end.recv()
        try:
            answer: EpisodeMeans | str = worker.episode(number, shared, lock)
        except Exception as error:  # the main process reports it
            answer = f"{type(error).__name__}: {error}"
        end.send(answer)


def _on_a_cluster(number: int, arguments: Arguments, scale: Scaling, traces: list[coupled.Trace]) -> Worker:
    torch.set_num_threads(1)
    return Worker(number, arguments, scale, traces)


@contextlib.contextmanager
def start_workers(
    arguments: Arguments, shared: Global, scale: Scaling, traces: list[coupled.Trace], on: Executor = HERE
) -> Iterator[Workers | Cluster]:
    """Start workers, and end them on exit."""
    actors = on.actors(_on_a_cluster, range(arguments.workers), arguments, scale, traces)
    pool = Workers(arguments, shared, scale, traces) if actors is None else Cluster(actors, arguments, shared)
    try:
        yield pool
    finally:
        pool.close()


def train(
    arguments: Arguments, out: Path, *, resume: bool = False, tensorboard: Path | None = None, on: Executor = HERE
) -> dict[str, Any]:
    """Train, with a checkpoint after each episode; write the model to `out` and return its card."""
    shared = Global(arguments)
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
        shared.load_state(session.state["global"])
        kept = session.state["kept"]
    with start_workers(arguments, shared, scale, traces, on) as workers, session:

        def state() -> kit.State:
            return {"global": shared.state(), "kept": kept}

        for number in range(session.done, arguments.episodes):
            means = workers.play(number)
            reward, delay, use, spread, loss = (
                math.fsum(getattr(t, name) for t in means) / len(means)
                for name in ("reward", "delay_ms", "utilisation", "spread", "loss")
            )
            if number >= arguments.episodes - max(1, arguments.episodes // 4):
                kept = [*kept, (reward, -number, shared.flat.clone())]
            session.point(
                number,
                reward=reward,
                rewards=[t.reward for t in means],
                delay_ms=delay,
                delays_ms=[t.delay_ms for t in means],
                utilisation=use,
                spread=spread,
                loss=session.finite("loss", loss),
            )
            session.advance(number + 1, f"reward {reward:.3f}, {delay:.1f} ms", state)
        seconds = session.seconds
    return _choose(arguments, scale, kept, out, seconds)


def _choose(
    arguments: Arguments, scale: Scaling, kept: list[tuple[float, int, Tensor]], out: Path, seconds: float
) -> dict[str, Any]:
    """Judge the last global networks with runs of their own, and write the best one."""
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
    """Compare the mean action with the queue's own law in scenarios that are neither training's nor held out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "judged.safetensors"
        path.write_bytes(as_file(arguments, scale, networks))
        mine, law = (f"a3c_l4s model {path}", coupled.QUEUE)
        got = coupled.held_out([mine, law], settings=coupled.VALIDATION, duration_s=10.0, first_seed=700_001)
    found = coupled.versus(got[mine], got[law])
    score = found["met"] / found["settings"] - 0.1 * math.log(found["mean_delay"])
    return {"score": score, **found}


def as_file(arguments: Arguments, scale: Scaling, networks: Networks) -> bytes:
    """Give a policy file's bytes."""
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
