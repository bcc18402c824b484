"""`quell train a3c-l4s`: training works, one worker gives the same result again, and nothing is lost."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from quell import _core
from quell._core import InputError
from quell.cli import dispatch as cli
from quell.experiments import experiment
from quell.train import coupled

pytest.importorskip("torch", reason="torch is not installed")

import torch
from safetensors.torch import load_file

from quell.train import a3c, asynchronous, kit, worlds
from quell.train.a3c import Arguments

SMALL: dict[str, Any] = {"workers": 1, "episodes": 4, "steps": 40, "testbed": True}


def weights(path: Path) -> dict[str, list[float]]:
    """Read a model's numbers."""
    return {name: tensor.flatten().tolist() for name, tensor in load_file(path).items()}


@pytest.mark.torch
def test_one_worker_gives_the_same_network_each_time_and_continues_where_it_stopped(tmp_path: Path) -> None:
    a3c.train(Arguments(**SMALL), tmp_path / "whole.safetensors")
    a3c.train(Arguments(**SMALL), tmp_path / "again.safetensors")
    assert weights(tmp_path / "whole.safetensors") == weights(tmp_path / "again.safetensors")
    a3c.train(Arguments(**{**SMALL, "episodes": 2}), tmp_path / "part.safetensors")
    a3c.train(Arguments(**SMALL), tmp_path / "part.safetensors", resume=True)
    last = [
        pl.read_parquet(tmp_path / f"{name}-checkpoints" / "curve.parquet").drop("step") for name in ("whole", "part")
    ]
    assert last[0].equals(last[1])


@pytest.fixture
def few_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "WORLDS", 6)
    monkeypatch.setattr(coupled, "CHOICE", [(10.0, 20.0, 2)])


@pytest.mark.torch
@pytest.mark.usefixtures("few_worlds")
def test_worlds_give_the_same_network_each_time_and_continue_where_they_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = worlds.Arguments(episodes=14)
    whole = worlds.train(chosen, tmp_path / "whole.safetensors")
    assert (whole["results"]["settings"], len(whole["inputs"])) == (1, worlds.READINGS)
    play = asynchronous.Workers.play

    def killed(self: asynchronous.Workers, number: int) -> list[asynchronous.EpisodeMeans]:
        if number == 12:
            raise MemoryError
        return play(self, number)

    # After ten batches each world has been replaced once; a resumed training simulates the present ones again.
    monkeypatch.setattr(asynchronous.Workers, "play", killed)
    with pytest.raises(MemoryError):
        worlds.train(chosen, tmp_path / "part.safetensors")
    monkeypatch.setattr(asynchronous.Workers, "play", play)
    worlds.train(chosen, tmp_path / "part.safetensors", resume=True)
    assert weights(tmp_path / "whole.safetensors") == weights(tmp_path / "part.safetensors")


@pytest.mark.torch
@pytest.mark.usefixtures("few_worlds")
def test_worlds_continue_from_a_model(tmp_path: Path) -> None:
    models = Path(__file__).parents[1] / "crates/quell-link/models"
    shipped = (models / "a3c-l4s.safetensors").read_bytes()
    out = tmp_path / "next.safetensors"
    held = worlds.Arguments(episodes=1, actor_rate=0.0)
    card = worlds.train(held, out, start=shipped)
    assert weights(out) == weights(models / "a3c-l4s.safetensors")
    for mine, its in zip(card["inputs"], json.loads(_core.Policy("shipped", shipped).card)["inputs"], strict=True):
        assert mine == {**its, "offset": pytest.approx(its["offset"]), "scale": pytest.approx(its["scale"])}
    with pytest.raises(InputError, match="trained with from None, not "):
        worlds.train(worlds.Arguments(episodes=1), tmp_path / "other.safetensors")
        worlds.train(worlds.Arguments(episodes=1), tmp_path / "other.safetensors", start=shipped, resume=True)
    with pytest.raises(InputError, match="--from: not a network of many worlds"):
        worlds.train(held, out, start=(models / "rl-aqm.safetensors").read_bytes())


