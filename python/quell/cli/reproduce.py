"""The command `quell reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from quell import papers
from quell._core import InputError
from quell.cli import complete
from quell.cli.options import OUTPUT, Html, Jobs, Ray
from quell.common.console import err, out
from quell.common.status import INTERRUPTED
from quell.common.text import counted
from quell.experiments.executor import executor
from quell.papers import page
from quell.papers.bench import QUICK_SEEDS, SEEDS, Bench
from quell.papers.claim import BETTER, CONSTANT, CONTRADICTED, LEVEL, MEASURED, MISSED, OPEN, REACHED
from quell.papers.paper import Paper, rows, totals, totals_text
from quell.papers.study import Study
from quell.views.targets import Targets, command

EXAMPLES = (
    "Examples:\n\n  quell reproduce --list\n\n  quell reproduce rl-aqm --html rl-aqm.html\n\n"
    "  quell reproduce lfq --quick --json -"
)
QUICK = "Quick version with fewer and shorter runs than the paper's: its figures are not meaningful."
STYLES = {
    REACHED: "bold green",
    BETTER: "green",
    MISSED: "yellow",
    CONTRADICTED: "bold yellow",
    OPEN: "cyan",
    CONSTANT: "magenta",
    MEASURED: "dim",
}


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The paper; see --list.", show_default=False, autocompletion=complete.known_papers
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the papers; with NAME, the rows of a paper.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version, for tests.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Also print the detail rows.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help=f"Most runs of a setting, which stops at 10, 20 or 40 where its verdicts are decided. "
            f"Default: {SEEDS}, with --quick {QUICK_SEEDS}.",
        ),
    ] = None,
    jobs: Jobs = 0,
    ray: Ray = None,
    json: Annotated[
        str | None,
        typer.Option(metavar="PATH|-", help="Rows as JSON; - prints them and nothing else.", rich_help_panel=OUTPUT),
    ] = None,
    html: Html = None,
) -> int:
    """Repeat a published paper's measurements and compare them with the printed numbers."""
    if name is None and not list_:
        raise InputError(f"name a paper: {', '.join(papers.MODULES)} (quell reproduce --list)")
    targets = Targets(json, html)
    if name is None:
        targets.write_json([{"name": p.name, "title": p.title, "source": p.source, "about": p.about} for p in _known()])
        if not targets.quiet:
            out.print(_papers(_known()))
        return 0
    paper = papers.find(name)
    if list_:
        targets.write_json(
            [
                {k: r[k] for k in ("id", "what", "unit", "kind", "source", "quote", "expected")}
                for r in rows(paper, Study())
            ]
        )
        if not targets.quiet:
            out.print(_claims(paper))
        return 0
    with executor(ray) as on:
        bench = Bench(quick, seeds or (QUICK_SEEDS if quick else SEEDS), jobs, on)
        stopped: BaseException | None = None
        try:
            paper.measure(bench)
        except (KeyboardInterrupt, Exception) as error:
            stopped = error
    study = bench.study
    measured = rows(paper, study)
    notice = QUICK if quick else ""
    if stopped is not None:
        measured = [row for row in measured if row["id"] in study.measured]
        told = f"interrupted: {len(measured)} of {len(paper.claims)} rows were complete"
        err.print(f"quell: {told}{' and were kept' if measured else ''}")
        if not measured:
            return _end(stopped)
        targets.keep_earlier()
        notice = f"{notice} {told.capitalize()}.".strip()
    if not targets.quiet:
        _show(paper, study, measured, quick=quick, everything=all_)
    elif quick:
        err.print(QUICK)

    targets.write_with_page(measured, lambda: page.page(paper, study, measured, command=command(), notice=notice))
    return _end(stopped)


def _end(stopped: BaseException | None) -> int:
    """Return the exit status; raise the error that ended the measurements, if one did."""
    if isinstance(stopped, Exception):
        raise stopped
    return INTERRUPTED if stopped else 0


def _known() -> list[Paper]:
    return [papers.find(name) for name in papers.MODULES]


# Printed output. -----------------------------------------------------------------------------------------------------


def _plain_table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for column in columns:
        table.add_column(column)
    return table


def _papers(known: Sequence[Paper]) -> Table:
    table = _plain_table("paper", "what is reproduced", "rows")
    for p in known:
        what = Text.assemble((p.title, "bold"), f"\n{p.source}\n", (p.about, "dim"))
        table.add_row(p.name, what, str(len(p.claims)))
    return table


def _claims(paper: Paper) -> Table:
    table = _plain_table("row", "kind", "what", "expected", "unit")
    for c in paper.claims:
        table.add_row(c.id, c.kind, _what(c.what, c.source, c.quote), _number(c.expected, c.digits), c.unit)
    return table


def _show(paper: Paper, study: Study, measured: Sequence[dict[str, Any]], *, quick: bool, everything: bool) -> None:
    out.print(Text(paper.title, "bold"))
    out.print(Text(paper.source, "dim"))
    if quick:
        out.print(Text(QUICK, "yellow"))
    shown = {c.id: c for c in paper.claims if everything or not c.detail}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("row", overflow="fold", ratio=1)
    table.add_column("kind", no_wrap=True)
    table.add_column("expected", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in measured:
        if (claim := shown.get(row["id"])) is not None:
            table.add_row(*_cells(row, claim.digits, f", {claim.unit}" if claim.unit else ""))
    out.print(table)
    for matrix in study.tables:
        _show_matrix(matrix)
    _reasons([row for row in measured if row["why"] and row["id"] in shown])
    for note in study.notes:
        out.print(Text.assemble(("• ", "cyan"), note))
    hidden = sum(row["id"] not in shown for row in measured)
    more = f" ({hidden} not shown: --all)" if hidden else ""
    out.print(
        Text(f"{counted(len(measured), 'row')}{more}. ±: interval of {100 * LEVEL:g} % over seeds or trainings.", "dim")
    )
    for line in totals_text(totals(measured)):
        out.print(Text(line, "dim"))


def _cells(row: dict[str, Any], digits: int, unit: str) -> list[Text]:
    measured = Text(_number(row["measured"], digits))
    if row["high"] is not None:
        measured.append(f" ±{row['high'] - row['measured']:.{digits}f}", "dim")
    return [
        Text.assemble((row["id"], "cyan"), f"\n{_what(row['what'], row['source'], row['quote'])}", (unit, "dim")),
        Text(row["kind"], "dim"),
        Text(_number(row["expected"], digits)),
        measured,
        Text(row["verdict"], STYLES[row["verdict"]]),
    ]


def _what(what: str, source: str, quote: str) -> str:
    """Return a row's description and its place in the paper."""
    cited = f"“{quote}”, {source}" if quote else source
    return f"{what} ({cited})" if cited else what


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _show_matrix(matrix: Any) -> None:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        title=matrix.title,
        title_justify="left",
        title_style="bold",
    )
    for k, column in enumerate(matrix.columns):
        table.add_column(column, justify="left" if k == 0 else "right")
    for cells in matrix.rows:
        table.add_row(*cells)
    out.print(table)


def _reasons(missed: Sequence[dict[str, Any]]) -> None:
    """Print the reasons, with rows of the same reason together."""
    together: dict[str, list[str]] = {}
    for row in missed:
        together.setdefault(row["why"], []).append(row["id"])
    if together:
        out.print(Text("Reasons", "bold"))
    for why, ids in together.items():
        out.print(Text.assemble((", ".join(ids), "cyan"), f": {why}"))
