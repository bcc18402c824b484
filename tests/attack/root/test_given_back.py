"""Former settings of an interface come back, or the command that could not restore them is refused: two commands at
once, renamed interfaces, queues below queues, kernel settings beside the one that is changed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import QUELL, QUELL_LIVE, no_tun
from quell.linux.spaces import has_ipv6

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can make namespaces"),
]

APPLY = """
import sys
from quell import InputError
from quell.linux.programs import Command
from quell.linux.spaces import has_ipv6
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
# The beginning of a script: a /run and interfaces of its own, and functions.
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
ruled() { until iptables -t mangle -S | grep -q "o $1 .*NFQUEUE"; do sleep 0.05; done; }
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


def test_an_ifb_of_another_interface_is_not_taken(tmp_path: Path) -> None:
    """The first 11 letters of both names are equal, so both would use the same ifb and its rate."""
    refused, undone = lines(
        tmp_path,
        """
        for each in 100 200; do ip link add enp3s0f0np0.$each type veth peer name peer$each; done
        apply enp3s0f0np0.100
        apply enp3s0f0np0.200
        undo enp3s0f0np0.100
        ip -br link show type ifb
        """,
    )
    assert "ifb4enp3s0f0np0 would shape what arrives at enp3s0f0np0.100, too" in refused
    assert undone == "enp3s0f0np0.100 has again what it had before"


@pytest.mark.parametrize("kind", ["bridge", "veth"])
def test_an_interface_with_the_ifbs_name_that_is_none_is_neither_used_nor_deleted(tmp_path: Path, kind: str) -> None:
    refused, *shown = lines(
        tmp_path,
        f"""
        ip link add ifb4v0 type {kind}
        tc qdisc show dev v0 >before
        apply v0
        tc qdisc show dev v0 | cmp - before && echo same
        ip link del ifb4v0
        apply v0
        ip link del ifb4v0
        ip link add ifb4v0 type {kind}
        undo v0 --replace
        ip -details link show dev ifb4v0 | grep -c -w {kind}
        """,
    )
    assert refused.startswith("--apply v0: ifb4v0 is not an ifb, ") and "rename or remove it" in refused
    assert shown == ["same", "v0 has again what it had before", "1"]


@pytest.mark.parametrize("filters", [
    "ingress\n tc filter add dev w0 parent ffff: protocol ip u32 match u32 0 0",
    "clsact\n tc filter add dev w0 ingress protocol all u32 match u32 0 0",
], ids=["one protocol", "clsact"])  # fmt: skip
def test_an_ifb_that_another_interface_uses_stays(tmp_path: Path, filters: str) -> None:
    script = f"""
ip link add w0 type veth peer name w1
ip link set w0 up
apply v0
tc qdisc add dev w0 {filters} action mirred egress redirect dev ifb4v0
undo v0
ip -o link show ifb4v0 | wc -l
"""
    said, there = lines(tmp_path, script)
    assert "--undo v0: what arrives at w0 goes to ifb4v0, too" in said and there == "1"


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


CLASSES = """
tc qdisc add dev v0 root handle 1: htb default 10
tc class add dev v0 parent 1: classid 1:1 htb rate 10mbit
tc class add dev v0 parent 1:1 classid 1:10 htb rate 5mbit
"""
FILTER = "tc filter add dev v0 parent 1:1 protocol ip prio 5 u32 match ip dport 53 0xffff flowid 1:10"


def test_filters_of_a_class_are_not_lost(tmp_path: Path) -> None:
    refused, *same = lines(
        tmp_path,
        f"""{CLASSES}{FILTER}
        tc filter show dev v0 parent 1:1 >before
        apply v0
        tc filter show dev v0 parent 1:1 | cmp - before && echo same
        """,
    )
    assert "v0 has queues with filters, which could not be put back" in refused
    assert same == ["same"]


def test_a_filter_that_was_added_to_a_class_since_is_not_lost(tmp_path: Path) -> None:
    refused, found, undone = lines(
        tmp_path,
        """
        "$quell" tune --rate 20mbit/5mbit --queues pfifo --for bulk --trials 1 --seeds 2 --duration 5s --apply v0 >said
        tc filter add dev v0 parent 1:10 protocol ip prio 5 u32 match ip dport 53 0xffff flowid 1:10
        undo v0
        tc filter show dev v0 parent 1:10 | grep -c 00000035
        undo v0 --replace
        """,
    )
    assert "v0 has filters that quell tune has not installed" in refused and "--replace" in refused
    assert (found, undone) == ("1", "v0 has again what it had before")


