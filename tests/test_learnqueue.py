"""LearnQueue's table: learned, kept, shown, used as a start; and hostile files."""

from __future__ import annotations

import csv
import json
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL, ROOT, Quell
from quell import _core
from quell._core import InputError
from quell.cli import show
from quell.common.text import counted
from quell.experiments import experiment
from quell.train import learnqueue

TABLE = "learnqueue.safetensors"


def learn(folder: Path, words: str = "learnqueue", episodes: int = 3, name: str = TABLE) -> Path:
    out = folder / name
    world = experiment.load("home", duration="5s")
    learnqueue.train(world, words, out, episodes=episodes, command="a test")
    return out


def last(table: Path) -> Path:
    return table.with_name(f"{table.stem}.last.safetensors")


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def joined(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize("words", ["learnqueue published_reward delta 0.9 eta 0.1", "learnqueue fixed_point max 60"])
def test_a_table_is_kept_shown_and_started_from(quell: Quell, tmp_path: Path, words: str) -> None:
    made = quell("train", "learnqueue", "home", "--aqm", words, "--episodes", "3", "--duration", "5s")
    assert made.returncode == 0, made.stderr
    assert "learnqueue.safetensors: the table of run " in made.stderr
    with (tmp_path / "learnqueue.curve.csv").open(newline="") as file:
        curve = list(csv.DictReader(file))
    assert [row["run"] for row in curve] == ["1", "2", "3"]
    best = min(curve, key=lambda row: float(row["score"]))["run"]
    card = json.loads(quell("show", TABLE, "--json", "-").stdout)["card"]
    assert card["trained_on"].startswith(
        f"{counted(int(best), 'run')} of home, 5 s each: quell train learnqueue home --aqm"
    )
    shown = quell("show", str(last(Path(TABLE))), "--json", "-")
    plain = json.loads(shown.stdout)
    largest, size = plain["card"]["params"]["max_size"], len(plain["limits"])
    assert (plain["limits"][0], plain["limits"][-1]) == (1, largest)
    assert len(plain["q_ms"]) == len(plain["visits"]) == size
    # Three runs of 5 s with a decision each 15 ms.
    assert sum(n for pair in plain["visits"] for n in pair) == 3 * 333
    assert plain["card"]["trained_on"].startswith("3 runs of home, 5 s each: quell train learnqueue home --aqm")
    text = quell("show", TABLE, "--html", "table.html")
    assert text.returncode == 0, text.stderr
    assert f"{size} limits from 1 to {largest}" in text.stdout
    assert "▲" in text.stdout
    page = (tmp_path / "table.html").read_text()
    assert "What a larger limit is worth" in page
    assert "measured again" not in page
    run = quell("run", "home", "--duration", "5s", "--aqm", f"learnqueue table {TABLE}", "--json", "-")
    assert json.loads(run.stdout)["queue"] == f"learnqueue table {TABLE}"


def test_the_same_command_learns_the_same_table_and_a_table_is_continued(tmp_path: Path) -> None:
    first, again = learn(tmp_path), learn(tmp_path, name="again.safetensors")
    assert first.read_bytes() == again.read_bytes()
    assert last(first).read_bytes() == last(again).read_bytes()
    longer = show.QTable.load(last(learn(tmp_path, f"learnqueue table {last(first)}", name="longer.safetensors")))
    once = show.QTable.load(last(first))
    assert sum(map(sum, longer.visits)) == 2 * sum(map(sum, once.visits))


def test_a_queue_that_starts_from_a_table_uses_what_it_holds(tmp_path: Path) -> None:
    table = last(learn(tmp_path, "learnqueue published_reward", episodes=40))
    world = experiment.load("home", duration="5s")

    def mean_limit(words: str) -> float:
        runs: list[float] = []
        jobs = [(world, experiment.Job(words, world.run_seed(100 + k))) for k in range(10)]
        experiment.run_each(jobs, lambda record: runs.append(record["limit_packets"]))
        return sum(runs) / len(runs)

    # Without a table the limit starts at one packet, and is still near it after 5 s; with the table it is larger.
    assert mean_limit(f"learnqueue table {table}") > mean_limit("learnqueue published_reward")


def test_python_reads_a_table_with_safetensors(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    path = learn(tmp_path)
    tensors, table = numpy.load_file(path), show.QTable.load(path)
    assert tensors["q"].tolist() == [list(pair) for pair in table.values]
    assert tensors["visits"].tolist() == [list(pair) for pair in table.visits]


def hostile(good: bytes) -> dict[str, tuple[bytes, str]]:
    header, body = parts(good)

    def card(**change: Any) -> dict[str, Any]:
        whole = json.loads(header["__metadata__"]["quell"]) | change
        return header | {"__metadata__": {"quell": json.dumps(whole)}}

    params = json.loads(header["__metadata__"]["quell"])["params"]
    at = header["q"]["data_offsets"][0]
    nan = body[:at] + struct.pack("<d", float("nan")) + body[at + 8 :]
    return {
        "truncated": (good[: len(good) // 2], "copy or download it again"),
        "empty": (b"", "copy or download it again"),
        "mis-shaped": (joined(header | {"q": header["q"] | {"shape": [78, 1]}}, body), "q: F64 [78, 1] instead of"),
        "no number": (joined(header, nan), "is not a number; make a new one with quell train learnqueue"),
        "wrong version": (joined(card(format=9), body), "format 9 is not known; this quell"),
        "another kind": (joined(card(kind="x"), body), "not a LearnQueue table; make a new one"),
        "out of range": (joined(card(params=params | {"epsilon": 7}), body), "epsilon and gamma must be 0 to 1"),
        "huge": (joined(card(params=params | {"max_size": 2**32 - 1}), body), "max must be 2 to 65536"),
        "a network": (
            (ROOT / "crates/quell-link/models" / "rl-aqm.safetensors").read_bytes(),
            "not a LearnQueue table",
        ),
    }


def test_hostile_files_get_one_line_that_names_file_and_remedy(quell: Quell, tmp_path: Path) -> None:
    for what, (data, piece) in hostile(learn(tmp_path).read_bytes()).items():
        (tmp_path / "bad.safetensors").write_bytes(data)
        with pytest.raises(InputError) as caught:
            _core.queue(f"learnqueue table {tmp_path / 'bad.safetensors'}")
        line = str(caught.value)
        assert "bad.safetensors: " in line and piece in line and "\n" not in line, f"{what}: {line}"
        with pytest.raises(InputError):
            show.QTable.load(tmp_path / "bad.safetensors")
    refused = quell("run", "home", "--aqm", "learnqueue table bad.safetensors")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "piece"),
    [
        (["train", "learnqueue", "--aqm", "pfifo"], "pfifo: has no table to train; write learnqueue"),
        (["train", "learnqueue", "--queue", "9"], "there is no queue 9; choose 0"),
        (["train", "learnqueue", "--out", "nowhere/t"], "the folder nowhere does not exist"),
        (["train", "learnqueue", "--aqm", "learnqueue table none"], "make one with quell train learnqueue"),
        (["train", "learnqueue", "--episodes", "0"], "--episodes"),
        (["show", "none"], "none: cannot be read"),
    ],
)
def test_wrong_options_are_refused_in_one_line(quell: Quell, tmp_path: Path, arguments: list[str], piece: str) -> None:
    done = quell(*arguments)
    assert done.returncode == 2
    assert piece in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_network_is_shown_by_its_card_and_has_no_picture(quell: Quell) -> None:
    model = str(ROOT / "crates/quell-link/models" / "rl-aqm.safetensors")
    assert "gives action" in quell("show", model).stdout
    assert quell("show", model, "--html", "x.html").returncode == 2


def test_ctrl_c_keeps_what_was_learned(tmp_path: Path) -> None:
    arguments = ["train", "learnqueue", "home", "--episodes", "100000", "--duration", "2s"]
    process = subprocess.Popen([QUELL, *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / TABLE).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "continue with --resume" in err
    assert sum(map(sum, show.QTable.load(tmp_path / TABLE).visits)) >= 133


@pytest.mark.parametrize("data", [b"", b"# a README\n", b"[link]\nrate = '3mbit'\n", bytes(range(256))])
def test_a_file_that_is_neither_a_model_nor_records_is_refused(quell: Quell, tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "other"
    file.write_bytes(data)
    done = quell("show", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(f"quell: {file}: "), done.stderr
    assert done.stderr.count("\n") == 1
    if not data.startswith(b"["):
        assert f"neither a model file nor result records; for a scenario write quell run {file}" in done.stderr
