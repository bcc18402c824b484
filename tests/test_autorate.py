"""`quell compare autorate`: the bench of loops over a shaper's rate."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from quell import autorate
from quell._core import InputError
from quell.cli.compare import compare
from quell.cli.dispatch import call
from quell.experiments import experiment


def _result(loop: str, used: float, added: float, line: str = "lte", **more: object) -> autorate.Result:
    both = dict.fromkeys(autorate.DIRECTIONS, used)
    loaded = more.pop("loaded", autorate.DIRECTIONS)
    return autorate.Result(loop, line, loaded, both, dict.fromkeys(autorate.DIRECTIONS, added), 101)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_bench_runs_every_loop_on_every_line_and_in_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    """One seed, shorter than the default."""
    assert call(["compare", "autorate", "--seeds", "1", "--duration", "40s", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    names = {(row["line"], row["loop"]) for row in rows}
    lines = [line.kind for line in autorate.LINES] + [case.name for case in autorate.CASES]
    cases = {(case.name, autorate.PROBES_ONLY.name) for case in autorate.CASES}
    assert names == {(line, loop.name) for line in lines for loop in autorate.LOOPS} | cases
    by_name = {(row["line"], row["loop"]): row for row in rows}
    for row in rows:
        for way in set(autorate.DIRECTIONS) & set(row):
            assert 0 <= row[way]["utilisation"] <= 1.001
            assert row[way]["added_p95_ms"] >= 0
    assert "up" not in by_name["down only", "pace"] and "down" in by_name["down only", "pace"]
    # Without a shaper packets wait in the modem; with pace they do not.
    assert by_name["docsis", "none"]["up"]["added_p95_ms"] > 1000
    assert by_name["docsis", "pace"]["up"]["added_p95_ms"] < 100
    assert by_name["docsis", "pace"]["up"]["utilisation"] > 0.6


def test_ctrl_c_shows_the_draws_that_every_loop_has_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All loops finish on one line, and one loop on the next."""
    stream, kept = experiment.stream, dict[int, Any]()

    def interrupted(runs: list[Any], done: Any, **more: Any) -> None:
        if not kept:
            stream(runs[: len(autorate.LOOPS) + 1], kept.__setitem__, **more)
        for index, record in copy.deepcopy(kept).items():
            done(index, record)
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "stream", interrupted)
    words = ["compare", "autorate", "--seeds", "1", "--duration", "31s", "--json"]
    assert call([*words, "-"]) == 130
    said = capsys.readouterr()
    rows = json.loads(said.out)
    assert {(row["line"], row["loop"]) for row in rows} == {("starlink", loop.name) for loop in autorate.LOOPS}
    assert f"interrupted: shown: {len(autorate.LOOPS)} runs, of" in said.err
    monkeypatch.chdir(tmp_path)
    Path("rows.json").write_text("of all lines")
    assert call([*words, "rows.json"]) == 130
    assert Path("rows.json").read_text() == "of all lines"
    assert json.loads(Path("rows.interrupted.json").read_text()) == rows


def test_tables_fit_80_columns_and_no_name_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are the longest possible, and every loop is marked as collapsed."""
    lines = [line.kind for line in autorate.LINES] + [case.name for case in autorate.CASES]
    autorate.show([_result(loop.name, 1.0, 12345.0, line) for line in lines for loop in autorate.LOOPS], "heading")
    rows = capsys.readouterr().out.splitlines()
    for loop in autorate.LOOPS:
        assert sum(f" {loop.name} ! " in row for row in rows) == len(lines) + 1
    assert not [row for row in rows if len(row.rstrip()) > 80 and "ms" in row and "bar" not in row and ":" not in row]


def test_interrupted_before_all_lines_are_whole_there_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Means over different sets of lines cannot be compared."""
    autorate.show([_result(loop.name, 0.9, 5.0) for loop in autorate.LOOPS], "heading")
    said = capsys.readouterr().out
    assert "lte" in said and "bar:" not in said and " all " not in said


def test_no_line_of_the_bench_is_one_that_constants_were_chosen_by() -> None:
    """crates/quell-qdisc/src/control/pace.rs names seeds 1 to 8."""
    assert not set(autorate.SEEDS) & set(range(1, 9))


def test_bars_are_half_of_the_lowest_delay_among_loops_that_use_80_percent() -> None:
    """`none`, and loops that do not act on a direction, do not count."""
    results = [_result(loop.name, 0.5, 10.0) for loop in autorate.LOOPS]
    by_name = {r.loop: i for i, r in enumerate(results)}
    results[by_name["none"]] = _result("none", 1.0, 1.0)
    results[by_name["autorate-ingress"]] = _result("autorate-ingress", 0.85, 40.0)
    results[by_name["sqm_autorate"]] = _result("sqm_autorate", 0.82, 60.0)
    results[by_name["pace"]] = _result("pace", 0.86, 25.0)
    down, up = autorate.verdicts(results)
    assert (down.bound_by, down.bound_ms, down.best_other) == ("autorate-ingress", 20.0, 0.85)
    assert (up.bound_by, up.bound_ms, up.best_other) == ("sqm_autorate", 30.0, 0.82)
    assert (
        "bar: 90%, or 90%): not reached" in down.text()
        and "20 ms, half of autorate-ingress's): not reached" in down.text()
    )
    assert up.text().endswith("half of sqm_autorate's): reached")


