"""A queue as an environment: Gymnasium's contract, and one trajectory per seed in all kinds of environments."""

from __future__ import annotations

import inspect
import math
import os
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import quell
from quell.envs import QueueEnv, QueueVectorEnv
from quell.envs.parallel import PathEnv

NAMES = ["quell/RlAqm-v0", "quell/LearnQueue-v0", "quell/Lfq-v0"]
VARY = {"rate": ("5mbit", "20mbit"), "rtt": ("20ms", "80ms"), "flows": (1, 4), "cc": ("cubic", "newreno", "bbr")}


def small(**more: Any) -> QueueEnv:
    options: dict[str, Any] = {"rate": "10mbit", "flows": ["cubic:4"], "duration": "2s", "steps": (0.0, 0.01, -0.01)}
    return quell.env(**(options | more))


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_checker_finds_nothing_to_warn_of(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(name).unwrapped)
        check_env(gymnasium.make(name, vary=VARY).unwrapped)


@pytest.mark.parametrize("more", [{}, {"steps": None}, {"knob": "limit", "steps": None, "reward": "lfq alpha 1"}])
def test_a_general_environment_passes_the_checker(more: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(small(**more), skip_render_check=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("vary", [{}, VARY])
def test_single_environments_and_the_vector_have_equal_trajectories(name: str, vary: Mapping[str, Any]) -> None:
    """Also across ends of episodes: Gymnasium's own vector of single environments resets at the next step, too."""
    n = 5
    source = {"quell/RlAqm-v0": "rl-aqm", "quell/LearnQueue-v0": "home", "quell/Lfq-v0": "lfq"}[name]
    options: dict[str, Any] = {"vary": vary, "duration": "3s", "scenario": source}
    if name == "quell/Lfq-v0":
        options |= {"duration": "1s", "rate": "2mbit"}
    single = SyncVectorEnv([lambda: gymnasium.make(name, **options)] * n, autoreset_mode=AutoresetMode.NEXT_STEP)
    native = gymnasium.make_vec(name, num_envs=n, threads=2, **options)
    assert isinstance(native.unwrapped, QueueVectorEnv)
    draw = np.random.default_rng(1)
    if name == "quell/Lfq-v0":
        actions: Any = draw.uniform(0, 0.6, (450, n, 1)).astype(np.float32)
    else:
        actions = draw.integers(0, single.single_action_space.n, (450, n))  # type: ignore[attr-defined]
    np.testing.assert_equal(single.reset(seed=7)[0], native.reset(seed=7)[0])
    ends = 0
    for action in actions:
        one, other = single.step(action), native.step(action)
        np.testing.assert_equal(one[:4], other[:4])
        ends += int(other[3].sum())
    assert ends >= 2 * n


def test_a_base_probability_drops_classic_packets_by_its_square() -> None:
    losses, delays = [], []
    for p in (0.0, 0.2):
        env = small(
            knob="base_probability", steps=None, observe=["knob", "loss", "arrivals", "delay_ms"], duration="30s"
        )
        env.reset(seed=1)
        knob, loss, arrivals, delay = np.array([env.step([p])[0] for _ in range(1500)]).T
        assert (knob == np.float32(p)).all()
        losses.append((loss * arrivals).sum() / arrivals.sum())
        delays.append(delay.mean())
    # The queue of 10,000 packets does not overflow with four CUBIC flows. RFC 9332: p_C = p'^2 = 0.04, but no drops
    # while less than two full packets are queued.
    assert losses[0] == 0
    assert 0.02 < losses[1] < 0.045
    assert delays[1] < delays[0] / 10


PATH = """
duration = "3s"
[link]
rate = "20mbit"
delay = "2ms"
[[hop]]
rate = "10mbit"
delay = "2ms"
[[hop]]
rate = "8mbit"
delay = "2ms"
[[flow]]
cc = "cubic"
count = 3
rtt = "20ms"
"""


def path(**more: Any) -> PathEnv:
    return quell.parallel_env(PATH, **({"steps": (0.0, 0.01, -0.01)} | more))


@pytest.mark.parametrize("more", [{}, {"steps": None, "knob": "limit", "vary": {"flows": (1, 4)}}])
def test_a_path_passes_pettingzoos_test(more: dict[str, Any]) -> None:
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(path(**more), num_cycles=400)
        parallel_seed_test(lambda: path(**more), num_cycles=100)


def test_every_queue_of_a_path_has_its_own_knob_and_readings() -> None:
    env = path(observe=["knob", "rate_mbps", "backlog_packets", "throughput_mbps"])
    env.reset(seed=1)
    assert env.possible_agents == ["link", "hop1", "hop2"]
    totals = dict.fromkeys(env.agents, 0.0)
    for k in range(100):
        seen, rewards, *_ = env.step({"link": 0, "hop1": 0, "hop2": int(k < 2)})
        totals = {agent: totals[agent] + rewards[agent] for agent in totals}
    assert [seen[agent][0] for agent in env.agents] == [0.0, 0.0, np.float32(0.02)]
    assert [seen[agent][1] for agent in env.agents] == [20.0, 10.0, 8.0]
    assert len(set(totals.values())) == 3
    assert env.readings("hop1")["rate_mbps"] == 10.0
    while env.agents:
        *_, over, _ = env.step(dict.fromkeys(env.agents, 0))
    assert over == {"link": True, "hop1": True, "hop2": True}
    assert env.step({}) == ({}, {}, {}, {}, {})
    assert env.reset()[0]["link"].tolist() == [0.0, 20.0, 0.0, 0.0]


def test_the_narrowest_queue_of_a_path_is_the_one_that_fills() -> None:
    env = path(observe=["backlog_packets"])
    env.reset(seed=1)
    backlogs = np.array([list(env.step(dict.fromkeys(env.agents, 0))[0].values()) for _ in range(150)])
    means = backlogs[:, :, 0].mean(axis=0)
    assert means[2] > 5 * means[0] and means[2] > means[1]


def test_a_path_of_one_queue_is_the_single_environment() -> None:
    single, parallel = (
        small(),
        quell.parallel_env(None, rate="10mbit", flows=["cubic:4"], duration="2s", steps=(0.0, 0.01, -0.01)),
    )
    np.testing.assert_equal(single.reset(seed=4)[0], parallel.reset(seed=4)[0]["link"])
    for k in range(99):
        one, other = single.step(k % 3), parallel.step({"link": k % 3})
        np.testing.assert_equal(one[0], other[0]["link"])
        assert one[1] == other[1]["link"]


def test_a_seed_decides_the_trajectory() -> None:
    def play(seed: int) -> list[Any]:
        env = small()
        env.reset(seed=seed)
        return [env.step(k % 2) for k in range(60)] + [env.reset()] + [env.step(1) for _ in range(60)]

    first = play(3)
    np.testing.assert_equal(first, play(3))
    assert any(not np.array_equal(a[0], b[0]) for a, b in zip(first, play(4), strict=True))


def test_an_episode_of_rl_aqm_has_6000_steps_and_wants_a_reset_then() -> None:
    env = gymnasium.make("quell/RlAqm-v0").unwrapped
    env.reset(seed=1)
    steps = 1
    while not env.step(0)[3]:
        steps += 1
    assert steps == 6000  # 120 s of 20 ms each
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_rl_aqms_reward_follows_from_its_observation() -> None:
    for power in (1, 2):
        env = gymnasium.make("quell/RlAqm-v0", reward_u_power=power)
        env.reset(seed=1)
        for k in range(300):
            (delay, utilisation, p), reward, *_ = env.step(k % 3)
            assert reward == pytest.approx(utilisation**power - 0.5 + 2 / (1 + delay / 5) - 1.5, abs=1e-5)
            assert p in (0.0, np.float32(0.01))


def test_dropping_more_shortens_the_queue() -> None:
    means = []
    for action in (0, 1):
        env = small(steps=(0.0, 0.05), bounds=(0.0, 0.05), duration="10s")
        env.reset(seed=1)
        means.append(np.mean([env.step(action)[0][0] for _ in range(500)]))
    assert means[1] < means[0] / 5


def test_learnqueue_moves_along_the_limits_of_its_queue_word() -> None:
    env = gymnasium.make("quell/LearnQueue-v0", max_size=20)
    assert env.reset(seed=1)[0][0] == 1
    assert env.step(0)[0][0] == 1  # The range ends here.
    assert [int(env.step(1)[0][0]) for _ in range(15)] == [*range(2, 12), 13, 15, 17, 19, 20]
    assert env.step(1)[0][0] == 20
    assert env.step(0)[0][0] == 19


def test_learnqueues_reward_has_the_sign_of_the_action_and_the_published_one_has_not() -> None:
    def play(reward: str, actions: Sequence[int]) -> list[tuple[float, float]]:
        env = gymnasium.make("quell/LearnQueue-v0", reward=reward)
        env.reset(seed=1)
        seen = [env.step(a) for a in actions]
        return [(float(s[0][1]), float(s[1])) for s in seen]

    up = play("learnqueue target 20ms", [1] * 40)
    assert all(reward == pytest.approx(0.5 * (20 - delay), rel=1e-5) for delay, reward in up)
    down = play("learnqueue target 20ms", [0] * 40)
    assert all(reward == pytest.approx(-0.5 * (20 - delay), rel=1e-5) for delay, reward in down)
    # The price of leaving the range is the 738.46 ms that Equation 13's 400 packets take.
    published = play("learnqueue published_reward", [0, 1, 0, 0])
    assert [round(reward, 2) for _, reward in published[2:]] != [-738.46] * 2
    assert [round(reward, 2) for _, reward in published][::3] == [-738.46, -738.46]


def lfq_action(limit: float) -> np.typing.NDArray[np.float32]:
    return np.array([np.log(limit) / np.log(1000)], np.float32)


def test_lfqs_limit_is_set_at_each_tenth_packet_and_bounds_the_queue() -> None:
    env = gymnasium.make("quell/Lfq-v0", vary={}, alpha=0)
    seen, _ = env.reset(seed=1)
    assert seen.shape == (60,)
    assert not seen[:20].any()  # the first packet finds nothing
    total, steps, over = 0.0, 0, False
    while not over:
        seen, reward, _, over, _ = env.step(lfq_action(25))
        total, steps = total + float(reward), steps + 1
    # 15 Mbit/s for 5 s are 9.4 MB, 630 decisions of ten packets of 1498 bytes; slow start and the RTO of 1 s take some.
    assert 6.5 < total < 9.4
    assert steps == pytest.approx(total * 1e6 / 1498 / 10, rel=0.03)
    assert seen[20] == pytest.approx(0.25, rel=1e-3)  # the average of a constant limit is that limit
    assert 0 < seen[0] <= 0.25


def test_a_longer_limit_makes_lfqs_queue_longer_and_costs_by_alpha() -> None:
    def play(limit: float, alpha: float) -> tuple[float, float]:
        env = gymnasium.make("quell/Lfq-v0", vary={}, alpha=alpha)
        env.reset(seed=1)
        total, backlog, over = 0.0, 0.0, False
        while not over:
            seen, reward, _, over, _ = env.step(lfq_action(limit))
            total, backlog = total + float(reward), max(backlog, float(seen[0]))
        return total, backlog

    (short, low), (long, high) = play(20, 10.0), play(200, 10.0)
    assert high > 2 * low
    assert short > long
    assert play(200, 0.01)[0] > long + 1


def test_lfqs_limit_also_goes_by_steps() -> None:
    env = gymnasium.make("quell/Lfq-v0", steps=(-1.0, 1.0))
    assert env.action_space.n == 2  # type: ignore[attr-defined]
    env.reset(seed=1)
    for _ in range(400):
        seen, *_, over, _ = env.step(1)
        if over:
            break
    assert seen[20] > 0.5


def test_a_reward_of_ones_own_sees_every_reading() -> None:
    def reward_function(readings: Mapping[str, float]) -> float:
        return readings["throughput_mbps"] - readings["delay_ms"]

    env = small(reward=reward_function)
    vector = quell.vector_env(
        num_envs=2, rate="10mbit", flows=["cubic:4"], duration="2s", steps=(0.0, 0.01, -0.01), reward=reward_function
    )
    env.reset(seed=5)
    vector.reset(seed=[5, 5])
    for _ in range(101):
        rewards = vector.step(np.array([0, 0]))[1]
        if not env._ready:
            assert rewards.tolist() == [0.0, 0.0]  # this step begins the next episode
            return
        reward = env.step(0)[1]
        assert rewards.tolist() == [reward, reward]
        assert reward == pytest.approx(env.readings["throughput_mbps"] - env.readings["delay_ms"])
    pytest.fail("no episode ended")


def test_arrays_that_a_vector_returned_do_not_change() -> None:
    vector = quell.vector_env("rl-aqm", 3, steps=(0.0, 0.01))
    seen, _ = vector.reset(seed=1)
    vector.step(np.ones(3))
    assert (seen == 0).all()
    seen, rewards, *_ = vector.step(np.ones(3))
    kept = seen.copy(), rewards.copy()
    vector.step(np.ones(3))
    np.testing.assert_equal((seen, rewards), kept)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"knob": "rate"}, "unknown knob `rate`"),
        ({"reward": "money"}, "unknown reward `money`"),
        ({"observe": ["delay"]}, "unknown reading `delay`"),
        ({"vary": {"rtt": ("1ms",)}}, "vary: rtt: not two values"),
        ({"vary": {"cc": ("cubik",)}}, "unknown congestion control `cubik`"),
        ({"queue": "codel"}, "`codel` has no such knob"),
        ({"knob": "base_probability", "queue": "fifo"}, "`fifo` has no such knob"),
        ({"period": 3.0}, "period: "),
        ({"bounds": (0.0, 2.0)}, "bounds: "),
        ({"steps": (1.0,)}, "steps: "),
    ],
)
def test_bad_input_is_told_in_one_line(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(quell.InputError) as caught:
        small(**bad)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_actions_that_do_not_exist_are_refused() -> None:
    env = small()
    env.reset(seed=1)
    with pytest.raises(quell.InputError, match="no action 3"):
        env.step(3)
    vector = quell.vector_env("rl-aqm", 3, steps=(0.0, 0.01))
    vector.reset(seed=1)
    with pytest.raises((ValueError, BufferError)):
        vector.step(np.zeros(2))


def test_names_are_registered_whichever_is_imported_first() -> None:
    for line, name in (
        ("import gymnasium, quell", "quell/RlAqm-v0"),
        ("import quell.envs, gymnasium", "quell/RlAqm-v0"),
        ("import gymnasium", "quell:quell/RlAqm-v0"),
    ):
        code = f"{line}\nprint(gymnasium.make('{name}').unwrapped)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    code = "import quell, sys; quell.scenario('home'); print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"


def test_gymnasium_loads_no_plugins_so_a_bare_name_needs_an_import(tmp_path: Path) -> None:
    """If this fails, Gymnasium loads plugins again, and pyproject.toml can have an entry point."""
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gymnasium.envs]\n__root__ = plugin:register\n")
    (tmp_path / "plugin.py").write_text("import quell.envs\n\ndef register() -> None:\n    pass\n")
    code = """
import importlib.metadata, gymnasium
(found,) = importlib.metadata.entry_points(group="gymnasium.envs")
try:
    gymnasium.make("quell/RlAqm-v0")
except gymnasium.error.NamespaceNotFound:
    found.load()()
    print(gymnasium.make("quell/RlAqm-v0").unwrapped)
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "RlAqmEnv" in done.stdout


@pytest.mark.parametrize("name", ["RlAqm", "LearnQueue", "Lfq"])
def test_a_render_mode_is_refused_with_the_modes_that_there_are(name: str) -> None:
    start = "render_mode: this environment has no mode 'svg': "
    for make, modes in (
        (gymnasium.make, "it is one of ansi, rgb_array"),
        (gymnasium.make_vec, "there are none; leave it out"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's own
            with pytest.raises(quell.InputError, match=start + modes):
                make(f"quell/{name}-v0", render_mode="svg")
        make(f"quell/{name}-v0", render_mode=None).close()


def test_a_wrong_option_of_a_named_environment_is_named() -> None:
    with pytest.raises(quell.InputError, match="unknown keyword `rat`; did you mean `rate`"):
        gymnasium.make("quell/RlAqm-v0", rat="5mbit")
    with pytest.raises(quell.InputError, match="unknown keyword `alpa`; did you mean `alpha`"):
        gymnasium.make("quell/Lfq-v0", alpa=3)


@pytest.mark.parametrize("kind", [QueueEnv, quell.envs.RlAqmEnv, quell.envs.LearnQueueEnv, quell.envs.LfqEnv])
def test_headings_of_the_documentation_have_lines_of_their_own(kind: type) -> None:
    headings = re.findall(r"^## (.+)$", inspect.getdoc(kind) or "", re.MULTILINE)
    expected = ["Description", "Action Space", "Observation Space", "Rewards", "Starting State", "Episode End"]
    assert headings[: len(expected)] == expected
    assert set(headings[len(expected) :]) <= {"Info", "Arguments", "Rendering"}


def test_info_holds_every_reading_of_the_period() -> None:
    env = small()
    _, info = env.reset(seed=1)
    assert set(info) == set(quell.envs.READINGS)
    for _ in range(20):
        seen, _, _, _, info = env.step(0)
    assert info["delay_ms"] == pytest.approx(float(seen[0]), rel=1e-6)
    assert info == env.readings


def test_a_picture_follows_the_delay() -> None:
    env = QueueEnv(quell.envs.make_task(rate="2mbit", flows=["cubic:4"], duration="3s", steps=(0.0, 0.01)), "rgb_array")
    env.reset(seed=1)
    empty = env.render()
    delays = [env.step(0)[4]["delay_ms"] for _ in range(100)]
    picture = env.render()
    assert picture.shape == (240, 400, 3) and picture.dtype == np.uint8
    # The line is red and reaches the panel's top at the longest delay.
    rows = [int(np.flatnonzero((picture[:120, 300 + k] == (200, 60, 40)).all(1)).min()) for k in range(100)]
    assert rows[int(np.argmax(delays))] == 0
    assert np.corrcoef(rows, delays)[0, 1] < -0.99
    assert not (empty == (200, 60, 40)).all(2).any()
    env.reset()
    assert np.array_equal(env.render(), empty)


def test_a_line_of_text_names_the_last_figures() -> None:
    env = gymnasium.make("quell/RlAqm-v0", render_mode="ansi")
    env.reset(seed=1)
    assert env.render() == "no step yet"
    info = [env.step(1)[4] for _ in range(3)][-1]
    assert str(env.render()).endswith(f"delay {info['delay_ms']:.1f} of 20 ms, knob {info['knob']:g}")
    assert gymnasium.make("quell/RlAqm-v0").unwrapped.render() is None


@pytest.mark.torch
def test_stable_baselines3_gets_the_trajectories_of_single_environments() -> None:
    """Also at an episode's end: info has its last observation, and the first of the next episode is returned."""
    pytest.importorskip("stable_baselines3")
    from quell.envs.sb3 import VectorEnv

    options: dict[str, Any] = {"scenario": "rl-aqm", "duration": "1s"}
    vector = VectorEnv("quell/RlAqm-v0", num_envs=3, threads=2, **options)
    vector.seed(5)
    firsts = vector.reset()
    single = gymnasium.make("quell/RlAqm-v0", **options)
    seen, _ = single.reset(seed=6)
    np.testing.assert_equal(firsts[1], seen)
    actions = np.random.default_rng(1).integers(0, 5, (120, 3))
    ends, total = 0, 0.0
    for action in actions:
        rows, rewards, dones, infos = vector.step(action)
        seen, reward, _, over, _ = single.step(action[1])
        total += float(reward)
        assert (rewards[1], dones[1]) == (np.float32(reward), over)
        if over:
            np.testing.assert_equal(infos[1]["terminal_observation"], seen)
            assert infos[1]["TimeLimit.truncated"] and infos[1]["episode"] == {"r": pytest.approx(total), "l": 50}
            seen, total, ends = single.reset()[0], 0.0, ends + 1
        np.testing.assert_equal(np.asarray(rows)[1], seen)
    assert ends == 2
    with pytest.raises(quell.InputError, match="make another vector"):
        vector.set_attr("task", None)
    assert vector.env_method("readings", indices=[2])[0].keys() == quell.envs.READINGS.keys()


