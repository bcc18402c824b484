"""Applications: their results in tables, reports and frames."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import quell as library
from conftest import Quell, make_record
from quell.experiments import responsiveness
from quell.experiments.experiment import Job, Outcome, load, plan, run_jobs
from quell.inputs.keys import Flow
from quell.results import experience
from quell.views import table
from quell.views.report import page, people

FLOWS = ["--flow", "call", "--flow", "game", "--flow", "video", "--flow", "cubic:2"]
SHORT = ["--rate", "20mbit", "--duration", "20s", *FLOWS]


def call(mos: float) -> dict[str, Any]:
    return {"kind": "call", "mos": mos, "late_loss": 0.0}


def test_a_figure_is_the_mean_over_applications_and_runs() -> None:
    runs = [make_record("a", 1, applications=[call(4.4), call(4.0)]), make_record("a", 2, applications=[call(3.0)])]
    [figure] = experience.shown(runs)
    estimate = experience.mean(runs, figure)
    assert estimate is not None
    assert estimate.mean == pytest.approx((4.2 + 3.0) / 2)
    assert experience.mean([make_record("b")], figure) is None


@pytest.mark.parametrize(("mos", "verdict"), [(4.4, "good"), (4.0, "good"), (3.5, "fair"), (3.1, "fair"), (3.0, "bad")])
def test_bounds_between_verdicts(mos: float, verdict: str) -> None:
    [figure] = experience.shown([make_record("a", applications=[call(mos)])])
    assert figure.verdict(mos) == verdict


def test_the_report_begins_with_the_applications_that_are_bad() -> None:
    game = {"kind": "game", "round_trip_ms": {"p99": 300.0}}
    runs = [
        make_record("pfifo", applications=[call(2.0), game]),
        make_record("codel", applications=[call(4.4), {**game, "round_trip_ms": {"p99": 20.0}}]),
        make_record("hush", applications=[call(4.4), {**game, "round_trip_ms": None}]),
    ]
    said = people.finding(people.bad_kinds(["pfifo", "codel", "hush"], runs), runs)
    assert said == (
        "Behind <b>pfifo</b> call and game are bad; behind <b>hush</b> game is bad; behind <b>codel</b> nothing is bad."
    )
    for run, mbps in zip(runs, (16.0, 10.0, 12.0), strict=True):
        run["applications"].append({"kind": "download", "rate_mbps": mbps})
    priced = people.finding(people.bad_kinds(["pfifo", "codel", "hush"], runs), runs)
    assert priced == f"{said} A download has 10.0 Mbit/s where nothing is bad, 12.0 to 16.0 Mbit/s elsewhere."
    assert people.finding(people.bad_kinds(["a"], [make_record("a")]), []) == ""


def test_the_report_advises_no_queue_behind_which_an_application_is_bad() -> None:
    quality = {"pfifo": 2.0, "codel": 4.4, "hush": 4.4}
    goodput = {"pfifo": 12.0, "codel": 11.0, "hush": 10.0}
    runs = [make_record(q, goodput=goodput[q], p95=9.0, applications=[call(mos)]) for q, mos in quality.items()]
    text = page(Outcome(None, [Job(run["queue"], 1) for run in runs], dict(enumerate(runs))), "x")
    assert "Take <b>codel</b>: it carries 11.00 Mbit/s, 8.3 % less than the most, and keeps the queue shortest" in text
    for run in runs:
        run["applications"] = [call(2.0)]
    text = page(Outcome(None, [Job(run["queue"], 1) for run in runs], dict(enumerate(runs))), "x")
    assert "call is bad.</p>" in text


def test_a_shorter_time_is_better_and_a_transfer_has_no_verdict() -> None:
    figures = {figure.title: figure for figure in experience.FIGURES}
    assert [figures["page p50"].verdict(s) for s in (1, 5, 20)] == ["good", "fair", "bad"]
    assert figures["upload"].verdict(1.0) == ""


def test_without_applications_there_is_no_table_and_no_card() -> None:
    assert table.applications([make_record("a")], 80) is None
    scenario = load(rate="10mbit", duration="2s", seeds="1")
    assert "Application quality" not in page(run_jobs(scenario, plan(scenario, ["pfifo"])), "x")


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
    ends = kinds["call"]["ends"]
    assert [set(end) for end in ends] == [{"direction", "mos", "mouth_to_ear_ms", "late_loss"}] * 2
    assert [end["direction"] for end in ends] == ["down", "up"]
    assert kinds["call"]["mos"] == min(end["mos"] for end in ends)
    assert set(kinds["video"]["startup_ms"]) == {"mean", "p50", "p95", "p99", "max"}
    # A call and a game have two flows each, a stream has one.
    assert [f["kind"] for f in record["flows"]] == ["call"] * 2 + ["game"] * 2 + ["video", "tcp", "tcp"]


def test_every_queue_has_its_column_in_the_report() -> None:
    scenario = load("household", duration="20s", seeds="2", warmup="5s")
    queues = ["pfifo limit 1000", "fq_codel"]
    text = page(run_jobs(scenario, plan(scenario, queues)), "x")
    head, *rows = text.split("Application quality")[1].split("</section>")[0].split("<tr>")[1:]
    assert re.findall("<th>(.*?)</th>", head) == ["pfifo", "fq_codel"]
    titles = ["call", "frame p95", "freezes", "page p50", "stalls", "video", "game p99", "download", "backup"]
    found = {re.split("</td>| <small>", row.removeprefix("<td>"))[0]: row.count("<td class=") for row in rows}
    assert found == dict.fromkeys([*titles, "grade", "grade down", "grade up"], 2)
    # The applications come before the engineering figures.
    assert text.index("Application quality") < text.index("Delay against throughput")


def test_the_table_of_applications_fits_a_narrow_terminal() -> None:
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
            console.print(table.applications(records, width))
        text = captured.get()
        assert max(map(len, text.splitlines())) <= width
        shown, _, hidden = text.partition("No room in")
        assert ("page p50" in shown, "freezes" in shown) == (first, freezes)
        assert ("freezes" in hidden) is not freezes, "a hidden column is named"


def test_a_video_call_has_its_results_and_each_direction_its_grade(quell: Quell) -> None:
    arguments = ["--rate", "20mbit", "--duration", "20s", "--flow", "video_call", "--json", "-"]
    record = json.loads(quell("run", *arguments).stdout)
    [application] = record["applications"]
    results = {"frame_delay_ms", "freezes_per_minute", "below_24fps", "rate_mbps"}
    assert set(application) == {"kind", "ends", *results}
    assert [set(end) for end in application["ends"]] == [{"direction", *results}] * 2
    assert {key: application[key] for key in results} in [
        {key: end[key] for key in results} for end in application["ends"]
    ]
    assert [flow["kind"] for flow in record["flows"]] == ["video_call"] * 2
    assert record["qoo"] == {"game": 100.0, "video_call": 100.0, "streaming": 100.0}
    assert "grade_up" not in record
    home = json.loads(quell("run", "household", "--duration", "30s", "--aqm", "pfifo", "--json", "-").stdout)
    assert home["grade_ms"] == max(home["grade_down_ms"], home["grade_up_ms"])
    assert home["grade"] in (home["grade_down"], home["grade_up"])
    assert home["qoo"]["game"] < 50


def test_frames_have_applications_as_a_column() -> None:
    frame = library.run(rate="20mbit", flows=["call:2", "cubic"], duration="10s", nested=True)
    assert frame["applications"][0].struct.field("kind").to_list() == ["call", "call"]
    assert library.run(rate="20mbit", duration="2s", nested=True)["applications"][0] is None


def test_a_household_is_better_off_with_a_fair_queue() -> None:
    scenario = load("household", duration="40s", warmup="10s", seeds="1")
    records = run_jobs(scenario, plan(scenario, ["pfifo limit 1000", "fq_codel"])).records
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table.applications(records, 120))
    assert "fq_codel" in captured.get()
    for figure in experience.shown(records):
        fifo, fair = (experience.mean([r], figure) for r in records)
        assert fifo is not None
        assert fair is not None
        if figure.kind in ("call", "game"):
            assert figure.better * (fair.mean - fifo.mean) > 0, figure


def test_an_upload_in_the_down_direction_is_refused(quell: Quell) -> None:
    done = quell("run", "--rate", "10mbit", "--flow", "upload@direction=down")
    assert done.returncode == 2
    assert "an upload has no direction `down`" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert quell("run", "--rate", "10mbit", "--flow", "upload", "--duration", "2s").returncode == 0


def test_rpm_measures_working_conditions(quell: Quell) -> None:
    done = quell(
        "rpm", "--rate", "50mbit", "--aqm", "pfifo limit 1000", "--aqm", "fq_codel", "--seeds", "1", "--json", "-"
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    rpm = {r["queue"]: next(a["rpm"] for a in r["applications"] if a["kind"] == "probe") for r in records}
    # Two queues of 1000 packets at 50 Mbit/s: 500 ms at most, 120 round trips a minute. Without load, 20 ms give 3000.
    assert 120 < rpm["pfifo"] < 600
    assert 1000 < rpm["fq_codel"] < 3000


def test_stability_is_a_small_deviation_of_four_moving_averages() -> None:
    # Deviations are the roots of 32 / 4 and of 200 / 4; the bound is 5 % of 100.
    assert responsiveness.stable([0, 100, 104, 96, 100])
    assert not responsiveness.stable([100, 110, 90, 100])
    assert not responsiveness.stable([100, 100, 100])
    assert not responsiveness.stable([100, None, 100, 100])


def test_a_test_ends_when_goodput_and_then_responsiveness_are_stable() -> None:
    def interval(down: float, up: float, rpm: float | None) -> dict[str, Any]:
        return {
            "goodput_mbps": down,
            "up": {"goodput_mbps": up},
            "applications": [{"kind": "probe", "rpm": rpm}],
        }

    test = responsiveness.Test()
    ramp = [interval(mbps, 1.0, 500.0) for mbps in (5, 8, 10, 10, 10)]
    assert not any(map(test.note, ramp)) and not test.saturated
    # Four averages of 10 Mbit/s down, but 1, 1, 1 and 2 upwards: the deviation is 0.43, more than 0.1.
    assert not test.note(interval(10, 2.0, 500.0)) and not test.saturated
    assert not any(test.note(interval(10, 2.0, rpm)) for rpm in (900, None, 600, 500)) and test.saturated
    # Goodput became stable with the last of those: 500 is the first responsiveness that counts, and three more follow.
    assert [test.note(interval(10, 2.0, rpm)) for rpm in (505, 495, 500)] == [False, False, True]


def test_a_longer_run_begins_as_a_shorter_one() -> None:
    given = load("household", seeds="1")
    both = []
    for intervals in (6, 7):
        scenario = responsiveness.working_conditions(given, intervals)
        [job] = plan(scenario, ["fq_codel"])
        [record] = run_jobs(scenario, [replace(job, series_bin_s=1.0)]).records
        both.append([rates[:30] for rates in record["series"]["goodput_mbps"][:13]])
    assert both[0] == both[1]


def test_rpm_states_its_confidence(quell: Quell, tmp_path: Path) -> None:
    words = ["--aqm", "pfifo limit 1000", "--aqm", "learnqueue"]
    done = quell("rpm", "home", *words, "--seeds", "2", "--json", "r.json", columns=100)
    records = json.loads((tmp_path / "r.json").read_text())
    assert [record["queue"] for record in records] == ["pfifo"] * 2 + ["learnqueue"] * 2
    for record in records:
        assert 10 <= record["intervals"] <= 20
        assert record["confidence"] == "high" or record["intervals"] == 20
        assert record["measured_s"] == 20
    assert "confidence" in done.stdout and "the last 20 s counted" in done.stdout


def test_rpm_refuses_a_cell(quell: Quell) -> None:
    done = quell("rpm", "wifi-flat")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not for a Wi-Fi cell" in done.stderr


def test_applications_and_flows_have_the_names_and_hosts_of_the_scenario(tmp_path: Path) -> None:
    tables: list[Flow] = [
        {"kind": "call", "name": "to the office", "host": "laptop"},
        {"kind": "page", "host": "laptop"},
        {"kind": "backup", "name": "photos", "host": "nas", "bytes": "1MB"},
    ]
    scenario = library.Scenario.from_keys(link={"rate": "20mbit"}, duration="15s", flow=tables)
    runs = library.run(scenario, nested=True)
    applications = runs["applications"][0].to_list()
    assert [(a["kind"], a["name"], a["host"]) for a in applications] == [
        ("call", "to the office", "laptop"), ("page", None, "laptop"), ("backup", "photos", "nas"),
    ]  # fmt: skip
    assert [flow["name"] for flow in runs["flows"][0]] == ["to the office"] * 2 + [None, "photos"]
    (tmp_path / "named.toml").write_text(scenario.toml(), "utf-8")
    assert library.scenario(tmp_path / "named.toml").toml() == scenario.toml()
    with pytest.raises(library.InputError, match=r'flow\[1\].name: not a name; write name = "backup"'):
        scenario.replace(flow={"name": " "})


def test_responsiveness_is_measured_of_one_seed_in_five(quell: Quell) -> None:
    short = ["home", "--duration", "8s", "--aqm", "fq_codel", "--aqm", "pfifo limit 300"]
    records = json.loads(quell("compare", *short, "--seeds", "6", "--json", "-").stdout)
    by_queue = {queue: [r["rpm"] for r in records if r["queue"] == queue] for queue in ("fq_codel", "pfifo limit 300")}
    for values in by_queue.values():
        assert [value is not None for value in values] == [True, True, False, False, False, False]
    # A path of 20 ms has 3000 without load; 300 packets of 1514 bytes at 15 Mbit/s take 242 ms.
    assert 1000 < by_queue["fq_codel"][0] < 3000
    assert 60_000 / 270 < by_queue["pfifo limit 300"][0] < 1000
    done = quell("compare", *short, "--seeds", "2", columns=80)
    assert "RPM" in done.stdout
    assert "grade" in done.stdout
    assert "4 runs, 2 again with probes, in" in done.stderr
    assert "RPM" not in quell("compare", *short, "--seeds", "2", "--no-rpm").stdout
    assert json.loads(quell("run", *short[:3], "--json", "-").stdout)["rpm"] == by_queue["fq_codel"][0]


def test_runs_whose_responsiveness_cannot_be_measured_have_none_by_default(quell: Quell) -> None:
    for arguments in (["wifi-flat", "--duration", "2s"], ["--rate", "5mbit", "--flow", "call", "--duration", "3s"]):
        done = quell("run", *arguments, "--json", "-")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rpm"] is None


def test_python_measures_responsiveness_where_it_is_asked_to() -> None:
    arguments: dict[str, Any] = {"source": "home", "aqm": "fq_codel", "duration": "8s", "seeds": 2}
    assert library.compare(**arguments)["rpm"].to_list() == [None, None]
    assert all(1000 < rpm < 3000 for rpm in library.compare(**arguments, rpm=True)["rpm"])


def test_rpm_changes_no_other_number(quell: Quell) -> None:
    arguments = ["compare", "home", "--duration", "8s", "--seeds", "2", "--aqm", "fq_codel", "--json", "-"]
    plain, probed = (json.loads(quell(*arguments, more).stdout) for more in ("--no-rpm", "--rpm"))
    costs = {"cpu_s", "packets_per_cpu_s"}
    for without, with_rpm in zip(plain, probed, strict=True):
        rpm = with_rpm.pop("rpm")
        assert 500 < rpm < 3000
        assert {k: v for k, v in without.items() if k not in costs} == {
            k: v for k, v in with_rpm.items() if k not in costs
        }
    table_text = quell(*arguments[:-2], "--rpm", columns=140).stdout
    assert "RPM" in table_text


NARROW: dict[str, dict[str, Any]] = {
    "call": {"mos": 1.0, "late_loss": 1.0, "mouth_to_ear_ms": None},
    "video_call": {"below_24fps": 1.0, "rate_mbps": 0.0, "frame_delay_ms": None},
    "game": {"within_50ms": 0.0},
    "page": {"pages": 0, "given_up": 0, "page_load_ms": None},
    "video": {"rebuffer_ratio": 1.0, "rate_mbps": 0.0, "switches": 0, "startup_ms": None},
    "download": {"rate_mbps": pytest.approx(0.0, abs=1e-3)},
}


@pytest.mark.parametrize("kind", NARROW)
def test_an_application_that_does_not_fit_its_link_has_the_worst_result(quell: Quell, kind: str) -> None:
    done = quell("run", "--rate", "1kbit", "--flow", kind, "--duration", "20s", "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    [application] = json.loads(done.stdout)["applications"]
    assert {key: application.get(key) for key in NARROW[kind]} == NARROW[kind]


def test_a_result_without_a_value_is_a_red_cell(tmp_path: Path) -> None:
    scenario = load(rate="1kbit", flows=["call", "video_call", "page"], duration="20s", seeds="1")
    outcome = run_jobs(scenario, plan(scenario, ["pfifo"]))
    cells = page(outcome, "x").split("Application quality")[1].split("</section>")[0]
    for title, unit in (("frame p95", "ms"), ("page p50", "s")):
        assert f'<td>{title} <small>{unit}</small></td><td class="bad">–</td>' in cells
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table.applications(outcome.records, 80))
    assert "page p50" in captured.get()
    frame = library.run(rate="1kbit", flows=["page"], duration="20s", nested=True)
    assert frame["applications"][0].struct.field("page_load_ms").to_list() == [None]


def test_a_link_on_which_not_one_packet_fits_is_survived(quell: Quell) -> None:
    for words in ("bfifo limit 100", "fq_codel memory_limit 50", "cake memlimit 50"):
        done = quell("run", "--rate", "10mbit", "--flow", "call", "--duration", "5s", "--aqm", words, "--json", "-")
        assert (done.returncode, done.stderr) == (0, ""), words
        [application] = json.loads(done.stdout)["applications"]
        assert application["mos"] == 1.0, words


def test_flents_rrul_is_a_word(quell: Quell) -> None:
    done = quell("run", "--rate", "50mbit", "--flow", "rrul@rtt=30ms", "--duration", "12s", "--json", "-")
    flows = json.loads(done.stdout)["flows"]
    assert [flow["direction"] for flow in flows[:8]] == ["down"] * 4 + ["up"] * 4
    assert {flow["base_rtt_ms"] for flow in flows} == {30.0}
