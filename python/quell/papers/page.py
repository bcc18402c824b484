"""A paper's page: one HTML file that opens offline, made of the report's parts (`quell.report`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from quell import _core
from quell.papers.paper import CONTRADICTED, LEVEL, MISSED, Figure, Line, Paper, Study, Table, totals
from quell.views import report


def page(paper: Paper, study: Study, rows: Sequence[dict[str, Any]], *, command: str, notice: str) -> str:
    """Return a paper's page as HTML; `command` is what repeats it, `notice` what a reader must know first."""
    digits = {claim.id: claim.digits for claim in paper.claims}
    parts = {
        "name": escape(paper.name),
        "title": escape(paper.title),
        "source": escape(paper.source),
        "about": escape(paper.about),
        "version": escape(_core.__version__),
        "notice": f'<p class="notice">{escape(notice)}</p>' if notice else "",
        "tally": "".join(
            f"<p>{kind}: " + "".join(f"<span>{_verdict(v)} {n}</span>" for v, n in of.items()) + "</p>"
            for kind, of in totals(rows).items()
        ),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in study.notes),
        "figures": "\n".join(_figure(k, figure) for k, figure in enumerate(study.figures)),
        "tables": "\n".join(_matrix(table) for table in study.tables),
        "listings": "\n".join(
            f"<section><h2>{escape(one.title)}</h2><pre>{escape(one.text)}</pre></section>" for one in study.listings
        ),
        "heading": escape(f"{paper.name}, reproduced" if rows else paper.name),
        "printed": _section("Printed numbers and claims", _NOTE, _verdicts_first(rows), digits),
        "others": _section("Aims of quell, and what the paper does not have", "", _others(rows), digits),
        "command": escape(command),
        "data": report.embedded({"figures": [_plain(figure) for figure in study.figures]}),
        "css": f"{report.part('page.css')}\n{_part('page.css')}",
        "js": f"{report.part('draw.js')}\n{_part('figures.js')}",
    }
    return Template(_part("page.html")).substitute(parts)


def _part(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8").strip()


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
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    title = escape(table.title)
    return f'<section><h2>{title}</h2><div class="table"><table class="matrix">{inner}</table></div></section>'


_NOTE = (
    f"Misses first. Mean over seeds or trainings, ± half the interval of {100 * LEVEL:g} % (Student’s t). "
    "Reached: the whole interval is within the tolerance; better: beyond it on the good side; missed: outside; "
    "contradicted: the whole interval is against the paper’s sentence; open: none of these; constant: the policy "
    "answers the same to every input. What a row says under its name was measured by the same command. "
    "Click a heading to sort."
)


def _verdicts_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """List what the paper prints and claims, misses first, each part in the paper's order."""
    of_paper = [r for r in rows if r["kind"] in ("printed", "claim")]
    return sorted(of_paper, key=lambda r: r["verdict"] not in (MISSED, CONTRADICTED))


def _others(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] not in ("printed", "claim")]


def _section(title: str, note: str, rows: Sequence[dict[str, Any]], digits: dict[str, int]) -> str:
    if not rows:
        return ""
    table = f'<div class="table">{_rows(rows, digits)}</div>'
    return f'<section><h2>{title}</h2><p class="note">{note}</p>{table}</section>'


def _rows(rows: Sequence[dict[str, Any]], digits: dict[str, int]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("row", "kind", "what", "expected", "measured", "verdict"))
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(_row(r, digits[r['id']]) for r in rows)}</tbody></table>"
    )


def _row(row: dict[str, Any], digits: int) -> str:
    why = f'<span class="why">{escape(row["why"])}</span>' if row["why"] else ""
    unit = f" <small>{escape(row['unit'])}</small>" if row["unit"] else ""
    source = f"“{row['quote']}”, {row['source']}" if row["quote"] else row["source"]
    cited = f" <small>({escape(source)})</small>" if source else ""
    expected, measured = (
        ("", "–") if row[k] is None else (row[k], f"{row[k]:.{digits}f}") for k in ("expected", "measured")
    )
    half = "" if row["high"] is None else f" <small>±{row['high'] - row['measured']:.{digits}f}</small>"
    return (
        f"<tr><td><code>{escape(row['id'])}</code></td><td>{row['kind']}</td><td>{escape(row['what'])}{cited}{why}</td>"
        f'<td data-v="{expected[0]}">{expected[1]}{unit}</td><td data-v="{measured[0]}">{measured[1]}{half}</td>'
        f"<td>{_verdict(row['verdict'])}</td></tr>"
    )


def _verdict(verdict: str) -> str:
    return f'<span class="v {verdict}">{verdict}</span>'
