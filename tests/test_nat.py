"""`quell shell --nat` with strangers around: its command gets out; strangers get neither in nor through."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL
from quell import InputError
from quell.linux import nat
from quell.linux.spaces import has_ipv6
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
  {six} || return 0
  ip addr add fd00:$3::1/64 dev $2 nodad
  nsenter --net=/proc/$!/ns/net sh -c "ip addr add fd00:$3::2/64 dev e0 nodad; ip route add default via fd00:$3::1"
}}
neighbour stranger v0 9
neighbour far w0 8
nsenter --net=/proc/$stranger/ns/net ip addr add 100.100.6.6/32 dev e0
ip route add 100.100.6.6/32 dev v0
# As Tailscale has them: in a table of their own.
ip route add 100.64.65.7/32 dev v0 table 52
nsenter --net=/proc/$far/ns/net {python} -m http.server 8000 --bind 10.8.8.2 >/dev/null 2>requests & server=$!
{six} && nsenter --net=/proc/$far/ns/net {python} -m http.server 8000 --bind fd00:8::2 >/dev/null 2>&1 & server6=$!
reaches() {{ nsenter --net=/proc/$stranger/ns/net curl --silent --max-time 2 --output /dev/null "$@"; }}
echo {forwarding} >/proc/sys/net/ipv4/ip_forward
# A router of IPv6, whatever it is of IPv4.
{six} && echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
{refuse}
cat >command <<'EOF'
echo $QUELL_SERVER
curl --silent --retry 20 --retry-delay 1 --retry-all-errors http://10.8.8.2:8000/file
curl --silent --max-time 2 --output /dev/null 'http://[fd00:8::2]:8000/file' && echo "out by IPv6"
{python} -m http.server 8001 --bind {any} >/dev/null 2>&1 &
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
try reaches 'http://[fd71:7565:6c6c::6440:8002]:8001/'
touch tried
wait $quell
iptables-save | grep quell || true
# What the attempts would have found without rules.
iptables -P FORWARD ACCEPT
echo 1 >/proc/sys/net/ipv4/ip_forward
try reaches http://10.8.8.2:8000/stranger
{six} && try reaches 'http://[fd00:8::2]:8000/stranger' || echo yes
kill $server $server6 $stranger $far
"""


def test_signals_do_not_end_the_guard_while_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path(nat.__file__).with_name("natguard.py").read_text().partition("sys.path.append")[0]
    slow = tmp_path / "natguard.py"
    slow.write_text(f"import time\ntime.sleep(0.5)\n{script}sys.stdin.read()\n")
    monkeypatch.setattr(nat, "_GUARD", slow)
    guard = nat._start_guard("[]")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        guard.send_signal(number)
    guard.communicate(timeout=30)
    assert guard.returncode == 0


def test_the_start_lists_the_rules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoFile:
        def read(self) -> None:
            return None

        def remove(self) -> None:
            pass

    blocks = "-A FORWARD ! -i quell+ ! -o quell+ -m comment --comment quell-7 -j DROP"
    calls: list[tuple[str, ...]] = []

    def ran(*words: str) -> str:
        calls.append(words)
        return f"-P CHAIN ACCEPT\n{blocks}\n" if "FORWARD" in words else "-P CHAIN ACCEPT\n"

    monkeypatch.setattr(nat, "_ran", ran)
    monkeypatch.setattr(nat, "has_ipv6", lambda: True)
    monkeypatch.setattr(nat, "_is_shell_device", lambda index: True)
    monkeypatch.setattr(nat, "interface_name", lambda index: f"quell{index}")
    file: Any = NoFile()
    _, others = nat._settle(file)
    with pytest.raises(InputError, match="the quell shell of quell7 has another /run"):
        nat._check_alone(file, 3, others)
    assert calls == [(program, "-t", table, "-S", chain) for program, table, chain in nat._CHAINS]


