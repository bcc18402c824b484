#!/usr/bin/env python3
"""quell, ns-2 and ns-3 on the same dumbbell: data packets delivered at the bottleneck per second of CPU time.

NewReno with SACK and delayed ACKs, FIFO of 1000 packets, base RTT 20 ms (flow i: + i * 7 us), without the first two
simulated seconds; all three simulators run on this one machine. A cell's simulated time is chosen to take
about one second of CPU time; the best of three repetitions counts, for each simulator alike.

    tools/peers/peers.py [--repeat N] [--no-quell]

Needs Debian's packages ns2, libns3-dev and g++; as root, installs those that are missing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CELLS = [(mbit, flows) for mbit in (10, 100) for flows in (1, 10, 50)]
WARMUP_S = 2
CPU_S = 1.0  # target per cell
NS3_LIBRARIES = ["applications", "point-to-point", "internet", "network", "core"]


def fail(message):
    """Exit with a message."""
    sys.exit(f"peers: {message}")


def have_peers():
    """Return whether ns-2, ns-3's headers and a compiler are installed."""
    return shutil.which("ns") and shutil.which("g++") and Path("/usr/include/ns3/core-module.h").exists()


def install():
    """Install missing Debian packages where possible."""
    if have_peers():
        return
    packages = "ns2 libns3-dev g++"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        fail(f"needs ns-2 and ns-3: sudo apt-get install {packages}")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    print(f"installing {packages} ...", file=sys.stderr)
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *packages.split()]):
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode:
            fail(f"{' '.join(command)}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    if not have_peers():
        fail(f"{packages} are installed, but ns or ns-3's headers are not where Debian 12 has them")


def build_ns3(folder, name, libraries):
    """Compile a program for ns-3; return its path."""
    program = str(Path(folder) / name)
    command = ["g++", "-std=c++17", "-O2", "-o", program, str(HERE / f"{name}.cc")]
    done = subprocess.run(command + [f"-lns3-{library}" for library in libraries], capture_output=True, text=True)
    if done.returncode:
        fail(f"cannot build {name}.cc: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return program


def run(command, mbit, flows, end_s):
    """Run a simulator once; return packets, CPU seconds, goodput in Mbit/s."""
    done = subprocess.run(
        [*command, str(mbit), str(flows), str(WARMUP_S), f"{end_s:.0f}"], capture_output=True, text=True
    )
    if done.returncode:
        fail(f"{command[0]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    packets, cpu_s, goodput, _ = done.stdout.split()
    return int(packets), float(cpu_s), float(goodput)


def measure(command, mbit, flows, repeat):
    """Return the best of several runs: (packets per CPU-second, goodput in Mbit/s)."""
    length = 5.0
    packets, cpu_s, _ = run(command, mbit, flows, WARMUP_S + length)
    while cpu_s < CPU_S / 20:  # too short for an estimate
        length *= 10
        packets, cpu_s, _ = run(command, mbit, flows, WARMUP_S + length)
    length *= CPU_S / cpu_s
    best = 0.0
    for _ in range(repeat):
        packets, cpu_s, goodput = run(command, mbit, flows, WARMUP_S + length)
        best = max(best, packets / cpu_s)
    return best, goodput


def quell():
    """Return quell's figures by (Mbit/s, flows), from its benchmark."""
    command = ["cargo", "bench", "-q", "-p", "quell-sim", "--bench", "speed", "--", "--json", "--quick"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        fail("quell's own benchmark failed: " + " ".join(command))
    rows = json.loads(done.stdout)
    return {
        (row["rate_mbps"], row["flows"]): row["packets_per_cpu_s"]
        for row in rows
        if row["cc"] == "newreno" and row["queue"] == "pfifo limit 1000" and row["hops"] == 1
    }


def main():
    """Measure all cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="runs per cell, of which the best counts (default 3)")
    parser.add_argument("--no-quell", action="store_true", help="the peers alone")
    options = parser.parse_args()
    install()
    own = {} if options.no_quell else quell()
    print(
        "Data packets delivered at the bottleneck per CPU-second: NewReno with SACK, pfifo limit 1000, base RTT 20 ms"
    )
    print(f"{'link':>11} {'flows':>5} {'quell':>12} {'ns-2':>11} {'ns-3':>9} {'to ns-2':>8} {'to ns-3':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ns2, ns3 = ["ns", str(HERE / "dumbbell.tcl")], [build_ns3(folder, "dumbbell", NS3_LIBRARIES)]
        for mbit, flows in CELLS:
            peers = [measure(command, mbit, flows, options.repeat)[0] for command in (ns2, ns3)]
            mine = own.get((mbit, flows))
            print(
                f"{mbit:>4} Mbit/s {flows:>5} {f'{mine:,.0f}' if mine else '-':>12} {peers[0]:>11,.0f} {peers[1]:>9,.0f}"
                + "".join(f" {f'{mine / p:,.0f} x' if mine else '-':>8}" for p in peers),
                flush=True,
            )


if __name__ == "__main__":
    main()
