"""The examples run as their first lines say."""

import subprocess
import sys

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