MEANWHILE = """
cat >nsenter <<end
#!/bin/sh
$(command -v nsenter) "\\$@"; status=\\$?
$(command -v nsenter) --net=/proc/$$/ns/net tc qdisc replace dev v0 root pfifo limit 55
exit \\$status
end
chmod +x nsenter
tc qdisc add dev v0 root pfifo limit 1000
PATH=$PWD:$PATH apply v0
tc qdisc show dev v0 root
ls /run/quell/*.json 2>/dev/null || echo none
"""
"""Another program sets a queue while quell tries the lines in a namespace, which it enters by nsenter."""


def test_a_queue_that_another_program_sets_meanwhile_is_not_lost(tmp_path: Path) -> None:
    refused, shown, left = lines(tmp_path, MEANWHILE)
    assert "--apply v0: another program has changed its queues meanwhile" in refused
    assert "limit 55p" in shown
    assert left == "none"


LATER = """
tc=$(command -v tc)
cat >tc <<end
#!/bin/sh
case "\\$*" in "qdisc "*" dev v0 "*PLACE*)
    if ls /run/quell/*.json >/dev/null 2>&1 && [ ! -e done ]; then
        touch done
        $tc qdisc add dev v0 QUEUE
    fi
esac
exec $tc "\\$@"
end
chmod +x tc
PATH=$PWD:$PATH apply v0
tc qdisc show dev v0 | grep -v noqueue
ip link show ifb4v0 >/dev/null 2>&1 && echo ifb || echo none
ls /run/quell/*.json 2>/dev/null || echo none
"""
"""Another program sets a queue immediately before quell does."""


@pytest.mark.parametrize(
    ("place", "queue", "shown"),
    [("root", "root handle 5: pfifo limit 55", "limit 55p"), ("ingress", "ingress", "qdisc ingress ffff:")],
)
def test_a_queue_that_another_program_sets_between_two_lines_is_not_lost(
    tmp_path: Path, place: str, queue: str, shown: str
) -> None:
    refused, kept, ifb, left = lines(tmp_path, LATER.replace("PLACE", place).replace("QUEUE", queue))
    assert refused == "--apply v0: another program has set a queue meanwhile; try again when that has ended"
    assert shown in kept
    assert (ifb, left) == ("none", "none")


DELETED = """
cat >tc <<end
#!/bin/sh
ls /run/quell/*.json >/dev/null 2>&1 && rm -r /run/quell
exec $(command -v tc) "\\$@"
end
chmod +x tc
PATH=$PWD:$PATH apply v0
tc qdisc show dev v0 | grep -v noqueue || echo none
ip link show ifb4v0 >/dev/null 2>&1 && echo ifb || echo none
"""
"""The state file is deleted after quell has written it."""


def test_an_installation_whose_state_file_is_deleted_is_taken_back(tmp_path: Path) -> None:
    refused, queues, ifb = lines(tmp_path, DELETED)
    assert refused.startswith("/run/quell/tune-")
    assert (queues, ifb) == ("none", "none")


REPLACED = """
cat >tc <<end
#!/bin/sh
if ls /run/quell/*.json >/dev/null 2>&1 && [ ! -e done ]; then
    touch done
    ip link del v0
    ip link add v0 type veth peer name v1
    ip link set v0 up
fi
exec $(command -v tc) "\\$@"
end
chmod +x tc
PATH=$PWD:$PATH apply v0
tc filter show dev v0 parent ffff: | grep -c mirred || true
ip link show ifb4v0 >/dev/null 2>&1 && echo ifb || echo none
ls /run/quell/*.json 2>/dev/null || echo none
"""
"""When quell runs its first line, the interface is deleted and made again, like that of a dialled connection."""


def test_an_interface_that_is_made_again_meanwhile_loses_nothing_that_arrives(tmp_path: Path) -> None:
    refused, redirections, ifb, left = lines(tmp_path, REPLACED)
    assert refused.startswith("--apply v0: the interface was renamed, or made again, meanwhile")
    assert (redirections, ifb, left) == ("0", "none", "none")


