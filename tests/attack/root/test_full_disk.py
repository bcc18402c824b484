"""A full disk: each file that quell writes is complete or absent; a file to be replaced is still there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import QUELL, QUELL_LIVE
from live_net import Net, built, require
from namespace import VETH, space_with
from writers import WRITERS

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can mount a small file system"
)

SMALL = "mount -t tmpfs -o size=4k,nr_inodes=16 small {0}"
"""A file system of one page."""
FILL = "head -c 4096 /dev/zero >{0}/fill"


def within_small(
    folder: Path, first: str, *words: str | Path
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run a command where `folder` is a file system of one page, after a line of shell; return the folder's files."""
    kept = folder.with_name("kept")
    kept.mkdir()
    script = f'{SMALL.format(folder)}; {first.format(folder)}; "$@"; status=$?; cp -R {folder}/. {kept}; exit $status'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *words], cwd=folder, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    return done, {path.name: path.read_text(errors="replace") for path in kept.iterdir() if path.name != "fill"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "small"
    made.mkdir()
    return made


def one_line(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "No space left on device" in done.stderr


REPLACED = ("json", "html", "parquet", "csv", "flent", "pcap", "learnqueue")


@pytest.mark.parametrize("writer", REPLACED)
def test_on_a_full_disk_the_old_file_stays_and_no_file_is_half_written(folder: Path, writer: str) -> None:
    *words, name = WRITERS[writer]
    done, kept = within_small(folder, f"printf old >{{0}}/{name}", QUELL, *words, folder / name)
    one_line(done)
    assert kept == {name: "old"}


def test_an_evaluation_that_cannot_keep_its_runs_says_so_at_once(folder: Path) -> None:
    *words, name = WRITERS["evaluate"]
    done, kept = within_small(folder, FILL, QUELL, *words, folder / name)
    one_line(done)
    assert kept in ({}, {name: ""})


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_samples_of_watch_end_with_a_whole_line(folder: Path, name: str) -> None:
    with space_with("qd", VETH + "tc qdisc replace dev v0 root pfifo limit 100\n") as space:
        words = (QUELL, "watch", "v0", "--every", "10ms", "--duration", "20s", "--quiet", "--out", folder / name)
        done, kept = within_small(folder, ":", "ip", "netns", "exec", space.name, *words)
    one_line(done)
    assert "are whole lines" in done.stderr
    assert len(kept) == 1
    assert all(text == "" or text.endswith("\n") for text in kept.values())


@pytest.fixture
def net() -> Iterator[Net]:
    require()
    with built(Net) as made:
        yield made


@pytest.mark.real_time
def test_live_changes_nothing_where_its_state_cannot_be_written(net: Net) -> None:
    live = f"ip netns exec {net.r} {QUELL_LIVE} --dev rb --rate 8mbit --quiet"
    script = f"mkdir -p /run/quell; chmod 700 /run/quell; {SMALL.format('/run/quell')}; chmod 700 /run/quell; "
    script += f"{FILL.format('/run/quell')}; {live}; status=$?; ls /run/quell; exit $status"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    one_line(done)
    assert [name for name in done.stdout.split() if name.endswith((".json", ".part"))] == []
    assert net.rules() == []
    with net.echo() as server:
        assert net.answers()
        server.kill()
