"""The library: `import quell`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import quell
from quell.control import Gauges, Knobs

LINK: dict[str, Any] = {"rate": "10mbit", "rtt": "40ms", "flows": ["newreno"], "duration": "10s", "warmup": "2s"}


def test_run_gives_one_row_with_the_contracts_columns() -> None:
    from quell.frame import SCHEMA

    frame = quell.run(aqm="codel", series=0.1, **LINK)
    assert frame.schema == pl.Schema(SCHEMA)
    assert frame.height == 1
    assert frame["queue"][0] == "codel"
    assert 5 < frame["goodput_mbps"][0] <= 10
    assert len(frame["series"][0]["backlog_ms"]) == 100


def test_compare_gives_a_row_per_run_and_summary_one_per_queue() -> None:
    frame = quell.compare(aqm=["pfifo", "codel"], seeds=3, **LINK)
    assert frame["queue"].to_list() == ["pfifo"] * 3 + ["codel"] * 3
    summary = quell.summary(frame)
    assert summary["queue"].to_list() == ["pfifo", "codel"]
    assert summary["runs"].to_list() == [3, 3]
    means = frame.group_by("queue", maintain_order=True).agg(pl.col("goodput_mbps").mean())
    assert summary["goodput_mbps"].to_list() == pytest.approx(means["goodput_mbps"].to_list())
    assert summary["front"].any()


def test_sources_of_a_scenario() -> None:
    text = 'name = "mine"\n[link]\nrate = "3mbit"\n'
    assert quell.scenario(text).name == "mine"
    assert quell.scenario().name == "home"
    assert quell.scenario("cable").name == "cable"
    assert quell.scenario(quell.scenario(text), duration="7s").duration_s == 7


def test_a_scenario_in_a_file_is_named_by_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "kitchen.toml"
    path.write_text('[link]\nrate = "3mbit"\n')
    assert quell.scenario(path).name == "kitchen"


def test_bad_input_raises_one_line() -> None:
    with pytest.raises(quell.InputError, match="rate") as caught:
        quell.run(rate="10parsec")
    assert "\n" not in str(caught.value)


class Still:
    """Sets a limit once and looks on."""

    period = 0.1

    def __init__(self, knobs: Knobs) -> None:
        self.knobs, self.seen = knobs, list[Gauges]()

    def decide(self, gauges: Gauges) -> Knobs | None:
        self.seen.append(gauges)
        return self.knobs if len(self.seen) == 1 else None


def test_a_controller_in_python_reads_gauges_on_its_cadence_and_turns_knobs() -> None:
    controller = Still({"limit": 5})
    frame = quell.run(aqm="fifo limit 1000", controller=controller, **LINK)
    times = [g["now"] for g in controller.seen]
    assert times == pytest.approx([0.1 * (k + 1) for k in range(len(times))])
    assert len(times) in (99, 100)
    assert controller.seen[-1]["limit_packets"] == 5
    assert max(g["backlog_packets"] for g in controller.seen[5:]) <= 5
    assert controller.seen[-1]["departures"] > 1000
    free = quell.run(aqm="fifo limit 1000", **LINK)
    assert frame["sojourn_ms"][0]["p95"] < free["sojourn_ms"][0]["p95"]


def test_a_controller_that_holds_still_is_the_constant_knob() -> None:
    held = quell.run(aqm="fifo limit 20", controller=Still({}), **LINK)
    assert held["trace_hash"].to_list() == quell.run(aqm="fifo limit 20", **LINK)["trace_hash"].to_list()


@pytest.mark.parametrize(
    ("knobs", "error", "words"),
    [
        ({"limt": 3}, quell.InputError, "limt.*limit"),
        ({"drop": 1.5}, quell.InputError, "between 0 and 1"),
        ({"limit": -1}, quell.InputError, "limit is -1; .*at least 1"),
        ({"limit": 2.5}, quell.InputError, "limit is 2.5"),
        ([1], TypeError, "dict"),
    ],
)
def test_a_controllers_mistake_ends_the_run(knobs: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        quell.run(aqm="fifo", controller=Still(knobs), **LINK)


def test_what_a_controller_raises_comes_out() -> None:
    class Broken:
        period = 0.1

        def decide(self, gauges: Gauges) -> None:
            raise RuntimeError(f"at {gauges['now']}")

    with pytest.raises(RuntimeError, match=r"at 0\.1"):
        quell.run(aqm="fifo", controller=Broken(), **LINK)


def test_optimum_has_a_row_per_setting() -> None:
    frame = quell.optimum(knob="limit", values=[4, 33], seeds=1, **LINK)
    assert frame["value"].to_list() == [4, 33]
    assert frame["best"].sum() == 1
    assert 0 < frame["utilisation"][1] <= 1


def test_lists() -> None:
    assert "codel" in quell.queues()["name"].to_list()
    assert "home" in quell.scenarios()["name"].to_list()


def test_the_package_starts_without_data_frames() -> None:
    import subprocess
    import sys

    code = "import sys, quell.cli; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_stub_names_what_the_extension_has() -> None:
    import ast

    from quell import _core

    path = Path(quell.__file__).parent / "_core.pyi"
    tree = ast.parse(path.read_text())
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    stub = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} | {c.name for c in classes} | {"__version__"}
    assert stub - {"__version__"} == {n for n in dir(_core) if not n.startswith("_")}
    for c in classes:
        written = {n.target.id for n in c.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        written |= {n.name for n in c.body if isinstance(n, ast.FunctionDef)} - {"__new__"}
        if c.name == "Scenario":
            assert written == {n for n in dir(_core.Scenario) if not n.startswith("_")}
