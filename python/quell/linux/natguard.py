"""The process that guards the rules of a `quell shell --nat` and removes them when its standard input ends.

    python -I -S natguard.py SHELL

SHELL is a list in JSON: the shell's device, its network, the device's index, and the previous value of
accept_redirects, null if the machine forwarded before.
"""

import json
import signal
import sys
from pathlib import Path

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
for number in _IGNORED:
    signal.signal(number, signal.SIG_IGN)
# nat.py starts this process with these signals blocked.
signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
sys.path.append(str(Path(__file__).parents[2]))

from quell.linux import nat  # noqa: E402 (only after the signals are ignored and sys.path has this package)

if __name__ == "__main__":
    nat.guard(*json.loads(sys.argv[1]))