def test_without_a_loop_at_80_percent_the_one_that_uses_most_sets_the_delay() -> None:
    """Then the bar of the delay is half of that loop's delay."""
    results = [_result(loop.name, 0.5 + i / 100, 10.0 * i) for i, loop in enumerate(autorate.LOOPS)]
    down, _ = autorate.verdicts(results)
    assert (down.bound_by, down.bound_ms) == ("sqm_autorate, told", 25.0)


@pytest.mark.parametrize(
    ("used", "added", "loaded", "collapsed"),
    [(0.5, 50.0, ("down",), False), (0.3, 50.0, ("down",), True), (0.5, 600.0, ("up",), True), (0.3, 900.0, (), False)],
)
def test_a_loop_collapses_in_a_loaded_direction_alone(
    used: float, added: float, loaded: tuple[str, ...], collapsed: bool
) -> None:
    """A loop collapses below 40 % utilisation of the line, or above 500 ms of added delay."""
    assert _result("pace", used, added, loaded=loaded).collapsed is collapsed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aqm": ["cake"]}, "--aqm: not with quell compare autorate"),
        ({"rate": "5mbit"}, "--rate: not with quell compare autorate"),
        ({"duration": "20s"}, "--duration: the bench takes more than 30s"),
        ({"seeds": "0"}, "--seeds: '0' is not a number from 1 to 100"),
        ({"seeds": "x"}, "--seeds: 'x' is not a number"),
    ],
)
def test_unsuitable_options_of_the_bench_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    """The refusal comes before any run."""
    with pytest.raises(InputError, match=message):
        compare(["autorate"], **options)


@pytest.mark.parametrize("both", [True, False])
def test_a_measured_line_is_compared_with_fixed_rates_too(
    both: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mahimahi has a file for each direction; without that of the upload nothing is uploaded."""
    down, up = tmp_path / "a line.down", tmp_path / "a line.up"
    # 12 Mbit/s down and 3 up; in the second half of each 10 s a quarter of that.
    for file, gap in ((down, 1), (up, 4)):
        file.write_text("".join(f"{t}\n" for t in range(1, 10_001) if t % (gap if t < 5000 else 4 * gap) == 0))
    if not both:
        up.unlink()
    words = ["compare", "autorate", "--trace", str(down), "--seeds", "1", "--duration", "40s"]
    assert call([*words, "--json", "-"]) == 0
    rows = {row["loop"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {loop.name for loop in (*autorate.LOOPS, *autorate.FIXED)}
    assert all(("up" in row) == both and row["line"] == "a line" for row in rows.values())
    # The download's mean is 7.5 Mbit/s: half of it is above the 3 Mbit/s of the slow phase, and 90 % is far above.
    half, most = (rows[loop.name]["down"] for loop in autorate.FIXED)
    assert 0.3 < half["utilisation"] < 0.6 < most["utilisation"]
    assert 30 < half["added_p95_ms"] < most["added_p95_ms"] < rows["none"]["down"]["added_p95_ms"]
    assert rows["pace"]["down"]["utilisation"] > half["utilisation"]
    assert call(words) == 0
    said = capsys.readouterr().out
    rates = "7.52/1.88" if both else "7.52"
    assert f"a line, {rates} Mbit/s on average; traffic of seed 101" in said
    assert "bar:" not in said and not [
        row for row in said.splitlines() if row.rstrip().endswith(" ms") and len(row) > 80
    ]


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("no-such.down", "cannot read the trace no-such.down"),
        ("builtin:lte-up", "--trace builtin:lte-up: name the downstream trace; the upstream one is found by its name"),
        ("builtin:nope", "unknown built-in trace `nope`"),
    ],
)
def test_a_trace_that_cannot_be_read_is_one_line(trace: str, message: str) -> None:
    """The refusal comes before any run."""
    with pytest.raises(InputError, match=message):
        compare(["autorate"], trace=trace)


def test_the_search_of_constants_starts_from_those_that_are_shipped() -> None:
    """`tools/pace.py` writes the constants as words."""
    path = ROOT / "tools/pace.py"
    spec = importlib.util.spec_from_file_location("search_of_pace", path)
    assert spec is not None and spec.loader is not None
    search = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(search)
    base = experiment.load(autorate.NAME, duration="31s")
    named = autorate.Loop("named", lambda _, way: search.words(way, search.SHIPPED[way]))
    queues = [autorate.LOOPS[-1], named]
    scenarios = [autorate.scenario_of(base, autorate.LINES[2], 1, loop) for loop in queues]
    work = [(scenario, experiment.plan(scenario, [scenario.queue])[0]) for scenario in scenarios]
    plain, by_words = experiment.run_each(work, lambda record: record)
    assert plain["trace_hash"] == by_words["trace_hash"]
