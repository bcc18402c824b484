"""Hush: CMA-ES over the numbers of the policy, on random links beside the classics.

Every candidate of a generation meets the same links with the same seeds (common random numbers), drawn from a pool for
each generation. Links of another seed choose the snapshot; links of a third give the figures on the model's
card.
"""

from __future__ import annotations

import hashlib
import math
import random
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from quell import _core
from quell.common import files
from quell.experiments.executor import HERE, Executor
from quell.train import kit
from quell.train.judge import table, text
from quell.train.kinds import Link, Span, draw
from quell.train.links import CLASSICS, Bar, Run, bars, simulate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it misses matplotlib, which nothing here needs
    import cma

ROWS = {"target": 9, "wait": 9, "hold": 9, "cap": 9, "step": 9, "power": 1, "longest": 1, "window": 1, "service": 1}
"""The words of a model and how many numbers each has."""
FIXED = {"window", "service"}
SPREAD = {"power": 0.5, "longest": 0.01}
"""How far a step goes, in units of `sigma`, where not 1; ln would do for `longest`, but 25 ms is far from 0."""
RANGES = {"power": (0.0, 2.0), "longest": (0.0001, 1.0)}
WEIGHTS_WITHIN = 20.0

Model = dict[str, list[float]]


@dataclass(frozen=True)
class Arguments:
    """What a training is made with."""

    generations: int = 100
    population: int = 16
    pool: int = 300
    """Links to learn from."""
    batch: int = 120
    """Of them, in a generation."""
    validation: int = 150
    held_out: int = 60
    validate_every: int = 4
    sigma: float = 0.1
    """First step, of a weight."""
    seed: int = 1
    length: float = 0.5
    """Of a link's measured time, in training and validation."""
    most_mbps: float = 300.0
    """Faster links of the pool are left out: they cost most and teach what slower ones do."""
    command: str = "quell train hush"


def parse(model: str) -> Model:
    """Read a model's text; quell itself checks it when it is used."""
    lines = [line.split() for line in model.splitlines() if line and not line.startswith("#")]
    return {words[0]: [float(word) for word in words[1:]] for words in lines if words[0] in ROWS}


def write(model: Model, card: Sequence[str] = ()) -> str:
    """Write a model's text, the card's lines as comments."""
    rows = [" ".join([word, *(f"{number:.6g}" for number in model[word])]) for word in ROWS]
    return "\n".join(["hush 1", *(f"# {line}".rstrip() for line in card), *rows, "end", ""])


def read(file: Path) -> Model:
    """Read a model's file. Raises InputError."""
    _core.queue(f"hush model {file}")  # which refuses what is no model
    return parse(file.read_text())


def shipped() -> Model:
    """Return the model that quell ships."""
    return parse(_core.hush_model())


class Space:
    """The numbers that are learned, as a vector."""

    def __init__(self, first: Model) -> None:
        self.first = first
        self.at = [(word, k) for word, row in first.items() for k in range(len(row)) if word not in FIXED]
        self.spread = np.array([SPREAD.get(word, 1.0) for word, _ in self.at])
        self.origin = np.array([first[word][k] for word, k in self.at])

    def model(self, steps: Any) -> Model:
        """Make the model that lies so many steps from the first one."""
        model = {word: list(row) for word, row in self.first.items()}
        for (word, k), value in zip(self.at, self.origin + self.spread * np.asarray(steps), strict=True):
            low, high = RANGES.get(word, (-WEIGHTS_WITHIN, WEIGHTS_WITHIN))
            model[word][k] = float(min(max(value, low), high))
        return model


def cost(run: Run, bar: Bar) -> float:
    """Charge for delay, and steeply for lost goodput; for loss beyond cake's, unfairness beyond fq_codel's, no win.

    Below 0.4 times the best delay there is nothing to gain: the last of it would be bought with goodput. No link costs
    more than 2.5 for its delay and 6 for its goodput, so that a few on which chance decides do not drown the others. A
    win (g >= 0.99 and p <= 1) has soft edges, so that a step towards it counts.
    """
    g, p = max(run.goodput / bar.goodput, 1e-6), max(run.p95, 1e-3) / bar.p95
    delay = min(max(math.log(p), -0.9), 2.5)
    goodput = min(100 * max(0.0, math.log(0.997 / g)), 6.0)
    win = _edge((g - 0.99) / 0.004) * _edge(-math.log(p) / 0.15)
    loss, jain = max(0.0, run.loss - bar.cake_loss), max(0.0, bar.fq_codel_jain - 0.01 - run.jain)
    return delay + goodput + 3 * loss + 4 * jain + 1.5 * (1 - win)


