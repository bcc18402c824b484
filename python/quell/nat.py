"""`quell shell --nat`: the way out into the world, by iptables rules that no end of the shell leaves behind."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quell._core import InputError

_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_POOL = "100.64.0.0/10"
"""Where every shell's addresses are from."""


@contextmanager
def translated() -> Iterator[None]:
    """Forward what comes from shells, under this machine's own address, as long as this context or process lasts.

    A separate process removes the rules when its standard input ends, which no signal to this process can prevent.
    """
    if shutil.which("iptables") is None:
        raise InputError("--nat: needs iptables; on Debian: apt-get install iptables")
    # What forwarding was before the first of the shells that are alive now.
    others = [word for word in _iptables("-t", "nat", "-S", "POSTROUTING").split() if word.startswith("quell-")]
    before = others[0][-1] if others else _FORWARDING.read_text().strip()
    tag = ["-m", "comment", "--comment", f"quell-{os.getpid()}-{before}"]
    rules = [
        ["-t", "nat", "-I", "POSTROUTING", "-s", _POOL, "!", "-d", _POOL, *tag, "-j", "MASQUERADE"],
        ["-I", "FORWARD", "-s", _POOL, *tag, "-j", "ACCEPT"],
        ["-I", "FORWARD", "-d", _POOL, *tag, "-j", "ACCEPT"],
    ]
    remove = [shlex.join(["iptables", "-w", *("-D" if word == "-I" else word for word in rule)]) for rule in rules]
    restore = f"iptables -w -t nat -S POSTROUTING | grep -q quell- || echo {before} >{_FORWARDING}"
    script = "; ".join(["cat >/dev/null", *remove, restore])
    guard = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        for rule in rules:
            _iptables(*rule)
        _FORWARDING.write_text("1")
        yield
    except OSError as error:
        raise InputError(f"--nat: {_FORWARDING}: {error.strerror}; only root may forward packets") from None
    finally:
        guard.communicate()


def _iptables(*arguments: str) -> str:
    done = subprocess.run(["iptables", "-w", *arguments], capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip() or "it failed").splitlines()[0]
        raise InputError(f"--nat: {why}; it needs root and the kernel's NAT (modules iptable_nat, xt_MASQUERADE)")
    return done.stdout
