"""An unprivileged user against every file that quell writes, in a folder where all may write.

`fs.protected_symlinks` and related settings (proc_sys_fs(5)) prevent most of this on many machines; quell does not rely
on them.
"""

from __future__ import annotations

import itertools
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import QUELL, QUELL_LIVE
from namespace import VETH, Space, space_with
from quell._core import InputError
from quell.common import files
from quell.evaluation.state import RunStore
from quell.train.links import Cache, Run
from writers import WRITERS

pytestmark = [
    pytest.mark.machine_root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user"),
]

STRANGER = 12345


def _link(at: Path, victim: Path) -> None:
    at.symlink_to(victim)


def _dangling(at: Path, victim: Path) -> None:
    at.symlink_to(victim.with_name("new"))


def _second_name(at: Path, victim: Path) -> None:
    os.link(victim, at)


def _pipe(at: Path, _victim: Path) -> None:
    os.mkfifo(at)


def _socket(at: Path, _victim: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(at))


def _folder(at: Path, _victim: Path) -> None:
    at.mkdir()


def _own_file(at: Path, _victim: Path) -> None:
    at.touch()
    at.chmod(0o666)


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    plant.__name__.strip("_"): plant for plant in (_link, _dangling, _second_name, _pipe, _socket, _folder, _own_file)
}


def folder_like_tmp(within: Path, mode: int) -> Path:
    """Make a folder in which all may write, beside a file of root."""
    made = within / "shared"
    made.mkdir(parents=True)
    made.chmod(mode)
    (within / "victim").write_text("root's")
    return made


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return folder_like_tmp(tmp_path, 0o1777)


@pytest.fixture(scope="module")
def space() -> Iterator[Space]:
    with space_with("qs", VETH + "tc qdisc replace dev v0 root pfifo limit 100\n") as made:
        yield made


def planted(plant: str, at: Path) -> None:
    PLANTS[plant](at, at.parent.parent / "victim")
    if plant != "second_name":
        os.chown(at, STRANGER, STRANGER, follow_symlinks=False)


def harmless(shared: Path) -> None:
    """Check that the file beside the shared folder is unchanged, and alone."""
    assert (shared.parent / "victim").read_text() == "root's"
    assert sorted(path.name for path in shared.parent.iterdir()) == ["shared", "victim"]


def until(command: subprocess.Popen[str], true: Callable[[], bool]) -> None:
    """Wait for a condition while a command runs."""
    deadline = time.monotonic() + 30
    while not true():
        assert command.poll() is None and time.monotonic() < deadline, command.communicate()
        time.sleep(0.02)


def ours(path: Path) -> None:
    """Check that a regular file can be accessed by root only."""
    found = path.lstat()
    assert stat.S_ISREG(found.st_mode)
    assert (found.st_uid, found.st_nlink, found.st_mode & 0o022) == (0, 1, 0)


@pytest.mark.parametrize("writer", WRITERS)
def test_planted_files_are_neither_written_nor_waited_for(
    tmp_path: Path, request: pytest.FixtureRequest, writer: str
) -> None:
    """fs.protected_symlinks and related settings protect only folders with the sticky bit."""
    *words, name = WRITERS[writer]
    within: list[str] = []
    if words[0] == "watch":
        within = ["ip", "netns", "exec", request.getfixturevalue("space").name]

    def attacked(case: tuple[str, int]) -> None:
        plant, mode = case
        shared = folder_like_tmp(tmp_path / f"{plant}-{mode:o}", mode)
        at = shared / name
        planted(plant, at)
        done = subprocess.run(
            [*within, QUELL, *words, at], cwd=shared, capture_output=True, text=True, timeout=120, umask=0o022
        )  # fmt: skip
        harmless(shared)
        assert "Traceback" not in done.stderr, case
        if done.returncode == 0:
            # evaluate deletes its state file at the end.
            if writer != "evaluate":
                ours(at)
        else:
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), (case, done.stderr)
            assert at.name in done.stderr, case

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(attacked, itertools.product(PLANTS, (0o1777, 0o777))))


