"""One measurement of benches/shell/fidelity, benches/shell/held-out or benches/shell/clsact, in virtual time.

    virtual.py shell|linux|clsact QUEUE SEED LINE

LINE is the output of `Line.text`.

`shell`: through quell shell. `linux`: client, router and server joined by veth pairs, netem's delay at both ends, HTB
and Linux's own discipline at the router. `clsact`: the same with a FIFO whose drop probability is steered by the
controller QUEUE. Prints JSON without the warm-up: goodput, the backlog's mean and 95th percentile, and with `linux` and
`clsact` the router's drops and marks.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from line import Line
from quell import Scenario

HERE = Path(__file__).resolve().parent
QUELL = HERE.parent.parent / ".venv" / "bin" / "quell"
QUELL_LIVE = QUELL.with_name("quell-live")
FIFO = "pfifo limit 5000"
STEP_S = 0.001
BUFFERS = "net.ipv4.tcp_rmem=4096 131072 6291456", "net.ipv4.tcp_wmem=4096 16384 4194304"


def main() -> None:
    """Measure and print."""
    kind, queue, seed, text = sys.argv[1:]
    line = Line.of(text)
    os.chdir(subprocess.run(["mktemp", "-d", "-p", "/run"], check=True, capture_output=True, text=True).stdout.strip())
    fates: dict[str, int] = {}
    if kind == "shell":
        backlog = shell(queue, seed, line)
    else:
        backlog, fates = linux(queue, line, kind == "clsact")
    sink = json.loads(Path("sink.json").read_text())
    measured = sorted(ms for at, ms in backlog if line.warm_s <= at <= sink["until_s"])
    print(json.dumps({
        "goodput_mbps": sink["goodput_mbps"], "mean_ms": sum(measured) / len(measured),
        "p95_ms": measured[int(0.95 * len(measured))], **fates,
    }))  # fmt: skip


def shell(queue: str, seed: str, line: Line) -> list[tuple[float, float]]:
    """Run quell shell; return samples of time, s, and backlog, ms."""
    run("sysctl", "-qw", *settings(line))
    link = Scenario.from_keys(
        link={
            "rate": "1gbit", "delay": f"{line.rtt_ms * 500:.0f}us", "queue": "pfifo limit 10000",
            "up": {"rate": f"{line.rate}bit", "shaper": "htb", "queue": queue},
        },
    )  # fmt: skip
    Path("link.toml").write_text(link.toml())
    serve = f"{sys.executable} {HERE / 'sink.py'} {line.warm_s} {line.until_s} sink.json"
    options = ["--scenario", "link.toml", "--no-offload", "--series", str(STEP_S), "--json", "run.json", "--seed", seed]
    run(QUELL, "shell", *options, "--quiet", "--server", serve, "--", *sender(line))
    up = json.loads(Path("run.json").read_text())[1]
    if up["live"]["missed"]:
        sys.exit(f"{queue}: {up['live']['missed']} packets were late, in virtual time")
    return [(i * STEP_S, ms) for i, ms in enumerate(up["series"]["backlog_ms"])]


def linux(queue: str, line: Line, steered: bool) -> tuple[list[tuple[float, float]], dict[str, int]]:
    """Run Linux's discipline; return samples of time, s, and backlog, ms, and the numbers of drops and marks."""
    controller = queue.split()
    if steered:
        queue = FIFO
    for space in "crs":
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
    delay = ["netem", "delay", f"{line.rtt_ms * 500:.0f}us"]
    for space, net in (("c", 1), ("s", 2)):
        run("ip", "link", "add", "v0", "netns", space, "type", "veth", "peer", "name", f"r{space}", "netns", "r")
        for where, dev, host in ((space, "v0", 2), ("r", f"r{space}", 1)):
            run("ip", "-n", where, "addr", "add", f"10.0.{net}.{host}/24", "dev", dev)
            run("ip", "-n", where, "link", "set", dev, "up")
            within(where, lambda d=dev: plain(d))
        run("ip", "-n", space, "route", "add", "default", "via", f"10.0.{net}.1")
        run(
            "tc",
            "-n",
            space,
            *["qdisc", "add", "dev", "v0", "root", *delay, "limit", "100000"],
        )
    within("r", lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"))
    for space in "cs":
        run("ip", "netns", "exec", space, "sysctl", "-qw", *settings(line))
    run("tc", "-n", "r", *["qdisc", "add", "dev", "rs", "root", "handle", "1:", "htb", "default", "1"])
    shape = f"htb rate {line.rate}bit ceil {line.rate}bit burst 1600 cburst 1600 quantum 1514"
    run("tc", "-n", "r", *f"class add dev rs parent 1: classid 1:1 {shape}".split())
    if queue == "dualpi2":
        # Debian 12's tc does not know dualpi2.
        within("r", lambda: add_qdisc("rs", queue))
    else:
        run("tc", "-n", "r", *f"qdisc add dev rs parent 1:1 handle 10: {queue}".split())
    steering = None
    if steered:
        controller += ["--with", "clsact", "--json", "--quiet", *["--ecn"] * line.ecn]
        command: list[str | Path] = ["ip", "netns", "exec", "r", QUELL_LIVE, "steer", "rs", "1:1", *controller]
        with Path("steer.jsonl").open("w") as out:
            steering = subprocess.Popen(command, stdout=out)
    samples: list[tuple[float, float]] = []
    words = [sys.executable, str(HERE / "sink.py"), str(line.warm_s), str(line.until_s), "sink.json"]
    with subprocess.Popen(["ip", "netns", "exec", "s", *words]) as sink:
        time.sleep(1)
        sampler = threading.Thread(target=lambda: within("r", lambda: sample("rs", line, samples)))
        sampler.start()
        warm = time.time() + line.warm_s
        before: list[str] = []
        threading.Timer(line.warm_s, lambda: before.append(shown())).start()
        environment = os.environ | {"QUELL_SERVER": "10.0.2.2"}
        subprocess.run(["ip", "netns", "exec", "c", *sender(line)], check=True, env=environment)
        sampler.join()
        sink.terminate()
    if steering:
        steering.terminate()
        steering.wait()
        rows = map(json.loads, Path("steer.jsonl").read_text().splitlines())
        # The first row counted holds the counters at the end of the warm-up.
        counted = [row for row in rows if row["type"] == "filter" and row["time"] >= warm]
        return samples, {name: counted[-1][name] - counted[0][name] for name in ("drops", "marks")}
    after = shown()
    names = {"drops": r"dropped (\d+)", "marks": r"ecn_mark (\d+)"}
    return samples, {name: number(words, after) - number(words, before[0]) for name, words in names.items()}


def shown() -> str:
    """Return what tc shows of the discipline below HTB."""
    words = ["tc", "-n", "r", "-s", "qdisc", "show", "dev", "rs"]
    return subprocess.run(words, capture_output=True, text=True).stdout.partition("parent 1:1")[2]


def number(words: str, text: str) -> int:
    """Return the last number that the pattern `words` finds, or 0."""
    found = re.findall(words, text)
    return int(found[-1]) if found else 0


def sender(line: Line) -> list[str]:
    """Return the command that keeps the line busy."""
    # One second more: the sink counts from the first connection, which arrives a round trip later.
    words = [line.cc, str(line.flows), str(line.until_s + 1), str(line.spread_s)]
    return [sys.executable, str(HERE / "send.py"), *words]


def settings(line: Line) -> list[str]:
    """Return the sysctl settings of both ends.

    After a timeout Linux gives a connection another hash (net.core.txrehash). On veth pairs packets carry the hash, so
    fq_codel and cake at the router would see a new flow. Real wires carry no hash, so txrehash is off.
    """
    return [*BUFFERS, f"net.ipv4.tcp_ecn={int(line.ecn)}", "net.core.txrehash=0"]


def run(*words: object) -> None:
    """Run a command; exits with this program if it fails."""
    subprocess.run([str(word) for word in words], check=True)


def within(space: str, do: object) -> None:
    """Call a function in a network namespace, with the current thread."""

    def enter() -> None:
        with Path(f"/run/netns/{space}").open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        do()  # type: ignore[operator]

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()


def plain(dev: str) -> None:
    """Switch a device's offloads off: TSO, GSO, GRO (linux/ethtool.h)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for command in (0x1F, 0x24, 0x2C):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            fcntl.ioctl(s, 0x8946, struct.pack("16sP", dev.encode(), ctypes.addressof(value)))


def attribute(kind: int, value: bytes) -> bytes:
    """Encode an attribute of netlink."""
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def add_qdisc(dev: str, kind: str) -> None:
    """Put a discipline with its defaults below class 1:1."""
    tcm = struct.pack("BxxxiIII", 0, socket.if_nametoindex(dev), 0x10 << 16, 1 << 16 | 1, 0)
    body = tcm + attribute(1, kind.encode() + b"\0") + attribute(2 | 0x8000, b"")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        # RTM_NEWQDISC; request, acknowledge, exclusive, create.
        s.send(struct.pack("IHHII", 16 + len(body), 36, 0x605, 1, 0) + body)
        error = struct.unpack_from("i", s.recv(4096), 16)[0]
    if error:
        sys.exit(f"{kind}: {os.strerror(-error)}")


def sample(dev: str, line: Line, into: list[tuple[float, float]]) -> None:
    """Sample the backlog of the discipline below class 1:1, from the first packet until the flows end."""
    index = socket.if_nametoindex(dev)
    tcm = struct.pack("BxxxiIII", 0, index, 0, 0, 0)
    began = None
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        start = time.monotonic()
        for k in range(int((line.until_s + 2) / STEP_S)):
            time.sleep(max(0.0, start + k * STEP_S - time.monotonic()))
            s.send(struct.pack("IHHII", 16 + len(tcm), 38, 0x301, 1, 0) + tcm)  # RTM_GETQDISC, dump
            found, over = 0, False
            while not over:
                data = s.recv(1 << 16)
                while data and not over:
                    length, kind = struct.unpack_from("IH", data)
                    over = kind == 3
                    if kind == 36 and struct.unpack_from("iII", data, 20) == (index, 0x10 << 16, 1 << 16 | 1):
                        found = backlog(data[36:length])
                    data = data[length + 3 & ~3 :]
            began = began if began is not None or not found else time.monotonic()
            if began is not None:
                into.append((time.monotonic() - began, found * 8e3 / line.rate))


def backlog(attributes: bytes) -> int:
    """Return the bytes queued: the second number of TCA_STATS_QUEUE in TCA_STATS2."""
    for wanted in (7, 3):
        while True:
            length, kind = struct.unpack_from("HH", attributes)
            if kind & 0x3FFF == wanted:
                attributes = attributes[4:length]
                break
            attributes = attributes[length + 3 & ~3 :]
    return int(struct.unpack_from("II", attributes)[1])


main()