def _edge(x: float) -> float:
    """Rise from 0 to 1 around 0."""
    return 1 / (1 + math.exp(min(-x, 700.0)))


def costs(models: Sequence[Model], links: Sequence[Link], against: Sequence[Bar], on: Executor = HERE) -> list[float]:
    """Give each model's mean cost over the links. A cluster's nodes must share the folder for temporary files."""
    with TemporaryDirectory(prefix="quell-hush-") as folder:
        words = []
        for k, model in enumerate(models):
            file = Path(folder) / f"{k}.txt"
            file.write_text(write(model))
            words.append(f"hush model {file}")
        runs = simulate(links, words, on=on)
    return [fmean(cost(run, bar) for run, bar in zip(runs[word], against, strict=True)) for word in words]


def train(
    arguments: Arguments, out: Path, *, first: Model | None = None, resume: bool = False,
    tensorboard: Path | None = None, on: Executor = HERE,
) -> dict[str, Any]:  # fmt: skip
    """Learn from `first` (the shipped model) on; write the model with its card; return the held-out figures.

    A resumed training asks again for the generations that it has, which gives the same state bit for bit.
    Raises InputError, Stopped.
    """
    space = Space(first or shipped())
    options = asdict(arguments) | {"first": write(space.first)}
    for free in ("generations", "command", "held_out"):
        options.pop(free)
    span = Span(arguments.length)
    pool = [x for x in draw(arguments.seed, arguments.pool, span=span) if x.rate_mbps <= arguments.most_mbps]
    validation = draw(arguments.seed + 1, arguments.validation, span=span)
    session = kit.Session(
        out, options, total=arguments.generations, unit="generations", every=1, resume=resume, tensorboard=tensorboard
    )
    search = cma.CMAEvolutionStrategy(
        np.zeros(len(space.at)), arguments.sigma,
        {"popsize": arguments.population, "seed": arguments.seed + 1, "verbose": -9, "CMA_diagonal": True},
    )  # fmt: skip
    with session:
        state: dict[str, Any] = session.state or {"losses": [], "best": [0.0] * len(space.at), "best_cost": math.inf}
        against = bars(simulate(pool, CLASSICS, on=on))
        against_validation = bars(simulate(validation, CLASSICS, on=on))
        for losses in state["losses"]:
            search.tell(search.ask(), losses)
        if not state["losses"]:
            [state["best_cost"]] = costs([space.first], validation, against_validation, on)
            session.point(0, validation=state["best_cost"])
        for generation in range(len(state["losses"]), arguments.generations):
            chosen = random.Random(f"hush {arguments.seed} {generation}").sample(
                range(len(pool)), min(arguments.batch, len(pool))
            )
            candidates = search.ask()
            models = [space.model(x) for x in candidates]
            losses = costs(models, [pool[i] for i in chosen], [against[i] for i in chosen], on)
            search.tell(candidates, losses)
            state["losses"].append(losses)
            done = generation + 1
            values = {"loss": fmean(losses), "sigma": float(search.sigma)}
            if done % arguments.validate_every == 0 or done == arguments.generations:
                mean = [float(x) for x in search.mean]
                [values["validation"]] = costs([space.model(mean)], validation, against_validation, on)
                if values["validation"] < state["best_cost"]:
                    state["best"], state["best_cost"] = mean, values["validation"]
            session.point(done, **{name: session.finite(name, value) for name, value in values.items()})
            session.advance(done, f"cost {values['loss']:.3f}, validation {state['best_cost']:.3f}", lambda: state)
    best = space.model(state["best"])
    return _finish(arguments, out, best, state["best_cost"], on)


def _finish(arguments: Arguments, out: Path, model: Model, validation: float, on: Executor) -> dict[str, Any]:
    """Judge the chosen model on links of a seed that its own text gives, and write it."""
    seed = int.from_bytes(hashlib.sha256(write(model).encode()).digest()[:4])
    files.write_whole(out, lambda part: part.write_text(write(model)))
    links = draw(seed, arguments.held_out, 3)
    words = f"hush model {out}"
    rows = table(links, simulate(links, [*CLASSICS, words], on=on), [])
    [mine] = [row | {"queue": "hush"} for row in rows if row["queue"] == words]
    card = [
        f"Trained with {arguments.command}", f"Mean cost on {arguments.validation} validation links: {validation:.3f}",
        f"On {arguments.held_out} links of seed {seed} (the hash of the numbers), 3 runs each:",
        *text([mine]).splitlines(),
    ]  # fmt: skip
    files.write_whole(out, lambda part: part.write_text(write(model, card)))
    return mine
