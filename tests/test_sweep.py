"""Runs over a grid of keys, and frames without nested columns."""

from __future__ import annotations

import io
import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quell as library
from conftest import Quell
from quell import InputError

OVER = {"link.rate": ["5mbit", "50mbit"], "flow.rtt": ["20ms", "80ms"]}


def test_a_sweep_runs_every_combination_with_every_queue_and_seed() -> None:
    runs = library.sweep("home", OVER, ["pfifo", "fq_codel"], seeds=2, duration="2s", nested=True)
    assert runs.height == 2 * 2 * 2 * 2
    assert runs.columns[:2] == ["link.rate", "flow.rtt"]
    for (rate, rtt), part in runs.group_by("link.rate", "flow.rtt"):
        assert sorted(part["queue"].to_list()) == ["fq_codel"] * 2 + ["pfifo"] * 2
        assert {f["base_rtt_ms"] for flows in part["flows"] for f in flows} == {float(str(rtt).removesuffix("ms"))}
        assert set(part["capacity_mbps"].round(3)) == {float(str(rate).removesuffix("mbit"))}


def test_a_point_is_the_run_that_its_scenario_gives() -> None:
    [hash_there] = library.sweep("home", {"link.rate": ["5mbit"]}, seeds=1, duration="2s")["trace_hash"]
    scenario = library.scenario("home", duration="2s").replace(link={"rate": "5mbit"})
    assert library.run(scenario)["trace_hash"][0] == hash_there


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ({"link.rate": "5mbit"}, "is not a list of values"),
        ({"link.rate": []}, "is not a list of values"),
        ({"link.speed": ["5mbit"]}, "speed"),
        ({"link.rate": ["5"]}, "rate"),
        ({"seed": list(range(60_000))}, "more than 100000"),
    ],
)
def test_an_invalid_grid_is_refused(over: dict[str, list[str]], told: str) -> None:
    with pytest.raises(InputError, match=told):
        library.sweep("home", over, ["pfifo", "fq_codel"], seeds=1, duration="2s")


def test_the_command_writes_a_row_per_run(quell: Quell, tmp_path: Path) -> None:
    arguments = [
        "sweep",
        "home",
        "--over",
        "link.rate=5mbit,50mbit",
        "--aqm",
        "pfifo",
        "--seeds",
        "2",
        "--duration",
        "2s",
    ]
    done = quell(*arguments, "--csv", "runs.csv", "--parquet", "runs.parquet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n 5mbit ") == 1
    for frame in (pl.read_csv(tmp_path / "runs.csv"), pl.read_parquet(tmp_path / "runs.parquet")):
        assert frame["link.rate"].to_list() == ["5mbit"] * 2 + ["50mbit"] * 2
    records = json.loads(quell(*arguments, "--json", "-").stdout)
    assert [r["over"] for r in records] == [{"link.rate": "5mbit"}] * 2 + [{"link.rate": "50mbit"}] * 2


@pytest.mark.parametrize("over", ["link.rate", "=5mbit", "link.rate=", "link.pace=5mbit"])
def test_wrong_keys_and_values_get_one_line(quell: Quell, over: str) -> None:
    done = quell("sweep", "home", "--over", over, "--duration", "2s")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_a_flat_frame_has_numbers_and_text_alone() -> None:
    runs = library.run(rate="20mbit", flows=["call", "cubic:2"], duration="4s", nested=True)
    flat = library.flatten(runs)
    assert flat.height == 1
    assert flat["sojourn_ms.p95"][0] == runs["sojourn_ms"].struct.field("p95")[0]
    assert not any(isinstance(kind, pl.Struct | pl.List) for kind in flat.schema.values())
    flows = library.flatten(runs, each="flows")
    assert flows["flows.kind"].to_list() == ["call", "call", "tcp", "tcp"]
    assert flows["flows.delay_ms.mean"].null_count() == 0
    assert flows["queue"].unique().to_list() == ["fq_codel"]
    applications = library.flatten(runs, each="applications")
    assert applications["applications.mos"][0] > 4
    assert "fq_codel" in flows.write_csv()
    with pytest.raises(InputError, match="each"):
        library.flatten(runs, each="flow")
    assert library.flatten(flat).equals(flat)
    with pytest.raises(InputError, match="each: the frame has no lists; make it with nested=True"):
        library.flatten(flat, each="flows")


def test_runs_are_flat_and_summarised_as_nested_ones() -> None:
    link: dict[str, Any] = {"rate": "20mbit", "flows": ["call", "cubic:2"], "duration": "4s"}
    queues = ["pfifo", "fq_codel"]
    nested = library.compare(aqm=queues, seeds=2, nested=True, **link)
    flat = library.compare(aqm=queues, seeds=2, **link)
    varies = ("cpu_s", "packets_per_cpu_s")
    assert_frame_equal(flat.drop(varies), library.flatten(nested).drop(varies), check_exact=True)
    assert pl.read_csv(io.StringIO(flat.write_csv())).height == 4
    assert_frame_equal(library.summary(flat), library.summary(nested), check_exact=True)
    swept = library.sweep(over={"link.rate": ["5mbit", "9mbit"]}, aqm=["pfifo"], seeds=1, **link)
    assert swept["link.rate"].to_list() == ["5mbit", "9mbit"]
    assert library.summary(swept)["sojourn_ms.p95"].to_list() == swept["sojourn_ms.p95"].to_list()
    assert "series" in library.run(series=0.1, **link).columns


def test_pandas_gets_numbers_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in: Any = types.ModuleType("pandas")
    stand_in.DataFrame = dict
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    runs = library.run(rate="20mbit", duration="4s", nested=True)
    columns = library.to_pandas(runs)
    assert columns["sojourn_ms.p95"].tolist() == [runs["sojourn_ms"][0]["p95"]]
    assert math.isnan(columns["rpm"].tolist()[0])
    assert columns["queue"] == ["fq_codel"] and "flows" not in columns


def test_a_sweep_of_nothing_is_refused(quell: Quell) -> None:
    done = quell("sweep", "home", "--aqm", "pfifo")
    assert done.returncode == 2
    assert "--over: nothing varies" in done.stderr


def test_the_heading_names_no_rate_that_has_a_column(quell: Quell) -> None:
    short = ("sweep", "home", "--duration", "2s", "--seeds", "1")
    swept = quell(*short, "--over", "link.rate=5mbit,50mbit").stdout.splitlines()[0]
    other = quell(*short, "--over", "flow.rtt=20ms,80ms").stdout.splitlines()[0]
    assert "15mbit down" in other
    assert "15mbit" not in swept
    assert "2 s, the first" in swept
    assert "1 run per queue" in swept
    times = quell("sweep", "home", "--seeds", "1", "--over", "duration=1s,2s").stdout.splitlines()[0]
    assert "left out" not in times
