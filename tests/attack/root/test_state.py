"""State files of another user: root executes nothing from them and follows no link; one line names the remedy."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import QUELL, QUELL_LIVE, ROOT
from live_net import require, wait_for_output

pytestmark = pytest.mark.real_time

NOBODY = 65534
COOKIE = (
    "import socket; s = socket.socket(socket.AF_UNIX); print(int.from_bytes(s.getsockopt(1, 71, 8), sys.byteorder))"
)
UNIT = (ROOT / "examples/quell-live.service").read_text()
CAPS = ",".join(
    f"+{name[4:].lower()}" for name in re.findall(r"CAP_\w+", UNIT.split("AmbientCapabilities=")[1].split("\n")[0])
)
FOLDER_OF_UNIT = "/run/" + UNIT.split("RuntimeDirectory=")[1].split("\n")[0]
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
AS_STRANGER = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
AS_UNIT = (
    *AS_NOBODY, "--no-new-privs", *(f"--{which}=-all,{CAPS}" for which in ("inh-caps", "ambient-caps", "bounding-set")),
    "env", f"RUNTIME_DIRECTORY={FOLDER_OF_UNIT}",
)  # fmt: skip
RATE = ("--dev", "v0", "--rate", "8mbit")
BRIEF = (*RATE, "--duration", "300ms")


class Place:
    """Mount and network namespaces with a /run, the devices v0 and v1, and programs that must not run."""

    def __init__(self, folder: Path, firewall: str) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.firewall = firewall
        script = (
            "mount -t tmpfs -o mode=755 none /run && ip link add v0 type veth peer name v1"
            " && ip link set v0 up && ip link set v1 up && ip link set lo up && echo ready && exec sleep 600"
        )
        self.holder = subprocess.Popen(["unshare", "-mn", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == "ready\n"
        self.run_folder = Path(f"/proc/{self.holder.pid}/root/run")
        self.space = self.run(sys.executable, "-c", f"import sys; {COOKIE}").stdout.strip()
        self.ran = folder / "ran"
        evil = folder / "EVIL"
        evil.write_text(f'#!/bin/sh\nid >>{self.ran}\necho "-P PREROUTING ACCEPT"\n')
        evil.chmod(0o755)

    def words(self, *words: str | Path) -> tuple[list[str], dict[str, str]]:
        environment = os.environ | {
            "QUELL_FIREWALL": self.firewall,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
        }
        return ["nsenter", "-t", str(self.holder.pid), "-m", "-n", *map(str, words)], environment

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        inside, environment = self.words(*words)
        self.started.append(subprocess.Popen(inside, env=environment, stderr=subprocess.PIPE, text=True))
        return self.started[-1]

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        inside, environment = self.words(*words)
        return subprocess.run(inside, env=environment, capture_output=True, text=True, timeout=60)

    def live(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(QUELL_LIVE, *words)

    def plant(self, command: str, dev: str, state: object, folder: str = "quell") -> Path:
        """Write a state file like an attacker who can write to the folder."""
        path = self.run_folder / folder / f"{command}-{self.space}-{dev}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(state if isinstance(state, str) else json.dumps(state))
        return path

    def rules(self) -> int:
        """Count quell's rules of all users."""
        lists = [self.run(program, "-t", "mangle", "-S").stdout for program in ("iptables", "ip6tables")] + [
            self.run("nft", "list", "ruleset").stdout
        ]
        return sum(text.count("0x7175656c") for text in lists)

    def end(self) -> None:
        for process in (*self.started, self.holder):
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture(autouse=True, scope="module")
def able() -> None:
    require()
    if absent := [name for name in ("unshare", "nsenter", "setpriv", "nft") if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(absent)} missing")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    tmp_path.chmod(0o755)
    made = Place(tmp_path, "iptables")
    try:
        yield made
    finally:
        made.end()


def refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """Expect one line that contains `said`, and no other error."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("quell: ")]
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    for word in said:
        assert word in lines[0]
    assert "panicked" not in done.stderr and "Traceback" not in done.stderr


def ends(command: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    command.send_signal(number)
    return command.communicate(timeout=30)[1]


EVIL = {"pid": 1, "rules": [["EVIL", "PREROUTING"]]}
"""A rule as quell 0.2.0 wrote it: its first word is a program."""


@pytest.mark.parametrize("words", [("--restore",), BRIEF], ids=["restore", "start"])
def test_a_program_in_a_state_file_is_not_run(place: Place, words: tuple[str, ...]) -> None:
    path = place.plant("live", "v0", EVIL)
    done = place.live(*words)
    assert not place.ran.exists(), f"ran as root: {place.ran.read_text()}"
    assert done.returncode == 0, done.stderr
    assert not path.exists()


def test_a_table_in_a_state_file_is_not_removed(place: Place) -> None:
    place.run("nft", "add", "table", "inet", "other")
    place.plant("live", "v0", {"pid": 1, "rules": [], "table": {"name": "other", "text": "", "rules": [["a", "b"]]}})
    assert place.live("--restore").returncode == 0
    assert "other" in place.run("nft", "list", "tables").stdout


def test_a_lock_that_is_a_link_makes_no_file_elsewhere(place: Place) -> None:
    lock = place.plant("live", "v0", EVIL).with_suffix(".lock")
    lock.symlink_to("/run/elsewhere")
    for words in (("--restore",), BRIEF):
        refused(place.live(*words), str(lock.name), "is a link", "delete it")
    assert not (place.run_folder / "elsewhere").exists()
    assert not place.ran.exists()


def test_a_part_that_is_a_link_overwrites_no_other_file(place: Place) -> None:
    (place.run_folder / "victim").write_text("as it was")
    part = place.plant("live", "v0", EVIL).with_suffix(".part")
    part.symlink_to("/run/victim")
    done = place.live(*BRIEF)
    assert (place.run_folder / "victim").read_text() == "as it was"
    assert (done.returncode, place.rules()) == (0, 0), done.stderr


def linked(place: Place) -> None:
    """Make the link to its user's folder that the unit of quell 0.2.0 leaves (DynamicUser, RuntimeDirectory=quell)."""
    (place.run_folder / "private/quell").mkdir(parents=True)
    (place.run_folder / "quell").symlink_to("private/quell")
    os.chown(place.run_folder / "private/quell", NOBODY, NOBODY)


def dangling(place: Place) -> None:
    (place.run_folder / "quell").symlink_to("private/quell")


def anothers(place: Place) -> None:
    (place.run_folder / "quell").mkdir()
    os.chown(place.run_folder / "quell", NOBODY, NOBODY)


def writable(place: Place) -> None:
    (place.run_folder / "quell").mkdir()
    (place.run_folder / "quell").chmod(0o777)


def of_a_group(place: Place) -> None:
    (place.run_folder / "quell").mkdir()
    (place.run_folder / "quell").chmod(0o775)


def a_file(place: Place) -> None:
    (place.run_folder / "quell").write_text("")


FOLDERS = {
    linked: ("is a link", "rm /run/quell"),
    dangling: ("is a link", "rm /run/quell"),
    anothers: (f"belongs to user {NOBODY}", "rm -r /run/quell"),
    writable: ("other users can write to it (mode 777)", "chmod 755 /run/quell"),
    of_a_group: ("other users can write to it (mode 775)", "chmod 755 /run/quell"),
    a_file: ("Not a directory",),
}
COMMANDS: tuple[tuple[str | Path, ...], ...] = (
    (QUELL_LIVE, *BRIEF),
    (QUELL_LIVE, "--restore"),
    (QUELL_LIVE, "steer", "v0", "wqm", "--with", "limit", "--rate", "8mbit", "--duration", "300ms"),
    (QUELL_LIVE, "steer", "--restore"),
    (QUELL_LIVE, "attach", "v0", "fifo"),
    (QUELL_LIVE, "attach", "v0"),
    (QUELL_LIVE, "detach", "v0"),
    (QUELL, "tune", "--undo", "v0"),
)


