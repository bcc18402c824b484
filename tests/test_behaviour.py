"""Descriptions of a network by `quell show`: actions, sensitivity, constants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import ROOT, Quell
from quell.papers import rl_aqm, rl_aqm_more
from quell.results import behaviour
from quell.train import coupled

MODELS = ROOT / "crates" / "quell-link" / "models"


def network(name: str) -> behaviour.Network:
    return behaviour.Network(name, (MODELS / name).read_bytes())


def test_a_network_whose_weights_are_zero_is_a_constant() -> None:
    rule = behaviour.Network("rule", rl_aqm_more.always_more())
    (head,) = behaviour.over(rule, behaviour.grid(rule))
    assert head.constant
    assert head.actions is not None
    assert head.actions["drop +0.1"] == 1
    assert set(head.sensitivity.values()) == {0}
    fixed = behaviour.Network("p'", coupled.constant(0.1))
    mean, spread = behaviour.over(fixed, behaviour.grid(fixed))
    assert mean.constant and spread.constant
    assert mean.values == pytest.approx((-0.8, -0.8, -0.8))


@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.glob("*.safetensors")))
def test_every_shipped_network_is_shown(quell: Quell, name: str) -> None:
    done = quell("show", str(MODELS / name))
    assert "over a grid of the inputs" in done.stdout


def test_rl_aqm_as_published_is_a_constant_and_the_default_is_not() -> None:
    for name, constant in (("rl-aqm-as-published", True), ("rl-aqm", False), ("rl-aqm-throughput", False)):
        found = network(f"{name}.safetensors")
        where, rows = behaviour.recorded(found)
        assert where == "the built-in scenario rl-aqm"
        for points in (behaviour.grid(found), rows):
            (head,) = behaviour.over(found, points)
            assert head.constant == constant
            assert head.actions is not None
            assert sum(head.actions.values()) == pytest.approx(1)
    # The paper's scenario above a device of 100 packets, as in the rows of Figure 6.
    scenario = rl_aqm.scenario_of((10, 20), rl_aqm_more.MEASURED_NIC)
    assert len(behaviour.action_counts(scenario, "rlaqm as_published")) == 1
    assert len(behaviour.action_counts(scenario, "rlaqm")) > 1


def test_sensitivity_names_the_input_that_decides() -> None:
    """The shipped A3C network follows the delay."""
    found = network("a3c-l4s.safetensors")
    (action,) = behaviour.over(found, behaviour.grid(found))
    ordered = sorted(action.sensitivity, key=lambda name: -action.sensitivity[name])
    assert ordered[0] == "ln_qdelay"


def test_show_prints_what_a_network_does(quell: Quell, tmp_path: Path) -> None:
    done = quell("show", str(MODELS / "rl-aqm-as-published.safetensors"), "--json", "policy.json")
    assert done.returncode == 0
    assert "action over a grid of the inputs (4096 points): constant: drop +0.1 100.0 %" in done.stdout
    written = json.loads((tmp_path / "policy.json").read_text())
    assert [head["constant"] for head in written["behaviour"]] == [True, True]
