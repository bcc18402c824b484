"""`quell watch`: queues of this machine's kernel and of the oracle's, bad input, rotated files, full disks."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import QUELL_LIVE, ROOT, Quell
from namespace import VETH, Space, space_with
from oracle import in_guest
from quell.cli.watch import _Converter

GUEST = ROOT / "tests/watch_guest.sh"
QUEUES = """
tc qdisc add dev v0 root handle 1: htb default 10
tc class add dev v0 parent 1: classid 1:10 htb rate 1mbit burst 2k
tc qdisc add dev v0 parent 1:10 handle 10: bfifo limit 30000
tc qdisc add dev v1 root handle 2: tbf rate 1mbit burst 10k latency 50ms
"""
SEND = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for k in range(40):
    s.sendto(bytes(1000), ("10.7.0.2", 9))
"""


@pytest.fixture(scope="module")
def space() -> Iterator[Space]:
    with space_with("qw", VETH + QUEUES) as made:
        yield made


@pytest.mark.real_time
def test_queues_of_this_kernel_are_sampled(space: Space, tmp_path: Path) -> None:
    file = tmp_path / "queues.csv"
    watching = space.start(QUELL_LIVE, "watch", "v0", "--every", "10ms", "--duration", "3s", "--out", file)
    time.sleep(0.5)
    assert space.run(sys.executable, "-c", SEND).returncode == 0
    _, said = watching.communicate(timeout=60)
    assert watching.returncode == 0, said
    rows = list(csv.DictReader(file.open()))
    fifo = [row for row in rows if row["kind"] == "bfifo"]
    # No packets are sent any more, so tc prints the last sample's counters.
    counted = json.loads(space.run("tc", "-s", "-j", "qdisc", "show", "dev", "v0").stdout)
    [printed] = [queue for queue in counted if queue["kind"] == "bfifo"]
    last = fifo[-1]
    assert int(last["drops"]) == printed["drops"] > 0
    assert (last["handle"], last["parent"], last["device"]) == ("10:", "1:10", "v0")
    # 30 kB at 1 Mbit/s wait 240 ms.
    assert 20_000 < max(int(row["backlog_bytes"]) for row in fifo) <= 30_000
    full = [row for row in fifo if int(row["backlog_bytes"]) > 20_000]
    # The rate in a single sample depends on when the kernel's timers ran.
    assert 100 < statistics.median(float(row["sojourn_ms"]) for row in full if row["sojourn_ms"]) < 400
    [lends] = {row["xstats"].split()[0] for row in rows[-4:] if row["type"] == "class"}
    assert lends.startswith("lends=")
    assert {row["device"] for row in rows} == {"v0"}


@pytest.mark.real_time
def test_lines_for_people_and_for_programs(space: Space) -> None:
    text = space.watch("--every", "50ms", "--duration", "100ms")
    assert text.returncode == 0
    assert " v1 qdisc 2: tbf: " in text.stdout
    lines = [
        json.loads(line) for line in space.watch("--json", "--every", "50ms", "--duration", "100ms").stdout.splitlines()
    ]
    assert {line["kind"] for line in lines} == {"htb", "bfifo", "tbf"}
    # Three samples, some of which a busy machine may miss.
    assert len({line["time"] for line in lines}) >= 2
    assert lines[0]["rate_bps"] is None
    assert lines[-1]["rate_bps"] is not None


@pytest.mark.real_time
def test_metrics_are_the_last_sample(space: Space) -> None:
    assert space.run("ip", "link", "set", "lo", "up").returncode == 0
    watching = space.start(QUELL_LIVE, "watch", "v0", "--every", "10ms", "--metrics", "9123", "--quiet")
    ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9123/metrics', timeout=5).read().decode())"
    for _ in range(100):
        done = space.run(sys.executable, "-c", ask)
        if done.returncode == 0 and "quell_queue_backlog_bytes{" in done.stdout:
            break
        time.sleep(0.1)
    watching.terminate()
    assert watching.wait(20) == 0
    rows = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines() if line.startswith("quell_"))
    name = 'quell_queue_sent_bytes_total{dev="v0",type="qdisc",handle="10:",parent="1:10",kind="bfifo"}'
    counted = json.loads(space.run("tc", "-s", "-j", "qdisc", "show", "dev", "v0").stdout)
    assert int(rows[name]) == next(queue["bytes"] for queue in counted if queue["kind"] == "bfifo")
    taken = space.watch("v0", "--metrics", "0")
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)