@pytest.mark.parametrize("make", FOLDERS, ids=lambda make: make.__name__)
@pytest.mark.machine_root
def test_a_folder_that_is_not_roots_alone_is_refused_by_every_command(place: Place, make: object) -> None:
    assert callable(make)
    make(place)
    place.run("tc", "qdisc", "add", "dev", "v0", "root", "pfifo", "limit", "100")
    before = tree(place.run_folder)
    for words in COMMANDS:
        refused(place.run(*words), "/run/quell: ", *FOLDERS[make])
    found = json.loads(place.run(QUELL, "doctor", "--json", "-").stdout)
    states = [(finding["state"], finding["found"]) for finding in found if finding["check"] == "state files"]
    assert states and states[0][0] == "fail" and FOLDERS[make][0] in states[0][1], found
    assert tree(place.run_folder) == before
    assert place.rules() == 0


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "xtables" not in path.name)


PLANT = """
import json, pathlib, sys
for name, state in json.loads(sys.argv[1]).items():
    pathlib.Path("/run/quell", name).write_text(json.dumps(state))
"""


@pytest.mark.machine_root
def test_files_planted_by_a_services_user_are_not_executed_as_root(place: Place) -> None:
    """The unit of 0.2.0 gave its user /run/quell, and root's commands trusted the files there."""
    linked(place)
    out = place.folder / "out"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    side = {
        "dev": "v0",
        "index": int(index(place, "v0")),
        "tree": [],
        "ingress": f"x; id >{out}/tune; true",
        "had_ingress": False,
    }
    inner = {"dev": "ifb-v0", "index": 0, "tree": [], "ingress": "", "had_ingress": False}
    files = {
        f"live-{place.space}-v0.json": EVIL,
        f"tune-{place.space}-v0.json": {"sides": [side, inner], "made": []},
    }
    done = place.run(*AS_NOBODY, sys.executable, "-c", PLANT, json.dumps(files))
    assert done.returncode == 0, done.stderr
    for words in ((QUELL_LIVE, "--restore"), (QUELL_LIVE, *BRIEF), (QUELL, "tune", "--undo", "v0")):
        place.run(*words)
    ran = [path.read_text() for path in (place.ran, out / "tune") if path.exists()]
    assert not ran, f"ran as root: {ran}"


def index(place: Place, dev: str) -> str:
    return (
        place.run("cat", f"/sys/class/net/{dev}/ifindex").stdout
        or place.run("ip", "-o", "link", "show", dev).stdout.split(":")[0]
    )


SAVED = {"device": 2, "name": "fifo", "page": 1, "slots": 1, "root": 0x9E00_0000, "before": {"rows": []}, "hooks": []}
STEERED = {"pid": 1, "device": 2, "knobs": ["limit"], "queues": []}
TEXTS: list[object] = ["", "[]", "null", "[" * 100_000, '{"pid": 1', "\x00", "9" * 100_000, " " * (2 << 20)]
VALUES: list[object] = [None, -1, 1e300, 2**64, "a/../b", "x; id", "$(id)", "a\nb", ["EVIL"], {"EVIL": 1}, [[256] * 9]]


@pytest.mark.parametrize(
    ("command", "state", "words"),
    [
        ("live", {"pid": 1, "firewall": "iptables"}, ("--restore",)),
        ("steer", STEERED, ("steer", "--restore")),
        ("attach", SAVED, ("detach", "v0")),
    ],
    ids=["live", "steer", "attach"],
)  # fmt: skip
def test_hostile_values_are_one_line_and_change_nothing(
    place: Place, command: str, state: dict[str, object], words: tuple[str, ...]
) -> None:
    place.run("tc", "qdisc", "add", "dev", "v0", "root", "pfifo", "limit", "100")
    hostile = TEXTS + [state | {key: value} for key in [*state, "run"] for value in VALUES if value != state.get(key)]
    # `state` has no `run`, so None is not planted for that key.
    for planted in hostile:
        path = place.plant(command, "v0", planted)
        refused(place.live(*words), path.name, ", then delete it")
        assert path.exists()
    assert "limit 100p" in place.run("tc", "qdisc", "show", "dev", "v0").stdout
    assert not place.ran.exists()


