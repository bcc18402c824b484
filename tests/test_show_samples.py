"""`quell show` draws gauges of attached queues from files of `quell watch`."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from conftest import Quell
from quell.views import samples as watched

GAUGES = {"target_ns": 20_000_000, "wait_ns": 5_000_000, "hold_ns": 40_000_000, "cap_ns": 90_000_000, "idle": 0.25}


def _samples() -> list[dict[str, object]]:
    """Return two samples each of an attached hush, only one with a cap, and of an fq_codel."""
    counts = {"bytes": 1, "packets": 1, "drops": 0, "overlimits": 0, "requeues": 0, "backlog_bytes": 0}
    rest = {"backlog_packets": 3, "rate_bps": 8e6, "packets_per_s": 700.0, "drops_per_s": 0.0, "sojourn_ms": 7.5}
    hush = {"type": "qdisc", "handle": "8001:", "parent": "root", "kind": "quell_hush"}
    plain = {"type": "qdisc", "handle": "8002:", "parent": "root", "kind": "fq_codel"}
    without_cap = {name: value for name, value in GAUGES.items() if name != "cap_ns"}
    return [
        {"time": 100.0 + k, "device": device, **queue, **counts, **rest, "xstats": xstats}
        for k, gauges in enumerate((GAUGES, without_cap))
        for device, queue, xstats in (("va", hush, gauges), ("vb", plain, {"new_flow_count": 4}))
    ]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_the_page_draws_what_the_policy_of_an_attached_queue_set(quell: Quell, tmp_path: Path, suffix: str) -> None:
    lines, file = tmp_path / "s.jsonl", tmp_path / f"samples{suffix}"
    samples = _samples()
    lines.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    match suffix:
        case ".csv":
            with file.open("w", newline="") as out:
                table = csv.DictWriter(out, samples[0].keys())
                table.writeheader()
                for sample in samples:
                    xstats = sample["xstats"]
                    assert isinstance(xstats, dict)
                    words = " ".join(f"{name}={value}" for name, value in xstats.items())
                    table.writerow(sample | {"xstats": words})
        case ".parquet":
            watched.to_parquet(lines, file)
        case _:
            lines.rename(file)
    loaded = watched.load(file)
    of_hush = loaded.filter(pl.col("device") == "va")
    assert of_hush["target_ns"].to_list() == [20e6, 20e6] and of_hush["cap_ns"].to_list() == [90e6, None]
    assert loaded.filter(pl.col("device") == "vb")["target_ns"].to_list() == [None, None]
    done = quell("show", str(file), "--html", "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    for name in ("target", "wait", "hold", "cap", "idle"):
        assert f"va 8001: quell_hush {name}" in page
    assert "fq_codel target" not in page and "drop probability, steered" not in page


def test_equal_lines_are_drawn_once_and_a_sample_is_not_called_a_mean(quell: Quell, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in _samples()))
    assert quell("show", "s.jsonl", "--html", "page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert "va 8001: quell_hush, vb 8002: fq_codel" in page
    assert "A sample each 1000 ms." in page and "Means over" not in page
    assert "up to 64 kB, as one packet" in page


def test_a_file_without_attached_queues_has_no_such_panels(quell: Quell, tmp_path: Path) -> None:
    plain = [sample for sample in _samples() if sample["kind"] == "fq_codel"]
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in plain))
    assert quell("show", "plain.jsonl", "--html", "page.html").returncode == 0
    assert "Set by the policy" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        ({"time": "yesterday"}, "not samples of quell watch"),
        ({"time": None}, "a sample has no time"),
        ({"device": None}, "a sample has no device"),
        ({"drops": "many"}, "not samples of quell watch"),
        ({"backlog_packets": None}, "a sample has no backlog_packets"),
        ({"sojourn_ms": "long"}, "not samples of quell watch"),
        ({"rate_bps": 1e308}, "a sample's rate_bps is out of range"),
        ({"time": -1e300}, "a sample's time is out of range"),
        ({"device": "d" * 257}, "a sample's device is longer than 256 bytes"),
        ({"kind": "ü" * 129}, "a sample's kind is longer than 256 bytes"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_spoilt_samples_are_refused_in_one_line(
    quell: Quell, tmp_path: Path, suffix: str, spoilt: dict[str, object], message: str
) -> None:
    samples = _samples()
    samples[2] |= spoilt
    file = tmp_path / f"spoilt.{suffix}"
    if suffix == "csv":
        pl.DataFrame([{**sample, "xstats": ""} for sample in samples], strict=False).write_csv(file)
    else:
        file.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    done = quell("show", file.name, "--html", "page.html")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and message in done.stderr, done.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_pipe_is_not_a_file_of_samples(quell: Quell, tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    done = quell("show", f"pipe.{suffix}")
    assert (done.returncode, done.stderr) == (2, f"quell: pipe.{suffix}: is not a regular file\n")


def _repeated(frame: pl.DataFrame, times: int) -> pl.DataFrame:
    """Repeat a row; the rows share the memory of their texts."""
    return frame.select(pl.all().gather(pl.repeat(0, times)))


def test_a_small_file_of_very_many_samples_is_refused(quell: Quell, tmp_path: Path) -> None:
    frame = pl.DataFrame(_samples()[:1]).drop("xstats")
    _repeated(frame, watched._MAX_SAMPLES + 1).write_parquet(tmp_path / "many.parquet")
    done = quell("show", "many.parquet")
    assert done.returncode == 2
    assert "many.parquet: 5000001 samples; at most 5000000 are shown" in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc says how much memory was used")
@pytest.mark.parametrize("name", ["device", "type", "handle", "kind"])
def test_a_long_name_of_many_samples_is_refused_before_it_takes_memory(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame([_samples()[0] | {name: "d" * 4000}]).drop("xstats")
    file = tmp_path / "long.parquet"
    _repeated(frame, 1_000_000).write_parquet(file)
    assert file.stat().st_size < 100_000
    code = (
        "import pathlib, re, resource, sys; from quell import InputError; from quell.views.samples import load\n"
        "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))\n"
        "try: load(pathlib.Path(sys.argv[1]))\n"
        "except InputError as e: print(e)\n"
        "print(*re.findall(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text()))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    said, kib = done.stdout.splitlines()
    assert said == f"{file}: not samples of quell watch: a sample's {name} is longer than 256 bytes"
    assert int(kib) < 400_000


def test_very_many_names_are_refused_however_they_are_written(quell: Quell, tmp_path: Path) -> None:
    lines = (json.dumps(sample | {f"x{i}_{k}": 0 for k in range(300)}, separators=(", ", " : ")) + "\n"
             for i, sample in enumerate(_samples()))  # fmt: skip
    (tmp_path / "names.jsonl").write_text("".join(lines))
    done = quell("show", "names.jsonl")
    assert (done.returncode, "too many columns" in done.stderr) == (2, True), done.stderr
