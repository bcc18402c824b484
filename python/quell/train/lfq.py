"""LFQ: a network learns each flow's buffer from experiments on simulated flows.

Offline, a flow's world is cloned in the middle of the flow: one clone continues with a limit of one packet more, the
other with one packet less, and the network is trained towards the better limit (mean absolute error). Online there is
one world, a random side, and a critic that predicts the reward for comparison. Rust simulates on all cores
(crates/quell-lab/src/lfq.rs); torch trains the networks on one core in f32. The authors' f64 takes 1.5 times as long,
and limits are whole packets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from quell import _core
from quell._core import InputError
from quell.common import files
from quell.experiments.executor import HERE, Executor
from quell.train import kit, lfq_reward
from quell.train.flows import CCS, RATES, RTTS, evaluate, simulate
from quell.train.lfq_reward import Readings, Reward

WINDOW = 1000
"""Flows per point of the learning curve."""
PAST, REPLAYED = 20_000, 256
"""Flows in the replay memory of a critic, and flows per fit."""
BINS = 4
"""Number of equal parts of the ranges of rates and round trips, for which the curve has separate predictions."""


@dataclass(frozen=True)
class Arguments:
    """Parameters of a training; the defaults are the paper's."""

    alpha: float = 0.01
    """Weight of queued data in the reward, 1/s; with the reward `delay`: of the delay, 1e6 bytes/s per s."""
    reward: str = "queue"
    """`queue`, the paper's, `delay`, or `module:name`, a function of `lfq_reward.Readings`."""
    online: bool = False
    flows: int = 250_000
    """Number of training flows; the last batch is complete."""
    seed: int = 1
    learning_rate: float = 0.01
    critic_rate: float = 0.0
    """Online: Adam's rate for the critic; 0: the paper's plain gradient descent at `learning_rate`, which learns far
    slower (docs/how-to/training.md)."""
    actor_rate: float = 0.0
    """Adam's rate for the actor; 0: the paper's plain gradient descent at `learning_rate`."""
    replay: int = 0
    """Online: number of additional fits of the critic per batch, each to REPLAYED of the last PAST flows."""
    hindsight: bool = False
    """Online: the critic also reads the link's rate and the flow's duration, which are known once it has ended."""
    duration_s: float = 5.0
    """Mean length of a flow; the authors' online code has 10 s."""
    act_within: float = 0.5
    """The experiment begins within this share of a flow's length; the authors' online code has 0.75."""
    paper_weights: bool = False
    """Use the paper's printed weights of averages, 2^-4 to 2^-13, instead of its code's 2^-5 to 2^-14."""
    checkpoint_every: int = 10_000

    @property
    def batch(self) -> int:
        """Flows per step."""
        return 40 if self.online else 20

    @property
    def command(self) -> str:
        """The command for the same training."""
        words = ["quell train lfq", f"--alpha {self.alpha:g}", *(["--online"] if self.online else [])]
        usual = type(self)()
        for name in (
            "reward", "flows", "seed", "learning_rate", "actor_rate", "critic_rate", "replay", "duration_s",
            "act_within",
        ):  # fmt: skip
            if getattr(self, name) != getattr(usual, name):
                words.append(f"--{name.removesuffix('_s').replace('_', '-')} {getattr(self, name)}")
        flags = [f"--{name.replace('_', '-')}" for name in ("hindsight", "paper_weights") if getattr(self, name)]
        return " ".join([*words, *flags])


def network(inputs: int = 60) -> nn.Sequential:
    """Return the paper's network, for actor and critic, with torch's default initial weights."""
    widths = (inputs, 256, 256, 256)
    hidden = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.LeakyReLU(0.01))]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], 1))


@dataclass
class Batch:
    """Results of the experiments of flows that reached a decision."""

    features: Tensor
    label: Tensor
    """Offline the better limit, online the limit taken."""
    other: Tensor
    """Online: the limit that was not taken."""
    reward: Tensor
    """Reward; offline the mean of both sides."""
    draws: Tensor
    """Rate, RTT, duration, time of the experiment, congestion control."""
    whole: bool
    """Whether every flow reached a decision."""


