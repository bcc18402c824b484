"""The command line: `quell run | compare | optimum | queues | scenarios`."""

from __future__ import annotations

import json as _json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from quell import _core, experiment, files, stats, table
from quell._core import InputError, Scenario
from quell.experiment import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="quell",
    help="Short queues on full links: simulate a bottleneck with any queue discipline and see which one suits it.",
    epilog="Try first: quell compare",
    add_completion=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

err = Console(stderr=True, highlight=False)
# Piped output has no width of its own; the widest table needs 100 columns.
out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100)


# What several commands take. -----------------------------------------------------------------------------------------

_LINK, _OUTPUT = "Scenario, over the file or in its place", "Output"

File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE", help="Scenario file (TOML) or built-in scenario; see `quell scenarios`.", show_default=False
    ),
]
Rate = Annotated[
    str | None, typer.Option(metavar="RATE", help="Rate of the link, as in tc: 15mbit, 1.5gbit.", rich_help_panel=_LINK)
]
Rtt = Annotated[
    str | None, typer.Option(metavar="TIME", help="Base round trip of every flow: 20ms.", rich_help_panel=_LINK)
]
Trace = Annotated[
    str | None, typer.Option(metavar="FILE", help="Measured link, a file in Mahimahi's format.", rich_help_panel=_LINK)
]
Flow = Annotated[
    list[str] | None,
    typer.Option(
        "--flow", metavar="CC[:COUNT][@rtt=][@ecn=0|1][@START-STOP]", rich_help_panel=_LINK,
        help="Flows in place of the file's; repeatable: cubic:4, bbr@rtt=80ms, dctcp:2@10s-30s.",
    ),
]  # fmt: skip
Ecn = Annotated[bool, typer.Option("--ecn", help="Every TCP flow negotiates ECN.", rich_help_panel=_LINK)]
Duration = Annotated[str | None, typer.Option(metavar="TIME", help="Simulated time: 60s.", rich_help_panel=_LINK)]
Warmup = Annotated[
    str | None, typer.Option(metavar="TIME", help="Left out of every statistic: 5s.", rich_help_panel=_LINK)
]
Seed = Annotated[
    str | None, typer.Option(metavar="N", help="Seed from which each run's is derived.", rich_help_panel=_LINK)
]
Seeds = Annotated[str | None, typer.Option(metavar="N", help="Runs per queue, each with its own seed.")]
Jobs = Annotated[int, typer.Option(metavar="N", min=0, help="Runs at a time; 0: one per core.")]
Json = Annotated[
    str | None,
    typer.Option(
        metavar="PATH|-", help="Result records as JSON; - prints them and nothing else.", rich_help_panel=_OUTPUT
    ),
]
Html = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Report page, one file that opens offline.", rich_help_panel=_OUTPUT)
]
Parquet = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Result records as Parquet.", rich_help_panel=_OUTPUT)
]
Csv = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Result records as CSV, lists left out.", rich_help_panel=_OUTPUT)
]
Series = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=1e-4, help="Keep time series in the records, bins this wide.", rich_help_panel=_OUTPUT
    ),
]


class Targets:
    """Where results go; refuses at once what could not be written in the end."""

    def __init__(
        self, json: str | None = None, html: Path | None = None, parquet: Path | None = None, csv: Path | None = None
    ) -> None:
        self.json, self.html, self.parquet, self.csv = json, html, parquet, csv
        files.check_target("--json", None if json is None else Path(json))
        files.check_target("--html", html)
        files.check_target("--parquet", parquet)
        files.check_target("--csv", csv)

    @property
    def quiet(self) -> bool:
        """Standard output belongs to JSON."""
        return self.json == "-"

    def write(self, outcome: Outcome, *, single: bool = False, series: bool = False, json: Any = None) -> None:
        """Write what was asked for; `json` replaces the records in the JSON file. Without a finished run, nothing."""
        if not outcome.by_job:
            return
        records = outcome.records if series else experiment.without_series(outcome.records)
        if self.json is not None:
            what = json if json is not None else records[0] if single and records else records
            text = _json.dumps(what, ensure_ascii=False) + "\n"
            if self.quiet:
                sys.stdout.write(text)
                sys.stdout.flush()
            else:
                files.write_text(Path(self.json), text)
        if self.parquet is not None or self.csv is not None:
            from quell import frame

            if self.parquet is not None:
                frame.write_parquet(self.parquet, records)
            if self.csv is not None:
                frame.write_csv(self.csv, records)
        if self.html is not None:
            from quell import report

            files.write_text(self.html, report.page(outcome, command()))
            err.print(f"Report: {self.html}", style="dim")


