"""The report's section on hosts and priorities: the share of each host and of each tin or band of a queue."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from quell.results.stats import Record, row_name

_HOSTS = (("host", ""), ("share<br>%", ""), ("goodput<br>Mbit/s", ""), ("flows", " class=wide"))
_TINS = (
    ("tin", ""),
    ("share<br>%", ""),
    ("throughput<br>Mbit/s", ""),
    ("threshold<br>Mbit/s", " class=wide"),
    ("delay<br>ms", ""),
    ("drops<br>packets", " class=wide"),
    ("marks<br>packets", " class=wide"),
    ("ACKs<br>filtered", " class=wide"),
)


def section(names: Sequence[str], records: Sequence[Record]) -> str:
    """Return tables per queue with means over runs; empty without named hosts and without queues of several tins."""
    parts = []
    for k, name in enumerate(names):
        runs = [r for r in records if row_name(r) == name]
        tables = "".join(_tables(runs))
        if tables:
            opened = " open" if k == 0 else ""
            parts.append(f"<details{opened}><summary><b>{escape(name)}</b></summary>{tables}</details>")
    if not parts:
        return ""
    return (
        "<section><h2>Shares of hosts and tins</h2>"
        '<p class="note">What each host’s flows brought to their receivers, and what each of cake’s tins sent; the '
        "delay of a tin is its moving average at the end. Mean over runs.</p>"
        f'<div id="shares">{"".join(parts)}</div></section>'
    )


def _tables(runs: Sequence[Record]) -> Iterable[str]:
    hosts = [r["hosts"] for r in runs if r.get("hosts")]
    if hosts:
        yield _table(_HOSTS, [_host(list(of_runs)) for of_runs in zip(*hosts, strict=True)])
    of_queues = (("", [r.get("tins") for r in runs]), (" up", [(r.get("up") or {}).get("tins") for r in runs]))
    for direction, tins in of_queues:
        known = [t for t in tins if t and len(t) > 1]
        if known:
            yield _table(_TINS, [_tin(list(of_runs), direction) for of_runs in zip(*known, strict=True)])


def _mean(runs: Sequence[Mapping[str, Any]], key: str) -> float:
    return math.fsum(run[key] for run in runs) / len(runs)


def _host(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    up = " up" if runs[0]["direction"] == "up" else ""
    return [
        f"{runs[0]['host']}{up}",
        f"{_mean(runs, 'share') * 100:.1f}",
        f"{_mean(runs, 'goodput_mbps'):.2f}",
        f"{runs[0]['flows']}",
    ]


def _tin(runs: Sequence[Mapping[str, Any]], direction: str) -> list[str]:
    threshold = _mean(runs, "threshold_mbps")
    return [
        f"{runs[0]['name']}{direction}",
        f"{_mean(runs, 'share') * 100:.1f}",
        f"{_mean(runs, 'throughput_mbps'):.2f}",
        f"{threshold:.2f}" if threshold else "–",
        f"{_mean(runs, 'average_delay_ms'):.2f}",
        *(f"{_mean(runs, key):.0f}" for key in ("drops", "marks", "ack_drops")),
    ]


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th{wide}>{title}</th>" for title, wide in columns)
    wides = [wide for _, wide in columns]
    body = "".join(
        "<tr>" + "".join(f"<td{wide}>{escape(cell)}</td>" for cell, wide in zip(row, wides, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
