"""RL-AQM corrected: a DQN that ranks drop probabilities in place of steps and rules, on many kinds of links.

docs/lab/rl-aqm.md explains why it departs from the paper's decision process. Rust simulates links and fits the network
(crates/quell-qdisc/src/control/rlaqm/dqn.rs): the same seed gives the same weights, bit for bit, on every machine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from quell import _core
from quell._core import InputError
from quell.common import files, origin
from quell.experiments.executor import HERE, Executor
from quell.train import kit, rl_aqm_links
from quell.train.rl_aqm_links import Senders

LEVEL = "drop = "
"""Prefix of the names of outputs that set p (control/rlaqm.rs)."""
LEVELS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""The probabilities that the network ranks."""
INPUTS = {
    "log_delay": 1 / 3,
    "log_delay_before": 1 / 3,
    "utilisation": 1.0,
    "drop": 2.0,
    "load": 0.5,
}
"""The network's inputs and their scales (crates/quell-qdisc/src/control/rlaqm.rs)."""
SECONDS = 45.0
"""Length of a run on a training link, s."""


@dataclass(frozen=True)
class Arguments:
    """Parameters of a training."""

    rounds: int = 36
    links: int = 24
    """Number of links in a round, with one run each; `nics` and `senders` alternate among them."""
    nics: tuple[int, ...] = (0, 100)
    senders: tuple[Senders, ...] = ("newreno",)
    seed: int = 1
    hidden: tuple[int, ...] = (32, 32)
    levels: tuple[float, ...] = LEVELS
    """Probabilities that the network ranks."""
    period_ms: float = 20.0
    """Time between decisions."""
    ceiling_ms: float = 20.0
    """Delay above which p is 0.5 in training, whatever the network answers."""
    utilisation_weight: float = 1.0
    utilisation_power: int = 2
    delay_scale_ms: float = 5.0
    gamma: float = 0.95
    horizon: int = 5
    """Number of decisions whose rewards are summed before the network's own estimate."""
    learning_rate: float = 1e-3
    """Adam's rate, which falls linearly to a twentieth."""
    epsilon_min: float = 0.03
    exploring: float = 0.4
    """Share of the rounds in which the probability of exploring falls from 1 to its minimum."""
    batch: int = 256
    fits_per_step: float = 4 / 256
    replay: int = 400_000
    centring: float = 0.0
    """Share by which the baseline of rewards follows at each fit."""
    error_limit: float = 1.0
    """Error from which on Huber's loss is linear."""
    follow: float = 0.005
    """Share by which the target network follows at each fit."""
    validation: int = 16
    """Number of links of each `nic` for choosing among the weights."""
    command: str = "quell train rl-aqm --corrected"
    """Command on the model card."""