# Classic queues in an environment, copies. ----------------------------------------------------------------------------


def episode(env: QueueEnv, seed: int, action: int = 0) -> float:
    env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        _, reward, _, over, _ = env.step(action)
        total += reward
    return total


def test_a_queue_without_a_law_earns_what_an_agent_earns_that_never_acts() -> None:
    env = small(queue="fifo limit 200")
    earned = quell.baseline(env, "fifo limit 200", seeds=[3, 4])
    assert earned.tolist() == pytest.approx([episode(env, 3), episode(env, 4)], rel=1e-12)


def test_a_baseline_is_that_of_the_task_with_its_own_reward_and_variations() -> None:
    paid = small(reward=lambda seen: -seen["delay_ms"], vary=VARY)
    pie, fifo = (quell.baseline(paid, queue, seeds=range(5)) for queue in ("pie", "pfifo limit 1000"))
    assert (pie > fifo).sum() >= 4
    assert quell.baseline(paid, "pie", seeds=range(5), threads=1).tolist() == pie.tolist()
    assert len(set(pie.tolist())) == 5
    # A learned queue can also be a baseline.
    assert np.isfinite(quell.baseline(small(), "rlaqm")).all()


def test_a_baseline_of_what_cannot_have_one_is_refused() -> None:
    with pytest.raises(quell.InputError, match="is not one of quell's environments"):
        quell.baseline(gymnasium.make("CartPole-v1"), "pie")
    with pytest.raises(quell.InputError, match="LFQ's reward"):
        quell.baseline(gymnasium.make("quell/Lfq-v0"), "pie")
    with pytest.raises(quell.InputError, match="piee"):
        quell.baseline(small(), "piee")


