"""The report in a real browser: headless Chromium, driven through chromedriver."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import WIDTHS, Page
from conftest import QUEUES, Quell, make_record
from quell.evaluation import candidate, link, run
from quell.evaluation import page as evaluation_page
from quell.experiments.experiment import Job, Outcome, load, plan, run_jobs
from quell.papers import page as papers_page
from quell.papers.claim import Claim
from quell.papers.paper import Paper, rows
from quell.papers.study import Study
from quell.results import commands
from quell.results.stats import Estimate
from quell.views import commands as commands_page
from quell.views.figures import Axis, Figure, Line, Panel, Table
from quell.views.report import page
from test_shell_queues import record
from test_show_samples import _samples as watched


@pytest.fixture
def report(browser: Any, outcome: Outcome, tmp_path: Path) -> Page:
    path = tmp_path / "report.html"
    path.write_text(page(outcome, "quell compare --html report.html"), encoding="utf-8")
    return Page(browser, path)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_page_draws_without_errors_or_sideways_scrolling(report: Page, width: int, dark: bool) -> None:
    report.open(width, dark)
    assert report.errors() == []
    report.fits(width)
    for chart in ("scatter", "cdf", "flows", "ride"):
        box = report.js("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", f"#{chart} svg")
        assert min(300, width - 40) < box["width"] <= width, chart
        assert box["height"] > 150, chart
    drawn = report.js("return [...document.querySelectorAll('svg')].map(s => s.outerHTML).join()")
    assert "NaN" not in drawn
    assert "undefined" not in drawn


def test_every_queue_has_its_mark_in_the_scatter_and_its_own_time_series(report: Page) -> None:
    report.open(1280)
    for i in range(len(QUEUES)):
        assert report.count(f"#scatter path.dot[data-q='{i}']") == 1
    assert report.count("#scatter path.front") == 1
    assert report.count("#small button") == len(QUEUES)
    assert report.count("tbody tr") == len(QUEUES)


@pytest.mark.parametrize("width", [390, 1280])
def test_no_name_in_the_scatter_covers_the_word_in_its_corner(browser: Any, tmp_path: Path, width: int) -> None:
    figures = {"pfifo": (14.33, 778), "codel": (14.33, 12.8), "fq_codel": (14.33, 14.4), "cobalt": (14.31, 7.9),
               "rlaqm": (12.05, 2.7)}  # fmt: skip
    scenario = load('[link]\nrate = "15mbit"\n')
    jobs = [Job(queue, scenario.run_seed(0)) for queue in figures]
    records = {k: make_record(queue, 1, *figures[queue]) for k, queue in enumerate(figures)}
    path = tmp_path / "report.html"
    path.write_text(page(Outcome(scenario, jobs, records, wall_s=1.0), "x"), encoding="utf-8")
    report = Page(browser, path)
    report.open(width)
    covered = report.js("""
        const box = e => e.getBoundingClientRect();
        const word = [...document.querySelectorAll("#scatter text.title")].find(e => e.textContent.includes("better"));
        const meets = (a, b) => a.left < b.right && a.right > b.left && a.top < b.bottom && a.bottom > b.top;
        const names = [...document.querySelectorAll("#scatter text.label")];
        return word ? names.filter(e => meets(box(e), box(word))).map(e => e.textContent) : [];
    """)
    assert covered == []


def test_legend_shows_and_hides_queues(report: Page) -> None:
    report.open(1280)
    report.js("[...document.querySelectorAll('#legend .all')].find(b => b.textContent === 'all').click()")
    assert report.count("#cdf path.mark") == len(QUEUES)
    report.js("document.querySelector('#legend button').click()")
    assert report.count("#cdf path.mark") == len(QUEUES) - 1
    assert report.count("#cdf path.mark[data-q='0']") == 0
    report.js("[...document.querySelectorAll('#legend .all')].find(b => b.textContent === 'none').click()")
    assert report.count("#cdf path.mark") == 0
    report.js("[...document.querySelectorAll('#legend .all')].find(b => b.textContent === 'front').click()")
    assert report.count("#cdf path.mark") == 3
    assert report.errors() == []


def test_knobs_of_controllers_have_their_panels(report: Page) -> None:
    report.open(1280)
    report.js("[...document.querySelectorAll('#legend .all')].find(b => b.textContent === 'all').click()")
    titles = report.js("return [...document.querySelectorAll('#ride .title')].map(t => t.textContent)")
    assert "limit, packets" in titles
    assert "drop or mark probability, %" in titles
    assert "rate, Mbit/s" in titles
    assert "time, s" in titles


def test_hovering_tells_values(report: Page) -> None:
    report.open(1280)
    report.move("#scatter path.dot[data-q='3']", 0.5, 0.5)
    assert "pie" in report.js("return document.getElementById('tip').innerText")
    assert "13.40" in report.js("return document.getElementById('tip').innerText")
    report.move("#cdf svg", 0.5, 0.5)
    assert "waited at most" in report.js("return document.getElementById('tip').innerText")
    report.move("#ride svg", 0.5, 0.3)
    assert "link 15.00 Mbit/s" in report.js("return document.getElementById('tip').innerText")
    assert report.errors() == []


def test_headings_sort_the_table(report: Page) -> None:
    report.open(1280)
    first = "return document.querySelector('tbody td').textContent"
    report.js("document.querySelectorAll('th')[1].click()")
    assert "pfifo" in report.js(first)  # highest goodput
    report.js("document.querySelectorAll('th')[1].click()")
    assert "dualpi2" in report.js(first)  # lowest
    report.js("document.querySelectorAll('th')[4].click()")
    assert "fq_codel" in report.js(first)  # lowest p95


def test_one_queue_without_flows_or_series_still_makes_a_page(report: Page, outcome: Outcome) -> None:
    outcome.by_job = {0: outcome.by_job[0] | {"flows": [], "series": None, "rtt_ms": None}}
    report.path.write_text(page(outcome, "quell run"), encoding="utf-8")
    report.open(1280)
    assert report.errors() == []
    assert report.count("#cdf path.mark") == 1
    seen = "return [...document.querySelectorAll('#scatter, #flows, #ride')].filter(e => e.checkVisibility()).length"
    assert report.js(seen) == 0


def test_the_gauges_of_a_policy_have_curves_with_names(report: Page) -> None:
    scenario = load("home", duration="8s")
    found = run_jobs(scenario, plan(scenario, ["hush", "fq_codel"], first_series=True))
    report.path.write_text(page(found, "quell compare"), encoding="utf-8")
    report.open(1280)
    assert report.errors() == []
    names = report.js("return [...document.querySelectorAll('#ride text[data-q]')].map(t => t.textContent)")
    assert sorted(names) == ["R", "T", "cap", "hold", "wait"]
    beside = (
        "const lines = [...document.querySelectorAll('#ride path.mark')];"
        "const end = Math.max(...lines.map(line => line.getBoundingClientRect().right));"
        "return [...document.querySelectorAll('#ride text[data-q]')].every(t => t.getBoundingClientRect().left >= end)"
    )
    assert report.js(beside), "no line crosses a name"
    hues = report.js("return [...document.querySelectorAll('#ride text[data-q]')].map(t => getComputedStyle(t).fill)")
    assert len(set(hues)) == 5
    # Rate and backlog of both queues, five delays of hush, its idle share and flows.
    assert report.count("#ride path.mark") == 11
    report.move("#ride svg", 0.9, 0.1)
    tip = report.js("return document.getElementById('tip').textContent")
    assert "idle" in tip
    assert "flows" in tip


def test_the_keys_of_many_kinds_of_flows_stay_within_the_figure(browser: Any, tmp_path: Path) -> None:
    scenario = load("household", duration="8s", warmup="2s", seeds="1")
    path = tmp_path / "household.html"
    path.write_text(page(run_jobs(scenario, plan(scenario, ["fq_codel"])), "x"), encoding="utf-8")
    report = Page(browser, path)
    for width in WIDTHS:
        report.open(width)
        report.fits(width)
        texts = report.js(
            "const box = e => e.getBoundingClientRect(), all = [...document.querySelectorAll('#flows text')].map(box);"
            "const beside = (a, b) => a.left < b.right && b.left < a.right;"
            "const over = (a, b) => beside(a, b) && a.top < b.bottom - 3 && b.top < a.bottom - 3;"
            "const frame = box(document.getElementById('flows'));"
            "return [all.filter(b => b.right > frame.right + 1).length,"
            " all.filter((a, k) => all.slice(k + 1).some(b => over(a, b))).length]"
        )
        assert texts == [0, 0], "texts outside the figure, and texts over others"
        assert report.count("#flows text.kind") == 7
        assert report.js("return new Set(SHAPES.map(s => s(5))).size >= 7"), "each kind has a shape of its own"


def test_four_queues_of_a_household_are_compared_on_one_screen_of_a_telephone(browser: Any, tmp_path: Path) -> None:
    scenario = load("household", duration="8s", warmup="2s", seeds="1")
    path = tmp_path / "household.html"
    queues = ["pfifo", "fq_codel", "cake", "hush"]
    path.write_text(page(run_jobs(scenario, plan(scenario, queues)), "x"), encoding="utf-8")
    report = Page(browser, path)
    report.open(390)
    box = report.js("return document.querySelector('.felt').getBoundingClientRect().toJSON()")
    assert box["left"] >= 0 and box["right"] <= 390 and box["height"] < 844


LONG_NAME = "a" * 90 + "_of_a_long_name" * 3


@pytest.mark.parametrize("kind", ["report", "command", "samples", "tune"])
def test_long_names_make_no_page_scroll_sideways(
    browser: Any, outcome: Outcome, quell: Quell, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"{kind}.html"
    match kind:
        case "report":
            for made in outcome.by_job.values():
                made["queue"] = made["queue"] if made["queue"] == "pfifo" else f"{made['queue']} model /{LONG_NAME}"
            text = page(outcome, f"quell compare --html {LONG_NAME}.html")
        case "command":
            told = [record(way, queue) for queue in ("pfifo", f"hush model {LONG_NAME}") for way in ("down", "up")]
            text = commands_page.page(commands.runs(told), LONG_NAME, f"quell shell -- ./{LONG_NAME}")
        case "samples":
            samples = [sample | {"device": f"{sample['device']}{LONG_NAME}"} for sample in watched()]
            (tmp_path / "s.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
            assert quell("show", "s.jsonl", "--html", path.name).returncode == 0
            text = path.read_text("utf-8")
        case _:
            line = ["--rate", "10mbit/2mbit", "--framing", "pppoe-llcsnap", "--dev", "abcdefghijklmno"]
            done = quell(
                "tune", *line, "--duration", "2s", "--trials", "2", "--queues", "cake,pfifo", "--html", path.name
            )
            assert done.returncode == 0, done.stderr
            text = path.read_text("utf-8")
    path.write_text(text, encoding="utf-8")
    shown = Page(browser, path)
    for width in WIDTHS:
        shown.open(width)
        shown.fits(width)
        assert shown.errors() == []


def test_a_logarithmic_axis_has_two_labels_at_any_width(report: Page) -> None:
    report.open(390)
    ranges = [(lo, lo * ratio) for lo in (0.01, 0.9, 3, 4.1, 26) for ratio in (1.2, 1.9, 2.2, 5, 30, 1e3, 1e6)]
    for lo, hi in ranges:
        for most in (2, 3, 5, 12):
            ticks = report.js("return log(...arguments[0], 0, 300).ticks(arguments[1])", (lo, hi), most)
            labels = report.js("return new Set(arguments[0].map(short)).size", ticks)
            assert 2 <= labels == len(ticks) <= max(most, 6), (lo, hi, most, ticks)
            assert all(lo * 0.99 <= tick <= hi * 1.01 for tick in ticks), (lo, hi, most, ticks)


def test_light_and_dark_differ_and_can_be_switched(report: Page) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    report.open(1280)
    light = report.js(paper)
    report.js("document.getElementById('theme').click()")
    assert report.js(paper) != light
    report.open(1280, dark=True)
    dark = report.js(paper)
    assert dark != light
    report.js("document.getElementById('theme').click()")
    assert report.js(paper) == light


def test_page_is_redrawn_at_another_width(report: Page) -> None:
    report.open(1280)
    report.open(390)
    assert report.count("#scatter path.dot") == len(QUEUES)
    assert report.js("return document.querySelector('#scatter svg').viewBox.baseVal.width") < 390


PAPER = Paper(
    name="made-up",
    title="A paper & <more>",
    source="An author: A title, 2020",
    about="what is measured",
    claims=[
        Claim("F1.delay", "delay <b>", "ms", 10.0, -1, kind="printed", source="Figure 1"),
        Claim("F1.rate", "rate", "Mbit/s"),
    ],
    measure=lambda bench: None,
)


@pytest.fixture
def paper_page(browser: Any, tmp_path: Path) -> Page:
    study = Study(notes=["A finding."], tables=[Table("A matrix", ["nic", "ms"], [["0", "1.0"], ["100", "0.5"]])])
    study.put("F1.delay", Estimate(20.0, 0.5, 5), "at nic 100 it is 9 ms")
    study.put("F1.rate", Estimate(9.5, 0.1, 5))
    lines = [
        Line("measured", [(1, 0.5), (2, 20.0), (3, None), (4, 7.0)], "both", 0),
        Line("printed", [(1, 1.0), (2, 10.0), (4, 5.0)], "both", 0, printed=True),
        Line("another", [(k / 50, k % 9) for k in range(200)], "steps", 1),
    ]
    panels = [Panel("linear", Axis("x"), Axis("y"), lines), Panel("log", Axis("x", True), Axis("y", True), lines[:2])]
    empty = [Panel("", Axis("x"), Axis("y"), [])]
    study.figures += [Figure("F1", "Figure 1", "a note", panels), Figure("F2", "Empty", "", empty)]
    path = tmp_path / "paper.html"
    text = papers_page.page(PAPER, study, rows(PAPER, study), command="quell reproduce", notice="Quick.")
    path.write_text(text, encoding="utf-8")
    return Page(browser, path)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_papers_page_draws_without_errors_or_sideways_scrolling(paper_page: Page, width: int, dark: bool) -> None:
    paper_page.open(width, dark)
    assert paper_page.errors() == []
    paper_page.fits(width)
    drawn = paper_page.js("return [...document.querySelectorAll('svg')].map(s => s.outerHTML).join()")
    assert "NaN" not in drawn
    assert "undefined" not in drawn
    assert "Infinity" not in drawn


def test_findings_take_the_width_of_a_telephone(paper_page: Page) -> None:
    paper_page.open(390)
    assert paper_page.js("return document.querySelector('ul.finding').getBoundingClientRect().width") > 300


def test_papers_page_shows_printed_beside_measured_and_says_why(paper_page: Page) -> None:
    paper_page.open(1280)
    assert paper_page.count("#panel-0-0 path.mark") == 3
    assert paper_page.count("#panel-0-0 path.mark[stroke-dasharray]") == 1
    assert paper_page.count("#panel-0-1 path[fill='var(--paper)']") == 3
    assert paper_page.count("#keys-0 span") == 3
    told = paper_page.js("return document.body.innerText")
    for text in ("A paper & <more>", "delay <b>", "missed", "at nic 100 it is 9 ms", "20.00 ±0.50", "Quick."):
        assert text in told
    paper_page.move("#panel-0-1 svg", 0.5, 0.5)
    paper_page.move("#panel-0-1 path[fill='var(--paper)']", 0.5, 0.5)
    assert "printed" in paper_page.js("return document.getElementById('tip').innerText")
    paper_page.js("document.querySelectorAll('.matrix th')[1].click()")
    assert paper_page.js("return document.querySelector('.matrix tbody td').textContent") == "100"
    assert paper_page.errors() == []


@pytest.fixture(scope="module")
def evaluation(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Page:
    queues = candidate.parse_all(["codel", "fq_codel", "pie", "dualpi2", "codel limit 50 target 20ms ecn"])
    plan = run.plan(link.parse(None), queues, sections=["4.5", "5.4", "12"], seeds=1)
    path = tmp_path_factory.mktemp("evaluation") / "evaluation.html"
    path.write_text(evaluation_page.page(plan, run.evaluate(plan), "quell evaluate"), encoding="utf-8")
    return Page(browser, path)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_evaluation_opens_every_cell_without_errors_or_sideways_scrolling(
    evaluation: Page, width: int, dark: bool
) -> None:
    evaluation.open(width, dark)
    evaluation.fits(width)
    assert evaluation.count("table.rfc button") == 3 * 6
    for index in range(18):
        evaluation.js("document.querySelectorAll('table.rfc button')[arguments[0]].click()", index)
        assert evaluation.js("return document.getElementById('details').open")
        assert evaluation.js("const d = document.getElementById('details'); return d.scrollWidth <= d.clientWidth")
        drawn = evaluation.js("return [...document.querySelectorAll('dialog svg')].map(s => s.outerHTML).join()")
        assert not any(bad in drawn for bad in ("NaN", "undefined", "Infinity"))
        evaluation.js("document.getElementById('close').click()")
    assert evaluation.errors() == []


def test_a_cell_shows_its_bars_its_source_and_its_plots(evaluation: Page) -> None:
    evaluation.open(1280)
    evaluation.js("document.querySelectorAll('table.rfc button')[1].click()")
    told = evaluation.js("return document.getElementById('details').innerText")
    for text in ("4.5 ECN: codel", "Bars", "RFC 7567", "losses with ECN", "Delay and goodput", "without ECN"):
        assert text in told
    assert evaluation.count("dialog svg") == 1 + 2 * 4, "an ellipse, and four plots of each run"
    assert evaluation.js("return location.hash") == "#0-1"


def test_many_queues_scroll_below_their_names(browser: Any, tmp_path: Path) -> None:
    names = [f"codel target {k}ms" for k in range(5, 30)]
    plan = run.plan(link.parse("50mbit@rtt=20ms"), candidate.parse_all([*names]), sections=["5.3", "12"], seeds=1)
    path = tmp_path / "many.html"
    path.write_text(evaluation_page.page(plan, run.evaluate(plan), "quell evaluate"), encoding="utf-8")
    many = Page(browser, path)
    for width in (390, 1400):
        many.open(width)
        assert many.js("return document.documentElement.scrollWidth") <= width
        left, right = many.js(
            "const b = document.querySelector('.wide-table').getBoundingClientRect(); return [b.left, b.right]"
        )
        assert left >= 0 and right <= width and right - left > 0.9 * width
        many.js("document.querySelector('.wide-table').scrollTo(600, 40)")
        first = many.js(
            "const b = document.querySelector('table.rfc tbody td').getBoundingClientRect(),"
            " t = document.querySelector('.wide-table').getBoundingClientRect(); return b.left - t.left"
        )
        assert first == pytest.approx(0, abs=1), "the scenario's name stays"
    many.open(3000)
    whole = "return document.querySelector('.wide-table').getBoundingClientRect().height"
    assert many.js(f"{whole} > document.querySelector('table.rfc').offsetHeight - 1"), (
        "what fits does not scroll by itself"
    )
    assert many.js("return document.querySelector('.finding').textContent").count(" of ") == 7, "the six best, of all"
    assert "1 of 2" in many.js("return document.querySelectorAll('table.rfc th')[3].innerText")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_measured_rate_is_drawn_where_it_has_samples(
    browser: Any, outcome: Outcome, tmp_path: Path, width: int
) -> None:
    path = tmp_path / "measured.html"
    beside = replace(outcome, measured=([0.2, 0.4, 0.6, 0.8], [5.0, 9.0, None, 7.0]))
    path.write_text(page(beside, "quell compare"), encoding="utf-8")
    report = Page(browser, path)
    report.open(width)
    drawn = report.js("return document.querySelector('#ride path.measured').getAttribute('d')")
    assert (drawn.count("M"), drawn.count("L")) == (2, 1), "two samples are a line; the gap is none"
    assert report.errors() == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_of_a_command_draws_each_queue_without_errors(browser: Any, tmp_path: Path, width: int) -> None:
    keys = ("throughput_mbps", "capacity_mbps", "sojourn_ms")
    series = {"bin_s": 0.1} | {key: [float(k % 7 + 1) for k in range(1500)] for key in keys}
    told = [record(way, queue, series=series) for queue in ("pfifo limit 200", "hush") for way in ("down", "up")]
    path = tmp_path / "shell.html"
    page = commands_page.page(commands.runs(told), "10mbit, 20 ms each way", "quell shell -- ./measure")
    path.write_text(page, encoding="utf-8")
    shown = Page(browser, path)
    shown.open(width)
    assert shown.errors() == []
    shown.fits(width)
    assert shown.count("figure svg") == 6
    # Both queues in each, and the link's capacity in the two plots of rates.
    assert shown.count("figure path.mark") == 6 * 2 + 2
    drawn = shown.js("return [...document.querySelectorAll('svg')].map(s => s.outerHTML).join()")
    assert "NaN" not in drawn and "undefined" not in drawn
