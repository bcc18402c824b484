"""Training: refusals, results, and written files. All but the first test need torch."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL
from quell import _core, train
from quell._core import InputError
from quell.cli import dispatch as cli
from quell.common import origin
from quell.common.extras import install
from quell.papers import rl_aqm_networks


def test_without_torch_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(InputError, match=f"^training needs torch: {re.escape(install('train'))}$"):
        train.need_torch()


@pytest.fixture
def rl_aqm() -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    from quell.train import rl_aqm

    return rl_aqm


@pytest.mark.torch
def test_the_reward_is_the_papers(rl_aqm: Any) -> None:
    # R(1, 0) = 0.5 + 0.5; R(0, 0) = -0.5 + 0.5; R(1, 5) = 0.5 + 1 - 1.5; R(0, inf) = -0.5 - 1.5.
    paper = rl_aqm.Arguments()
    values = [paper.reward(d, u) for d, u in ((0.0, 1.0), (0.0, 0.0), (5.0, 1.0), (float("inf"), 0.0))]
    assert values == [1.0, 0.0, 0.0, -2.0]
    assert paper.reward(0.0, 0.5) == 0.25
    assert rl_aqm.Arguments(utilisation_power=1).reward(0.0, 0.5) == 0.5
    assert rl_aqm.Arguments(utilisation_weight=4.0).reward(0.0, 1.0) == 2.5
    assert rl_aqm.Arguments(delay_scale_ms=20.0).reward(20.0, 1.0) == 0.0


@pytest.mark.torch
@pytest.mark.parametrize("softmax", [False, True])
def test_the_gradient_is_autograds(rl_aqm: Any, softmax: bool) -> None:
    import torch

    torch.manual_seed(1)
    widths = (3, 3, 32, 32, 5)
    network = rl_aqm.Network(widths, softmax=softmax)
    flat = network.flat.clone().requires_grad_()
    inputs, weights = torch.rand(16, 3), torch.randn(16, 5)
    held = inputs
    for at, (weight, bias) in enumerate(network._views(flat, widths)):
        held = held @ weight.t() + bias
        held = held.relu() if at < 3 else held
    held = held.softmax(dim=-1) if softmax else held
    torch.autograd.backward((held * weights).sum())
    ours = network.forward(inputs)
    network.backward(ours, weights)
    assert torch.allclose(ours[-1], held.detach(), atol=1e-6)
    assert flat.grad is not None and flat.grad.abs().max() > 0.1
    assert torch.allclose(network.gradient, flat.grad, atol=1e-5)


@pytest.mark.torch
def test_a_step_is_adams(rl_aqm: Any) -> None:
    import torch

    learner = rl_aqm.Learner(rl_aqm.Arguments(hidden=(4,)))
    parameter = learner.network.flat.clone().requires_grad_()
    adam = torch.optim.Adam([parameter], lr=1e-3)
    for step in range(1, 50):
        parameter.grad = torch.sin(torch.arange(len(parameter)) * float(step))
        learner.network.gradient.copy_(parameter.grad)
        adam.step()
        learner._descend()
    assert torch.allclose(learner.network.flat, parameter.detach(), atol=1e-6)


@pytest.mark.torch
def test_an_empty_queue_takes_a_tenth_off_and_then_nothing(rl_aqm: Any) -> None:
    learner, rng = rl_aqm.Learner(rl_aqm.Arguments()), random.Random(1)
    learner.best = lambda state: 3
    assert [rl_aqm.act(learner, (0.9, 1.0, p), 1.0, rng) for p in (0.0, 0.3)] == [0, 4]
    assert rl_aqm.act(learner, (1.0, 1.0, 0.3), 0.0, rng) == 3
    explored = [rl_aqm.act(learner, (9.0, 1.0, 0.3), 0.5, rng) for _ in range(1000)]
    # Half of the actions are the network's, 3; the others are drawn, a fifth of them for each action.
    assert all(70 < explored.count(action) < 130 for action in (0, 1, 2, 4))


@pytest.mark.torch
def test_a_simulated_episode_is_what_the_controller_sees_and_does(rl_aqm: Any, tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SHORT)
    arguments = rl_aqm.Arguments(scenario=str(tmp_path / "short.toml"))
    learner = rl_aqm.Learner(arguments)
    scenario = rl_aqm.load(arguments)
    model = rl_aqm.as_file(learner)
    greedy = rl_aqm.simulate((1, 0.0), arguments, scenario, model)
    assert greedy.states.shape == (499, 3)  # 10 s of 20 ms; none at 0 s and at the end
    drops = (greedy.states[:, 2] * 100).round()
    moved = torch_tensor(rl_aqm.STEPS)[greedy.actions.long()]
    assert (drops[1:] == (drops + moved).clamp(0, 50)[:-1]).all()
    full = greedy.states[:, 0] >= 1.0
    said = [learner.best(tuple(state.tolist())) for state in greedy.states[full][:50]]
    assert said == greedy.actions[full][:50].tolist()
    wild = rl_aqm.simulate((1, 1.0), arguments, scenario, model)
    assert set(wild.actions.tolist()) == {0, 1, 2, 3, 4}


def torch_tensor(values: Any) -> Any:
    import torch

    return torch.tensor(values)


@pytest.mark.torch
def test_fits_move_the_taken_action_towards_its_reward(rl_aqm: Any) -> None:
    import torch

    learner = rl_aqm.Learner(rl_aqm.Arguments(hidden=(32, 32), gamma=0.0))
    actions = torch.arange(8001) % 5
    rewards = torch.where(actions == 2, 0.9, -0.5)
    states = torch.tensor([10.0, 1.0, 0.1]).repeat(8001, 1)
    losses = learner.learn(rl_aqm.Episode(states, actions, torch.cat((torch.zeros(1), rewards[:-1]))))
    assert len(losses) == 2000 and losses[-1] < losses[0] / 10
    assert learner.best((10.0, 1.0, 0.1)) == 2


@pytest.mark.torch
def test_as_published_a_fit_per_step_moves_the_taken_action_towards_its_reward(rl_aqm: Any) -> None:
    learner = rl_aqm.Learner(rl_aqm.Arguments(as_published=True, hidden=(32, 32), gamma=0.0))
    state = (10.0, 1.0, 0.1)
    for step in range(2000):
        action = step % 5
        learner.learn_one(state, action, 0.9 if action == 2 else -0.5, state)
    assert learner.best(state) == 2


@pytest.mark.torch
def test_exploring_decays_to_its_floor(rl_aqm: Any) -> None:
    values = [rl_aqm.epsilon(rl_aqm.Arguments(), number) for number in range(60)]
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


Trained = Callable[..., tuple[dict[str, Any], Path]]


@pytest.fixture
def trained(rl_aqm: Any, tmp_path: Path) -> Trained:
    def call(name: str, episodes: int, resume: bool = False, **more: Any) -> tuple[dict[str, Any], Path]:
        (tmp_path / "short.toml").write_text(SHORT)
        arguments = rl_aqm.Arguments(scenario=str(tmp_path / "short.toml"), episodes=episodes, seed=3)
        arguments = dataclasses.replace(arguments, validation_runs=1, **more)
        out = tmp_path / f"{name}.safetensors"
        return rl_aqm.train(arguments, out, resume=resume), out

    return call


def curve(model: Path) -> Any:
    import polars as pl

    # In one read, because polars opens a path several times, and a training may replace the file in between.
    return pl.read_parquet(BytesIO((model.with_name(f"{model.stem}-checkpoints") / "curve.parquet").read_bytes()))


def weights(model: Path) -> list[list[float]]:
    from safetensors.torch import load_file

    return [value.flatten().tolist() for _, value in sorted(load_file(model).items())]


@pytest.mark.torch
def test_training_writes_a_model_with_its_card_and_the_curve(trained: Trained) -> None:
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
    assert curve(path).shape == (3, 7)
    assert (curve(path)["max_delay_ms"] > curve(path)["delay_ms"]).all()


@pytest.mark.torch
@pytest.mark.parametrize("as_published", [False, True])
def test_same_seed_same_weights_and_other_seed_others(trained: Trained, as_published: bool) -> None:
    models = [trained(n, 2, as_published=as_published, seed=s)[1] for n, s in (("a", 3), ("b", 3), ("c", 4))]
    a, b, c = map(weights, models)
    assert a == b != c


@pytest.mark.torch
def test_the_learning_curve_rises(trained: Trained) -> None:
    _, path = trained("model", 60, hidden=(32, 32), epsilon_decay=0.85)
    rewards = curve(path)["reward"].to_list()
    assert sum(rewards[-10:]) / 10 > sum(rewards[:10]) / 10 + 0.1


@pytest.mark.torch
def test_killed_and_resumed_the_weights_are_those_of_an_uninterrupted_training(
    trained: Trained, tmp_path: Path
) -> None:
    call = (
        "import sys; from pathlib import Path; from quell.train import rl_aqm; rl_aqm.train(rl_aqm.Arguments("
        "scenario='short.toml', episodes=100_000, seed=3, validation_runs=1), Path('killed.safetensors'))"
    )
    (tmp_path / "short.toml").write_text(SHORT)
    out = tmp_path / "killed.safetensors"
    process = subprocess.Popen([sys.executable, "-c", call], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        kept = tmp_path / "killed-checkpoints" / "curve.parquet"
        until = time.monotonic() + 300
        while not (kept.exists() and len(curve(out)) >= 4):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until, "no checkpoints within five minutes"
            time.sleep(0.02)
    finally:
        process.kill()  # SIGKILL
        process.communicate()
    episodes = len(curve(out)) + 4
    _, whole = trained("whole", episodes)
    trained("killed", episodes, resume=True)
    assert weights(out) == weights(whole)
    assert curve(out).equals(curve(whole))


@pytest.mark.torch
def test_a_corrected_training_repeats_bit_for_bit_and_continues_from_a_model(tmp_path: Path) -> None:
    from quell.train import rl_aqm_corrected, rl_aqm_links

    small = rl_aqm_corrected.Arguments(rounds=4, links=2, validation=2, nics=(0, 100), senders=("newreno",))

    def train(name: str, rounds: int, **more: Any) -> bytes:
        out = tmp_path / f"{name}.safetensors"
        rl_aqm_corrected.train(dataclasses.replace(small, rounds=rounds), out, **more)
        return out.read_bytes()

    def network(data: bytes) -> bytes:
        return bytes(origin.split(data)[1])

    whole = train("whole", 4)
    assert network(whole) == network(train("again", 4))
    other = train("other", 4, start=whole)
    assert network(other) != network(whole)
    with pytest.raises(InputError, match="--from: not a network of --corrected"):
        train("wrong", 4, start=rl_aqm_networks.pi(0.1, 1.0, 0.0))
    # The model can be used like any other.
    found = rl_aqm_links.judge("rlaqm", rl_aqm_links.link("test", 0, nic=0, seconds=5), 0, model=whole)
    assert -2 < found.reward < 1


@pytest.mark.torch
def test_a_corrected_training_that_was_killed_and_resumed_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    def command(name: str, *more: str) -> list[str]:
        # Five rounds of 24 links; weights are averaged from the third on, and validated after the fourth and the last.
        options = ("--corrected", "--episodes", "120", "--nic", "0", "--hidden", "8", "--out", f"{name}.safetensors")
        return [str(QUELL), "train", "rl-aqm", *options, *more]

    def network(name: str) -> bytes:
        return bytes(origin.split((tmp_path / f"{name}.safetensors").read_bytes())[1])

    subprocess.run(command("whole"), cwd=tmp_path, check=True, capture_output=True)
    process = subprocess.Popen(command("killed"), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 300
        kept = tmp_path / "killed-checkpoints" / "curve.parquet"
        while not (kept.exists() and len(curve(tmp_path / "killed.safetensors")) >= 3):
            assert process.poll() is None and time.monotonic() < until, "no checkpoint"
            time.sleep(0.02)
    finally:
        process.kill()  # SIGKILL
        process.wait()
    assert not (tmp_path / "killed.safetensors").exists()
    subprocess.run(command("killed", "--resume"), cwd=tmp_path, check=True, capture_output=True)
    assert network("killed") == network("whole")
    assert curve(tmp_path / "killed.safetensors").equals(curve(tmp_path / "whole.safetensors"))


def test_a_dqn_refuses_bytes_of_the_wrong_length() -> None:
    inputs = [{"name": name, "offset": 0.0, "scale": 1.0} for name in ("log_delay", "utilisation")]
    head = {"name": "action", "activation": "linear", "outputs": ["drop = 0", "drop = 0.5"]}
    card = {
        "format": 1, "name": "test", "what": "a test", "inputs": inputs, "hidden": ["relu"], "heads": [head],
        "trained_on": "nothing", "seed": 1, "quell": "0", "results": {},
    }  # fmt: skip
    learner = _core.Dqn(json.dumps(card), [4], 1)
    learner.keep(bytes(2 * 4 * 7), bytes(4 * 7))
    for inputs_length, actions_length, message in (
        (2 * 4 * 7 + 1, 4 * 7, "57 bytes are not a whole number of float32"),
        (2 * 4 * 7, 4 * 7 + 3, "31 bytes are not a whole number of float32"),
        (2 * 4 * 6, 4 * 7, "7 actions need 7 rows of 2 inputs, not 12 numbers"),
    ):
        with pytest.raises(InputError, match=message):
            learner.keep(bytes(inputs_length), bytes(actions_length))
    numbers, steps, averaged, baseline = learner.state()
    learner.restore(numbers, steps, averaged, baseline)
    with pytest.raises(InputError, match="not a whole number of float32"):
        learner.restore([*numbers[:-1], numbers[-1] + b"x"], steps, averaged, baseline)


def test_the_command_says_what_is_wrong_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "find_spec", lambda _: None)
    for arguments, line in (
        (["--hidden", "3,x"], "quell: --hidden 3,x: write widths of 1 to 1024, as in 3,32,32\n"),
        ([], f"quell: training needs torch, numpy, safetensors: {install('train')}\n"),
    ):
        assert cli.call(["train", "rl-aqm", *arguments]) == 2
        assert capsys.readouterr().err == line