SIGNALLED = """
cat >tc <<end
#!/bin/sh
ls /run/quell/*.json >/dev/null 2>&1 && kill -TERM \\$PPID
exec $(command -v tc) "\\$@"
end
chmod +x tc
tc qdisc add dev v0 root pfifo limit 1000
tc qdisc show dev v0 >before
PATH=$PWD:$PATH "$python" -c "$code" v0 || echo $?
tc qdisc show dev v0 root
tc filter show dev v0 parent ffff: | grep -c mirred
undo v0
tc qdisc show dev v0 | sed 's/ [0-9a-f]*: / /' >after
sed 's/ [0-9a-f]*: / /' before | cmp - after && echo same
"""


def test_a_signal_between_two_lines_of_tc_leaves_all_of_them(tmp_path: Path) -> None:
    ended, shown, redirections, *same = lines(tmp_path, SIGNALLED)
    assert (ended, redirections) == ("143", "1")
    assert "limit 77p" in shown
    assert same == ["v0 has again what it had before", "same"]


REDIRECT = "action mirred egress redirect dev v1"


@pytest.mark.parametrize(
    "filters",
    [
        f"chain 3 protocol all prio 7 u32 match u32 0 0 {REDIRECT}",
        f"protocol all prio 7 u32 match u32 0 0 indev v1 {REDIRECT}",
        # No filter leads to this table.
        f"protocol all prio 7 handle 1: u32 divisor 1\nprotocol all prio 7 u32 ht 1: match u32 0 0 {REDIRECT}",
    ],
    ids=["chain", "indev", "table"],
)
def test_a_filter_that_redirects_less_than_all_does_not_redirect_all_afterwards(tmp_path: Path, filters: str) -> None:
    add = "".join(f"tc filter add dev v0 parent ffff: {each}\n" for each in filters.splitlines())
    refused, *same = lines(
        tmp_path,
        f"""
        tc qdisc add dev v0 ingress
        {add}
        tc filter show dev v0 ingress >before
        apply v0
        tc filter show dev v0 ingress | cmp - before && echo same
        """,
    )
    assert "v0 has filters on what arrives, which could not be put back" in refused
    assert same == ["same"]


def test_a_filter_that_was_added_since_is_not_lost(tmp_path: Path) -> None:
    refused, found, undone = lines(
        tmp_path,
        """
        apply v0
        tc filter add dev v0 parent ffff: protocol ip prio 1 u32 match u32 0x11 0xff at 8 \\
            action mirred egress redirect dev v1
        undo v0
        tc filter show dev v0 parent ffff: | grep -c 00000011
        undo v0 --replace
        """,
    )
    assert "v0 has filters that quell tune has not installed" in refused and "--replace" in refused
    assert (found, undone) == ("1", "v0 has again what it had before")


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


def test_an_interface_is_changed_by_one_of_its_names_alone(tmp_path: Path) -> None:
    refused, attached, shown = lines(
        tmp_path,
        """
        ip link property add dev v0 altname wan
        tc qdisc add dev v0 root handle 1: pfifo limit 50
        apply wan
        "$live" attach wan fifo --replace 2>&1 || true
        tc qdisc show dev v0
        """,
    )
    assert refused == "--apply wan: this is another name of v0; give --apply v0"
    assert attached == "quell: wan: this is another name of v0; give v0"
    assert "limit 50p" in shown


STEER = """
tc qdisc add dev v0 root handle 1: pfifo limit 1000
with="--with limit --rate 20mbit --quiet"
"""


@pytest.mark.parametrize("command", ["apply v0", '"$live" attach v0 fifo --replace 2>&1 || true'])
def test_a_steered_value_is_not_saved_as_the_original(tmp_path: Path, command: str) -> None:
    refused, shown = lines(
        tmp_path,
        f"""{STEER}
        "$live" steer v0 fixed limit 43 $with & pid=$!
        limited v0 43
        {command}
        limited v0 43
        kill $pid || true
        wait $pid || true
        undo v0 >/dev/null
        tc qdisc show dev v0
        """,
    )
    assert "quell steer has changed" in refused and "quell steer --restore" in refused
    assert "limit 1000p" in shown


