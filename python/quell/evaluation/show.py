"""The matrix for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from quell.common.text import one_line
from quell.evaluation.entry import MAY, MUST, RECOMMENDED
from quell.evaluation.measures import MEASURES
from quell.evaluation.run import Cell, Plan
from quell.evaluation.verdict import FAIL, LEFT_OUT, PASS, REPORTED, UNCLEAR
from quell.results.stats import estimate

_SHORT = {MUST: "MUST", RECOMMENDED: "rec.", MAY: "may"}
_STYLE = {PASS: "green", FAIL: "bold red", UNCLEAR: "yellow", REPORTED: "", LEFT_OUT: "dim"}
_SHOWN = {PASS: "pass", FAIL: "fail", UNCLEAR: "?", LEFT_OUT: "–"}
_FAILURES = 12
"""Largest number of failed bars printed."""
_NAME = 18
_LEFT = 6 + 1 + _NAME + 1 + 4 + 2
"""Width of the columns on the left and both edges; each queue's column adds one separator."""


def rows(plan: Plan, cells: Sequence[Cell]) -> list[list[Cell]]:
    """Split the cells into rows."""
    width = len(plan.candidates)
    return [list(cells[k : k + width]) for k in range(0, len(cells), width)]


def cell_text(cell: Cell) -> str:
    """Return the text of a cell."""
    if cell.verdict == REPORTED and (value := estimate(cell.values.get(cell.entry.shown, ()))) is not None:
        return f"{value.mean * MEASURES[cell.entry.shown].scale:.0f}"
    return _SHOWN.get(cell.verdict, cell.verdict)


def matrix(plan: Plan, cells: Sequence[Cell], width: int) -> RenderableType:
    """Return the matrix; queues that do not fit into `width` characters go into another table below."""
    names = [_heading(one.name) for one in plan.candidates]
    table_rows = rows(plan, cells)
    room = width - _LEFT
    tables: list[RenderableType] = []
    first = 0
    while first < len(names):
        last, used = first, 0
        while last < len(names) and (last == first or used + _width(names[last]) + 1 <= room):
            used += _width(names[last]) + 1
            last += 1
        tables.append(_table(table_rows, names, range(first, last)))
        first = last
    return Group(*tables)


def _heading(name: str) -> str:
    """Break queue words into lines no wider than the longest word."""
    words = [word[k : k + 12] for word in one_line(name).split() for k in range(0, len(word), 12)]
    lines = [""]
    for word in words:
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) <= max(len(one) for one in words):
            lines[-1] = joined
        else:
            lines.append(word)
    return "\n".join(lines)


def _width(heading: str) -> int:
    return max(5, *(len(line) for line in heading.split("\n")))


def _table(table_rows: Sequence[Sequence[Cell]], names: Sequence[str], shown: range) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("§", no_wrap=True, width=6)
    table.add_column("scenario", no_wrap=True, width=_NAME)
    table.add_column("", no_wrap=True, width=4)
    for k in shown:
        table.add_column(Text(names[k]), justify="right", no_wrap=True, width=_width(names[k]))
    before = ""
    for row in table_rows:
        entry = row[0].entry
        section = "" if entry.section == before else entry.section
        before = entry.section
        cells = [Text(cell_text(row[k]), _STYLE[row[k].verdict]) for k in shown]
        table.add_row(Text(section, "cyan"), entry.name, Text(_SHORT[entry.requirement], "dim"), *cells)
    return table


def passed(cells: Sequence[Cell], name: str) -> tuple[int, int]:
    """Count the scenarios that a queue passed, and those in which it was judged."""
    own = [cell.verdict for cell in cells if cell.candidate.name == name]
    return own.count(PASS), sum(own.count(verdict) for verdict in (PASS, FAIL, UNCLEAR))


def tally(plan: Plan, cells: Sequence[Cell], most: int | None = None) -> str:
    """Return how many scenarios each queue, or each of the `most` best ones, has passed, best first."""
    compared = [one.name for one in plan.candidates[1:] or plan.candidates]
    counts = sorted(((*passed(cells, name), name) for name in compared), key=lambda found: -found[0])
    parts = [f"{one_line(name)} {won} of {judged}" for won, judged, name in counts[:most]]
    heading = f"Passed most, of {len(counts)} queues" if len(parts) < len(counts) else "Passed"
    return f"{heading}: {', '.join(parts)}."


def failures(cells: Sequence[Cell]) -> list[Text]:
    """Return the failed bars, MUSTs first."""
    failed = [(cell, one) for cell in cells[:] for one in cell.judged if one.verdict == FAIL]
    reference = cells[0].candidate if cells else None
    failed = [(cell, one) for cell, one in failed if cell.candidate != reference]
    failed.sort(key=lambda found: found[0].entry.requirement != MUST)
    lines = [
        Text.assemble(
            (f"{cell.entry.section} ", "cyan"),
            (f"{cell.entry.name}, {one_line(cell.candidate.name)}: ", "bold"),
            one.text(),
        )
        for cell, one in failed[:_FAILURES]
    ]
    if len(failed) > _FAILURES:
        lines.append(Text(f"… and {len(failed) - _FAILURES} more: --html or --json", "dim"))
    return lines


def reasons(cells: Sequence[Cell]) -> list[Text]:
    """Return why scenarios were not run, grouped by reason."""
    together: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.reason:
            together.setdefault((cell.entry.id, cell.reason), []).append(cell.candidate.name)
    everyone = len({cell.candidate.name for cell in cells})
    lines = []
    for (name, reason), queues in together.items():
        who = "every queue" if len(queues) == everyone else ", ".join(one_line(queue) for queue in queues)
        lines.append(Text.assemble((f"{name}, {who}: ", "bold"), (one_line(reason), "dim")))
    return lines


LEGEND = (
    "pass, fail: every bar holds, one does not, with 95 % confidence over seeds; ?: the seeds do not settle it; "
    "–: not run. MUST, rec., may: RFC 7928, section 13."
)
