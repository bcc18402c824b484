"""`quell steer --with clsact`: fates of packets, leftovers, and other programs' filters."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import QUELL_LIVE, ROOT
from live_net import until
from namespace import Space, space_with

ORACLE = Path(os.environ.get("QUELL_ORACLE", ROOT.parent / "shared/oracle/oracle"))
QUEUES = """
ip link add v0 type veth peer name v1
ip addr add 10.7.0.1/24 dev v0
ip addr add fd07::1/64 dev v0 nodad
ip link set v0 up
ip link set v1 up
ip neigh replace 10.7.0.2 lladdr 02:00:00:00:00:01 dev v0 nud permanent
ip neigh replace fd07::2 lladdr 02:00:00:00:00:01 dev v0 nud permanent
tc qdisc add dev v0 root handle 1: htb default 10
tc class add dev v0 parent 1: classid 1:10 htb rate 80mbit
tc qdisc add dev v0 parent 1:10 handle 10: pfifo limit 1000
"""
BRIDGED = """
ip link add v0 type veth peer name v1
ip link add w0 type veth peer name w1
ip link add bridge type bridge
ip link set v0 master bridge
ip link set w1 master bridge
ip addr add 10.7.0.1/24 dev w0
ip addr add fd07::1/64 dev w0 nodad
for dev in v0 v1 w0 w1 bridge; do ip link set $dev up; done
ip neigh replace 10.7.0.2 lladdr 02:00:00:00:00:01 dev w0 nud permanent
ip neigh replace fd07::2 lladdr 02:00:00:00:00:01 dev w0 nud permanent
tc qdisc add dev v0 root pfifo
"""
"""A bridge from w1 to v0."""
SEND = """
import socket, sys, time
address, count, tos = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
six = ":" in address
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
s.setsockopt(*((socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if six else (socket.SOL_IP, socket.IP_TOS)), tos)
for k in range(count):
    s.sendto(bytes([k & 255] * 50), (address, 9))
    if k % 50 == 49:
        time.sleep(0.002)
"""
CATCH = """
import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
s.bind(("v1", 0))
print("ready", flush=True)
s.settimeout(float(sys.argv[1]))
try:
    while True:
        print(s.recv(2000).hex())
except TimeoutError:
    pass
"""


class Line(Space):
    """A namespace whose device v0 has a FIFO in a class of 80 Mbit/s."""

    def steer(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(QUELL_LIVE, "steer", *words)

    def dropping(self, *words: str) -> subprocess.Popen[str]:
        """Start steering, and wait until packets pass the BPF program."""
        process = self.start(QUELL_LIVE, "steer", "v0", *words, "--with", "clsact")
        assert process.stderr is not None
        line = process.stderr.readline()
        if "run before quell's" in line:
            line = process.stderr.readline()
        if "steered by" not in line:
            process.kill()
            pytest.fail(line + process.communicate()[1])
        time.sleep(0.2)
        return process

    def filters(self) -> str:
        return self.run("tc", "filter", "show", "dev", "v0", "egress").stdout

    def clsact(self) -> bool:
        return "clsact" in self.run("tc", "qdisc", "show", "dev", "v0").stdout

    def fates(self, count: int, tos: int = 0, address: str = "10.7.0.2") -> list[bytes]:
        """Send packets; return those that arrive."""
        catching = self.start(sys.executable, "-c", CATCH, "1")
        assert catching.stdout is not None
        assert catching.stdout.readline() == "ready\n"
        assert self.run(sys.executable, "-c", SEND, address, str(count), str(tos)).returncode == 0
        caught, _ = catching.communicate(timeout=30)
        frames = [bytes.fromhex(line) for line in caught.splitlines()]
        return [frame for frame in frames if frame[-50:] == frame[-1:] * 50]


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    _, said = process.communicate(timeout=20)
    assert process.returncode == code, said
    return said


@pytest.fixture(scope="module")
def namespace() -> Iterator[Line]:
    with space_with("qc", QUEUES) as made:
        line = Line(made.name)
        tried = line.steer("v0", "0", "--with", "clsact", "--duration", "1ms")
        if tried.returncode:
            pytest.skip(f"this kernel cannot: {tried.stderr.strip()}")
        yield line


@pytest.fixture
def line(namespace: Line) -> Iterator[Line]:
    assert not namespace.clsact(), "an earlier test has left something"
    yield namespace
    namespace.run("tc", "qdisc", "del", "dev", "v0", "clsact")


@pytest.mark.real_time
@pytest.mark.parametrize("p", [0.05, 0.3])
def test_packets_are_dropped_with_the_probability_and_sigterm_takes_all_away(line: Line, p: float) -> None:
    process = line.dropping(str(p))
    arrived = len(line.fates(4000))
    process.send_signal(signal.SIGTERM)
    said = ended(process)
    # Five standard deviations.
    assert abs(arrived - 4000 * (1 - p)) < 5 * (4000 * p * (1 - p)) ** 0.5
    dropped = re.search(r"packets dropped: (\d+), marked: 0", said)
    assert dropped is not None
    # The kernel sends few packets of its own (neighbours, multicast).
    assert 0 <= int(dropped[1]) - (4000 - arrived) <= 10
    assert not line.clsact()
    assert "nothing to restore" in line.steer("--restore").stderr


def checksum(header: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.real_time
@pytest.mark.parametrize("ect", [1, 2])
def test_ecn_marks_what_can_be_marked_and_drops_the_rest(line: Line, ect: int) -> None:
    process = line.dropping("0.09", "--ecn")
    for address in ("10.7.0.2", "fd07::2"):
        frames = line.fates(3000, 0xB8 | ect, address)
        assert len(frames) == 3000
        headers = [frame[14:] for frame in frames]
        fields = [(h[0] << 4 | h[1] >> 4) & 255 if h[0] >> 4 == 6 else h[1] for h in headers]
        assert set(fields) == {0xB8 | ect, 0xBB}, "the other six bits stay"
        assert 190 < sum(field & 3 == 3 for field in fields) < 350
        assert all(checksum(h[:20]) == 0xFFFF for h in headers if h[0] >> 4 == 4)
    assert 2630 < len(line.fates(3000)) < 2830
    process.terminate()
    ended(process)


@pytest.mark.real_time
@pytest.mark.parametrize("address", ["10.7.0.2", "fd07::2"])
def test_a_packet_that_a_bridge_shares_with_a_capture_is_marked(address: str) -> None:
    with space_with("qcb", BRIDGED) as made:
        line = Line(made.name)
        tried = line.steer("v0", "0", "--with", "clsact", "--duration", "1ms")
        if tried.returncode:
            pytest.skip(f"this kernel cannot: {tried.stderr.strip()}")
        capture = line.start(sys.executable, "-c", CATCH.replace("v1", "w1"), "3")
        assert capture.stdout is not None
        assert capture.stdout.readline() == "ready\n"
        process = line.dropping("0.09", "--ecn")
        # The capture has its own copy of the headers, which stays without marks.
        frames = line.fates(1000, 2, address)
        process.terminate()
        ended(process)
        copies = [bytes.fromhex(text) for text in capture.communicate(timeout=30)[0].splitlines()]
        line.end()
    field = {4: lambda h: h[1] & 3, 6: lambda h: h[1] >> 4 & 3}
    found = [field[frame[14] >> 4](frame[14:]) for frame in frames]
    assert len(found) == 1000
    assert set(found) == {2, 3}
    assert 45 < found.count(3) < 145
    seen = [frame for frame in copies if frame[-50:] == frame[-1:] * 50]
    assert len(seen) == 1000
    assert {field[frame[14] >> 4](frame[14:]) for frame in seen} == {2}


@pytest.mark.real_time
def test_above_a_tenth_marks_are_not_enough(line: Line) -> None:
    process = line.dropping("0.5", "--ecn")
    frames = line.fates(2000, 2)
    assert 850 < len(frames) < 1150
    assert all(frame[15] & 3 == 2 for frame in frames)
    process.terminate()
    ended(process)


@pytest.mark.real_time
def test_kill_9_takes_all_away_within_a_second(line: Line) -> None:
    for looks in range(5):
        process = line.dropping("1")
        # 0 to 0.8 s; a loop counts as stalled after five of the watchdog's checks, which are 50 ms apart.
        time.sleep(0.2 * looks)
        os.kill(process.pid, signal.SIGKILL)
        assert until(lambda: not line.clsact()) < 1
        process.communicate(timeout=20)
    assert "nothing to restore" in line.steer("--restore").stderr


@pytest.mark.real_time
def test_a_filter_left_by_two_kills_drops_no_packets_and_is_removed(line: Line) -> None:
    for by_hand in (True, False):
        process = line.dropping("1")
        assert line.fates(50) == []
        pid = process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for number in [*map(int, children), pid]:
            os.kill(number, signal.SIGKILL)
        process.communicate(timeout=20)
        assert "quell" in line.filters()
        # No process renews the probability, so it expires.
        until(lambda: len(line.fates(50)) == 50)
        if by_hand:
            done = line.steer("--restore")
            assert (done.returncode, done.stderr) == (0, "quell: v0: 1 queue restored\n")
        else:
            assert line.steer("v0", "0.1", "--with", "clsact", "--duration", "100ms").returncode == 0
        assert not line.clsact()


@pytest.mark.real_time
def test_a_stalled_process_drops_nothing(line: Line) -> None:
    process = line.dropping("1")
    assert line.fates(50) == []
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: len(line.fates(50)) == 50)
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: line.fates(50) == [])
    process.terminate()
    ended(process)


@pytest.mark.real_time
@pytest.mark.parametrize("priority", [1, 5, 60_000])
def test_filters_of_others_stay_as_they_are(line: Line, priority: int) -> None:
    line.run("tc", "qdisc", "add", "dev", "v0", "clsact")
    made = f"tc filter add dev v0 egress prio {priority} protocol ip u32 match u8 0 0"
    assert line.run("sh", "-ec", made).returncode == 0
    before = line.filters()
    process = line.dropping("1")
    assert line.fates(50) == []
    process.terminate()
    ended(process)
    assert line.filters() == before
    assert line.clsact()
    said = line.steer("v0", "0", "--with", "clsact", "--duration", "1ms").stderr
    assert ("other programs' filters at clsact run before quell's" in said) == (priority == 1)
    process = line.dropping("1")
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: "quell" not in line.filters())
    process.communicate(timeout=20)
    assert line.filters() == before


@pytest.mark.real_time
@pytest.mark.parametrize("way", ["egress", "ingress"])
@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_clsact_stays_where_others_have_put_filters_meanwhile(line: Line, way: str, kill: signal.Signals) -> None:
    process = line.dropping("0.1")
    made = f"tc filter add dev v0 {way} protocol ip u32 match u8 0 0"
    assert line.run("sh", "-ec", made).returncode == 0
    time.sleep(0.3)
    assert process.poll() is None
    os.kill(process.pid, kill)
    process.communicate(timeout=20)
    until(lambda: "quell" not in line.filters())
    assert "u32" in line.run("tc", "filter", "show", "dev", "v0", way).stdout


@pytest.mark.real_time
@pytest.mark.parametrize("way", ["egress", "ingress"])
def test_clsact_stays_where_others_have_put_filters_while_it_was_stopped(line: Line, way: str) -> None:
    process = line.dropping("0.1")
    os.kill(process.pid, signal.SIGSTOP)
    # Long enough that the watchdog notices the stopped loop: it makes five checks, 50 ms apart.
    time.sleep(1)
    assert line.run("sh", "-ec", f"tc filter add dev v0 {way} protocol ip u32 match u8 0 0").returncode == 0
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=20)
    until(lambda: "quell" not in line.filters())
    for said in ("0 queues restored", "nothing to restore"):
        assert "u32" in line.run("tc", "filter", "show", "dev", "v0", way).stdout
        assert said in line.steer("--restore").stderr


TAKEN = ["tc filter del dev v0 egress", "tc qdisc del dev v0 clsact"]


@pytest.mark.real_time
@pytest.mark.parametrize("words", TAKEN)
def test_removal_of_the_filter_by_another_program_ends_the_steering(line: Line, words: str) -> None:
    process = line.dropping("1", "--every", "1s")
    began = time.monotonic()
    assert line.run("sh", "-ec", words).returncode == 0
    said = ended(process)
    assert time.monotonic() - began < 0.9, "a notification, not the next look, has said so"
    assert "another program has removed quell's filter at clsact of v0: steering has ended" in said
    assert not line.clsact()


@pytest.mark.real_time
@pytest.mark.parametrize("words", TAKEN)
def test_insist_attaches_the_filter_again(line: Line, words: str) -> None:
    process = line.dropping("1", "--insist")
    for _ in range(3):
        assert line.run("sh", "-ec", words).returncode == 0
        until(lambda: "quell" in line.filters())
        assert line.fates(20) == []
    process.terminate()
    assert "it is put back" in ended(process)
    assert not line.clsact()


@pytest.mark.real_time
def test_a_device_may_go_and_come_back(line: Line) -> None:
    make = "ip link add w0 type veth peer name w1; tc qdisc add dev w0 root handle 10: pfifo limit 300"
    assert line.run("sh", "-ec", make).returncode == 0
    process = line.start(QUELL_LIVE, "steer", "w0", "1", "--with", "clsact", "--every", "20ms")
    show = ("tc", "filter", "show", "dev", "w0", "egress")
    until(lambda: "quell" in line.run(*show).stdout)
    assert line.run("ip", "link", "del", "w0").returncode == 0
    time.sleep(0.2)
    assert line.run("sh", "-ec", make).returncode == 0
    until(lambda: "quell" in line.run(*show).stdout)
    process.terminate()
    said = ended(process)
    assert "w0 is gone; waiting until it is back" in said
    assert "w0 pfifo 10: at root is back" in said
    assert "clsact" not in line.run("tc", "qdisc", "show", "dev", "w0").stdout
    assert line.run("ip", "link", "del", "w0").returncode == 0


@pytest.mark.real_time
def test_pie_and_rlaqm_drop_where_a_queue_stands_and_json_says_how_much(line: Line) -> None:
    rate = "tc class change dev v0 parent 1: classid 1:10 htb rate {}"
    assert line.run("sh", "-ec", rate.format("8mbit burst 2k")).returncode == 0
    flood = "for _ in range(250):\n    for _ in range(15): s.sendto(bytes(1400), (address, 9))\n    time.sleep(0.01)"
    code = SEND.partition("for k")[0] + flood
    for words in (["pie"], ["rlaqm"]):
        process = line.dropping("1:10", *words, "--json")
        assert line.run(sys.executable, "-c", code, "10.7.0.2", "0", "0").returncode == 0
        process.terminate()
        out, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
        samples = [json.loads(text) for text in out.splitlines()]
        drops = [sample for sample in samples if sample["type"] == "filter"]
        assert [s["kind"] for s in samples[:2]] == ["pfifo", "quell"]
        assert max(sample["drop_probability"] for sample in drops) > 0.01, words
        assert drops[-1]["drops"] > 10
        assert drops[-1]["marks"] == 0
    assert line.run("sh", "-ec", rate.format("80mbit")).returncode == 0
    assert not line.clsact()


@pytest.mark.real_time
def test_lines_set_a_probability_for_a_time(line: Line) -> None:
    process = line.start(QUELL_LIVE, "steer", "v0", "-", "--with", "clsact", "--valid", "2s", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("drop 100%\n")
    process.stdin.flush()
    until(lambda: line.fates(20) == [])
    until(lambda: len(line.fates(20)) == 20)
    process.terminate()
    assert "no line on standard input for 2s" in ended(process)


@pytest.mark.real_time
def test_a_default_discipline_and_mq_are_not_a_hindrance(line: Line) -> None:
    assert line.run("ip", "link", "add", "m0", "numtxqueues", "4", "type", "veth", "peer", "name", "m1").returncode == 0
    for made in ("true", "tc qdisc add dev m0 root handle 1: mq"):
        assert line.run("sh", "-ec", f"ip link set m0 up; ip link set m1 up; {made}").returncode == 0
        if "qdisc noqueue" not in line.run("tc", "qdisc", "show", "dev", "m0").stdout:
            done = line.steer("m0", "0.1", "--with", "clsact", "--duration", "50ms")
            assert (done.returncode, "changes: 1" in done.stderr) == (0, True), done.stderr
    line.run("ip", "link", "del", "m0")


def test_a_dry_run_needs_no_rights(line: Line) -> None:
    words = ("v0", "1:10", "fixed", "drop", "0.1", "--with", "clsact")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing")
    dropped = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", QUELL_LIVE, "steer")
    done = line.run(*dropped, *words, "--dry-run", "--duration", "100ms")
    assert (done.returncode, done.stdout) == (0, "v0 pfifo 10: at 1:10: drop 0 -> 0.1\n")
    refused = line.run(*dropped, *words)
    assert (refused.returncode, "CAP_NET_ADMIN" in refused.stderr) == (2, True)
    only = ("setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all", QUELL_LIVE, "steer")
    refused = line.run(*only, *words)
    assert refused.returncode == 2
    assert refused.stderr == (
        "quell: the kernel lets this process load no BPF program; CAP_BPF is missing: write sudo before it\n"
    )


@pytest.mark.real_time
def test_once_it_runs_it_has_one_right_and_no_bpf(line: Line) -> None:
    process = line.dropping("0.1")
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert re.search(r"CapEff:\t0*1000\n", status), "CAP_NET_ADMIN alone"
    assert re.search(r"Seccomp:\t2\n", status)
    process.terminate()
    ended(process)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["v0", "wqm", "--with", "clsact"], "wqm: sets no drop probability; rlaqm, pie and fixed set a drop probab"),
        (["v0", "a3c_l4s", "--with", "clsact"], "a3c_l4s: sets a base probability, for which no discipline here "),
        (["v0", "1.5", "--with", "clsact"], "unknown queue `1.5`"),
        (["v0", "0.1", "--with", "limit", "--ecn"], "--ecn: needs --with clsact"),
        (["lo", "0.1", "--with", "clsact"], "lo: no queue discipline at root"),
        (["v1", "0.1", "--with", "clsact"], "v1 noqueue 0: at root: cannot be steered: it holds no packets; "),
        (["v0", "1:10", "0.1", "--with", "drop"], "--with: unknown knob `drop`; known: limit, target, rate, clsact"),
    ],
)
def test_bad_input_is_one_line(line: Line, words: list[str], said: str) -> None:
    done = line.steer(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"quell: {said}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_one_of_several_queues_is_refused(line: Line) -> None:
    made = "tc class add dev v0 parent 1: classid 1:20 htb rate 1mbit"
    assert line.run("sh", "-ec", made).returncode == 0
    done = line.steer("v0", "1:10", "0.1", "--with", "clsact")
    all_of_them = line.steer("v0", "0.1", "--with", "clsact", "--duration", "50ms")
    line.run("tc", "class", "del", "dev", "v0", "classid", "1:20")
    assert done.stderr == (
        "quell: v0 pfifo 10: at 1:10: there is also htb class 1:20, and packets are dropped before they reach either; "
        "leave the place out: all queues of the interface are then one\n"
    )
    assert all_of_them.returncode == 0


def test_an_ingress_discipline_is_in_the_way(line: Line) -> None:
    assert line.run("tc", "qdisc", "add", "dev", "v0", "ingress").returncode == 0
    done = line.steer("v0", "0.1", "--with", "clsact")
    assert line.run("tc", "qdisc", "del", "dev", "v0", "ingress").returncode == 0
    assert done.returncode == 2
    assert done.stderr.startswith("quell: v0: clsact would replace the ingress discipline; ")
    assert "nothing to restore" in line.steer("--restore").stderr


@pytest.mark.guest
@pytest.mark.real_time
def test_a_kernel_that_interprets_programs_drops_as_well(tmp_path: Path) -> None:
    """In virtual time: Linux 7.2 without JIT and BTF."""
    if not ORACLE.exists():
        pytest.skip("there is no oracle: QUELL_ORACLE says where it is")
    send = tmp_path / "send.py"
    send.write_text(SEND)
    file = tmp_path / "guest.sh"
    file.write_text(f"""
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mkdir -p /run/quell
{QUEUES}
{QUELL_LIVE} steer v0 1:10 0.3 --with clsact --duration 2s & sleep 0.5
{sys.executable} {send} 10.7.0.2 2000 0
tc -s qdisc show dev v0 clsact
wait
tc qdisc show dev v0
""")
    command = (ORACLE, "exec", "--wall-limit", "200", "/bin/sh", file)
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    dropped = re.search(r"dropped (\d+)", done.stdout)
    assert dropped is not None
    assert abs(int(dropped[1]) - 600) < 5 * (2000 * 0.3 * 0.7) ** 0.5
    in_all = re.search(r"packets dropped: (\d+), marked: 0", done.stderr)
    assert in_all is not None
    # A neighbour solicitation may come after that.
    assert 0 <= int(in_all[1]) - int(dropped[1]) < 5
    assert "clsact" not in done.stdout.partition(dropped[0])[2]