@pytest.mark.real_time
@pytest.mark.parametrize("forwarding", [False, True])
def test_strangers_get_neither_in_nor_through(tmp_path: Path, forwarding: bool) -> None:
    for needed in ("iptables", "ip", "curl"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    (tmp_path / "file").write_text("from afar\n")
    # A machine that forwards keeps its own rules for other hosts, which here drop all packets.
    script = SCRIPT.format(
        python=sys.executable, quell=QUELL, forwarding=int(forwarding), six=str(has_ipv6()).lower(),
        any="::" if has_ipv6() else "0.0.0.0",
        refuse="iptables -P FORWARD DROP" if forwarding else "",
    )  # fmt: skip
    command = ["unshare", "-n", "sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    requests = (tmp_path / "requests").read_text()
    tried = ["no", "no", "no", "no", "yes", "yes", ""]
    assert done.stdout.split("\n") == ["100.64.128.1", "from afar", *tried], done.stderr + requests
    assert "10.8.8.1 " in requests, "the command has this machine's address out there"
    assert "spoofed" not in requests


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
    """A logout or lack of memory may kill both; the rules then drop all forwarded packets."""
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    command = ["unshare", "-n", "sh", "-c", LEFT.format(quell=QUELL)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["6", "0", "0"], done.stdout + done.stderr
    # An administrator may have made the machine a router meanwhile, so the message has the command for that.
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
def test_settings_are_restored_without_the_guard_and_beside_others_rules(tmp_path: Path, rule: str) -> None:
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    after = 'cat /proc/sys/net/ipv4/ip_forward\niptables-save | grep -c "quell[0-9+]" || true\n'
    # One rule before the shell starts, and one meanwhile.
    first, meanwhile = (":", rule) if rule.startswith("kill") else (rule, rule)
    script = f"{first}\n" + MEANWHILE.format(quell=QUELL, rule=meanwhile) + after
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["0", "0"], done.stdout + done.stderr


# All processes end with the script.
UNSHARED = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
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
replaced() {{ until iptables -S FORWARD | grep -q physdev; do sleep 0.1; done; }}
cd /proc/sys/net/bridge
reaches && echo before
{before}
{quell} shell --rate 5mbit --nat --quiet -- sleep 30 & quell=$!
until iptables -S FORWARD | grep -q quell- && [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 ]; do sleep 0.05; done
{meanwhile}
reaches && echo meanwhile
iptables -S FORWARD | grep -c quell-
iptables -S FORWARD | grep -c physdev
kill $quell $server $host1 $host2
wait
"""


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        (":", ":"),
        ("echo 0 >bridge-nf-call-iptables", "echo 1 >bridge-nf-call-iptables"),
        # As if the module were loaded meanwhile.
        ("mount -t tmpfs none .", "cd /; umount /proc/sys/net/bridge; replaced"),
    ],
    ids=["as it is", "turned on", "loaded"],
)
def test_packets_within_a_bridge_pass(tmp_path: Path, before: str, meanwhile: str) -> None:
    for needed in ("iptables", "ip", "curl"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    if not Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
        pytest.skip("the kernel has no br_netfilter, without which no packet within a bridge passes iptables")
    script = BRIDGE.format(quell=QUELL, python=sys.executable, before=before, meanwhile=meanwhile)
    done = subprocess.run([*UNSHARED, "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["before", "meanwhile", "6", "1"], done.stderr


RULES = 9 if has_ipv6() else 7
"""Number of rules of a shell that blocks other hosts."""

# A /run of its own, and functions for the scripts. An iptables in the folder `shim` comes before the real one.
APART = """
mount -t tmpfs none /run
ip link set lo up
cd /proc/sys/net/ipv4
echo 0 >ip_forward
export PATH=$folder/shim:$PATH
quell() {{ {quell} shell --rate 5mbit --nat --quiet -- "$@"; }}
rules() {{ {{ iptables-save; ip6tables-save; }} | grep -c " quell-" || true; }}
within() {{ for _ in $(seq 200); do if "$@"; then return; fi; sleep 0.05; done; echo "not within 10 s: $*"; exit 1; }}
forwards() {{ [ "$(cat ip_forward)" = 1 ]; }}
complete() {{ [ "$(rules)" = $(({rules} * ${{1:-1}})) ]; }}
gone() {{ ! kill -0 $1 2>/dev/null; }}
flush() {{ iptables -F; iptables -t nat -F; ip6tables -F; }}
# Starts a shell that ends with the file $folder/$1; its processes are $pid and $guard.
begin() {{
  {quell} shell --rate 5mbit --nat --quiet -- sh -c "until [ -e $folder/$1 ]; do sleep 0.05; done" & pid=$!
  within forwards
  within guarded
}}
guarded() {{ guard=$(pgrep -P $pid -f natguard); }}
"""


def said(folder: Path, script: str, shim: str = "") -> str:
    """Run a script in namespaces of its own; return its output."""
    for needed in ("iptables", "ip6tables", "pgrep"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    if shim:
        (folder / "shim").mkdir()
        file = folder / "shim/iptables"
        file.write_text(f'#!/bin/sh\ncd {folder}\n{shim}\nexec {shutil.which("iptables")} "$@"\n')
        file.chmod(0o755)
    text = f"set -e\nfolder={folder}\n" + APART.format(quell=QUELL, rules=RULES) + script
    done = subprocess.run([*UNSHARED, "sh", "-c", text], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


NTH_REMOVAL = """
case " $* " in *" -D "*) [ ! -e armed ] || {
  n=$(($(cat count 2>/dev/null) + 1))
  echo $n >count
  [ $n != %d ] || { %s; }
};; esac
"""


@pytest.mark.real_time
@pytest.mark.parametrize("nth", [1, 4, 7])
def test_the_next_shell_removes_what_a_guard_left_that_was_killed_while_it_removed(tmp_path: Path, nth: int) -> None:
    script = """
begin never
within complete
touch $folder/armed
kill -9 $pid
within gone $guard
rm $folder/armed
rules
quell true
cat ip_forward
rules
"""
    left, *after = said(tmp_path, script, NTH_REMOVAL % (nth, "kill -9 $PPID; exit 1")).split()
    assert int(left) == RULES + 1 - nth
    assert after == ["0", "0"]


@pytest.mark.real_time
@pytest.mark.parametrize("nth", [1, 4, 7])
@pytest.mark.parametrize("how", ["exit 4", "exit 0"], ids=["fails", "does nothing"])
def test_a_removal_that_fails_once_is_repeated(tmp_path: Path, nth: int, how: str) -> None:
    script = "touch $folder/armed\nquell true\nrules\ncat ip_forward $folder/count"
    rules, forwards, count = said(tmp_path, script, NTH_REMOVAL % (nth, how)).split()
    assert (rules, forwards) == ("0", "0")
    assert int(count) > 7


@pytest.mark.real_time
def test_a_start_that_may_not_change_forwarding_leaves_no_rules(tmp_path: Path) -> None:
    script = """
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
cd .
quell true 2>&1 || echo $?
rules
"""
    assert said(tmp_path, script).splitlines() == [
        "quell: --nat: /proc/sys/net/ipv4/ip_forward: Read-only file system", "2", "0",
    ]  # fmt: skip


RELOADED = {
    "and the shell ends": "within complete; touch $folder/end; wait $pid",
    "and both processes are killed": "kill -9 $pid $guard; within gone $pid; quell true",
    "which removes a part": "iptables -F; within complete; touch $folder/end; wait $pid",
}


@pytest.mark.real_time
@pytest.mark.parametrize("then", RELOADED)
def test_a_firewall_that_is_reloaded_meanwhile_opens_nothing(tmp_path: Path, then: str) -> None:
    script = f"begin end\nwithin complete\nflush\n{RELOADED[then]}\nrules\ncat ip_forward"
    assert said(tmp_path, script).split() == ["0", "0"]


@pytest.mark.real_time
def test_another_interface_with_a_killed_shells_index_is_not_a_shell(tmp_path: Path) -> None:
    """An interface that comes from another namespace keeps its index, like those of containers."""
    script = """
begin never
within complete
index=$(grep -o "[0-9]*]" /run/quell/nat-*.json)
kill -9 $guard $pid
ended() { ! ip link show quell0 >/dev/null 2>&1; }
within ended
ip link add index ${index%]} name x0 type veth peer name x1
quell true
cat ip_forward
rules
ls /run/quell | grep -c json || true
"""
    assert said(tmp_path, script).split() == ["0", "0", "0"]


@pytest.mark.real_time
def test_rules_that_a_saved_firewall_brings_back_go_whoever_has_their_index(tmp_path: Path) -> None:
    script = """
begin end
within complete
iptables-save >$folder/saved
index=$(grep -o "[0-9]*]" /run/quell/nat-*.json)
touch $folder/end
wait $pid
iptables-restore <$folder/saved
echo 1 >ip_forward
rules
ip link add index ${index%]} name x0 type veth peer name x1
quell true
cat ip_forward
rules
"""
    assert said(tmp_path, script).split() == ["7", "1", "0"]


@pytest.mark.real_time
@pytest.mark.parametrize(("edit", "forwards"), [("", "0"), ("s/: [0-9]*}/: 1}/", "1"), ("s/, .boot.*}/}/", "0")],
                         ids=["this", "another", "not known"])  # fmt: skip
def test_state_of_a_shell_from_another_boot_is_ignored(tmp_path: Path, edit: str, forwards: str) -> None:
    """If `/run` is not a tmpfs, the file survives a boot, but the shell did not set ip_forward to 1 in this one."""
    script = f"""