class Learner:
    """The networks and their steps."""

    def __init__(self, arguments: Arguments) -> None:
        kit.deterministic(arguments.seed)
        self.arguments = arguments
        self.reward = lfq_reward.find(arguments.reward, arguments.alpha)
        self.actor = network()
        self.critic = network(62 if arguments.hindsight else 60) if arguments.online else None
        self.networks = [self.actor] if self.critic is None else [self.actor, self.critic]
        self.moments = [[torch.zeros(2, *p.shape) for p in network.parameters()] for network in self.networks]
        self.fits = [0 for _ in self.networks]
        """Number of Adam's steps for each network."""
        self.past = torch.zeros(PAST if arguments.online and arguments.replay else 0, 63 if arguments.hindsight else 61)
        self.remembered = 0
        """Number of flows added to `past`, which has the critic's inputs and the rewards of the last flows."""
        self.window: list[Tensor] = []
        """Prediction, error, reward, rate, RTT and congestion control of each flow since the last point of the
        curve."""

    def state(self) -> kit.State:
        """Return the state for a resumed training; plain gradient descent itself has no state."""
        networks = [n.state_dict() for n in self.networks]
        adam = {"moments": self.moments, "fits": self.fits}
        return {"networks": networks, **adam, "past": self.past, "remembered": self.remembered, "window": self.window}

    def load_state(self, state: kit.State) -> None:
        """Continue from what `state` returned."""
        for held, kept in zip(self.networks, state["networks"], strict=True):
            held.load_state_dict(kept)
        self.moments, self.fits = [list(moments) for moments in state["moments"]], list(state["fits"])
        self.past, self.remembered = state["past"], state["remembered"]
        self.window = list(state["window"])

    def start_from(self, model: bytes) -> None:
        """Load the actor's weights from a policy file. Raises InputError if its shape differs."""
        card = json.loads(_core.Policy("--from", model).card)
        tensors, own = safetensors.torch.load(model), self.tensors()
        names = _core.lfq_features(paper_weights=self.arguments.paper_weights)
        same = {name: value.shape for name, value in tensors.items()} == {name: v.shape for name, v in own.items()}
        if not same or [read["name"] for read in card["inputs"]] != names:
            raise InputError("--from: not a network of quell train lfq: its inputs or outputs differ")
        with torch.no_grad():
            for parameter, name in zip(self.actor.parameters(), own, strict=True):
                parameter.copy_(tensors[name])

    def experiments(self, first: int, on: Executor = HERE) -> Batch:
        """Simulate one batch of flows, numbered from `first`, under the actor."""
        chosen = self.arguments
        options = {
            "alpha": chosen.alpha,
            "online": chosen.online,
            "duration_s": chosen.duration_s,
            "act_within": chosen.act_within,
            "paper_weights": chosen.paper_weights,
        }
        # In this process Rust distributes a batch over the cores; a cluster gets one part per core. Results are the
        # same.
        n = chosen.batch
        size = n if on is HERE else math.ceil(n / on.cores)
        parts = [((chosen.seed << 32) + first + at, min(size, n - at)) for at in range(0, n, size)]
        got = on.map(simulate, parts, [p.detach().numpy() for p in self.actor.parameters()], options)

        def column(name: str, kind: Any, *shape: int) -> Tensor:
            whole = np.concatenate([np.frombuffer(part[name], kind) for part in got])
            return torch.from_numpy(whole.reshape(n, *shape))

        decided = column("decided", np.uint8).bool()
        rewards = column("rewards", np.float64, 2)[decided].float()
        label, limits = column("label", np.int32)[decided], column("limits", np.int32, 2)[decided]
        draws = column("draws", np.float64, 5)[decided]
        if self.reward is not None:
            rewards = _rewarded(self.reward, column("readings", np.float64, 2, 3)[decided], limits, draws)
            if not chosen.online:
                label = torch.where(rewards[:, 1] >= rewards[:, 0], limits[:, 1], limits[:, 0])
        return Batch(
            features=column("features", np.float32, 60)[decided],
            label=label.float(),
            other=limits[:, 1].float(),
            reward=(rewards[:, 0] if chosen.online else rewards.mean(dim=1)).float(),
            draws=draws.float(),
            whole=bool(decided.all()),
        )

    def learn(self, batch: Batch) -> float:
        """Take a step as in the paper; return the actor's loss."""
        predicted = self.actor(batch.features)[:, 0]
        label = batch.label
        chosen = self.arguments
        if self.critic is not None:
            read = self._read(batch)
            expected = self.critic(read)[:, 0]
            label = torch.where(batch.reward > expected.detach(), label, batch.other)
            self._descend(1, nn.functional.mse_loss(expected, batch.reward), chosen.critic_rate)
            for rows in self._replayed(read, batch.reward):
                missed = nn.functional.mse_loss(self.critic(rows[:, :-1])[:, 0], rows[:, -1])
                self._descend(1, missed, chosen.critic_rate)
        error = (predicted - label).abs()
        loss = error.mean()
        self._descend(0, loss, chosen.actor_rate)
        shown = [predicted.detach(), error.detach(), batch.reward, *batch.draws[:, [0, 1, 4]].T]
        self.window.append(torch.stack(shown, dim=1))
        return float(loss.detach())

    def _read(self, batch: Batch) -> Tensor:
        """Return the critic's inputs for a batch."""
        if not self.arguments.hindsight:
            return batch.features
        rate, _, duration, at, _ = batch.draws.T
        known = torch.stack([rate / RATES[1], (duration - at) / self.arguments.duration_s], dim=1)
        return torch.cat([batch.features, known], dim=1)

    def _replayed(self, read: Tensor, reward: Tensor) -> Iterator[Tensor]:
        """Add a batch to the replay memory; yield random rows of the memory for each additional fit."""
        if not len(self.past):
            return
        at = self.remembered % PAST
        self.past[at : at + len(read)] = torch.cat([read, reward[:, None]], dim=1)
        self.remembered += len(read)
        for _ in range(self.arguments.replay):
            yield self.past[torch.randint(min(self.remembered, PAST), (REPLAYED,))]

    def _descend(self, which: int, loss: Tensor, adam_rate: float) -> None:
        """Take a step of a network down its loss: by Adam, or by plain gradient descent if Adam's rate is 0."""
        parameters = list(self.networks[which].parameters())
        slopes = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            if not adam_rate:  # like torch.optim.SGD without momentum, which takes seconds to import
                for parameter, slope in zip(parameters, slopes, strict=True):
                    parameter.sub_(slope, alpha=self.arguments.learning_rate)
                return
            self.fits[which] += 1
            fits = self.fits[which]
            rate = adam_rate / (1 - 0.9**fits)
            for parameter, slope, (mean, square) in zip(parameters, slopes, self.moments[which], strict=True):
                parameter.addcdiv_(mean, kit.adam(slope, mean, square, fits), value=-rate)

    def point(self) -> dict[str, float | list[float]]:
        """End the curve's window: means, the predictions' spread, and predictions by conditions (Figs 4, 9, 11)."""
        rows = torch.cat(self.window).double()
        self.window = []
        predicted, error, reward, rate, rtt, bic = rows.T
        spread = torch.quantile(predicted, torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64))
        values: dict[str, float | list[float]] = {
            "loss": float(error.mean()),
            "reward": float(reward.mean()),
            "prediction": float(predicted.mean()),
            "prediction_p5": float(spread[0]),
            "prediction_p50": float(spread[1]),
            "prediction_p95": float(spread[2]),
        }
        for name, chosen in zip(CCS, (bic == 0, bic == 1), strict=True):
            values[f"prediction_{name}"] = float(predicted[chosen].mean())
            for axis, drawn, (low, high) in (("rate", rate, RATES), ("rtt", rtt, RTTS)):
                place = ((drawn - low) / (high - low) * BINS).long().clamp(0, BINS - 1)
                parts = [predicted[chosen & (place == part)].mean() for part in range(BINS)]
                values[f"prediction_{name}_by_{axis}"] = [float(part) for part in parts]
        return values

    def tensors(self) -> dict[str, Tensor]:
        """Copy the actor's weights with their names in quell's policy files."""
        linear = [layer for layer in self.actor if isinstance(layer, nn.Linear)]
        names = [f"layers.{i}" for i in range(len(linear) - 1)] + ["heads.0"]
        parts = ("weight", "bias")
        return {f"{n}.{p}": getattr(m, p).detach().clone() for n, m in zip(names, linear, strict=True) for p in parts}


