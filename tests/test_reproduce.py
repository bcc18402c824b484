"""`quell reproduce`: rows, verdicts, pages, and a quick run of every paper."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from conftest import QUELL, ROOT, Quell
from quell import InputError, Scenario, papers
from quell.cli import dispatch as cli
from quell.common.text import counted
from quell.papers import curves, lfq, lfq_beyond
from quell.papers.bench import LOOKS, Bench, Run, Sample
from quell.papers.claim import (
    BETTER,
    CONSTANT,
    CONTRADICTED,
    KINDS,
    MEASURED,
    MIN_SEEDS,
    MISSED,
    OPEN,
    REACHED,
    VERDICTS,
    Claim,
    estimate,
)
from quell.papers.paper import Paper, rows, totals
from quell.papers.study import Study
from quell.results.stats import Estimate, t975, t_quantile

KEYS = [
    "id",
    "what",
    "unit",
    "kind",
    "source",
    "quote",
    "expected",
    "measured",
    "low",
    "high",
    "runs",
    "verdict",
    "why",
]
NAMES = list(papers.MODULES)
CURVES = sorted((Path(papers.__file__).parent / "trained").glob("*.curve.parquet"))


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[dict[str, Any]], Path]]:
    """Every paper's quick version, once: its rows and its page."""
    made = {}
    for name in NAMES:
        folder = tmp_path_factory.mktemp(name)
        arguments = [str(QUELL), "reproduce", name, "--quick", "--seeds", "1", "--json", "-", "--html", f"{name}.html"]
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "Quick version" in done.stderr
        made[name] = json.loads(done.stdout), folder / f"{name}.html"
    return made


@pytest.mark.parametrize("name", NAMES)
def test_rows_follow_the_contract(quick: dict[str, tuple[list[dict[str, Any]], Path]], name: str) -> None:
    found, _ = quick[name]
    assert [row["id"] for row in found] == [claim.id for claim in papers.find(name).claims]
    assert len({row["id"] for row in found}) == len(found)
    for row in found:
        assert list(row) == KEYS
        assert row["verdict"] in VERDICTS
        assert (row["verdict"] == MEASURED) == (row["expected"] is None)
        assert row["kind"] in KINDS
        if row["measured"] is not None and row["low"] is not None:
            assert row["low"] <= row["measured"] <= row["high"]
        if row["verdict"] not in (MEASURED, OPEN):
            assert row["runs"] >= MIN_SEEDS or row["low"] is None


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_a_measurement_give_the_reason(
    quick: dict[str, tuple[list[dict[str, Any]], Path]], name: str
) -> None:
    """The queue's network does not ship, or the quick version is too short."""
    found, _ = quick[name]
    missing = ("no queue `", "no such queue here", "left out of the quick version", "had not settled")
    for row in found:
        assert row["measured"] is not None or row["why"].startswith(missing), row
    assert sum(row["measured"] is not None for row in found) > 0.4 * len(found)


@pytest.mark.parametrize("name", NAMES)
def test_page_stands_alone_and_names_what_repeats_it(
    quick: dict[str, tuple[list[dict[str, Any]], Path]], name: str
) -> None:
    text = quick[name][1].read_text("utf-8")
    assert "Quick version" in text
    assert f"quell reproduce {name} --quick" in text
    assert "src=" not in text
    assert "https://" not in text
    for row in quick[name][0]:
        assert f"<code>{row['id']}</code>" in text


