"""The process that guards the rules of a `quell shell --nat` and removes them when its standard input ends.

    python -I -S natguard.py INDEX RULES

INDEX is that of the shell's device, RULES are the arguments of iptables that insert its rules, in order, as JSON.
"""

import json
import signal
import sys
from pathlib import Path

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
sys.path.append(str(Path(__file__).parents[2]))

from quell.linux import nat  # noqa: E402 (from the folder of this file; signals are ignored before)

if __name__ == "__main__":
    nat.guard(int(sys.argv[1]), json.loads(sys.argv[2]))
