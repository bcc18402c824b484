"""Several instances at once on one interface, queue or file: one gets it, or each writes it whole; nothing is left."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import QUELL, QUELL_LIVE
from live_net import Net, built, require
from namespace import VETH, Space, space_with
from writers import WRITERS

pytestmark = pytest.mark.real_time

INSTANCES = 6
QUEUES = """
tc qdisc add dev v0 root handle 1: htb default 10
tc class add dev v0 parent 1: classid 1:10 htb rate 8mbit burst 2k
tc qdisc add dev v0 parent 1:10 handle 10: pfifo limit 1000
"""


@pytest.fixture
def space() -> Iterator[Space]:
    with space_with("qt", VETH + QUEUES) as made:
        yield made


def settled(commands: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """Wait until all but one have ended, each refused in a line; return the one that runs."""
    deadline = time.monotonic() + 60
    while len(running := [command for command in commands if command.poll() is None]) > 1:
        assert time.monotonic() < deadline, f"{len(running)} run"
        time.sleep(0.02)
    assert len(running) == 1, [command.communicate()[1] for command in commands]
    for command in commands:
        if command is not running[0]:
            said = command.communicate()[1]
            assert (command.returncode, said.count("\n")) == (2, 1), said
    return running[0]


def test_of_many_that_start_on_one_interface_one_has_it() -> None:
    require()
    with built(Net) as net:
        words = (QUELL_LIVE, "--dev", "rb", "--rate", "8mbit", "--ingress", "8mbit", "--quiet")
        live = settled([net.start(net.r, *words) for _ in range(INSTANCES)])
        deadline = time.monotonic() + 20
        while len(net.rules()) != 2:
            assert time.monotonic() < deadline, net.rules()
            time.sleep(0.02)
        live.terminate()
        assert live.communicate(timeout=30)[1] == ""
        assert (live.returncode, net.rules()) == (0, [])
        assert "nothing to restore" in net.run(net.r, QUELL_LIVE, "--restore").stderr


def limit(space: Space) -> int:
    queues = json.loads(space.run("tc", "-j", "qdisc", "show", "dev", "v0").stdout)
    return int(next(queue["options"]["limit"] for queue in queues if queue["handle"] == "10:"))


def test_of_many_that_steer_one_queue_one_succeeds_and_restores_it(space: Space) -> None:
    words = ("v0", "1:10", "--with", "limit", "--quiet")
    steer = settled([space.start(QUELL_LIVE, "steer", *words, str(100 + k)) for k in range(INSTANCES)])
    deadline = time.monotonic() + 20
    while limit(space) == 1000:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    steer.terminate()
    assert steer.communicate(timeout=20)[1] == ""
    assert (steer.returncode, limit(space)) == (0, 1000)


def test_watch_and_steer_live_with_queues_that_come_and_go(space: Space, tmp_path: Path, long: bool) -> None:
    until = time.monotonic() + (60 if long else 3)
    out = tmp_path / "out.jsonl"
    watches = [
        space.start(QUELL_LIVE, "watch", "v0", "--every", "1ms", "--quiet", *more)
        for more in (("--out", str(out)), ("--json",), ("--flows", "--json"))
    ]
    read = [threading.Thread(target=watch.communicate, daemon=True) for watch in watches]
    for thread in read:
        thread.start()
    steered = 0
    while time.monotonic() < until:
        steer = space.start(QUELL_LIVE, "steer", "v0", "1:10", "30", "--with", "limit", "--every", "1ms", "--quiet")
        for words in (
            "qdisc replace dev v0 parent 1:10 handle 10: bfifo limit 30000",
            "qdisc replace dev v0 parent 1:10 handle 10: pfifo limit 500",
            "class change dev v0 parent 1: classid 1:10 htb rate 4mbit burst 2k",
            "qdisc del dev v0 root",
            "qdisc add dev v0 root handle 1: htb default 10",
            "class add dev v0 parent 1: classid 1:10 htb rate 8mbit burst 2k",
            "qdisc add dev v0 parent 1:10 handle 10: pfifo limit 1000",
        ):
            space.run("tc", *words.split())
        steer.terminate()
        said = steer.communicate(timeout=20)[1]
        assert steer.returncode in (0, 2) and "panicked" not in said and said.count("\n") <= 2, said
        steered += 1
    assert steered >= 2
    for watch in watches:
        assert watch.poll() is None
        watch.terminate()
    for thread in read:
        thread.join(20)
    assert [watch.returncode for watch in watches] == [0, 0, 0]
    lines = out.read_text().splitlines()
    assert len(lines) > 10
    for line in lines:
        json.loads(line)
    assert "nothing to restore" in space.run(QUELL_LIVE, "steer", "--restore").stderr


REPEATED = ("json", "learnqueue")
FILES = [
    *REPEATED,
    *(pytest.param(name, marks=pytest.mark.long) for name in ("html", "parquet", "csv", "flent", "pcap")),
]


@pytest.mark.parametrize("writer", FILES)
def test_concurrent_writers_of_one_file_leave_one_complete_version(tmp_path: Path, writer: str) -> None:
    *words, name = WRITERS[writer]
    seeds = [*words[:2], "--seed", "1"] if words[0] == "run" else words[:2]
    alone = subprocess.run([QUELL, *seeds, *words[2:], tmp_path / name], capture_output=True, timeout=60)
    assert alone.returncode == 0, alone.stderr
    whole = (tmp_path / name).stat().st_size
    for earlier in ("out.curve.csv", "out.last.safetensors"):  # of a training, which would refuse the next one
        (tmp_path / earlier).unlink(missing_ok=True)
    commands = [
        subprocess.Popen(
            [QUELL, *seeds, *words[2:], tmp_path / name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for _ in range(INSTANCES)
    ]
    sizes = set()
    while any(command.poll() is None for command in commands):
        sizes.add((tmp_path / name).stat().st_size)
    codes = [command.wait() for command in commands]
    # A training is refused if it starts after the first run of another one.
    assert 0 in codes and set(codes) <= ({0, 2} if writer == "learnqueue" else {0}), codes
    # CPU times in records, and dates in files of Flent, may differ in length.
    assert all(0.9 * whole < size < 1.1 * whole for size in sizes), (whole, sizes)
    # A training leaves its curve and its last table beside the best one.
    beside = {"out.curve.csv", "out.last.safetensors"} if writer == "learnqueue" else set()
    assert {path.name for path in tmp_path.iterdir()} == {name} | beside


def test_a_second_evaluation_with_the_same_state_is_refused(tmp_path: Path) -> None:
    words = ("evaluate", "--sections", "5.3", "--seeds", "20", "--aqm", "fq_codel", "--jobs", "1", "--state")
    state = tmp_path / "state"
    first = subprocess.Popen([QUELL, *words, state], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while not (state.exists() and state.stat().st_size):
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        second = subprocess.run([QUELL, *words, state], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert first.poll() is None
        assert (second.returncode, second.stderr.count("\n")) == (2, 1), second.stderr
        assert "in use by another evaluation" in second.stderr
    finally:
        first.kill()
        first.communicate()
