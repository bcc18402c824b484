"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quell.cli import complete

LINK, OUTPUT = "Scenario (overrides or replaces the file)", "Output"
"""Panels of the help."""

Dashboard = Annotated[
    int | None,
    typer.Option(
        metavar="[PORT]", min=0, max=65535,
        help="Page on 127.0.0.1 with charts of the queues. Default port: any that is free.",
    ),
]  # fmt: skip
File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Scenario file (TOML) or built-in scenario; see `quell scenarios`.",
        show_default=False,
        autocompletion=complete.files,
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Rate of the link, as in tc: 15mbit, 1.5gbit, or DOWN/UP.", rich_help_panel=LINK),
]
Rtt = Annotated[
    str | None, typer.Option(metavar="TIME", help="Base round trip of every flow: 20ms.", rich_help_panel=LINK)
]
Trace = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Rate trace: a file in Mahimahi's format, or builtin:lte.",
        rich_help_panel=LINK,
        autocompletion=complete.traces,
    ),
]
Tc = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LINE|FILE|-", rich_help_panel=LINK,
        help="Lines of tc, or what `tc qdisc show` prints, read as link and queue; repeatable.",
    ),
]  # fmt: skip
Flow = Annotated[
    list[str] | None,
    typer.Option(
        "--flow", metavar="FLOW", rich_help_panel=LINK,
        help="Replaces the file's flows; repeatable: cubic:4, bbr@rtt=80ms, cubic@ecn=1, dctcp:2@10s-30s, call, page.",
        autocompletion=complete.flows,
    ),
]  # fmt: skip
Ecn = Annotated[bool, typer.Option("--ecn", help="Negotiate ECN on every TCP flow.", rich_help_panel=LINK)]
Duration = Annotated[str | None, typer.Option(metavar="TIME", help="Simulated time: 60s.", rich_help_panel=LINK)]
Warmup = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time at the start that statistics leave out: 5s.", rich_help_panel=LINK),
]
Seed = Annotated[
    str | None, typer.Option(metavar="N", help="Random seed, from which the runs' seeds derive.", rich_help_panel=LINK)
]
Seeds = Annotated[str | None, typer.Option(metavar="N", help="Runs per queue, each with its own random seed.")]


def jobs(panel: str | None = None) -> Any:
    """Make the option --jobs, in this panel of the help."""
    return typer.Option(
        metavar="N", min=0, max=1_000_000, help="Runs at a time; 0: one per core.", rich_help_panel=panel
    )


def ray(panel: str | None = None) -> Any:
    """Make the option --ray, in this panel of the help."""
    return typer.Option(metavar="local|ADDRESS", help="Run on a Ray cluster (needs ray).", rich_help_panel=panel)


Jobs = Annotated[int, jobs()]
Ray = Annotated[str | None, ray()]
Rpm = Annotated[
    bool | None,
    typer.Option(
        "--rpm/--no-rpm",
        help="Run every seed, or none, again with probes, for responsiveness (RPM); default: one seed in five.",
        show_default=False,
    ),
]
Json = Annotated[
    str | None,
    typer.Option(
        metavar="PATH|-", help="Result records as JSON; - prints them and nothing else.", rich_help_panel=OUTPUT
    ),
]
ShownJson = Annotated[
    str | None,
    typer.Option(
        metavar="PATH|-", help="What is shown, as JSON; - prints it and nothing else.", rich_help_panel=OUTPUT
    ),
]
"""`--json` of commands whose result is not a list of records."""
Html = Annotated[
    Path | None, typer.Option(metavar="PATH", help="HTML report, one file that works offline.", rich_help_panel=OUTPUT)
]
Parquet = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Result records as Parquet.", rich_help_panel=OUTPUT)
]
Csv = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Result records as CSV, without lists.", rich_help_panel=OUTPUT)
]
Flent = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="A data file that Flent opens (.flent.gz); of several runs one each, named after queue and seed.",
        rich_help_panel=OUTPUT,
    ),
]
Series = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=1e-4,
        help="Keep time series in the records, with bins of this width.",
        rich_help_panel=OUTPUT,
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint beside --out.")]
Tensorboard = Annotated[
    Path | None, typer.Option("--tensorboard", metavar="DIR", help="Also write the learning curve for TensorBoard.")
]
