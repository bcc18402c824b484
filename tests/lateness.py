"""How late this machine lets a process be: bounds of tests that measure real time follow from it."""

from __future__ import annotations

import subprocess
import sys

TICK = """
import os, sys, time
longest = last = 0.0
print("ready", flush=True)
os.set_blocking(0, False)
while sys.stdin.buffer.raw.read(1) is None:
    time.sleep(0.001)
    now = time.monotonic()
    longest, last = max(longest, now - last if last else 0.0), now
print(longest)
"""


class Lateness:
    """What this machine does meanwhile to a process that wakes every millisecond: bounds of times follow from it."""

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
        """So much, and four times the longest that a process had to wait."""
        return seconds + 4 * self.longest_s
