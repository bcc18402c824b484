"""Applications: their results in tables, reports and frames."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

import quell as library
from conftest import Quell, make_record
from quell import felt, table
from quell.experiment import load, plan, run_jobs
from quell.report import page

SHORT = [
    "--rate",
    "20mbit",
    "--duration",
    "20s",
    "--flow",
    "call",
    "--flow",
    "game",
    "--flow",
    "video",
    "--flow",
    "cubic:2",
]


def call(mos: float) -> dict[str, Any]:
    return {"kind": "call", "mos": mos, "late_loss": 0.0}


def test_a_figure_is_the_mean_over_applications_and_runs() -> None:
    runs = [make_record("a", 1, applications=[call(4.4), call(4.0)]), make_record("a", 2, applications=[call(3.0)])]
    [figure] = felt.shown(runs)
    estimate = felt.mean(runs, figure)
    assert estimate is not None
    assert estimate.mean == pytest.approx((4.2 + 3.0) / 2)
    assert felt.mean([make_record("b")], figure) is None


@pytest.mark.parametrize(("mos", "verdict"), [(4.4, "good"), (4.0, "good"), (3.5, "fair"), (3.1, "fair"), (3.0, "bad")])
def test_verdicts_have_their_bounds(mos: float, verdict: str) -> None:
    [figure] = felt.shown([make_record("a", applications=[call(mos)])])
    assert figure.verdict(mos) == verdict


def test_less_is_better_of_times_and_a_transfer_has_no_verdict() -> None:
    figures = {figure.title: figure for figure in felt.FIGURES}
    assert [figures["page p50"].verdict(s) for s in (1, 5, 20)] == ["good", "fair", "bad"]
    assert figures["upload"].verdict(1.0) == ""


def test_without_applications_there_is_no_table_and_no_card() -> None:
    assert table.felt([make_record("a")], 80) is None
    scenario = load(rate="10mbit", duration="2s", seeds="1")
    assert "What people experience" not in page(run_jobs(scenario, plan(scenario, ["pfifo"])), "x")


def test_the_command_prints_what_users_experience(quell: Quell) -> None:
    done = quell("compare", *SHORT, "--aqm", "pfifo", "--aqm", "fq_codel", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    titles = next(line for line in lines if "call" in line)
    assert all(title in titles for title in ("call", "stalls", "video", "game p99"))
    assert "page" not in titles


def test_a_record_has_the_results_of_each_kind(quell: Quell) -> None:
    record = json.loads(quell("run", *SHORT, "--json", "-").stdout)
    kinds = {a["kind"]: a for a in record["applications"]}
    assert set(kinds) == {"call", "game", "video"}
    assert 1 <= kinds["call"]["mos"] <= 4.5
    assert set(kinds["game"]) == {"kind", "round_trip_ms", "within_50ms"}
    assert set(kinds["video"]["startup_ms"]) == {"mean", "p50", "p95", "p99", "max"}
    # A call and a game are two flows each, a stream is one.
    assert [f["kind"] for f in record["flows"]] == ["call"] * 2 + ["game"] * 2 + ["video", "tcp", "tcp"]


def test_every_queue_has_its_cards_in_the_report() -> None:
    scenario = load("household", duration="20s", seeds="2", warmup="5s")
    queues = ["pfifo limit 1000", "fq_codel"]
    text = page(run_jobs(scenario, plan(scenario, queues)), "x")
    cards = text.split("What people experience")[1].split("</section>")[0]
    rows = cards.split("<h3>")[1:]
    assert [row.split("</h3>")[0] for row in rows] == ["pfifo", "fq_codel"]
    for row in rows:
        titles = ("call", "frame p95", "freezes", "page p50", "stalls", "video", "game p99", "download", "upload")
        for title in (*titles, "grade", "grade down", "grade up"):
            assert f"<span>{title}</span>" in row
    # The cards come before the engineering figures.
    assert text.index("What people experience") < text.index("Delay against throughput")


def test_what_users_experience_fits_a_narrow_terminal() -> None:
    applications = [
        {"kind": "video_call", "frame_delay_ms": {"p95": 50.0}, "freezes_per_minute": 0.0},
        {"kind": "page", "page_load_ms": {"p50": 2000.0}},
        {"kind": "video", "rebuffer_ratio": 0.0, "rate_mbps": 5.8},
        {"kind": "game", "round_trip_ms": {"p99": 40.0}},
        call(4.4),
        {"kind": "download", "rate_mbps": 12.0},
        {"kind": "upload", "rate_mbps": 4.0},
    ]
    records = [make_record("fq_codel", applications=applications)]
    for width, first, freezes in ((120, True, True), (88, False, True), (80, False, False)):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(table.felt(records, width))
        text = captured.get()
        assert max(map(len, text.splitlines())) <= width
        assert ("page p50" in text, "freezes" in text) == (first, freezes)


def test_a_video_call_has_its_results_and_each_direction_its_grade(quell: Quell) -> None:
    arguments = ["--rate", "20mbit", "--duration", "20s", "--flow", "video_call", "--json", "-"]
    record = json.loads(quell("run", *arguments).stdout)
    [application] = record["applications"]
    assert set(application) == {"kind", "frame_delay_ms", "freezes_per_minute", "below_24fps", "rate_mbps"}
    assert [flow["kind"] for flow in record["flows"]] == ["video_call"] * 2
    assert record["qoo"] == {"game": 100.0, "video_call": 100.0, "streaming": 100.0}
    assert "grade_up" not in record
    home = json.loads(quell("run", "household", "--duration", "30s", "--aqm", "pfifo", "--json", "-").stdout)
    assert home["grade_ms"] == max(home["grade_down_ms"], home["grade_up_ms"])
    assert home["grade"] in (home["grade_down"], home["grade_up"])
    assert home["qoo"]["game"] < 50


def test_frames_have_applications_as_a_column() -> None:
    frame = library.run(rate="20mbit", flows=["call:2", "cubic"], duration="10s")
    assert frame["applications"][0].struct.field("kind").to_list() == ["call", "call"]
    assert library.run(rate="20mbit", duration="2s")["applications"][0] is None


def test_a_household_is_better_off_with_a_fair_queue() -> None:
    scenario = load("household", duration="40s", warmup="10s", seeds="1")
    records = run_jobs(scenario, plan(scenario, ["pfifo limit 1000", "fq_codel"])).records
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table.felt(records, 120))
    assert "fq_codel" in captured.get()
    for figure in felt.shown(records):
        fifo, fair = (felt.mean([r], figure) for r in records)
        assert fifo is not None
        assert fair is not None
        if figure.kind in ("call", "game"):
            assert figure.better * (fair.mean - fifo.mean) > 0, figure


def test_an_upload_that_goes_down_is_refused(quell: Quell) -> None:
    done = quell("run", "--rate", "10mbit", "--flow", "upload@direction=down")
    assert done.returncode == 2
    assert "an upload does not go down" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert quell("run", "--rate", "10mbit", "--flow", "upload", "--duration", "2s").returncode == 0


def test_rpm_measures_working_conditions(quell: Quell) -> None:
    done = quell(
        "rpm", "--rate", "50mbit", "--aqm", "pfifo limit 1000", "--aqm", "fq_codel", "--seeds", "1", "--json", "-"
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    rpm = {r["queue"]: next(a["rpm"] for a in r["applications"] if a["kind"] == "probe") for r in records}
    # Two queues of 1000 packets at 50 Mbit/s: 500 ms at most, 120 round trips a minute. An idle path of 20 ms has 3000.
    assert 120 < rpm["pfifo"] < 600
    assert 1000 < rpm["fq_codel"] < 3000


def test_rpm_is_not_for_a_cell(quell: Quell) -> None:
    done = quell("rpm", "wifi-flat")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not for a Wi-Fi cell" in done.stderr


def test_rpm_changes_no_other_number(quell: Quell) -> None:
    arguments = ["compare", "home", "--duration", "8s", "--seeds", "2", "--aqm", "fq_codel", "--json", "-"]
    plain, probed = (json.loads(quell(*arguments, *more).stdout) for more in ([], ["--rpm"]))
    costs = {"cpu_s", "packets_per_cpu_s"}
    for without, with_rpm in zip(plain, probed, strict=True):
        rpm = with_rpm.pop("rpm")
        assert 500 < rpm < 3000
        assert {k: v for k, v in without.items() if k not in costs} == {
            k: v for k, v in with_rpm.items() if k not in costs
        }
    table_text = quell(*arguments[:-2], "--rpm", columns=140).stdout
    assert "RPM" in table_text
