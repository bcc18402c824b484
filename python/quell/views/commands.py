"""Runs of a command behind a link: tables for the terminal, and the report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from quell.common.console import Screen
from quell.common.text import one_line
from quell.results.commands import WAYS, Run
from quell.views import figures
from quell.views.figures import Axis, Figure, Line, Panel
from quell.views.report import pooled_cdf

_OPTIONAL_COLUMNS = ("packets", "missed", "used", "marks", "s")
"""Columns that a narrow terminal omits, in this order."""
_POINTS = 600
"""Largest number of points of a line in the report."""
_MAX_TITLE = 60
"""Maximum length of the page's title, characters."""
_SHOWN_MBPS = 0.005
"""Smallest goodput that the notes mention, Mbit/s; with two decimals a smaller one is 0.00."""
_SHOWN_MS = 0.1
"""Smallest p99 that is drawn, ms."""
_NOT_DRAWN = f"Where 99 % of packets waited less than {_SHOWN_MS} ms, the wait is not drawn."
_LINK = 7
"""Colour of the link's capacity."""


def table(runs: Sequence[Run], width: int) -> Table:
    """Return a table with a row per direction and run; its caption names the columns for which `width` has no room."""
    spare: list[str] = []
    laid = _table(runs, spare)
    for more in _OPTIONAL_COLUMNS:
        if _width(laid) <= width:
            break
        spare.append(more)
        laid = _table(runs, spare)
    if spare:
        laid.caption = Text(f"No room in {width} columns for {', '.join(spare)}: --json has all.", "dim")
        laid.caption_justify = "left"
    return laid


def _width(laid: Table) -> int:
    console = Screen(width=1000)
    return laid.__rich_measure__(console, console.options).maximum


def _table(runs: Sequence[Run], spare: Sequence[str]) -> Table:
    several = len(runs) > 1
    rows = list(_rows(runs))
    kept = [title for title in rows[0] if title not in spare and (several or title not in ("s", "exit"))]
    laid = _empty_table(kept)
    for k, row in enumerate(rows):
        laid.add_row(*(row[title] for title in kept), end_section=several and k + 1 == len(runs))
    return laid


def _empty_table(titles: Iterable[str]) -> Table:
    laid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in titles:
        words = title in ("queue", "TCP", "")
        laid.add_column(title, justify="left" if words else "right", no_wrap=title != "queue", overflow="fold")
    return laid


def _rows(runs: Sequence[Run]) -> Iterator[dict[str, str]]:
    """Yield the cells of each row by the column's title: first all downloads, then all uploads."""
    for k, way in enumerate(WAYS):
        for run in runs:
            r = run.records[k]
            name = run.name if len(runs) > 1 else r["queue"]
            yield {
                "": way, "queue": one_line(name), "Mbit/s": f"{r['throughput_mbps']:.3f}",
                "used": f"{100 * r['utilisation']:.1f} %", "wait ms": f"{r['sojourn_ms']['mean']:.2f}",
                "p95": f"{r['sojourn_ms']['p95']:.2f}", "packets": str(r["packets"]), "drops": str(r["drops"]),
                "marks": str(r["marks"]), "missed": str(r["live"].get("missed", "–")),
                "s": "" if k else _seconds(run.command), "exit": "" if k else str(run.command.get("status", "–")),
            }  # fmt: skip


def _seconds(command: Mapping[str, Any]) -> str:
    return f"{command['wall_s']:.1f}" if "wall_s" in command else "–"


def flows(runs: Sequence[Run]) -> Table | None:
    """Return a table of each run's TCP flows, by congestion control and direction; None without any."""
    rows = [[*row] for run in runs for row in _flows(run)]
    if not rows:
        return None
    several = len(runs) > 1
    laid = _empty_table((*(["queue"] if several else ()), "TCP", "", *_FLOW_TITLES))
    for name, *cells in rows:
        laid.add_row(*([name] if several else ()), *cells)
    return laid


_FLOW_TITLES = ("goodput Mbit/s", "RTT ms", "added ms", "resent")


def _flows(run: Run) -> Iterator[list[str]]:
    for k, way in enumerate(WAYS):
        kinds: dict[str, list[Mapping[str, Any]]] = {}
        for flow in run.records[k]["flows"]:
            kinds.setdefault(flow["cc"] or flow["kind"], []).append(flow)
        for cc, alike in kinds.items():
            known = [flow for flow in alike if flow.get("rtt_ms")]
            rtt = _mean([flow["rtt_ms"]["mean"] for flow in known])
            added = _mean([flow["rtt_ms"]["mean"] - flow["base_rtt_ms"] for flow in known])
            yield [
                one_line(run.name), one_line(f"{len(alike)} × {cc}" if len(alike) > 1 else cc), way,
                f"{math.fsum(flow['goodput_mbps'] for flow in alike):.3f}", rtt, added,
                str(sum(flow["retransmits"] for flow in alike)),
            ]  # fmt: skip


def _mean(values: Sequence[float]) -> str:
    return f"{math.fsum(values) / len(values):.1f}" if values else "–"


# The report. ----------------------------------------------------------------------------------------------------------


def page(runs: Sequence[Run], link: str, command: str) -> str:
    """Return the report as HTML; `link` describes the link, `command` repeats the report."""
    commands = list(dict.fromkeys(_command(run) for run in runs if run.command))
    title = _title(one_line(commands[0])) if len(commands) == 1 else "Commands behind a link"
    about = "Real packets of a real program: another run gives somewhat different figures."
    drawn = [figure for figure in (_over_time(runs), _distribution(runs)) if figure is not None]
    if not any(_has_series(run) for run in runs):
        about += " These records have no time series; --series 0.1 keeps it in the records."
    tables = [_link_table(runs), *_flow_tables(runs)]
    notes = [_note(run) for run in runs]
    return figures.page(title, link, about, drawn, command=command, tab="quell shell", notes=notes, tables=tables)


