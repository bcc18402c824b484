"""What was on an interface comes back, or the command that could not put it back is refused: two commands at once,
interfaces with another name than before, queues below queues, settings of the kernel beside the one that is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import QUELL, QUELL_LIVE

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can make namespaces"),
]

APPLY = """
import sys
from quell import InputError
from quell.linux.programs import Command
from quell.tune import install, targets

dev = sys.argv[1]
inner = targets.ifb(dev)

def root(at):
    return [Command.of("tc qdisc del dev {at} root", at=at, may_fail=True),
            Command.of("tc qdisc add dev {at} root handle 1: pfifo limit 77", at=at)]

commands = [
    *root(dev),
    Command.of("ip link add name {inner} type ifb", unless=f"ip link show dev {inner}", inner=inner),
    Command.of("ip link set dev {inner} up", inner=inner),
    Command.of("tc qdisc del dev {dev} ingress", dev=dev, may_fail=True),
    Command.of("tc qdisc add dev {dev} handle ffff: ingress", dev=dev),
    targets.redirect(dev, inner),
    *root(inner),
]
try:
    install.apply(dev, commands, replace=True)
except InputError as error:
    print(error)
"""
# Interfaces and /run/quell of its own.
APART = """
python=$1 code=$2 quell=$3 live=$4
apply() { "$python" -c "$code" "$1"; }
undo() { "$quell" tune --undo "$@" 2>&1 || true; }
limited() {
    for _ in $(seq 100); do
        if tc qdisc show dev "$1" | grep -q "limit $2p"; then return; fi
        sleep 0.05
    done
    return 1
}
mount -t tmpfs none /run
mkdir -m 755 /run/quell
ip link set lo up
ip link add v0 type veth peer name v1
ip link set v0 up
ip link set v1 up
"""


def lines(folder: Path, script: str) -> list[str]:
    programs = [str(QUELL), str(QUELL_LIVE)]
    words = ["unshare", "-n", "-m", "sh", "-ec", APART + script, "-", sys.executable, APPLY, *programs]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60)
    if "this kernel refuses" in done.stdout or "Specified qdisc kind is unknown" in done.stderr:
        pytest.skip(f"this kernel lacks a queue or filter: {done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("root", ["tbf rate 10mbit burst 10kb limit 30kb", "mq"], ids=["tbf", "mq"])
def test_a_queue_below_a_queue_that_makes_its_own_classes_comes_back(tmp_path: Path, root: str) -> None:
    assert lines(
        tmp_path,
        f"""
        tc qdisc add dev v0 root handle 1: {root}
        tc qdisc add dev v0 parent 1:1 handle 10: pfifo limit 78
        tc qdisc show dev v0 >before
        apply v0
        undo v0
        tc qdisc show dev v0 | cmp - before && echo same
        """,
    ) == ["v0 has again what it had before", "same"]


def test_what_arrives_at_another_interface_is_not_dropped(tmp_path: Path) -> None:
    """The first 11 letters of both names are the same, and so they share an ifb."""
    refused, leads, *undone = lines(
        tmp_path,
        """
        for each in 100 200; do ip link add enp3s0f0np0.$each type veth peer name peer$each; done
        apply enp3s0f0np0.100
        apply enp3s0f0np0.200
        undo enp3s0f0np0.100 --replace
        tc filter show dev enp3s0f0np0.200 ingress | grep -o "to device [^)]*"
        undo enp3s0f0np0.200
        undo enp3s0f0np0.100
        ip -br link show type ifb
        """,
    )
    assert "first quell tune --undo enp3s0f0np0.200" in refused
    assert leads == "to device ifb4enp3s0f0np0"
    assert undone == [f"enp3s0f0np0.{each} has again what it had before" for each in (200, 100)]


def test_filters_of_a_block_are_not_lost(tmp_path: Path) -> None:
    refused, *shown = lines(
        tmp_path,
        """
        tc qdisc add dev v0 ingress_block 22 ingress
        tc filter add block 22 protocol all prio 5 u32 match u32 0 0 action mirred egress redirect dev v1
        tc filter show block 22 | tee before
        apply v0
        tc filter show block 22 | cmp - before && echo same
        """,
    )[-2:]
    assert "filters on what arrives, which could not be put back" in refused
    assert shown == ["same"]


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        ("ip link del v0", "ifb4v0", "v0 is not the interface any more that was changed"),
        ("ip link set ifb4v0 down; ip link set ifb4v0 name other", "other", "v0 has again what it had before"),
    ],
    ids=["gone", "renamed"],
)
def test_an_ifb_of_the_operator_gets_its_queue_back(tmp_path: Path, change: str, name: str, said: str) -> None:
    undone, shown = lines(
        tmp_path,
        f"""
        ip link add ifb4v0 type ifb
        tc qdisc add dev ifb4v0 root handle 7: pfifo limit 777
        apply v0
        {change}
        undo v0
        tc qdisc show dev {name}
        """,
    )
    assert undone.startswith(said)
    assert shown.startswith("qdisc pfifo 7: root") and "limit 777p" in shown
