"""`quell live`: what a queue has learned survives a restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import QUELL_LIVE, Quell
from live_net import Net, built, require, state, stop, until, wait_for_output

WORDS = "learnqueue target 10ms"
OTHER = "learnqueue target 5ms"
NETWORK = "rlaqm period 1ms learn"
"""A thousand decisions per second: the first network of the learner comes after three seconds."""
CONFIGS = {
    WORDS: 'dev = "rb"\nrate = "1mbit"\naqm = "learnqueue target 10ms"\n',
    OTHER: 'dev = "rb"\nrate = "1mbit"\naqm = "learnqueue target 5ms"\n',
    "fq_codel": 'dev = "rb"\nrate = "1mbit"\naqm = "fq_codel"\n',
}


FLOWS = """
import socket, time
flows = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(60)]
until = time.monotonic() + 600
while time.monotonic() < until:
    for flow in flows:
        flow.sendto(bytes(100), ("10.9.2.2", 5000))
        time.sleep(0.0015)
"""


class Learning(Net):
    """A router whose `quell live` has a folder for what it learns."""

    folder: str

    def files(self) -> dict[str, Path]:
        """Return the files in it by their queue words."""
        found = {}
        for path in Path(self.folder).glob("live-rb-egress*.safetensors"):
            text = path.read_bytes().decode("latin-1")
            found[text.partition("quell live: rb, egress, ")[2].partition('\\"')[0]] = path
        return found

    def file(self, words: str = WORDS) -> Path:
        return self.files()[f"{words} guard"]

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
    command = net.learning()
    net.datagrams(600, gap=0.004)
    status, errors = stop(command)
    assert status == 0 and "continues" not in errors, errors
    file = net.file()
    first = decisions(quell, file)
    assert first > 50
    command = net.learning()
    wait_for_output(command, f"egress: continues from {file}")
    net.datagrams(600, gap=0.004)
    until(lambda: decisions(quell, file) > first, within=20)
    stop(command, signal.SIGKILL)
    second = decisions(quell, file)
    # Other queue words have a file of their own.
    command = net.learning(aqm="learnqueue target 5ms")
    wait_for_output(command, "rb: egress: ")
    assert stop(command)[0] == 0
    assert decisions(quell, file) == second and len(net.files()) == 2
    net.file("learnqueue target 5ms").replace(file)
    command = net.learning()
    old = file.with_suffix(".old")
    theirs = "quell live: rb, egress, learnqueue target 5ms guard"
    wait_for_output(command, f'{file}: is of "{theirs}"; it is now {old}, and egress starts over')
    assert stop(command)[0] == 0
    file.write_bytes(file.read_bytes()[:100])
    command = net.learning()
    wait_for_output(command, f"it is now {old}, and egress starts over")
    assert stop(command)[0] == 0


def networks(file: Path) -> tuple[bytes, bytes]:
    """Return the weights of the networks of `rlaqm learn`: in force, and newest."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8 : 8 + size]), data[8 + size :]
    force, newest = (tensors[slice(*header[name]["data_offsets"])] for name in ("champion", "newest"))
    return force, newest


def learner(command: subprocess.Popen[str]) -> Path:
    """Return the folder in /proc of the thread that learns."""
    tasks = Path(f"/proc/{command.pid}/task")

    def found() -> list[Path]:
        return [task for task in tasks.iterdir() if (task / "comm").read_text().strip() == "quell-learn"]

    until(lambda: bool(found()))
    return found()[0]


@pytest.mark.slow  # the learner only gets processor time that nothing else needs
@pytest.mark.real_time
def test_a_network_learns_and_outlives_kill_9(net: Learning, quell: Quell) -> None:
    command = net.learning(aqm=NETWORK)
    assert len(net.datagrams(300, gap=0.004)) > 0
    # The file is written after five seconds, then each minute.
    until(lambda: f"{NETWORK} guard" in net.files(), within=30)
    file = net.file(NETWORK)
    until(lambda: len(set(networks(file))) == 2, within=150)
    stop(command, signal.SIGKILL)
    learned = networks(file)
    shown = quell("show", file)
    assert f"learned in quell live: rb, egress, {NETWORK} guard" in shown.stdout, shown.stdout + shown.stderr
    # A file as it is left by a process that is killed while it writes.
    file.with_suffix(".part").write_bytes(b"half")
    command = net.learning(aqm=NETWORK)
    wait_for_output(command, f"egress: continues from {file}")
    assert stop(command)[0] == 0
    assert networks(file)[1] == learned[1]
    file.write_bytes(file.read_bytes()[:-1])
    command = net.learning(aqm=NETWORK)
    wait_for_output(command, f"it is now {file.with_suffix('.old')}, and egress starts over")
    until(file.exists, within=30)
    assert stop(command)[0] == 0
    assert not file.with_suffix(".part").exists()


