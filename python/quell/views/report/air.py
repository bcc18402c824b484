"""The report's section on an 802.11n cell: airtime, aggregation and retries of each queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from quell.results.stats import Record, row_name

_HEAD = (
    ("queue", ""),
    ("airtime<br>%", ""),
    ("throughput<br>Mbit/s", " class=wide"),
    ("delay<br>ms", ""),
    ("aggregate<br>frames", ""),
    ("resent<br>%", ""),
    ("unanswered<br>%", " class=wide"),
    ("given up<br>frames", " class=wide"),
)


def section(names: Sequence[str], records: Sequence[Record]) -> str:
    """Return a bar and a table per queue with means over runs; empty without a cell."""
    parts = []
    for k, name in enumerate(names):
        cells = [r["wifi"] for r in records if row_name(r) == name and r.get("wifi")]
        if cells:
            parts.append(_cell(name, cells, k == 0))
    if not parts:
        return ""
    return (
        "<section><h2>Airtime</h2>"
        '<p class="note">Share of the time in which frames of each queue and their acknowledgements were on the air; '
        "the rest was silence. Means over runs. Open a queue for its figures: delay from arrival at the queue to "
        "arrival at the neighbour, frames per exchange, frames sent again, exchanges without an acknowledgement, "
        "frames given up.</p>"
        f'<div id="air">{"".join(parts)}</div></section>'
    )


def _cell(name: str, cells: Sequence[dict[str, Any]], opened: bool) -> str:
    links = [_link(list(runs)) for runs in zip(*(cell["queues"] for cell in cells), strict=True)]
    # Colliding frames are on the air at the same time, so the shares may add up to more than 1.
    whole = max(1.0, math.fsum(link["airtime"] for link in links))
    bar = "".join(
        f'<i style="width:{link["airtime"] / whole * 100:.3f}%;--k:var(--c{k % 8})" '
        f'title="{escape(link["name"])}: {link["airtime"] * 100:.1f} % of the time">'
        f"{escape(link['name']) if link['airtime'] / whole > 0.09 else ''}</i>"
        for k, link in enumerate(links)
    )
    head = "".join(f"<th{wide}>{title}</th>" for title, wide in _HEAD)
    body = "".join(_row(link, k) for k, link in enumerate(links))
    return (
        f"<details{' open' if opened else ''}><summary><b>{escape(name)}</b><span>{bar}</span></summary>"
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )


def _link(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def mean(key: str) -> float:
        known = [run[key] for run in runs if run.get(key) is not None]
        return math.fsum(known) / len(known) if known else math.nan

    first = runs[0]
    keys = ("airtime", "throughput_mbps", "delay_ms", "aggregate", "retries", "failures", "given_up")
    kind = "" if first["ac"] == "be" else f" ({first['ac']})"
    return {"name": f"{first['from']} → {first['to']}{kind}"} | {key: mean(key) for key in keys}


def _row(link: dict[str, Any], k: int) -> str:
    cells = [
        (link["airtime"] * 100, 1, ""),
        (link["throughput_mbps"], 2, " class=wide"),
        (link["delay_ms"], 1, ""),
        (link["aggregate"], 1, ""),
        (link["retries"] * 100, 1, ""),
        (link["failures"] * 100, 1, " class=wide"),
        (link["given_up"], 0, " class=wide"),
    ]
    text = "".join(
        f'<td{wide} data-v="">–</td>' if math.isnan(v) else f'<td{wide} data-v="{v:.9g}">{v:.{digits}f}</td>'
        for v, digits, wide in cells
    )
    return f'<tr><td><i style="background:var(--c{k % 8})"></i>{escape(link["name"])}</td>{text}</tr>'
