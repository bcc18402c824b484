"""quell reads only plain files and pipes, with bounds on memory and time."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from conftest import QUELL

GIB = 1 << 30


def bounded(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run quell with 4 GiB of address space, so that unbounded growth fails without harm to the machine."""
    return subprocess.run(
        [QUELL, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, input=stdin,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * GIB, 4 * GIB)),
    )  # fmt: skip


READERS = [
    ["run", "FILE"],
    ["run", "--trace", "FILE"],
    ["run", "home", "--aqm", "rlaqm model FILE"],
    ["run", "home", "--aqm", "learnqueue table FILE"],
    ["show", "FILE"],
]


@pytest.mark.parametrize(
    ("arguments", "file", "why"),
    [
        *((arguments, "/dev/zero", "it is a device") for arguments in READERS),
        *((arguments, "huge", "it is longer than ") for arguments in READERS),
        (READERS[0], "pipe", "nothing came from this pipe for 10 s"),
        (["run", "home", "--aqm", "hush model pipe"], "pipe", "it is a pipe; name a plain file"),
        (["tune", "pipe.pcap"], "pipe.pcap", "is not a regular file"),
    ],
)
def test_an_endless_input_is_refused_in_a_line(tmp_path: Path, arguments: list[str], file: str, why: str) -> None:
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(3 * GIB)
    for name in ("pipe", "pipe.pcap"):
        os.mkfifo(tmp_path / name)
    done = bounded(tmp_path, *(word.replace("FILE", file) for word in arguments))
    assert done.returncode == 2, done.stderr
    assert file in done.stderr and why in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="no /dev/stdin")
def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    text = '[link]\nrate = "3mbit"\n'
    done = bounded(tmp_path, "run", "/dev/stdin", "--duration", "2s", "--warmup", "0s", stdin=text)
    assert done.returncode == 0, done.stderr
    assert "3mbit; 2 s" in done.stdout
