"""Training of Hush: CMA-ES over the numbers of the policy, on random links of several kinds, against the classics.

All candidates of a generation run on the same links with the same seeds (common random numbers), an equal number of
each kind, drawn from a pool for each generation. Links of another seed choose the snapshot. The figures on the model's
card are from two sets that were not used for any choice, with links of all kinds, including one left out of the
training: a set whose seed is the hash of the numbers, and one that is the same for all models.
"""

from __future__ import annotations

import hashlib
import math
import random
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from quell import _core
from quell._core import InputError
from quell.common import files
from quell.common.console import bar
from quell.common.text import counted
from quell.experiments.executor import HERE, Executor
from quell.train import kit
from quell.train.judge import table, text
from quell.train.kinds import KINDS, Link, Span, draw, draw_each
from quell.train.links import CLASSICS, Bar, Cache, Run, bars, simulate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of missing matplotlib, which is not needed
    import cma

ROWS = {
    "target": 9, "wait": 9, "hold": 9, "cap": 9, "step": 9, "dry": 4, "power": 1, "longest": 1, "window": 1,
    "service": 1, "steady": 1, "kappa": 1, "lead": 1, "own": 1, "gain": 1, "falls": 1, "rises": 1,
}  # fmt: skip
"""Words of a model, with the number of values of each."""
LEARNED = {"target", "cap", "step", "dry", "longest", "service", "steady", "kappa", "gain", "rises"}
"""Words whose values the training changes. `lead` is set by hand, because the cost does not include the delay of a game
beside a download."""
SPREAD = {"longest": 0.1, "gain": 0.02, "service": 2.0, "steady": 2.0}
"""Step sizes other than 1, in units of `sigma`."""
RANGES = {
    "longest": (0.0001, 1.0), "service": (0.0, 16.0), "steady": (0.0, 16.0), "kappa": (0.0, 16.0), "gain": (0.0, 1.0),
    "rises": (0.0, 5.0),
}  # fmt: skip
WEIGHTS_WITHIN = 20.0
"""Largest magnitude of the numbers of words without an entry in `RANGES`."""
COMMON = 1001
"""Seed of the links on which all models are judged; also the default of `quell train hush --judge`."""

Model = dict[str, list[float]]


@dataclass(frozen=True)
class Arguments:
    """Parameters of a training."""

    generations: int = 100
    population: int = 16
    pool: int = 60
    """Number of training links of each kind."""
    batch: int = 12
    """Number of these links in a generation."""
    validation: int = 20
    """Number of links of each kind for choosing the snapshot."""
    held_out: int = 20
    """Number of links of each kind in each of the card's sets."""
    validate_every: int = 4
    sigma: float = 0.1
    """Initial step size of a weight."""
    seed: int = 1
    leave_out: str = ""
    """Kind of links that training and validation leave out."""
    only: tuple[str, ...] = ()
    """Words whose values the training changes; empty: those of `LEARNED`."""
    length: float = 1.0
    """Factor on the length of a run in training and validation."""
    packets: float = 1e6
    """Largest number of packets in a run of training or validation, at the link's rate."""
    most_mbps: float = 300.0
    """Fastest link in the pool. On a faster one, too many packets would pass before the classics have settled."""
    command: str = "quell train hush"


def parse(model: str) -> Model:
    """Parse a model's text; quell checks it when it is used."""
    lines = [line.split() for line in model.splitlines() if line and not line.startswith("#")]
    return {words[0]: [float(word) for word in words[1:]] for words in lines if words[0] in ROWS}


def write(model: Model, card: Sequence[str] = ()) -> str:
    """Return a model's text, with the card's lines as comments."""
    rows = [" ".join([word, *(f"{number:.6g}" for number in model[word])]) for word in ROWS]
    return "\n".join(["hush 3", *(f"# {line}".rstrip() for line in card), *rows, "end", ""])


def read(file: Path) -> Model:
    """Read a model's file. Raises InputError."""
    _core.queue(f"hush model {file}")  # refuses other files
    return parse(file.read_text())


def shipped() -> Model:
    """Return the model that quell ships."""
    return parse(_core.hush_model())


def scaled(model: Model, word: str, factor: float) -> Model:
    """Multiply the setting of a row. With `target`, the upper limit of targets, `longest`, is multiplied, too."""
    row = list(model[word])
    row[0] += math.log(factor)
    longest = [min(1.0, model["longest"][0] * (factor if word == "target" else 1.0))]
    return model | {word: row, "longest": longest}


