"""The page: a matrix of scenarios and queues whose cells open figures and plots, in one self-contained HTML file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from string import Template
from typing import Any

from quell import _core
from quell.common.text import counted, one_line
from quell.evaluation import show
from quell.evaluation.entry import MAY, MUST, RECOMMENDED
from quell.evaluation.measures import MEASURES
from quell.evaluation.run import Cell, Plan
from quell.evaluation.verdict import FAIL, LEFT_OUT, PASS, REPORTED, UNCLEAR, VERDICTS
from quell.results.stats import Estimate, estimate
from quell.views.page import again, part
from quell.views.page import page as framed

_CLASS = {PASS: "pass", FAIL: "fail", UNCLEAR: "unclear", REPORTED: "reported", LEFT_OUT: "left"}
_BEST = 6
"""Maximum number of queues that the page's first sentence names."""
_LEVEL = {MUST: "must", RECOMMENDED: "rec", MAY: "may"}


def page(plan: Plan, cells: Sequence[Cell], command: str) -> str:
    """Return the page as HTML; `command` repeats it."""
    rows = show.rows(plan, cells)
    queues, seeds = counted(len(plan.candidates), "queue"), counted(plan.seeds, "seed")
    facts = f"{plan.link} · {queues} · {counted(len(rows), 'scenario')} · {seeds} each"
    parts = {
        "version": escape(_core.__version__),
        "reference": escape(plan.candidates[0].name),
        "matrix": _matrix(plan, cells, rows),
        "reasons": "".join(f"<li>{escape(line.plain)}</li>" for line in show.reasons(cells)),
        "parameters": _parameters(plan),
        "again": again(command),
    }
    return framed(
        "RFC 7928",
        '<p class="facts">Characterization guidelines for active queue management</p>\n'
        f'  <p class="facts">{escape(facts)}</p>\n  <p class="finding">{escape(show.tally(plan, cells, _BEST))}</p>',
        Template(part(__package__, "page.html")).substitute(parts),
        data=_data(plan, rows),
        css=part(__package__, "page.css"),
        js=part(__package__, "page.js"),
    )


def _matrix(plan: Plan, cells: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> str:
    head = ""
    for k, one in enumerate(plan.candidates):
        below = "reference" if k == 0 else "{} of {}".format(*show.passed(cells, one.name))
        head += f"<th>{escape(one_line(one.name))}<br><small>{below}</small></th>"
    body = "".join(_row(t, row) for t, row in enumerate(rows))
    head = f"<thead><tr><th>scenario</th><th>required</th>{head}</tr></thead>"
    return f'<table class="rfc">{head}<tbody>{body}</tbody></table>'


def _row(t: int, row: Sequence[Cell]) -> str:
    entry = row[0].entry
    cells = "".join(_cell(t, q, cell) for q, cell in enumerate(row))
    level = f'<span class="level {_LEVEL[entry.requirement]}">{entry.requirement}</span>'
    name = f'<td title="{escape(entry.about)}"><i>{entry.section}</i> {escape(entry.name)}{level}</td>'
    return f"<tr>{name}<td>{level}</td>{cells}</tr>"


def _cell(t: int, q: int, cell: Cell) -> str:
    text = show.cell_text(cell) if cell.verdict != UNCLEAR else "unclear"
    # The label has the number that is seen.
    told = f"{cell.verdict}, {text}" if cell.verdict == REPORTED != text else cell.verdict
    label = escape(f"{cell.entry.section} {cell.entry.name}, {one_line(cell.candidate.name)}: {told}")
    where = f'class="{_CLASS[cell.verdict]}" data-t="{t}" data-c="{q}"'
    button = f'<button type="button" {where} aria-label="{label}">{text}</button>'
    return f'<td data-v="{VERDICTS.index(cell.verdict)}">{button}</td>'


def _parameters(plan: Plan) -> str:
    """List each queue's parameters (section 12.2)."""
    lists = []
    for one in plan.candidates:
        rows = "".join(
            f"<tr><td><code>{escape(o['name'])}</code></td><td>{escape(o['default'])}</td><td>{escape(o['meaning'])}</td></tr>"
            for o in one.options()
        )
        if rows:
            table = f'<div class="table"><table class="options">{rows}</table></div>'
            lists.append(f"<details><summary>{escape(one_line(one.name))}</summary>{table}</details>")
    return "".join(lists)


# What the script opens. ----------------------------------------------------------------------------------------------


def _data(plan: Plan, rows: Sequence[Sequence[Cell]]) -> dict[str, Any]:
    return {
        "queues": [one_line(one.name) for one in plan.candidates],
        "rows": [
            {
                "section": row[0].entry.section,
                "name": row[0].entry.name,
                "required": row[0].entry.requirement,
                "about": row[0].entry.about,
                "cells": [_details(cell, row[0]) for cell in row],
            }
            for row in rows
        ],
    }


def _details(cell: Cell, reference: Cell) -> dict[str, Any]:
    measures = []
    for key, measure in MEASURES.items():
        own, other = (estimate(one.values.get(key, ())) for one in (cell, reference))
        if own is not None:
            measures.append([measure.title, _text(key, own), "" if other is None else _text(key, other)])
    plots = {name: runs[0]["plot"] for name, runs in cell.runs.items() if runs and "plot" in runs[0]}
    return {
        "verdict": cell.verdict,
        "class": _CLASS[cell.verdict],
        "reason": cell.reason,
        "bars": [[one.text(), one.verdict, one.bar.source] for one in cell.judged],
        "measures": measures,
        "ellipse": _rounded(cell.ellipse()) if cell.entry.bars else None,
        "plots": plots if cell.entry.bars else {},
    }


def _text(key: str, value: Estimate) -> str:
    measure = MEASURES[key]
    half = "" if value.half is None else f" ± {value.half * measure.scale:.{measure.digits}f}"
    number = f"{value.mean * measure.scale:.{measure.digits}f}"
    return f"{number}{half} {measure.unit}".strip()


def _rounded(values: dict[str, float] | None) -> dict[str, float] | None:
    if values is None or not all(math.isfinite(value) for value in values.values()):
        return None
    return {key: float(f"{value:.5g}") for key, value in values.items()}
