"""Figures of runs for print (matplotlib, extra `plot`), and tables for LaTeX.

>>> runs = quell.compare("home", aqm=["pfifo", "fq_codel", "cake"], series=0.2)
>>> plot.front(runs).savefig("front.pdf")
>>> plot.save(runs, "figures")

Each function takes a frame of runs of one scenario and returns a matplotlib figure, which can still be changed. Queues
also differ in dashes and markers, so figures are readable without colors. The same runs give the same files.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quell import _core
from quell._core import InputError
from quell.common import files
from quell.common.extras import install
from quell.results import experience
from quell.results.frame import is_flat
from quell.results.frame import records as records_of
from quell.results.stats import Estimate, Measure, Record, Row, best, by_row, shown_measures, summarise
from quell.views.report import pooled_cdf

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
except ImportError as error:
    raise ImportError(f"quell.plot needs {error.name}: {install('plot')}") from error

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axis import Axis

__all__ = ["flows", "front", "latex", "save", "series", "sojourn"]

WIDTH = 3.5
"""Width of a figure, inches: one column of a two-column page."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Distinguishable with any color vision (Okabe and Ito, Color Universal Design, 2008)."""
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
DOTS = ("o", "s", "^", "D", "v", "P")
MIN_MS = 0.01
"""Shorter times are drawn at this value, because a logarithmic axis has no 0."""
MIN_SPAN = 0.1
"""Minimum range of the goodput axis in `front`, as a share of the largest goodput."""
_FEW_TICKS = 4
"""Below this ratio of its ends a logarithmic axis has evenly spaced ticks: too few of 1, 2 and 5 would be on it."""
STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.linewidth": 0.3,
    "grid.alpha": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 3,
    "pdf.fonttype": 42,  # TrueType, since journals refuse Type 3
    "savefig.dpi": 300,  # for PNG
    "svg.hashsalt": "quell",  # otherwise names in the file differ each time
}


def front(runs: pl.DataFrame, width: float = WIDTH) -> Figure:
    """Draw goodput against the 95th percentile of the sojourn time, with 95 % intervals and the front.

    Raises InputError if the runs are of several scenarios, or none.
    """
    rows = summarise(_records(runs))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        points = []
        for k, row in enumerate(rows):
            goodput, delay = row.values["goodput_mbps"], row.values["sojourn_ms.p95"]
            if goodput is None or delay is None:
                continue
            x = max(delay.mean, MIN_MS)
            points.append((x, goodput.mean, row))
            bars: dict[str, Any] = {
                "xerr": [[min(delay.half or 0.0, 0.99 * x)], [delay.half or 0.0]],
                "yerr": goodput.half or 0.0,
            }
            look: dict[str, Any] = {
                "fmt": DOTS[k % len(DOTS)],
                "fillstyle": "none",  # so that a dot below another can be seen
                "color": _color(k),
                "elinewidth": 0.7,
                "label": row.queue,
            }
            axes.errorbar(x, goodput.mean, **bars, **look)
        ahead = sorted((x, y) for x, y, row in points if row.on_front)
        axes.plot([x for x, _ in ahead], [y for _, y in ahead], ":", color="0.4", drawstyle="steps-post", zorder=0)
        axes.set_xscale("log")
        axes.set(xlabel="sojourn time, 95th percentile, ms", ylabel="goodput, Mbit/s")
        axes.margins(0.15)
        _plain_numbers(axes.xaxis)
        low, high = axes.get_ylim()
        # Differences below 1 % are ties and should look like ties.
        if (least := MIN_SPAN * high) > high - low:
            axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)
        figure.legend(loc="outside right upper", handlelength=1)

    return _figure(width, 0.66, draw)


def sojourn(runs: pl.DataFrame, width: float = WIDTH) -> Figure:
    """Draw the distribution of the sojourn time, averaged over the runs.

    Raises InputError as `front`, and of a flat frame.
    """
    records = _lists(runs)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for k, (queue, of_queue) in enumerate(by_row(records).items()):
            if (cdf := pooled_cdf([r["sojourn_cdf"] for r in of_queue if r["sojourn_cdf"]])) is not None:
                times = [max(ms or 0.0, MIN_MS) for ms in cdf[0]]
                shares = [100 * (share or 0.0) for share in cdf[1]]
                axes.step(times, shares, where="post", color=_color(k), linestyle=_dash(k), label=queue)
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis)
        axes.set(xlabel="sojourn time, ms", ylabel="share of packets, %", ylim=(0, 100))
        axes.legend()

    return _figure(width, 0.66, draw)