@pytest.mark.slow  # the learner only gets processor time that nothing else needs
@pytest.mark.real_time
def test_actor_and_critic_of_lfq_outlive_kill_9(net: Learning, quell: Quell) -> None:
    def batches() -> int:
        shown = quell("show", file, "--json", "-")
        assert shown.returncode == 0, shown.stderr
        return int(json.loads(shown.stdout)["card"].get("batches", 0))

    command = net.learning(aqm="lfq learn")
    flows = net.start(net.a, sys.executable, "-c", FLOWS)
    until(lambda: "lfq learn guard" in net.files(), within=30)
    file = net.file("lfq learn")
    # Files are written each minute; a batch of 40 experiments takes about ten seconds.
    until(lambda: batches() > 0, within=150)
    stop(command, signal.SIGKILL)
    learned = batches()
    shown = quell("show", file)
    assert "lfq learn guard" in shown.stdout and f"{learned} batches" in shown.stdout, shown.stdout + shown.stderr
    command = net.learning(aqm="lfq learn")
    wait_for_output(command, f"egress: continues from {file}")
    until(lambda: batches() > learned, within=150)
    assert stop(command)[0] == 0
    flows.kill()
    flows.communicate()


@pytest.mark.slow  # the learner only gets processor time that nothing else needs
@pytest.mark.real_time
def test_a_network_keeps_what_it_has_learned_over_a_reload(net: Learning, tmp_path: Path) -> None:
    config, status = tmp_path / "live.toml", tmp_path / "status"

    def told(aqm: str, rate: str) -> None:
        config.write_text(CONFIGS["fq_codel"].replace("fq_codel", aqm).replace("1mbit", rate))

    def reload(aqm: str, rate: str, queue: str) -> None:
        told(aqm, rate)
        command.send_signal(signal.SIGHUP)
        wait_for_output(command, "reloaded: ")
        until(lambda: state(status)["queue"] == queue)

    told("fq_codel", "1mbit")
    os.environ["STATE_DIRECTORY"] = net.folder
    command = net.live("--config", str(config), "--status", str(status))
    wait_for_output(command, "rb: egress: ")
    until(status.exists)
    # The learner's thread starts with the first queue that learns.
    reload(NETWORK, "1mbit", f"{NETWORK} guard")
    learner(command)
    until(lambda: f"{NETWORK} guard" in net.files(), within=90)
    file = net.file(NETWORK)
    until(lambda: len(set(networks(file))) == 2, within=150)
    reload(NETWORK, "2mbit", f"{NETWORK} guard")
    reload("fq_codel", "2mbit", "fq_codel")
    reload(NETWORK, "1mbit", f"{NETWORK} guard")
    assert stop(command)[0] == 0
    assert len(set(networks(file))) == 2


@pytest.mark.slow  # the learner only gets processor time that nothing else needs
@pytest.mark.real_time
def test_a_learner_uses_at_most_a_twentieth_of_a_cpu_and_only_an_idle_one(net: Learning) -> None:
    command = net.learning(aqm="rlaqm period 100us learn")
    task = learner(command)

    def used() -> int:
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    until(lambda: used() > 0, within=60)
    assert os.sched_getscheduler(int(task.name)) == os.SCHED_IDLE
    before, begin = used(), time.monotonic()
    assert len(net.datagrams(500, gap=0.01)) > 0
    time.sleep(5)
    share = (used() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)
    assert share < 0.07, share
    assert stop(command)[0] == 0


