"""`--restore` after a SIGKILL at a random moment, whichever of quell's processes is killed first."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import QUELL, QUELL_LIVE

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can make namespaces"),
]

LOOP = r"""
mount -t tmpfs -o mode=755 none /run
mkdir -m 755 /run/quell
ip link add v1 type veth peer name v0
ip link set v0 up
ip link set v1 up
state() {
    tc qdisc show
    tc filter show dev v0 egress
    tc filter show dev v0 ingress
    ip -o link | cut -d: -f2
    ls -I '*.lock' /run/quell
}
$5
state 2>/dev/null > before
count=0
end=$((SECONDS + $1))
while [ $SECONDS -lt $end ]; do
    sh -c "exec $2" >/dev/null 2>&1 & pid=$!
    sleep $3
    sleep 0.$(printf %03d $((RANDOM % 500)))
    children=$(pgrep -P $pid) || true
    case $((RANDOM % 3)) in 0) order="$pid $children";; 1) order="$children $pid";; 2) order=$pid;; esac
    kill -9 $order 2>/dev/null || true
    wait $pid 2>/dev/null || true
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        # A child that outlives its parent for a moment may still hold what is restored.
        $4 >/dev/null 2>&1 || true
        state 2>/dev/null > after
        if cmp -s before after; then break; fi
        sleep 0.1
    done
    diff before after
    count=$((count + 1))
done
echo $count
"""
KINDS = {
    "live": ("{live} --dev v0 --rate 8mbit --quiet", 0, "{live} --restore"),
    "steer": ("{live} steer v0 fixed limit 43 --with limit --rate 20mbit --quiet", 0, "{live} steer --restore"),
    "steer at clsact": ("{live} steer v0 rlaqm --with clsact --rate 20mbit --quiet", 0, "{live} steer --restore"),
    "tune": ("{quell} tune --rate 20mbit/5mbit --trials 4 --seeds 2 --apply v0", 1, "{quell} tune --undo v0"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_leftovers_of_a_killed_command_are_restored(tmp_path: Path, kind: str) -> None:
    command, first, restore = (
        word.format(live=QUELL_LIVE, quell=QUELL) if isinstance(word, str) else str(word) for word in KINDS[kind]
    )
    queue = "tc qdisc add dev v0 root handle 1: pfifo limit 1000" if "steer" in kind else ""
    words = ("unshare", "-n", "-m", "bash", "-ec", LOOP, "-", "30", command, first, restore, queue)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) >= 5