def test_a_link_in_the_place_of_a_file_that_is_being_written_leads_nowhere(shared: Path) -> None:
    shared.chmod(0o777)  # without the sticky bit another user may rename root's files
    victim = shared.parent / "victim"
    victim.chmod(0o600)

    def write(part: Path) -> None:
        (at,) = shared.iterdir()
        at.unlink()
        at.symlink_to(victim)
        part.write_text("ours")

    files.write_whole(shared / "out", write)
    harmless(shared)
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


def test_a_folder_exchanged_with_a_link_while_a_file_is_written_gives_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file gets the owner of the one that it replaces, in the stranger's folder only, never in one of root."""
    theirs, roots = tmp_path / "theirs", tmp_path / "roots"
    for folder, owner, mode in ((theirs, STRANGER, 0o666), (roots, 0, 0o600)):
        folder.mkdir()
        (folder / "out").write_text("old")
        (folder / "out").chmod(mode)
        for path in (folder, folder / "out"):
            os.chown(path, owner, owner)
    look = files._replaced

    def exchanged(path: Path) -> os.stat_result | None:
        found = look(path)
        theirs.rename(tmp_path / "moved")
        theirs.symlink_to(roots)
        return found

    monkeypatch.setattr(files, "_replaced", exchanged)
    files.write_text(theirs / "out", "new")
    assert [path.name for path in roots.iterdir()] == ["out"]
    ours(roots / "out")
    assert (roots / "out").read_text() == "old"
    assert (tmp_path / "moved/out").read_text() == "new"


