"""The command `quell train lfq`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quell import _core, train
from quell.cli.options import Ray, Resume, Tensorboard
from quell.common import files
from quell.common.console import err
from quell.experiments.executor import executor

EXAMPLES = (
    "Examples:\n\n  quell train lfq --alpha 0.01\n\n"
    "  quell train lfq --alpha 10 --online --flows 500000 --out online.safetensors\n\n"
    "  quell train lfq --alpha 0.01 --resume"
)


def train_lfq(
    alpha: Annotated[
        float, typer.Option(metavar="A", min=0.0, help="Cost of queued data, or of delay, in the reward.")
    ] = 0.01,
    reward: Annotated[
        str,
        typer.Option(
            metavar="queue|delay|MODULE:NAME",
            help="What the reward charges for, or a function in Python that gives it.",
        ),
    ] = "queue",
    online: Annotated[
        bool, typer.Option("--online", help="Learn from one world with a critic, not from two clones.")
    ] = False,
    flows: Annotated[int, typer.Option(metavar="N", min=1, help="Flows to learn from.")] = 250_000,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**31, help="Random seed of first weights and flows.")
    ] = 1,
    learning_rate: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="Learning rate of plain gradient descent.")
    ] = 0.01,
    critic_rate: Annotated[
        float,
        typer.Option(
            "--critic-rate", metavar="X", min=0.0, help="Online: learning rate of Adam; 0: plain descent, as published."
        ),
    ] = 0.0,
    actor_rate: Annotated[
        float,
        typer.Option(
            "--actor-rate", metavar="X", min=0.0, help="Learning rate of Adam; 0: plain descent, as published."
        ),
    ] = 0.0,
    replay: Annotated[
        int, typer.Option(metavar="N", min=0, max=100, help="Online: fits of the critic to past flows per batch.")
    ] = 0,
    start: Annotated[
        Path | None, typer.Option("--from", metavar="MODEL", help="Continue from the weights of this model.")
    ] = None,
    hindsight: Annotated[
        bool, typer.Option("--hindsight", help="Online: the critic knows the link's rate and the flow's length.")
    ] = False,
    duration: Annotated[
        float, typer.Option(metavar="S", min=0.1, max=1000.0, help="Mean length of a flow, seconds.")
    ] = 5.0,
    act_within: Annotated[
        float, typer.Option(metavar="X", max=1.0, help="The experiment starts within this share of a flow's length.")
    ] = 0.5,
    paper_weights: Annotated[
        bool, typer.Option("--paper-weights", help="Weights of averages as printed in the paper, not as in its code.")
    ] = False,
    resume: Resume = False,
    tensorboard: Tensorboard = None,
    ray: Ray = None,
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", metavar="N", min=1, help="Flows between checkpoints.")
    ] = 10_000,
    out: Annotated[
        Path, typer.Option("--out", metavar="PATH", help="Model; checkpoints and learning curve go beside it.")
    ] = Path("lfq.safetensors"),
) -> int:
    """Learn a buffer size per flow from simulations that are cloned halfway, as in the LFQ paper."""
    files.check_target("--out", out)
    first = None if start is None else _core.read_file(start, "model")
    train.need_torch()
    from quell.train import lfq

    arguments = lfq.Arguments(
        alpha=alpha, reward=reward, online=online, flows=flows, seed=seed, learning_rate=learning_rate,
        critic_rate=critic_rate, actor_rate=actor_rate, replay=replay, hindsight=hindsight,
        duration_s=duration, act_within=act_within, paper_weights=paper_weights, checkpoint_every=checkpoint_every,
    )  # fmt: skip
    with executor(ray) as on:
        results = lfq.train(arguments, out, start=first, resume=resume, tensorboard=tensorboard, on=on)["results"]
    err.print(
        f"{out}: {results['flows']} flows in {results['training_s']} s; evaluated: "
        f"{results['throughput_mbps']} Mbit/s, {results['backlog_packets']} packets queued, "
        f"{results['backlog_max_packets']} at most",
        soft_wrap=True,
    )
    return 0
