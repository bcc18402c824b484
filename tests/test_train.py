"""Training: what it refuses, what it learns, what it writes. All but the first need torch."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quell import cli, train
from quell._core import InputError
from quell.control import Gauges


def test_without_torch_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(InputError, match=r"^training needs torch: pip install 'quell\[train\]'$"):
        train.need_torch()


@pytest.fixture
def rl_aqm() -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    from quell.train import rl_aqm

    return rl_aqm


def test_the_reward_is_the_papers(rl_aqm: Any) -> None:
    # R(1, 0) = 0.5 + 0.5; R(0, 0) = -0.5 + 0.5; R(1, 5) = 0.5 + 1 - 1.5; R(0, inf) = -0.5 - 1.5.
    values = [rl_aqm.reward(d, u) for d, u in ((0.0, 1.0), (0.0, 0.0), (5.0, 1.0), (float("inf"), 0.0))]
    assert values == [1.0, 0.0, 0.0, -2.0]


def gauges(now: float, backlog: int, sent: int, rate: int = 10_000_000) -> Gauges:
    zero: Any = dict.fromkeys(Gauges.__annotations__, 0)
    return zero | {"now": now, "backlog_bytes": backlog, "departed_bytes": sent, "rate_bps": rate}  # type: ignore[no-any-return]


def test_the_state_is_delay_in_ms_utilisation_and_drop(rl_aqm: Any) -> None:
    observe = rl_aqm.Observer()
    assert observe(gauges(0.02, 12_500, 25_000), 0.3) == (10.0, 1.0, 0.3)
    delay, utilisation, _ = observe(gauges(0.04, 12_500, 37_500, rate=0), 0.3)  # an outage keeps the rate
    assert (delay, utilisation) == (10.0, pytest.approx(0.5))


def test_an_empty_queue_takes_a_tenth_off_and_then_nothing(rl_aqm: Any) -> None:
    learner = rl_aqm.Learner(rl_aqm.Arguments())
    learner.best = lambda state: 3
    agent = rl_aqm.Agent(learner, random.Random(1), 0.0, learning=False)
    busy = [agent.decide(gauges(0.02 * n, 30_000, 0))["drop"] for n in range(1, 8)]
    idle = [agent.decide(gauges(0.02 * n, 0, 0))["drop"] for n in range(8, 15)]
    assert busy == [0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5]
    assert idle == [0.4, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("as_published", [False, True])
def test_fits_move_the_taken_action_towards_its_reward(rl_aqm: Any, as_published: bool) -> None:
    learner = rl_aqm.Learner(rl_aqm.Arguments(as_published=as_published, hidden=(32, 32), gamma=0.0))
    state = (10.0, 1.0, 0.1)
    for step in range(2000):
        action = step % 5
        learner.learn(state, action, 0.9 if action == 2 else -0.5, state)
    assert learner.best(state) == 2


def test_a_loss_that_is_not_finite_stops_training(rl_aqm: Any) -> None:
    learner = rl_aqm.Learner(rl_aqm.Arguments(batch=1, fit_every=1))
    with pytest.raises(FloatingPointError, match="the last checkpoint is good"):
        learner.learn((1.0, 1.0, 0.0), 0, float("nan"), (1.0, 1.0, 0.0))


def test_exploring_decays_to_its_floor(rl_aqm: Any) -> None:
    values = list(rl_aqm.epsilons(rl_aqm.Arguments(episodes=60)))
    assert values[:2] == [0.9, pytest.approx(0.81)]
    assert values[42] > 0.01 and values[43:] == [0.01] * 17  # 0.9^44 = 0.0097


SHORT = """
duration = "10s"
[link]
rate = "10mbit"
queue = "pie"
[[flow]]
cc = "newreno"
count = 4
rtt = "20ms"
"""


@pytest.fixture
def trained(rl_aqm: Any, tmp_path: Path) -> Callable[..., tuple[dict[str, Any], Path]]:
    def call(name: str, episodes: int, **more: Any) -> tuple[dict[str, Any], Path]:
        (tmp_path / "short.toml").write_text(SHORT)
        arguments = rl_aqm.Arguments(scenario=str(tmp_path / "short.toml"), episodes=episodes, seed=3)
        arguments = dataclasses.replace(arguments, validation_runs=1, **more)
        return rl_aqm.train(arguments, tmp_path / f"{name}.safetensors"), tmp_path / f"{name}.safetensors"

    return call


def test_training_writes_a_model_with_its_card_and_a_checkpoint_per_episode(
    trained: Callable[..., tuple[dict[str, Any], Path]],
) -> None:
    card, path = trained("model", 3)
    from safetensors import safe_open

    with safe_open(str(path), "pt") as file:
        assert json.loads(file.metadata()["quell"]) == card
        assert file.get_tensor("heads.0.weight").shape == (5, 32)
    assert card["inputs"] == [
        {"name": "delay_ms", "scale": 0.02},
        {"name": "utilisation", "scale": 1.0},
        {"name": "drop", "scale": 2.0},
    ]
    folder = path.with_name("model-checkpoints")
    assert len(list(folder.glob("episode-*.safetensors"))) == 3
    assert len((folder / "episodes.jsonl").read_text().splitlines()) == 3


def test_same_seed_same_weights(trained: Callable[..., tuple[dict[str, Any], Path]]) -> None:
    from safetensors.torch import load_file

    (_, first), (_, second) = trained("first", 2), trained("second", 2)
    a, b = load_file(first), load_file(second)
    assert all(a[name].equal(b[name]) for name in a)


def test_the_learning_curve_rises(trained: Callable[..., tuple[dict[str, Any], Path]]) -> None:
    _, path = trained("model", 30, hidden=(32, 32), epsilon_decay=0.8)
    lines = (path.with_name("model-checkpoints") / "episodes.jsonl").read_text().splitlines()
    rewards = [json.loads(line)["reward"] for line in lines]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1


def test_the_command_says_what_is_wrong_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "find_spec", lambda _: None)
    for arguments, line in (
        (["--hidden", "3,x"], "quell: --hidden 3,x: write widths of 1 to 1024, as in 3,32,32\n"),
        ([], "quell: training needs torch, numpy, safetensors: pip install 'quell[train]'\n"),
    ):
        assert cli.call(["train", "rl-aqm", *arguments]) == 2
        assert capsys.readouterr().err == line
