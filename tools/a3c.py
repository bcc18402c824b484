#!/usr/bin/env python3
"""Train A3C-L4S as compared in docs/lab/l4s-a3c.md, and write python/quell/papers/trained/a3c-l4s.studies.parquet.

    .venv/bin/python tools/a3c.py [STUDY ...]

| study | what it does |
|---|---|
| seeds | the training of the network that shipped before, five seeds |
| scales | Figure 27 |
| a2c | stable-baselines3's A2C beside A3C, from random weights |
| first, long, follow | the paper's procedure from random weights; the same in long episodes; a fixed network that follows the delay |
| worlds | many worlds from random weights, five seeds; networks and checkpoints go to target/a3c |
| six | a law of six numbers in place of a network, five searches by CMA-ES, each about as long as the training; files go to target/a3c |

A study replaces its former rows in the file. All studies take about 50 minutes of one core, half of it for worlds.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import pathlib
import tempfile
from array import array
from typing import Any

import cma
import numpy as np
import polars as pl
import torch

from quell import _core
from quell.common import files
from quell.common.console import err
from quell.train import a3c, coupled, worlds

ROOT = pathlib.Path(__file__).resolve().parents[1]
INTO = ROOT / "python" / "quell" / "papers" / "trained" / "a3c-l4s.studies.parquet"
SHIPPED: dict[str, Any] = {"actor_rate": 5e-5}
NETWORKS = ROOT / "target" / "a3c"
RUNS = 5
"""Runs of each scenario by which the networks of the seeds are judged."""
SCALES = (10.0, 25.0, 50.0, 100.0)
EPISODES = 60
"""Number of episodes of a training from random weights."""
KEPT = ("reward", "rewards", "delay_ms", "delays_ms", "spread")
LAW: list[Any] = []


def judged(path):
    """Compare a network with the queue's own law on the held-out set."""
    if not LAW:
        LAW.append(coupled.held_out([coupled.QUEUE], threads=1)[coupled.QUEUE])
    words = f"a3c_l4s model {path}"
    return coupled.versus(coupled.held_out([words], threads=1)[words], LAW[0])


def learn(arguments):
    """Train without a choice among networks; return the last global network, and the curve."""
    shared = a3c.start_global(arguments)
    traces = []
    if arguments.environment == "lookup":
        traces = [coupled.record(arguments.seed, k, published=arguments.as_published) for k in range(4)]
    scale = a3c.scaling(arguments, traces)
    curve = []
    with a3c.start_workers(arguments, shared, scale, traces) as workers:
        for number in range(arguments.episodes):
            means = workers.play(number)
            rewards, delays = [t.reward for t in means], [t.delay_ms for t in means]
            spread = float(np.mean([t.spread for t in means]))
            curve.append({"step": number, "reward": float(np.mean(rewards)), "rewards": rewards, "spread": spread,
                          "delay_ms": float(np.mean(delays)), "delays_ms": delays})  # fmt: skip
    networks = a3c.Networks()
    networks.flat.copy_(shared.flat)
    return networks, scale, traces, curve