class Space:
    """The learned numbers as a vector."""

    def __init__(self, first: Model, words: Collection[str] = LEARNED) -> None:
        self.first = first
        self.at = [(word, k) for word, row in first.items() for k in range(len(row)) if word in words]
        self.spread = np.array([SPREAD.get(word, 1.0) for word, _ in self.at])
        self.origin = np.array([first[word][k] for word, k in self.at])

    def model(self, steps: Any) -> Model:
        """Return the model at a vector of steps from the first one."""
        model = {word: list(row) for word, row in self.first.items()}
        for (word, k), value in zip(self.at, self.origin + self.spread * np.asarray(steps), strict=True):
            low, high = RANGES.get(word, (-WEIGHTS_WITHIN, WEIGHTS_WITHIN))
            model[word][k] = float(min(max(value, low), high))
        return model


def cost(run: Run, bar: Bar) -> float:
    """Return the cost of delay, lost goodput, unfairness, loss, and of a link that is not won.

    - Delay: ln p. Below 0.3 P there is no gain, since the rest would cost goodput; above 2 P, the worst cases, it
      counts twice. The cost of a link's delay is at most 4, so that a few links do not dominate.
    - Goodput below 0.994 G: a steep cost, at most 6.
    - Jain's index more than 0.01 below fq_codel's: a moderate cost; more than 0.03 below codel's, which users do not
      expect of a queue that separates flows: a steep cost.
    - Loss beyond cake's: the difference, and the ratio beyond 1.4.
    - A win (g >= 0.99 and p <= 1) has soft bounds, so that a step towards it counts.
    """
    g, p = max(run.goodput / bar.goodput, 1e-6), max(run.p95, 1e-3) / bar.p95
    delay = min(max(math.log(p), math.log(0.3)) + max(math.log(p / 2), 0.0), 4.0)
    goodput = min(100 * max(0.0, math.log(0.994 / g)), 6.0)
    win = _edge((g - 0.99) / 0.004) * _edge(-math.log(p) / 0.15)
    unfair = 4 * max(0.0, bar.fq_codel_jain - 0.01 - run.jain) + 20 * max(0.0, bar.codel_jain - 0.03 - run.jain)
    beyond = math.log((run.loss + 0.005) / (1.4 * bar.cake_loss + 0.005))
    loss = 3 * max(0.0, run.loss - bar.cake_loss) + 0.5 * max(0.0, beyond)
    return delay + goodput + unfair + loss + 1.5 * (1 - win)


def _edge(x: float) -> float:
    """Return the logistic function of x."""
    return 1 / (1 + math.exp(min(-x, 700.0)))


def costs(
    models: Sequence[Model], links: Sequence[Link], against: Sequence[Bar],
    on_done: Callable[[int], object] = lambda _: None, on: Executor = HERE,
) -> list[float]:  # fmt: skip
    """Return each model's mean cost over the links. A cluster's nodes must share the folder for temporary files."""
    with files.temporary_folder("quell-hush-") as folder:
        words = []
        for k, model in enumerate(models):
            file = folder / f"{k}.txt"
            file.write_text(write(model))
            words.append(f"hush model {file}")
        runs = simulate(links, words, on_done=on_done, on=on)
    return [fmean(cost(run, bar) for run, bar in zip(runs[word], against, strict=True)) for word in words]


