"""The command `quell compare`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from quell import _core
from quell._core import InputError, Scenario
from quell.cli import complete
from quell.cli.options import Jobs, Ray, Rpm, Seeds
from quell.cli.simulate import Changes, Output, heading, simulate, spread, status
from quell.common.console import bar, err, out
from quell.common.text import counted, one_line, si
from quell.experiments import own, responsiveness
from quell.experiments.experiment import Outcome
from quell.experiments.queue import Parsed
from quell.inputs import flent as flent_file
from quell.results import stats
from quell.views import table

EXAMPLES = (
    "Examples:\n\n"
    "  quell compare --html report.html\n\n"
    "  quell compare household --aqm pfifo --aqm fq_codel --aqm cake\n\n"
    "  quell compare lte --aqm pfifo --aqm 'codel target 20ms' --seeds 10\n\n"
    "  quell compare --rate 50mbit --rtt 30ms --flow cubic:2 --flow bbr --json runs.json\n\n"
    "  quell compare --trace builtin:lte --rtt 40ms --flow cubic:2\n\n"
    "  quell compare --tc 'tc qdisc replace dev eth0 root cake bandwidth 50mbit docsis'\n\n"
    "  tc qdisc show | quell compare --tc -\n\n"
    "  quell compare --aqm fq_codel --aqm mine.py:MyQueue --aqm 'fifo limit 100 + mine.py:MyController'\n\n"
    "  quell compare lte --seeds 100 --ray 10.0.0.1:6379\n\n"
    "  quell compare autorate\n\n"
    "  quell compare before.json after.json --html both.html"
)


@spread
def compare(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]",
            help="Scenario file (TOML) or built-in scenario; see `quell scenarios`. "
            "Or records of quell shell (.json), one or several.",
            show_default=False,
            autocompletion=complete.compared,
        ),
    ] = None,
    aqm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Queue words as in tc, or FILE.py:NAME; repeatable. Default: the file's queue, then every usual kind.",
            autocompletion=complete.queues,
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
    *,
    changes: Changes,
    output: Output,
) -> int:
    """Compare queues on one bottleneck: a table, a report, result records.

    `quell compare autorate` compares loops that set a shaper's rate, on lines whose rate moves, or with
    `--trace NAME.down` on a measured line (docs/explanation/autorate.md).
    """
    others = {"real": real, "rpm": rpm, "aqm": aqm, **vars(changes), **vars(output)}
    if files and all(name.endswith(".json") for name in files):
        simulating = others | {"seeds": seeds, "jobs": jobs, "ray": ray}
        if refused := [name for name, value in simulating.items() if value and name not in ("json", "html")]:
            raise InputError(f"--{refused[0]}: not with records, which are of runs that are over; leave it out")
        from quell.cli.show import show_commands

        return show_commands([(Path(name), _core.read_file(name, "records")) for name in files], output.targets())
    if files and len(files) > 1:
        raise InputError(f"{files[1]}: compare takes one scenario, or records of quell shell (.json)")
    file = files[0] if files else None
    if file == "autorate":
        from quell import autorate

        if refused := [name for name, value in others.items() if value and name not in ("trace", "duration", "json")]:
            raise InputError(
                f"--{refused[0]}: not with quell compare autorate, which has lines and loops of its own; "
                f"quell run {file} takes it"
            )
        return autorate.compare(
            trace=changes.trace, seeds=seeds, jobs=jobs, ray=ray, duration=changes.duration, json=output.json
        )
    targets = output.targets()
    measured = flent_file.Measured.load(file) if file is not None and flent_file.is_flent(file) else None
    scenario = changes.load(file if measured is None else measured.scenario(), seeds)
    queues = own.parse(aqm, ray=ray) if aqm else None
    spec = _reality(scenario, queues or ()) if real else None
    run = partial(simulate, threads=jobs, ray=ray)
    outcome = responsiveness.compare(scenario, queues, run, rpm=rpm, more=seeds is None, **output.bins(targets))
    speed = si(outcome.packets / max(outcome.wall_s, 1e-9))
    again = f", {outcome.again} again with probes," if outcome.again else ""
    told = f"{counted(len(outcome.by_job), 'run')}{again} in {outcome.wall_s:.1f} s, {speed} packets/s"
    if spec is not None and not outcome.interrupted:
        outcome = _real(scenario, outcome, list(dict.fromkeys(job.queue for job in outcome.jobs)), spec)
    if not targets.quiet:
        rows = stats.summarise(outcome.records)
        heading(scenario, {row.runs for row in rows})
        if measured is not None:
            out.print(one_line(measured.summary()), style="dim", soft_wrap=True)
        if rows:
            out.print(table.compare(rows, out.width))
            if quality := table.applications(outcome.records, out.width):
                out.print(quality)
            out.print(table.legend(rows, out.width, styled=out.is_terminal))
        err.print(told, style="dim")
    if measured is not None:
        outcome.measured = measured.line()
    targets.write(outcome, series=output.series is not None)
    return status(outcome)


def _reality(scenario: Scenario, queues: Sequence[Parsed]) -> dict[str, Any]:
    """Check the requirements of `--real` before anything runs."""
    from quell.linux import real

    if python := next((queue for queue in queues if not isinstance(queue, _core.Queue)), None):
        raise InputError(f"--real: {python}: what is written in Python is only simulated; leave it or --real out")
    return real.check(scenario)


def _real(scenario: Scenario, simulated: Outcome, queues: Sequence[Parsed | str], spec: dict[str, Any]) -> Outcome:
    from quell.linux import real

    with bar("Real TCP", len(queues), "queues") as shown:
        each = f"{scenario.duration_s:g} s each"
        return real.beside(scenario, simulated, queues, spec, lambda done: shown(done, each))