def test_a_restored_queue_does_not_get_the_steered_value_of_its_replacement(tmp_path: Path) -> None:
    """The restored queue and the one in between have the same handle and kind."""
    refused, undone, shown = lines(
        tmp_path,
        f"""{STEER}
        apply v0
        "$live" steer v0 fixed limit 43 $with --insist & pid=$!
        limited v0 43
        undo v0 --replace
        sleep 0.5
        kill $pid || true
        wait $pid || true
        undo v0
        tc qdisc show dev v0
        """,
    )
    assert "quell steer has changed a queue of v0" in refused
    assert undone == "v0 has again what it had before"
    assert "limit 1000p" in shown


@pytest.mark.parametrize(
    ("rename", "other"),
    [("", "v0 1:"), ("ip link set v0 down; ip link set v0 name w0", "w0")],
    ids=["by its handle", "by another name"],
)
def test_a_queue_that_is_steered_is_steered_by_no_other(tmp_path: Path, rename: str, other: str) -> None:
    refused, *shown = lines(
        tmp_path,
        f"""{STEER}
        "$live" steer v0 fixed limit 43 $with & pid=$!
        limited v0 43
        {rename}
        status=0
        "$live" steer {other} fixed limit 55 $with --duration 1s 2>&1 || status=$?
        echo $status
        kill $pid || true
        wait $pid || true
        tc qdisc show
        """,
    )
    assert "another quell steer has changed it" in refused
    assert shown[0] == "2" and any("limit 1000p" in line for line in shown), shown


PIDS = "unshare -p -f --kill-child"
FOLDERS = "unshare -m sh -c 'mount -t tmpfs -o mode=755 none /run; exec \"$@\"' -"


@pytest.mark.parametrize(("apart", "other"), [(PIDS, "v0 1:"), (FOLDERS, "v0")], ids=["process numbers", "folders"])
def test_a_queue_is_steered_by_one_process_though_another_namespace_hides_it(
    tmp_path: Path, apart: str, other: str
) -> None:
    refused, status, shown, again = lines(
        tmp_path,
        f"""{STEER}
        {apart} "$live" steer v0 fixed limit 43 $with & pid=$!
        limited v0 43
        status=0
        {apart} "$live" steer {other} fixed limit 55 $with --duration 1s 2>&1 || status=$?
        echo $status
        tc qdisc show dev v0
        kill $(pgrep -P $pid -x quell-live || echo $pid)
        wait $pid || true
        {apart} "$live" steer {other} fixed limit 55 $with --duration 100ms
        tc qdisc show dev v0
        """,
    )
    assert "another quell steer has changed it" in refused and status == "2"
    assert "limit 43p" in shown and "limit 1000p" in again


def test_a_change_after_the_watchdogs_restore_survives_the_kill_of_a_stopped_steer(tmp_path: Path) -> None:
    left = lines(
        tmp_path,
        f"""{STEER}
        "$live" steer v0 fixed limit 43 $with & pid=$!
        limited v0 43
        watchdog=$(pgrep -P $pid)
        kill -STOP $pid
        limited v0 1000
        tc qdisc change dev v0 root handle 1: pfifo limit 99
        kill -9 $pid
        wait $pid || true
        for _ in $(seq 100); do kill -0 $watchdog 2>/dev/null || break; sleep 0.05; done
        tc qdisc show dev v0
        ls /run/quell/*.json 2>/dev/null || echo none
        """,
    )
    assert "limit 99p" in left[0]
    assert left[1] == "none"


@pytest.mark.parametrize("command", ["steer --restore --quiet", "steer v0 fixed limit 55 $with --duration 100ms"])
def test_a_value_that_was_set_after_two_kills_is_not_overwritten(tmp_path: Path, command: str) -> None:
    shown, left = lines(
        tmp_path,
        f"""{STEER}
        "$live" steer v0 fixed limit 43 $with & pid=$!
        limited v0 43
        kill -9 $(pgrep -P $pid) $pid
        wait $pid || true
        tc qdisc change dev v0 root handle 1: pfifo limit 99
        "$live" {command}
        tc qdisc show dev v0
        ls /run/quell/*.json 2>/dev/null || echo none
        """,
    )
    assert "limit 99p" in shown
    assert left == "none"