@pytest.mark.torch
@pytest.mark.usefixtures("few_worlds")
def test_worlds_of_two_processes_make_one_network_that_is_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    worlds.train(worlds.Arguments(workers=2, episodes=2), path)
    curve = pl.read_parquet(tmp_path / "m-checkpoints" / "curve.parquet")
    assert [len(r) for r in curve["rewards"]] == [2] * 2
    scenario = _core.Scenario("l4s", duration="3s")
    words = f"a3c_l4s model {path} guard"
    (record,) = experiment.run_each([(scenario, experiment.Job(words, 1, None))], lambda r: r)
    assert record["guard"]["learned"] > 50


@pytest.mark.torch
def test_an_action_is_what_the_queue_makes_of_it(tmp_path: Path) -> None:
    """The trainer decodes actions like the queue: without drops, a constant action gives the same p' in both."""
    networks = worlds.Networks()
    networks.flat.zero_()
    for action in (-1.5, -0.4, 0.3):
        with torch.no_grad():
            list(networks.actor.parameters())[-1].fill_(action)
        tensors = networks.tensors()
        scale = worlds.Scaling(np.zeros(worlds.READINGS, np.float32), np.ones(worlds.READINGS, np.float32))
        path = tmp_path / "m.safetensors"
        path.write_bytes(kit.model_bytes(tensors, worlds.card(worlds.Arguments(), scale, {})))
        scenario = coupled.router(10, 20, 4, both_ways=False, duration_s=4)
        p = float(worlds.probability(np.array([action], np.float32))[0])
        constant = tmp_path / "c.safetensors"
        constant.write_bytes(coupled.constant(p))
        jobs = [(scenario, experiment.Job(f"a3c_l4s model {m}", 1, None)) for m in (path, constant)]
        learned, held = experiment.run_each(jobs, lambda r: r["sojourn_ms"]["mean"])
        assert learned == pytest.approx(held, rel=0.02)


@pytest.mark.torch
def test_idleness_costs_and_a_backlog_that_lasts_is_not_idleness() -> None:
    free, priced = (worlds.Worlds(seed=1, worker=0, count=4, idle_price=price) for price in (0.0, 100.0))
    p = np.full(free.busy.shape, 0.3, np.float32)
    idle = 0
    for _ in range(300):
        before = free.backlog_ms.copy()
        free.step(p)
        priced.step(p)
        paid = (free.reward - priced.reward).max(axis=1)
        waited = np.minimum(before, free.backlog_ms) > 0
        assert (paid[waited] == 0).all()
        assert ((paid >= 0) & (paid <= 100)).all()
        idle += int((paid > 50).sum())
    assert idle > 0


@pytest.mark.torch
def test_two_workers_share_one_network_whose_reward_rises(tmp_path: Path) -> None:
    fast: dict[str, Any] = {"actor_rate": 2e-3, "critic_rate": 4e-3, "start": "random"}
    tables: dict[str, Any] = {"environment": "lookup", "reward": "rtt"}
    a3c.train(Arguments(workers=2, episodes=60, steps=50, **tables, **fast), tmp_path / "m.safetensors")
    curve = pl.read_parquet(tmp_path / "m-checkpoints" / "curve.parquet")
    assert [len(r) for r in curve["rewards"]] == [2] * 60
    first, last = curve["reward"][:8].mean(), curve["reward"][-8:].mean()
    assert isinstance(first, float) and isinstance(last, float)
    assert last > first + 0.06, curve["reward"].to_list()


@pytest.mark.torch
def test_a_trained_network_is_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    a3c.train(Arguments(**SMALL), path)
    words = f"a3c_l4s model {path} pairs 2 guard"
    scenario = _core.Scenario("l4s", duration="6s")
    (record,) = experiment.run_each([(scenario, experiment.Job(words, 1, None))], lambda r: r)
    assert record["queue"] == words
    assert record["guard"]["learned"] == record["guard"]["decisions"] > 300


@pytest.mark.torch
def test_the_lookup_environment_gives_the_row_whose_probability_is_nearest() -> None:
    trace = coupled.record(1, 0, published=True, duration_s=6.0)
    table = coupled.Lookup(1, 0, trace)
    table.begin(0)
    highest = int(trace.readings[:, 1].argmax())
    step = table.step(np.array([1.0], np.float32))
    assert step.readings[0, 1] == trace.readings[highest, 1]
    assert step.delay_ms[0] == trace.delay_ms[highest]


