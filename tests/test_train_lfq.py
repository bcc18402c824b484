"""Training LFQ: its steps, its curve, files after a kill, its evaluation. All but the first test need torch."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL
from quell import train
from quell._core import InputError
from quell.cli import dispatch as cli
from quell.common.extras import install
from quell.train import flows


def test_without_torch_one_line_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "find_spec", lambda name: None if name == "torch" else object())
    assert cli.call(["train", "lfq"]) == 2
    assert capsys.readouterr().err == f"quell: training needs torch: {install('train')}\n"


@pytest.fixture
def lfq() -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    from quell.train import lfq

    return lfq


def batch(lfq: Any, label: float, other: float, reward: float) -> Any:
    import torch

    def four(value: float) -> Any:
        return torch.full((4,), value)

    return lfq.Batch(
        torch.full((4, 60), 0.1), four(label), four(other), four(reward), torch.full((4, 5), 1.0), whole=True
    )


def predicted(learner: Any) -> float:
    import torch

    with torch.no_grad():
        return float(learner.actor(torch.full((1, 60), 0.1)))


@pytest.mark.torch
def test_offline_the_network_is_drawn_towards_the_better_limit(lfq: Any) -> None:
    learner = lfq.Learner(lfq.Arguments())
    losses = [learner.learn(batch(lfq, 9.0, 0.0, 1.0)) for _ in range(300)]
    assert losses[0] == pytest.approx(9.0, abs=0.5), "the mean absolute error of a prediction near 0"
    assert predicted(learner) == pytest.approx(9.0, abs=1.0)


@pytest.mark.torch
def test_online_the_network_is_drawn_away_from_what_the_critic_finds_bad(lfq: Any) -> None:
    learner = lfq.Learner(lfq.Arguments(online=True))
    assert learner.critic is not None
    # The critic expects about 0 at first, so a reward of 1 is good: the taken limit becomes the aim.
    good = [learner.learn(batch(lfq, 9.0, 11.0, 1.0)) for _ in range(3)]
    assert good[0] == pytest.approx(9.0, abs=0.5)
    # The critic learns to expect 1; then 0 is bad, and the other side becomes the aim.
    for _ in range(300):
        learner.learn(batch(lfq, 9.0, 9.0, 1.0))
    before = predicted(learner)
    loss = learner.learn(batch(lfq, before - 2.0, before + 2.0, 0.0))
    assert loss == pytest.approx(2.0, abs=0.1)
    assert predicted(learner) > before


@pytest.mark.torch
def test_a_critic_with_hindsight_and_replay_foresees_what_features_do_not_tell(lfq: Any) -> None:
    import torch

    torch.manual_seed(3)
    means = []
    for more in ({}, {"hindsight": True, "replay": 4}):
        learner = lfq.Learner(lfq.Arguments(online=True, critic_rate=1e-3, **more))
        missed = []
        for _ in range(150):
            # Equal features; the reward depends only on the link's rate.
            draws = torch.rand(40, 5) * torch.tensor([25e6, 0.02, 6.0, 2.0, 1.0])
            reward = draws[:, 0] / 10e6
            four = torch.full((40,), 9.0)
            batch = lfq.Batch(torch.full((40, 60), 0.1), four, four, reward, draws, whole=True)
            with torch.no_grad():
                missed.append(float((learner.critic(learner._read(batch))[:, 0] - reward).abs().mean()))
            learner.learn(batch)
        means.append(sum(missed[-20:]) / 20)
        assert learner.remembered == (40 * 150 if more else 0)
    blind, seeing = means
    assert blind > 0.5 and seeing < 0.1, means


def small(lfq: Any, **more: Any) -> Any:
    """Short flows and large steps: seconds instead of minutes."""
    return dataclasses.replace(lfq.Arguments(duration_s=1.5, learning_rate=0.05, seed=5), **more)


@pytest.mark.torch
def test_the_learning_curve_rises(lfq: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    monkeypatch.setattr(lfq, "WINDOW", 200)
    out = tmp_path / "model.safetensors"
    card = lfq.train(small(lfq, flows=1600), out, points=2)
    curve = pl.read_parquet(tmp_path / "model-checkpoints" / "curve.parquet")
    assert curve["step"].to_list() == list(range(200, 1601, 200))
    rewards, limits = curve["reward"].to_list(), curve["prediction"].to_list()
    # The limit rises from one packet, with which a flow leaves a quarter of the link unused, to a few.
    assert sum(rewards[-2:]) > sum(rewards[:2]) + 0.2
    assert limits[0] < 3 < limits[-1] < 40
    assert all(len(row) == lfq.BINS for row in curve["prediction_bic_by_rtt"].to_list())
    # The queue word takes the model, and its card tells how it was trained.
    assert card["results"]["flows"] == 1600 and card["results"]["throughput_mbps"] > 10
    assert (
        "quell train lfq --alpha 0.01 --flows 1600 --seed 5 --learning-rate 0.05 --duration 1.5" in card["trained_on"]
    )
    from safetensors import safe_open

    with safe_open(str(out), "pt") as file:
        assert json.loads(file.metadata()["quell"]) == card


@pytest.mark.torch
@pytest.mark.parametrize(
    ("online", "sent"), [(False, signal.SIGKILL), (True, signal.SIGINT)], ids=["offline killed", "online interrupted"]
)
def test_stopped_and_resumed_the_weights_are_those_of_an_uninterrupted_run(
    lfq: Any, tmp_path: Path, online: bool, sent: signal.Signals
) -> None:
    import polars as pl
    from safetensors.torch import load_file

    # Online with everything that critic and actor keep.
    more = {"actor_rate": 2e-4, "critic_rate": 1e-3, "replay": 2, "hindsight": True} if online else {}
    arguments = lfq.Arguments(alpha=10.0, online=online, flows=1200, duration_s=0.5, checkpoint_every=80, **more)
    whole, killed = tmp_path / "whole.safetensors", tmp_path / "killed.safetensors"
    lfq.train(arguments, whole, points=2)
    words = [
        "train",
        "lfq",
        "--alpha",
        "10",
        "--duration",
        "0.5",
        *(
            ["--online", "--actor-rate", "2e-4", "--critic-rate", "1e-3", "--replay", "2", "--hindsight"]
            if online
            else []
        ),
    ]
    process = subprocess.Popen(
        [QUELL, *words, "--out", killed, "--checkpoint-every", "80"], stderr=subprocess.PIPE, text=True
    )
    last = tmp_path / "killed-checkpoints" / "last.pt"
    try:
        deadline = time.monotonic() + 60
        while not last.exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        process.send_signal(sent)
        _, err = process.communicate(timeout=60)
    assert not killed.exists()
    if sent == signal.SIGINT:
        assert process.returncode == 130
        assert err.startswith("quell: interrupted; the last checkpoint, ") and err.endswith(
            "continue with --resume\n"
        ), err
    lfq.train(arguments, killed, resume=True, points=2)
    first, second = load_file(whole), load_file(killed)
    assert first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)
    curves = [pl.read_parquet(tmp_path / f"{name}-checkpoints" / "curve.parquet") for name in ("whole", "killed")]
    assert curves[0]["step"].to_list() == [1000] and curves[0].equals(curves[1])


OWN = """
def paper(flow):
    return flow.rate_mbyte_s - 10 * flow.queue_packets * 1446 / 1e6

