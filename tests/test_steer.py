"""`quell steer`: knobs of this kernel's own queues and of the oracle's, changes by other programs, and restoration."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL_LIVE
from live_net import until
from namespace import VETH, Space, space_with
from oracle import in_guest

QUEUES = """
tc qdisc add dev v0 root handle 1: htb default 10
tc class add dev v0 parent 1: classid 1:10 htb rate 8mbit burst 2k
tc qdisc add dev v0 parent 1:10 handle 10: pfifo limit 1000
tc qdisc add dev v1 root handle 2: tbf rate 8mbit burst 10k limit 60000
"""
SEND = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
end = time.monotonic() + float(__import__("sys").argv[1])
while time.monotonic() < end:
    for k in range(15):
        s.sendto(bytes(1000), ("10.7.0.2", 9))
    time.sleep(0.01)
"""


class Line(Space):
    """A namespace whose device v0 has a FIFO of 1000 packets in a class of 8 Mbit/s."""

    def steer(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(QUELL_LIVE, "steer", *words)

    def steering(self, *words: str, stdin: int | None = None) -> subprocess.Popen[str]:
        """Start steering, and wait until the queue is steered."""
        process = self.start(QUELL_LIVE, "steer", *words, stdin=stdin)
        assert process.stderr is not None
        line = process.stderr.readline()
        if "steered by" not in line:
            process.kill()
            pytest.fail(line + process.communicate()[1])
        return process

    def limit(self, handle: str = "10:", device: str = "v0") -> int:
        [queue] = [q for q in self.queues(device) if q["handle"] == handle]
        return int(queue["options"]["limit"])

    def queues(self, device: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("tc", "-j", "qdisc", "show", "dev", device).stdout)
        return found

    def rate(self) -> str:
        return self.run("tc", "class", "show", "dev", "v0").stdout

    def becomes(self, limit: int, within: float = 5.0) -> float:
        """Wait until the limit has this value; return how long that took."""
        begin = time.monotonic()
        while self.limit() != limit:
            assert time.monotonic() < begin + within, self.limit()
            time.sleep(0.01)
        return time.monotonic() - begin


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    _, said = process.communicate(timeout=20)
    assert process.returncode == code, said
    return said


@pytest.fixture(scope="module")
def namespace() -> Iterator[Line]:
    with space_with("qs", VETH + QUEUES) as made:
        yield Line(made.name)


@pytest.fixture
def line(namespace: Line) -> Iterator[Line]:
    assert namespace.limit() == 1000, "an earlier test has left something"
    yield namespace
    namespace.run("tc", "qdisc", "replace", "dev", "v0", "parent", "1:10", "handle", "10:", "pfifo", "limit", "1000")


@pytest.mark.real_time
def test_wqm_keeps_the_backlog_of_a_fifo_short_and_sigterm_restores(line: Line) -> None:
    process = line.steering("v0", "1:10", "wqm", "target", "20ms", "--with", "limit", "--every", "20ms", "--json")
    assert line.run(sys.executable, "-c", SEND, "3").returncode == 0
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert "queues restored: 1" in said
    assert line.limit() == 1000
    samples = [json.loads(text) for text in out.splitlines()]
    # 12 Mbit/s into 8: without control the backlog would be 1000 packets. WQM's least limit, an A-MPDU, is 43.
    held = [sample["backlog_packets"] for sample in samples]
    assert 20 < max(held[len(held) // 2 :]) <= 60


@pytest.mark.real_time
def test_kill_9_restores_within_a_second_and_leaves_no_state(line: Line) -> None:
    for _ in range(5):
        process = line.steering("v0", "1:10", "77", "--with", "limit")
        line.becomes(77)
        os.kill(process.pid, signal.SIGKILL)
        assert line.becomes(1000) < 1
        process.communicate(timeout=20)
    assert "nothing to restore" in line.steer("--restore").stderr


@pytest.mark.real_time
def test_after_two_kills_restore_and_the_next_start_restore_the_queue(line: Line) -> None:
    for by_hand in (True, False):
        process = line.steering("v0", "1:10", "77", "--with", "limit")
        line.becomes(77)
        pid = process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        busy = line.steer("--restore", "v0")
        assert (busy.returncode, "still runs on v0" in busy.stderr) == (2, True)
        for number in [*map(int, children), pid]:
            os.kill(number, signal.SIGKILL)
        process.communicate(timeout=20)
        assert line.limit() == 77
        if by_hand:
            done = line.steer("--restore")
            assert (done.returncode, done.stderr) == (0, "quell: v0@1:10: 1 queue restored\n")
        else:
            assert line.steer("v0", "1:10", "99", "--with", "limit", "--duration", "100ms").returncode == 0
        assert line.limit() == 1000


@pytest.mark.real_time
def test_knobs_of_a_stalled_process_are_restored_and_set_again(line: Line) -> None:
    process = line.steering("v0", "1:10", "77", "--with", "limit")
    line.becomes(77)
    os.kill(process.pid, signal.SIGSTOP)
    line.becomes(1000)
    os.kill(process.pid, signal.SIGCONT)
    line.becomes(77)
    process.terminate()
    ended(process)
    assert line.limit() == 1000


@pytest.mark.real_time
def test_a_change_by_another_program_ends_the_steering_and_stays(line: Line) -> None:
    process = line.steering("v0", "1:10", "77", "--with", "limit", "--every", "1s")
    line.becomes(77)
    change = ("tc", "qdisc", "change", "dev", "v0", "parent", "1:10", "handle", "10:", "pfifo", "limit", "500")
    assert line.run(*change).returncode == 0
    began = time.monotonic()
    said = ended(process)
    assert time.monotonic() - began < 0.9, "a notification, not the next look, has said so"
    assert "v0 pfifo 10: at 1:10: another program has set limit to 500: steering has ended" in said
    assert line.limit() == 500


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("knob", "value", "options"),
    [
        # 40 packets of 1514 bytes, which is the steered limit.
        ("limit", "40", "rate 3mbit burst 10k limit 60560"),
        ("rate", "7mbit", "rate 7mbit burst 20k limit 90000"),
    ],
)
def test_an_option_that_is_not_steered_stays_as_another_program_sets_it(
    line: Line, knob: str, value: str, options: str
) -> None:
    """A change of a tbf carries all of its options."""
    process = line.steering("v1", "2:", value, "--with", knob)
    time.sleep(0.2)
    assert line.run("sh", "-ec", f"tc qdisc change dev v1 root handle 2: tbf {options}").returncode == 0
    shown = line.run("tc", "qdisc", "show", "dev", "v1").stdout
    assert "v1 tbf 2: at root: another program has changed it: steering has ended" in ended(process)
    assert line.run("tc", "qdisc", "show", "dev", "v1").stdout == shown
    line.run("sh", "-ec", "tc qdisc change dev v1 root handle 2: tbf rate 8mbit burst 10k limit 60000")


@pytest.mark.real_time
@pytest.mark.parametrize("options", ["ceil 9mbit burst 2k", "ceil 5mbit burst 90k", "ceil 5mbit burst 2k prio 3"])
def test_an_option_of_a_class_that_is_not_steered_stays_as_another_program_sets_it(line: Line, options: str) -> None:
    """A change of a class carries all of its options; without a ceil the rate is the ceil."""
    process = line.steering("v0", "1:10", "5mbit", "--with", "rate", "--every", "20ms")
    until(lambda: "rate 5Mbit ceil 5Mbit" in line.rate())
    time.sleep(0.2)
    assert process.poll() is None, "took its own change for another program's"
    change = f"tc class change dev v0 parent 1: classid 1:10 htb rate 5mbit {options}"
    assert line.run("sh", "-ec", change).returncode == 0
    shown = line.rate()
    said = ended(process)
    assert "another program has changed it: steering has ended" in said, said
    assert line.rate() == shown
    line.run("sh", "-ec", "tc class change dev v0 parent 1: classid 1:10 htb rate 8mbit burst 2k prio 0")


@pytest.mark.real_time
def test_insist_undoes_changes_by_other_programs_and_restores_in_the_end(line: Line) -> None:
    process = line.steering("v0", "1:10", "77", "--with", "limit", "--insist")
    line.becomes(77)
    for limit in ("500", "600"):
        line.run("tc", "qdisc", "change", "dev", "v0", "parent", "1:10", "handle", "10:", "pfifo", "limit", limit)
        line.becomes(77)
    process.terminate()
    assert "another program has set limit to 600; it is put back" in ended(process)
    assert line.limit() == 1000


@pytest.mark.real_time
@pytest.mark.parametrize(
    "words",
    [
        "tc qdisc replace dev v0 parent 1:10 handle 11: bfifo limit 9000",
        "tc qdisc del dev v0 parent 1:10; tc qdisc add dev v0 parent 1:10 handle 10: bfifo limit 9000",
        "tc qdisc del dev v0 parent 1:10",
    ],
)
def test_another_discipline_in_its_place_ends_the_steering(line: Line, words: str) -> None:
    process = line.steering("v0", "1:10", "77", "--with", "limit")
    line.becomes(77)
    assert line.run("sh", "-ec", words).returncode == 0
    assert "another program has" in ended(process)
    for queue in line.queues("v0"):
        assert queue["kind"] != "bfifo" or queue["options"]["limit"] == 9000
    line.run("tc", "qdisc", "del", "dev", "v0", "parent", "1:10")


@pytest.mark.real_time
def test_a_device_may_go_and_come_back(line: Line) -> None:
    make = "ip link add w0 type veth peer name w1; tc qdisc add dev w0 root handle 10: pfifo limit {}"
    assert line.run("sh", "-ec", make.format(300)).returncode == 0
    process = line.steering("w0", "77", "--with", "limit", "--every", "20ms")
    assert line.run("ip", "link", "del", "w0").returncode == 0
    time.sleep(0.2)
    assert line.run("sh", "-ec", make.format(400)).returncode == 0
    until(lambda: line.limit(device="w0") == 77)
    process.terminate()
    said = ended(process)
    assert "w0 is gone; waiting until it is back" in said
    assert "w0 pfifo 10: at root is back, with limit 400" in said
    assert line.limit(device="w0") == 400
    assert line.run("ip", "link", "del", "w0").returncode == 0


@pytest.mark.real_time
def test_all_children_of_mq_are_steered_and_restored(line: Line) -> None:
    made = "ip link add m0 numtxqueues 4 type veth peer name m1; tc qdisc add dev m0 root handle 1: mq\n"
    made += "for i in 1 2 3 4; do tc qdisc add dev m0 parent 1:$i handle 1$i: pfifo limit $((100 * i)); done"
    assert line.run("sh", "-ec", made).returncode == 0

    def limits() -> list[int]:
        return [q["options"]["limit"] for q in line.queues("m0") if q["kind"] == "pfifo"]

    process = line.steering("m0", "77", "--with", "limit")
    until(lambda: limits() == [77] * 4)
    process.terminate()
    assert "changes: 4, queues restored: 4" in ended(process)
    assert sorted(limits()) == [100, 200, 300, 400]
    process = line.steering("m0", "77", "--with", "limit")
    until(lambda: limits() == [77] * 4)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=20)
    until(lambda: sorted(limits()) == [100, 200, 300, 400])
    line.run("tc", "qdisc", "replace", "dev", "m0", "root", "handle", "1:", "mq")
    line.run("tc", "qdisc", "del", "dev", "m0", "root")
    line.run("ip", "link", "del", "m0")


@pytest.mark.real_time
def test_the_rate_of_a_class_and_of_tbf_follows_lines_and_goes_back_to_the_byte(line: Line) -> None:
    before = (line.rate(), line.run("tc", "qdisc", "show", "dev", "v1").stdout)
    assert "rate 8Mbit ceil 8Mbit burst 2Kb" in before[0]
    process = line.steering("v0", "1:10", "-", "--with", "rate", "--max", "20mbit", stdin=subprocess.PIPE)
    assert process.stdin is not None

    def has_rate(rate: str) -> bool:
        return f"rate {rate} ceil {rate}" in line.rate()

    for text, rate in (("rate 2mbit", "2Mbit"), ("rate 90mbit", "20Mbit"), ("rate 5mbit", "5Mbit")):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        until(partial(has_rate, rate))
    process.stdin.write("rate 5\n")
    process.stdin.close()
    process.stdin = None
    said = ended(process)
    assert 'standard input: rate: the rate "5" has no unit' in said
    assert line.steer("v1", "3mbit", "--with", "rate", "--duration", "200ms").returncode == 0
    assert (line.rate(), line.run("tc", "qdisc", "show", "dev", "v1").stdout) == before


@pytest.mark.real_time
def test_a_class_gets_no_more_than_what_is_above_it_passes(line: Line) -> None:
    for words in (
        "ip link add d0 type veth peer name d1",
        "tc qdisc add dev d0 root handle 3: tbf rate 6mbit burst 10k limit 60000",
        "tc qdisc add dev d0 parent 3:1 handle 1: htb default 20",
        "tc class add dev d0 parent 1: classid 1:1 htb rate 8mbit",
        "tc class add dev d0 parent 1:1 classid 1:2 htb rate 4mbit",
        "tc class add dev d0 parent 1:2 classid 1:10 htb rate 1mbit ceil 4mbit",
        "tc class add dev d0 parent 1:1 classid 1:20 htb rate 1mbit",
    ):
        done = line.run(*words.split())
        assert done.returncode == 0, done.stderr
    for place, most, by in (("1:10", "4", "htb class 1:2"), ("1:20", "6", "tbf 3: at root")):
        process = line.steering("d0", place, "-", "--with", "rate", "--min", "5mbit", stdin=subprocess.PIPE)
        assert process.stdin is not None and process.stderr is not None
        said = f"quell: d0 htb class {place}: at most {most}mbit, the limit of {by}\n"
        assert process.stderr.readline() == said

        def has(rate: str, place: str = place) -> bool:
            shown = line.run("tc", "class", "show", "dev", "d0").stdout.split(f"class htb {place} ")[1]
            return shown.split(" rate ")[1].split()[0] == rate

        assert has("1Mbit")
        process.stdin.write("rate 50mbit\n")
        process.stdin.flush()
        until(partial(has, f"{most}Mbit"))
        process.stdin.close()
        process.stdin = None
        ended(process)
        assert has("1Mbit")
    assert line.run("ip", "link", "del", "d0").returncode == 0


@pytest.mark.real_time
def test_a_tbf_with_a_peak_rate_gets_less_than_that(line: Line) -> None:
    """The kernel refuses a rate that is not below the peak rate, which would end the steering."""
    options = "rate 1mbit burst 5k limit 60000 peakrate 2mbit mtu 1600"
    made = f"ip link add d0 type veth peer name d1; tc qdisc add dev d0 root handle 1: tbf {options}"
    done = line.run("sh", "-ec", made)
    assert done.returncode == 0, done.stderr
    before = line.run("tc", "qdisc", "show", "dev", "d0").stdout
    done = line.steer("d0", "50mbit", "--with", "rate", "--duration", "1s")
    assert done.returncode == 0, done.stderr
    assert "d0 tbf 1: at root: at most 1999.992kbit, the limit of tbf 1: at root" in done.stderr
    assert "changes: 1" in done.stderr
    assert line.run("tc", "qdisc", "show", "dev", "d0").stdout == before
    assert line.run("ip", "link", "del", "d0").returncode == 0


@pytest.mark.real_time
def test_the_smallest_rate_is_a_byte_per_second_and_is_known_again(line: Line) -> None:
    before = line.run("tc", "qdisc", "show", "dev", "v1").stdout
    done = line.steer("v1", "4bit", "--with", "rate", "--min", "1bit", "--duration", "700ms")
    assert (done.returncode, line.run("tc", "qdisc", "show", "dev", "v1").stdout) == (0, before), done.stderr
    assert "changes: 1, queues restored: 1" in done.stderr


@pytest.mark.parametrize("words", [["3mbit", "--with", "rate"], ["30", "--with", "limit"]], ids=["rate", "limit"])
def test_a_tbf_so_slow_that_the_kernel_does_not_report_its_bucket_is_refused(line: Line, words: list[str]) -> None:
    made = "ip link add d0 type veth peer name d1; tc qdisc add dev d0 root handle 1: tbf rate {} burst 2k limit 60000"
    assert line.run("sh", "-ec", made.format("8bit")).returncode == 0
    done = line.steer("d0", *words, "--duration", "100ms")
    line.run("ip", "link", "del", "d0")
    assert done.returncode == 2
    assert done.stderr == (
        "quell: d0 tbf 1: at root: has a rate at which the kernel does not report its bucket, which would be lost; "
        "give it 2kbit or more\n"
    )


@pytest.mark.real_time
def test_tbf_is_changed_every_500_ms_at_most(line: Line) -> None:
    process = line.steering("v1", "-", "--with", "rate", "--every", "10ms", stdin=subprocess.PIPE)
    assert process.stdin is not None
    for k in range(100):
        process.stdin.write(f"rate {k % 7 + 1}mbit\n")
        process.stdin.flush()
        time.sleep(0.02)
    process.terminate()
    changes = re.search(r"changes: (\d+)", ended(process))
    # Two seconds, more on a busy machine; without the minimum interval there would be 100.
    assert changes is not None
    assert 3 <= int(changes[1]) <= 15


@pytest.mark.real_time
def test_without_lines_what_was_before_holds_until_the_next_one(line: Line) -> None:
    process = line.steering("v0", "1:10", "-", "--with", "limit", "--valid", "300ms", stdin=subprocess.PIPE)
    assert process.stdin is not None
    for limit in (50, 60):
        process.stdin.write(f"limit {limit}\n")
        process.stdin.flush()
        line.becomes(limit)
        line.becomes(1000)
    process.terminate()
    assert "no line on standard input for 300ms" in ended(process)


def test_a_dry_run_needs_no_rights_and_changes_nothing(line: Line) -> None:
    words = ("v0", "1:10", "fixed", "limit", "30", "--with", "limit", "--dry-run", "--duration", "300ms")
    done = line.steer(*words)
    assert (done.returncode, done.stdout) == (0, "v0 pfifo 10: at 1:10: limit 1000 -> 30\n")
    assert line.limit() == 1000
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing")
    dropped = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", QUELL_LIVE, "steer")
    assert line.run(*dropped, *words).stdout == done.stdout
    refused = line.run(*dropped, "v0", "1:10", "30", "--with", "limit")
    assert refused.returncode == 2
    assert refused.stderr == "quell: quell steer needs root (CAP_NET_ADMIN); write sudo before it\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope", "30", "--with", "limit"], "nope: there is no such interface; there are "),
        (["lo", "30", "--with", "limit"], "lo: no queue discipline at root; there are: none"),
        (["v0", "7:", "30", "--with", "limit"], "v0: no queue discipline at 7:; there are: htb 1: at root, pfifo 10:"),
        (["v0", "0:", "30", "--with", "limit"], '"0:" is not a place of a queue; write root, '),
        (["v0", "30", "--with", "limit"], "v0 htb 1: at root: cannot be steered: its classes have the rates, "),
        (["v0", "1:10", "5ms", "--with", "target"], "v0 pfifo 10: at 1:10: has no target; give --with limit"),
        (["v0", "1:10", "rlaqm", "--with", "limit"], "rlaqm: sets a drop probability, for which no discipline has an"),
        (["v0", "1:10", "fq_codel", "--with", "limit"], "fq_codel: is a queue discipline, not a controller"),
        (["v0", "1:10", "frob", "--with", "limit"], "unknown queue `frob`"),
        (["v0", "1:10", "--with", "limit"], "no controller is named; "),
        (["v0", "1:10", "30"], "--with: missing; name the knob: --with limit, "),
        (["v0", "1:10", "30", "--with", "drop"], "--with: unknown knob `drop`; known: limit, target, rate"),
        (["v0", "1:10", "30", "--with", "limit", "--every", "2s"], "--every: must be from 1ms to 1s"),
        (["v0", "1:10", "30", "--with", "limit", "--min", "9", "--max", "8"], "--min: is more than --max"),
        (["v0", "1:10", "30", "--with", "limit", "--insist", "--hands-off"], "--hands-off: excludes --insist; "),
        (["v0", "1:10", "30", "--with", "limit", "--frob"], "--frob: unknown option; "),
    ],
)
def test_bad_input_is_one_line(line: Line, words: list[str], said: str) -> None:
    done = line.steer(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"quell: {said}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_default_discipline_cannot_be_changed_and_the_remedy_is_named(line: Line) -> None:
    made = "ip link add d0 numtxqueues 2 type veth peer name d1; tc qdisc add dev d0 root handle 1: mq"
    assert line.run("sh", "-ec", made).returncode == 0
    done = line.steer("d0", "30", "--with", "limit")
    line.run("ip", "link", "del", "d0")
    assert done.returncode == 2
    assert re.search(r"d0 \w+ 0: at 1:\d: .*; tc qdisc replace dev d0 parent 1:\d \w+ replaces it by", done.stderr)


def test_more_queues_than_can_be_steered_are_refused(line: Line) -> None:
    made = "ip link add b0 numtxqueues 65 type veth peer name b1; tc qdisc add dev b0 root handle 1: mq"
    assert line.run("sh", "-ec", made).returncode == 0
    done = line.steer("b0", "30", "--with", "limit")
    line.run("ip", "link", "del", "b0")
    said = "b0 mq 1: at root: has 65 queues; at most 64 can be steered; name one of them, as in 1:1"
    assert (done.returncode, done.stderr) == (2, f"quell: {said}\n")


FLOOD = """
import socket, struct
asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
kind, options = b"pfifo\\0", struct.pack("=HHI", 8, 2, 0)
for n in range(3000):
    attributes = struct.pack("=HH", 10, 1) + kind + b"\\0\\0" + struct.pack("=HHI", 8, 2, 100 + n % 2)
    body = struct.pack("=BxxxiIII", 0, socket.if_nametoindex("f0"), 0x70000, 0xFFFFFFFF, 0) + attributes
    asked.send(struct.pack("=IHHII", 16 + len(body), 36, 1, n, 0) + body)
"""


@pytest.mark.real_time
def test_a_flood_of_notifications_that_finds_no_room_does_no_harm(line: Line) -> None:
    made = "ip link add f0 type veth peer name f1; tc qdisc add dev f0 root handle 7: pfifo limit 100"
    assert line.run("sh", "-ec", made).returncode == 0
    process = line.steering("v0", "1:10", "77", "--with", "limit")
    line.becomes(77)
    os.kill(process.pid, signal.SIGSTOP)
    assert line.run(sys.executable, "-c", FLOOD).returncode == 0
    rows = [row.split() for row in line.run("cat", "/proc/net/netlink").stdout.splitlines()]
    drops = rows[0].index("Drops")
    assert max(int(row[drops]) for row in rows[1:]) > 0, "the flood found room"
    os.kill(process.pid, signal.SIGCONT)
    line.becomes(77)
    # It still receives notifications of changes.
    line.run("tc", "qdisc", "change", "dev", "v0", "parent", "1:10", "handle", "10:", "pfifo", "limit", "500")
    assert "another program has set limit to 500" in ended(process)
    line.run("ip", "link", "del", "f0")


@pytest.mark.real_time
def test_two_at_one_place_are_refused(line: Line) -> None:
    process = line.steering("v0", "1:10", "77", "--with", "limit")
    done = line.steer("v0", "1:10", "30", "--with", "limit")
    assert (done.returncode, done.stderr) == (
        2,
        "quell: v0@1:10: another quell steer is running on it; stop that one first\n",
    )
    # Another place on the same device is free.
    assert line.steer("v0", "1:10", "9mbit", "--with", "rate", "--dry-run", "--duration", "1ms").returncode == 0
    process.terminate()
    ended(process)


@pytest.mark.guest
@pytest.mark.real_time
def test_the_kinds_of_a_newer_kernel_are_steered_and_restored_to_what_tc_prints(tmp_path: Path) -> None:
    """In virtual time: each knob of each kind is set, read with tc, and restored."""
    kinds = {
        "pfifo limit 900": {"limit": "30"},
        "bfifo limit 90000": {"limit": "30"},
        "codel limit 900 target 7ms": {"limit": "30", "target": "9ms"},
        "pie limit 900 target 21ms": {"limit": "30", "target": "9ms"},
        "fq_codel limit 900 target 7ms": {"limit": "30", "target": "9ms"},
        "fq_pie limit 900 target 21ms": {"limit": "30", "target": "9ms"},
        "fq limit 900": {"limit": "30"},
        "cake bandwidth 9mbit rtt 50ms": {"rate": "4mbit", "target": "9ms"},
        "tbf rate 9mbit burst 20k limit 90000": {"limit": "30", "rate": "4mbit"},
    }
    script = [
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "mkdir -p /run/quell",
        "ip link add v0 type veth peer name v1", "ip link set v0 up", "ip link set v1 up",
    ]  # fmt: skip
    for words, knobs in kinds.items():
        script.append(f"tc qdisc replace dev v0 root handle 1: {words}")
        for knob, value in knobs.items():
            script += [
                f"echo == {words.split()[0]} {knob}",
                "tc qdisc show dev v0 root",
                f"{QUELL_LIVE} steer v0 {value} --with {knob} --every 10ms --duration 100ms --quiet & sleep 0.05",
                "tc qdisc show dev v0 root",
                "wait",
                "tc qdisc show dev v0 root",
            ]
        script.append("tc qdisc del dev v0 root")
    for kind in ("red limit 400000 min 30000 max 90000 avpkt 1000 burst 55", "sfq"):
        script += [f"tc qdisc replace dev v0 root handle 1: {kind}", "echo == refused"]
        script.append(f"{QUELL_LIVE} steer v0 30 --with limit 2>&1")
    file = tmp_path / "guest.sh"
    file.write_text("\n".join(script) + "\n")
    done = in_guest(file, wall_limit=200)
    assert done.returncode in (0, 2), done.stdout[-2000:] + done.stderr
    parts = done.stdout.split("== ")[1:]
    shown = {"9ms": ("target 9ms", "target 8.99ms"), "4mbit": ("4Mbit",), "30": ("limit 30p", "limit 45420b")}
    tried = 0
    for part in parts:
        title, *lines = [text.strip() for text in part.strip().splitlines()]
        if title == "refused":
            assert "cannot be steered" in lines[0]
            continue
        before, during, after = (text for text in lines if text.startswith("qdisc "))
        assert before == after, title
        value = kinds[next(words for words in kinds if words.split()[0] == title.split()[0])][title.split()[1]]
        if not (title.startswith("tbf limit") or title == "cake target"):
            assert any(text in during for text in shown[value]), f"{title}: {during}"
        tried += 1
    assert tried == sum(map(len, kinds.values()))
