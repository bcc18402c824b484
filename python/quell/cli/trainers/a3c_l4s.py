"""The command `quell train a3c-l4s`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from quell import _core, train
from quell._core import InputError
from quell.cli.options import Ray, Resume, Tensorboard
from quell.common import files
from quell.common.console import err
from quell.experiments.executor import executor
from quell.views.targets import command

EXAMPLES = (
    "Examples:\n\n  quell train a3c-l4s\n\n  quell train a3c-l4s --idle-price 250 --workers 2\n\n"
    "  quell train a3c-l4s --environment loop --reward rtt --reward-scale 50\n\n"
    "  quell train a3c-l4s --environment lookup --as-published --out published.safetensors"
)


def train_a3c_l4s(
    environment: Annotated[
        str,
        typer.Option(
            "--environment",
            metavar="worlds|loop|lookup",
            help="Many worlds at once; or the paper's procedure: queues in a closed loop, or its tables.",
        ),
    ] = "worlds",
    idle_price: Annotated[
        float | None,
        typer.Option(
            "--idle-price",
            metavar="X",
            min=0.0,
            max=1e6,
            help="worlds: cost of an idle period; more keeps links fuller.",
            show_default="160",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            max=256,
            help="Processes; the result is reproducible with 1.",
            show_default="1; loop, lookup: 4",
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Batches (worlds) or episodes of every worker.",
            show_default="400; loop, lookup: 100",
        ),
    ] = None,
    actor_rate: Annotated[
        float | None,
        typer.Option(
            "--actor-rate", metavar="X", min=0.0, help="Learning rate of Adam.", show_default="1e-3; loop, lookup: 5e-4"
        ),
    ] = None,
    critic_rate: Annotated[
        float | None,
        typer.Option("--critic-rate", metavar="X", min=0.0, help="Learning rate of Adam.", show_default="1e-3"),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(
            "--reward",
            metavar="utility|rtt",
            help="loop, lookup: weighted throughput, delay and loss, or delay alone.",
            show_default="utility",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="T,D,L",
            help="loop, lookup: weights of throughput, ln(1 + delay/10 ms) and loss.",
            show_default="1,0.1,0",
        ),
    ] = None,
    reward_scale: Annotated[
        float | None,
        typer.Option(
            "--reward-scale",
            metavar="A",
            min=0.1,
            max=1000.0,
            help="loop, lookup: factor on the delay (rtt).",
            show_default="15",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=1_000_000, help="loop, lookup: steps of 15 ms in an episode.", show_default="100"
        ),
    ] = None,
    update_every: Annotated[
        int | None,
        typer.Option(
            "--update-every", metavar="N", min=1, help="loop, lookup: steps between two gradients.", show_default="5"
        ),
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(metavar="X", min=0.0, max=1.0, help="loop, lookup: discount.", show_default="0.99")
    ] = None,
    entropy: Annotated[
        float | None,
        typer.Option(
            "--entropy",
            metavar="B",
            min=0.0,
            show_default="0",
            help="loop, lookup: weight of the entropy; the paper prints 0.01, its code has none.",
        ),
    ] = None,
    p_max: Annotated[
        float | None,
        typer.Option(
            "--p-max",
            metavar="P",
            min=0.001,
            max=1.0,
            help="loop, lookup: largest p' that an action can set.",
            show_default="1",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="proportional|random",
            show_default="proportional",
            help="loop, lookup: first weights: p' follows the delay, or random.",
        ),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--from", metavar="MODEL", help="worlds: continue from the weights of this model.")
    ] = None,
    testbed: Annotated[
        bool, typer.Option("--testbed", help="loop: only 10 Mbit/s, 20 ms and two flows each way, as in the paper.")
    ] = False,
    as_published: Annotated[
        bool,
        typer.Option("--as-published", help="loop, lookup: gauges and scaling as in the authors' log and notebooks."),
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**31, help="Random seed of first weights and episodes.")
    ] = 1,
    resume: Resume = False,
    tensorboard: Tensorboard = None,
    ray: Ray = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="PATH", help="Model; checkpoints and learning curve go beside it.")
    ] = Path("a3c-l4s.safetensors"),
) -> int:
    """Learn the base probabilities of coupled queues by an advantage actor-critic."""
    files.check_target("--out", out)
    if environment not in ("worlds", "loop", "lookup"):
        raise InputError(f"--environment {environment}: write worlds, loop or lookup")
    if reward not in (None, "utility", "rtt"):
        raise InputError(f"--reward {reward}: write utility or rtt")
    if start not in (None, "proportional", "random"):
        raise InputError(f"--start {start}: write proportional or random")
    shared = {"workers": workers, "episodes": episodes, "actor_rate": actor_rate, "critic_rate": critic_rate}
    many = {"idle_price": idle_price}
    published = {
        "reward": reward, "weights": _weights(weights), "reward_scale": reward_scale, "steps": steps,
        "update_every": update_every, "gamma": gamma, "entropy": entropy, "p_max": p_max, "start": start,
        "testbed": testbed or None, "as_published": as_published or None,
    }  # fmt: skip
    other, belongs = (published, "loop or lookup") if environment == "worlds" else (many, "worlds")
    for name, value in other.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')}: only with --environment {belongs}")
    if model is not None and environment != "worlds":
        raise InputError("--from: only with --environment worlds")
    first = None if model is None else _core.read_file(model, "model")
    train.need_torch()
    from quell.train import a3c, worlds

    own = many if environment == "worlds" else published
    given: dict[str, Any] = {k: v for k, v in {**shared, **own}.items() if v is not None}
    with executor(ray) as on:
        if environment == "worlds":
            many_worlds = worlds.Arguments(**given, seed=seed, command=command())
            results = worlds.train(many_worlds, out, start=first, resume=resume, tensorboard=tensorboard, on=on)[
                "results"
            ]
        else:
            if as_published:
                given["start"] = "random"
            tables: Literal["lookup", "loop"] = "lookup" if environment == "lookup" else "loop"
            paper = a3c.Arguments(**given, environment=tables, seed=seed, command=command())
            results = a3c.train(paper, out, resume=resume, tensorboard=tensorboard, on=on)["results"]
    err.print(
        f"{out}: episode {results['episode']}; relative to l4s's own law in {results['settings']} other scenarios: "
        f"mean delay times {results['mean_delay']}, throughput times {results['throughput']}",
        soft_wrap=True,
    )
    return 0


def _weights(text: str | None) -> tuple[float, float, float] | None:
    """Read `--weights`."""
    if text is None:
        return None
    try:
        throughput, delay, loss = (float(w) for w in text.split(","))
    except ValueError:
        raise InputError(f"--weights {text}: write three numbers, as in 1,0.1,0") from None
    if not all(math.isfinite(w) for w in (throughput, delay, loss)):
        raise InputError(f"--weights {text}: write three finite numbers, as in 1,0.1,0")
    return throughput, delay, loss