def small(flow):
    return -flow.limit_packets

def broken(flow):
    return 1 / 0

def unbounded(flow):
    return float("inf")
"""


@pytest.mark.torch
def test_a_reward_of_ones_own_labels_the_sides(lfq: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rewards.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)

    def learned(reward: str, **more: Any) -> tuple[Any, Any]:
        learner = lfq.Learner(lfq.Arguments(**{"alpha": 10.0, "duration_s": 0.5, "reward": reward, **more}))
        return learner.experiments(7), learner.experiments(400)

    for more in ({}, {"online": True}):
        for usual, own in zip(learned("queue", **more), learned("own_rewards:paper", **more), strict=True):
            assert usual.label.equal(own.label)
            assert usual.reward == pytest.approx(own.reward)
    # Always the lower side, although it loses throughput.
    assert not any((batch.label == batch.other).any() for batch in learned("own_rewards:small"))
    # With costly delay, the lower side is nearly always better.
    labels = [float((batch.label < batch.other).float().mean()) for batch in learned("delay", alpha=1e4)]
    assert min(labels) > 0.8, labels


@pytest.mark.torch
@pytest.mark.parametrize(
    ("reward", "says"),
    [
        ("speed", "--reward speed: write queue, delay or module:name, a function in Python"),
        ("no_such_module:f", "--reward no_such_module:f: cannot import no_such_module: ModuleNotFoundError: "),
        ("own_rewards:nothing", "--reward own_rewards:nothing: own_rewards has no function `nothing`"),
        ("own_rewards:broken", "--reward own_rewards:broken: ZeroDivisionError: division by zero, of Readings("),
        ("own_rewards:unbounded", "--reward own_rewards:unbounded: gave inf, of Readings("),
    ],
)
def test_an_error_of_a_reward_is_one_line(
    reward: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_rewards.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert cli.call(["train", "lfq", "--reward", reward, "--flows", "20", "--duration", "0.5"]) == 2
    told = capsys.readouterr().err
    assert f"quell: {says}" in told and told.count("quell: ") == 1 and "Traceback" not in told
    assert not (tmp_path / "lfq.safetensors").exists()


@pytest.mark.torch
def test_a_training_continues_from_a_model(lfq: Any, tmp_path: Path) -> None:
    from safetensors.torch import load

    shipped = (Path(__file__).parents[1] / "crates/quell-link/models/lfq-offline-10.safetensors").read_bytes()
    out = tmp_path / "next.safetensors"
    card = lfq.train(lfq.Arguments(alpha=10.0, flows=20, duration_s=0.5), out, start=shipped, points=2)
    assert 5 < card["results"]["limit_bic"] < card["results"]["limit_newreno"]
    before, after = load(shipped), load(out.read_bytes())
    assert not all(before[name].equal(after[name]) for name in before)
    with pytest.raises(InputError, match="--from: not a network of quell train lfq"):
        lfq.Learner(lfq.Arguments(paper_weights=True)).start_from(shipped)


@pytest.mark.torch
def test_flows_spread_over_a_cluster_give_the_same_batch(lfq: Any) -> None:
    from quell.experiments.executor import Executor

    class Cluster(Executor):
        parts = 0
        cores = 3

        def map(self, function: Any, items: Any, *shared: Any) -> list[Any]:
            self.parts = len(items)
            return super().map(function, items, *shared)

    learner, cluster = lfq.Learner(lfq.Arguments(duration_s=0.5)), Cluster()
    here, there = learner.experiments(7), learner.experiments(7, cluster)
    assert cluster.parts == 3 and here.whole == there.whole
    for name in ("features", "label", "other", "reward", "draws"):
        assert getattr(here, name).equal(getattr(there, name)), name


@pytest.mark.torch
def test_a_resumed_training_with_other_options_is_refused(
    lfq: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.safetensors"
    lfq.train(lfq.Arguments(flows=20, duration_s=0.5), out, points=2)
    assert cli.call(["train", "lfq", "--alpha", "10", "--duration", "0.5", "--out", str(out), "--resume"]) == 2
    assert capsys.readouterr().err.endswith(
        "was trained with alpha 0.01, not 10.0; give the same options or another --out\n"
    )


def test_the_evaluation_is_the_papers() -> None:
    # FqCoDel of Table VII on a fifth of its points: 13.7 Mbit/s, 15.4 packets on average, 155.4 at most.
    results = flows.evaluate("fq_codel noecn", points=20)
    assert results["throughput_mbps"] == pytest.approx(13.7, rel=0.03)
    assert results["backlog_packets"] == pytest.approx(15.4, rel=0.1)
    assert results["backlog_max_packets"] == pytest.approx(155.4, rel=0.05)
    assert results.keys() == {"throughput_mbps", "backlog_packets", "backlog_max_packets"}
    still = flows.evaluate("lfq limit 15", points=2)
    assert (still["limit_newreno"], still["limit_bic"], still["correlation_bic_rtt"]) == (15.0, 15.0, None)
