"""The commands that simulate, and lists: `quell compare | run | optimum | sweep | rpm | queues | scenarios`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from quell import _core
from quell._core import InputError, Scenario
from quell.cli import complete
from quell.cli.dispatch import INTERRUPTED, OK
from quell.cli.options import (
    OUTPUT,
    Csv,
    Duration,
    Ecn,
    File,
    Flent,
    Flow,
    Html,
    Jobs,
    Json,
    Parquet,
    Rate,
    Ray,
    Rpm,
    Rtt,
    Seed,
    Seeds,
    Series,
    Tc,
    Trace,
    Warmup,
)
from quell.common import files, names
from quell.experiments import experiment
from quell.experiments.executor import executor
from quell.experiments.experiment import Outcome
from quell.inputs import flent as flent_file
from quell.results import stats
from quell.views import table
from quell.views.targets import Targets, bar, err, one_line, out, progress, si

app = typer.Typer()
"""The commands of this module; `quell.cli.dispatch` has them all."""


def _simulate(
    scenario: Scenario,
    jobs: Sequence[experiment.Job],
    threads: int,
    pcap: Path | None = None,
    ray: str | None = None,
) -> Outcome:
    with executor(ray) as on, progress(len(jobs)) as update:
        return experiment.run_jobs(scenario, jobs, threads=threads, on_record=update, pcap=pcap, on=on)


def _measure(
    scenario: Scenario,
    jobs: Sequence[experiment.Job],
    threads: int,
    rpm: bool | None,
    pcap: Path | None = None,
    ray: str | None = None,
) -> Outcome:
    """Run jobs, then all seeds (`rpm`), some (None) or none again with probes, for their responsiveness."""
    from quell.experiments import responsiveness

    probed = responsiveness.probed(scenario) if rpm else responsiveness.probed_if_possible(scenario)
    outcome = _simulate(scenario, jobs, threads, pcap, ray)
    if rpm is not False:
        every = 1 if rpm else responsiveness.EVERY
        responsiveness.measure(outcome, probed, lambda s, again: _simulate(s, again, threads, ray=ray), every=every)
    return outcome


def _reality(scenario: Scenario) -> dict[str, Any]:
    """Check what `--real` needs before anything runs."""
    from quell.linux import real

    return real.check(scenario)


def _real(scenario: Scenario, simulated: Outcome, queues: Sequence[str], spec: dict[str, Any]) -> Outcome:
    from quell.linux import real

    with bar("Real TCP", len(queues), "queues") as shown:
        each = f"{scenario.duration_s:g} s each"
        return real.beside(scenario, simulated, queues, spec, lambda done: shown(done, each))


def _queue(words: str) -> str:
    try:
        return _core.queue(words)
    except InputError as error:
        raise InputError(f"--aqm: {error}") from None


def _heading(scenario: Scenario, runs: int, swept: Collection[str] = ()) -> None:
    """Print what was run; keys that are `swept` have columns of their own."""
    about = [
        "" if any(key.startswith("link.") for key in swept) else one_line(experiment.rates(scenario)),
        ""
        if {"duration", "warmup"} & set(swept)
        else f"{scenario.duration_s:g} s, the first {scenario.warmup_s:g} s left out",
        f"{runs} run{'s' if runs != 1 else ''} per queue",
    ]
    text = "; ".join(part for part in about if part)
    out.print(Text.assemble((one_line(scenario.name), "bold"), (f"  {text}", "dim")), soft_wrap=True)


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
    "  quell compare --trace builtin:lte --rtt 40ms --flow cubic:2\n\n"
    "  quell compare --tc 'tc qdisc replace dev eth0 root cake bandwidth 50mbit docsis'\n\n"
    "  tc qdisc show | quell compare --tc -\n\n"
    "  quell compare lte --seeds 100 --ray 10.0.0.1:6379\n\n"
    "  quell compare autorate"
)
def compare(
    file: File = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Queue words as in tc; repeatable. Default: the file's queue, then every usual kind.",
            autocompletion=complete.words,
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    ray: Ray = None,
    real: Annotated[
        bool,
        typer.Option(
            "--real",
            help="Also run real Linux TCP through each queue, once, in real time (Linux; docs/how-to/shell.md).",
        ),
    ] = False,
    rpm: Rpm = None,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    tc: Tc = None,
    flow: Flow = None,
    ecn: Ecn = False,
    duration: Duration = None,
    warmup: Warmup = None,
    seed: Seed = None,
    json: Json = None,
    html: Html = None,
    parquet: Parquet = None,
    csv: Csv = None,
    flent: Flent = None,
    series: Series = None,
) -> int:
    """Compare queues on one bottleneck: a table, a report, result records.

    `quell compare autorate` compares loops over a shaper's rate on lines whose rate moves, or with
    --trace NAME.down on one that was measured (docs/explanation/autorate.md).
    """
    others = {
        "--real": real, "--rpm": rpm, "--warmup": warmup, "--seed": seed, "--html": html, "--parquet": parquet,
        "--csv": csv, "--flent": flent, "--series": series, "--aqm": aqm, "--rate": rate, "--rtt": rtt,
        "--tc": tc, "--flow": flow, "--ecn": ecn,
    }  # fmt: skip
    if file == "autorate":
        from quell import autorate

        if refused := [name for name, value in others.items() if value]:
            raise InputError(
                f"{refused[0]}: not with quell compare autorate, which has lines and loops of its own; "
                f"quell run {file} takes it"
            )
        return autorate.compare(trace=trace, seeds=seeds, jobs=jobs, ray=ray, duration=duration, json=json)
    targets = Targets(json, html, parquet, csv, flent)
    measured = flent_file.Measured.load(file) if file is not None and flent_file.is_flent(file) else None
    scenario = experiment.load(
        file if measured is None else measured.scenario(),
        rate=rate,
        rtt=rtt,
        trace=trace,
        tc=tc,
        flows=flow,
        ecn=ecn,
        duration=duration,
        warmup=warmup,
        seeds=seeds,
        seed=seed,
    )
    queues = [_queue(words) for words in aqm] if aqm else experiment.every_queue(scenario)
    work = experiment.plan(scenario, queues, series_bin_s=targets.bins(series), first_series=html is not None)
    spec = _reality(scenario) if real else None
    outcome = _measure(scenario, work, jobs, rpm, ray=ray)
    speed = si(outcome.packets / max(outcome.wall_s, 1e-9))
    again = f", {outcome.again} of them again with probes," if outcome.again else ""
    told = f"{len(outcome.by_job)} runs{again} in {outcome.wall_s:.1f} s, {speed} packets/s"
    if spec is not None and not outcome.interrupted:
        outcome = _real(scenario, outcome, list(dict.fromkeys(queues)), spec)
    if not targets.quiet:
        rows = stats.summarise(outcome.records)
        _heading(scenario, max((r.runs for r in rows), default=0))
        if measured is not None:
            out.print(one_line(measured.summary()), style="dim", soft_wrap=True)
        if rows:
            out.print(table.compare(rows, out.width))
            if felt := table.felt(outcome.records, out.width):
                out.print(felt)
            out.print(table.legend(rows, out.width, styled=out.is_terminal))
        err.print(told, style="dim")
    if measured is not None:
        outcome.measured = measured.line()
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
        list[str] | None,
        typer.Option(
            metavar="WORDS", help="Queue words as in tc. Default: the file's queue.", autocompletion=complete.words
        ),
    ] = None,
    rpm: Rpm = None,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    tc: Tc = None,
    flow: Flow = None,
    ecn: Ecn = False,
    duration: Duration = None,
    warmup: Warmup = None,
    seed: Seed = None,
    json: Json = None,
    html: Html = None,
    parquet: Parquet = None,
    csv: Csv = None,
    flent: Flent = None,
    series: Series = None,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Capture the bottleneck's packets as pcapng, for Wireshark.", rich_help_panel=OUTPUT
        ),
    ] = None,
) -> int:
    """Run one queue once and show its flows."""
    targets = Targets(json, html, parquet, csv, flent)
    files.check_target("--pcap", pcap)
    if aqm is not None and len(aqm) > 1:
        raise InputError(f"--aqm: {len(aqm)} queues; quell run takes one, quell compare several")
    scenario = experiment.load(
        file, rate=rate, rtt=rtt, trace=trace, tc=tc, flows=flow, ecn=ecn, duration=duration, warmup=warmup, seeds="1",
        seed=seed,
    )  # fmt: skip
    # As in a comparison, whose runs can be repeated so: at the bottleneck alone, the other direction keeps its queue.
    queue = _queue(aqm[0]) if aqm else _core.queue(scenario.queue)
    work = experiment.plan(scenario, [queue], series_bin_s=targets.bins(series), first_series=html is not None)
    if pcap is None:
        outcome = _measure(scenario, work, 0, rpm)
    else:
        kept: list[Outcome] = []
        files.write_whole(pcap, lambda part: kept.append(_measure(scenario, work, 0, rpm, part)))
        outcome = kept[0]
    if not targets.quiet and outcome.records:
        rows = stats.summarise(outcome.records)
        _heading(scenario, 1)
        out.print(table.compare(rows, out.width))
        if felt := table.felt(outcome.records, out.width):
            out.print(felt)
        record = outcome.records[0]
        out.print(table.flows(record, out.width))
        if record.get("hosts"):
            out.print(table.hosts(record))
        for tins, title in ((record.get("tins"), "tin"), ((record.get("up") or {}).get("tins"), "tin of the up link")):
            if tins:
                out.print(table.tins(tins, title))
        if wifi := outcome.records[0].get("wifi"):
            out.print(table.cell(wifi))
        out.print(table.legend(rows, out.width, styled=out.is_terminal))
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
        str,
        typer.Option(
            metavar="limit|drop",
            help="The constant: a limit in packets, or a drop probability.",
            autocompletion=complete.one_of("limit", "drop"),
        ),
    ] = "limit",
    values: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Settings to try instead of the built-in grid.")
    ] = None,
    reward: Annotated[
        str,
        typer.Option(
            metavar="|".join(("power", "rlaqm", "lfq")),
            help="Criterion for the best setting.",
            autocompletion=complete.one_of("power", "rlaqm", "lfq"),
        ),
    ] = "power",
    cc: Annotated[
        str | None,
        typer.Option(
            metavar="CC", help="Short for one --flow with this congestion control.", autocompletion=complete.flows
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    tc: Tc = None,
    flow: Flow = None,
    ecn: Ecn = False,
    duration: Duration = None,
    warmup: Warmup = None,
    seed: Seed = None,
    json: Json = None,
    html: Html = None,
) -> int:
    """Find the best constant limit or drop probability of a plain FIFO, and the front of constants."""
    from quell.results import frontier

    frontier.check(knob, reward, "--")
    if cc is not None and flow:
        raise InputError("--cc and --flow: give one of the two")
    settings = frontier.values(knob, values)
    targets = Targets(json, html)
    scenario = experiment.load(
        file, rate=rate, rtt=rtt, trace=trace, tc=tc, flows=[cc] if cc else flow, ecn=ecn, duration=duration,
        warmup=warmup, seeds=seeds, seed=seed,
    )  # fmt: skip
    work = experiment.plan(scenario, [frontier.words(knob, v) for v in settings], first_series=html is not None)
    outcome = _simulate(scenario, work, jobs)
    points = frontier.judge(knob, settings, outcome.records, reward)
    if not targets.quiet:
        _heading(scenario, max((p.row.runs for p in points), default=0))
        out.print(table.frontier(points, reward))
        out.print(f"[dim]reward {reward}: {frontier.REWARDS[reward][1]}; ▶ its best, ◆ others on the front[/dim]")
    targets.write(outcome, json=[p.plain() for p in points])
    return _status(outcome)


@app.command(
    epilog="Example:\n\n"
    "  quell sweep home --over link.rate=5mbit,50mbit --over flow.rtt=20ms,80ms --aqm pfifo --aqm fq_codel"
)
def sweep(
    file: File = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Key and its values; repeatable.", autocompletion=complete.keys),
    ] = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS", help="Queue words; repeatable. Default: the file's queue.", autocompletion=complete.words
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    tc: Tc = None,
    flow: Flow = None,
    ecn: Ecn = False,
    duration: Duration = None,
    warmup: Warmup = None,
    seed: Seed = None,
    json: Json = None,
    parquet: Parquet = None,
    csv: Csv = None,
) -> int:
    """Run a scenario with all combinations of some keys' values."""
    from quell.experiments import grid

    targets = Targets(json, None, parquet, csv)
    scenario = experiment.load(
        file, rate=rate, rtt=rtt, trace=trace, tc=tc, flows=flow, ecn=ecn, duration=duration, warmup=warmup,
        seeds=seeds, seed=seed,
    )  # fmt: skip
    values = grid.parse(over or ())
    queues = [_queue(words) for words in aqm or ()]
    total = grid.count(scenario, values, queues)
    with bar("Simulating", total, "runs") as update:
        found = grid.run(scenario, values, queues, threads=jobs, on_done=lambda done: update(done, ""))
    if not targets.quiet:
        _heading(scenario, len(found) // max(1, len({(*map(str, p.values()), r["queue"]) for p, r in found})), values)
        out.print(table.sweep(found, out.width))
    targets.write_json([{"over": point, **record} for point, record in found], indent=None)
    if parquet is not None or csv is not None:
        from quell.results import frame

        frame.write_swept(parquet, csv, found)
    return OK


@app.command(epilog="Example:\n\n  quell rpm home --aqm pfifo --aqm fq_codel")
def rpm(
    file: File = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS", help="Queue words; repeatable. Default: every queue.", autocompletion=complete.words
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = 0,
    rate: Rate = None,
    rtt: Rtt = None,
    trace: Trace = None,
    tc: Tc = None,
    seed: Seed = None,
    json: Json = None,
) -> int:
    """Measure responsiveness under working conditions, in round trips per minute."""
    from quell.experiments import responsiveness

    targets = Targets(json)
    given = experiment.load(file, rate=rate, rtt=rtt, trace=trace, tc=tc, seeds=seeds, seed=seed)
    queues = [_queue(words) for words in aqm] if aqm else experiment.every_queue(given)
    plan = experiment.plan(responsiveness.working_conditions(given), queues)
    outcome = responsiveness.saturate(given, plan, lambda conditions, work: _simulate(conditions, work, jobs))
    if not targets.quiet and outcome.records:
        _heading(given, given.seeds, ("duration",))
        if felt := table.felt(outcome.records, out.width):
            out.print(felt)
        out.print(responsiveness.about(outcome.records), style="dim")
    targets.write(outcome)
    return _status(outcome)


@app.command(epilog="Examples:\n\n  quell queues\n\n  quell queues fq_codel")
def queues(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="Show only this queue.", show_default=False, autocompletion=complete.kinds),
    ] = None,
    json: Json = None,
) -> int:
    """List the queues with their options and defaults."""
    targets = Targets(json)
    known = experiment.known_queues()
    if kind is not None:
        names.known("queue", kind, [q["name"] for q in known])
    chosen = [q for q in known if kind in (None, q["name"])]
    if json is not None:
        targets.write_json(chosen)
    if not targets.quiet:
        out.print(table.queues(chosen))
    return OK


@app.command(
    epilog="Examples:\n\n  quell scenarios\n\n  quell scenarios home > my.toml\n\n"
    "  quell scenarios --schema > scenario.schema.json"
)
def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Print the file of this scenario.",
            show_default=False,
            autocompletion=complete.scenarios,
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print a JSON Schema of scenario files, for editors.")
    ] = False,
    json: Json = None,
) -> int:
    """List the built-in scenarios, or print one as a file."""
    if schema:
        if name is not None or json is not None:
            raise InputError("--schema: the schema is the same for all scenarios; leave out the other arguments")
        print(_core.scenario_schema())
        return OK
    targets = Targets(json)
    known = _core.scenarios()
    if name is not None:
        names.known("built-in scenario", name, [s[0] for s in known])
    chosen = [s for s in known if name in (None, s[0])]
    if json is not None:
        targets.write_json([dict(zip(("name", "summary", "toml"), s, strict=True)) for s in chosen])
    elif name is not None:
        sys.stdout.write(chosen[0][2])
    if not targets.quiet and (name is None):
        out.print(table.scenarios([(n, about) for n, about, _ in chosen]))
    return OK
