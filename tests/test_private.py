"""Files that root writes: other users can neither replace them nor redirect the writing by a link."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import QUELL
from quell._core import InputError
from quell.common import files
from quell.linux import ends
from test_real import needs_root, scenario

STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@needs_root
def test_the_folder_of_real_flows_is_closed_to_others(tmp_path: Path) -> None:
    command = [str(QUELL), "compare", scenario(tmp_path), "--real", "--aqm", "pfifo"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    seen: dict[str, int] = {}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            for folder in tmp_path.glob("quell-real-*"):
                for path in (folder, *folder.glob("*")):
                    try:
                        seen[path.name] = seen.get(path.name, 0) | path.stat().st_mode
                    except FileNotFoundError:
                        continue
            time.sleep(0.01)
    assert running.returncode == 0
    assert "start" in seen
    folders = {name: mode for name, mode in seen.items() if name.startswith("quell-real-")}
    assert [oct(mode & 0o777) for mode in folders.values()] == ["0o700"]
    assert not list(tmp_path.glob("quell-real-*"))


@pytest.mark.real_time
@needs_root
def test_a_signal_leaves_no_folder_of_real_flows(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    command = [str(QUELL), "compare", scenario(tmp_path), "--real", "--aqm", "pfifo"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None and not list(tmp_path.glob("tmp/*/start")):
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
    assert running.returncode == 130
    assert not list((tmp_path / "tmp").iterdir())


def test_an_end_of_real_flows_writes_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("root's")
    (tmp_path / "start.part").symlink_to("victim")
    with pytest.raises(FileExistsError):
        ends.write_new(tmp_path / "start", "planted")
    assert (tmp_path / "victim").read_text() == "root's"


def shared(folder: Path) -> Path:
    """Make a folder like /tmp."""
    made = folder / "shared"
    made.mkdir()
    made.chmod(0o1777)
    return made


@as_root
@pytest.mark.parametrize("where", ["out.json", "folder/out.json"])
def test_a_link_that_a_stranger_laid_is_not_followed(tmp_path: Path, where: str) -> None:
    victim = tmp_path / "etc"
    victim.mkdir()
    (victim / "out.json").write_text("root's")
    link = shared(tmp_path) / Path(where).parts[0]
    link.symlink_to(victim if "/" in where else victim / "out.json")
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    target = tmp_path / "shared" / where
    refused = r"cannot be written: .* belongs to another user, in a folder where all"
    with pytest.raises(InputError, match=refused):
        files.check_target("--json", target)
    with pytest.raises(InputError, match=refused):
        files.write_text(target, "new")
    assert (victim / "out.json").read_text() == "root's"
    assert sorted(p.name for p in victim.iterdir()) == ["out.json"]


@as_root
def test_a_pipe_that_a_stranger_laid_is_not_written(tmp_path: Path) -> None:
    pipe = shared(tmp_path) / "out.json"
    os.mkfifo(pipe)
    os.chown(pipe, STRANGER, STRANGER)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # opening the pipe for writing would wait for a reader
    with pytest.raises(InputError, match="belongs to another user"):
        files.write_text(pipe, "results")
    os.close(reader)


@as_root
def test_ones_own_link_in_a_shared_folder_and_a_strangers_at_home_are_followed(tmp_path: Path) -> None:
    for folder, owner in ((shared(tmp_path), 0), (tmp_path / "home", STRANGER)):
        folder.mkdir(exist_ok=True)
        os.chown(folder, owner, owner)
        (folder / "real").write_text("old")
        (folder / "link").symlink_to("../" + folder.name + "/real")
        os.chown(folder / "link", owner, owner, follow_symlinks=False)
        files.write_text(folder / "link", "new")
        assert (folder / "real").read_text() == "new"
        assert (folder / "link").is_symlink()


def test_links_in_a_ring_are_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InputError, match="a: cannot be written: Too many levels of symbolic links"):
        files.write_text(tmp_path / "a", "text")


@as_root
def test_a_folder_of_checkpoints_that_a_stranger_made_is_refused(tmp_path: Path) -> None:
    folder = shared(tmp_path) / "lfq-checkpoints"
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    with pytest.raises(OSError, match="belongs to another user"):
        files.refuse_planted(folder)
