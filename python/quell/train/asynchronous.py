"""Workers that send gradients to a global network asynchronously, as in A3C (Mnih et al. 2016).

Workers are processes that share the parameters and Adam's moments in memory. A single worker is this process itself;
the training then gives the same bits each time. On a Ray cluster workers are actors, whose gradients this process
applies as they arrive. An episode of all workers is one step of the training.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing as mp
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch
from torch import Tensor

from quell.experiments import executor
from quell.experiments.executor import HERE, Executor
from quell.train import Stopped, kit


class Networks(Protocol):
    """An actor and a critic."""

    flat: Tensor
    """All parameters in one vector, the actor's first."""
    actor_size: int


class Global:
    """The global network and Adam's moments, in memory that all workers share."""

    def __init__(self, first: Networks, actor_rate: float, critic_rate: float, falls_over: int | None = None) -> None:
        self.flat = first.flat.clone().share_memory_()
        self.moments = torch.zeros(2, len(self.flat)).share_memory_()
        self.count = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.rates = torch.full((len(self.flat),), critic_rate)
        self.rates[: first.actor_size] = actor_rate
        self._falls_over = falls_over
        """Number of episodes over which the learning rates fall to 0; None: constant rates."""

    def apply(self, gradient: Tensor, episode: int) -> None:
        """Take a step of Adam."""
        self.count += 1
        n, (mean, square) = int(self.count), self.moments
        spread = kit.adam(gradient, mean, square, n)
        left = 1.0 if self._falls_over is None else 1 - episode / self._falls_over
        self.flat.sub_(left * self.rates * mean / spread / (1 - 0.9**n))

    def state(self) -> kit.State:
        """Return the state on which the next episode depends."""
        return {"flat": self.flat.clone(), "moments": self.moments.clone(), "count": int(self.count)}

    def load_state(self, state: kit.State) -> None:
        """Continue from what `state` returned."""
        self.flat.copy_(state["flat"])
        self.moments.copy_(state["moments"])
        self.count.fill_(state["count"])


@dataclass(frozen=True)
class EpisodeMeans:
    """Means over the steps of a worker's episode."""

    reward: float
    delay_ms: float
    utilisation: float
    spread: float
    loss: float


def point(session: kit.Session, number: int, means: list[EpisodeMeans]) -> EpisodeMeans:
    """Add an episode of all workers to the learning curve; return the workers' mean."""
    mean = EpisodeMeans(
        **{f.name: math.fsum(getattr(t, f.name) for t in means) / len(means) for f in fields(EpisodeMeans)}
    )
    session.point(
        number,
        reward=mean.reward,
        rewards=[t.reward for t in means],
        delay_ms=mean.delay_ms,
        delays_ms=[t.delay_ms for t in means],
        utilisation=mean.utilisation,
        spread=mean.spread,
        loss=session.finite("loss", mean.loss),
    )
    return mean


class Worker(ABC):
    """A worker: a copy of the network and its environment."""

    networks: Networks
    _steps: Generator[Tensor, None, EpisodeMeans]

    @abstractmethod
    def play(self, number: int) -> Generator[Tensor, None, EpisodeMeans]:
        """Play episode `number`; yield gradients, each for the current parameters in `networks`."""

    def begin(self, number: int, flat: Tensor) -> Tensor | EpisodeMeans:
        """Start an episode with these parameters; return the first gradient, or the result at the end."""
        self.networks.flat.copy_(flat)
        self._steps = self.play(number)
        return self._next()

    def advance(self, flat: Tensor) -> Tensor | EpisodeMeans:
        """Continue with these parameters; return the next gradient, or the result at the end of the episode."""
        self.networks.flat.copy_(flat)
        return self._next()

    def _next(self) -> Tensor | EpisodeMeans:
        try:
            return next(self._steps)
        except StopIteration as end:
            means: EpisodeMeans = end.value
            return means

    def episode(self, number: int, shared: Global, lock: contextlib.AbstractContextManager[Any]) -> EpisodeMeans:
        """Play an episode and send the global network each gradient."""
        answer = self.begin(number, shared.flat)
        while isinstance(answer, Tensor):
            with lock:
                shared.apply(answer, number)
                flat = shared.flat.clone()
            answer = self.advance(flat)
        return answer


class Workers:
    """All workers: this process alone, or one process each."""

    def __init__(self, workers: list[Worker], shared: Global) -> None:
        self.workers, self._shared = workers, shared
        self._ends: list[Connection] = []
        self._processes: list[Any] = []
        self._lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if len(workers) == 1:
            return
        # A forked child shares this memory and does not import torch again.
        context: Any = mp.get_context("fork" if sys.platform == "linux" else "spawn")
        self._lock = context.Lock()
        for worker in self.workers:
            mine, its = context.Pipe()
            process = context.Process(target=_serve, args=(worker, shared, its, self._lock, os.getpid()), daemon=True)
            process.start()
            its.close()
            self._ends.append(mine)
            self._processes.append(process)

    @property
    def alone(self) -> Worker | None:
        """The only worker, if it is in this process."""
        return None if self._ends else self.workers[0]

    def play(self, number: int) -> list[EpisodeMeans]:
        """Let every worker play an episode."""
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
        """End the processes; all their state is in the global network."""
        for process in self._processes:
            process.kill()
            process.join()


class Cluster:
    """All workers as actors of a Ray cluster; this process applies each gradient and sends back the parameters."""

    def __init__(self, actors: executor.Actors, count: int, shared: Global) -> None:
        self._actors, self._count, self._shared = actors, count, shared

    @property
    def alone(self) -> None:
        """No worker is in this process."""

    def play(self, number: int) -> list[EpisodeMeans]:
        """Let every worker play an episode."""
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
                self._shared.apply(answer, number)
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


def _on_a_cluster(number: int, make: Callable[..., Worker], *arguments: Any) -> Worker:
    torch.set_num_threads(1)
    return make(number, *arguments)


@contextlib.contextmanager
def started(
    make: Callable[..., Worker], count: int, shared: Global, *arguments: Any, on: Executor = HERE
) -> Iterator[Workers | Cluster]:
    """Start `count` workers, `make(number, *arguments)`, and end them on exit."""
    actors = on.actors(_on_a_cluster, range(count), make, *arguments)
    if actors is None:
        pool: Workers | Cluster = Workers([make(k, *arguments) for k in range(count)], shared)
    else:
        pool = Cluster(actors, count, shared)
    try:
        yield pool
    finally:
        pool.close()
