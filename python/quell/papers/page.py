"""A paper's page: expected and measured values by row, and figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from quell.papers.claim import CONTRADICTED, LEVEL, MISSED
from quell.papers.paper import Paper, totals
from quell.papers.study import Study
from quell.views import figures


def page(paper: Paper, study: Study, rows: Sequence[dict[str, Any]], *, command: str, notice: str) -> str:
    """Return a paper's page as HTML; `command` repeats it, `notice` is shown first."""
    digits = {claim.id: claim.digits for claim in paper.claims}
    tally = "".join(
        f"<p>{kind}: " + "".join(f"<span>{_verdict(v)} {n}</span>" for v, n in of.items()) + "</p>"
        for kind, of in totals(rows).items()
    )
    notice = f'<p class="notice">{escape(notice)}</p>' if notice else ""
    return figures.page(
        paper.title, paper.source, paper.about, study.figures, command=command,
        tab=f"{paper.name}, reproduced" if rows else paper.name, notes=study.notes, tables=study.tables,
        listings=study.listings, header=f'{notice}\n  <div class="tally">{tally}</div>',
        before=_section("Printed numbers and claims", _NOTE, _verdicts_first(rows), digits),
        after=_section("Aims of quell, and what the paper does not have", "", _others(rows), digits),
    )  # fmt: skip


_NOTE = (
    f"Misses first. Mean over seeds or trainings, ± half the width of the interval of {100 * LEVEL:g} % (Student’s t). "
    "Reached: the whole interval is within the tolerance; better: beyond it on the good side; missed: outside; "
    "contradicted: the whole interval is against the paper’s sentence; open: none of these; constant: the policy "
    "gives the same answer to every input. What a row says under its name was measured by the same command. "
    "Click a heading to sort."
)


def _verdicts_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """List the paper's numbers and claims, misses first, each part in the paper's order."""
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
