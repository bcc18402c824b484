"""`quell live`: what LearnQueue has learned outlives a restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import QUELL_LIVE, Quell
from live_net import Net, built, hears, require, stop, until

WORDS = "learnqueue target 10ms"


class Learning(Net):
    """The router's `quell live` with a folder for what it learns."""

    folder: str

    def learning(self, *more: str, aqm: str = WORDS) -> subprocess.Popen[str]:
        os.environ["STATE_DIRECTORY"] = self.folder
        return self.live("--rate", "1mbit", "--aqm", aqm, *more)


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learning]:
    require()
    monkeypatch.setenv("STATE_DIRECTORY", "")
    (tmp_path / "state").mkdir(mode=0o755)
    with built(Learning) as made:
        made.folder = str(tmp_path / "state")
        yield made


def decisions(quell: Quell, file: Path) -> int:
    """Return how often the table's actions were tried."""
    shown = quell("show", file, "--json", "-")
    assert shown.returncode == 0, shown.stderr
    return sum(sum(row) for row in json.loads(shown.stdout)["visits"])


@pytest.mark.real_time
def test_a_table_outlives_a_restart_and_kill_9(net: Learning, quell: Quell) -> None:
    file = Path(net.folder, "live-rb-egress.safetensors")
    command = net.learning()
    net.datagrams(600, gap=0.004)
    status, errors = stop(command)
    assert status == 0 and "continues" not in errors, errors
    first = decisions(quell, file)
    assert first > 50
    command = net.learning()
    hears(command, f"egress: continues from {file}")
    net.datagrams(600, gap=0.004)
    until(lambda: decisions(quell, file) > first, within=20)
    stop(command, signal.SIGKILL)
    second = decisions(quell, file)
    # Other words are another task; what was learned for these is kept aside.
    old = file.with_suffix(".old")
    command = net.learning(aqm="learnqueue target 5ms")
    hears(command, f'{file}: is of "quell live: rb, egress, {WORDS} guard"; it is now {old}, and egress starts over')
    stop(command)
    assert decisions(quell, old) == second
    file.write_bytes(file.read_bytes()[:100])
    command = net.learning()
    hears(command, f"it is now {old}, and egress starts over")
    assert stop(command)[0] == 0


@pytest.mark.real_time
def test_a_folder_that_cannot_be_used_is_named_and_packets_pass(net: Learning) -> None:
    net.folder = "/proc/quell"
    command = net.learning()
    hears(command, "rb, egress: what it learns is not kept: /proc/quell: ")
    assert len(net.datagrams(20, gap=0.02)) == 20
    status, errors = stop(command)
    assert status == 0 and "not kept" not in errors, errors


@pytest.mark.real_time
def test_what_is_no_table_is_set_aside(net: Learning, tmp_path: Path) -> None:
    file = Path(net.folder, "live-rb-egress.safetensors")
    other = tmp_path / "other"
    other.write_text("of another program")

    def open_to_all() -> None:
        file.touch()
        file.chmod(0o666)

    makers: dict[str, Callable[[], object]] = {
        "is a link": lambda: file.symlink_to(other),
        "is no regular file": lambda: os.mkfifo(file),
        "Is a directory": file.mkdir,
        "is too large": lambda: file.write_bytes(bytes(17 << 20)),
        "other users can write to it": open_to_all,
        "live-rb-egress.safetensors: ": lambda: file.write_bytes(b"\xff" * 100),
    }
    for why, make in makers.items():
        make()
        command = net.learning()
        hears(command, "egress starts over")
        assert stop(command)[0] == 0
        assert not file.is_symlink() and file.is_file(), why
        assert other.read_text() == "of another program"
        aside = file.with_suffix(".old")
        if aside.is_dir():
            aside.rmdir()
        file.unlink()


@pytest.mark.real_time
def test_of_two_processes_the_first_has_the_file(net: Learning) -> None:
    first = net.learning()
    hears(first, "rb: what leaves")
    # Another namespace's interface of the same name.
    for words in ("v0 down", "v0 name rb", "rb up"):
        net.ip(f"-n {net.b} link set {words}")
    second = net.start(net.b, QUELL_LIVE, "--dev", "rb", "--rate", "1mbit", "--aqm", WORDS)
    hears(second, "rb, egress: what it learns is not kept: another quell live has the file")
    assert stop(second)[0] == 0 and stop(first)[0] == 0
    assert sorted(path.name for path in Path(net.folder).iterdir()) == [
        "live-rb-egress.lock",
        "live-rb-egress.safetensors",
    ]
