"""The examples run as their first lines say."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from conftest import ROOT


def test_a_controller_of_ones_own() -> None:
    done = subprocess.run([sys.executable, "examples/aimd.py"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "fifo with AIMD" in done.stdout


def test_a_trace_on_standard_output() -> None:
    command = [sys.executable, "examples/lte_trace.py", "--seconds", "5", "--mbps", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    times = [int(line) for line in done.stdout.splitlines()]
    assert times == sorted(times)
    assert times[-1] == 5000


@pytest.mark.parametrize(
    ("needs", "command", "said"),
    [
        ("torch", ["examples/dqn.py", "--steps", "16000"], "reward"),
        ("stable_baselines3", ["examples/sb3_dqn.py", "--steps", "300"], "PPO: reward per step"),
    ],
)
def test_a_learner_trains_or_says_what_to_install(needs: str, command: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=600)
    if find_spec(needs) is None:
        assert done.returncode == 1
        assert f"{needs} is missing: pip install" in done.stderr
        pytest.skip(f"{needs} is not installed")
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