def test_something_other_than_a_file_makes_root_neither_wait_nor_read(place: Place) -> None:
    path = place.plant("live", "v0", EVIL)
    (place.run_folder / "secret").write_text("secret")
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("/run/secret")):
        path.unlink() if path.is_file() else None
        make(path)
        done = place.live("--restore")
        refused(done, path.name, "delete it")
        assert "secret" not in done.stderr
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def unit_folder(place: Place) -> Path:
    """Make the unit's folder as systemd does for a dynamic user."""
    folder = place.run_folder / "private/quell-live"
    folder.mkdir(parents=True)
    os.chown(folder, NOBODY, NOBODY)
    (place.run_folder / "quell-live").symlink_to("private/quell-live")
    return folder


@pytest.mark.parametrize("firewall", ["iptables", "nftables"])
@pytest.mark.machine_root
def test_root_restores_what_the_units_process_left(place: Place, firewall: str) -> None:
    place.firewall = firewall
    folder = unit_folder(place)
    command = place.start(*AS_UNIT, QUELL_LIVE, *RATE)
    wait_for_output(command, "egress: ")
    done = place.live("--restore")
    assert "still runs on it" in done.stderr and done.returncode == 0, done.stderr
    assert place.rules() > 0
    command.kill()
    command.communicate()
    # The watchdog outlives it for a while.
    deadline = time.monotonic() + 20
    while "still runs on it" in (done := place.live("--restore")).stderr:
        assert time.monotonic() < deadline
    assert (done.returncode, place.rules()) == (0, 0), done.stderr
    assert not list(folder.glob("*.json"))


@pytest.mark.machine_root
def test_root_reads_the_units_folder_as_hostile(place: Place) -> None:
    folder = unit_folder(place)
    name = f"live-{place.space}-v0"
    (place.run_folder / "victim").write_text("as it was")

    def plant(script: str) -> subprocess.CompletedProcess[str]:
        done = place.run(*AS_NOBODY, "sh", "-ec", f"cd {FOLDER_OF_UNIT}; {script}")
        assert done.returncode == 0, done.stderr
        done = place.live("--restore")
        place.run(*AS_NOBODY, "sh", "-c", f"cd {FOLDER_OF_UNIT}; rm -rf *")
        return done

    # Only its own rules are removed; nothing is executed.
    assert plant(f"echo '{json.dumps(EVIL)}' >{name}.json").returncode == 0
    refused(plant(f"ln -s /run/victim {name}.json"), name, "is a link")
    refused(plant(f"mkfifo {name}.json"), name, "is not a regular file")
    refused(plant(f"mkdir {name}.json"), name, "Is a directory")
    refused(plant(f"echo '{json.dumps(EVIL)}' >{name}.json; ln -s /run/victim {name}.lock"), name, "is a link")
    refused(plant(f"echo '{json.dumps(EVIL)}' >{name}.json; mkfifo {name}.lock"), name, "is not a regular file")
    # Invalid names of interfaces.
    for dev in ("a b", "x\ny", "$(id)", "\x1b[2J", "a" * 100):
        done = plant(f"echo '{json.dumps(EVIL)}' >'live-{place.space}-{dev}.json'")
        assert len(done.stderr.splitlines()) == 1 and "\x1b" not in done.stderr, done.stderr
    assert (place.run_folder / "victim").read_text() == "as it was"
    assert not place.ran.exists()
    assert folder.exists()


@pytest.mark.machine_root
def test_root_and_the_unit_exclude_each_other_on_an_interface(place: Place) -> None:
    unit_folder(place)
    root: tuple[str | Path, ...] = (QUELL_LIVE,)
    unit: tuple[str | Path, ...] = (*AS_UNIT, QUELL_LIVE)
    for first, second in ((root, unit), (unit, root), (unit, unit), (root, root)):
        command = place.start(*first, *RATE)
        wait_for_output(command, "egress: ")
        refused(place.run(*second, *BRIEF), "--dev v0: another quell live is running on it", "; stop that one first")
        other = place.run(*second, "--dev", "v1", *BRIEF[2:])
        assert other.returncode == 0, other.stderr
        ends(command)
        done = place.run(*second, *BRIEF)
        assert (done.returncode, place.rules()) == (0, 0), done.stderr