def flows(runs: pl.DataFrame, width: float = WIDTH) -> Figure:
    """Draw the mean goodput of each flow over the runs, one row per queue.

    Raises InputError as `front`, and of a flat frame.
    """
    records = _lists(runs)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        grouped = by_row(records)
        kinds: list[str] = []
        for k, of_queue in enumerate(grouped.values()):
            for n in range(min(len(r["flows"]) for r in of_queue)):
                kind = _kind(of_queue[0]["flows"][n])
                dot = DOTS[_place(kinds, kind) % len(DOTS)]
                rates = [r["flows"][n]["goodput_mbps"] for r in of_queue]
                axes.plot(sum(rates) / len(rates), k, dot, color=_color(k), fillstyle="none")
        for n, kind in enumerate(kinds):
            axes.plot([], [], DOTS[n % len(DOTS)], color="0.3", fillstyle="none", label=kind)
        axes.set_yticks(range(len(grouped)), list(grouped))
        axes.invert_yaxis()
        axes.set(xlabel="goodput, Mbit/s")
        axes.set_xlim(left=0)
        if len(kinds) > 1:
            figure.legend(loc="outside lower center", ncols=3, handlelength=1)

    return _figure(width, 0.35 + 0.06 * len(by_row(records)), draw)


def series(runs: pl.DataFrame, seed: int | None = None, width: float = WIDTH) -> Figure:
    """Draw rate and backlog over time, of each queue's run with this seed (None: its first).

    Raises InputError as `front`, and if the runs have no time series, or none with the seed.
    """
    records = [r for r in _records(runs) if r.get("series") is not None]
    if not records:
        raise InputError("plot: the runs have no time series; write quell.compare(..., series=0.2)")
    shown = {
        queue: next((r for r in of_queue if seed in (None, r["seed"])), None)
        for queue, of_queue in by_row(records).items()
    }

    def draw(figure: Figure) -> None:
        rate, backlog = figure.subplots(2, sharex=True)
        for k, (queue, record) in enumerate(shown.items()):
            if record is None:
                raise InputError(f"plot: {queue} has no run with seed {seed} and a time series")
            columns = record["series"]
            times = [columns["bin_s"] * (n + 0.5) for n in range(len(columns["throughput_mbps"]))]
            if k == 0:
                rate.fill_between(times, columns["capacity_mbps"], color="0.9", linewidth=0, label="capacity")
            look = {"color": _color(k), "linestyle": _dash(k), "linewidth": 0.8, "label": queue}
            rate.plot(times, columns["throughput_mbps"], **look)
            backlog.plot(times, [max(ms, MIN_MS) for ms in columns["backlog_ms"]], **look)
        rate.set(ylabel="rate, Mbit/s")
        rate.set_ylim(bottom=0)
        backlog.set_yscale("log")
        _plain_numbers(backlog.yaxis)
        backlog.set(xlabel="time, s", ylabel="backlog, ms")
        backlog.legend(ncols=2)

    return _figure(width, 1.0, draw)


def latex(runs: pl.DataFrame, *, people: bool = False) -> str:
    r"""Return the comparison's table, or with `people` the applications' results, as a `tabular` of LaTeX.

    It needs `\usepackage{booktabs}`. Raises InputError as `front`, and with `people` if there are no applications.
    """
    records = _lists(runs) if people else _records(runs)
    rows = summarise(records)
    head, body = _people(rows, records) if people else _measures(rows)
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * len(head)}}}",
        r"\toprule",
        " & ".join(["queue", *head]) + r" \\",
        r"\midrule",
        *(" & ".join([_plain(row.queue), *cells]) + r" \\" for row, cells in zip(rows, body, strict=True)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def save(runs: pl.DataFrame, folder: str | Path, formats: Sequence[str] = ("pdf", "svg", "png")) -> list[Path]:
    """Write every figure for which the runs have data, `table.tex` and `people.tex` into a folder.

    The folder is created if it does not exist. Returns the paths. Raises InputError as `front`, for an unknown format,
    and if a file cannot be written.
    """
    known = Figure().canvas.get_supported_filetypes()
    for name in formats:
        if name not in known:
            raise InputError(f"formats: {_core.unknown('format', name, sorted(known))}")
    records = _records(runs)
    figures: dict[str, Callable[[pl.DataFrame], Figure]] = {"front": front}
    if not is_flat(runs):
        figures |= {"sojourn": sojourn, "flows": flows}
    if any(r.get("series") is not None for r in records):
        figures["series"] = series
    texts = {"table": latex(runs)}
    if experience.shown(records):
        texts["people"] = latex(runs, people=True)
    drawn = {f"{name}.{kind}": _bytes(draw(runs), kind) for name, draw in figures.items() for kind in formats}
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"folder: {place} cannot be made: {error.strerror}; name another") from None
    drawn |= {f"{name}.tex": text.encode() for name, text in texts.items()}
    for name, data in drawn.items():
        files.write_bytes(place / name, data)
    return [place / name for name in drawn]