def _rewarded(reward: Reward, readings: Tensor, limits: Tensor, draws: Tensor) -> Tensor:
    """Compute a reward for each side that was run."""
    out = torch.full(limits.shape, math.nan, dtype=torch.float64)
    for flow, (bps, rtt_s, *_) in enumerate(draws.tolist()):
        for side, (rate, queued, delay) in enumerate(readings[flow].tolist()):
            if not math.isnan(rate):
                out[flow, side] = reward(Readings(rate, queued, delay, int(limits[flow, side]), bps / 1e6, rtt_s))
    return out


def train(
    arguments: Arguments,
    out: Path,
    *,
    start: bytes | None = None,
    resume: bool = False,
    tensorboard: Path | None = None,
    points: int = 100,
    on: Executor = HERE,
) -> dict[str, Any]:
    """Train, write the model to `out` and checkpoints beside it; return the model card.

    `start` is a model file from whose weights the training continues (online, the critic starts from the beginning).
    Simulations run on the executor `on`, training steps in this process. The model is judged by `flows.evaluate` with
    `points` points.
    """
    learner = Learner(arguments)
    if start is not None:
        learner.start_from(start)
    options = kit.options(arguments, start, without=("flows", "checkpoint_every"))
    session = kit.Session(
        out, options, total=arguments.flows, unit="flows", every=arguments.checkpoint_every, resume=resume,
        tensorboard=tensorboard,
    )  # fmt: skip
    note = ""
    with session:
        if session.state is not None:
            with session.restoring():
                learner.load_state(session.state)
        for first in range(session.done, arguments.flows, arguments.batch):
            batch = learner.experiments(first, on)
            done = first + arguments.batch
            # Offline, a flow without a decision is left out; online, its whole batch (rl.cc).
            if batch.whole or (len(batch.label) and not arguments.online):
                session.finite("loss", learner.learn(batch))
            if done // WINDOW > first // WINDOW and learner.window:
                values = learner.point()
                session.point(done, **values)
                note = f"reward {values['reward']:.3f}, limit {values['prediction']:.1f}"
            session.advance(done, note, learner.state)
    tensors = learner.tensors()
    results = {"flows": session.done, "training_s": round(session.seconds, 1)}
    with files.temporary_folder("quell-lfq-") as folder:  # its name has no space, which queue words do not allow
        model = folder / "lfq.safetensors"
        kit.write_model(model, tensors, card(arguments, results))
        results |= evaluate(f"lfq model {model}{' paper_weights' if arguments.paper_weights else ''}", points)
    chosen = card(arguments, results)
    return kit.write_model(out, tensors, chosen, chosen_by="none: the weights at the end")


def card(arguments: Arguments, results: dict[str, Any]) -> dict[str, Any]:
    """Describe the model (crates/quell-qdisc/src/policy/card.rs)."""
    how = "online" if arguments.online else "offline"
    return {
        "format": 1,
        "name": f"lfq-{how}-{arguments.alpha:g}",
        "what": f"LFQ ({how}, alpha {arguments.alpha:g}): a flow's buffer in packets from what its traffic looks like",
        "inputs": [{"name": name} for name in _core.lfq_features(paper_weights=arguments.paper_weights)],
        "hidden": ["leaky_relu"] * 3,
        "heads": [{"name": "limit", "activation": "linear", "outputs": ["packets"]}],
        "trained_on": f"{results['flows']} flows of NewReno or BIC, 5 to 25 Mbit/s, 5 to 25 ms, "
        f"{arguments.duration_s:g} s; {arguments.command}",
        "seed": arguments.seed,
        "quell": _core.__version__,
        "results": results,
    }
