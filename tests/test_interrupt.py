"""Ctrl-C and SIGTERM: quell answers at once and keeps finished runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import QUELL
from lateness import Lateness


def interrupt(
    arguments: list[str], folder: Path, after: float | None, simulated: float = 0.4, number: int = signal.SIGINT
) -> tuple[float, int, str, str]:
    """Start quell and interrupt it, as Ctrl-C does by default; return seconds to the end, exit status, output, errors.

    The signal comes after `after` seconds or, if that is None, `simulated` seconds after the simulation's threads have
    started.
    """
    process = subprocess.Popen(
        [QUELL, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        if after is None:
            deadline = time.monotonic() + 30
            while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        time.sleep(simulated if after is None else after)
        assert process.poll() is None, "it ended before it could be interrupted"
        assert list(folder.glob("*.json")) == [], "nothing is written before the end"
        process.send_signal(number)
        sent = time.monotonic()
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            # Before quell's first line runs, Python may report that it ignored the signal; then send it again.
            assert after is not None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        return time.monotonic() - sent, process.returncode, out, err
    finally:
        process.kill()


COMPARE = ["compare", "--rate", "100mbit", "--aqm", "pfifo", "--aqm", "codel", "--seeds", "20000", "--duration", "6s"]


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_finished_runs_are_reported_and_saved(tmp_path: Path, number: int) -> None:
    for seconds in (0.4, 2.0, 10.0):  # on a busy machine it takes longer until a run has finished
        for old in tmp_path.iterdir():
            old.unlink()
        words = [*COMPARE, "--json", "runs.json", "--html", "report.html"]
        _, status, out, err = interrupt(words, tmp_path, after=None, simulated=seconds, number=number)
        assert status == 130, err
        if "pfifo" in out:
            break
    assert "Traceback" not in err
    assert "interrupted" in err
    assert "pfifo" in out
    records = json.loads((tmp_path / "runs.json").read_text())
    assert f"{len(records)} of 40000 runs had finished" in err
    assert len(records) > 0
    assert "Interrupted" in (tmp_path / "report.html").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "runs.json"]


@pytest.mark.real_time
def test_a_long_run_is_left_at_once(tmp_path: Path) -> None:
    # The best of several tries counts, as other work on the machine can delay quell.
    arguments = ["run", "--rate", "1gbit", "--duration", "100000s", "--json", "run.json"]
    waits: list[float] = []
    with Lateness() as late:
        while not waits or (min(waits) >= 0.2 and len(waits) < 10):
            wait, status, _, err = interrupt(arguments, tmp_path, after=None)
            assert status == 130
            assert err == "quell: interrupted: 0 of 1 runs had finished and were kept\n"
            waits.append(wait)
    assert min(waits) < late.allowed_s(0.2), waits
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real_time
@pytest.mark.parametrize("after", [0.02, 0.05, 0.1, 0.2])
def test_an_early_interrupt_leaves_no_traceback(tmp_path: Path, after: float) -> None:
    _, status, _, err = interrupt(COMPARE, tmp_path, after)
    # Before quell's first line runs, Python reacts; while modules load, the signal itself ends the process.
    assert status in (130, -signal.SIGINT, 1)
    assert not re.search(r"python/quell/(?!__init__|__main__)", err)


@pytest.mark.real_time
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name are POSIX's")
@pytest.mark.parametrize("option", ["--pcap", "--parquet", "--csv"])
def test_the_wait_for_a_pipes_reader_can_be_interrupted(tmp_path: Path, option: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ["run", "--rate", "1mbit", "--duration", "1s", option, "pipe"]
    for seconds in (2.0, 8.0):  # on a busy machine quell and polars take longer to load
        wait, status, _, err = interrupt(words, tmp_path, after=seconds)
        if status == 130:
            break
    assert (status, err.strip()) == (130, "")
    assert wait < 1
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.real_time
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name are POSIX's")
def test_a_pipe_with_a_reader_gets_the_whole_capture(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ["run", "--rate", "1mbit", "--duration", "1s", "--pcap"]
    process = subprocess.Popen([QUELL, *words, pipe], stdout=subprocess.DEVNULL)
    try:
        captured = pipe.read_bytes()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
    subprocess.run([QUELL, *words, tmp_path / "file"], stdout=subprocess.DEVNULL, check=True)
    assert captured == (tmp_path / "file").read_bytes()