@pytest.mark.torch
def test_actions_are_probabilities_in_the_scaling_of_the_card() -> None:
    scale = a3c.scaling(Arguments(p_max=0.5), [])
    assert scale.probability(np.array([-1, 0, 1], np.float32)).tolist() == pytest.approx([0, 0.25, 0.5])


@pytest.mark.torch
def test_the_sets_held_out_share_no_scenario_with_those_that_something_was_chosen_by() -> None:
    drawn = [*coupled.HELD_OUT, *coupled.FEW_FLOWS]
    assert len(drawn) == 72
    assert not set(drawn) & {*coupled.GRID, *coupled.VALIDATION}
    for mbps, rtt, flows in drawn:
        assert 1 <= mbps <= 100 and 10 <= rtt <= 100 and 1 <= flows <= 20
    assert coupled.HELD_OUT[:2] == [(3.6, 97, 13), (2.0, 11, 20)], "they were drawn once and stay as they are"


@pytest.mark.torch
def test_a_constant_is_a_queue_that_holds_its_probability(tmp_path: Path) -> None:
    delays = []
    for p in (0.02, 0.3):
        path = tmp_path / f"{p}.safetensors"
        path.write_bytes(coupled.constant(p))
        scenario = coupled.router(10, 20, 4, both_ways=False, duration_s=8)
        (outcome,) = experiment.run_each([(scenario, experiment.Job(f"a3c_l4s model {path}", 1, None))], lambda r: r)
        delays.append(outcome["sojourn_ms"]["mean"])
    assert delays[1] < 0.5 * delays[0]


@pytest.mark.torch
def test_rewards_are_those_of_the_options() -> None:
    ones = np.ones(1, np.float32)
    step = coupled.Step(np.zeros((1, 12), np.float32), ones > 0, 50 * ones, 0.1 * ones, 0.8, over=False)
    assert Arguments(reward="rtt", reward_scale=15).rewards(step)[0] == pytest.approx((-7.5 + 8) / 8)
    assert Arguments(weights=(1, 2, 3)).rewards(step)[0] == pytest.approx(0.8 - 2 * math.log(6) - 3 * 0.1)


@pytest.mark.torch
def test_a_world_without_sub_queues_or_with_bad_probabilities_is_refused() -> None:
    scenario = coupled.router(10, 20, 2, both_ways=True, duration_s=2)

    def worlds(n: int = 2, queue: str = "l4s", port: int = 0) -> _core.CoupledQueues:
        return _core.CoupledQueues([scenario] * n, queue, range(n), observation="linear", port=port)

    with pytest.raises(InputError, match="no sub-queues"):
        worlds(queue="pie")
    with pytest.raises(InputError, match="there is no queue 2; choose 0 to 1"):
        worlds(port=2)
    with pytest.raises(InputError, match="differ in number: 1 and 2"):
        _core.CoupledQueues([scenario], "l4s", [1, 2], observation="linear")
    with pytest.raises(InputError, match="there is no world"):
        worlds(0)
    with pytest.raises(InputError, match="6 sub-queues"):
        worlds().step(np.full(12, math.nan, np.float32).tobytes())
    with pytest.raises(InputError, match="6 probabilities for each of 2 worlds, not 6"):
        worlds().step(np.zeros(6, np.float32).tobytes())


@pytest.mark.torch
@pytest.mark.parametrize(
    "words",
    [
        ["--environment", "moon"],
        ["--reward", "fame"],
        ["--weights", "1,2"],
        ["--weights", "1,2,x"],
        ["--steps", "9"],
        ["--testbed"],
        ["--idle-price", "9", "--environment", "loop"],
        ["--from", "m.safetensors", "--environment", "loop"],
    ],
)
def test_bad_options_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["train", "a3c-l4s", *words]) == 2
    told = capsys.readouterr().err
    assert words[0] in told and told.count("\n") == 1
