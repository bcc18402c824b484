"""`quell live --cpu`: one loop per processor; loops share one rate exactly, and each flow stays in one loop."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import QUELL_LIVE
from lateness import Lateness
from live_net import Bump, Net, built, require, state, stop

ADDRESSES = 16
# Sends datagrams of 1000 bytes of IP from several addresses with five ports each. For each address there is a number of
# datagrams per second; a second batch of numbers may follow, for the second half of the time. The program has real-time
# priority like the loops, so that other work on the machine does not change its rate. It prints how many it sent.
OFFER = """
import os, socket, sys, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
seconds, batches = float(sys.argv[1]), [[float(x) for x in batch.split(",")] for batch in sys.argv[2].split("/")]
sockets = []
for k in range(len(batches[0]) * 5):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
    s.bind(("10.9.%s.%d" % (sys.argv[3], 100 + k // 5), 4000 + k)); sockets.append(s)
began, sent, last, port = time.monotonic(), [0.0] * len(batches[0]), 0.0, 0
total = 0
while (now := time.monotonic() - began) < seconds:
    rates = batches[min(int(now / seconds * len(batches)), len(batches) - 1)]
    for k in range(len(rates)):
        sent[k] += rates[k] * (now - last)
        while sent[k] >= 1:
            sent[k] -= 1; port = (port + 1) % 5; total += 1
            sockets[5 * k + port].sendto(b"%03d" % k + bytes(969), ("10.9.2.2", 5000))
    last = now
    time.sleep(0.001)
print(total)
"""
# Receives datagrams; skips a time and then counts for another one, both given in seconds. Prints the number counted and
# the time from the first of them to the last, s.
COUNT = """
import socket, sys, time
skip, seconds = float(sys.argv[1]), float(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
s.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
s.bind(("0.0.0.0", 5000)); s.settimeout(20)
print("ready", flush=True)
first, window, order = None, [], {}
while True:
    data, extra, _, peer = s.recvmsg(2000, 64)
    raw = extra[0][2]
    at = int.from_bytes(raw[:8], "little") * 10**9 + int.from_bytes(raw[8:16], "little")
    first = first or at
    if at - first >= skip * 1e9:
        window.append(at)
    if at - first >= (skip + seconds) * 1e9:
        break
print(len(window) - 1, (window[-1] - window[0]) / 1e9)
"""


@pytest.fixture(autouse=True, scope="module")
def able() -> None:
    require()


@pytest.fixture(scope="module")
def cpus() -> str:
    """Return two processors; skip the test on a machine with one, where two loops are impossible."""
    two = sorted(os.sched_getaffinity(0))[:2]
    if len(two) < 2:
        pytest.skip("this machine has one processor")
    return ",".join(map(str, two))


class Wide(Bump):
    """A bump whose interfaces have four queues each."""

    queues = 4


@pytest.fixture
def net() -> Iterator[Net]:
    with built(Net) as made:
        for k in range(ADDRESSES):
            made.ip(f"-n {made.a} addr add 10.9.1.{100 + k}/24 dev v0")
        yield made


@pytest.fixture
def wide() -> Iterator[Wide]:
    with built(Wide) as made:
        for k in range(ADDRESSES):
            made.ip(f"-n {made.a} addr add 10.9.2.{100 + k}/24 dev v0")
        yield made


def rate_mbps(net: Net, offered: str, seconds: float, side: int) -> float:
    """Return the received rate of these offers, with 14 bytes of Ethernet per packet, without the first half second."""
    sink = net.start(net.b, sys.executable, "-c", COUNT, "0.5", str(seconds))
    assert sink.stdout is not None
    sink.stdout.readline()
    source = net.start(net.a, sys.executable, "-c", OFFER, str(seconds + 1.5), offered, str(side))
    text, errors = sink.communicate(timeout=60)
    _, why = source.communicate(timeout=60)
    assert sink.returncode == 0 and source.returncode == 0, errors + why
    count, took = text.split()
    return int(count) * 1014 * 8 / float(took) / 1e6


# 20 Mbit/s are 2465 such datagrams per second. Each list offers half as much again in total; the last one moves from
# one loop to both.
LOADS = {
    "all": [[230] * ADDRESSES],
    "one": [[3700] + [0] * (ADDRESSES - 1)],
    "unequal": [[3300] + [25] * (ADDRESSES - 1)],
    "moving": [[3700] + [0] * (ADDRESSES - 1), [0] + [246] * (ADDRESSES - 1)],
}


# 400 ms of packets for each loop, so that the line stays busy while the machine delays the sender.
BACKLOG = ("--aqm", "pfifo limit 1000")


def offers(load: str) -> str:
    return "/".join(",".join(map(str, batch)) for batch in LOADS[load])


@pytest.mark.real_time
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.machine_root
def test_loops_share_the_rate_to_within_one_percent(net: Net, cpus: str, tmp_path: Path, load: str) -> None:
    command = net.live("--rate", "20mbit", *BACKLOG, "--cpu", cpus, "--status", str(tmp_path / "s"))
    with Lateness() as late:
        rate = rate_mbps(net, offers(load), 3.0, 1)
    look = state(tmp_path / "s")
    code, errors = stop(command)
    print(f"{load}: {rate:.3f} Mbit/s, read by loop {look['read_by_loop']}, missed {look['missed']}")
    assert code == 0, errors
    # On a busy machine the kernel's threads, of normal priority, deliver packets late that left before the 3 s began.
    assert rate == pytest.approx(20, rel=0.01 + late.longest_s / 3), look
    assert sum(look["read_by_loop"]) == look["read"] == look["sent"] + look["dropped"] + look["held"]
    used = sum(read > 100 for read in look["read_by_loop"])
    assert used == 1 if load == "one" else used == 2, look["read_by_loop"]
    assert not net.rules()


@pytest.mark.real_time
@pytest.mark.parametrize("backend", ["af_packet", "af_xdp"])
@pytest.mark.machine_root
def test_in_line_loops_share_the_rate_and_flows_keep_their_order(
    wide: Wide, cpus: str, tmp_path: Path, backend: str
) -> None:
    server = wide.echo()
    words = ("--backend", backend, "--rate", "20mbit", *BACKLOG, "--cpu", cpus, "--status", str(tmp_path / "s"))
    command = wide.in_line(*words)
    with Lateness() as late:
        rate = rate_mbps(wide, offers("all"), 3.0, 2)
    look = state(tmp_path / "s")
    print(f"{backend}: {rate:.3f} Mbit/s, read by loop {look['read_by_loop']}, missed {look['missed']}")
    # On a busy machine the kernel's threads, of normal priority, deliver packets late that left before the 3 s began.
    assert rate == pytest.approx(20, rel=0.01 + late.longest_s / 3), look
    assert min(look["read_by_loop"]) > 100
    assert sum(look["read_by_loop"]) == look["read"] == look["sent"] + look["dropped"] + look["held"]
    assert look["refused"] == look["unsent"] == 0
    deadline = time.monotonic() + 20
    while state(tmp_path / "s")["held"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # One flow, slower than the rate: complete and in order.
    assert [n for n, _ in wide.datagrams(500, gap=0.001)] == list(range(500))
    code, errors = stop(command)
    assert code == 0, errors
    server.kill()
    server.communicate()


@pytest.mark.real_time
@pytest.mark.machine_root
def test_af_xdp_has_one_loop_per_receive_queue_at_most_and_reads_all_queues(
    wide: Wide, cpus: str, tmp_path: Path
) -> None:
    server = wide.echo()
    # One loop for four queues: packets that took the kernel's way would not be counted as read.
    command = wide.in_line("--backend", "af_xdp", "--rate", "100mbit", "--status", str(tmp_path / "s"))
    before = state(tmp_path / "s")["read"]
    done = wide.run(wide.a, sys.executable, "-c", OFFER, "1", ",".join(["60"] * ADDRESSES), "2")
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 10
    while (look := state(tmp_path / "s"))["read"] < before + int(done.stdout):
        assert time.monotonic() < deadline, (look, done.stdout)
        time.sleep(0.05)
    assert int(done.stdout) > 500
    assert "read_by_loop" not in look
    assert stop(command)[0] == 0
    server.kill()
    server.communicate()
    for host, dev in ((wide.a, "ra"), (wide.b, "rb")):
        wide.ip(f"-n {wide.r} link del {dev}")
        wide.ip(f"link add v0 netns {host} type veth peer name {dev} netns {wide.r}")
        wide.ip(f"-n {wide.r} link set {dev} up")
    words = ("--dev", "rb", "--to", "ra", "--backend", "af_xdp", "--no-fail-open", "--rate", "1mbit", "--cpu", cpus)
    command = wide.start(wide.r, QUELL_LIVE, *words)
    assert command.stderr is not None
    assert "of 2 processors 1 are used" in command.stderr.readline()
    stop(command)


def loops(command_pid: int) -> list[int]:
    """Return the thread numbers of the packet loops."""
    found = Path(f"/proc/{command_pid}/task").iterdir()
    return sorted(int(t.name) for t in found if (t / "comm").read_text().strip() == "quell-loop")


@pytest.mark.real_time
@pytest.mark.machine_root
def test_each_loop_stays_on_its_processor_and_status_and_metrics_are_sums(net: Net, cpus: str, tmp_path: Path) -> None:
    words = ("--rate", "20mbit", "--ingress", "20mbit", "--cpu", cpus, "--metrics", "9107")
    command = net.live(*words, "--status", str(tmp_path / "s"))
    assert "--queue-balance" in " ".join(net.rules())
    rate_mbps(net, offers("all"), 1.0, 1)
    on = sorted(sorted(os.sched_getaffinity(thread)) for thread in loops(command.pid))
    assert on == sorted([int(cpu)] for cpu in cpus.split(",") for _ in ("egress", "ingress"))
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9107').read().decode())"
    deadline, before = time.monotonic() + 20, -1
    while True:  # the flood may still arrive, and the hosts send frames of their own between the two readings
        text = net.run(net.r, sys.executable, "-c", ask).stdout
        look = state(tmp_path / "s")
        if look["read"] == before and f'quell_packets_total{{dev="rb",direction="egress"}} {before}\n' in text:
            break
        before = look["read"]
        assert time.monotonic() < deadline, (look["read"], text)
        time.sleep(0.3)
    assert 'quell_queue_failed{dev="rb",direction="egress"} 0\n' in text
    assert look["capacity_mbps"] == 20
    command.send_signal(signal.SIGTERM)
    _, errors = command.communicate(timeout=30)
    # The last lines have the totals, to which frames of the hosts may have been added.
    sums = [int(number) for number in re.findall(r"\b\d+\b", errors)]
    assert any(look["read"] <= number <= look["read"] + 20 for number in sums), (look["read"], errors)
    assert not net.rules()


@pytest.mark.real_time
@pytest.mark.machine_root
def test_a_reload_changes_the_rate_of_all_loops_together(net: Net, cpus: str, tmp_path: Path) -> None:
    config = tmp_path / "live.toml"
    config.write_text('dev = "rb"\nrate = "5mbit"\n')
    command = net.live("--config", str(config), "--cpu", cpus, "--status", str(tmp_path / "s"))
    config.write_text('dev = "rb"\nrate = "15mbit"\naqm = "pfifo limit 1000"\n')
    command.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while state(tmp_path / "s")["capacity_mbps"] != 15:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert rate_mbps(net, offers("all"), 2.0, 1) == pytest.approx(15, rel=0.01)
    code, errors = stop(command)
    assert code == 0, errors


@pytest.mark.real_time
def test_processors_cannot_change_while_it_runs(net: Net, tmp_path: Path) -> None:
    config = tmp_path / "live.toml"
    config.write_text('dev = "rb"\nrate = "5mbit"\n')
    command = net.live("--config", str(config))
    assert command.stderr is not None
    assert "egress: " in command.stderr.readline()
    config.write_text('dev = "rb"\nrate = "5mbit"\ncpu = "0"\n')
    command.send_signal(signal.SIGHUP)
    said = command.stderr.readline()
    assert "not reloaded" in said and "cpu" in said
    assert stop(command)[0] == 0


@pytest.mark.real_time
@pytest.mark.machine_root
def test_while_it_is_stopped_packets_of_every_loop_pass(net: Net, cpus: str, tmp_path: Path) -> None:
    command = net.live("--rate", "20mbit", "--cpu", cpus, "--status", str(tmp_path / "s"))
    assert command.stderr is not None
    # All its rules are made; a firewall program still running would hit its time limit while quell is stopped.
    assert "egress: " in command.stderr.readline()
    command.send_signal(signal.SIGSTOP)
    # Longer than the watchdog waits: then all offered packets pass, far above the rate.
    time.sleep(1)
    rate = rate_mbps(net, offers("all"), 2.0, 1)
    command.send_signal(signal.SIGCONT)
    # On a busy machine a late firewall program may be reported first.
    assert any("stalled" in command.stderr.readline() for _ in range(5))
    deadline = time.monotonic() + 20
    while (look := state(tmp_path / "s"))["stalls"] < 2:
        assert time.monotonic() < deadline, look
        time.sleep(0.05)
    assert rate > 22
    code, errors = stop(command)
    assert code == 0, errors


@pytest.mark.parametrize("wrong", ["0,0", "1-0", "x", "", "99999", "0-40"])
def test_a_list_of_processors_that_is_none_is_one_line_and_status_2(net: Net, wrong: str) -> None:
    command = net.start(net.r, QUELL_LIVE, "--dev", "rb", "--rate", "1mbit", "--cpu", wrong)
    _, errors = command.communicate(timeout=30)
    assert command.returncode == 2
    assert errors.count("\n") == 1 and "--cpu" in errors, errors
    assert not net.rules()
