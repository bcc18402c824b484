"""Figures, tables and listings, and a page of them (`figures.html`, `figures.css`, `figures.js`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from string import Template
from typing import Any, Literal

from quell import _core
from quell.views.page import again, part
from quell.views.page import page as framed


@dataclass(frozen=True)
class Axis:
    """Title and scale of a panel's axis."""

    title: str
    log: bool = False


@dataclass(frozen=True)
class Line:
    """One curve or cloud of points."""

    name: str
    points: Sequence[tuple[float, float | None]]
    kind: Literal["line", "steps", "dots", "both"] = "line"
    """`both` is a line through dots."""
    group: int = 0
    """Lines of a group have the same colour."""
    printed: bool = False
    """Whether the values are printed in the paper: hollow dots, dashed lines."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]


@dataclass(frozen=True)
class Figure:
    """A figure drawn from data, panels side by side."""

    id: str
    title: str
    note: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Table:
    """A matrix, such as one setting against another."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Listing:
    """Lines to copy."""

    title: str
    text: str


def page(
    title: str,
    source: str,
    about: str,
    figures: Sequence[Figure] = (),
    *,
    command: str,
    tab: str,
    notes: Sequence[str] = (),
    tables: Sequence[Table] = (),
    listings: Sequence[Listing] = (),
    header: str = "",
    before: str = "",
    after: str = "",
) -> str:
    """Return a page as HTML, listings first; `command` repeats it, `tab` is its name in a browser.

    Each line of `about` is a paragraph. `header`, `before` and `after` are HTML below the title, above the figures and
    below them.
    """
    parts = {
        "before": before,
        "notes": "".join(f"<li>{escape(note)}</li>" for note in notes),
        "figures": "\n".join(_figure(k, figure) for k, figure in enumerate(figures)),
        "tables": "\n".join(_matrix(table) for table in tables),
        "listings": "\n".join(
            f'<section><h2>{escape(one.title)}</h2><div class="command"><pre>{escape(one.text)}</pre>'
            '<button type="button">copy</button></div></section>'
            for one in listings
        ),
        "after": after,
        "again": again(command),
        "version": escape(_core.__version__),
    }
    return framed(
        title,
        "\n  ".join([*(f'<p class="facts">{escape(text)}</p>' for text in (source, *about.splitlines())), header]),
        Template(part(__package__, "figures.html")).substitute(parts),
        data={"figures": [_plain(figure) for figure in figures]},
        css=part(__package__, "figures.css"),
        js=part(__package__, "figures.js"),
        tab=tab,
    )


def _plain(figure: Figure) -> dict[str, Any]:
    panels = [
        {"title": p.title, "x": asdict(p.x), "y": asdict(p.y), "lines": [_line(line) for line in p.lines]}
        for p in figure.panels
    ]
    return {"id": figure.id, "panels": panels}


def _line(line: Line) -> dict[str, Any]:
    points = [[float(f"{x:.6g}"), None if y is None else float(f"{y:.5g}")] for x, y in line.points]
    return {"name": line.name, "kind": line.kind, "group": line.group, "printed": line.printed, "points": points}


def _figure(k: int, figure: Figure) -> str:
    panels = "".join(
        f'<div><figcaption>{escape(p.title)}</figcaption><figure id="panel-{k}-{n}"></figure></div>'
        for n, p in enumerate(figure.panels)
    )
    return (
        f'<section id="{escape(figure.id)}"><h2>{escape(figure.title)}</h2><p class="note">{escape(figure.note)}</p>'
        f'<div class="keys" id="keys-{k}"></div><div class="panels">{panels}</div></section>'
    )


def _matrix(table: Table) -> str:
    # A column without a name has no heading cell, by which it could be sorted.
    head = "".join(f"<th>{escape(name)}</th>" if name else "<td></td>" for name in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    title = escape(table.title)
    return f'<section><h2>{title}</h2><div class="table"><table class="matrix">{inner}</table></div></section>'
