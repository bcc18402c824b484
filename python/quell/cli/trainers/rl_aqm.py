"""The command `quell train rl-aqm`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from quell import _core, train
from quell._core import InputError
from quell.cli import complete
from quell.cli.options import Ray, Resume, Tensorboard
from quell.common import files
from quell.common.console import err
from quell.experiments.executor import executor
from quell.views.targets import command

EXAMPLES = (
    "Examples:\n\n  quell train rl-aqm --tensorboard runs\n\n  quell train rl-aqm --resume\n\n"
    "  quell train rl-aqm --corrected\n\n"
    "  quell train rl-aqm --as-published --out published.safetensors"
)


def train_rl_aqm(
    episodes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Runs to learn from. Default: 200; with --corrected 864."),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**31, help="Random seed of weights, exploration and replay.")
    ] = 1,
    hidden: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Widths of the hidden layers. Default: 3,32,32; with --corrected 32,32."),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Scenario file or built-in scenario to learn on. Default: rl-aqm.",
            autocompletion=complete.files,
        ),
    ] = None,
    nic: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Packets in the device below the discipline. Default: the scenario's; with --corrected 0 and 100.",
        ),
    ] = None,
    weight: Annotated[
        float,
        typer.Option(
            "--utilisation-weight",
            metavar="X",
            min=0.0,
            max=1000.0,
            help="Weight of utilisation in the reward.",
        ),
    ] = 1.0,
    delay_scale: Annotated[
        float,
        typer.Option(
            "--delay-scale",
            metavar="MS",
            min=0.1,
            max=10_000.0,
            help="Delay at which the reward's delay term is halved.",
        ),
    ] = 5.0,
    power: Annotated[
        int,
        typer.Option(
            "--utilisation-power",
            metavar="1|2",
            min=1,
            max=2,
            help="Power of utilisation: 2 as in the paper, 1 as in its code.",
        ),
    ] = 2,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Softmax head, raw inputs, no replay, one fit per step.")
    ] = False,
    corrected: Annotated[
        bool,
        typer.Option("--corrected", help="Rank drop probabilities instead of steps, without rules, on random links."),
    ] = False,
    start: Annotated[
        Path | None, typer.Option("--from", metavar="MODEL", help="Continue from the weights of this model.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="PATH", help="Model; checkpoints and curve go to a folder beside it.")
    ] = Path("rl-aqm.safetensors"),
    resume: Resume = False,
    tensorboard: Tensorboard = None,
    ray: Ray = None,
) -> int:
    """Learn RL-AQM's drop probabilities by a DQN: on the paper's nine-section scenario, or on random links."""
    files.check_target("--out", out)
    widths = None if hidden is None else _widths(hidden)
    if corrected and (as_published or scenario is not None):
        raise InputError(
            "--corrected has links of its own and is not as published: leave --scenario, --as-published out"
        )
    first = None if start is None else _core.read_file(start, "model")
    train.need_torch()
    from quell.train import rl_aqm, rl_aqm_corrected

    with executor(ray) as on:
        if corrected:
            own = rl_aqm_corrected.Arguments(
                seed=seed, utilisation_weight=weight, utilisation_power=power, delay_scale_ms=delay_scale,
                command=command(),
            )  # fmt: skip
            if episodes is not None:
                own = replace(own, rounds=-(-episodes // own.links))
            if nic is not None:
                own = replace(own, nics=(nic,))
            own = own if widths is None else replace(own, hidden=widths)
            card = rl_aqm_corrected.train(own, out, start=first, resume=resume, tensorboard=tensorboard, on=on)
            results = card["results"]
            err.print(
                f"{out}: round {results['round']}; without exploring, on {results['links']} other links: "
                f"reward {results['reward']}",
                soft_wrap=True,
            )
            return 0
        arguments = rl_aqm.Arguments(
            scenario=scenario or "rl-aqm", episodes=episodes or 200, nic=nic, seed=seed, hidden=widths or (3, 32, 32),
            utilisation_weight=weight, utilisation_power=power, delay_scale_ms=delay_scale, as_published=as_published,
            command=command(),
        )  # fmt: skip
        card = rl_aqm.train(arguments, out, start=first, resume=resume, tensorboard=tensorboard, on=on)
    results = card["results"]
    err.print(
        f"{out}: episode {results['episode']}; without exploring, {results['runs']} other runs: "
        f"reward {results['reward']}, {results['delay_ms']} ms, {results['throughput_mbps']} Mbit/s",
        soft_wrap=True,
    )
    return 0


def _widths(hidden: str) -> tuple[int, ...]:
    try:
        widths = tuple(int(width) for width in hidden.split(","))
    except ValueError:
        widths = ()
    if not widths or not all(1 <= width <= 1024 for width in widths):
        raise InputError(f"--hidden {hidden}: write widths of 1 to 1024, as in 3,32,32")
    return widths