begin never
within complete
kill -9 $guard $pid
ended() {{ ! ip link show quell0 >/dev/null 2>&1; }}
within ended
grep -c '"boot": [1-9]' /run/quell/nat-*.json
sed -i '{edit}' /run/quell/nat-*.json
quell true
cat ip_forward
rules
ls /run/quell | grep -c json || true
"""
    assert said(tmp_path, script).split() == ["1", forwards, "0", "0"]


@pytest.mark.real_time
def test_rules_that_cannot_be_put_back_end_forwarding(tmp_path: Path) -> None:
    script = "begin end\nwithin complete\ntouch $folder/armed\nflush\nends() { ! forwards; }\nwithin ends\n"
    script += "kill -0 $pid\nrm $folder/armed\ntouch $folder/end\nwait $pid\nrules"
    shim = 'case " $* " in *" -I "*) [ ! -e armed ] || exit 4;; esac'
    assert said(tmp_path, script, shim).split() == ["0"]


@pytest.mark.real_time
def test_a_reload_between_the_starts_of_two_shells_changes_nothing(tmp_path: Path) -> None:
    script = """
begin first
first=$pid
within complete
flush
begin second
within complete 2
touch $folder/first
wait $first
cat ip_forward
touch $folder/second
wait $pid
cat ip_forward
rules
"""
    assert said(tmp_path, script).split() == ["1", "0", "0"]


@pytest.mark.real_time
def test_settings_are_restored_although_the_state_file_was_deleted(tmp_path: Path) -> None:
    """They are restored when the last shell that needs forwarding ends, also if the other shell was killed."""
    script = """
