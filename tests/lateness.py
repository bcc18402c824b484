"""Measures how late this machine schedules a process; tests of real time derive their bounds from it."""

from __future__ import annotations

import subprocess
import sys

TICK = """
import os, sys, time
longest = last = 0.0
print("ready", flush=True)
os.set_blocking(0, False)
turns = 0
while sys.stdin.buffer.raw.read(1) is None:
    time.sleep(0.001)
    now = time.monotonic()
    longest, last = max(longest, now - last if last else 0.0), now
    turns += 1
    if turns % 100 == 0:
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
print(longest)
"""


class Lateness:
    """Measures the longest delay of a process that wakes up every millisecond and sometimes computes for 10 ms."""

    def __enter__(self) -> Lateness:
        self.longest_s = 0.0
        words = [sys.executable, "-c", TICK]
        self.ticks = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.ticks.stdout is not None
        self.ticks.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        text, _errors = self.ticks.communicate(timeout=60)
        self.longest_s = float(text)

    def allowed_s(self, seconds: float) -> float:
        """Return `seconds` plus four times the longest measured delay."""
        return seconds + 4 * self.longest_s
