import re
from typing import Any

import pytest
from rich.console import Console

from conftest import QUEUES, Quell, make_record
from quell.experiments.experiment import Outcome
from quell.results import frontier, stats
from quell.views import table


def render(what: object, width: int, color: bool = True) -> str:
    console = Console(width=width, color_system="truecolor" if color else None, force_terminal=color)
    with console.capture() as captured:
        console.print(what)
    return captured.get()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_table_fits_its_terminal(outcome: Outcome, width: int) -> None:
    rows = stats.summarise(outcome.records)
    console = Console(width=1000)
    laid_out = table.compare(rows, width)
    assert laid_out.__rich_measure__(console, console.options).maximum <= width


def test_a_table_keeps_every_column_that_fits(outcome: Outcome) -> None:
    rows = stats.summarise(outcome.records)
    console = Console(width=1000)
    whole = table.compare(rows, 1000)
    needed = whole.__rich_measure__(console, console.options).maximum
    assert len(table.compare(rows, needed).columns) == len(whole.columns)
    assert len(table.compare(rows, needed - 1).columns) == len(whole.columns) - 1


def test_hundred_columns_show_goodput_with_interval_and_three_sojourns(outcome: Outcome) -> None:
    titles = [c.header for c in table.compare(stats.summarise(outcome.records), 100).columns]
    text = " ".join(str(t).replace("\n", " ") for t in titles)
    for title in ("goodput Mbit/s", "sojourn mean ms", "sojourn p95 ms", "loss %"):
        assert title in text


def test_front_and_best_are_marked(outcome: Outcome) -> None:
    whole = render(table.compare(stats.summarise(outcome.records), 100), 100)
    marked = {q for q in QUEUES for line in whole.splitlines() if f" {q.split()[0]} " in line and "◆" in line}
    assert marked == {"fq_codel", "pfifo", "pie"}
    best_goodput = next(line for line in whole.splitlines() if " pfifo " in line)
    assert "\x1b[1;32m14.50" in best_goodput


def test_marks_are_shown_only_where_something_was_marked() -> None:
    plain = stats.summarise([make_record("a"), make_record("b")])
    marked = stats.summarise([make_record("a"), make_record("b", mark_rate=0.01)])
    assert "marks" not in render(table.compare(plain, 140), 140)
    assert "marks" in render(table.compare(marked, 140), 140)


def test_queues_whose_seeds_make_no_difference_are_named_under_the_table() -> None:
    same = [make_record("pfifo", seed) for seed in (1, 2, 3)]
    # A difference below the printed digits does not count.
    same[1]["goodput_mbps"] += 1e-6
    different = [make_record("pie", seed, goodput=10.0 + 0.1 * seed) for seed in (1, 2, 3)]
    once = [make_record("codel")]
    text = table.legend(stats.summarise([*same, *different, *once]), 100, styled=False).plain
    assert text.splitlines()[1].startswith("pfifo: every seed gave the same run, so ± says nothing.")
    assert "stagger" not in table.legend(stats.summarise([*different, *once]), 100, styled=False).plain


def test_columns_without_room_are_named_below_the_table(outcome: Outcome) -> None:
    rows = stats.summarise(outcome.records)
    titles = {width: render(table.compare(rows, width), width) for width in (80, 1000)}
    line = table.legend(rows, 80, styled=False).plain.splitlines()[-1]
    assert line.startswith("No room in 80 columns for ")
    for title in line.removeprefix("No room in 80 columns for ").split(":")[0].split(", "):
        assert title.split()[0] in titles[1000] and title not in " ".join(titles[80].split())
    assert "No room" not in table.legend(rows, 1000, styled=False).plain


def test_the_legend_explains_styles_only_where_there_are_some(outcome: Outcome) -> None:
    rows = stats.summarise(outcome.records)
    assert "best of its column" in table.legend(rows, 100, styled=True).plain
    assert "best of its column" not in table.legend(rows, 100, styled=False).plain


def test_many_flows_are_cut_short() -> None:
    record = make_record("a")
    record["flows"] = record["flows"] * 15
    text = render(table.flows(record), 100)
    assert text.count("cubic 20 ms") + text.count("bbr 20 ms") == 20
    assert "… 10 more" in text


def test_sweep_marks_the_best_setting() -> None:
    # Power is goodput over mean RTT, which is half of p95 here: 500, 1200 and 700 Mbit/s per second.
    settings = {8.0: (5.0, 20.0), 16.0: (12.0, 20.0), 32.0: (14.0, 40.0)}
    records = [make_record(f"fifo limit {v:.0f}", goodput=g, p95=d) for v, (g, d) in settings.items()]
    points = frontier.judge("limit", list(settings), records, "power")
    assert [p.value for p in points if p.best] == [16.0]
    assert points[0].reward is not None
    assert points[0].reward.mean == pytest.approx(500)
    assert (
        next(line for line in render(table.frontier(points, "power"), 100).splitlines() if "▶" in line).count("16") >= 1
    )


