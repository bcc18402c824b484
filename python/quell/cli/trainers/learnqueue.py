"""The command `quell train learnqueue`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quell import _core
from quell._core import InputError
from quell.cli import complete
from quell.cli.options import Duration, File, Seed
from quell.common import files
from quell.common.console import err
from quell.experiments import experiment
from quell.views.targets import command

EXAMPLES = (
    "Examples:\n\n  quell train learnqueue wifi-house\n\n"
    "  quell train learnqueue lte --aqm 'learnqueue target 10ms' --episodes 50\n\n"
    "  quell run wifi-house --aqm 'learnqueue table learnqueue.safetensors'"
)


def train_learnqueue(
    scenario: File = None,
    aqm: Annotated[
        str,
        typer.Option(
            "--aqm",
            metavar="WORDS",
            help="A learnqueue with its options; with a table, continues from it.",
            autocompletion=complete.words,
        ),
    ] = "learnqueue",
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="Runs to learn from, one after the other.")] = 20,
    queue: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Queue whose table is kept: 0 is the first flow's; order as in `quell run`."
        ),
    ] = 0,
    duration: Duration = None,
    seed: Seed = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the runs of the table in --out.")] = False,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="PATH", help="The best table; the last one and the learning curve go beside it."),
    ] = Path("learnqueue.safetensors"),
) -> int:
    """Train LearnQueue's Q-table in simulated runs."""
    from quell.train import learnqueue

    files.check_target("--out", out)
    world = experiment.load(scenario, duration=duration, seed=seed)
    try:
        _core.queue(aqm)
    except InputError as error:
        raise InputError(f"--aqm: {error}") from None
    best = learnqueue.train(world, aqm, out, episodes=episodes, which=queue, command=command(), resume=resume)
    err.print(
        f"{out}: the table of run {best.run}, the best of {episodes}; mean delay {best.judged_delay_ms:.1f} ms, "
        f"{best.judged_throughput_mbps:.2f} Mbit/s; quell show {out} draws it",
        soft_wrap=True,
    )
    return 0