def in_loop(arguments):
    """Train in the closed loop, and judge."""
    networks, scale, _, curve = learn(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.safetensors"
        path.write_bytes(a3c.as_file(arguments, scale, networks))
        return curve, judged(path)


def chosen(arguments):
    """Train like the command, which chooses among the last networks, and judge."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.safetensors"
        a3c.train(arguments, path)
        curve = pl.read_parquet(path.with_name("m-checkpoints") / "curve.parquet")
        return curve.select("step", *KEPT).to_dicts(), judged(path)


def in_worlds(arguments):
    """Train in many worlds, and judge on the sets that were not used for the choice."""
    NETWORKS.mkdir(parents=True, exist_ok=True)
    path = NETWORKS / f"seed-{arguments.seed}.safetensors"
    folder = path.with_name(f"{path.stem}-checkpoints")
    if not path.exists():
        worlds.train(arguments, path, resume=folder.exists())
    curve = pl.read_parquet(folder / "curve.parquet").select("step", *KEPT).to_dicts()
    return curve, on_sets(path)


def on_sets(path):
    """Judge on the sets that were not used for the choice."""
    results: dict[str, Any] = {}
    for name in ("held out", "few flows", "new"):
        words = f"a3c_l4s model {path}"
        got = coupled.held_out(
            [words, coupled.QUEUE],
            settings=coupled.SETS[name],
            seeds=RUNS,
            first_seed=coupled.FIRST_SEEDS[name],
            threads=1,
        )
        found = coupled.versus(got[words], got[coupled.QUEUE])
        results |= found if name == "held out" else {f"{name} {key}": value for key, value in found.items()}
    return results


# Six numbers. --------------------------------------------------------------------------------------------------------

GENERATIONS, POPULATION, DRAWN = 17, 10, 16
"""The search simulates 2.99 M periods of 15 ms, the law's own runs included; `quell train a3c-l4s` simulates 3.07 M."""
FIRST_NUMBERS = (-3.0, 1.0, 0.0) * 2
GATE = 64.0
"""Opens one ReLU unit and closes the other, because it is larger than any action."""


def power_law(numbers):
    """Make the policy file of ln p' = a + b ln(1 + d) + c ln((1 + d)/(1 + d_old)).

    d is the delay in ms, d_old that of the period before. `numbers`: a, b, c of classic sub-queues, then of L4S ones.
    One of two ReLU units is open in classic sub-queues, the other one in L4S sub-queues.
    """
    names = _core.a3c_readings("logarithmic")
    hidden, bias = np.zeros((2, len(names))), np.zeros(2)
    slope = -2 / math.log(1e-3)
    for unit, ((a, b, c), sign) in enumerate(zip(np.reshape(numbers, (2, 3)), (-1, 1), strict=True)):
        hidden[unit, names.index("ln_qdelay")] = slope * (b + c)
        hidden[unit, names.index("ln_qdelay_old")] = -slope * c
        hidden[unit, names.index("ln_ecn")] = sign * 2 * GATE / math.log(2)
        bias[unit] = 1 + slope * a - sign * GATE
    card = {
        "format": 1,
        "name": "a3c-l4s",
        "what": "a power law of the delay in place of a network, p' 0.001 to 1",
        "inputs": [{"name": n, "offset": 0.0, "scale": 1.0} for n in names],
        "hidden": ["relu"],
        "heads": [{"name": "action", "activation": "linear", "outputs": ["action"]}],
        "trained_on": f"CMA-ES, {GENERATIONS} generations of {POPULATION} on {DRAWN} links; tools/a3c.py six; "
        f"a, b, c: {', '.join(f'{x:.4g}' for x in numbers)}",
        "seed": 0,
        "quell": _core.__version__,
        "results": {},
    }
    layers = [(hidden, bias), (np.ones(2), np.array([-GATE]))]
    return _core.policy_bytes(json.dumps(card), [(array("f", w.ravel()), array("f", b)) for w, b in layers])


def in_numbers(seed):
    """Search; choose among the means of the last generations by validation, like the training, and judge."""
    NETWORKS.mkdir(parents=True, exist_ok=True)
    path = NETWORKS / f"six-{seed}.safetensors"
    trial = NETWORKS / "trial.safetensors"
    search = cma.CMAEvolutionStrategy(FIRST_NUMBERS, 1.0, {"popsize": POPULATION, "seed": seed, "verbose": -9})
    law = worlds.validated(coupled.QUEUE)
    best, curve = math.inf, []
    for generation in range(GENERATIONS):
        drawn = [worlds.draw(seed, -2, k, generation) for k in range(DRAWN)]
        where: dict[str, Any] = {
            "settings": [setting for setting, _ in drawn], "first_seed": drawn[0][1],
            "duration_s": worlds.EPISODE * coupled.PERIOD_S,
        }  # fmt: skip
        own = coupled.held_out([coupled.QUEUE], **where)[coupled.QUEUE]
        found, losses = search.ask(), []
        for numbers in found:
            trial.write_bytes(power_law(numbers))
            words = f"a3c_l4s model {trial}"
            losses.append(worlds.score(coupled.held_out([words], **where)[words], own)["score"])
        search.tell(found, losses)
        curve.append({"step": generation, "reward": -float(np.mean(losses))})
        if generation >= GENERATIONS * 3 // 5:
            trial.write_bytes(power_law(search.mean))
            score = worlds.score(worlds.validated(f"a3c_l4s model {trial}"), law)["score"]
            if score < best:
                best = score
                path.write_bytes(trial.read_bytes())
    return curve, {**on_sets(path), "score": best}


def in_tables(arguments):
    """Train on the published tables; return each worker's mean delay at the network's choices, and its table's mean."""
    networks, scale, traces, curve = learn(arguments)
    predicted, actual = [], []
    for trace in traces:
        with torch.no_grad():
            mean, _ = networks.act(scale(trace.readings))
        wanted = scale.probability(mean.numpy())
        rows = np.abs(trace.readings[:, 1][None, :] - wanted[:, None]).argmin(axis=1)
        predicted.append(float(trace.delay_ms[rows].mean()))
        actual.append(float(trace.delay_ms.mean()))
    return curve, {"predicted_ms": predicted, "actual_ms": actual}


def a2c(arguments):
    """Train stable-baselines3's A2C for the same number of periods, and judge."""
    spec = importlib.util.spec_from_file_location("sb3_a2c", ROOT / "examples" / "sb3_a2c.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    env, model = module.train(arguments, arguments.episodes * arguments.steps * arguments.workers)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.safetensors"
        module.write(env, model, path)
        curve = [{"step": k, "reward": r, "delay_ms": d} for k, (r, d) in enumerate(env.episodes)]
        return curve, judged(path)


def studies():
    """Yield every training: study, name, how, arguments."""
    for seed in range(1, 6):
        yield "seeds", "shipped options", chosen, a3c.Arguments(seed=seed, **SHIPPED)
        yield "six", "six numbers", lambda arguments: in_numbers(arguments.seed), a3c.Arguments(seed=seed)
        command = f"quell train a3c-l4s --seed {seed}"
        yield "worlds", "many worlds", in_worlds, worlds.Arguments(seed=seed, command=command)
    for seed in range(1, 4):
        random: dict[str, Any] = {"start": "random", "seed": seed, "episodes": EPISODES}
        yield "a2c", "A3C", in_loop, a3c.Arguments(**random)
        yield "a2c", "A2C", a2c, a3c.Arguments(**random)
    for scale in SCALES:
        for seed in range(1, 3):
            yield "scales", f"{scale:g}", in_tables, a3c.Arguments(
                environment="lookup", reward="rtt", reward_scale=scale, as_published=True, start="random", episodes=40,
                seed=seed,
            )  # fmt: skip
    for name, more in FIRST.items():
        yield "first", name, in_loop, a3c.Arguments(start="random", episodes=EPISODES, **more)
    yield "long", "episodes of 15 s, 12 of them", in_loop, a3c.Arguments(start="random", episodes=12, steps=1000)
    yield (
        "follow",
        "as the row above, but first weights that follow the delay, held",
        in_loop,
        a3c.Arguments(episodes=12, steps=1000, actor_rate=0.0),
    )


FIRST: dict[str, dict[str, Any]] = {
    "p' up to 0.1": {"p_max": 0.1},
    "entropy 0.01": {"entropy": 0.01},
    "discount 0.9": {"gamma": 0.9},
    "delay weighs 0.3": {"weights": (1.0, 0.3, 0.0)},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(study for study, *_ in studies()))
    parser.add_argument("studies", nargs="*", choices=[*names, []], metavar="STUDY")
    wanted = parser.parse_args().studies or names
    for study in wanted:
        rows = []
        for _, name, how, arguments in (s for s in studies() if s[0] == study):
            curve, results = how(arguments)
            curve[-1] |= results
            rows += [{"study": study, "name": name, "seed": arguments.seed, **point} for point in curve]
            err.print(f"{study} {name} {arguments.seed}: {results}", soft_wrap=True)
        table = pl.DataFrame(rows, infer_schema_length=None)
        with contextlib.suppress(FileNotFoundError):
            others = pl.read_parquet(INTO).filter(pl.col("study") != study)
            table = pl.concat([others, table], how="diagonal_relaxed")
        files.write_whole(INTO, table.write_parquet)


if __name__ == "__main__":
    main()
