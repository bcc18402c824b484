"""The examples run with the commands in their first lines."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import ROOT
from quell import _core


def test_a_users_own_controller() -> None:
    done = subprocess.run([sys.executable, "examples/aimd.py"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "fifo with AIMD" in done.stdout


def test_a_trace_on_standard_output() -> None:
    command = [sys.executable, "examples/lte_trace.py", "--seconds", "5", "--mbps", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    times = [int(line) for line in done.stdout.splitlines()]
    assert times == sorted(times)
    assert times[-1] == 5000


@pytest.mark.torch
@pytest.mark.parametrize(
    ("needs", "command", "said"),
    [
        ("torch", ["examples/dqn.py", "--steps", "16000"], "reward"),
        ("torch", ["examples/ppo.py", "--steps", "20000"], "reward"),
        ("stable_baselines3", ["examples/sb3_vector.py", "--steps", "4096"], "PPO: return"),
        ("stable_baselines3", ["examples/sb3_dqn.py", "--steps", "300"], "PPO: reward per step"),
        ("stable_baselines3", ["examples/sb3_a2c.py", "--steps", "800"], "A2C, last 1 episodes: reward per step"),
    ],
)
def test_a_learner_trains_or_says_what_to_install(needs: str, command: list[str], said: str, tmp_path: Path) -> None:
    run = [sys.executable, str(ROOT / command[0]), *command[1:]]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    if find_spec(needs) is None:
        assert done.returncode == 1
        assert f"{needs} is missing: " in done.stderr
        pytest.skip(f"{needs} is not installed")
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    for model in tmp_path.glob("*.safetensors"):
        assert _core.queue(f"a3c_l4s model {model}")
