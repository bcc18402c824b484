"""Completion of values, through the same environment variables that shells use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import QUELL


def completed(line: str, folder: Path) -> list[str]:
    words = line.split(" ")
    environment = os.environ | {
        "_QUELL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run([QUELL], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("quell comp", ["compare"]),
        ("quell compare --aqm fq_p", ["fq_pie"]),
        ("quell live --aqm dual", ["dualpi2"]),
        ("quell compare wifi-h", ["wifi-house"]),
        ("quell compare --trace builtin:lte-", ["builtin:lte-up"]),
        ("quell compare --flow cub", ["cubic"]),
        ("quell compare --flow video_", ["video_call"]),
        ("quell reproduce learnq", ["learnqueue"]),
        ("quell optimum --knob d", ["drop"]),
        ("quell queues cob", ["cobalt"]),
        ("quell scenarios street", ["street-cabinet"]),
        ("quell live --dev l", ["lo"]),
        ("quell compare my", ["my-links/", "my.toml"]),
        ("quell compare my-links/", ["my-links/one.toml"]),
        ("quell compare nosuch", []),
    ],
)
def test_values_are_completed(line: str, values: list[str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").touch()
    (tmp_path / "my.txt").touch()
    (tmp_path / "my-links").mkdir()
    (tmp_path / "my-links/one.toml").touch()
    if "--dev" in line and not Path("/sys/class/net/lo").exists():
        pytest.skip("there is no /sys/class/net with an interface lo")
    found = completed(line, tmp_path)
    assert found == values


def test_options_of_a_queue_are_completed_behind_its_name() -> None:
    from quell import complete

    assert [words for words, _ in complete.words("codel int")] == ["codel interval"]
    assert [words for words, _ in complete.words("codel target 5ms no")] == ["codel target 5ms noecn"]
    assert complete.words("nosuch l") == []
