"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from quell.common.console import Screen
from quell.common.text import counted_range, one_line
from quell.results import experience
from quell.results.frontier import Point
from quell.results.stats import (
    Estimate,
    Measure,
    Record,
    Row,
    best,
    by_row,
    row_name,
    shown_measures,
    summarise,
    upward,
)

_SWEPT = ("goodput_mbps", "utilisation", "sojourn_ms.mean", "sojourn_ms.p95", "grade_ms", "loss_rate")
_BEST = "bold green"
_FRONT = "◆"
_UNSURE = "◇"
_OPTION = 27
"""Width of the options' column in a list of queues."""
_OPTIONAL_FIGURES = ("freezes", "stalls", "video", "backup")
# Columns that a narrow terminal omits, in this order.
_OPTIONAL_COLUMNS = (
    "grade_down_ms",
    "grade_up_ms",
    "rtt_ms.p95",
    "mark_rate",
    "sojourn_ms.p99",
    "fct_ms.p95",
    "up.sojourn_ms.p95",
    "jain",
    "sojourn_ms.mean",
    "utilisation",
    "rpm",
    "grade_ms",
    "loss_rate",
)


def compare(rows: Sequence[Row], width: int) -> Table:
    """Return the comparison's table; if `width` is too small, the least informative columns are left out."""
    return _lay_out(rows, _fitting(rows, width))


def _fitting(rows: Sequence[Row], width: int) -> list[Measure]:
    return _fitted(list(shown_measures(rows)), lambda kept: _lay_out(rows, kept), width)


def _fitted(measures: list[Measure], lay_out: Callable[[list[Measure]], Table], width: int) -> list[Measure]:
    """Leave out measures, the least informative first, until the table fits into `width` characters."""
    # Rich measures tables slowly, so the widths of the measures' columns, the last ones, are computed from their text.
    whole = lay_out(measures)
    columns = whole.columns[len(whole.columns) - len(measures) :]
    widths = {m.key: _column_width(column) for m, column in zip(measures, columns, strict=True)}
    left = width - (_width(whole) - sum(widths.values()))
    for spare in _OPTIONAL_COLUMNS:
        if sum(widths[m.key] for m in measures) <= left:
            break
        measures = [m for m in measures if m.key != spare]
    return measures


def _column_width(column: Column) -> int:
    lines = (line for text in (column.header, *column.cells) for line in str(text).split("\n"))
    return 3 + max(map(cell_len, lines))  # a space on both sides, and the divider


