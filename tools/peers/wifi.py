#!/usr/bin/env python3
"""802.11n cells in ns-3 and quell: an access point, one or two stations, a flow for each.

    .venv/bin/python tools/peers/wifi.py [--repeat N]       speed of both: simulated seconds per CPU-second
    .venv/bin/python tools/peers/wifi.py --figures FILE     measures ns-3's goodput and delay (writes FILE as CSV)

The cells are those of wifi.cc and of crates/quell-sim/tests/data/ns3/wifi.toml. Needs Debian's packages libns3-dev and
g++; as root, installs those that are missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import peers

TEMPLATE = str(peers.ROOT / "crates/quell-sim/tests/data/ns3/wifi.toml")
LIBRARIES = ["applications", "mobility", "wifi", "point-to-point", "traffic-control", "internet", "network", "core"]
CELLS = [
    (mcs, stations, direction, kind)
    for mcs in (3, 7)
    for stations in (1, 2)
    for kind in ("udp", "tcp")
    for direction in ("down", "up")
]
LIMIT = 200  # packets in ns-3's queue, including frames on the air
ON_AIR = {3: 11, 7: 28}  # frames in a full PPDU
WARMUP_S = 2
SEEDS = range(1, 4)
SPAN_S = {"udp": 12, "tcp": 62}  # simulated for ns-3's figures, warm-up included
NS3_S = 7  # simulated for its speed
QUELL_S = 200


def ns3(program, cell, end_s, seed, *measure):
    """Run ns-3 once; return goodput in Mbit/s, mean delay in ms, CPU seconds."""
    mcs, stations, direction, kind = cell
    command = [program, str(mcs), str(stations), direction, kind, str(LIMIT), str(end_s), str(seed), *measure]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        peers.fail(f"{command[0]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return tuple(map(float, done.stdout.split()))


def scenario(cell):
    from quell import Scenario

    mcs, stations, direction, kind = cell
    limit = LIMIT - ON_AIR[mcs]
    rate = 1.5 * (26 if mcs == 3 else 65) / stations
    tcp = {"cc": "newreno", "rtt": "20ms", "start": "1s", "stagger": "10ms"}
    flow: Any = tcp if kind == "tcp" else {"kind": "poisson", "rate": f"{rate}mbit"}
    down = direction == "down"
    return Scenario(TEMPLATE).replace(
        duration=f"{QUELL_S}s",
        wifi={"stations": stations, "mcs": mcs, "queue": f"pfifo limit {limit // stations if down else limit}"},
        flow=flow | {"from": "ap" if down else "*", "to": "*" if down else "ap"},
    )


def quell(cell):
    """Run quell once; return simulated seconds per CPU-second."""
    from quell import run

    return QUELL_S / run(scenario(cell))["cpu_s"][0]


def figures(program, path):
    runs = [(cell, seed) for cell in CELLS for seed in SEEDS]
    rows = ["mcs,stations,direction,kind,seed,goodput_mbps,delay_ms"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda run: ns3(program, run[0], SPAN_S[run[0][3]], run[1], "measure"), runs)
        for (cell, seed), (goodput, delay, _) in zip(runs, results, strict=True):
            rows.append(",".join(map(str, (*cell, seed, goodput, delay))))
            print(rows[-1], file=sys.stderr, flush=True)
    new = Path(f"{path}.new")
    new.write_text("\n".join(rows) + "\n")
    new.replace(path)


def speed(program, repeat):
    print(
        "Simulated seconds per CPU-second: 802.11n, 20 MHz, A-MPDUs, one flow per station (tcp: NewReno, 20 ms of wire)"
    )
    print(f"{'MCS':>3} {'stations':>8} {'':>8} {'quell':>9} {'ns-3':>7} {'to ns-3':>8}", flush=True)
    for cell in CELLS:
        peer = max((NS3_S - WARMUP_S) / ns3(program, cell, NS3_S, 1)[2] for _ in range(repeat))
        own = max(quell(cell) for _ in range(repeat))
        mcs, stations, direction, kind = cell
        print(
            f"{mcs:>3} {stations:>8} {kind + ' ' + direction:>8} {own:>9,.0f} {peer:>7.2f} {own / peer:>6,.0f} x",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="runs per cell, of which the best counts (default 3)")
    parser.add_argument("--figures", metavar="FILE", help="write ns-3's goodput and delay instead")
    options = parser.parse_args()
    peers.install()
    with tempfile.TemporaryDirectory() as folder:
        program = peers.build_ns3(folder, "wifi", LIBRARIES)
        if options.figures:
            figures(program, options.figures)
        else:
            speed(program, options.repeat)


if __name__ == "__main__":
    main()
