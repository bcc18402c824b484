"""Remove the rules of `quell shell --nat` when standard input ends, which it does however that process ends.

    python -I -S natguard.py FORWARDING RULES

FORWARDING is the value of ip_forward before the shell; RULES are the argument vectors that remove the rules, in order,
as JSON. This is a separate program without quell's modules, since it stays in memory as long as the shell runs.
"""

import json
import signal
import sys


def main() -> None:
    """Wait, remove all rules but the last, restore forwarding unless another shell has rules, and remove the last."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    import subprocess  # not needed while it waits

    *first, last = json.loads(sys.argv[2])
    for rule in first:
        subprocess.run(rule)
    shown = subprocess.run(["iptables", "-w", "-t", "nat", "-S", "POSTROUTING"], stdout=subprocess.PIPE)
    if b"quell-" not in shown.stdout:
        with open("/proc/sys/net/ipv4/ip_forward", "w") as forwarding:  # noqa: PTH123 (one module less)
            forwarding.write(sys.argv[1])
    subprocess.run(last)


if __name__ == "__main__":
    main()