def test_a_narrow_terminal_keeps_the_flows_and_leaves_out_columns() -> None:
    for width, last in ((100, "FCT"), (80, "loss"), (60, "loss")):
        text = render(table.flows(make_record("a"), width), width, color=False)
        assert max(map(len, text.splitlines())) <= width
        assert "cubic 20 ms" in text
        assert "…" not in text
        assert last in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_columns_of_flows_without_room_are_named_below_them(width: int) -> None:
    wide = table.flows(make_record("a"), 1000)
    assert wide.caption is None
    text = " ".join(render(table.flows(make_record("a"), width), width, color=False).split())
    titles = [" ".join(str(column.header).split()) for column in wide.columns]
    shown = {" ".join(str(c.header).split()) for c in table.flows(make_record("a"), width).columns}
    left_out = [title for title in titles if title not in shown]
    assert bool(left_out) == (width < 100)
    if left_out:
        assert f"No room in {width} columns for {', '.join(left_out)}: --json has all." in text


def test_figures_of_applications_without_room_are_named_below_them(quell: Quell) -> None:
    short = ("run", "household", "--duration", "22s", "--no-rpm")
    done = quell(*short, columns=80)
    assert "No room in 80 columns for freezes /min: --json has all." in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "freezes /min" not in " ".join(quell(*short, columns=120).stdout.split())


def test_a_sweep_keeps_its_keys_and_names_the_columns_it_has_no_room_for(quell: Quell) -> None:
    over = ("--over", "link.rate=5mbit,10mbit", "--over", "flow.rtt=20ms,40ms")
    done = quell("sweep", "home", *over, "--seeds", "1", "--duration", "3s", columns=80)
    assert done.returncode == 0, done.stderr
    assert " link.rate   flow.rtt   queue " in done.stdout
    assert "No room in 80 columns for sojourn mean ms: --json has all." in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_piped_output_explains_each_mark_that_it_has_and_no_other(quell: Quell) -> None:
    """Each mark in a table has a legend below it, and no other mark has."""
    home = ("home", "--seeds", "1", "--duration", "3s")
    commands = {
        "compare": ("compare", *home, "--aqm", "pfifo", "--aqm", "codel"),
        "alone": ("compare", *home, "--aqm", "codel"),
        "run": ("run", "home", "--duration", "3s"),
        "optimum": ("optimum", *home, "--values", "4,64"),
        "sweep": ("sweep", *home, "--over", "link.rate=5mbit,10mbit"),
    }
    for name, words in commands.items():
        for columns in (80, 100):
            done = quell(*words, columns=columns)
            assert done.returncode == 0, done.stderr
            lines = done.stdout.splitlines()
            # The legend is below the last row.
            last = max(k for k, line in enumerate(lines) if re.search(r"\d\.\d+ +\d", line))
            above, below = "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])
            for mark in ("◆", "▶"):
                assert (mark in above) == (mark in below), (name, columns, mark)
            assert "best of its column" not in below, name
            for word in ("sojourn", "RPM", "±"):
                assert word in above or word not in below.split("No room")[0], (name, word)


def test_data_that_only_go_up_have_the_columns_of_the_way_up() -> None:
    def record(queue: str) -> dict[str, Any]:
        up = make_record("fq_codel", goodput=1.9, p95=12.0)
        return make_record(queue, goodput=0.0, p95=0.0, up={**up, "utilisation": 0.99})

    rows = stats.summarise([record("fq_codel"), record("pfifo")])
    text = render(table.compare(rows, 100), 100, color=False)
    assert "1.90" in text
    assert "99.0" in text
    assert "0.00 " not in text
    assert "All data go up" in table.legend(rows, 100, styled=False).plain
    assert [row.on_front for row in rows] == [True, True]
    both = stats.summarise([make_record("pfifo", up=make_record("fq_codel"))])
    assert [m.key for m in stats.shown_measures(both) if m.key.startswith("up.")] == ["up.sojourn_ms.p95"]
    assert "All data go up" not in table.legend(both, 100, styled=False).plain


def test_a_place_on_the_front_by_chance_has_a_mark_of_its_own() -> None:
    sure = [make_record("pfifo", seed, goodput=10.0, p95=26.0) for seed in (1, 2, 3)]
    unsure = [make_record("codel", seed, goodput=10.0, p95=10.0 * seed) for seed in (1, 2, 3, 4)]
    rows = stats.summarise(sure + unsure)
    text = render(table.compare(rows, 100), 100, color=False)
    lines = {name: line for name in ("pfifo", "codel") for line in text.splitlines() if f" {name} " in line}
    assert "◆" in lines["pfifo"] and lines["pfifo"].split()[2] == "3"
    assert "◇" in lines["codel"] and lines["codel"].split()[2] == "4"
    legend = table.legend(rows, 100, styled=False).plain
    assert "◆ on the front" in legend and "◇ perhaps by chance" in legend
    # If it is the only mark on the front, the legend of the front has it.
    rows = stats.summarise(unsure + [{**record, "queue": "fq"} for record in unsure])
    legend = table.legend(rows, 100, styled=False).plain
    assert "◇ on the front" in legend and ". Perhaps by chance" in legend and "◆" not in legend