echo 0 >conf/all/accept_redirects
begin first
first=$pid
within complete
begin second
within complete 2
rm -r /run/quell
kill -9 $first
within complete
cat ip_forward
rm -r /run/quell
touch $folder/second
wait $pid
cat ip_forward
cat conf/all/accept_redirects
rules
"""
    assert said(tmp_path, script).split() == ["1", "0", "0", "0"]


@pytest.mark.real_time
def test_a_shell_beside_one_of_another_run_is_refused_until_that_ends(tmp_path: Path) -> None:
    """As in two containers with one network namespace: the end of the first one would end forwarding for both."""
    script = """
begin first
first=$pid other=$guard
within complete
apart() { unshare --mount sh -c 'mount -t tmpfs none /run; exec "$@"' - "$@"; }
apart QUELL shell --rate 5mbit --nat --quiet -- true 2>&1 || echo $?
rules
cat ip_forward
quell true
# Of a shell that was killed in the other container there are only rules, which go.
kill -9 $other $first
ended() { ! ip link show quell0 >/dev/null 2>&1; }
within ended
rules
apart QUELL shell --rate 5mbit --nat --quiet -- true
cat ip_forward
rules
"""
    refused, *shown = said(tmp_path, script.replace("QUELL", str(QUELL))).splitlines()
    assert refused.startswith("quell: --nat: the quell shell of quell0 has another /run ") and "end it first" in refused
    assert shown == ["2", str(RULES), "1", str(RULES), "1", "0"]


@pytest.mark.real_time
def test_shells_that_start_at_once_agree_on_what_was_before(tmp_path: Path) -> None:
    """The first shell is held after it has read the rules, until the second one forwards."""
    shim = """
case "$*" in *"-S FORWARD") if mkdir held 2>/dev/null; then
  {real} "$@"
  for _ in $(seq 200); do [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 0 ] || exit 0; sleep 0.05; done
  exit 4
fi;; esac
"""
    script = """
quell sh -c "until [ -e $folder/first ]; do sleep 0.05; done" & first=$!
within [ -e $folder/held ]
begin second
within complete 2
touch $folder/second
wait $pid
cat ip_forward
touch $folder/first
wait $first
cat ip_forward
rules
for _ in 1 2 3 4; do quell true & done
wait
cat ip_forward
rules
"""
    assert said(tmp_path, script, shim.format(real=shutil.which("iptables"))).split() == ["1", "0", "0", "0", "0"]


@pytest.mark.real_time
@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"redirects": 1}', '{"redirects": 1, "shells": 1}', '{"redirects": true, "shells": []}',
     '{"redirects": "1", "shells": []}', '{"redirects": 1, "shells": ["1"]}', '{"redirects": 1, "shells": [-1]}',
     '{"redirects": 1, "shells": [4294967296]}', '{"redirects": 1, "shells": [], "more": 1}', "[" * 100_000,
     '{"redirects": 1, "shells": [], "boot": "1"}', '{"redirects": 1, "shells": [], "boot": -1}'],
    ids=range(14),
)  # fmt: skip
def test_a_state_file_that_quell_did_not_write_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    script = """
quell true
file=$(ls /run/quell/nat-*-forwarding.lock)
cp $folder/state ${file%lock}json
quell true 2>&1 || echo $?
rules
"""
    refused, status, rules = said(tmp_path, script).splitlines()
    assert "is not a state file of quell shell --nat" in refused and "delete it" in refused
    assert (status, rules) == ("2", "0")
