"""Pictures for print, and tables for LaTeX."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import quell
from conftest import make_record
from quell.results.frame import runs as frame_of
from quell.views import plot

QUEUES = ["pfifo", "fq_codel", "cake"]


@pytest.fixture(scope="module")
def runs() -> pl.DataFrame:
    return quell.compare("household", QUEUES, seeds=2, duration="20s", warmup="5s", series=0.2)


def test_the_front_has_a_dot_for_each_queue_where_the_summary_says(runs: pl.DataFrame) -> None:
    figure = plot.front(runs)
    [axes] = figure.axes
    summary = quell.summary(runs)
    dots = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1]  # type: ignore[arg-type, index]
    expected = summary.select("sojourn_ms.p95", "goodput_mbps").rows()
    assert [(pytest.approx(x), pytest.approx(y)) for x, y in expected] == dots
    assert [text.get_text() for text in figure.legends[0].get_texts()] == QUEUES
    assert axes.get_xscale() == "log"


def test_a_queue_with_a_controller_and_without_are_two() -> None:
    records = [make_record("fifo", 1, goodput=10, p95=20.0), make_record("fifo", 1, goodput=9, p95=5.0)]
    records[1]["controller"] = "Aimd"
    [legend] = plot.front(frame_of(records)).legends
    assert [text.get_text() for text in legend.get_texts()] == ["fifo", "fifo + Aimd"]
    [axes] = plot.sojourn(frame_of(records)).axes
    assert [line.get_label() for line in axes.lines] == ["fifo", "fifo + Aimd"]


def test_goodputs_that_are_equal_look_equal() -> None:
    records = [make_record(name, seed, goodput=10 + seed / 1000, p95=20.0) for name in ("a", "b") for seed in (1, 2)]
    low, high = plot.front(frame_of(records)).axes[0].get_ylim()
    assert low < 9.6 and high > 10.4


@pytest.mark.parametrize("ends", [(10.7, 16.5), (14.0, 14.5), (2.0, 30.0), (0.02, 800.0)])
def test_times_are_plain_numbers_beside_each_other(ends: tuple[float, float]) -> None:
    records = [make_record(name, 1, goodput=10, p95=p95) for name, p95 in zip("ab", ends, strict=True)]
    figure = plot.front(frame_of(records))
    figure.savefig(io.BytesIO())
    axis = figure.axes[0].xaxis
    inside = [axis.get_view_interval()[0] <= tick <= axis.get_view_interval()[1] for tick in axis.get_ticklocs()]
    labels = [label for label, within in zip(axis.get_ticklabels(), inside, strict=True) if within]
    assert len(labels) >= 2
    assert [f"{float(label.get_text()):g}" for label in labels] == [label.get_text() for label in labels]
    assert not any(label.get_text() for label in axis.get_ticklabels(minor=True))
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_distributions_end_at_100_percent_and_differ_without_color(runs: pl.DataFrame) -> None:
    [axes] = plot.sojourn(runs).axes
    assert [line.get_label() for line in axes.lines] == QUEUES
    assert [line.get_ydata()[-1] for line in axes.lines] == [pytest.approx(100)] * 3  # type: ignore[index]
    assert len({line.get_linestyle() for line in axes.lines}) == 3
    assert len({line.get_color() for line in axes.lines}) == 3


def test_each_flow_has_a_dot_and_each_kind_a_shape(runs: pl.DataFrame) -> None:
    [axes] = plot.flows(runs).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == QUEUES
    per_queue = len(runs["flows"][0])
    drawn = [line for line in axes.lines if len(line.get_xdata())]  # type: ignore[arg-type]
    assert len(drawn) == 3 * per_queue
    first = [f[0]["goodput_mbps"] for q, f in runs.select("queue", "flows").rows() if q == "pfifo"]
    assert drawn[0].get_xdata()[0] == pytest.approx(sum(first) / 2)  # type: ignore[index]


def test_series_are_those_of_the_seed(runs: pl.DataFrame) -> None:
    seed = runs["seed"][-1]
    rate, backlog = plot.series(runs, seed=seed).axes
    [of_seed] = runs.filter((pl.col("seed") == seed) & (pl.col("queue") == "pfifo"))["series"]
    assert rate.lines[0].get_ydata() == pytest.approx(of_seed["throughput_mbps"])
    assert rate.lines[0].get_xdata()[0] == pytest.approx(0.1)  # type: ignore[index]
    assert backlog.get_yscale() == "log"
    with pytest.raises(quell.InputError, match="pfifo has no run with seed 5 "):
        plot.series(runs, seed=5)
    with pytest.raises(quell.InputError, match="no time series; write"):
        plot.series(runs.with_columns(series=pl.lit(None)))


def test_a_flat_frame_gives_the_front_and_the_table(runs: pl.DataFrame, tmp_path: Path) -> None:
    flat = quell.flatten(runs)
    dots = [[line.get_xydata().tolist() for line in plot.front(each).axes[0].lines] for each in (flat, runs)]  # type: ignore[union-attr]
    assert dots[0] == dots[1]
    assert plot.latex(flat) == plot.latex(runs)
    assert [path.name for path in plot.save(flat, tmp_path, ["svg"])] == ["front.svg", "table.tex"]
    for draw in (plot.sojourn, plot.flows):
        with pytest.raises(quell.InputError, match=r"no lists; write quell.compare\(..., nested=True\)"):
            draw(flat)
    with pytest.raises(quell.InputError, match="no time series"):
        plot.series(flat)


def test_a_table_is_the_terminals_with_what_latex_needs() -> None:
    records = [make_record("pie ecn", seed, goodput=10.0 + seed, p95=20.0) for seed in (1, 2)]
    records += [make_record("a_b & 50%", seed, goodput=5.0, p95=2.0) for seed in (1, 2)]
    text = plot.latex(frame_of(records))
    lines = text.splitlines()
    assert lines[0] == r"% needs \usepackage{booktabs}"
    assert lines[1] == r"\begin{tabular}{l" + "r" * lines[3].count("&") + "}"
    assert r"goodput, Mbit/s & used, \% & sojourn mean, ms" in lines[3]
    # 11 and 12: the deviation 0.707, times Student's t 12.706, over the root of 2.
    assert r"pie ecn & \textbf{11.50} $\pm$ 6.35 &" in lines[5]
    assert lines[6].startswith(r"a\_b \& 50\% & 5.00 $\pm$ 0.00 & ")
    assert all(line.endswith(r"\\") for line in (lines[3], *lines[5:7]))
    assert len({line.replace(r"\&", "").count("&") for line in (lines[3], *lines[5:7])}) == 1
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")


def test_the_users_experience_is_a_table_too(runs: pl.DataFrame) -> None:
    lines = plot.latex(runs, people=True).splitlines()
    assert lines[3].startswith("queue & call, MOS & frame p95, ms &")
    assert [line.split(" & ")[0] for line in lines[5:8]] == ["pfifo", r"fq\_codel", "cake"]
    with pytest.raises(quell.InputError, match="no applications"):
        plot.latex(frame_of([make_record("a")]), people=True)


@pytest.mark.slow
def test_saving_writes_every_figure_the_same_each_time(runs: pl.DataFrame, tmp_path: Path) -> None:
    paths = plot.save(runs, tmp_path / "new" / "figures")
    names = [f"{name}.{kind}" for name in ("front", "sojourn", "flows", "series") for kind in ("pdf", "svg", "png")]
    assert [path.name for path in paths] == [*names, "table.tex", "people.tex"]
    assert paths[0].read_bytes().startswith(b"%PDF-")
    assert b"/Type3" not in paths[0].read_bytes()
    assert paths[1].read_text("utf-8").startswith("<?xml")
    again = plot.save(runs, tmp_path / "again")
    assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in again]
    fewer = plot.save(frame_of([make_record("a", series=None)]), tmp_path / "fewer", ["png"])
    assert [path.name for path in fewer] == ["front.png", "sojourn.png", "flows.png", "table.tex"]


def test_bad_input_is_one_line(runs: pl.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    cases: list[tuple[Any, str]] = [
        (lambda: plot.save(runs, tmp_path / "file", ["png"]), "folder: .*cannot be made"),
        (lambda: plot.save(runs, tmp_path, ["pfd"]), "unknown format `pfd`; did you mean `pdf`"),
        (lambda: plot.front(runs.clear()), "no runs"),
        (lambda: plot.front(pl.concat([runs, runs.with_columns(scenario_hash=pl.lit("x"))])), "runs of 2 scenarios"),
    ]
    for call, words in cases:
        with pytest.raises(quell.InputError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_without_matplotlib_the_error_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import quell; import quell.views.plot"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "quell.plot needs matplotlib: " in done.stderr.splitlines()[-1]
    assert "plot" in done.stderr.splitlines()[-1].partition("matplotlib: ")[2]