@pytest.mark.real_time
def test_networks_that_do_not_fit_the_disk_are_named_and_packets_pass(net: Learning, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=755", "none", str(disk)])
    assert mounted.returncode == 0
    try:
        net.folder = str(disk)
        command = net.learning(aqm=NETWORK)
        assert len(net.datagrams(20, gap=0.02)) == 20
        wait_for_output(command, "rb, egress: what it learns is not kept: ")
        assert len(net.datagrams(20, gap=0.02)) == 20
        assert stop(command)[0] == 0
        assert not list(disk.glob("*.safetensors"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.real_time
def test_words_that_change_by_a_reload_keep_their_tables(net: Learning, quell: Quell, tmp_path: Path) -> None:
    config, status = tmp_path / "live.toml", tmp_path / "status"

    def told(words: str) -> None:
        config.write_text(CONFIGS[words])

    def reload(words: str) -> None:
        told(words)
        command.send_signal(signal.SIGHUP)
        wait_for_output(command, "reloaded: ")
        words = words if words == "fq_codel" else f"{words} guard"
        until(lambda: state(status)["queue"] == words)

    def start() -> subprocess.Popen[str]:
        os.environ["STATE_DIRECTORY"] = net.folder
        return net.live("--config", str(config), "--status", str(status))

    told(WORDS)
    command = start()
    net.datagrams(600, gap=0.004)
    reload("fq_codel")
    reload(WORDS)
    reload(OTHER)
    assert stop(command)[0] == 0
    first = decisions(quell, net.file())
    assert first > 50
    before = net.file(OTHER).read_bytes()
    # After a reload the file of the new words is read.
    told("fq_codel")
    command = start()
    told(WORDS)
    command.send_signal(signal.SIGHUP)
    wait_for_output(command, f"egress: continues from {net.file()}")
    until(lambda: state(status)["queue"] == f"{WORDS} guard")
    assert stop(command)[0] == 0
    assert decisions(quell, net.file()) >= first
    assert net.file(OTHER).read_bytes() == before


@pytest.mark.real_time
def test_the_files_of_the_words_used_last_are_kept(net: Learning) -> None:
    for number in range(10):
        command = net.learning(aqm=f"learnqueue target {number + 2}ms")
        wait_for_output(command, "rb: egress: ")
        assert stop(command)[0] == 0
    assert set(net.files()) == {f"learnqueue target {number + 2}ms guard" for number in range(2, 10)}


@pytest.mark.real_time
def test_a_table_that_cannot_be_read_is_not_replaced(net: Learning) -> None:
    command = net.learning()
    wait_for_output(command, "rb: egress: ")
    assert stop(command)[0] == 0
    file = net.file()
    table = file.read_bytes()
    file.chmod(0)
    os.environ["STATE_DIRECTORY"] = net.folder
    # Root without permission to read every file.
    rights = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--")
    command = net.start(net.r, *rights, QUELL_LIVE, "--dev", "rb", "--rate", "1mbit", "--aqm", WORDS)
    wait_for_output(command, f"rb, egress: what it learns is not kept: {file}: Permission denied")
    wait_for_output(command, "rb: egress: ")
    file.chmod(0o600)
    status, errors = stop(command)
    assert status == 0 and "could not be read at first; the next start continues from it" in errors, errors
    assert file.read_bytes() == table
    command = net.learning()
    wait_for_output(command, f"egress: continues from {file}")
    assert stop(command)[0] == 0


@pytest.mark.real_time
def test_a_folder_that_cannot_be_used_is_named_and_packets_pass(net: Learning) -> None:
    net.folder = "/proc/quell"
    command = net.learning()
    wait_for_output(command, "rb, egress: what it learns is not kept: /proc/quell: ")
    assert len(net.datagrams(20, gap=0.02)) == 20
    status, errors = stop(command)
    assert status == 0 and "not kept" not in errors, errors


@pytest.mark.real_time
def test_an_invalid_table_is_set_aside(net: Learning, tmp_path: Path) -> None:
    command = net.learning()
    wait_for_output(command, "rb: egress: ")
    assert stop(command)[0] == 0
    file = net.file()
    file.unlink()
    other = tmp_path / "other"
    other.write_text("of another program")

    def open_to_all() -> None:
        file.touch()
        file.chmod(0o666)

    makers: dict[str, Callable[[], object]] = {
        "is a link": lambda: file.symlink_to(other),
        "is not a regular file": lambda: os.mkfifo(file),
        "Is a directory": file.mkdir,
        "is too large": lambda: file.write_bytes(bytes(17 << 20)),
        "other users can write to it": open_to_all,
        f"{file.name}: ": lambda: file.write_bytes(b"\xff" * 100),
    }
    for why, make in makers.items():
        make()
        command = net.learning()
        wait_for_output(command, "egress starts over")
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
    wait_for_output(first, "rb: egress: ")
    # An interface of the same name in another namespace.
    for words in ("v0 down", "v0 name rb", "rb up"):
        net.ip(f"-n {net.b} link set {words}")
    second = net.start(net.b, QUELL_LIVE, "--dev", "rb", "--rate", "1mbit", "--aqm", WORDS)
    wait_for_output(second, "rb, egress: what it learns is not kept: another quell live has the file")
    # The second ends later, but does not touch what the first has written.
    wait_for_output(second, "rb: egress: ")
    assert stop(first)[0] == 0
    table = net.file().read_bytes()
    status, errors = stop(second)
    assert status == 0 and "the next start continues from it" in errors, errors
    assert net.file().read_bytes() == table
    names = {path.name for path in Path(net.folder).iterdir()}
    assert names == {"live-rb-egress.lock", net.file().name}


@pytest.mark.real_time
def test_interfaces_that_exclude_each_other_say_so(net: Learning) -> None:
    for index in (500, 15_500):
        net.ip(f"-n {net.r} link add d{index} index {index} type veth peer name e{index}")
        net.ip(f"-n {net.r} link set d{index} up")
    first = net.live("--rate", "1mbit", dev="d500")
    wait_for_output(first, "d500: egress: ")
    second = net.run(net.r, QUELL_LIVE, "--dev", "d15500", "--rate", "1mbit")
    assert second.returncode == 2
    assert "or on an interface whose index differs by a multiple of 15000" in second.stderr
    assert stop(first)[0] == 0
