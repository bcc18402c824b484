"""Output to files, terminals and spreadsheets: a full disk gives one line, foreign text stays text."""

from __future__ import annotations

import csv
import json
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import polars
import pytest

from conftest import QUELL, ROOT, Quell, make_record
from quell.cli import show
from quell.results import frame

SHORT = ["run", "home", "--duration", "2s", "--warmup", "0s"]


def on_a_full_disk(folder: Path, *arguments: str, room: int) -> subprocess.CompletedProcess[str]:
    """Run quell with files limited to `room` bytes: the system then fails with EFBIG, a full disk with ENOSPC."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    command = [str(QUELL), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, preexec_fn=limit)


@pytest.mark.parametrize("option", ["--json", "--html", "--parquet", "--csv", "--pcap"])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, option: str) -> None:
    room = 100 if option == "--csv" else 1000
    done = on_a_full_disk(tmp_path, *SHORT, option, "out", room=room)
    assert done.returncode == 2, done.stderr
    assert "out: " in done.stderr and ".out." not in done.stderr and "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("more", [[], ["--json", "-"]])
def test_a_full_standard_output_is_one_line(tmp_path: Path, more: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([QUELL, *SHORT, *more], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "quell: standard output: cannot be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("reader", ["full", "closed"])
def test_files_are_written_whatever_becomes_of_standard_error(tmp_path: Path, reader: str) -> None:
    command = [str(QUELL), "compare", "home", "--aqm", "codel", "--duration", "2s", "--warmup", "0s", "--seeds", "1"]
    command += ["--html", "page.html", "--csv", "table.csv"]
    script = '"$@" 2>/dev/full' if reader == "full" else '{ "$@" 2>&1 >&3 | :; } 3>&1; exit ${PIPESTATUS[0]}'
    done = subprocess.run(["bash", "-c", script, "bash", *command], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "codel" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "table.csv"]
    refused = subprocess.run(["bash", "-c", script, "bash", QUELL, "run", "none"], capture_output=True, text=True)
    assert refused.returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        ["run", "home", "--html", "page.html"],
        ["compare", "home", "--aqm", "codel", "--seeds", "1", "--html", "page.html", "--csv", "table.csv"],
        ["sweep", "home", "--aqm", "codel", "--aqm", "pfifo", "--seeds", "1", "--csv", "table.csv"],
        ["optimum", "home", "--knob", "drop", "--values", "0,0.1", "--seeds", "1", "--html", "page.html"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("reader", ["full", "closed"])
def test_files_are_written_whatever_becomes_of_standard_output(tmp_path: Path, words: list[str], reader: str) -> None:
    command = [str(QUELL), *words, "--duration", "2s", "--warmup", "0s", "--json", "runs.json"]
    script = '"$@" >/dev/full' if reader == "full" else 'trap "" PIPE; "$@" | :; exit ${PIPESTATUS[0]}'
    done = subprocess.run(["bash", "-c", script, "bash", *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert ("cannot be written: No space left" in done.stderr) == (reader == "full"), done.stderr
    assert "Traceback" not in done.stderr and "a bug" not in done.stderr
    assert json.loads((tmp_path / "runs.json").read_text())
    for name in {"page.html", "table.csv"} & set(words):
        assert (tmp_path / name).stat().st_size > 0


def test_lines_of_tables_without_a_terminal_end_with_their_text(quell: Quell) -> None:
    for words in (["compare", "home", "--seeds", "1", "--duration", "1s"], ["doctor"]):
        lines = quell(*words).stdout.splitlines()
        assert len(lines) > 5
        assert [line for line in lines if line != line.rstrip()] == []


def test_other_files_are_written_if_one_cannot_be(tmp_path: Path, quell: Quell) -> None:
    text = '[link]\nrate = "5mbit"\n[[flow]]\nkind = "cbr"\nrate = "1mbit"\n'
    (tmp_path / "cbr.toml").write_text(text)
    files = ["--flent", "o.flent.gz", "--html", "o.html", "--json", "o.json"]
    done = quell("run", "cbr.toml", "--duration", "2s", "--warmup", "0s", *files)
    assert (done.returncode, "no TCP flow" in done.stderr) == (2, True), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cbr.toml", "o.html", "o.json"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's commands")
@pytest.mark.parametrize("command", [["live", "--dev", "lo"], ["shell"]])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rlaqm model /none", "--aqm: rlaqm: model: /none: No such file"),
        ("codel targt 5ms", "--aqm: codel: unknown option `targt`; did you mean `target`?"),
        ("codl", "--aqm: unknown queue `codl`; did you mean `codel`?"),
    ],
)
def test_an_error_of_the_queue_names_aqm(quell: Quell, command: list[str], words: str, message: str) -> None:
    done = quell(*command, "--rate", "5mbit", "--aqm", words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"quell: {message}"), done.stderr


def test_control_characters_of_a_card_are_shown_escaped(quell: Quell, tmp_path: Path) -> None:
    whole = (ROOT / "crates/quell-link/models" / "rl-aqm.safetensors").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    card = json.loads(header["__metadata__"]["quell"]) | {
        "what": "\x1b]0;owned\x07\x1b[2J\x9b31m",
        "results": {"\x1b[1m": 1},
    }
    header["__metadata__"]["quell"] = json.dumps(card)
    text = json.dumps(header).encode()
    (tmp_path / "card").write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
    done = quell("show", "card")
    assert done.returncode == 0, done.stderr
    assert r"\x1b]0;owned\x07\x1b[2J\x9b31m" in done.stdout
    assert not any(c != "\n" and not c.isprintable() for c in done.stdout)


def test_control_characters_of_records_are_shown_escaped(quell: Quell, tmp_path: Path) -> None:
    record = make_record("\x1b[2Jpfifo", scenario="\x1b]0;owned\x07")
    (tmp_path / "runs.json").write_text(json.dumps([record]))
    done = quell("show", "runs.json")
    assert done.returncode == 0, done.stderr
    assert r"\x1b[2Jpfifo" in done.stdout
    assert not any(c != "\n" and not c.isprintable() for c in done.stdout)


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", "\t", "\r"])
def test_a_csv_cell_is_never_a_formula(tmp_path: Path, begins: str) -> None:
    name = f'{begins}HYPERLINK("http://example.org")'
    frame.write_csv(tmp_path / "runs.csv", [make_record("pfifo", scenario=name), make_record("codel", scenario="a=b")])
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["scenario"] for row in rows] == ["'" + name, "a=b"]
    assert float(rows[0]["goodput_mbps"]) == 10.0
    frame.write_swept(None, tmp_path / "swept.csv", [({"flow.name": name}, make_record("pfifo"))])
    with (tmp_path / "swept.csv").open(newline="") as file:
        assert [row["flow.name"] for row in csv.DictReader(file)] == ["'" + name]


def test_show_writes_the_files_that_compare_writes(quell: Quell, tmp_path: Path) -> None:
    words = ["--duration", "2s", "--warmup", "0s", "--seeds", "1", "--series", "0.2"]
    written = ["--csv", "a.csv", "--parquet", "a.parquet", "--flent", "a.flent.gz"]
    done = quell("compare", "home", "--aqm", "codel", "--aqm", "pfifo", *words, "--json", "runs.json", *written)
    assert done.returncode == 0, done.stderr
    done = quell("show", "runs.json", *(word.replace("a.", "b.") for word in written))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    frames = [polars.read_parquet(tmp_path / f"{name}.parquet") for name in "ab"]
    assert frames[0].equals(frames[1]) and "series" in frames[0].columns
    assert sorted(path.name for path in tmp_path.glob("b.*.flent.gz")) == ["b.codel.1.flent.gz", "b.pfifo.1.flent.gz"]


@pytest.mark.parametrize("option", ["--csv", "--parquet", "--flent"])
def test_show_refuses_to_write_records_of_what_has_none(quell: Quell, tmp_path: Path, option: str) -> None:
    (tmp_path / "seen.csv").write_text("")
    for name in ("seen.csv", str(ROOT / "crates/quell-link/models/rl-aqm.safetensors")):
        done = quell("show", name, option, "out.flent.gz")
        assert done.returncode == 2
        assert done.stderr == f"quell: {option}: {name} has no records of simulated runs; leave it out\n"


def test_show_of_several_files_names_the_fault_of_a_file_before_an_option(quell: Quell, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps([make_record("pfifo")]))
    done = quell("show", "a.json", "b.json", "--flent", "out.flent.gz")
    assert done.returncode == 2
    assert done.stderr.startswith("quell: a.json: "), done.stderr
    assert "no records of simulated runs" not in done.stderr


def test_learnqueue_resumes_as_if_it_had_not_stopped(quell: Quell, tmp_path: Path) -> None:
    def train(episodes: int, out: str, *more: str) -> subprocess.CompletedProcess[str]:
        arguments = ["--duration", "2s", "--episodes", str(episodes), "--out", out, *more]
        return quell("train", "learnqueue", "home", *arguments)

    assert train(3, "whole").returncode == 0
    assert train(1, "parts").returncode == 0
    done = train(3, "parts", "--resume")
    assert done.returncode == 0, done.stderr
    whole, parts = (show.QTable.load(tmp_path / name) for name in ("whole", "parts"))
    assert (whole.values, whole.visits) == (parts.values, parts.visits)
    curves = [(tmp_path / f"{name}.curve.csv").read_text() for name in ("whole", "parts")]
    assert curves[0] == curves[1]
    assert curves[0].count("\n") == 4
    (tmp_path / "begun.curve.csv").write_text(curves[0])
    (tmp_path / "other.last.safetensors").write_bytes((tmp_path / "parts.last.safetensors").read_bytes())
    (tmp_path / "other.curve.csv").write_text("")
    for arguments, message in (
        ((9, "begun", "--resume"), "--resume: there is no begun.last.safetensors; remove begun.curve.csv, and"),
        ((9, "other", "--resume"), "--resume: other.curve.csv is not the curve of 3 runs; remove it and other.last"),
        ((3, "parts", "--resume"), "--resume: parts holds 3 runs; give more --episodes"),
        ((9, "parts", "--resume", "--seed", "7"), "--resume: parts was learned in '3 runs of "),
        ((9, "none", "--resume"), "--resume: there is no none.last.safetensors; leave --resume out to start"),
    ):
        refused = train(*arguments)
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"quell: {message}"), refused.stderr


def test_a_single_thing_is_not_a_plural(quell: Quell) -> None:
    done = quell("compare", "home", "--aqm", "pfifo", "--duration", "1s", "--warmup", "0s", "--seeds", "1")
    assert done.returncode == 0
    assert re.search(r"^1 run, 1 again with probes, in ", done.stderr, re.MULTILINE), done.stderr
    # A total may be a plural: "0 of 1 runs had finished".
    plural = re.compile(r"(?<![Oo]f )\{len\([^{}]*\)\} [a-z]+s\b(?!')")
    sources = [(path, path.read_text("utf-8")) for path in (ROOT / "python/quell").rglob("*.py")]
    assert [f"{path}: {found[0]}" for path, text in sources for found in plural.finditer(text)] == []