def rates(runs: Sequence[Run]) -> str:
    """Describe the mean rates of the links if only records are known."""
    each = [[f"{run.records[k]['capacity_mbps']:.2f} Mbit/s" for run in runs] for k in range(len(WAYS))]
    return "; ".join(f"{way} {', '.join(dict.fromkeys(texts))}" for way, texts in zip(WAYS, each, strict=True))


def _command(run: Run) -> str:
    return shlex.join(map(str, run.command.get("words", ())))


def _title(command: str) -> str:
    return command if len(command) <= _MAX_TITLE else f"{command[: _MAX_TITLE - 1]}…"


def _note(run: Run) -> str:
    """Describe the outcome of the command in a sentence."""
    command = run.command
    ended = f": {command['wall_s']:.1f} s, exit status {command['status']}" if "wall_s" in command else ""
    ways = [
        f"{way} {r['goodput_mbps']:.2f} Mbit/s of goodput, p95 of the wait {r['sojourn_ms']['p95']:.3g} ms"
        for way, r in zip(WAYS, run.records, strict=True)
        if r["goodput_mbps"] >= _SHOWN_MBPS
    ]
    return f"{run.name}{ended}; {'; '.join(ways) or 'hardly any data crossed the link'}."


def _has_series(run: Run) -> bool:
    return all(record.get("series") for record in run.records)


def _over_time(runs: Sequence[Run]) -> Figure | None:
    drawn = [(k, run) for k, run in enumerate(runs) if _has_series(run)]
    if not drawn:
        return None
    panels = []
    for title, key, unit in (("Rate", "throughput_mbps", "Mbit/s"), ("Wait in the queue", "sojourn_ms", "ms")):
        for w, way in enumerate(WAYS):
            if key == "sojourn_ms" and not _waited(runs, w):
                continue
            offered = drawn[0][1].records[w]["series"]
            lines = []
            if key == "throughput_mbps" and len(set(offered["capacity_mbps"])) > 1:
                points = _binned(offered, "capacity_mbps")
                lines.append(Line("offered by the link", points, "line", _LINK, printed=True))
            lines += [Line(run.name, _binned(run.records[w]["series"], key), "line", k) for k, run in drawn]
            panels.append(Panel(f"{title}, {way}", Axis("time, s"), Axis(unit), lines))
    all_series = [run.records[0]["series"] for _, run in drawn]
    bin_ms = max(1000 * series["bin_s"] * _bins_per_point(series) for series in all_series)
    note = f"From the start of the command, means over {bin_ms:g} ms. {_NOT_DRAWN}"
    return Figure("time", "Over time", note, panels)


def _waited(runs: Sequence[Run], way: int) -> bool:
    return any(run.records[way]["sojourn_ms"]["p99"] >= _SHOWN_MS for run in runs)


def _bins_per_point(series: Mapping[str, Any]) -> int:
    """Return the number of bins that are merged into one point, so that a line has at most `_POINTS`."""
    return -(-len(series["throughput_mbps"]) // _POINTS) or 1


def _binned(series: Mapping[str, Any], key: str) -> list[tuple[float, float | None]]:
    """Return the points of a line: the middle of the time, s, and the mean value, each over `_bins_per_point` bins."""
    values: Sequence[float | None] = series[key]
    size = _bins_per_point(series)
    out: list[tuple[float, float | None]] = []
    for first in range(0, len(values), size):
        known = [v for v in values[first : first + size] if v is not None]
        middle = (first + min(first + size, len(values))) / 2 * series["bin_s"]
        out.append((middle, math.fsum(known) / len(known) if known else None))
    return out


def _distribution(runs: Sequence[Run]) -> Figure | None:
    panels = []
    for w, way in enumerate(WAYS):
        lines = []
        if not _waited(runs, w):
            continue
        for k, run in enumerate(runs):
            if (cdf := pooled_cdf([c for c in [run.records[w]["sojourn_cdf"]] if c])) is not None:
                points = [(ms, 100 * (share or 0.0)) for ms, share in zip(*cdf, strict=True) if ms]
                # A logarithmic axis has no place for packets that did not wait.
                lines.append(Line(run.name, [(points[0][0], 0.0), *points] if points else [], "steps", k))
        if lines:
            panels.append(Panel(f"Wait in the queue, {way}", Axis("at most, ms", True), Axis("packets, %"), lines))
    note = f"Share of packets that waited at most the time on the axis. {_NOT_DRAWN}"
    return Figure("wait", "Distribution of the wait", note, panels) if panels else None


def _link_table(runs: Sequence[Run]) -> figures.Table:
    titles = ("direction", "queue", "Mbit/s", "used", "wait ms", "p95 ms", "packets", "drops", "marks", "missed", "s",
              "exit status")  # fmt: skip
    return figures.Table("The link", titles, [list(row.values()) for row in _rows(runs)])


def _flow_tables(runs: Sequence[Run]) -> list[figures.Table]:
    rows = [row for run in runs for row in _flows(run)]
    titles = ("queue", "congestion control", "direction", *_FLOW_TITLES)
    return [figures.Table("TCP flows", titles, rows)] if rows else []