def test_a_page_opens_on_its_verdicts_and_misses(quick: dict[str, tuple[list[dict[str, Any]], Path]]) -> None:
    text = quick["l4s-a3c"][1].read_text("utf-8")
    rows = {row["id"]: row for row in quick["l4s-a3c"][0]}
    listed = [rows[name] for name in re.findall(r"<tr><td><code>([^<]+)</code>", text)]
    assert len(listed) == len(rows)
    # First the paper's missed numbers and claims, then its others, then all other rows, each group in its order.
    of_paper = [row for row in rows.values() if row["kind"] in ("printed", "claim")]
    missed = [row for row in of_paper if row["verdict"] in (MISSED, CONTRADICTED)]
    assert len(of_paper) < len(listed)
    assert listed == missed + [row for row in of_paper if row not in missed] + [
        row for row in rows.values() if row not in of_paper
    ]
    table = text.index("Printed numbers and claims")
    assert text.index('class="tally"') < table < text.index('class="finding"') < text.index('id="panel-0-0"')
    assert text.index('id="panel-0-0"') < text.index("Aims of quell")


def test_rl_aqm_matches_its_figures_above_a_device_of_100_packets(
    quick: dict[str, tuple[list[dict[str, Any]], Path]],
) -> None:
    """100 is ns-3's default. The deeper the device, the shorter the queue's own delay and the longer the senders'."""
    row = {r["id"]: r["measured"] for r in quick["rl-aqm"][0]}
    assert row["F6.nic100.thr"] > 0.99 * 9.98
    assert row["F7.nic0.delay"] > row["F7.nic1000.delay"] > row["F7.nic5000.delay"]
    assert row["F7.nic0.true_delay"] < row["F7.nic100.true_delay"] < row["F7.nic1000.true_delay"]
    assert row["F6.nic0.delay"] < row["F7.nic0.delay"]


def test_learnqueue_is_below_the_three_others_wherever_its_paper_says_so(
    quick: dict[str, tuple[list[dict[str, Any]], Path]],
) -> None:
    row = {r["id"]: r["measured"] for r in quick["learnqueue"][0]}
    for experiment in ("LQ1", "LQ2", "LQ3", "LQ5", "LQ6", "LQ8", "LQ9"):
        default, wqm, pie, learned = (row[f"{experiment}.{name}"] for name in ("default", "wqm", "pie", "lq"))
        assert default > wqm > pie > learned
        assert row[f"{experiment}.least"] == 3
        assert row[f"{experiment}.share"] > 0.95
    # 400 packets of 1500 bytes at half of the cell's 18 Mbit/s take 533 ms.
    assert abs(row["LQ2.default"] - 533) < 0.05 * 533
    # Section 5: five stations, 400 limits, 2 actions, 4 bytes.
    assert row["LQ14.fixed"] == 5 * 400 * 2 * 4 / 1000
    assert row["LQ14.fixed"] < row["LQ14.float"] < row["LQ14.all"] < 40


def test_shipped_curves_lie_in_the_package() -> None:
    assert len(CURVES) == 4
    assert not list((ROOT / "crates/quell-link/models").glob("*.parquet"))


@pytest.mark.parametrize("path", CURVES, ids=lambda path: path.name)
def test_shipped_curve_is_the_one_of_the_shipped_networks_training(path: Path) -> None:
    name = path.name.removesuffix(".curve.parquet")
    curve = curves.find(name)
    with safe_open(ROOT / "crates/quell-link/models" / f"{name}.safetensors", "np") as model:
        card = json.loads(model.metadata()["quell"])
    assert (
        f"{curve['step'][-1]} flows" in card["trained_on"] or f"{curve['step'][-1] + 1} episodes" in card["trained_on"]
    )


def test_list_names_papers_and_rows(quell: Quell, tmp_path: Path) -> None:
    done = quell("reproduce", "--list", columns=80)
    assert done.returncode == 0
    for name in NAMES:
        assert name in done.stdout
    done = quell("reproduce", "rl-aqm", "--list", "--json", "rows.json")
    assert done.returncode == 0
    assert "F6.delay" in done.stdout
    listed = json.loads((tmp_path / "rows.json").read_text())
    (row,) = [row for row in listed if row["id"] == "F6.delay"]
    assert row == {
        "id": "F6.delay", "what": "rlaqm, 10 Mbit/s, 20 ms: mean delay", "unit": "ms", "kind": "printed",
        "source": "Figure 6", "quote": "", "expected": 2.27,
    }  # fmt: skip