def train(
    arguments: Arguments,
    out: Path,
    *,
    start: bytes | None = None,
    resume: bool = False,
    tensorboard: Path | None = None,
    on: Executor = HERE,
) -> dict[str, Any]:
    """Train, with a checkpoint after each round; write the model to `out` and return its card.

    `start` is a model file from whose weights the training continues.
    """
    chosen = arguments
    if start is not None:
        check(start, chosen)
    learner = _core.Dqn(
        json.dumps(card(chosen)), list(chosen.hidden), chosen.seed, model=start, weight=chosen.utilisation_weight,
        square=chosen.utilisation_power == 2, scale_ms=chosen.delay_scale_ms, gamma=chosen.gamma,
        horizon=chosen.horizon, batch=chosen.batch, replay=chosen.replay, follow=chosen.follow,
        centring=chosen.centring, error_limit=chosen.error_limit,
    )  # fmt: skip
    options = kit.options(chosen, start, without=("rounds", "command"))
    session = kit.Session(
        out, options, total=chosen.rounds, unit="rounds", every=1, resume=resume, tensorboard=tensorboard
    )
    best: tuple[float, int, bool, bytes] | None = None
    if session.state is not None:
        with session.restoring():
            numbers = [bytes(part.tolist()) for part in session.state["numbers"]]
            learner.restore(numbers, *(session.state[name] for name in ("steps", "averaged", "baseline")))
            score, number, mean, model = session.state["best"]
            best = (score, number, mean, bytes(model.tolist())) if model is not None else None

    def state() -> kit.State:
        numbers, steps, averaged, baseline = learner.state()
        held = (*best[:3], _tensor(best[3])) if best else (0.0, 0, False, None)
        counts = {"steps": steps, "averaged": averaged, "baseline": baseline}
        return {"numbers": [_tensor(part) for part in numbers], **counts, "best": held}

    with session:
        for number in range(session.done, chosen.rounds):
            exploring = max(chosen.epsilon_min, 1 - number / (chosen.rounds * chosen.exploring))
            first = number * chosen.links
            runs = [(first + k, _nic(chosen, k), _senders(chosen, k)) for k in range(chosen.links)]
            episodes = on.map(simulate, runs, "train", chosen.seed, exploring, _file(learner, chosen), words(chosen))
            rewards = [learner.keep(inputs, actions) for inputs, actions in episodes]
            steps = sum(len(actions) // 4 for _, actions in episodes)
            rate = chosen.learning_rate * max(0.05, 1 - number / chosen.rounds)
            loss = session.finite("loss", learner.fit(round(steps * chosen.fits_per_step), rate, number))
            point = {"reward": sum(rewards) / len(rewards), "epsilon": exploring, "loss": loss}
            if number >= chosen.rounds // 2:
                learner.average()
                if number % 2 or number + 1 == chosen.rounds:
                    for mean in (False, True):
                        model = _file(learner, chosen, mean=mean)
                        score = validate(chosen, model, on)
                        point["validation_of_mean" if mean else "validation"] = score
                        if best is None or score > best[0]:
                            best = score, number, mean, model
            session.point(number, **point)
            session.advance(number + 1, f"reward {point['reward']:.3f}", state)
        seconds = session.seconds
    if best is None:
        best = validate(chosen, model := _file(learner, chosen), on), chosen.rounds - 1, False, model
    score, number, mean, model = best
    results = {
        "round": number, "mean_of_weights": mean, "reward": round(score, 4),
        "links": chosen.validation * len(set(chosen.nics)), "training_s": round(seconds, 1),
    }  # fmt: skip
    return write(out, model, card(chosen, results), f"greatest mean reward on {_judging(chosen)}")


def check(start: bytes, chosen: Arguments) -> None:
    """Check that a network has the right inputs and outputs. Raises InputError."""
    found, own = json.loads(_core.Policy("--from", start).card), card(chosen)

    def form(described: dict[str, Any]) -> object:
        inputs = [(i["name"], round(i.get("offset", 0.0), 6), round(i["scale"], 6)) for i in described["inputs"]]
        return inputs, set(described["hidden"]), [head["outputs"] for head in described["heads"]]

    if form(found) != form(own):
        raise InputError("--from: not a network of --corrected: it reads or ranks something else")


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


def _nic(chosen: Arguments, k: int) -> int:
    return chosen.nics[k % len(chosen.nics)]


def _senders(chosen: Arguments, k: int) -> Senders:
    return chosen.senders[k // len(chosen.nics) % len(chosen.senders)]


def _judging(chosen: Arguments) -> str:
    return f"{chosen.validation} links of 45 s for each nic of {', '.join(map(str, dict.fromkeys(chosen.nics)))}"


def words(chosen: Arguments) -> str:
    """Return the queue's words in training."""
    return f"rlaqm period {chosen.period_ms!r}ms ceiling {chosen.ceiling_ms!r}ms"


def simulate(
    item: tuple[int, int, Senders], of: str, seed: int, epsilon: float, model: bytes, rlaqm: str
) -> tuple[bytes, bytes]:
    """Simulate link `(index, nic, senders)` of a set; return the network's inputs and actions."""
    index, nic, senders = item
    scenario = rl_aqm_links.link(f"{of} {seed}", index, nic=nic, seconds=SECONDS, senders=senders)
    queue = f"{rlaqm} epsilon {epsilon!r}" + (" ecn" if senders == "mixed" else "")
    explore = seed * 1_000_003 + index
    played = _core.episode(scenario, queue, scenario.run_seed(0), model=model, explore=explore)
    return played.inputs, played.actions


def validate(chosen: Arguments, model: bytes, on: Executor = HERE) -> float:
    """Return the mean reward without exploring on the validation links, which are not used in training.

    Combinations that are more frequent in a round have more weight.
    """
    nics = dict.fromkeys(chosen.nics)
    kinds = len(chosen.senders)
    runs = [(k, nic, chosen.senders[k % kinds]) for nic in nics for k in range(chosen.validation)]
    judge = _core.Dqn(
        json.dumps(card(chosen)), [], 0, model=model, weight=chosen.utilisation_weight,
        square=chosen.utilisation_power == 2, scale_ms=chosen.delay_scale_ms,
    )  # fmt: skip
    episodes = on.map(simulate, runs, "validation", 0, 0.0, model, words(chosen))
    weights = [chosen.nics.count(nic) for _, nic, _ in runs]
    rewards = [w * judge.keep(*played) for w, played in zip(weights, episodes, strict=True)]
    return sum(rewards) / sum(weights)


def _file(learner: _core.Dqn, chosen: Arguments, *, mean: bool = False) -> bytes:
    return learner.model(json.dumps(card(chosen)), mean=mean)


def write(out: Path, model: bytes, described: dict[str, Any], chosen_by: str) -> dict[str, Any]:
    """Write a model with another card."""
    network = _core.Dqn(json.dumps(described), [], 0, model=model)
    made = origin.of_this_machine(threads=1, chosen_by=chosen_by)
    data, sealed = origin.sealed(
        lambda card: network.model(json.dumps(card)), {**described, "format": 2, "origin": made}
    )
    files.write_bytes(out, data)
    return sealed


def card(chosen: Arguments, results: dict[str, Any] | None = None) -> dict[str, Any]:
    """Describe the model (crates/quell-qdisc/src/policy/card.rs)."""
    paid = f"{chosen.utilisation_weight:g} U^{chosen.utilisation_power} + 2/(1 + D/{chosen.delay_scale_ms:g} ms)"
    return {
        "format": 1,
        "name": "rl-aqm-corrected",
        "what": f"RL-AQM (corrected): ranks drop probabilities of a FIFO, every {chosen.period_ms:g} ms",
        "inputs": [{"name": n, "scale": s} for n, s in INPUTS.items()],
        "hidden": ["relu"] * len(chosen.hidden),
        "heads": [{"name": "action", "activation": "linear", "outputs": [LEVEL + f"{p:g}" for p in chosen.levels]}],
        "trained_on": f"{chosen.rounds} rounds of {chosen.links} links of 45 s, 5 to 100 Mbit/s, 10 to 100 ms, "
        f"senders {', '.join(chosen.senders)}, nic {', '.join(map(str, chosen.nics))}, reward {paid}; {chosen.command}",
        "seed": chosen.seed,
        "quell": _core.__version__,
        "results": results or {},
    }
