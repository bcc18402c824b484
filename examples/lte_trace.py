"""Make up a cellular link: a trace in Mahimahi's format, one line per chance to send 1,504 bytes, the time in ms.

    python examples/lte_trace.py > lte.down
    quell compare --trace lte.down --rtt 40ms --flow cubic:2 --html lte.html

The rate varies like that of a phone in a car: its logarithm is an Ornstein-Uhlenbeck process (shadowing, memory of some
seconds) plus a faster and smaller one (fading, a tenth of a second), and now and then a handover interrupts the link.
Measured LTE links vary as much, but this trace contains no measurement. The same seed gives the same file.
"""

from __future__ import annotations

import argparse
import math
import random
import sys

BYTES = 1504


def trace(seconds: int, mean_mbps: float, seed: int) -> list[int]:
    """Return the times in ms at which 1,504 bytes may leave; the trace repeats after `seconds`."""
    rng = random.Random(seed)
    slow = fast = credit = 0.0
    outage_left = 0
    times: list[int] = []
    for ms in range(1, seconds * 1000 + 1):
        slow += _step(slow, memory_ms=3000, deviation=0.55, rng=rng)
        fast += _step(fast, memory_ms=100, deviation=0.3, rng=rng)
        if outage_left:
            outage_left -= 1
        elif rng.random() < 1 / 15_000:
            outage_left = rng.randint(150, 700)
        # The lognormal factors have a mean above one; divide by it, so that the rate has the mean asked for.
        swing = math.exp(slow + fast - (0.55**2 + 0.3**2) / 2)
        credit += 0.0 if outage_left else mean_mbps * swing * 1e3 / 8 / BYTES
        times += [ms] * int(credit)
        credit -= int(credit)
    if not times or times[-1] != seconds * 1000:
        times.append(seconds * 1000)
    return times


def _step(value: float, memory_ms: float, deviation: float, rng: random.Random) -> float:
    """Change of an Ornstein-Uhlenbeck process around zero in one millisecond."""
    return -value / memory_ms + deviation * math.sqrt(2 / memory_ms) * rng.gauss(0, 1)


def main() -> None:
    """Write a trace to standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="length, after which the link repeats (default 60)")
    parser.add_argument("--mbps", type=float, default=9.0, help="mean rate in Mbit/s (default 9)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sys.stdout.writelines(f"{ms}\n" for ms in trace(args.seconds, args.mbps, args.seed))


if __name__ == "__main__":
    main()