# Parts. --------------------------------------------------------------------------------------------------------------


def _records(runs: pl.DataFrame) -> list[Record]:
    if runs.is_empty():
        raise InputError("plot: the frame has no runs")
    scenarios = runs.select("scenario", "scenario_hash").unique()
    if scenarios.height > 1:
        names = ", ".join(sorted({str(name) for name in scenarios["scenario"]}))
        raise InputError(f"plot: runs of {scenarios.height} scenarios ({names}); filter those of one")
    return list(records_of(runs))


def _lists(runs: pl.DataFrame) -> list[Record]:
    """Return the records with their lists."""
    if is_flat(runs):
        raise InputError("plot: the runs have no lists; write quell.compare(..., nested=True)")
    return _records(runs)


def _figure(width: float, height: float, draw: Callable[[Figure], None]) -> Figure:
    """Make a figure whose height is a share of its width. It belongs to no window, so it need not be closed."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height * width), layout="constrained")
        draw(figure)
    return figure


def _plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis, whose data are drawn, with plain numbers at as many places as fit."""
    low, high = axis.get_view_interval()
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.set_minor_formatter(NullFormatter())
    if high < _FEW_TICKS * low:
        axis.set_major_locator(MaxNLocator(5))
        axis.set_minor_locator(NullLocator())
    elif high < 10 * _FEW_TICKS * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def _bytes(figure: Figure, kind: str) -> bytes:
    # With a date, equal runs would give different files.
    dates: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    held = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(held, format=kind, metadata=dates.get(kind))
    return held.getvalue()


def _color(k: int) -> str:
    return COLORS[k % len(COLORS)]


def _dash(k: int) -> Any:
    return DASHES[k % len(DASHES)]


def _place(names: list[str], name: str) -> int:
    if name not in names:
        names.append(name)
    return names.index(name)


def _kind(flow: Mapping[str, Any]) -> str:
    what = flow["cc"] if flow["kind"] == "tcp" else flow["kind"].replace("_", " ")
    return str(flow.get("name") or f"{what} {flow['base_rtt_ms']:g} ms")


def _measures(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    measures = shown_measures(rows)
    tops = {m.key: best(rows, m) for m in measures}
    head = [_plain(f"{_name(m)}, {m.unit}" if m.unit not in ("", "0..1") else _name(m)) for m in measures]
    return head, [[_cell(row.values[m.key], m, row.queue in tops[m.key]) for m in measures] for row in rows]


def _name(measure: Measure) -> str:
    return f"sojourn {measure.title}" if measure.key.startswith("sojourn") else measure.title


def _cell(value: Estimate | None, measure: Measure, is_best: bool) -> str:
    if value is None:
        return "--"
    text = _plain(measure.text(value.mean))
    text = rf"\textbf{{{text}}}" if is_best else text
    if value.half is None or measure.letter is not None:
        return text
    return rf"{text} $\pm$ {value.half:.{measure.digits}f}"


def _people(rows: Sequence[Row], records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    figures = experience.shown(records)
    if not figures:
        raise InputError("plot: the runs have no applications; leave people out")
    grouped = by_row(records)
    head = [_plain(f"{f.title}, {f.unit}") for f in figures]
    means = [[experience.mean(grouped[row.queue], f) for f in figures] for row in rows]
    return head, [
        ["--" if m is None else f"{m.mean:.{f.digits}f}" for m, f in zip(of_row, figures, strict=True)]
        for of_row in means
    ]


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    c: f"\\{c}" for c in "&%$#_{}"
}


def _plain(text: str) -> str:
    """Escape text for LaTeX."""
    return "".join(_SPECIAL.get(c, c) for c in text)