def _lay_out(rows: Sequence[Row], measures: Sequence[Measure]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("")
    table.add_column("queue", overflow="fold", max_width=26)
    uneven = len({row.runs for row in rows}) > 1
    if uneven:
        table.add_column("runs", justify="right", no_wrap=True)
    for m in measures:
        table.add_column(_title(m), justify="right", no_wrap=True)
    tops = {m.key: best(rows, m) for m in measures}
    for row in rows:
        cells = [_cell(row.values[m.key], m, row.queue in tops[m.key]) for m in measures]
        # A single queue is always on the front.
        mark = Text(_UNSURE if row.unsure else _FRONT, "cyan") if row.on_front and len(rows) > 1 else ""
        table.add_row(mark, Text(one_line(row.queue)), *([str(row.runs)] if uneven else []), *cells)
    return table


def _title(measure: Measure) -> str:
    name = {"sojourn_ms.mean": "sojourn\nmean", "sojourn_ms.p95": "sojourn\np95", "sojourn_ms.p99": "sojourn\np99"}
    first = name.get(
        measure.key, f"{measure.title}\n" if " " not in measure.title else measure.title.replace(" ", "\n")
    )
    return (
        f"{first} {measure.unit}".replace("\n ", "\n").strip() if measure.unit != "0..1" else f"{measure.title}\n0..1"
    )


def _cell(value: Estimate | None, measure: Measure, is_best: bool) -> Text:
    if value is None:
        return Text("–", "dim")
    text = Text(measure.text(value.mean), _BEST if is_best else "")
    if value.half is not None and measure.key in ("goodput_mbps", "sojourn_ms.p95"):
        text.append(f" ±{value.half:.{measure.digits}f}", "dim")
    return text


def legend(rows: Sequence[Row], width: int, *, styled: bool) -> Text:
    """Explain the marks of the comparison, and name the columns that did not fit into `width` characters.

    Marks that only a terminal shows, such as bold figures, are explained if the output is `styled`.
    """
    runs = [row.runs for row in rows]
    several = max(runs, default=0) > 1
    text = Text("sojourn: time in the queue.", "dim")
    unsure = any(row.unsure for row in rows)
    sure = any(row.on_front and not row.unsure for row in rows)
    if len(rows) > 1:
        text.append(f" {_FRONT if sure else _UNSURE}", "cyan")
        text.append(
            " on the front: no other queue is better in goodput or p95 sojourn without being worse in the other "
            f"(differences below 1 %{' or within ±' if several else ''} are ties).",
            "dim",
        )
    if unsure and len(rows) > 1:
        text.append(f" {_UNSURE}" if sure else "", "cyan")
        perhaps = " perhaps" if sure else " Perhaps"
        text.append(f"{perhaps} by chance: a ± is more than a quarter of its mean; give more --seeds.", "dim")
    if styled and len(rows) > 1:
        text.append(" best", _BEST)
        text.append(" of its column.", "dim")
    kept = _fitting(rows, width)
    if any(m.key == "rpm" for m in kept):
        text.append(" RPM: round trips per minute under load.", "dim")
    if several:
        text.append(f" ±: 95 % confidence over {counted_range(runs, 'run')}.", "dim")
    if upward(rows):
        text.append(
            "\nAll data go up: the columns are those of [link.up], and its queue is the same in all rows.", "dim"
        )
    if left_out := _left_out(shown_measures(rows), kept):
        text.append(f"\n{_no_room(left_out, width)}", "dim")
    if same := alike(rows):
        text.append(f"\n{', '.join(same)}: every seed gave the same run, so ± says nothing. ", "dim")
        text.append('Flows that start together differ by seed with stagger = "1s".', "dim")
    return text


def _left_out(measures: Iterable[Measure], kept: Sequence[Measure]) -> list[str]:
    return [_title(m) for m in measures if m not in kept]


def _no_room(titles: Iterable[str], width: int) -> str:
    return f"No room in {width} columns for {', '.join(' '.join(title.split()) for title in titles)}: --json has all."


def _named(table: Table, left_out: Sequence[str], width: int) -> Table:
    """Name the omitted columns below a table."""
    if left_out:
        table.caption, table.caption_justify = Text(_no_room(left_out, width), "dim"), "left"
    return table


def alike(rows: Sequence[Row]) -> list[str]:
    """Return queues with several runs that are equal in all digits shown, so that the seed had no effect."""

    def differ(row: Row) -> bool:
        halves = [(value.half, m.digits) for m in shown if (value := row.values[m.key]) and value.half is not None]
        return any(round(half, digits) for half, digits in halves)

    shown = shown_measures(rows)
    return [row.queue for row in rows if row.runs > 1 and not differ(row)]


def _columns(first: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(first, overflow="fold", max_width=26)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


_FLOW_COLUMNS = (
    "goodput\nMbit/s", "delay\nmean ms", "delay\np95 ms", "jitter\nms", "loss\n%", "RTT p95\nms", "cwnd\npackets",
    "resent\nsegments", "FCT p50\nms",
)  # fmt: skip
_OPTIONAL_FLOW_COLUMNS = (8, 6, 7, 1, 5)
"""Columns that a narrow terminal omits, in this order."""


def flows(record: Mapping[str, Any], width: int = 100, at_most: int = 20) -> Table:
    """List the flows of one run; columns that do not fit into `width` characters are left out and named below."""
    kept = list(range(len(_FLOW_COLUMNS)))
    for spare in (-1, *_OPTIONAL_FLOW_COLUMNS):
        kept = [k for k in kept if k != spare]
        table = _flows(record, kept, at_most)
        if _width(table) <= width:
            break
    return _named(table, [title for k, title in enumerate(_FLOW_COLUMNS) if k not in kept], width)


def _flows(record: Mapping[str, Any], kept: Sequence[int], at_most: int) -> Table:
    table = _columns("flow", *(_FLOW_COLUMNS[k] for k in kept))
    for flow in record["flows"][:at_most]:
        delay, rtt, fct = (flow.get(key) or {} for key in ("delay_ms", "rtt_ms", "fct_ms"))
        jitter, loss = flow.get("jitter_ms"), flow.get("loss_rate")
        tcp = bool(flow["cc"])
        cells = (
            f"{flow['goodput_mbps']:.3f}",
            *(f"{delay[k]:.1f}" if k in delay else "–" for k in ("mean", "p95")),
            "–" if jitter is None else f"{jitter:.2f}",
            "–" if loss is None else f"{loss * 100:.2f}",
            f"{rtt['p95']:.1f}" if rtt else "–",
            f"{flow['cwnd_packets']:.1f}" if tcp else "–",
            f"{flow['retransmits']}" if tcp else "–",
            f"{fct['p50']:.0f}" if "p50" in fct else "–",
        )
        table.add_row(_flow_name(flow), *(cells[k] for k in kept))
    if (more := len(record["flows"]) - at_most) > 0:
        table.add_row(f"… {more} more")
    return table


def _flow_name(flow: Mapping[str, Any]) -> str:
    if name := flow.get("name"):
        return one_line(name)
    more = f" {flow['kind']}" if flow["cc"] and flow["kind"] != "tcp" else ""
    return f"{flow['cc'] or flow['kind']} {flow['base_rtt_ms']:g} ms{more}"


def applications(records: Sequence[Record], width: int) -> Table | None:
    """Return a table of the applications' results, a row per queue; None without applications.

    If `width` is too small, titles take two lines, and then columns are left out and named below.
    """
    figures = experience.shown(records)
    if not figures:
        return None
    table = _applications_by(records, figures, [f.title for f in figures])
    kept = list(figures)
    for spare in ("", *_OPTIONAL_FIGURES):
        if _width(table) <= width:
            break
        kept = [f for f in kept if f.title != spare]
        titles = [f.title.replace(" ", "\n") if " " in f.title else f"\n{f.title}" for f in kept]
        table = _applications_by(records, kept, titles)
    return _named(table, [f"{f.title} {f.unit}" for f in figures if f not in kept], width)


def _width(table: Table) -> int:
    console = Screen(width=1000)
    return table.__rich_measure__(console, console.options).maximum


def _applications_by(records: Sequence[Record], figures: Sequence[experience.Figure], titles: Sequence[str]) -> Table:
    table = _columns("queue", *(f"{title}\n{f.unit}" for title, f in zip(titles, figures, strict=True)))
    for queue, runs in by_row(records).items():
        table.add_row(Text(one_line(queue)), *(_judged(experience.mean(runs, f), f) for f in figures))
    return table


def _judged(value: Estimate | None, figure: experience.Figure) -> Text:
    if value is None:
        return Text("–", "dim")
    style = {"good": "green", "fair": "yellow", "bad": "red", "": ""}[figure.verdict(value.mean)]
    return Text(f"{value.mean:.{figure.digits}f}", style)


def hosts(record: Mapping[str, Any], at_most: int = 20) -> Table:
    """List the goodput of the named hosts of a run."""
    table = _columns("host", "flows", "goodput\nMbit/s", "share\n%")
    for host in record["hosts"][:at_most]:
        up = " up" if host["direction"] == "up" else ""
        table.add_row(
            f"{one_line(host['host'])}{up}",
            f"{host['flows']}",
            f"{host['goodput_mbps']:.3f}",
            f"{host['share'] * 100:.1f}",
        )
    if (more := len(record["hosts"]) - at_most) > 0:
        table.add_row(f"… {more} more")
    return table


def tins(listed: Sequence[Mapping[str, Any]], title: str = "tin") -> Table:
    """List the tins of a `cake`, or the bands of `prio` and similar queues."""
    table = _columns(
        title,
        "threshold\nMbit/s",
        "throughput\nMbit/s",
        "share\n%",
        "delay\nms",
        "drops\npackets",
        "marks\npackets",
        "ACKs\nfiltered",
    )
    for tin in listed:
        table.add_row(
            tin["name"],
            f"{tin['threshold_mbps']:.3f}" if tin["threshold_mbps"] else "–",
            f"{tin['throughput_mbps']:.3f}",
            f"{tin['share'] * 100:.1f}",
            f"{tin['average_delay_ms']:.2f}",
            f"{tin['drops']}",
            f"{tin['marks']}",
            f"{tin['ack_drops']}",
        )
    return table


def cell(wifi: Mapping[str, Any], at_most: int = 30) -> Table:
    """List the queues of an 802.11n cell with the airtime of their frames."""
    table = _columns(
        "queue",
        "throughput\nMbit/s",
        "sojourn\nmean ms",
        "drops\npackets",
        "airtime\n%",
        "aggregate\nframes",
        "resent\n%",
    )
    for q in wifi["queues"][:at_most]:
        table.add_row(
            f"{q['from']} → {q['to']}" + ("" if q["ac"] == "be" else f" {q['ac']}"),
            f"{q['throughput_mbps']:.3f}",
            f"{q['sojourn_ms']['mean']:.1f}",
            f"{q['drops']}",
            f"{q['airtime'] * 100:.1f}",
            f"{q['aggregate']:.1f}",
            f"{q['retries'] * 100:.1f}",
        )
    if (more := len(wifi["queues"]) - at_most) > 0:
        table.add_row(f"… {more} more")
    return table


def frontier(points: Sequence[Point], reward: str) -> Table:
    """List a sweep's settings; the best for the reward is marked."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    knob = points[0].knob if points else ""
    shown = [
        m
        for m in shown_measures([p.row for p in points])
        if m.key in ("goodput_mbps", "utilisation", "sojourn_ms.mean", "sojourn_ms.p95", "loss_rate")
    ]
    for title in (
        "",
        f"{knob}\n{'packets' if knob == 'limit' else 'probability'}",
        *map(_title, shown),
        f"reward\n{reward}",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for p in points:
        mark = Text("▶" if p.best else _FRONT if p.row.on_front else "", _BEST if p.best else "cyan")
        cells = [_cell(p.row.values[m.key], m, False) for m in shown]
        value = "–" if p.reward is None else f"{p.reward.mean:.4g}"
        table.add_row(mark, f"{p.value:g}", *cells, Text(value, _BEST if p.best else ""))
    return table


def sweep(found: Sequence[tuple[Mapping[str, Any], Record]], width: int) -> Table:
    """List the runs of a grid, one row per combination and queue; columns that do not fit are named below."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for point, record in found:
        groups.setdefault((*map(str, point.values()), row_name(record)), []).append(record)
    rows = {key: summarise(records)[0] for key, records in groups.items()}
    titles = (*(found[0][0] if found else ()), "queue")

    def lay_out(measures: Sequence[Measure]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for title in titles:
            table.add_column(one_line(title), overflow="fold", max_width=26)
        for m in measures:
            table.add_column(_title(m), justify="right", no_wrap=True)
        for key, row in rows.items():
            cells = (_cell(row.values[m.key], m, False) for m in measures)
            table.add_row(*(Text(one_line(part)) for part in key), *cells)
        return table

    shown = [m for m in shown_measures(list(rows.values())) if m.key in _SWEPT]
    kept = _fitted(shown, lay_out, width)
    return _named(lay_out(kept), _left_out(shown, kept), width)


def queues(known: Sequence[Mapping[str, Any]]) -> Group:
    """List queue kinds with their options."""
    parts: list[RenderableType] = []
    for kind in known:
        head = Text.assemble((kind["name"], "bold cyan"), f"  {kind['summary']} ", (f"({kind['source']})", "dim"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for width in (_OPTION, 14):
            table.add_column(width=width, overflow="fold")
        table.add_column(overflow="fold")
        for option in kind["options"]:
            name = f"{option['name']} {option['value']}".strip()
            # A list of many words is broken between words.
            name = name if len(name) <= _OPTION else name.replace("|", "| ")
            table.add_row(name, option["default"], option["meaning"])
        parts += [head, Padding(table, (0, 0, 1, 4))]
    return Group(*parts)


def scenarios(known: Sequence[tuple[str, str]]) -> Table:
    """List built-in scenarios."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in ("scenario", "description"):
        table.add_column(title, no_wrap=title == "scenario")
    for name, about in known:
        table.add_row(Text(name, "bold"), about)
    return table
