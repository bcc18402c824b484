"""The command line's `quell train`: one command per learned controller."""

from __future__ import annotations

import typer

from quell.cli.command import Command
from quell.cli.trainers import a3c_l4s, hush, learnqueue, lfq, rl_aqm

training = typer.Typer(
    help="Train a learned controller (all but learnqueue need torch).",
    epilog="Examples:\n\n  quell train learnqueue home\n\n  quell train rl-aqm --help",
    no_args_is_help=True,
)


@training.callback()
def _train() -> None:
    """Train a learned controller."""


training.command("rl-aqm", cls=Command, epilog=rl_aqm.EXAMPLES)(rl_aqm.train_rl_aqm)
training.command("lfq", cls=Command, epilog=lfq.EXAMPLES)(lfq.train_lfq)
training.command("a3c-l4s", cls=Command, epilog=a3c_l4s.EXAMPLES)(a3c_l4s.train_a3c_l4s)
training.command("learnqueue", cls=Command, epilog=learnqueue.EXAMPLES)(learnqueue.train_learnqueue)
training.command("hush", cls=Command, epilog=hush.EXAMPLES)(hush.train_hush)
