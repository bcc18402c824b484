"""The command line's `quell train`: one command per learned controller."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from quell import _core, train
from quell._core import InputError
from quell.cli import complete
from quell.cli.options import Duration, File, Ray, Seed
from quell.common import files
from quell.common.console import err
from quell.experiments import experiment
from quell.experiments.executor import executor
from quell.views.targets import command

training = typer.Typer(
    help="Train a learned controller (all but learnqueue need torch).",
    epilog="Examples:\n\n  quell train learnqueue home\n\n  quell train rl-aqm --help",
    no_args_is_help=True,
)


Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint beside --out.")]
Tensorboard = Annotated[
    Path | None, typer.Option("--tensorboard", metavar="DIR", help="Also write the learning curve for TensorBoard.")
]


@training.callback()
def _train() -> None:
    """Train a learned controller."""


@training.command(
    "rl-aqm",
    epilog="Examples:\n\n  quell train rl-aqm --tensorboard runs\n\n  quell train rl-aqm --resume\n\n"
    "  quell train rl-aqm --corrected\n\n"
    "  quell train rl-aqm --as-published --out published.safetensors",
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


@training.command(
    "lfq",
    epilog="Examples:\n\n  quell train lfq --alpha 0.01\n\n"
    "  quell train lfq --alpha 10 --online --flows 500000 --out online.safetensors\n\n"
    "  quell train lfq --alpha 0.01 --resume",
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


@training.command(
    "a3c-l4s",
    epilog="Examples:\n\n  quell train a3c-l4s\n\n  quell train a3c-l4s --idle-price 250 --workers 2\n\n"
    "  quell train a3c-l4s --environment loop --reward rtt --reward-scale 50\n\n"
    "  quell train a3c-l4s --environment lookup --as-published --out published.safetensors",
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


@training.command(
    "learnqueue",
    epilog="Examples:\n\n  quell train learnqueue wifi-house\n\n"
    "  quell train learnqueue lte --aqm 'learnqueue target 10ms' --episodes 50\n\n"
    "  quell run wifi-house --aqm 'learnqueue table learnqueue.safetensors'",
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


@training.command(
    "hush",
    epilog="Examples:\n\n  quell train hush --judge\n\n  quell train hush --generations 100 --out mine.txt\n\n"
    "  quell train hush --judge --aqm 'hush model mine.txt' --aqm 'hush single' --links 100 --set 5\n\n"
    "  quell train hush --judge --kind far --kind busy --each\n\n"
    "  quell train hush --judge --ablate --kind mixed --links 20 --seeds 1",
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
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, max=100, help="Judging: runs on each link.")] = 3,
    which: Annotated[
        int, typer.Option("--set", metavar="SEED", min=0, help="Judging: the seed that links are drawn from.")
    ] = 1001,
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
    if judge:
        from quell.train import judge as judging
        from quell.train.links import Cache

        drawn = kinds.draw_each(which, links or 20, seeds, kinds=kinds.known(kind or []))
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
