"""The command line's `quell train`: one command per learned controller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quell import files, train
from quell._core import InputError
from quell.output import bar, command, err

training = typer.Typer(
    help="Train a learned controller (needs torch: pip install 'quell\\[train]').", no_args_is_help=True
)


@training.callback()
def _train() -> None:
    r"""Train a learned controller (needs torch: pip install 'quell\[train]')."""


@training.command(
    "rl-aqm",
    epilog="Examples:\n\n  quell train rl-aqm\n\n  quell train rl-aqm --as-published --out published.safetensors",
)
def train_rl_aqm(
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="Runs of the scenario to learn from.")] = 200,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of weights, exploring and replay.")] = 1,
    hidden: Annotated[str, typer.Option(metavar="N,N,...", help="Widths of the hidden layers.")] = "3,32,32",
    nic: Annotated[
        int, typer.Option(metavar="N", min=0, help="Packets that the device holds below the discipline.")
    ] = 0,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Softmax head, raw inputs, no replay, one fit per step.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="PATH", help="Model; each episode's checkpoint lies beside it.")
    ] = Path("rl-aqm.safetensors"),
) -> int:
    """Learn RL-AQM's drop probabilities by a DQN on the paper's nine-section scenario."""
    files.check_target("--out", out)
    try:
        widths = tuple(int(width) for width in hidden.split(","))
    except ValueError:
        widths = ()
    if not widths or not all(1 <= width <= 1024 for width in widths):
        raise InputError(f"--hidden {hidden}: write widths of 1 to 1024, as in 3,32,32")
    train.need_torch()
    from quell.train import rl_aqm

    arguments = rl_aqm.Arguments(
        episodes=episodes, nic=nic, seed=seed, hidden=widths, as_published=as_published, command=command()
    )
    with bar("Training", episodes, "episodes") as update:
        card = rl_aqm.train(
            arguments, out, lambda e: update(e.number + 1, f"reward {e.reward:.3f}, {e.delay_ms:.1f} ms")
        )
    results = card["results"]
    err.print(
        f"{out}: episode {results['episode']}; without exploring, {results['runs']} other runs: "
        f"reward {results['reward']}, {results['delay_ms']} ms, {results['throughput_mbps']} Mbit/s",
        soft_wrap=True,
    )
    return 0
