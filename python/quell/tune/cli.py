"""The command `quell tune`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from quell import experiment
from quell._core import InputError
from quell.executor import executor
from quell.options import OUTPUT, Duration, File, Jobs, Ray
from quell.output import Targets, bar, err, out
from quell.tune import aims, judge, line, now, search, show, space, targets
from quell.tune.judge import Judged
from quell.tune.search import Bench, Found, Plan

EXAMPLES = (
    "Examples:\n\n  quell tune --rate 50mbit/10mbit --rtt 30ms --framing docsis\n\n"
    "  quell tune --rate 16mbit/1mbit --framing pppoe-llcsnap --for calls,bulk:2 --target openwrt --dev wan\n\n"
    "  quell tune household --trials 300 --json -\n\n"
    "  tc qdisc show | quell tune --rate 50mbit/10mbit --now -"
)
_INTERRUPTED = 130
_TRIALS = 2000
_WHAT = "What to set"


def tune(
    file: File = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="DOWN/UP", help="The line's rates: 50mbit/10mbit.", rich_help_panel="The line"),
    ] = None,
    rtt: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Its base round trip: 30ms.", rich_help_panel="The line"),
    ] = None,
    framing: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            rich_help_panel="The line",
            help="The line's framing in keywords of tc-cake(8): docsis, 'pppoe-ptm ether-vlan'. Default: Ethernet.",
        ),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="What the modem's FIFOs hold: 250ms.", rich_help_panel="The line"),
    ] = None,
    now_: Annotated[
        list[str] | None,
        typer.Option(
            "--now",
            metavar="LINE|FILE|-",
            rich_help_panel="The line",
            help="Lines of tc that run today, or what `tc qdisc show` prints; repeatable. Default: no shaper.",
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="AIM[:WEIGHT],...",
            rich_help_panel=_WHAT,
            help=f"What matters: {', '.join(aims.WORDS)}. Default: {aims.DEFAULT}.",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(metavar="|".join(targets.TARGETS), help="The system to configure.", rich_help_panel=_WHAT),
    ] = "tc",
    dev: Annotated[
        str, typer.Option(metavar="NAME", help="The interface to the modem.", rich_help_panel=_WHAT)
    ] = "eth0",
    queues: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,KIND",
            help="Search only these disciplines. Default: all of the target's.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    trials: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="Settings to search.")] = _TRIALS,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=2, max=99, help="Seeds that settings are judged with.")
    ] = judge.SEEDS,
    duration: Duration = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed of traffic and search.")] = 1,
    jobs: Jobs = 0,
    ray: Ray = None,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|-", help="The result as JSON; - prints it and nothing else.", rich_help_panel=OUTPUT
        ),
    ] = None,
) -> int:
    """Search the queue settings that suit a line, and print lines to paste."""  # fmt: skip
    started = time.monotonic()
    output = Targets(json)
    search.check()
    wanted = aims.Aims(for_)
    chosen = targets.target(target)
    targets.interface(dev)
    if file is not None:
        refused = next((name for name, value in (("--rate", rate), ("--rtt", rtt)) if value is not None), None)
        if refused:
            raise InputError(f"{refused}: {file} has its own; leave out one of the two")
        scenario = experiment.load(file, duration=duration, seed=seed)
        on = line.of_scenario(scenario, framing, buffer)
    elif rate is None:
        raise InputError("name the line: --rate DOWN/UP, as in --rate 50mbit/10mbit, or a scenario")
    else:
        on = line.at_home(rate, rtt, framing, buffer, wanted, duration, seed)
    plan = Plan(on, targets.kinds(target, queues, on), trials, seed, chosen.lacks)
    today = now.read(now_)
    with executor(ray) as cluster:
        bench = Bench(wanted, jobs, cluster)
        # A first run finds what is wrong with aims and scenario before the search begins.
        bench.run([search.Run(on, today, 0)])
        bench.value(search.Run(on, today, 0))
        with bar("Searching", trials, "settings") as update:
            found = search.search(bench, plan, lambda seen: update(len(seen.scores), show.progress(seen)))
        if found.interrupted:
            err.print("quell: interrupted: judging the best so far; press Ctrl-C again to have it unjudged")
        if not found.scores:
            return _INTERRUPTED
        judged, whole = _judged(bench, on, today, seeds, found)
    down, up = search.shapes(judged.setting, on)
    lines = chosen.lines(dev, on, down, up)
    wall = time.monotonic() - started
    if not output.quiet:
        out.print(show.heading(on, wanted.text), soft_wrap=True)
        if whole:
            _print(judged)
        out.print(f"# {chosen.about}: {show.described(judged.setting)}", style="dim", soft_wrap=True)
        for text in lines:
            out.print(text, markup=False, highlight=False, soft_wrap=True)
        err.print(f"{len(found.scores)} settings, {bench.simulated} runs in {wall:.1f} s", style="dim")
    output.write_json(_plain(target, lines, judged, (down, up), len(found.scores), wall))
    return _INTERRUPTED if found.interrupted or not whole else 0


def _judged(bench: Bench, on: line.Line, today: search.Shapes, seeds: int, found: Found) -> tuple[Judged, bool]:
    """Judge what was found, and whether that came to its end: Ctrl-C leaves the best so far without figures."""
    with bar("Judging", 1, "") as update:
        try:
            return judge.Judge(bench, on, today, seeds).judge(found, lambda step: update(0, step)), True
        except KeyboardInterrupt:
            err.print("quell: interrupted: this is the best so far, on the search's seeds alone")
            setting = found.finalists[0]
            return Judged(setting, space.default(setting.kind), tuned=True), False


def _print(judged: Judged) -> None:
    out.print(show.compared(judged))
    out.print(show.verdict(judged), soft_wrap=True)
    if judged.why:
        out.print(show.brought(judged))


def _plain(
    target: str, lines: list[str], judged: Judged, ways: search.Shapes, evaluations: int, wall_s: float
) -> dict[str, Any]:
    def plain(metrics: judge.Metrics | None) -> dict[str, Any] | None:
        return None if metrics is None else metrics.plain()

    down, up = ({"queue": way.queue, "rate": None if way.rate is None else space.rate_text(way.rate)} for way in ways)
    return {
        "target": target,
        "lines": lines,
        "down": down,
        "up": up,
        "now": plain(judged.now),
        "default": plain(judged.of_default),
        "tuned": plain(judged.of_setting),
        "held_out": plain(judged.held_out),
        "default_held_out": plain(judged.default_held_out),
        "offered": "tuned" if judged.tuned else "default",
        "why": [reason.plain() for reason in judged.why],
        "evaluations": evaluations,
        "wall_s": wall_s,
    }