def test_a_link_that_comes_while_a_state_file_is_opened_is_refused(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.chmod(0o777)  # without the sticky bit Linux follows links of other users
    follow = files.follow

    def late(path: Path) -> Path:
        target = follow(path)
        planted("dangling", path)
        return target

    monkeypatch.setattr(files, "follow", late)
    with pytest.raises(InputError, match=r"out\.state: cannot be used: "), RunStore(shared / "out.state"):
        pass
    harmless(shared)


@pytest.mark.parametrize("plant", PLANTS)
def test_samples_in_the_way_to_parquet_are_written_through_nothing(shared: Path, space: Space, plant: str) -> None:
    """`--out out.parquet` collects samples in out.jsonl."""
    planted(plant, shared / "out.jsonl")
    *words, name = WRITERS["watch parquet"]
    done = space.run(QUELL, *words, shared / name)
    harmless(shared)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "out.jsonl" in done.stderr


@pytest.mark.real_time
@pytest.mark.parametrize("plant", PLANTS)
def test_the_status_socket_takes_the_place_of_nothing_but_a_dead_socket(shared: Path, space: Space, plant: str) -> None:
    planted(plant, shared / "s")
    done = space.run(QUELL_LIVE, "--dev", "v0", "--rate", "8mbit", "--duration", "50ms", "--status", shared / "s")
    harmless(shared)
    if plant == "socket":
        assert done.returncode == 0, done.stderr
    else:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "--status" in done.stderr


@pytest.mark.real_time
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_the_status_socket_takes_no_socket_of_another_process_and_waits_for_none(
    shared: Path, space: Space, kind: socket.SocketKind
) -> None:
    """Syslog's socket is a datagram socket; connecting to a listener that accepts nothing would block for ever."""
    at = str(shared / "s")
    with socket.socket(socket.AF_UNIX, kind) as theirs, socket.socket(socket.AF_UNIX, kind) as first:
        theirs.bind(at)
        if kind != socket.SOCK_DGRAM:
            theirs.listen(0)
            first.connect(at)
        inode = (shared / "s").stat().st_ino
        done = space.run(QUELL_LIVE, "--dev", "v0", "--rate", "8mbit", "--duration", "50ms", "--status", at)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "another program listens there" in done.stderr
        assert (shared / "s").stat().st_ino == inode


def test_nothing_is_continued_from_a_strangers_file(shared: Path) -> None:
    at, cache = shared / "t.safetensors", shared / "cache.json"
    words = (QUELL, "train", "learnqueue", "--duration", "1s", "--out", at)
    first = subprocess.run([*words, "--episodes", "1"], capture_output=True, text=True, timeout=60)
    assert first.returncode == 0, first.stderr
    Cache(cache).add({"a": Run(1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0)})
    assert Cache(cache).get("a") is not None
    for file in (shared / "t.curve.csv", cache):
        os.chown(file, STRANGER, STRANGER)
    again = subprocess.run([*words, "--episodes", "2", "--resume"], capture_output=True, text=True, timeout=60)
    assert again.returncode == 2 and again.stderr.count("\n") == 1
    assert "t.curve.csv belongs to another user, in a folder where all may write" in again.stderr
    with pytest.raises(InputError, match=r"cache\.json belongs to another user"):
        Cache(cache)


def test_a_link_in_the_place_of_a_finished_piece_is_replaced(shared: Path, space: Space) -> None:
    (shared / "out.1.csv").symlink_to(shared.parent / "new")
    os.chown(shared / "out.1.csv", STRANGER, STRANGER, follow_symlinks=False)
    words = ("v0", "--every", "1ms", "--quiet", "--rotate", "64kb", "--out", shared / "out.csv")
    watch = space.start(QUELL_LIVE, "watch", *words)
    until(watch, lambda: not (shared / "out.1.csv").is_symlink())
    watch.terminate()
    assert watch.communicate(timeout=20)[1] == ""
    harmless(shared)
    for piece in shared.iterdir():
        ours(piece)


def test_a_second_watch_of_the_same_file_is_refused_and_takes_nothing_from_it(shared: Path, space: Space) -> None:
    out = shared / "out.csv"
    first = space.start(QUELL_LIVE, "watch", "v0", "--every", "5ms", "--quiet", "--out", out)
    try:
        until(first, lambda: out.exists() and out.stat().st_size > 0)
        size = out.stat().st_size
        second = space.watch("v0", "--every", "5ms", "--duration", "0.1s", "--quiet", "--out", out)
        assert (second.returncode, second.stderr.count("\n")) == (2, 1), second.stderr
        assert "another process writes it" in second.stderr
        assert out.stat().st_size >= size
    finally:
        first.terminate()
        first.communicate(timeout=20)
    lines = out.read_text().splitlines()
    assert len({line.count(",") for line in lines}) == 1
    assert sum(line.startswith("time") for line in lines) == 1


IN_ITS_OWN_VAR_TMP = """
mount -t tmpfs -o mode=1777 none /var/tmp
stranger="setpriv --reuid=$1 --regid=$1 --clear-groups"
$stranger mkdir /var/tmp/polars-root
$stranger ln -s "$2" /var/tmp/polars-root/spill
shift 2
exec "$@"
"""


@pytest.mark.parametrize("command", ["command", "library"])
def test_a_link_in_the_place_of_the_folder_of_polars_deletes_nothing(tmp_path: Path, command: str) -> None:
    year = tmp_path / "backups" / "2019"
    year.mkdir(parents=True)
    (year / "photo").touch()
    out = tmp_path / "runs.csv"
    words = {
        "command": (str(QUELL), "run", "home", "--duration", "2s", "--warmup", "0s", "--csv", str(out)),
        "library": (sys.executable, "-c", "import quell; quell.queues().select('name').write_csv()"),
    }[command]
    env = {name: value for name, value in os.environ.items() if name != "POLARS_OOC_SPILL_DIR"}
    done = subprocess.run(
        ("unshare", "-m", "sh", "-ec", IN_ITS_OWN_VAR_TMP, "sh", str(STRANGER), str(year.parent), *words),
        env=env | {"USER": "root"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in year.iterdir()] == ["photo"]
