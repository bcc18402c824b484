"""`quell compare --real`: rows of real TCP beside simulated ones; impossible requests are refused before any run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Quell
from quell import Scenario
from quell._core import InputError
from quell.cli import dispatch
from quell.inputs.keys import Flow, Up
from quell.linux import real as reality
from test_shell import missing

CUBIC: Flow = {"cc": "cubic", "count": 2, "rtt": "20ms"}


def scenario(folder: Path, *flows: Flow, up: Up | None = None) -> str:
    made = Scenario.from_keys(
        name="s", duration="4s", warmup="1s", seeds=1, link={"rate": "10mbit", "up": up}, flow=flows or [CUBIC]
    )
    (folder / "s.toml").write_text(made.toml())
    return "s.toml"


needs_root = pytest.mark.skipif(bool(missing()), reason=f"quell shell cannot run here: {missing()}")


@pytest.mark.real_time
@needs_root
def test_rows_of_real_tcp_are_beside_the_simulated_ones(quell: Quell, tmp_path: Path) -> None:
    done = quell(
        "compare", scenario(tmp_path), "--real", "--aqm", "pfifo limit 50", "--aqm", "fq_codel", "--json", "runs.json",
        "--html", "report.html", "--parquet", "runs.parquet", "--csv", "runs.csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = ["pfifo limit 50", "pfifo limit 50, real TCP", "fq_codel", "fq_codel, real TCP"]
    runs = json.loads((tmp_path / "runs.json").read_text())
    assert [run["queue"] for run in runs] == names
    for simulated, real in zip(runs[::2], runs[1::2], strict=True):
        assert set(real) <= set(simulated) | {"series"}
        # Wide bounds, so that it passes on a busy machine; docs/lab/fidelity.md measures the fidelity.
        assert real["measured_s"] == pytest.approx(3, abs=1)
        assert 0.5 * simulated["goodput_mbps"] < real["goodput_mbps"] < 1.2 * simulated["goodput_mbps"]
        assert len(real["flows"]) == 2
        for flow in real["flows"]:
            assert flow["goodput_mbps"] > 0
            assert flow["rtt_ms"]["p50"] > 19
    for file in ("report.html", "runs.csv"):
        assert "fq_codel, real TCP" in (tmp_path / file).read_text()
    assert "real TCP" in done.stdout


def test_a_real_run_that_fails_loses_no_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> dict[str, Any]:
        raise InputError("--real: this machine is too busy")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reality, "check", lambda _: {})
    monkeypatch.setattr(reality, "_run_one", fails)
    words = ["compare", scenario(tmp_path), "--real", "--aqm", "pfifo", "--aqm", "codel", "--json", "runs.json"]
    assert dispatch.call(words) == 2
    assert [run["queue"] for run in json.loads(Path("runs.json").read_text())] == ["pfifo", "codel"]
    assert capsys.readouterr().err.endswith("were kept\nquell: --real: this machine is too busy\n")


@pytest.mark.real_time
@needs_root
def test_both_directions_datagrams_and_marks_are_real(quell: Quell, tmp_path: Path) -> None:
    flows: list[Flow] = [
        {**CUBIC, "ecn": True},
        {"cc": "newreno", "count": 1, "direction": "up", "rtt": "20ms", "ecn": True},
        {"kind": "cbr", "rate": "200kbit", "size": 500, "rtt": "20ms"},
        {"kind": "cbr", "rate": "100kbit", "size": 500, "direction": "up", "rtt": "20ms"},
    ]
    file = scenario(tmp_path, *flows, up={"rate": "5mbit"})
    done = quell("compare", file, "--real", "--aqm", "codel ecn", "--json", "-")
    assert done.returncode == 0, done.stderr
    real = json.loads(done.stdout)[1]
    kinds = [(flow["kind"], flow["cc"]) for flow in real["flows"]]
    assert kinds == [("tcp", "cubic"), ("tcp", "cubic"), ("tcp", "newreno"), ("cbr", ""), ("cbr", "")]
    assert all(flow["goodput_mbps"] > 0.02 for flow in real["flows"])
    assert real["marks"] > 0


@pytest.mark.parametrize(
    ("flows", "message"),
    [
        ([{**CUBIC, "bytes": 1000}], "flow.bytes: only simulated"),
        ([{**CUBIC, "mss": 500}], "flow.mss: only simulated"),
        ([{**CUBIC, "rate": "1mbit"}], "flow.rate: only simulated"),
        ([CUBIC, {"kind": "web", "size": 9000, "arrivals": 5}], "flow.kind: "),
        ([CUBIC, {"cc": "bbr", "rtt": "40ms"}], "flow.rtt: 20ms and 40ms; the link has one delay"),
        ([CUBIC, {"cc": "cubic", "ecn": True, "rtt": "20ms"}], "flow.ecn: Linux has one setting for all"),
        ([CUBIC, {"cc": "prague", "rtt": "20ms"}], "flow.cc: Linux's prague "),
    ],
)
def test_flows_that_are_only_simulated_are_refused_in_one_line(
    quell: Quell, tmp_path: Path, flows: list[Flow], message: str
) -> None:
    done = quell("compare", scenario(tmp_path, *flows), "--real", "--json", "runs.json")
    assert done.returncode == 2
    assert done.stderr.startswith(f"quell: --real: {message}"), done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs.json").exists()


def test_a_cell_is_only_simulated(quell: Quell, tmp_path: Path) -> None:
    done = quell("compare", "wifi-flat", "--real")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("quell: --real: [wifi]: "), done.stderr