def train(
    arguments: Arguments, out: Path, *, first: Model | None = None, resume: bool = False,
    tensorboard: Path | None = None, cache: Path | None = None, on: Executor = HERE,
) -> dict[str, Any]:  # fmt: skip
    """Train from `first` (default: the shipped model); write the model with its card; return the first set's figures.

    A resumed training replays its earlier generations, which gives the same state bit for bit. The classics' runs are
    kept in `cache`, by default a file beside the checkpoint. Raises InputError, Stopped.
    """
    if str(out).split() != [str(out)] or not str(out).isprintable():
        why = "queue words name the model, and cannot name a file with blanks or characters that are not printable"
        raise InputError(f"--out {out}: {why}; give another")
    space = Space(first or shipped(), arguments.only or LEARNED)
    options = asdict(arguments) | {"first": write(space.first)}
    for free in ("generations", "command", "held_out"):
        options.pop(free)
    kinds = [kind for kind in KINDS if kind != arguments.leave_out]
    pool = {kind: drawn(arguments, arguments.seed, kind, arguments.pool) for kind in kinds}
    validation = [x for kind in kinds for x in drawn(arguments, arguments.seed + 1, kind, arguments.validation)]
    session = kit.Session(
        out, options, total=arguments.generations, unit="generations", every=1, resume=resume, tensorboard=tensorboard
    )
    search = cma.CMAEvolutionStrategy(
        np.zeros(len(space.at)), arguments.sigma,
        {"popsize": arguments.population, "seed": arguments.seed + 1, "verbose": -9, "CMA_diagonal": True},
    )  # fmt: skip
    with session:
        kept = Cache(cache or session.folder / "classics.json")
        state: dict[str, Any] = session.state or {"losses": [], "best": [0.0] * len(space.at), "best_cost": math.inf}

        def shown(what: str, runs: int) -> Callable[[int], object]:
            return lambda done: session.note(f"{what}: {done} of {counted(runs, 'run')}")

        def reached(what: str, links: Sequence[Link]) -> list[Bar]:
            on_done = shown(f"classic queues, {what}", len(links) * len(CLASSICS))
            return bars(simulate(links, CLASSICS, on_done=on_done, on=on, cache=kept))

        against = {kind: reached(kind, links) for kind, links in pool.items()}
        against_validation = reached("validation", validation)

        def validated(model: Model) -> float:
            return costs([model], validation, against_validation, shown("validation", len(validation)), on)[0]

        with session.restoring():
            for losses in state["losses"]:
                search.tell(search.ask(), losses)
            space.model(state["best"])
        if not state["losses"]:
            state["best_cost"] = validated(space.first)
            session.point(0, validation=state["best_cost"])
        for generation in range(len(state["losses"]), arguments.generations):
            rng = random.Random(f"hush {arguments.seed} {generation}")
            chosen = [
                (kind, i) for kind, links in pool.items()
                for i in rng.sample(range(len(links)), min(arguments.batch, len(links)))
            ]  # fmt: skip
            candidates = search.ask()
            models = [space.model(x) for x in candidates]
            links, there = [pool[kind][i] for kind, i in chosen], [against[kind][i] for kind, i in chosen]
            on_done = shown(f"generation {generation + 1}", len(models) * len(links))
            losses = costs(models, links, there, on_done, on)
            search.tell(candidates, losses)
            state["losses"].append(losses)
            done = generation + 1
            values = {"loss": fmean(losses), "sigma": float(search.sigma)}
            if done % arguments.validate_every == 0 or done == arguments.generations:
                mean = [float(x) for x in search.mean]
                values["validation"] = validated(space.model(mean))
                if values["validation"] < state["best_cost"]:
                    state["best"], state["best_cost"] = mean, values["validation"]
            session.point(done, **{name: session.finite(name, value) for name, value in values.items()})
            session.advance(done, f"cost {values['loss']:.3f}, validation {state['best_cost']:.3f}", lambda: state)
    best = space.model(state["best"])
    # Not yet `out`, which may have an earlier model.
    judged = session.folder / "judged.txt"
    row = _finish(arguments, out, judged, best, state["best_cost"], kept, on)
    judged.unlink(missing_ok=True)
    return row


def drawn(arguments: Arguments, seed: int, kind: str, count: int) -> list[Link]:
    """Draw links of a kind that are not too fast for training."""
    span = Span(arguments.length, arguments.packets)
    links = draw(seed, 4 * count, kind=kind, span=span)
    return list(islice((link for link in links if link.rate_mbps <= arguments.most_mbps), count))


def _finish(
    arguments: Arguments, out: Path, judged: Path, model: Model, validation: float, cache: Cache, on: Executor
) -> dict[str, Any]:
    """Judge the chosen model on a set whose seed follows from its text, and on the common set; write it to `out`.

    While it is judged, it is in the file `judged`.
    """
    seed = int.from_bytes(hashlib.sha256(write(model).encode()).digest()[:4])
    files.write_whole(judged, lambda part: part.write_text(write(model)))
    words = f"hush model {judged}"
    card = [
        f"Trained with {arguments.command}",
        f"Kind of links left out of the training: {arguments.leave_out or 'none'}",
        f"Mean cost on {arguments.validation} validation links of each kind: {validation:.3f}",
    ]
    found = []
    for which, why in ((seed, "the hash of the numbers"), (COMMON, "the same for all models")):
        links = draw_each(which, arguments.held_out, 3)
        rows = table(links, _judged(links, [*CLASSICS, words], cache, on), [words])
        mine = [row | {"queue": "hush"} for row in rows if row["queue"] == words]
        card += [f"{arguments.held_out} links of each kind of seed {which} ({why}), 3 runs each:"]
        card += text(mine).splitlines()
        found.append(mine[0])
    files.write_whole(out, lambda part: part.write_text(write(model, card)))
    return found[0]


def _judged(links: Sequence[Link], queues: Sequence[str], cache: Cache, on: Executor) -> dict[str, list[Run]]:
    with bar("Judging", len(links) * len(queues) * links[0].scenario.seeds, "runs") as update:
        return simulate(links, queues, on_done=lambda done: update(done, ""), on=on, cache=cache)