@pytest.mark.parametrize("kind", ["single", "vector"])
def test_a_clone_continues_as_the_original_and_separately(kind: str) -> None:
    env: Any
    if kind == "single":
        env, actions = small(vary=VARY), list[Any]([1, 2, 1, 0])
    else:
        env, actions = QueueVectorEnv(small(vary=VARY).task, 5, threads=2), [np.full(5, a) for a in (1, 2, 1, 0)]
    env.reset(seed=7)
    env.step(actions[0])
    other = env.clone()

    def run(one: Any) -> list[Any]:
        seen: list[Any] = []
        for action in actions * 20:
            observations, rewards, *_ = one.step(action)
            seen += [np.asarray(observations).tolist(), np.asarray(rewards).tolist()]
        return seen

    first = run(other)
    assert run(env) == first
    if kind == "single":
        assert env.reset()[0].tolist() == other.reset()[0].tolist()
        assert env.np_random.random() == other.np_random.random()


def test_a_pickled_environment_comes_back_as_it_was_made() -> None:
    env = gymnasium.make("quell/RlAqm-v0", duration="2s").unwrapped
    assert isinstance(env, QueueEnv)
    expected = episode(env, 5, action=1)
    env.reset(seed=9)
    copy = pickle.loads(pickle.dumps(env))
    with pytest.raises(ResetNeeded):
        copy.step(0)
    assert copy.spec == env.spec
    assert episode(copy, 5, action=1) == expected


@pytest.mark.parametrize("action", [2.5, math.nan, "1", None])
def test_an_action_must_be_an_index(action: Any) -> None:
    env = small()
    env.reset(seed=1)
    with pytest.raises(TypeError, match="an action is an index"):
        env.step(action)
    many = QueueVectorEnv(env.task, 2)
    many.reset(seed=1)
    with pytest.raises(TypeError, match="actions are indices"):
        many.step([action, action])