def test_the_next_steer_restores_after_a_killed_one_although_the_interface_was_renamed(tmp_path: Path) -> None:
    *_, shown = lines(
        tmp_path,
        f"""{STEER}
        "$live" steer v0 fixed limit 43 $with & pid=$!
        limited v0 43
        kill -9 $(pgrep -P $pid) $pid
        wait $pid || limited v0 43
        ip link set v0 down
        ip link set v0 name w0
        "$live" steer w0 fixed limit 55 $with --duration 500ms
        tc qdisc show dev w0
        """,
    )
    assert "limit 1000p" in shown


def test_a_queue_with_a_size_table_is_not_steered(tmp_path: Path) -> None:
    """The kernel drops the table with each change that does not contain it."""
    *refused, left = lines(
        tmp_path,
        """
        tc qdisc add dev v0 root handle 1: stab overhead 44 linklayer atm tbf rate 10mbit burst 10kb limit 30kb
        tc -d qdisc show dev v0 >before
        for what in "5mbit --with rate" "fixed limit 9 --with limit"; do
            "$live" steer v0 $what --duration 500ms 2>&1 || true
        done
        tc -d qdisc show dev v0 | cmp - before && echo same
        """,
    )
    assert len(refused) == 2 and all("has a size table (stab)" in line for line in refused), refused
    assert left == "same"


def test_a_size_table_that_is_added_while_a_queue_is_steered_stays(tmp_path: Path) -> None:
    *_, shown, again = lines(
        tmp_path,
        f"""{STEER}
        "$live" steer v0 fixed limit 43 $with --duration 10s & pid=$!
        limited v0 43
        tc qdisc change dev v0 root handle 1: stab overhead 44 pfifo limit 43
        wait $pid
        tc -d qdisc show dev v0 | grep -o "overhead 44"
        "$live" steer v0 fixed limit 50 $with 2>&1 || true
        """,
    )
    assert shown == "overhead 44"
    assert "has a size table (stab)" in again


TBF = """
tc qdisc add dev v0 root handle 1: tbf rate 50mbit burst 20k limit 300000
tbf="$live steer v0 20mbit --with rate"
below() { tc qdisc show dev v0 | sed -n 's/.*parent 1:1 limit //p'; }
"""


def test_a_tbf_is_not_steered_where_the_kernel_would_set_the_limit_of_a_fifo_below_it(tmp_path: Path) -> None:
    shown = lines(
        tmp_path,
        f"""{TBF}
        for below in "pfifo limit 77" "bfifo limit 20000" "pfifo_head_drop limit 50"; do
            tc qdisc replace dev v0 parent 1:1 $below
            $tbf --duration 300ms 2>&1 || true
            below
        done
        tc qdisc replace dev v0 parent 1:1 bfifo limit 300000
        $tbf --duration 300ms --quiet
        below
        """,
    )
    assert shown[1::2] == ["77p", "20000b", "50p"]
    for line, name in zip(shown[::2], ["pfifo", "bfifo", "pfifo_head_drop"], strict=False):
        assert f"each change would give {name} " in line and "at 1:1 the limit of the tbf above it" in line, line
    assert shown[-1] == "300000b", "as much as the tbf above it"


@pytest.mark.parametrize("option", ["--hands-off", "--insist"])
def test_a_limit_that_is_set_below_a_tbf_while_that_is_steered_stays(tmp_path: Path, option: str) -> None:
    said, *left = lines(
        tmp_path,
        f"""{TBF}
        $tbf {option} --duration 20s 2>said & pid=$!
        until tc qdisc show dev v0 | grep -q "rate 20Mbit"; do sleep 0.05; done
        tc qdisc replace dev v0 parent 1:1 pfifo limit 77
        for _ in $(seq 100); do grep "has set a limit" said && break; sleep 0.05; done
        kill $pid 2>/dev/null || true
        wait $pid
        below
        "$live" steer --restore 2>&1
        below
        """,
    )
    assert "another program has set a limit below v0 tbf 1: at root" in said
    assert left == ["77p", "quell: nothing to restore", "77p"]


