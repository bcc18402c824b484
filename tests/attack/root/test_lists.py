"""Lists of queues while interfaces are deleted: the kernel then skips queues of other interfaces without an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import QUELL_LIVE

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can make namespaces"),
]

# The first part of the kernel's list ends among the queues of `many`. If `first` is deleted, the next part lacks v0's.
INTERFACES = """
mount -t tmpfs none /run
mkdir -m 755 /run/quell
ip link add first up type ifb
ip link add many up numtxqueues 60 type ifb
tc qdisc replace dev many root handle 1: mq
ip link add v1 type veth peer name v0
ip link set v0 up
tc qdisc add dev v0 root handle 1: pfifo limit 1000
"""
RESTORE = """
fail() {
    echo "$1" >&2
    kill -9 $(pgrep -P $pid) $pid
    exit 1
}
"$1" steer v0 fixed limit 43 --with limit --rate 20mbit --quiet & pid=$!
for _ in $(seq 100); do
    if tc qdisc show dev v0 | grep -q "limit 43p"; then break; fi
    sleep 0.05
done
tc qdisc show dev v0 | grep -q "limit 43p" || fail "steer has not set the limit"
kill -9 $(pgrep -P $pid) $pid
wait $pid || true
strace -qq -o /dev/null -e trace=sendto -e inject=sendto:delay_exit=5000000:when=1 \\
    "$1" steer --restore & pid=$!
# Wait until strace stops the process: the kernel has made the first part, and the next is not yet requested.
stopped=0
for _ in $(seq 100); do
    if grep -qs "^State:.t" /proc/$(pgrep -P $pid)/status; then stopped=$((stopped + 1)); else stopped=0; fi
    if [ $stopped = 3 ]; then break; fi
    sleep 0.05
done
[ $stopped = 3 ] || fail "strace has not stopped the process"
ip link del first
wait $pid
tc qdisc show dev v0
"""
LIST = """
import socket, subprocess
from quell.tune import netlink

class Socket(socket.socket):
    deleted = False

    def send(self, *how):
        # The kernel makes the first part of the list during this call.
        sent = super().send(*how)
        if not Socket.deleted:
            Socket.deleted = True
            subprocess.run(["ip", "link", "del", "first"], check=True)
        return sent

socket.socket = Socket
print(*(queue.name for queue in netlink.tree("v0")))
"""


def lines(folder: Path, script: str, *words: str | Path) -> list[str]:
    words = ("unshare", "-n", "-m", "sh", "-ec", INTERFACES + script, "-", *words)
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100)
    if "Unknown device type" in done.stderr:
        pytest.skip("this kernel has no ifb")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_restore_after_a_killed_steer_works_while_interfaces_are_deleted(tmp_path: Path) -> None:
    (shown,) = lines(tmp_path, RESTORE, QUELL_LIVE)
    assert "limit 1000p" in shown


def test_tune_lists_the_queue_that_it_replaces_while_interfaces_are_deleted(tmp_path: Path) -> None:
    assert lines(tmp_path, '"$1" -c "$2"', sys.executable, LIST) == ["pfifo"]