@pytest.mark.real_time
def test_the_dashboard_has_every_queue(space: Space) -> None:
    assert space.run("ip", "link", "set", "lo", "up").returncode == 0
    watching = space.start(QUELL_LIVE, "watch", "v0", "--every", "10ms", "--dashboard", "9124", "--quiet")
    assert watching.stderr is not None
    address = watching.stderr.readline().split()[-1].replace("/?", "/state?")
    ask = f"import urllib.request as r; print(r.urlopen('{address}', timeout=5).read().decode())"
    for _ in range(100):
        done = space.run(sys.executable, "-c", ask)
        if done.returncode == 0 and json.loads(done.stdout)["queues"]:
            break
        time.sleep(0.1)
    watching.terminate()
    assert watching.wait(20) == 0
    queues = {(queue["name"], queue["queue"]) for queue in json.loads(done.stdout)["queues"]}
    assert {("v0 1:", "htb"), ("v0 10:", "bfifo")} <= queues


@pytest.mark.real_time
@pytest.mark.machine_root
def test_no_privileges_are_needed(space: Space) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing")
    dropped = ("setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
    readable = os.access(QUELL_LIVE, os.X_OK) and all(p.stat().st_mode & 1 for p in QUELL_LIVE.parents)
    if not readable:
        pytest.skip("another user cannot start what is built here")
    done = space.run(*dropped, QUELL_LIVE, "watch", "v0", "--every", "10ms", "--duration", "10ms")
    assert done.returncode == 0, done.stderr
    assert " bfifo: " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope"], "nope: there is no such interface; there are "),
        (["lo"], "lo: no queue discipline; tc qdisc replace dev lo root fq_codel makes one"),
        (["v0", "--every", "1us"], "--every: must be from 1ms to 60s"),
        (["v0", "--every", "10"], '--every: the time "10" has no unit'),
        (["v0", "--out", "/nowhere/x.csv"], "--out /nowhere/x.csv: cannot be written: No such file"),
        (["v0", "--out", "x.txt"], "--out x.txt: the name must end in .csv or .jsonl"),
        (["v0", "--rotate", "1mb"], "--rotate: needs --out FILE"),
        (["v0", "--rotate", "7"], '--rotate: "7" is neither a size nor a time'),
        (["v0", "--keep", "2"], "--keep: needs --rotate"),
        (["v0", "--frob"], "--frob: unknown option"),
    ],
)
def test_bad_input_is_one_line(space: Space, words: list[str], said: str) -> None:
    done = space.watch(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"quell: {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.real_time
def test_files_rotate_and_the_newest_stay(space: Space, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    # An earlier run with --keep left a gap in the numbers.
    earlier = {"q.1.jsonl", "q.3.jsonl"}
    for name in earlier:
        (tmp_path / name).write_text("of an earlier run\n")
    done = space.watch("--every", "1ms", "--duration", "3s", "--out", file, "--rotate", "64kb", "--keep", "2")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 5, names
    assert {*earlier, "q.jsonl"} < set(names)
    assert {(tmp_path / name).read_text() for name in earlier} == {"of an earlier run\n"}
    for name in set(names) - earlier:
        for line in (tmp_path / name).read_text().splitlines():
            json.loads(line)


@pytest.mark.real_time
@pytest.mark.parametrize("rotate", [(), ("--rotate", "2s")], ids=["", "rotated"])
@pytest.mark.parametrize("how", ["moved", "deleted", "replaced", "without its folder"])
def test_a_moved_or_deleted_file_loses_no_samples_without_a_message(
    space: Space, tmp_path: Path, how: str, rotate: tuple[str, ...]
) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    file, other = folder / "q.csv", tmp_path / "other"
    watch = space.start(
        QUELL_LIVE, "watch", "v0", "--every", "10ms", "--duration", "4s", *rotate, "--out", file
    )  # fmt: skip
    until = time.monotonic() + 20
    while not (file.exists() and file.stat().st_size):
        assert time.monotonic() < until
        time.sleep(0.02)
    if how == "moved":
        file.rename(folder / "kept.csv")
    elif how == "deleted":
        file.unlink()
    elif how == "replaced":
        other.write_text("another's\n")
        other.rename(file)
    else:
        shutil.rmtree(folder)
    _, said = watch.communicate(timeout=60)
    if how in ("moved", "deleted"):
        assert watch.returncode == 0, said
        assert f"{file} was moved or deleted, with " in said
        for path in folder.iterdir():
            heading, *rows = path.read_text().splitlines()
            assert heading.startswith("time,") and rows, path
    else:
        assert (watch.returncode, said.count("\n")) == (2, 1), said
        assert f"--out {file}: cannot be written: " in said
    if how == "replaced":
        assert "another file has taken its place" in said
        assert [path.read_text() for path in folder.iterdir()] == ["another's\n"]


@pytest.mark.real_time
def test_a_full_disk_is_one_line_and_leaves_whole_lines(space: Space, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        file = disk / "q.csv"
        # Without `ip netns exec`, whose mount namespace would not have this file system.
        words = ("nsenter", f"--net=/run/netns/{space.name}", QUELL_LIVE, "watch", "--every", "1ms", "--out", file)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert f"--out {file}: cannot be written: No space left on device" in done.stderr
        assert done.stderr.count("\n") == 1
        text = file.read_text()
        assert text.endswith("\n")
        assert len(list(csv.DictReader(text.splitlines()))) > 10
        assert all(line.count(",") == 17 for line in text.splitlines())
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.real_time
def test_a_device_may_go_and_come_back_and_a_reader_may_leave(space: Space) -> None:
    assert (
        space.run("sh", "-ec", "ip link add w0 type veth peer name w1; tc qdisc add dev w0 root pfifo").returncode == 0
    )
    watching = space.start(QUELL_LIVE, "watch", "w0", "--every", "10ms", "--json")
    assert watching.stdout is not None
    watching.stdout.readline()
    assert space.run("ip", "link", "del", "w0").returncode == 0
    time.sleep(0.1)
    assert (
        space.run("sh", "-ec", "ip link add w0 type veth peer name w1; tc qdisc add dev w0 root bfifo").returncode == 0
    )
    for line in watching.stdout:
        if json.loads(line)["kind"] == "bfifo":
            break
    watching.send_signal(signal.SIGTERM)
    watching.stdout.read()
    assert watching.wait(20) == 0
    assert watching.stderr is not None
    assert "no queues are left; waiting until there are" in watching.stderr.read()
    assert space.run("ip", "link", "del", "w0").returncode == 0

    watching = space.start(QUELL_LIVE, "watch", "v0", "--every", "10ms", "--json")
    assert watching.stdout is not None and watching.stderr is not None
    watching.stdout.readline()
    watching.stdout.close()
    assert watching.wait(20) == 0
    assert watching.stderr.read() == ""


@pytest.mark.real_time
def test_ten_thousand_disciplines_are_sampled(space: Space) -> None:
    for k in range(3):
        made = f"ip link add m{k} numtxqueues 4096 type veth peer name n{k}; tc qdisc add dev m{k} root handle 1: mq"
        assert space.run("sh", "-ec", made).returncode == 0
    done = space.watch("m0", "m1", "m2", "--every", "1s", "--duration", "1s", "--json")
    for k in range(3):
        space.run("ip", "link", "del", f"m{k}")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    first = [line for line in lines if line["time"] == lines[0]["time"]]
    assert len({(line["device"], line["handle"], line["parent"]) for line in first}) == len(first) == 3 * 4097


@pytest.mark.guest
@pytest.mark.real_time
def test_the_kinds_of_a_newer_kernel_report_what_tc_prints(tmp_path: Path) -> None:
    """In virtual time: 12 Mbit/s of datagrams through each queue at 8 Mbit/s."""
    script = tmp_path / "guest.sh"
    script.write_text(
        f"PYTHON={sys.executable}\n. {GUEST}\nsleep 1\n"
        f'"{QUELL_LIVE}" watch --every 10ms --duration 500ms --out /run/q.jsonl --flows\n'
        "echo == tc\nfor i in 1 2 3 5 6 7 8 9; do tc -s -j qdisc show dev c$i; done\n"
        "echo == samples\ncat /run/q.jsonl\nwait\n"
    )
    done = in_guest(script, wall_limit=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    _, printed, samples = re.split("== tc\n|== samples\n", done.stdout)
    lines = [json.loads(line) for line in samples.splitlines()]
    assert len({line["time"] for line in lines}) == 51, "in virtual time none is late"
    last = {(line["kind"], line["type"]): line for line in lines}
    # tc prints right after the last sample; tc of Linux 6.1 knows all kinds but dualpi2.
    for queue in (queue for line in printed.splitlines() for queue in json.loads(line)):
        if queue["kind"] != "htb":
            sample = last[queue["kind"], "qdisc"]
            # A packet may leave while the last lines are written.
            assert abs(sample["packets"] - queue["packets"]) <= 3, queue
            assert abs(sample["drops"] - queue["drops"]) <= 3, queue
            assert abs(sample["backlog_bytes"] - queue["backlog"]) <= 3 * 1042, queue
    kinds = {"cake", "fq_codel", "pie", "dualpi2", "codel", "fq_pie", "fq", "red", "sfq", "htb"}
    assert {kind for kind, sort in last if sort == "qdisc"} == kinds
    for kind in kinds - {"cake"}:
        line = last[kind, "qdisc"]
        # The queue sends 8 Mbit/s; a datagram has 1042 bytes with its headers.
        assert line["rate_bps"] == pytest.approx(8e6, rel=0.12), kind
        assert line["backlog_packets"] > 0, kind
        assert line["sojourn_ms"] == pytest.approx(line["backlog_bytes"] * 8 / 8e3, rel=0.05), kind
    # The kinds' own measurements agree with the derived values.
    pie, dualpi2, codel = (last[kind, "qdisc"] for kind in ("pie", "dualpi2", "codel"))
    assert pie["xstats"]["delay_us"] / 1000 == pytest.approx(pie["sojourn_ms"], rel=0.25, abs=3)
    assert codel["xstats"]["ldelay_us"] / 1000 == pytest.approx(codel["sojourn_ms"], rel=0.25)
    assert 0 < dualpi2["xstats"]["prob"] < 1
    assert dualpi2["xstats"]["step_marks"] > 0
    cake = last["cake", "qdisc"]
    assert len(cake["tins"]) == 4
    assert sum(tin["drops"] for tin in cake["tins"]) == cake["drops"]
    assert sum(tin["backlog_bytes"] for tin in cake["tins"]) == cake["backlog_bytes"]
    assert last["htb", "class"]["xstats"]["lends"] == last["htb", "class"]["packets"]
    assert last["fq_codel", "class"]["xstats"]["ldelay_us"] > 5000
    assert last["red", "qdisc"]["xstats"]["early"] == last["red", "qdisc"]["drops"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_name_is_not_a_pattern_of_other_names(space: Space, quell: Quell, tmp_path: Path, suffix: str) -> None:
    command = Path(sys.executable).parent / "quell"
    for name, duration in ((f"q1.{suffix}", "100ms"), ("q1.jsonl", "100ms"), (f"q[1].{suffix}", "2s")):
        words = ("watch", "v0", "--every", "50ms", "--duration", duration, "--quiet", "--out", tmp_path / name)
        done = space.run(command, *words)
        assert done.returncode == 0, done.stderr
    shown = quell("show", f"q[1].{suffix}", "--json", "-")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)[0]["samples"] > 3


def test_later_parquet_files_have_higher_numbers(tmp_path: Path) -> None:
    converter = _Converter(tmp_path / "q.parquet", 2)
    for number in range(5):
        lines = tmp_path / f"q.{number}.jsonl"
        names = ("rate_bps", "packets_per_s", "drops_per_s", "sojourn_ms")
        lines.write_text(json.dumps(dict.fromkeys(names, float(number))) + "\n")
        converter.put(lines)
    converter.end()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.4.parquet", "q.5.parquet"]


def test_parquet_and_its_report(space: Space, quell: Quell, tmp_path: Path) -> None:
    quell_command = Path(sys.executable).parent / "quell"
    file = tmp_path / "q.parquet"
    done = space.run(quell_command, "watch", "--every", "10ms", "--duration", "300ms", "--out", file)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["q.parquet"]
    shown = quell("show", str(file), "--html", "q.html")
    assert shown.returncode == 0, shown.stderr
    assert "v0 10: bfifo" in shown.stdout
    assert "Sojourn time" in (tmp_path / "q.html").read_text()
    rows = json.loads(quell("show", str(file), "--json", "-").stdout)
    assert {row["queue"] for row in rows} == {"v0 1: htb", "v0 10: bfifo", "v0 1:10 htb class", "v1 2: tbf"}
    assert all(1 < row["samples"] <= 31 for row in rows)
    wrong = quell("show", str(GUEST.with_suffix(".csv")))
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
