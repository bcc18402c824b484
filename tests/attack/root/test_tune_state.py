"""`quell tune --apply` and `--undo` as root: neither names of interfaces nor contents of a state file are executed."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL
from oracle import in_guest
from quell._core import InputError
from quell.tune import netlink
from quell.tune.install import Side
from quell.tune.netlink import Node

pytestmark = pytest.mark.real_time

INTRUSION = "id >F"
NAME = Path(__file__).with_name("tune_name.sh")
# The beginning of a script: a /run and interfaces of its own.
APART = """
mount -t tmpfs none /run
mkdir -m 755 /run/quell
ip link add wan type veth peer name other
tc qdisc add dev wan handle ffff: ingress
tc qdisc show dev wan >before
status=0
"$@" || status=$?
tc qdisc show dev wan >after
exit $status
"""
PLANT = """
import os, pathlib, socket, struct, sys
with socket.socket() as at:
    cookie = struct.unpack("Q", at.getsockopt(socket.SOL_SOCKET, 71, 8))[0]
file = pathlib.Path(f"/run/quell/tune-{cookie}-wan.json")
file.write_text(sys.argv[1].replace('"INDEX"', str(socket.if_nametoindex("wan"))))
file.chmod(0o600)
os.execv(sys.argv[2], sys.argv[2:])
"""


def require() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may make network namespaces")
    if absent := [name for name in ("unshare", "ip", "tc", "nsenter") if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(absent)} missing")


def undo(folder: Path, planted: str) -> subprocess.CompletedProcess[str]:
    """Undo with a planted state file owned by root, which is the worst case."""
    require()
    words = ["unshare", "-n", "-m", "sh", "-ec", APART, "-", sys.executable, "-c", PLANT, planted]
    done = subprocess.run(
        [*words, str(QUELL), "tune", "--undo", "wan"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    ran = folder / "F"
    assert not ran.exists(), f"it ran as {ran.read_text()}"
    return done


def refused(folder: Path, planted: str) -> str:
    """Expect one line that names file and remedy, and nothing changed."""
    done = undo(folder, planted)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert "/run/quell/tune-" in done.stderr and "tc qdisc del dev wan root" in done.stderr
    assert (folder / "before").read_text() == (folder / "after").read_text()
    return done.stderr


@pytest.mark.parametrize("place", ["ingress", "inner"])
def test_no_text_of_a_state_file_of_quell_0_2_is_run_and_the_file_is_named(tmp_path: Path, place: str) -> None:
    own = {"dev": "wan", "index": "INDEX", "tree": [], "ingress": "", "had_ingress": False}
    inner = own | {"dev": "ifb4wan", "index": 0}
    if place == "ingress":
        own |= {"ingress": f"x; {INTRUSION}; true", "had_ingress": True}
    else:
        inner["dev"] = f"x; {INTRUSION}; true"
    said = refused(tmp_path, json.dumps({"sides": [own, inner], "made": []}))
    assert "quell 0.2" in said


INGRESS = {"of": 36, "kind": "ingress", "handle": 0xFFFF0000, "parent": 0xFFFFFFF1, "options": ""}
GOOD = {
    "own": {"index": "INDEX", "tree": [INGRESS], "redirect": 0},
    "inner": {"index": 0, "tree": [], "redirect": 0},
    "made": [],
    "boot": 0,
}


def test_a_good_state_is_undone(tmp_path: Path) -> None:
    done = undo(tmp_path, json.dumps(GOOD))
    assert (done.returncode, done.stdout) == (0, "wan has again what it had before\n"), done.stderr
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


def test_queues_saved_in_another_boot_are_not_restored(tmp_path: Path) -> None:
    """If `/run` is not a tmpfs, the file survives a boot, and the interface's number may now be another one's."""
    old = GOOD | {"own": {"index": "INDEX", "tree": [], "redirect": 0}, "boot": 1}
    done = undo(tmp_path, json.dumps(old))
    assert done.returncode == 0, done.stderr
    assert "before the last start of the system" in done.stdout
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


SHELL = f"x; {INTRUSION}; true"
HOSTILE: list[tuple[str, Any]] = [
    *(
        (key, value)
        for key in ("own.index", "own.redirect", "inner.index")
        for value in (SHELL, -1, 1 << 32, 1.5, True)
    ),
    ("own.redirect", None),
    ("own.redirect", [SHELL]),
    ("own.dev", SHELL),
    ("own.tree", SHELL),
    ("own.tree.0", SHELL),
    ("own.tree.0.of", 44),
    ("own.tree.0.kind", SHELL),
    ("own.tree.0.kind", "../../x"),
    ("own.tree.0.kind", "x" * 16),
    ("own.tree.0.kind", ["ingress"]),
    ("own.tree.0.handle", SHELL),
    ("own.tree.0.parent", 1e300),
    ("own.tree.0.options", SHELL),
    ("own.tree.0.options", 7),
    # Attributes of length 0, longer than the data, and of other types than options and size table.
    ("own.tree.0.options", "00000000"),
    ("own.tree.0.options", "ffff0200"),
    ("own.tree.0.options", "08000100616200"),
    ("own.tree.0", INGRESS | {"kind": "codel", "options": "09000200050001000100000000"}),
    ("own.tree.0", INGRESS | {"kind": "htb", "options": "0a0002000600020001000000"}),
    *(("boot", value) for value in (SHELL, -1, 1 << 64, 1.5, True)),
    ("program", SHELL),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), HOSTILE, ids=[f"{key}={value}"[:40] for key, value in HOSTILE])
def test_a_hostile_value_is_refused_and_nothing_is_done(tmp_path: Path, key: str, value: Any) -> None:
    plain = copy.deepcopy(GOOD)
    at: Any = plain
    *path, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    for part in path:
        at = at[part]
    at[last] = value
    refused(tmp_path, json.dumps(plain))


@pytest.mark.parametrize("text", ["", "null", "[]", "7", "NaN", "9" * 5000, "[" * 100_000], ids=lambda text: text[:4])
def test_an_invalid_state_is_refused_and_nothing_is_done(tmp_path: Path, text: str) -> None:
    refused(tmp_path, text)


APPLY = """
from quell.linux.programs import Command
from quell.tune import install, targets
commands = [
    Command.of("ip link add name ifb4wan type ifb"),
    Command.of("ip link set dev ifb4wan up"),
    Command.of("tc qdisc del dev wan ingress"),
    Command.of("tc qdisc add dev wan handle ffff: ingress"),
    targets.redirect("wan", "ifb4wan"),
    Command.of("tc qdisc add dev wan root pfifo limit 77"),
]
install.apply("wan", commands, replace=True)
"""
RENAMED = """
"$1" -c "$2"
ip link set wan down
ip link set wan name lan0
"$3" tune --undo wan
tc qdisc show dev lan0 | sed s/lan0/wan/
tc filter show dev lan0 ingress
ip -br link show type ifb
ls /run/quell/*.json 2>/dev/null || echo none
ip link set lan0 name wan
"""


def test_an_interface_that_was_renamed_gets_back_what_it_had(tmp_path: Path) -> None:
    """Only its ifb was removed: the kernel drops packets that a filter redirects to a deleted interface."""
    require()
    words = [
        "unshare",
        "-n",
        "-m",
        "sh",
        "-ec",
        APART,
        "-",
        "sh",
        "-ec",
        RENAMED,
        "-",
        sys.executable,
        APPLY,
        str(QUELL),
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    if "refuses" in done.stderr:
        pytest.skip(f"this kernel lacks the filter: {done.stderr.strip()}")
    before = (tmp_path / "before").read_text()
    assert done.stdout == f"lan0 has again what it had before\n{before}none\n", done.stdout + done.stderr


@pytest.mark.guest
def test_an_interface_named_as_a_command_of_the_shell_is_an_interface(tmp_path: Path) -> None:
    """Incoming packets are redirected to `$(id>F)`: here, or in the oracle's kernel if this one lacks the filter."""
    require()
    done = subprocess.run(
        ["unshare", "-n", "-m", "sh", NAME, QUELL, tmp_path], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        done = in_guest(NAME, QUELL, tmp_path)
    assert done.stdout == "applied\nwan has again what it had before\nsame\nnothing ran\n", done.stdout + done.stderr


PROGRAMS = """
import sys
from quell import InputError
from quell.linux.programs import Command
from quell.tune import install
commands = [
    Command.of("ip link add name ifb4wan type ifb"),
    Command.of("tc qdisc del dev wan ingress"),
    Command.of("tc qdisc add dev wan root pfifo limit {limit}", limit=sys.argv[1]),
    Command.of("tc qdisc add dev ifb4wan root pfifo limit {limit}", limit=sys.argv[1]),
]
print("ready", flush=True)
sys.stdin.readline()
try:
    install.apply("wan", commands, replace=True)
except InputError as error:
    sys.exit(f"quell: {error}")
"""
AT_ONCE = """
import json, subprocess, sys
code, quell = sys.argv[1:]

def together(*words):
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen(each, text=True, **pipe) for each in words]
    waiting = running if words[0][1] == "-c" else []
    for each in waiting:
        each.stdout.readline()
    for each in waiting:
        each.stdin.write("go\\n")
        each.stdin.flush()
    ends = [each.communicate(timeout=50) for each in running]
    return [[each.returncode, *end] for each, end in zip(running, ends)]

applied = together(*([sys.executable, "-c", code, str(limit)] for limit in range(101, 107)))
shown = [subprocess.run(["tc", "qdisc", "show", "dev", dev], capture_output=True, text=True).stdout
         for dev in ("wan", "ifb4wan")]
undone = together(*([quell, "tune", "--undo", "wan"] for _ in range(2)))
again = together([quell, "tune", "--undo", "wan"])
links = subprocess.run(["ip", "-br", "link", "show", "type", "ifb"], capture_output=True, text=True).stdout
print(json.dumps([applied, shown, undone, again, links]))
"""


def test_of_many_that_apply_at_once_one_succeeds_and_one_undo_restores_the_queue(tmp_path: Path) -> None:
    require()
    words = ["unshare", "-n", "-m", "sh", "-ec", APART, "-", sys.executable, "-c", AT_ONCE, PROGRAMS, str(QUELL)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    applied, shown, undone, again, links = json.loads(done.stdout)
    best = [limit for limit, (code, *_) in enumerate(applied, 101) if code == 0]
    assert len(best) == 1, applied
    assert all("pfifo 8" in text and f"limit {best[0]}p" in text for text in shown), shown
    # The others are refused in a line, during the first one's change or after it.
    for code, _, said in applied:
        assert code == 0 or (code == 1 and said.count("\n") == 1 and "wan" in said), said
    assert sorted(code for code, *_ in undone) == [0, 2], undone
    assert again[0][0] == 2 and links == "", (again, links)
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


# The killed process has no time to see that its child, which holds the namespace and has inherited the lock, lives.
KILLED = """
import os, signal, sys, time
from quell import _core
from quell.linux import spaces

class Linux:
    def __getattr__(self, name):
        return getattr(linux, name)

    def prctl(self, *arguments):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(0.2)
        return linux.prctl(*arguments)

linux = spaces._linux()
spaces._linux = Linux
with _core.StateFile.hold("wan"):
    spaces.Space()
"""


def test_the_process_that_holds_a_namespace_ends_though_tune_is_killed_at_once(tmp_path: Path) -> None:
    require()
    script = """
    mount -t tmpfs none /run
    "$1" -c "$2" || true
    sleep 1
    exec "$1" -c 'from quell import _core; _core.StateFile.hold("wan").__enter__()'
    """
    words = ["unshare", "-n", "-m", "-p", "--fork", "--kill-child", "sh", "-ec", script, "-", sys.executable, KILLED]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_a_queue_of_quell_attach_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program ends with its last queue. A trial of its restoration in a namespace would find it still there."""
    require()
    attached = [Node(36, "quell_codel", 0x9E00_0000, 0xFFFF_FFFF, "")]
    monkeypatch.setattr(netlink, "tree", lambda _: attached)
    monkeypatch.setattr(netlink, "has_filters", lambda _: False)
    with pytest.raises(InputError, match=r"^lo has quell_codel, [^\n]*: quell detach lo$"):
        Side.of("lo")