def test_lists_need_no_optional_dependency() -> None:
    code = """
import sys
for name in ("numpy", "torch", "ray", "safetensors"):
    sys.modules[name] = None
from quell.cli import dispatch as cli
from quell.common.text import counted
sys.exit(cli.call(["reproduce", "--list"]) or cli.call(["reproduce", "l4s-a3c", "--list"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "F27.10" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cats",), "unknown paper `cats`; known: rl-aqm, lfq, l4s-a3c, learnqueue, wqm"),
        ((), "name a paper: rl-aqm, lfq, l4s-a3c, learnqueue, wqm"),
        (("rl-aqm", "--html", "nowhere/page.html"), "--html nowhere/page.html: the folder nowhere does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(quell: Quell, arguments: tuple[str, ...], message: str) -> None:
    done = quell("reproduce", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"quell: {message}")
    assert done.stderr.count("\n") == 1


def printed(number: float, better: int = 0, unit: str = "ms", **more: Any) -> Claim:
    return Claim("a", "delay", unit, number, better, kind="printed", source="Table 1", **more)


def test_ctrl_c_keeps_the_rows_that_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    paper = papers.find("wqm")
    first, second = [claim.id for claim in paper.claims if not claim.detail][:2]

    def measure(bench: Bench) -> None:
        bench.study.put(first, estimate([1.0, 2.0]))
        if complete > 1:
            bench.study.put(second, None, "no such queue here")
        raise KeyboardInterrupt

    monkeypatch.setattr(papers, "find", lambda _: dataclasses.replace(paper, measure=measure))
    for complete, name in ((1, "rows"), (2, "rows.interrupted")):
        assert cli.call(["reproduce", "wqm", "--json", "rows.json", "--html", "page.html"]) == 130
        said = capsys.readouterr()
        told = f"nterrupted: {complete} of {len(paper.claims)} rows were complete"
        assert f"quell: i{told} and were kept" in said.err
        assert f"{counted(complete, 'row')}. ±" in said.out and first in said.out
        assert [row["id"] for row in json.loads(Path(f"{name}.json").read_text())] == [first, second][:complete]
        assert f"I{told}." in Path(f"{name.replace('rows', 'page')}.html").read_text()


def test_an_error_keeps_the_rows_that_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paper = papers.find("wqm")
    first = next(claim.id for claim in paper.claims if not claim.detail)

    def measure(bench: Bench) -> None:
        bench.study.put(first, estimate([1.0, 2.0]))
        raise InputError("the disk is full")

    monkeypatch.setattr(papers, "find", lambda _: dataclasses.replace(paper, measure=measure))
    rows = tmp_path / "rows.json"
    assert cli.call(["reproduce", "wqm", "--json", str(rows)]) == 2
    assert [row["id"] for row in json.loads(rows.read_text())] == [first]


def test_ctrl_c_before_a_row_is_complete_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(_: Bench) -> None:
        raise KeyboardInterrupt

    paper = dataclasses.replace(papers.find("wqm"), measure=measure)
    monkeypatch.setattr(papers, "find", lambda _: paper)
    assert cli.call(["reproduce", "wqm", "--json", str(tmp_path / "rows.json")]) == 130
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"quell: interrupted: 0 of {len(paper.claims)} rows were complete\n")
    assert list(tmp_path.iterdir()) == []


def test_a_verdict_is_that_of_the_whole_interval() -> None:
    less = printed(10.0, -1)  # a time: 20 % are within the tolerance
    assert less.verdict(Estimate(6.0, 1.0, 10)) == BETTER
    assert less.verdict(Estimate(8.0, 1.0, 10)) == REACHED  # the interval is not wholly below 8
    assert less.verdict(Estimate(11.5, 0.5, 10)) == REACHED
    assert less.verdict(Estimate(11.6, 0.5, 10)) == OPEN
    assert less.verdict(Estimate(12.6, 0.5, 10)) == MISSED
    same = printed(10.0)
    assert same.verdict(Estimate(9.0, 1.0, 10)) == REACHED
    assert same.verdict(Estimate(8.5, 1.0, 10)) == OPEN
    assert same.verdict(Estimate(6.0, 1.0, 10)) == MISSED
    assert Claim("c", "delay").verdict(Estimate(1.0, 0.1, 10)) == MEASURED


def test_without_an_interval_the_verdict_is_open_unless_the_result_is_exact() -> None:
    same = printed(10.0)
    assert same.verdict(None) == OPEN
    assert same.verdict(Estimate(10.0, None, 1)) == OPEN
    assert same.verdict(Estimate(10.0, 0.1, MIN_SEEDS - 1)) == OPEN
    assert same.verdict(Estimate(10.0, 0.1, MIN_SEEDS)) == REACHED
    assert same.verdict(Estimate(10.0, None, 1), exact=True) == REACHED
    assert same.verdict(Estimate(13.0, None, 1), exact=True) == MISSED


def test_a_sentence_holds_is_contradicted_or_open_and_an_aim_is_missed() -> None:
    claim = Claim("a", "ratio", "", 1.0, -1, kind="claim", source="section 1", quote="lower delay")
    aim = Claim("b", "ratio", "", 1.0, -1, kind="aim")
    for half, mean, of_claim, of_aim in (
        (0.1, 0.8, REACHED, REACHED),
        (0.1, 0.95, OPEN, OPEN),
        (0.1, 1.05, OPEN, OPEN),
        (0.1, 1.2, CONTRADICTED, MISSED),
        (0.0, 1.0, REACHED, REACHED),
    ):
        found = Estimate(mean, half, 10)
        assert (claim.verdict(found), aim.verdict(found)) == (of_claim, of_aim)


@pytest.mark.parametrize(
    ("claim", "tolerance"),
    [
        (printed(50.0), 10.0),
        (printed(50.0, unit="MB"), 10.0),
        (printed(2.35, unit="%", of="amount"), 0.47),
        (printed(9.98, unit="Mbit/s"), 0.2994),
        (printed(1.94, unit="Mbit/s", link=50), 1.5),
        (printed(0.77, unit=""), 0.05),
        (printed(98.0, unit="%"), 5.0),
        (printed(3.0, unit="", of="count"), 0.0),
        (Claim("a", "ratio", "", 1.0, -1, kind="aim"), 0.0),
    ],
)
def test_tolerances_follow_one_rule(claim: Claim, tolerance: float) -> None:
    assert claim.tolerance == pytest.approx(tolerance)


@pytest.mark.parametrize(
    "lacking",
    [
        {"kind": "printed", "expected": 1.0},
        {"kind": "printed", "source": "Table 1"},
        {"kind": "claim", "expected": 1.0, "better": 1, "quote": "less"},
        {"kind": "claim", "expected": 1.0, "better": 1, "source": "section 1"},
        {"kind": "claim", "expected": 1.0, "better": 1, "source": "section 1", "quote": "a b c d e f"},
        {"kind": "claim", "expected": 1.0, "source": "section 1", "quote": "less"},
        {"kind": "aim", "expected": 1.0},
    ],
)
def test_a_row_that_does_not_say_where_it_is_from_is_refused(lacking: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a row of the kind"):
        Claim("a", "what", **lacking)


def test_intervals_are_of_students_t() -> None:
    for degrees in (1, 2, 3, 9, 30):
        assert t_quantile(0.975, degrees) == pytest.approx(t975(degrees), abs=6e-4)
    # 0.99 quantile for 10 degrees of freedom, any statistics table.
    assert t_quantile(0.99, 10) == pytest.approx(2.764, abs=6e-4)
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None
    assert found.half == pytest.approx(t_quantile(0.99375, 2) / 3**0.5)


def test_a_setting_stops_when_its_rows_are_decided() -> None:
    """With made-up values: a constant is decided at once, values scattered about the bound never."""
    scenario = Scenario("lfq").replace(duration="100ms")
    settings = {"sure": (scenario, "pie"), "split": (scenario, "codel"), "unjudged": (scenario, "fq_codel")}
    claims = [
        Claim("sure", "", "", 1.0, -1, kind="aim"),
        Claim("split", "", "", 0.5, -1, kind="aim"),
    ]

    def samples(found: Mapping[str, list[int]]) -> list[Sample[str]]:
        scattered = [float(k % 2) for k in range(len(found["split"]))]
        return [Sample("sure", [0.1] * len(found["sure"]), ("sure",)), Sample("split", scattered, ("split",))]

    def count(seeds: int) -> dict[str, int]:
        got = Bench(seeds=seeds).seeds_of("runs", settings, lambda record: 1, samples=samples, claims=claims)
        return {key: len(values) for key, values in got.items()}

    assert count(80) == {"sure": LOOKS[0], "split": LOOKS[-1], "unjudged": LOOKS[0]}
    assert count(15) == {"sure": LOOKS[0], "split": 15, "unjudged": LOOKS[0]}
    assert count(3) == {"sure": 3, "split": 3, "unjudged": 3}


def test_a_constant_policy_counts_in_no_total_of_reached() -> None:
    study = Study()
    paper = Paper("p", "", "", "", [printed(10.0)], lambda bench: None)
    study.put("a", Estimate(10.0, 0.1, 10), constant=True)
    assert totals(rows(paper, study)) == {"printed": {CONSTANT: 1}}
    study.put("a", Estimate(20.0, 0.1, 10), constant=True)
    assert totals(rows(paper, study)) == {"printed": {MISSED: 1}}


def test_l4s_a3c_prints_twenty_numbers_and_judges_each_once() -> None:
    found = [claim for claim in papers.find("l4s-a3c").claims if claim.kind == "printed"]
    assert len(found) == 20
    assert all(claim.source == "Table 2" for claim in found)


def test_unclaimed_measurements_are_errors_and_missing_ones_are_reported() -> None:
    study = Study()
    paper = Paper("p", "", "", "", [printed(1.0)], lambda bench: None)
    (row,) = rows(paper, study)
    assert (row["verdict"], row["why"]) == (OPEN, "not measured in this run")
    study.put("b", None)
    with pytest.raises(ValueError, match="measured but not claimed: b"):
        rows(paper, study)


def test_a_queue_of_lfqs_flows_is_counted_at_the_rate_of_its_run() -> None:
    class Constant(Bench):
        """Gives every run a delay of 8 ms."""

        def run(self, what: str, runs: Any, reduce: Any) -> Any:
            series = {"bin_s": lfq.BIN_S, "backlog_ms": [8.0] * 500, "limit_packets": [100.0] * 500}
            return [reduce({"series": series, "backlog_packets": {"max": 1}, "capacity_mbps": 15.0}) for _ in runs]

    bench, study = Constant(), Study()
    lfq._flows(study, bench, {name: lfq.QUEUES[name] for name in ("fq100", "fq1000")})
    rates = [15 - lfq_beyond.shift(number) * lfq.NEAR_MBPS for number in range(bench.first)]
    assert len(set(rates)) > 1
    # 8 ms at 15 Mbit/s are 15,000 bytes.
    expected = sum(15_000 * rate / 15 / lfq.PACKET for rate in rates) / len(rates)
    value = study.measured["F13.max"].value
    assert value is not None and value.mean == pytest.approx(expected)


def test_results_do_not_depend_on_the_number_of_cores() -> None:
    runs = [Run(Scenario("lfq").replace(link={"rate": f"{rate}mbit"}), "pie", k) for rate in (5, 9) for k in range(2)]
    one, three = (
        Bench(threads=threads).run("runs", runs, lambda record: str(record["trace_hash"])) for threads in (1, 3)
    )
    assert one == three
    assert len(set(one)) > 2
