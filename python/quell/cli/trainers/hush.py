"""The command `quell train hush`."""

from __future__ import annotations

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
    "Examples:\n\n  quell train hush --judge\n\n  quell train hush --generations 100 --out mine.txt\n\n"
    "  quell train hush --judge --aqm 'hush model mine.txt' --aqm 'hush single' --links 100 --set 5\n\n"
    "  quell train hush --judge --kind far --kind busy --each\n\n"
    "  quell train hush --judge --ablate --kind mixed --links 20 --seeds 1"
)


def train_hush(
    generations: Annotated[int, typer.Option(metavar="N", min=1, help="Of CMA-ES.")] = 100,
    population: Annotated[int, typer.Option(metavar="N", min=4, max=1000, help="Candidates in a generation.")] = 16,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, help="Links of each kind that a generation meets, of --links.")
    ] = 12,
    leave_out: Annotated[
        str | None,
        typer.Option(
            "--leave-out",
            metavar="mixed|settled|far|moving|busy",
            help="Kind of links that training does not see; the card has its figures.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="WORD", help="Learn this line of the model, not all; repeatable: target."),
    ] = None,
    sigma: Annotated[float, typer.Option(metavar="X", min=1e-4, max=10.0, help="First step of a weight.")] = 0.1,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="FILE", help="Start from this model, not from quell's own.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**31, help="Of the search and its links.")] = 1,
    links: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=10_000, help="Random links of each kind: 60 to learn from, 20 to judge on."
        ),
    ] = None,
    judge: Annotated[
        bool, typer.Option("--judge", help="Train nothing: print how queues do on random links beside the classics.")
    ] = False,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            "--aqm", metavar="WORDS", help="Judged in place of hush; repeatable.", autocompletion=complete.words
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", min=1, max=100, help="Judging: runs on each link: 3.")
    ] = None,
    which: Annotated[
        int | None,
        typer.Option("--set", metavar="SEED", min=0, help="Judging: the seed that links are drawn from: 1001."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="mixed|settled|far|moving|busy",
            help="Judging: kind of links; repeatable. Default: all kinds.",
        ),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Judging: a row for every link too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Judging: the tables' rows as JSON.")] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="FILE",
            help="Keep the classics' runs in this file, and take them from it. Training: by default one beside --out.",
        ),
    ] = None,
    ablate: Annotated[
        bool,
        typer.Option("--ablate", help="Judging: take each part of --model away, and vary each of its numbers by 20 %."),
    ] = False,
    resume: Resume = False,
    tensorboard: Tensorboard = None,
    ray: Ray = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="PATH", help="Model; checkpoints and the learning curve lie beside it.")
    ] = Path("hush.txt"),
) -> int:
    """Search for hush's numbers by CMA-ES on random links, or judge queues on links that nothing was chosen by."""
    from quell.train import kinds

    files.check_target("--cache", cache)
    if judge and model is not None and not ablate:
        raise InputError(f"--model {model}: judging takes it in queue words: --aqm 'hush model {model}'")
    of_judging = {"--aqm": aqm, "--kind": kind, "--each": each, "--json": as_json, "--ablate": ablate}
    of_judging |= {"--seeds": seeds is not None, "--set": which is not None}
    if not judge and (given := [name for name, value in of_judging.items() if value]):
        raise InputError(f"{given[0]}: only with --judge")
    if judge:
        from quell.train import judge as judging
        from quell.train.links import Cache

        which = 1001 if which is None else which
        drawn = kinds.draw_each(which, links or 20, seeds or 3, kinds=kinds.known(kind or []))
        if ablate:
            train.need_torch("cma")
            from quell.train import ablate as ablation
            from quell.train import hush

            whole = hush.shipped() if model is None else hush.read(model)
            with executor(ray) as on:
                print(ablation.ablate(whole, drawn, on))
            return 0
        queues = [_core.queue(words) for words in aqm or ["hush", "hush in_order", "hush single"]]
        kept = None if cache is None else Cache(cache)
        with executor(ray) as on:
            print(judging.judge(drawn, queues, each_link=each, as_json=as_json, cache=kept, on=on))
        return 0
    files.check_target("--out", out)
    if leave_out is not None:
        kinds.known([leave_out], "--leave-out")
    train.need_torch("cma")
    from quell.train import hush

    for word in only or []:
        if word not in hush.LEARNED:
            raise InputError(f"--only {word}: write one of {', '.join(sorted(hush.LEARNED))}")
    arguments = hush.Arguments(
        generations=generations, population=population, batch=batch, pool=links or 60, sigma=sigma, seed=seed,
        leave_out=leave_out or "", only=tuple(only or ()), command=command(),
    )  # fmt: skip
    first = None if model is None else hush.read(model)
    with executor(ray) as on:
        row = hush.train(arguments, out, first=first, resume=resume, tensorboard=tensorboard, cache=cache, on=on)
    err.print(
        f"{out}: on {row['count']} other links g {row['g'][0]:.3f} (worst {row['g_worst']:.3f}), "
        f"p {row['p'][0]:.2f} (worst {row['p_worst']:.1f}), wins {100 * row['wins'][0]:.0f} %; "
        f"use it as `hush model {out}`",
        soft_wrap=True,
    )
    return 0
