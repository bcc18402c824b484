"""`quell shell --nat` beside strangers: its command gets out, they get neither in nor through."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import QUELL
from test_shell import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"quell shell cannot run here: {missing()}")

# This machine between a stranger (10.9.9.2) and a server (10.8.8.2), each in a namespace of its own. An address of the
# shells' usual block is in use, and one of the next block is that of a peer in a private network.
SCRIPT = """
set -e
ip link set lo up
ip addr add 100.64.0.1/32 dev lo
neighbour() {{  # its name, our interface, its number
  unshare -n sleep 1000 & eval "$1=$!"
  while [ "$(readlink /proc/$!/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
  ip link add $2 type veth peer name e0 netns $!
  ip addr add 10.$3.$3.1/24 dev $2
  ip link set $2 up
  nsenter --net=/proc/$!/ns/net sh -c "ip link set lo up; ip link set e0 up; ip addr add 10.$3.$3.2/24 dev e0
    ip route add default via 10.$3.$3.1"
}}
neighbour stranger v0 9
neighbour far w0 8
nsenter --net=/proc/$stranger/ns/net ip addr add 100.100.6.6/32 dev e0
ip route add 100.100.6.6/32 dev v0
# As Tailscale has them: in a table of their own.
ip route add 100.64.65.7/32 dev v0 table 52
nsenter --net=/proc/$far/ns/net {python} -m http.server 8000 --bind 10.8.8.2 >/dev/null 2>requests & server=$!
reaches() {{ nsenter --net=/proc/$stranger/ns/net curl --silent --max-time 2 --output /dev/null "$@"; }}
echo {forwarding} >/proc/sys/net/ipv4/ip_forward
{refuse}
cat >command <<'EOF'
echo $QUELL_SERVER
curl --silent --retry 20 --retry-delay 1 --retry-all-errors http://10.8.8.2:8000/file
{python} -m http.server 8001 >/dev/null 2>&1 &
while ! curl --silent --output /dev/null http://127.0.0.1:8001/; do sleep 0.1; done
touch up
while ! [ -e tried ]; do sleep 0.1; done
EOF
{quell} shell --rate 5mbit --nat --quiet -- sh command & quell=$!
while ! [ -e up ]; do kill -0 $quell; sleep 0.1; done
try() {{ if "$@"; then echo yes; else echo no; fi; }}
try reaches http://10.8.8.2:8000/stranger
try reaches --interface 100.100.6.6 http://10.8.8.2:8000/spoofed
try reaches http://100.64.128.2:8001/
touch tried
wait $quell
iptables-save | grep quell || true
# What the attempts would have found without rules.
iptables -P FORWARD ACCEPT
echo 1 >/proc/sys/net/ipv4/ip_forward
try reaches http://10.8.8.2:8000/stranger
kill $server $stranger $far
"""


@pytest.mark.real_time
@pytest.mark.parametrize("forwarding", [False, True])
def test_strangers_get_neither_in_nor_through(tmp_path: Path, forwarding: bool) -> None:
    for needed in ("iptables", "ip", "curl"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    (tmp_path / "file").write_text("from afar\n")
    # A machine that forwards keeps its own rules for other hosts; here they drop all packets.
    script = SCRIPT.format(
        python=sys.executable, quell=QUELL, forwarding=int(forwarding),
        refuse="iptables -P FORWARD DROP" if forwarding else "",
    )  # fmt: skip
    command = ["unshare", "-n", "sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    requests = (tmp_path / "requests").read_text()
    assert done.stdout.split("\n") == ["100.64.128.1", "from afar", "no", "no", "no", "yes", ""], done.stderr + requests
    assert "10.8.8.1 " in requests, "the command has this machine's address out there"
    assert "spoofed" not in requests


@pytest.mark.real_time
def test_a_shell_that_is_just_ending_says_what_forwarding_was(tmp_path: Path) -> None:
    """Its last rule goes when forwarding is as before; until then another shell may begin."""
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    script = f"""
iptables -A FORWARD -m comment --comment quell-1-0 ! -i quell+ ! -o quell+ -j DROP
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link set lo up
{QUELL} shell --rate 5mbit --nat --quiet -- true
cat /proc/sys/net/ipv4/ip_forward
iptables-save | grep -c quell-
"""
    command = ["unshare", "-n", "sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "1"], done.stderr


LEFT = """
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_forward
{quell} shell --rate 5mbit --nat --quiet -- sleep 1000 & pid=$!
until iptables -t nat -S | grep -q quell- && [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 ]; do sleep 0.05; done
kill -9 $(pgrep -P $pid -f natguard) $pid
wait $pid
iptables -S | grep -c quell-
while ip link show quell0 >/dev/null 2>&1; do sleep 0.05; done
{quell} shell --rate 5mbit --nat --quiet -- true
cat /proc/sys/net/ipv4/ip_forward
iptables-save | grep -c quell-
"""


@pytest.mark.real_time
def test_rules_of_a_shell_that_was_killed_with_its_guard_go_with_the_next_one(tmp_path: Path) -> None:
    """The end of a session or of memory may kill both; the rules then drop all that is forwarded."""
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    command = ["unshare", "-n", "sh", "-c", LEFT.format(quell=QUELL)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["6", "0", "0"], done.stdout + done.stderr
    # An administrator may have made the machine a router since.
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("quell: ")]
    assert "ip_forward is 0 again, as before a quell shell --nat that was killed" in said
    assert said.endswith(" sysctl net.ipv4.ip_forward=1")


MEANWHILE = """
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_forward
{quell} shell --rate 5mbit --nat --quiet -- sleep 2 & pid=$!
until iptables -t nat -S | grep -q quell- && [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 ]; do sleep 0.05; done
{rule}
wait $pid
"""


@pytest.mark.real_time
@pytest.mark.parametrize(("rule", "changed"), [("iptables -A FORWARD -i docker0 -j ACCEPT", True), (":", False)])
def test_that_forwarding_is_off_again_is_told(tmp_path: Path, rule: str, changed: bool) -> None:
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    command = ["unshare", "-n", "sh", "-c", MEANWHILE.format(quell=QUELL, rule=rule)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    (said,) = done.stderr.splitlines()
    assert said.startswith("quell: net.ipv4.ip_forward is 0 again, as before --nat;")
    assert said.endswith(" sysctl net.ipv4.ip_forward=1")
    assert ("changed the chain FORWARD" in said) == changed


@pytest.mark.real_time
def test_a_machine_that_forwarded_before_continues_and_nothing_is_told(tmp_path: Path) -> None:
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    script = MEANWHILE.replace("echo 0", "echo 1") + "cat /proc/sys/net/ipv4/ip_forward\n"
    command = ["unshare", "-n", "sh", "-c", script.format(quell=QUELL, rule=":")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.real_time
def test_an_administrator_who_ends_forwarding_meanwhile_is_heeded(tmp_path: Path) -> None:
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    script = MEANWHILE.replace("echo 0", "echo 1") + "cat /proc/sys/net/ipv4/ip_forward\n"
    script = script.format(quell=QUELL, rule="echo 0 >/proc/sys/net/ipv4/ip_forward")
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.real_time
@pytest.mark.parametrize(
    "rule",
    [
        "kill -9 $(pgrep -P $pid -f natguard)",
        "iptables -t nat -A POSTROUTING -s 10.8.0.0/24 -m comment --comment home-quell-lab -j MASQUERADE",
        "iptables -A FORWARD -i docker0 -m comment --comment 'lab quell-3-1' -j ACCEPT",
    ],
    ids=["guard killed", "name in nat", "name in FORWARD"],
)
def test_what_was_before_comes_back_without_the_guard_and_beside_others_rules(tmp_path: Path, rule: str) -> None:
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    after = 'cat /proc/sys/net/ipv4/ip_forward\niptables-save | grep -c "quell[0-9+]" || true\n'
    # One that is there before the shell starts, and one that comes meanwhile.
    first, meanwhile = (":", rule) if rule.startswith("kill") else (rule, rule)
    script = f"{first}\n" + MEANWHILE.format(quell=QUELL, rule=meanwhile) + after
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["0", "0"], done.stdout + done.stderr


BRIDGE = """
set -e
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_forward
ip link add br0 type bridge
ip link set br0 up
for end in 1 2; do
  unshare -n sleep 60 & eval "host$end=$!"
  while [ "$(readlink /proc/$!/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
  ip link add p$end type veth peer name e0 netns $!
  ip link set p$end master br0 up
  nsenter --net=/proc/$!/ns/net sh -c "ip link set e0 up; ip addr add 10.7.0.$end/24 dev e0"
done
nsenter --net=/proc/$host2/ns/net {python} -m http.server 8000 --bind 10.7.0.2 >/dev/null 2>&1 & server=$!
reaches() {{
  nsenter --net=/proc/$host1/ns/net curl -s -o /dev/null --max-time 2 --retry 9 --retry-all-errors http://10.7.0.2:8000/
}}
reaches && echo before
{quell} shell --rate 5mbit --nat --quiet -- sleep 30 & quell=$!
until iptables -S FORWARD | grep -q quell- && [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 ]; do sleep 0.05; done
reaches && echo meanwhile
kill $quell $server $host1 $host2
wait
"""


@pytest.mark.real_time
def test_packets_within_a_bridge_pass(tmp_path: Path) -> None:
    for needed in ("iptables", "ip", "curl"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    if not Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
        pytest.skip("the kernel has no br_netfilter, without which no packet within a bridge passes iptables")
    script = BRIDGE.format(quell=QUELL, python=sys.executable)
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["before", "meanwhile"], done.stderr
