"""Remove the rules of `quell shell --nat` when standard input ends, which it does however that process ends.

    python -I -S natguard.py FORWARDING REDIRECTS RULES

FORWARDING and REDIRECTS are the values of ip_forward and of accept_redirects before the shell; RULES are the argument
vectors that remove the rules, in order, as JSON. This is a separate program without quell's modules, since it stays in
memory as long as the shell runs.
"""

import json
import signal
import sys


def main() -> None:
    """Wait, remove all rules but the last, restore forwarding unless another shell has rules, and remove the last."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    import re
    import subprocess  # not needed while it waits

    *first, last = json.loads(sys.argv[3])
    for rule in first:
        subprocess.run(rule)
    shown = subprocess.run(["iptables", "-w", "-t", "nat", "-S", "POSTROUTING"], stdout=subprocess.PIPE)
    others = re.search(rb'(?m)^(?=.* -o quell).* --comment "?quell-\d+-\d(-\d)?"? ', shown.stdout)
    if sys.argv[1] == "0" and not others:
        # In this order: the kernel sets the second when the first changes.
        for name, value in zip(("ip_forward", "conf/all/accept_redirects"), sys.argv[1:], strict=False):
            with open(f"/proc/sys/net/ipv4/{name}", "w") as setting:  # noqa: PTH123 (one module less)
                setting.write(value)
    subprocess.run(last)


if __name__ == "__main__":
    main()