def command() -> str:
    """Return the command as a user types it again."""
    return shlex.join(["quell", *sys.argv[1:]])


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[Outcome], object]]:
    """Show a bar over runs on standard error, where that is a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("runs"),
        TextColumn("[dim]{task.fields[speed]}"), TimeElapsedColumn(), TextColumn("[dim]left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as progress:
        task = progress.add_task("Simulating", total=total, speed="")

        def update(outcome: Outcome) -> None:
            speed = outcome.packets / max(outcome.wall_s, 1e-9)
            progress.update(task, completed=len(outcome.by_job), speed=f"{_si(speed)} packets/s")

        yield update


def _si(value: float) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} "


def _simulate(
    scenario: Scenario, jobs: Sequence[experiment.Job], threads: int, quiet: bool, pcap: Path | None = None
) -> Outcome:
    with _progress(len(jobs), quiet) as update:
        return experiment.run_jobs(scenario, jobs, threads=threads, on_record=update, pcap=pcap)


def _queue(words: str) -> str:
    try:
        return _core.queue(words)
    except InputError as error:
        raise InputError(f"--aqm: {error}") from None


def _heading(scenario: Scenario, runs: int) -> None:
    out.print(
        f"[bold]{scenario.name}[/bold]  [dim]{scenario.duration_s:g} s, the first {scenario.warmup_s:g} s left out; "
        f"{runs} run{'s' if runs != 1 else ''} per queue[/dim]"
    )


def _status(outcome: Outcome) -> int:
    if not outcome.interrupted:
        return OK
    err.print(f"quell: interrupted: {len(outcome.by_job)} of {len(outcome.jobs)} runs had finished and were kept")
    return INTERRUPTED


# Commands. -----------------------------------------------------------------------------------------------------------


@app.command(
    epilog="Examples:\n\n"
    "  quell compare --html report.html\n\n"
    "  quell compare lte --aqm pfifo --aqm 'codel target 20ms' --seeds 10\n\n"
    "  quell compare --rate 50mbit --rtt 30ms --flow cubic:2 --flow bbr --json runs.json\n\n"
    "  quell compare --trace cell.down --rtt 40ms --flow cubic:2"
)
def compare(
    file: File = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS", help="Queue words as in tc; repeatable. Default: every queue, the file's own first."
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    flow: Flow = None,
    ecn: Ecn = False,
    duration: Duration = None,
    warmup: Warmup = None,
    seed: Seed = None,
    json: Json = None,
    html: Html = None,
    parquet: Parquet = None,
    csv: Csv = None,
    series: Series = None,
) -> int:
    """Put queue disciplines side by side on one bottleneck: a table, a report, result records."""
    targets = Targets(json, html, parquet, csv)
    scenario = experiment.load(
        file,
        rate=rate,
        rtt=rtt,
        trace=trace,
        flows=flow,
        ecn=ecn,
        duration=duration,
        warmup=warmup,
        seeds=seeds,
        seed=seed,
    )
    queues = [_queue(words) for words in aqm] if aqm else experiment.every_queue(scenario)
    work = experiment.plan(scenario, queues, series_bin_s=series, first_series=html is not None)
    outcome = _simulate(scenario, work, jobs, targets.quiet)
    if not targets.quiet:
        rows = stats.summarise(outcome.records)
        _heading(scenario, max((r.runs for r in rows), default=0))
        if rows:
            out.print(table.compare(rows, out.width))
            out.print(table.legend(rows))
        speed = _si(outcome.packets / max(outcome.wall_s, 1e-9))
        err.print(f"{len(outcome.by_job)} runs in {outcome.wall_s:.1f} s, {speed} packets/s", style="dim")
    targets.write(outcome, series=series is not None)
    return _status(outcome)


@app.command(
    epilog="Examples:\n\n"
    "  quell run home --aqm 'pie target 15ms'\n\n"
    "  quell run --rate 10mbit --flow prague --flow cubic --aqm dualpi2 --json -\n\n"
    "  quell run fibre --duration 5s --pcap bottleneck.pcapng"
)
def run(
    file: File = None,
    aqm: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Queue words as in tc. Default: the file's own.")
    ] = None,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    flow: Flow = None,
    ecn: Ecn = False,
    duration: Duration = None,
    warmup: Warmup = None,
    seed: Seed = None,
    json: Json = None,
    html: Html = None,
    parquet: Parquet = None,
    csv: Csv = None,
    series: Series = None,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Packets of the bottleneck as pcapng, for Wireshark.", rich_help_panel=_OUTPUT
        ),
    ] = None,
) -> int:
    """Simulate one queue once."""
    targets = Targets(json, html, parquet, csv)
    files.check_target("--pcap", pcap)
    scenario = experiment.load(
        file, queue=aqm, rate=rate, rtt=rtt, trace=trace, flows=flow, ecn=ecn, duration=duration, warmup=warmup,
        seeds="1", seed=seed,
    )  # fmt: skip
    work = experiment.plan(scenario, [_core.queue(scenario.queue)], series_bin_s=series, first_series=html is not None)
    if pcap is None:
        outcome = _simulate(scenario, work, 1, targets.quiet)
    else:
        kept: list[Outcome] = []
        files.write_whole(pcap, lambda part: kept.append(_simulate(scenario, work, 1, targets.quiet, part)))
        outcome = kept[0]
    if not targets.quiet and outcome.records:
        rows = stats.summarise(outcome.records)
        _heading(scenario, 1)
        out.print(table.compare(rows, out.width))
        out.print(table.flows(outcome.records[0]))
    targets.write(outcome, single=True, series=series is not None)
    return _status(outcome)


@app.command(
    epilog="Examples:\n\n"
    "  quell optimum home --knob limit\n\n"
    "  quell optimum --rate 10mbit --rtt 40ms --flow newreno --knob drop --reward rlaqm --json frontier.json"
)
def optimum(
    file: File = None,
    knob: Annotated[
        str, typer.Option(metavar="limit|drop", help="What is held still: packets, or a probability of dropping.")
    ] = "limit",
    values: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Settings to try in place of the built-in grid.")
    ] = None,
    reward: Annotated[
        str, typer.Option(metavar="|".join(("power", "rlaqm", "lfq")), help="What the best setting maximises.")
    ] = "power",
    cc: Annotated[
        str | None, typer.Option(metavar="CC", help="Shorthand for one --flow of this congestion control.")
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    flow: Flow = None,
    ecn: Ecn = False,
    duration: Duration = None,
    warmup: Warmup = None,
    seed: Seed = None,
    json: Json = None,
    html: Html = None,
) -> int:
    """Sweep a constant knob of a plain FIFO: the frontier that constants reach, and the best one for a reward."""
    from quell import sweep

    if reward not in sweep.REWARDS:
        raise InputError(f"--reward {reward}: unknown reward; known are {', '.join(sweep.REWARDS)}")
    if cc is not None and flow:
        raise InputError("--cc and --flow: give one of the two")
    settings = sweep.values(knob, values)
    targets = Targets(json, html)
    scenario = experiment.load(
        file, rate=rate, rtt=rtt, trace=trace, flows=[cc] if cc else flow, ecn=ecn, duration=duration, warmup=warmup,
        seeds=seeds, seed=seed,
    )  # fmt: skip
    work = experiment.plan(scenario, [sweep.words(knob, v) for v in settings], first_series=html is not None)
    outcome = _simulate(scenario, work, jobs, targets.quiet)
    points = sweep.judge(knob, settings, outcome.records, reward)
    if not targets.quiet:
        _heading(scenario, max((p.row.runs for p in points), default=0))
        out.print(table.sweep(points, reward))
        out.print(f"[dim]reward {reward}: {sweep.REWARDS[reward][1]}; ▶ its best[/dim]")
    targets.write(outcome, json=[p.plain() for p in points])
    return _status(outcome)


@app.command(epilog="Examples:\n\n  quell queues\n\n  quell queues fq_codel")
def queues(
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="One queue only.", show_default=False)] = None,
    json: Json = None,
) -> int:
    """List the queue disciplines with their options and defaults."""
    targets = Targets(json)
    known = experiment.known_queues()
    chosen = [q for q in known if kind in (None, q["name"])]
    if not chosen:
        raise InputError(f"{kind}: unknown queue; known are {', '.join(q['name'] for q in known)}")
    if json is not None:
        _write_json(targets, chosen)
    if not targets.quiet:
        out.print(table.queues(chosen))
    return OK


@app.command(epilog="Examples:\n\n  quell scenarios\n\n  quell scenarios home > my.toml")
def scenarios(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print this one's file.", show_default=False)
    ] = None,
    json: Json = None,
) -> int:
    """List the built-in scenarios, or print one as a file to start from."""
    targets = Targets(json)
    known = _core.scenarios()
    chosen = [s for s in known if name in (None, s[0])]
    if not chosen:
        raise InputError(f"{name}: unknown scenario; built in are {', '.join(s[0] for s in known)}")
    if json is not None:
        _write_json(targets, [dict(zip(("name", "summary", "toml"), s, strict=True)) for s in chosen])
    elif name is not None:
        sys.stdout.write(chosen[0][2])
    if not targets.quiet and (name is None):
        out.print(table.scenarios([(n, about) for n, about, _ in chosen]))
    return OK


def _write_json(targets: Targets, plain: Any) -> None:
    text = _json.dumps(plain, ensure_ascii=False, indent=1) + "\n"
    if targets.quiet:
        sys.stdout.write(text)
    elif targets.json is not None:
        files.write_text(Path(targets.json), text)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"quell {_core.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Short queues on full links: simulate a bottleneck with any queue discipline and see which one suits it."""


def _usage(error: typer.TyperException) -> str:
    """Say in one line what was wrong with the command line, and where help is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "quell"
    return f"{_one_line(' '.join(error.format_message().split()))} (see `{path} --help`)"


def _one_line(text: str) -> str:
    """Spell out what would break the line or speak to the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def call(arguments: Sequence[str]) -> int:
    """Run the command line; every error becomes one line and an exit status."""
    try:
        status = app(args=list(arguments) or ["--help"], prog_name="quell", standalone_mode=False)
    except InputError as error:
        err.print(f"quell: {_one_line(str(error))}", markup=False, soft_wrap=True)
        return BAD_INPUT
    except typer.TyperException as error:
        err.print(f"quell: {_usage(error)}", markup=False, soft_wrap=True)
        return BAD_INPUT
    except (typer.Abort, KeyboardInterrupt):
        err.print("quell: interrupted")
        return INTERRUPTED
    return status if isinstance(status, int) else OK
