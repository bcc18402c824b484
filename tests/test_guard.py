"""A guard for a network with saturated weights: they are finite, so its answers look valid, but have no effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import ROOT, Quell
from quell import Scenario

np = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors.numpy")


def test_a_saturated_network_is_not_followed(quell: Quell, tmp_path: Path) -> None:
    whole = (ROOT / "crates/quell-link/models" / "rl-aqm.safetensors").read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    tensors = {name: np.full_like(value, -3e38) for name, value in safetensors.load(whole).items()}
    safetensors.save_file(tensors, tmp_path / "saturated", metadata=header["__metadata__"])
    scenario = Scenario.from_keys(
        duration="30s",
        link={"rate": "10mbit"},
        flow=[{"kind": "cbr", "rate": "14.6mbit", "rtt": "20ms"}],
    )
    (tmp_path / "flood.toml").write_text(scenario.toml())

    def p95_ms(words: str) -> float:
        done = quell("run", "flood.toml", "--aqm", words, "--json", "-")
        assert done.returncode == 0, done.stderr
        return float(json.loads(done.stdout)["sojourn_ms"]["p95"])

    # p95 is above 5 s: without the guard the queue of 5,000 packets fills.
    assert p95_ms("rlaqm model saturated") > 5000
    assert p95_ms("rlaqm model saturated guard") < 1000


def test_many_flows_do_not_wait_for_seconds_under_the_guard_of_lfq(quell: Quell, tmp_path: Path) -> None:
    scenario = Scenario.from_keys(
        duration="20s",
        warmup="5s",
        link={"rate": "20mbit"},
        flow=[{"kind": "cbr", "rate": "8kbit", "size": 200, "count": 5000}],
    )
    (tmp_path / "flood.toml").write_text(scenario.toml())
    done = quell("run", "flood.toml", "--aqm", "lfq guard", "--json", "-")
    assert done.returncode == 0, done.stderr
    sojourn = json.loads(done.stdout)["sojourn_ms"]
    # An earlier fallback let each flow queue what the link sends in 50 ms, and the mean wait was 5 s.
    assert sojourn["mean"] < 1000, sojourn