def test_a_limit_below_a_tbf_that_was_set_after_two_kills_is_not_overwritten(tmp_path: Path) -> None:
    assert lines(
        tmp_path,
        f"""{TBF}
        $tbf --quiet & pid=$!
        until tc qdisc show dev v0 | grep -q "rate 20Mbit"; do sleep 0.05; done
        kill -9 $(pgrep -P $pid) $pid
        wait $pid || true
        tc qdisc replace dev v0 parent 1:1 pfifo limit 77
        "$live" steer --restore --quiet
        below
        """,
    ) == ["77p"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_queue_is_restored_whichever_answer_of_the_kernel_is_lost(tmp_path: Path) -> None:
    """Each of the kernel's answers that quell waits for is replaced by an error, one per run."""
    left = lines(
        tmp_path,
        f"""{STEER}
        for each in $(seq 40); do
            strace -f -qq -o log -e trace=recvfrom -e inject=recvfrom:error=ENOBUFS:when=$each \\
                "$live" steer v0 fixed limit 43 $with --duration 300ms 2>/dev/null || true
            grep -q INJECTED log || break
            "$live" steer --restore --quiet
            tc qdisc show dev v0 | grep -q "limit 1000p" || echo $each
            tc qdisc replace dev v0 root handle 1: pfifo limit 1000
        done
        [ $each -gt 8 ]
        """,
    )
    assert left == []


OLD = """
tc qdisc add dev v0 root handle 1: pfifo limit 500
"$python" -c '
import json, pathlib, socket, struct, sys
with socket.socket() as at:
    cookie = struct.unpack("Q", at.getsockopt(socket.SOL_SOCKET, 71, 8))[0]
now = int(pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:16], 16)
row = {"class": False, "handle": 1 << 16, "parent": 0xFFFFFFFF, "kind": "pfifo", "options": [232, 3, 0, 0]}
state = {"pid": 1, "boot": now ^ int(sys.argv[1]), "device": socket.if_nametoindex("v0"), "knobs": ["limit"],
         "queues": [row]}
file = pathlib.Path(f"/run/quell/steer-{cookie}-v0.json")
file.write_text(json.dumps(state))
file.chmod(0o600)
' OTHER
"$live" steer --restore --quiet
tc qdisc show dev v0
ls /run/quell/*.json 2>/dev/null || echo none
"""


@pytest.mark.parametrize(("other", "limit"), [("0", 1000), ("1", 500)], ids=["this", "another"])
def test_values_saved_in_another_boot_are_not_restored(tmp_path: Path, other: str, limit: int) -> None:
    """If `/run` is not a tmpfs, the file survives a boot, and the interface's number may now be another one's."""
    shown, left = lines(tmp_path, OLD.replace("OTHER", other))
    assert f"limit {limit}p" in shown
    assert left == "none"


PLANT = """
ip link add w0 numtxqueues 2 numrxqueues 2 type veth peer name w1
ip link set w0 up
ip link set w1 up
tc qdisc add dev w0 root handle 9dff: mq
"$python" -c '
import json, pathlib, socket, struct, sys
with socket.socket() as at:
    cookie = struct.unpack("Q", at.getsockopt(socket.SOL_SOCKET, 71, 8))[0]
row = {"handle": 1 << 16, "parent": 0xFFFFFFFF, "kind": "pfifo", "options": [78, 0, 0, 0]}
state = {"device": socket.if_nametoindex("w0"), "name": "fifo", "page": 9, "slots": 2, "root": 0x9DFF0000,
         "before": {"rows": [row]}, "hooks": []}
file = pathlib.Path(f"/run/quell/attach-{cookie}-{sys.argv[1]}.json")
file.write_text(json.dumps(state))
file.chmod(0o600)
' NAME
"""
"""An interface as an attached discipline leaves it: its root of several queues, and a file with the former state."""
SLOWLY = """
strace -qq -o /dev/null -e trace=sendto -e inject=sendto:delay_exit=300000 "$live" detach w0 2>/dev/null & pid=$!
while tc qdisc show dev w0 | grep -q "mq 9dff:"; do sleep 0.01; done
kill -9 $(pgrep -P $pid)
wait $pid || true
"$live" detach w0 2>/dev/null || true
tc qdisc show dev w0
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_detach_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    (shown,) = lines(tmp_path, PLANT.replace("NAME", "w0") + SLOWLY)
    assert shown.startswith("qdisc pfifo 1: root") and "limit 78p" in shown


ATTACHED = (
    PLANT.replace("NAME", "v0")
    + """
cp /run/quell/*.json before
"$live" attach v0 fifo 2>&1 || true
cmp /run/quell/*.json before && echo same
"""
)


def test_state_of_attach_survives_another_interface_with_the_old_name(tmp_path: Path) -> None:
    refused, same = lines(tmp_path, ATTACHED)
    assert "this was the name of w0, where quell_fifo is attached" in refused and "quell detach v0" in refused
    assert same == "same"


EARLIER = (
    PLANT.replace("NAME", "v0")
    + """
sed -i '1s/{/{"boot": 1, /' /run/quell/*.json
"$live" detach v0 2>&1
tc qdisc show dev w0 | head -1
ls /run/quell/*.json 2>/dev/null || echo none
"""
)


def test_detach_removes_no_queue_of_an_interface_that_has_the_index_since_another_boot(tmp_path: Path) -> None:
    """If `/run` is not a tmpfs, the file survives a boot, and the interface's number may now be another one's."""
    said, shown, left = lines(tmp_path, EARLIER)
    assert "v0: was attached before the last start of the system" in said
    assert shown.startswith("qdisc mq 9dff: root"), shown
    assert left == "none"


FORWARDING = """
cd /proc/sys/net/ipv4
echo 0 >ip_forward
echo 0 >conf/all/accept_redirects
echo {forwards} >conf/v1/forwarding
status=0
"$quell" shell --nat --rate 10mbit --quiet -- true 2>&1 || status=$?
echo $status $(cat ip_forward conf/all/accept_redirects conf/v1/forwarding)
iptables-save | grep quell- || true
"""


@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
@pytest.mark.skipif(bool(no_tun()), reason=no_tun())
def test_forwarding_gives_back_the_settings_that_the_kernel_changes_with_it(tmp_path: Path) -> None:
    told, values = lines(tmp_path, FORWARDING.format(forwards=0))
    assert "ip_forward is 0 again" in told
    assert values == "0 0 0 0"


@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
@pytest.mark.skipif(bool(no_tun()), reason=no_tun())
def test_an_interface_that_forwards_alone_continues_forwarding(tmp_path: Path) -> None:
    refused, kept = lines(tmp_path, FORWARDING.format(forwards=1))
    assert "net.ipv4.conf.v1.forwarding is 1 and ip_forward 0" in refused
    assert kept == "2 0 0 1"


def one_after_another(folder: Path, first: str, second: str, *, made: str, changed: str = "") -> None:
    """Kill `quell live` on the first interface and start it on the second: their rules lead to different queues."""
    rules = lines(
        folder,
        f"""
        export QUELL_FIREWALL=iptables
        {made}
        "$live" --dev {first} --rate 8mbit --quiet & pid=$!
        ruled {first}
        kill -9 $pid
        wait $pid || true
        {changed}
        "$live" --dev {second} --rate 1mbit --quiet & pid=$!
        ruled {second}
        iptables -t mangle -S | sed -n 's/.*-o \\([vw][a0-9]*\\) .*queue-num \\([0-9]*\\).*/\\1 \\2/p'
        kill $pid
        wait $pid
        """,
    )
    (left, old), (new, number) = (rule.split() for rule in rules)
    assert (left, new) == (first, second) and old != number


@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
def test_a_rule_that_a_killed_live_left_leads_nowhere_after_two_names_are_exchanged(tmp_path: Path) -> None:
    """The rule has the queue of the first interface and the name of the second."""
    one_after_another(
        tmp_path,
        "v0",
        "w0",
        made="ip link add w0 type veth peer name w1",
        changed="ip link set v0 down; ip link set v0 name swapped; ip link set w0 name v0; ip link set swapped name w0",
    )


@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
def test_a_rule_that_a_killed_live_left_leads_to_no_queue_of_another_interface(tmp_path: Path) -> None:
    """quell computes the same first packet queue from these names and numbers."""
    links = "ip link add va index 10 type veth peer name pa; ip link add w23142 index 20 type veth peer name pb"
    one_after_another(tmp_path, "va", "w23142", made=links)


@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
def test_a_firewall_program_ends_with_the_killed_live_that_started_it(tmp_path: Path) -> None:
    """Otherwise it could later make a rule that nothing removes."""
    left = lines(
        tmp_path,
        """
        export QUELL_FIREWALL=iptables
        real=$(command -v iptables)
        mkdir slow
        cat >slow/iptables <<EOF
#!/bin/sh
if [ "\\$4" = -A ]; then echo \\$\\$ >slow/new; mv slow/new slow/pid; exec sleep 60; fi
exec $real "\\$@"
EOF
        chmod 755 slow/iptables
        PATH=$PWD/slow:$PATH "$live" --dev v0 --rate 8mbit --quiet & pid=$!
        until [ -e slow/pid ]; do sleep 0.05; done
        kill -9 $pid
        wait $pid || true
        for _ in $(seq 100); do kill -0 $(cat slow/pid) 2>/dev/null || break; sleep 0.05; done
        if kill $(cat slow/pid) 2>/dev/null; then echo "it still ran"; fi
        """,
    )
    assert left == []


@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
@pytest.mark.parametrize("edited", ['dev = "v1"', "dev = "], ids=["another interface", "an error"])
def test_the_unit_restores_its_rules_after_any_change_of_its_configuration(tmp_path: Path, edited: str) -> None:
    text = (Path(__file__).parents[3] / "examples/quell-live.service").read_text()
    (words,) = re.findall(r"^ExecStopPost=-\S+ live (.*)$", text, re.MULTILINE)
    left = lines(
        tmp_path,
        f"""
        export QUELL_FIREWALL=iptables RUNTIME_DIRECTORY=/run/quell-live
        mkdir -m 755 $RUNTIME_DIRECTORY
        printf 'dev = "v0"\\nrate = "8mbit"\\n' >live.toml
        "$live" --config live.toml --quiet & pid=$!
        until iptables -t mangle -S | grep -q NFQUEUE; do sleep 0.05; done
        watchdog=$(pgrep -P $pid)
        kill -9 $pid
        wait $pid || true
        # systemd waits for it, too.
        for _ in $(seq 100); do kill -0 $watchdog 2>/dev/null || break; sleep 0.05; done
        printf '%s\\nrate = "8mbit"\\n' '{edited}' >live.toml
        "$live" {words.replace("/etc/quell/", "")}
        iptables -t mangle -S | grep NFQUEUE || true
        ls $RUNTIME_DIRECTORY/*.json 2>/dev/null || true
        """,
    )
    assert left == []


@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
def test_rules_go_whatever_the_file_mode_creation_mask(tmp_path: Path) -> None:
    assert lines(
        tmp_path,
        """
        export QUELL_FIREWALL=iptables
        rmdir /run/quell
        umask 777
        "$live" --dev v0 --rate 8mbit --quiet --duration 300ms
        iptables -t mangle -S | grep -c NFQUEUE || true
        """,
    ) == ["0"]


@pytest.mark.skipif(shutil.which("ip6tables") is None, reason="ip6tables is not installed")
@pytest.mark.skipif(not has_ipv6(), reason="the kernel has no IPv6")
def test_rules_for_ipv6_are_made_and_go_though_proc_is_missing(tmp_path: Path) -> None:
    """As in a container, or with `subset=pid`: a missing file of /proc is not taken for a missing feature."""
    left = lines(
        tmp_path,
        """
        export QUELL_FIREWALL=iptables
        bare() { exec unshare -m sh -c 'umount -l /proc; exec "$@"' - "$@"; }
        six() { ip6tables -t mangle -S | grep -c NFQUEUE || true; }
        for start in bare exec; do
            ($start "$live" --dev v0 --rate 8mbit --quiet) & pid=$!
            for _ in $(seq 100); do [ "$(six)" = 1 ] && break; sleep 0.05; done
            six
            kill -9 $pid
            wait $pid || true
            (bare "$live" --restore --quiet)
            six
            ls /run/quell/*.json 2>/dev/null || true
        done
        """,
    )
    assert left == ["1", "0"] * 2


def test_a_link_in_the_middle_of_the_services_folder_is_not_followed(tmp_path: Path) -> None:
    """The variable may be left in the environment of a root shell, and the link may be another user's."""
    refused, left = lines(
        tmp_path,
        """
        mkdir -p /run/real/own
        ln -s /run/real /run/link
        RUNTIME_DIRECTORY=/run/link/own "$live" --dev v0 --rate 8mbit --quiet --duration 300ms 2>&1 || true
        ls /run/real/own | wc -l
        """,
    )
    assert "/run/link/own: a link leads to it" in refused and "/run/real/own" in refused
    assert left == "0"
