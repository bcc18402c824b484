"""`quell shell`: real programs behind an emulated link, in namespaces made here. Counts and order, no times."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import QUELL, Quell, no_tun
from quell.inputs.flent import Measured


def missing() -> str:
    """Return what keeps these tests from running; empty if nothing does."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root may make a network namespace beside its own"
    return no_tun()


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"quell shell cannot run here: {missing()}")

SERVE = f"{sys.executable} -m http.server 8000 --bind ::"
FETCH = """
import os, sys, urllib.request
host = os.environ[sys.argv[1]]
host = f"[{host}]" if ":" in host else host
data = urllib.request.urlopen(f"http://{host}:8000/file", timeout=60).read()
open("got", "wb").write(data)
"""


def records(folder: Path, name: str = "run.json") -> list[dict[str, Any]]:
    down, up = json.loads((folder / name).read_text())
    assert (down["scenario"], up["scenario"]) == ("down", "up")
    return [down, up]


def assert_nothing_is_lost_or_made(folder: Path, name: str = "run.json") -> None:
    for record in records(folder, name):
        live, causes = record["live"], record["drops_by_cause"]
        gone = live["sent"] + live["unsent"] + live["refused"] + sum(causes.values()) + live["inside"]
        assert live["read"] == gone, record


def python(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return name


@pytest.mark.real_time
@pytest.mark.parametrize("aqm", ["pfifo", "fq_codel", "dualpi2", "learnqueue", "rlaqm", "cake", "pie"])
def test_a_transfer_arrives_whole_behind_any_queue(quell: Quell, tmp_path: Path, aqm: str) -> None:
    data = random.Random(1).randbytes(1_500_000)
    (tmp_path / "file").write_bytes(data)
    fetch = python(tmp_path, "fetch.py", FETCH)
    done = quell(
        "shell", "--rate", "20mbit/5mbit", "--delay", "5ms", "--aqm", aqm, "--json", "run.json", "--server", SERVE,
        "--", sys.executable, fetch, "QUELL_SERVER",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256((tmp_path / "got").read_bytes()).digest() == hashlib.sha256(data).digest()
    down, up = records(tmp_path)
    assert down["queue"].split()[0] == aqm
    assert down["packets"] >= len(data) / 1448
    assert up["packets"] > 100, "acknowledgements"
    assert_nothing_is_lost_or_made(tmp_path)


@pytest.mark.real_time
@pytest.mark.parametrize("aqm", ["pfifo", "fq_codel", "dualpi2", "learnqueue", "rlaqm"])
@pytest.mark.parametrize("reverse", [False, True])
def test_iperf3_runs_unmodified(quell: Quell, tmp_path: Path, aqm: str, reverse: bool) -> None:
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")
    iperf = 'exec iperf3 --client "$QUELL_SERVER" --bytes 1M --parallel 2 --json' + (" --reverse" if reverse else "")
    done = quell(
        "shell", "--rate", "20mbit", "--delay", "5ms", "--aqm", aqm, "--json", "run.json", "--quiet",
        "--server", "iperf3 --server --one-off", "--", "sh", "-c", iperf,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    # iperf3 does not wait for its last data.
    received = json.loads(done.stdout)["end"]["sum_received"]["bytes"]
    assert received > 200_000
    assert records(tmp_path)[0 if reverse else 1]["packets"] >= received / 1448
    assert_nothing_is_lost_or_made(tmp_path)


@pytest.mark.real_time
def test_the_command_does_not_learn_the_dashboards_token(
    quell: Quell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUELL_DASHBOARD_TOKEN", token := "0123456789abcdef" * 2)
    done = quell("shell", "--rate", "20mbit", "--dashboard", "--", "env")
    assert done.returncode == 0, done.stderr
    assert f"token={token}" in done.stderr and "QUELL_SERVER=" in done.stdout and token not in done.stdout


@pytest.mark.real_time
def test_curl_runs_unmodified(quell: Quell, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (tmp_path / "file").write_bytes(random.Random(2).randbytes(500_000))
    curl = "curl --silent --fail --output got http://$QUELL_SERVER:8000/file"
    done = quell("shell", "--trace", "builtin:lte", "--server", SERVE, "--", "sh", "-c", curl)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got").read_bytes() == (tmp_path / "file").read_bytes()


@pytest.mark.real_time
def test_a_browser_loads_a_page(quell: Quell, tmp_path: Path) -> None:
    if (browser := shutil.which("chromium") or shutil.which("google-chrome")) is None:
        pytest.skip("no Chromium is installed")
    (tmp_path / "script.js").write_text("document.body.append('drawn ' + 6 * 7)")
    (tmp_path / "index.html").write_text("<!doctype html><body><script src=script.js></script>")
    load = f"exec {browser} --headless --no-sandbox --disable-gpu --dump-dom http://$QUELL_SERVER:8000/index.html"
    done = quell("shell", "--rate", "20mbit", "--delay", "5ms", "--server", SERVE, "--", "sh", "-c", load)
    assert "drawn 42" in done.stdout, done.stderr


@pytest.mark.real_time
def test_ipv6_works_as_well(quell: Quell, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(200_000))
    fetch = python(tmp_path, "fetch.py", FETCH)
    arguments = ["--rate", "20mbit", "--server", SERVE, "--", sys.executable, fetch, "QUELL_SERVER6"]
    done = quell("shell", *arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got").stat().st_size == 200_000


@pytest.mark.real_time
def test_the_command_s_exit_status_is_passed_on(quell: Quell, tmp_path: Path) -> None:
    run = ["shell", "--rate", "5mbit", "--quiet", "--"]
    assert quell(*run, "true").returncode == 0
    assert quell(*run, "sh", "-c", "exit 7").returncode == 7
    assert quell(*run, "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    missing = quell(*run, "no-such-command")
    assert (missing.returncode, missing.stderr) == (127, "quell: no-such-command: command not found\n")
    (tmp_path / "data").write_text("not a program")
    refused = quell(*run, "./data")
    assert (refused.returncode, refused.stderr) == (126, "quell: ./data: Permission denied\n")


def test_a_line_without_an_end_is_printed_in_pieces() -> None:
    from quell.cli import shell

    pieces: list[int] = []
    live = SimpleNamespace(console=SimpleNamespace(print=lambda text, **_: pieces.append(len(text))))
    shell._print_lines(io.BytesIO(b"x" * 1_000_000 + b"\nlast"), live)
    assert sum(pieces) == 1_000_004 and max(pieces) <= 1 << 16


@pytest.mark.real_time
def test_a_live_view_and_a_report_are_drawn(quell: Quell, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(500_000))
    fetch = python(tmp_path, "fetch.py", FETCH + "print('fetched')\n")
    done = quell(
        "shell", "--rate", "20mbit", "--delay", "5ms", "--aqm", "fq_codel", "--up-aqm", "codel", "--view",
        "--html", "run.html", "--json", "run.json", "--series", "0.05", "--server", SERVE,
        "--", sys.executable, fetch, "QUELL_SERVER",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "fetched" in done.stderr, "what the command prints goes above the view"
    page = (tmp_path / "run.html").read_text()
    for text in ("fq_codel, up codel: ", "exit status 0", "20mbit, 5 ms each way", "Real packets"):
        assert text in page, text
    for text in ("◆", "seeds = ", "[[flow]]"):
        assert text not in page, text
    down, _ = records(tmp_path)
    assert down["queue"] == "fq_codel"
    series = down["series"]
    assert series["bin_s"] == 0.05
    assert len(series["backlog_ms"]) == len(series["drops"]) > 2
    # The last bin is not full when the command ends, and is left out.
    assert sum(series["throughput_mbps"]) * 0.05 * 1e6 / 8 > 500_000 - 0.05 * 20e6 / 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "0mbit"], '--rate: "0mbit" is less than one bit per second'),
        (["--rate", "5mbit", "--aqm", "codl"], "--aqm: unknown queue `codl`; did you mean `codel`?"),
        (["--rate", "5mbit", "--up-aqm", "codel target 5"], "--up-aqm: codel: target: the time"),
        (["--rate", "5mbit", "--up-rate", "fast"], '--up-rate: "fast" '),
        (["--rate", "5mbit/1mbit", "--up-rate", "1mbit"], "--rate 5mbit/1mbit: not with --up-rate"),
        (["--rate", "5mbit/fast"], '--up-rate: "fast" '),
        (["--rate", "5mbit", "--loss", "2"], '--loss: "2" is not a probability'),
        (["--delay", "5ms"], "there is no link; give --rate"),
        (["--trace", "no.trace"], "--trace: cannot read the trace no.trace"),
        (["--scenario", "home", "--delay", "5ms"], "--delay: not with --scenario"),
        (["--rate", "5mbit", "--mtu", "20"], "--mtu: 20 bytes are not a packet size; write 68 to 65535"),
        (["--rate", "5mbit", "--server", "'"], "--server: No closing quotation"),
    ],
)
def test_bad_input_is_one_line(quell: Quell, arguments: list[str], message: str) -> None:
    done = quell("shell", *arguments, "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith(f"quell: {message}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_machine_without_tun_gets_an_error_with_a_remedy(tmp_path: Path) -> None:
    hide = 'mount -t tmpfs none /dev/net && exec "$0" shell --rate 5mbit -- true'
    done = subprocess.run(["unshare", "-m", "sh", "-c", hide, QUELL], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("quell: /dev/net/tun is missing; load the module (modprobe tun)"), done.stderr
    assert done.stderr.count("\n") == 1


# The message of `ip link delete` (rtnetlink(7)): RTM_DELLINK for the only device named quell...
DELETE = """
import socket, struct
index, = (index for index, name in socket.if_nameindex() if name.startswith("quell"))
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
s.send(struct.pack("=IHHIIBxHiII", 32, 17, 5, 1, 0, 0, 0, index, 0, 0))
error = struct.unpack("=i", s.recv(4096)[16:20])[0]
assert error == 0, error
"""


# Sends for six seconds; deletes the device after one, if told to.
SEND_ON = """
import os, socket, subprocess, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for k in range(120):
    if k == 20 and sys.argv[1] == "behind":
        subprocess.run([sys.executable, "delete.py"], check=True)
    try:
        s.sendto(b"x", (os.environ["QUELL_SERVER"], 9))
    except OSError:
        pass  # no route any more
    time.sleep(0.05)
print("alive")
sys.exit(5)
"""


@pytest.mark.real_time
@pytest.mark.parametrize("where", ["behind", "outside"])
def test_a_deleted_device_ends_the_link_but_not_the_command(tmp_path: Path, where: str) -> None:
    python(tmp_path, "delete.py", DELETE)
    send = python(tmp_path, "send.py", SEND_ON)
    command = [str(QUELL), "shell", "--rate", "5mbit", "--json", "run.json", "--", sys.executable, send, where]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        if where == "outside":
            while not any(name.startswith("quell") for _, name in socket.if_nameindex()):
                time.sleep(0.05)
            time.sleep(1)
            subprocess.run([sys.executable, "delete.py"], cwd=tmp_path, check=True)
        out, errors = running.communicate(timeout=60)
    assert (running.returncode, out) == (5, "alive\n"), errors
    gone = r"^quell: the link is gone: its device quell\w+ was deleted; the command continues without it$"
    assert len(re.findall(gone, errors, re.MULTILINE)) == 1, errors
    assert_nothing_is_lost_or_made(tmp_path)
    assert records(tmp_path)[1]["live"]["read"] >= 10
    # No loop spins for the rest of the time.
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    assert cpu_s < 3, cpu_s


# Sends 3,000 numbered datagrams, then `stop` until the server answers.
SEND = """
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.1)
for number in range(3000):
    s.sendto(b"%d" % number, (os.environ["QUELL_SERVER"], 9))
while True:
    s.sendto(b"stop", (os.environ["QUELL_SERVER"], 9))
    try:
        s.recv(9)
        break
    except TimeoutError:
        pass
import time
time.sleep(0.3)
"""
RECEIVE = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE: what arrives must not be lost here
s.bind(("", 9))
numbers, stops = [], 0
while True:
    data, sender = s.recvfrom(99)
    if data != b"stop":
        numbers.append(int(data))
        continue
    stops += 1
    with open("part", "w") as file:
        file.write(f"{stops} {' '.join(map(str, numbers))}")
    import os
    os.replace("part", "numbers")
    s.sendto(b"ok", sender)
"""


@pytest.mark.real_time
@pytest.mark.parametrize("aqm", ["pfifo limit 5000", "fq_codel limit 30", "fifo drop 0.1"])
@pytest.mark.machine_root  # SO_RCVBUFFORCE
def test_packets_keep_their_order_and_none_is_lost_unseen(quell: Quell, tmp_path: Path, aqm: str) -> None:
    send, receive = python(tmp_path, "send.py", SEND), python(tmp_path, "receive.py", RECEIVE)
    # Without IPv6 (which needs an MTU of 1280) the kernel sends no packets of its own.
    done = quell(
        "shell", "--rate", "2mbit", "--delay", "3ms", "--loss", "5%", "--mtu", "1000", "--aqm", aqm,
        "--json", "run.json", "--server", f"{sys.executable} {receive}", "--", sys.executable, send,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stops, *numbers = map(int, (tmp_path / "numbers").read_text().split())
    assert numbers == sorted(set(numbers))
    _, up = records(tmp_path)
    assert up["live"]["sent"] == len(numbers) + stops
    assert up["live"]["read"] >= 3000
    assert up["drops_by_cause"]["link"] > 0
    assert up["drops"] > 0 or aqm == "pfifo limit 5000"
    assert_nothing_is_lost_or_made(tmp_path)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("mtu", "host"),
    [(576, "QUELL_SERVER"), (1280, "QUELL_SERVER6"), (1500, "QUELL_SERVER"), (65535, "QUELL_SERVER6")],
)
@pytest.mark.parametrize("offload", [True, False])
def test_any_size_of_packet_arrives_whole(quell: Quell, tmp_path: Path, mtu: int, host: str, offload: bool) -> None:
    data = random.Random(3).randbytes(5_000_000)
    (tmp_path / "file").write_bytes(data)
    fetch = python(tmp_path, "fetch.py", FETCH)
    done = quell(
        "shell", "--rate", "2gbit", "--aqm", "fq_codel", "--mtu", str(mtu), *(() if offload else ("--no-offload",)),
        "--json", "run.json", "--server", SERVE, "--", sys.executable, fetch, host,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256((tmp_path / "got").read_bytes()).digest() == hashlib.sha256(data).digest()
    assert_nothing_is_lost_or_made(tmp_path)
    live = records(tmp_path)[0]["live"]
    assert live["sent"] >= len(data) / mtu
    # On a fast link several packets are due when the loop looks; those of one connection leave as one.
    assert live["frames"] < live["sent"] * 0.9 if offload and mtu <= 1500 else live["frames"] <= live["sent"]


# Fetches with ECN, and counts marked packets on the wire.
ECN = """
import socket, threading
open("/proc/sys/net/ipv4/tcp_ecn", "w").write("1")
tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
tap.settimeout(0.5)
tap.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
seen = [0, 0]
def look():
    while True:
        try:
            packet, (_, protocol, kind, *_) = tap.recvfrom(2000)
        except TimeoutError:
            return
        if kind == 0 and protocol == 0x800:
            seen[0] += packet[1] & 3 == 3
            words = [int.from_bytes(packet[i:i + 2], "big") for i in range(0, 20, 2)]
            seen[1] += sum(words) % 0xffff != 0
looking = threading.Thread(target=look)
looking.start()
"""


# On the fast link segments leave as one, except marked ones.
@pytest.mark.real_time
@pytest.mark.parametrize(("rate", "target", "interval"), [("10mbit", "1ms", "10ms"), ("1gbit", "20us", "200us")])
@pytest.mark.machine_root  # SO_RCVBUFFORCE
def test_marks_are_written_counted_and_leave_checksums_right(
    quell: Quell, tmp_path: Path, rate: str, target: str, interval: str
) -> None:
    size = 1_000_000 if rate == "10mbit" else 10_000_000
    (tmp_path / "file").write_bytes(bytes(size))
    fetch = python(tmp_path, "fetch.py", ECN + FETCH + "looking.join()\nprint(*seen)\n")
    done = quell(
        "shell", "--rate", rate, "--delay", "5ms", "--aqm", f"codel target {target} interval {interval} ecn",
        "--json", "run.json", "--server", SERVE, "--", sys.executable, fetch, "QUELL_SERVER",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    down, _ = records(tmp_path)
    marked, wrong = map(int, done.stdout.split())
    assert down["marks"] > 0
    assert marked == down["live"]["marks_sent"] == down["marks"]
    assert wrong == 0
    assert rate == "10mbit" or down["live"]["frames"] < down["live"]["sent"]
    assert (tmp_path / "got").stat().st_size == size


@pytest.mark.real_time
def test_shells_nest(quell: Quell, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(300_000))
    fetch = python(tmp_path, "fetch.py", FETCH)
    inner = f"{QUELL} shell --rate 20mbit --delay 2ms --aqm codel --json"
    script = (
        f"FAR=$QUELL_SERVER; FAR6=$QUELL_SERVER6; export FAR FAR6; {inner} one.json -- sh -c '"
        f"{inner} two.json -- {sys.executable} {fetch} FAR && {sys.executable} {fetch} FAR6'"
    )
    arguments = ["--rate", "20mbit", "--delay", "2ms", "--json", "run.json", "--server", SERVE]
    done = quell("shell", *arguments, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got").stat().st_size == 300_000
    far, middle, near = (records(tmp_path, f"{name}.json")[0]["packets"] for name in ("run", "one", "two"))
    assert min(far, middle) >= 600_000 / 1448, "both transfers pass the outer links"
    assert near >= 300_000 / 1448


USER = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"]


def user_can_run(*command: str) -> bool:
    # Through a shell, because setpriv itself still has root's rights when it executes.
    return subprocess.run([*USER, "sh", "-c", 'exec "$@"', "sh", *command], capture_output=True).returncode == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that other users can reach. pytest's folders become private when another pytest starts."""
    with tempfile.TemporaryDirectory(prefix="quell-shell-") as name:
        yield Path(name)


def as_user(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `quell shell` without root's rights, with a private device file that users may open."""
    os.chown(folder, 12345, 12345)
    device = 'mount -t tmpfs none /dev/net && mknod /dev/net/tun c 10 200 && chmod 666 /dev/net/tun && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", device, "sh", *USER, str(QUELL), "shell", "--rate", "20mbit", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    if "does not let users have" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done


@pytest.mark.real_time
def test_a_user_who_is_not_root_gets_a_world_of_their_own(open_folder: Path) -> None:
    if (interpreter := next(filter(lambda p: user_can_run(p, "-c", ""), [sys.executable, "python3"]), None)) is None:
        pytest.skip("no Python here that others than root may run")
    (open_folder / "file").write_bytes(bytes(100_000))
    fetch = python(open_folder, "fetch.py", FETCH)
    serve = f"{interpreter} -m http.server 8000 --bind ::"
    script = f"id -u; {interpreter} {fetch} QUELL_SERVER"
    done = as_user(open_folder, "--json", "run.json", "--server", serve, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "12345\n", "the user stays who they were"
    assert (open_folder / "got").stat().st_size == 100_000
    assert_nothing_is_lost_or_made(open_folder)


def test_a_user_without_a_server_is_told_so(open_folder: Path) -> None:
    done = as_user(open_folder, "--", "true")
    assert done.returncode == 0
    assert "not root: the other side is an empty namespace without network access" in done.stderr


@pytest.mark.real_time
def test_a_user_s_shells_nest(open_folder: Path) -> None:
    if not user_can_run(str(QUELL), "--version"):
        pytest.skip(f"others than root may not run {QUELL} here")
    done = as_user(open_folder, "--", str(QUELL), "shell", "--rate", "5mbit", "--", "id", "-u")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "12345\n"
    assert "the other side is this machine" in done.stderr, "the inner one may change the outer one's namespace"


# A machine with a neighbour: a namespace whose only link leads to another one, which runs a server.
NEIGHBOUR = """
set -e
ip link set lo up
unshare -n sh -c "while ! ip link set v1 up 2>/dev/null; do sleep 0.05; done
  ip addr add 10.9.9.2/24 dev v1; exec {serve}" & near=$!
while [ "$(readlink /proc/$near/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link add v0 type veth peer name v1 netns $near
ip addr add 10.9.9.1/24 dev v0
ip link set v0 up
echo 0 >/proc/sys/net/ipv4/ip_forward
while ! curl --silent --output /dev/null http://10.9.9.2:8000/; do sleep 0.1; done
{run}
for _ in $(seq 100); do iptables-save | grep -q quell || break; sleep 0.3; done
iptables-save | grep quell || true
cat /proc/sys/net/ipv4/ip_forward
kill $near
"""


@pytest.mark.real_time
@pytest.mark.parametrize("killed", ["", "quell", pytest.param("all", marks=pytest.mark.machine_root)])
def test_nat_leads_out_and_leaves_nothing(tmp_path: Path, killed: str) -> None:
    for needed in ("iptables", "ip", "curl", "pgrep"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    (tmp_path / "file").write_text("from afar")
    fetch = "curl --silent --retry 20 --retry-delay 1 --retry-all-errors http://10.9.9.2:8000/file"
    run = f"{QUELL} shell --rate 5mbit --nat --quiet -- sh -c '{fetch}; touch got; sleep {1000 if killed else 0}'"
    if killed:
        # When a session ends, all its processes get these signals, including the one that removes the rules.
        guard = "guard=$(pgrep -P $quell -f natguard); for n in INT HUP TERM; do kill -$n $guard; done; sleep 0.2"
        run = f"{run} & quell=$!; while ! [ -e got ]; do sleep 0.1; done; {guard if killed == 'all' else ':'}"
        run += "; kill -9 $quell; wait $quell || true"
    script = NEIGHBOUR.format(serve=f"{sys.executable} -m http.server 8000 >/dev/null 2>&1", run=run)
    command = ["unshare", "-n", "sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "from afar0\n", done.stderr


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [QUELL, "shell", "--rate", "5mbit", "--json", "run.json", "--", *arguments], cwd=folder, text=True,
        env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("number", "everyone", "status"), [(signal.SIGINT, True, 9), (signal.SIGTERM, False, 128 + signal.SIGTERM)]
)
def test_signals_are_for_the_command(tmp_path: Path, number: int, everyone: bool, status: int) -> None:
    process = start(tmp_path, "sh", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.1; done")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # Ctrl-C in a terminal signals all processes; others send SIGTERM to quell only.
        (os.killpg if everyone else os.kill)(process.pid, number)
        assert process.wait(timeout=30) == status
        assert len(records(tmp_path)) == 2
    finally:
        process.kill()
        process.communicate()


@pytest.mark.real_time
def test_a_signal_while_the_command_starts_is_not_lost(tmp_path: Path) -> None:
    rng = random.Random(3)
    for _ in range(12):
        process = start(tmp_path, "sleep", "60")
        try:
            assert process.stderr is not None
            assert any("QUELL_SERVER=" in line for line in process.stderr)
            time.sleep(rng.uniform(0, 0.003))
            process.terminate()
            assert process.wait(timeout=20) == 128 + signal.SIGTERM
        finally:
            process.kill()
            process.communicate()


def left_over(marker: str) -> list[str]:
    """List processes and devices left by tests with this marker in their environment."""
    found = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines() if "quell" in line]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.real_time
def test_nothing_is_left_after_kill_9_at_any_moment(quell: Quell, tmp_path: Path) -> None:
    rng = random.Random(9)
    marker = f"QUELL_KILLED={os.getpid()}"
    daemon = "setsid sleep 1000 & setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & echo; wait"
    for _ in range(10):
        running = []
        for _ in range(5):
            folder = tmp_path / str(rng.random())
            folder.mkdir()
            running.append(start(folder, "sh", "-c", daemon, QUELL_KILLED=str(os.getpid())))
        for process in running:
            time.sleep(rng.uniform(0, 0.6))
            process.kill()
        for process in running:
            process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while (left := left_over(marker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    (tmp_path / "file").write_bytes(bytes(1000))
    fetch = python(tmp_path, "fetch.py", FETCH)
    assert (
        quell("shell", "--rate", "5mbit", "--server", SERVE, "--", sys.executable, fetch, "QUELL_SERVER").returncode
        == 0
    )


@pytest.mark.real_time
def test_processes_in_the_background_end_with_the_command(quell: Quell) -> None:
    marker = f"QUELL_ENDED={os.getpid()}"
    done = quell(
        "shell", "--rate", "5mbit", "--quiet", "--", "sh", "-c", f"export {marker}; setsid sleep 1000 & exit 4"
    )
    assert done.returncode == 4
    assert left_over(marker) == []


# A part of /proc is hidden, as in containers: no other /proc can be mounted, hence no PID namespace.
HIDDEN = """
mount -t tmpfs none /proc/tty
exec unshare --user --map-root-user --net sh -c 'mount -t proc none /proc 2>/dev/null && exit 9; exec "$@"' - "$@"
"""


@pytest.mark.real_time
@pytest.mark.machine_root
@pytest.mark.parametrize("end", ["kill -9", "status"])
def test_all_processes_end_where_no_proc_can_be_mounted(tmp_path: Path, end: str) -> None:
    marker = f"QUELL_ENDED={os.getpid()}-{end[:4]}"
    command = f"export {marker}; (setsid sh -c 'sleep 1000; :' &); setsid sleep 1000 & touch up; "
    command += "exec sleep 1000" if end == "kill -9" else "exit 4"
    words = ["unshare", "--mount", "sh", "-ec", HIDDEN, "-", str(QUELL), "shell", "--rate", "5mbit", "--quiet"]
    words += ["--server", f"sh -c 'export {marker}; sleep 1000 & sleep 1000'", "--", "sh", "-c", command]
    with subprocess.Popen(words, cwd=tmp_path) as process:
        if end == "kill -9":
            until = time.monotonic() + 30
            while not (tmp_path / "up").exists():
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.05)
            assert left_over(marker)
            process.kill()
        assert process.wait(timeout=30) == (-signal.SIGKILL if end == "kill -9" else 4)
    until = time.monotonic() + 5
    while left := left_over(marker):
        assert time.monotonic() < until, left
        time.sleep(0.05)


@pytest.mark.real_time
def test_flent_opens_what_a_command_sent(quell: Quell, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1_500_000))
    fetch = python(tmp_path, "fetch.py", FETCH)
    done = quell(
        "shell", "--rate", "10mbit", "--delay", "5ms", "--up-delay", "15ms", "--flent", "s.flent.gz", "--server", SERVE,
        "--", sys.executable, fetch, "QUELL_SERVER",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = Measured.load(tmp_path / "s.flent.gz")
    assert [len(measured.streams(way)) for way in ("download", "upload")] == [1, 1]
    down = sum(v for v in measured.results["TCP download sum"] if v is not None) * 0.2 / 8
    # The last bin is not whole and so not plotted; it has up to 0.25 MB, which take 0.2 s at 10 Mbit/s.
    assert 1.2 <= down < 1.7, "MB of a file of 1.5, without the last bin"
    assert min(v for v in measured.results["Ping (ms) ICMP"] if v is not None) >= 20.0
    said = subprocess.run(
        [sys.executable, "-m", "flent", "-i", "s.flent.gz", "-f", "summary"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert "TCP download sum" in said


@pytest.mark.real_time
def test_a_command_too_short_for_flent_keeps_its_status_and_writes_no_file(quell: Quell, tmp_path: Path) -> None:
    done = quell("shell", "--rate", "10mbit", "--flent", "s.flent.gz", "--quiet", "--", "sh", "-c", "exit 3")
    assert (done.returncode, list(tmp_path.iterdir())) == (3, [])
    assert (
        done.stderr == "quell: --flent: nothing to plot: the command ended within 2 bins; s.flent.gz is not written\n"
    )


@pytest.mark.real_time
def test_a_shell_that_is_not_finished_leaves_nothing() -> None:
    script = """
import socket
from pathlib import Path
from quell import InputError, Scenario, _core

def there() -> int:
    return sum(len([*Path(path).iterdir()]) for path in ("/proc/self/fd", "/proc/self/task", "/sys/class/net"))

def start(**more: object) -> None:
    _core.Shell(link, ["sleep", "60"], base_rtt=False, bin_s=0.1, **more)

link = Scenario.from_keys(link={"rate": "5mbit"})
start()
before = there()
start(hold=True)
start()
taken = socket.create_server(("127.0.0.1", 0))
try:
    start(dashboard=taken.getsockname()[1])
except InputError:
    taken.close()
print(there() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stdout + done.stderr