SQUAT = """
import fcntl, pathlib, socket, struct, sys
taken = []
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
netlink.bind((0, 0))
number = 50_000 + int(sys.argv[1]) % 15_000
command = struct.pack("=HHBBH", 8, 1, 1, 0, 0)
netlink.send(struct.pack("=IHHIIBBH", 20 + len(command), 3 << 8 | 2, 5, 1, 0, 0, 0, socket.htons(number)) + command)
if struct.unpack("=i", netlink.recv(4096)[16:20])[0] == 0:
    taken.append("queue")
for folder in ("/run/quell", "/run/quell-live"):
    try:
        for path in pathlib.Path(folder).iterdir():
            fcntl.flock(path.open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken.append(path.name)
    except OSError:
        pass
print("took", *taken, flush=True)
sys.stdin.read()
"""


@pytest.mark.machine_root
def test_a_stranger_cannot_block_an_interface(place: Place) -> None:
    unit_folder(place).chmod(0o700)
    assert place.live(*BRIEF).returncode == 0, "makes the locks"
    inside, environment = place.words(
        *AS_NOBODY[:1], "--reuid=12345", "--regid=12345", "--clear-groups", sys.executable
    )
    words = [*inside, "-c", SQUAT, index(place, "v0")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "took\n"
        for who in ((), AS_UNIT):
            done = place.run(*who, QUELL_LIVE, *BRIEF)
            assert done.returncode == 0, done.stderr
        stranger.communicate()


@pytest.mark.machine_root
def test_rules_of_an_earlier_process_of_another_user_hide_none_of_the_next(place: Place) -> None:
    """A rule whose queue has no reader lets packets pass before they reach the next rule."""
    unit_folder(place)
    command = place.start(QUELL_LIVE, *RATE)
    wait_for_output(command, "egress: ")
    command.kill()
    command.communicate()
    before = place.rules()
    command = place.start(*AS_UNIT, QUELL_LIVE, *RATE)
    wait_for_output(command, "egress: ")
    assert place.rules() == before
    ends(command)
    assert place.rules() == 0


@pytest.mark.machine_root
def test_a_user_in_a_namespace_keeps_state_in_a_folder_of_their_own(place: Place) -> None:
    folder = place.run_folder / "own"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    script = 'ip link add v0 type veth peer name v1 && ip link set v0 up && exec "$@"'
    words = ("unshare", "-Urmn", "sh", "-c", script, "sh", "env", "RUNTIME_DIRECTORY=/run/own", QUELL_LIVE, *BRIEF)
    done = place.run(*AS_STRANGER, *words)
    assert done.returncode == 0, done.stderr
    assert "egress: " in done.stderr and [path.suffix for path in folder.iterdir()] == [".lock"]


def test_a_status_socket_is_made_roots_alone_and_no_path_is_changed_afterwards(place: Place) -> None:
    """A path may lead elsewhere by then: in a folder where others can write, root would change the mode of any file."""
    if shutil.which("strace") is None:
        pytest.skip("strace is missing")
    log = place.folder / "strace"
    calls = "trace=/chmod"
    words = ("sh", "-c", 'umask 0; exec "$@"', "sh", "strace", "-f", "-e", calls, "-o", log)
    command = place.start(*words, QUELL_LIVE, *RATE, "--status", "/run/status.sock")
    wait_for_output(command, "egress: ")
    assert (place.run_folder / "status.sock").stat().st_mode & 0o777 == 0o600
    place.run("pkill", "-TERM", "-P", str(command.pid))
    command.communicate(timeout=30)
    assert "chmod" not in log.read_text()


def test_rules_left_by_0_2_0_are_removed(place: Place) -> None:
    words = ["-m", "mark", "!", "--mark", "0x7175656c", "-j", "NFQUEUE", "--queue-num", "29004", "--queue-bypass"]
    for program in ("iptables", "ip6tables"):
        assert place.run(program, "-t", "mangle", "-A", "POSTROUTING", "-o", "v0", *words).returncode == 0
    rules = [[program, "POSTROUTING", "-o", "v0", *words] for program in ("iptables", "ip6tables")]
    path = place.plant("live", "v0", {"pid": 1, "rules": rules})
    done = place.live("--restore")
    assert (done.returncode, place.rules(), path.exists()) == (0, 0, False), done.stderr
    assert "v0: 2 rules removed" in done.stderr
