"""Data files of Flent: written, opened by Flent itself, read, and refused if incomplete."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Quell
from quell import InputError, _core
from quell.experiments import experiment
from quell.inputs.flent import Measured
from quell.results.stats import quantile

BOTH = """
duration = "30s"
warmup = "5s"
[link]
rate = "20mbit"
[link.up]
rate = "5mbit"
queue = "fq_codel"
[[flow]]
count = 2
rtt = "30ms"
[[flow]]
count = 1
direction = "up"
rtt = "30ms"
"""


def flent(*args: str | Path) -> str:
    """Run Flent, which `make test` installs beside pytest."""
    done = subprocess.run(
        [sys.executable, "-m", "flent", *map(str, args)], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.fixture
def written(quell: Quell, tmp_path: Path) -> Path:
    (tmp_path / "both.toml").write_text(BOTH)
    file = tmp_path / "both.flent.gz"
    quell("run", "both.toml", "--aqm", "fq_codel", "--flent", file.name, "--json", "r.json")
    return file


def test_a_run_that_is_shorter_than_a_sample_is_refused_in_one_line(quell: Quell, tmp_path: Path) -> None:
    done = quell("run", "--duration", "100ms", "--warmup", "0s", "--flent", "short.flent.gz")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "no whole bin of 0.2 s; give a longer --duration" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_queues_whose_names_differ_in_odd_characters_get_files_of_their_own(quell: Quell, tmp_path: Path) -> None:
    text = _core.hush_model()
    (tmp_path / "sub").mkdir()
    for name in ("sub/m.txt", "sub_m.txt"):
        (tmp_path / name).write_text(text)
    queues = ["--aqm", "hush model sub/m.txt", "--aqm", "hush model sub_m.txt"]
    done = quell(
        "compare", "home", *queues, "--duration", "2s", "--warmup", "0s", "--seeds", "1", "--flent", "o.flent.gz"
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.gz")) == [
        f"o.hush_model_sub_m.txt.{more}1.flent.gz" for more in ("", "2.")
    ]


def test_runs_of_two_scenarios_with_the_same_queue_and_seed_get_files_of_their_own(
    quell: Quell, tmp_path: Path
) -> None:
    runs = []
    for rate in ("5mbit", "9mbit"):
        words = ("--rate", rate, "--rtt", "20ms", "--seed", "1", "--duration", "2s", "--warmup", "0s")
        done = quell("run", *words, "--series", "0.2", "--json", "run.json")
        assert done.returncode == 0, done.stderr
        runs.append(json.loads((tmp_path / "run.json").read_text()))
    assert runs[0]["seed"] == runs[1]["seed"]
    (tmp_path / "both.json").write_text(json.dumps(runs))
    done = quell("show", "both.json", "--flent", "o.flent.gz")
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*.gz"))) == 2


def test_flent_plots_what_was_written_and_finds_the_same_numbers(written: Path, tmp_path: Path) -> None:
    picture = tmp_path / "totals.png"
    flent("-i", written, "-p", "all_scaled", "-o", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    said = flent("-i", written, "-f", "csv")
    rows = list(csv.reader(io.StringIO(said[said.index("rrul_be_nflows,") :])))
    column = rows[0].index("TCP download sum")
    sums = [float(row[column]) for row in rows[1:] if 5 < float(row[0]) <= 25 and row[column]]
    measured = Measured.load(written)
    assert len(sums) > 90
    assert statistics.fmean(sums) == pytest.approx(statistics.fmean(measured.total("download")), rel=0.02)
    record = json.loads((tmp_path / "r.json").read_text())
    assert "series" not in record
    down = sum(flow["goodput_mbps"] for flow in record["flows"] if flow["direction"] == "down")
    # The record measures from 5 to 30 s, Flent from 5 to 25.
    assert statistics.fmean(sums) == pytest.approx(down, rel=0.05)


def test_flent_draws_box_totals_and_its_statistics_are_the_records(written: Path, tmp_path: Path) -> None:
    picture = tmp_path / "box.png"
    flent("-i", written, "-p", "box_totals", "-o", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    said = flent("-i", written, "-f", "stats")
    means = {
        name: float(mean) for name, mean in re.findall(r"^ (TCP \w+ BE::\d):.*?Mean: +([\d.]+)", said, re.S | re.M)
    }
    flows = json.loads((tmp_path / "r.json").read_text())["flows"]
    assert list(means) == ["TCP download BE::1", "TCP download BE::2", "TCP upload BE::1"]
    # Flent's means cover the whole run; the record leaves out the first 5 of 30 s.
    assert list(means.values()) == [pytest.approx(flow["goodput_mbps"], rel=0.1) for flow in flows]


def test_the_line_of_a_data_file_is_found_again(written: Path) -> None:
    measured = Measured.load(written)
    assert (measured.test, len(measured.streams("download")), len(measured.streams("upload"))) == (
        "rrul_be_nflows",
        2,
        1,
    )
    scenario = experiment.load(written)
    assert "up" in scenario.toml()
    link = Measured.load(written).scenario().toml()
    rates = [float(rate) for rate in re.findall(r'^rate = "([\d.]+)mbit"$', link, re.MULTILINE)]
    assert rates == [pytest.approx(20, rel=0.05), pytest.approx(5, rel=0.15)]
    rtt = re.findall(r'^rtt = "([\d.]+)ms"$', link, re.MULTILINE)[0]
    # The lowest of three senders' mean round trips, queues included.
    assert 30 <= float(rtt) < 60


def test_compare_and_show_take_a_data_file(quell: Quell, written: Path, tmp_path: Path) -> None:
    table = quell("compare", written.name, "--aqm", "fq_codel", "--seeds", "1").stdout
    assert "measured (rrul_be_nflows): download 1" in table
    report = tmp_path / "report.html"
    quell("compare", written.name, "--aqm", "fq_codel", "--seeds", "1", "--html", report.name)
    [data] = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', report.read_text(), re.S)
    times, rates = json.loads(data)["measured"]
    assert (len(times), times[0]) == (len(rates), 0.2)
    # With headers the two streams fill the link of 20 Mbit/s.
    assert statistics.median(rate for rate in rates if rate is not None) == pytest.approx(20, rel=0.05)
    page = tmp_path / "beside.html"
    shown = quell("show", written.name, "--html", page.name, "--json", "-").stdout
    assert json.loads(shown)["test"] == "rrul_be_nflows"
    assert "Measured and simulated" in page.read_text()


def test_several_runs_make_several_files(quell: Quell, tmp_path: Path) -> None:
    quell("compare", "home", "--aqm", "fq_codel", "--aqm", "codel target 20ms", "--seeds", "2", "--duration", "10s",
          "--flent", "h.flent.gz")  # fmt: skip
    names = sorted(path.name for path in tmp_path.glob("*.flent.gz"))
    assert len(names) == 4
    assert names[0].startswith("h.codel_target_20ms.")


def test_flents_own_files_of_older_formats_are_read() -> None:
    """Flent's package has some: format 3, from a line of 10 Mbit/s both ways."""
    import unittests

    file = Path(unittests.__path__[0]) / "test_data/test-rrul.flent.gz"
    scenario = Measured.load(file).scenario()
    assert 'rate = "10.323mbit"' in scenario.toml()
    assert scenario.toml().count("count = 4") == 2


def _packed(data: Any) -> bytes:
    return gzip.compress(json.dumps(data).encode(), mtime=0)


GOOD: dict[str, Any] = {"version": 4, "x_values": [0.2, 0.4], "results": {"TCP download sum": [1.0, None]}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not a gzip file|end too early"),
        (b"plain", "not a gzip file"),
        (_packed(GOOD)[:-9], "end too early"),
        (gzip.compress(b"{", mtime=0), "not JSON"),
        (gzip.compress(b"[" * 10_000, mtime=0), "not JSON"),
        (_packed(GOOD | {"results": {f"TCP download::{k}": [1.0, 1.0] for k in range(1001)}}), "more than 1000 series"),
        (_packed(GOOD | {"results": {str(k): [1, 1] for k in range(400_000)}}), "more than 1000 series"),
        (_packed([]), "a list inside"),
        (_packed(GOOD | {"version": 99}), "file format 99"),
        (_packed({"version": 4}), "no series"),
        (_packed(GOOD | {"x_values": ["a", "b"]}), "no series"),
        (_packed(GOOD | {"results": {"TCP download": [1.0]}}), "not a list of 2 samples"),
        (_packed(GOOD | {"results": {}}), "no TCP streams"),
        (_packed(GOOD | {"version": "x" * 9999}), "file format 'x{19}; quell"),
        (_packed(GOOD | {"x_values": [0.4, 0.2]}), "do not increase"),
        (_packed(GOOD | {"x_values": [0.2, 10**400]}), "no series"),
        (_packed(GOOD | {"results": {"TCP download": [10**400, -5], "Ping (ms) ICMP": [1e308, 1]}}), "no TCP streams"),
        (_packed(GOOD | {"results": {"TCP download": [5, 5], "Ping (ms) ICMP": [1e308, -1]}}), "no pings"),
        (_packed(GOOD | {"results": {"TCP download": [5.0, None]}, "metadata": None}), "no pings"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_in_a_line(content: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "x.flent.gz"
    file.write_bytes(content)
    with pytest.raises(InputError, match=told) as refused:
        experiment.load(file)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_bomb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "bomb.flent.gz"
    with gzip.open(file, "wb", compresslevel=9) as out:
        for _ in range(300):
            out.write(b" " * (1 << 20))
    with pytest.raises(InputError, match="MiB unpacked"):
        Measured.load(file)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc says how much memory was used")
@pytest.mark.parametrize("value", ["[]", "{}", '""', "0"])
def test_many_values_are_refused_before_they_take_memory(value: str, tmp_path: Path) -> None:
    file = tmp_path / "values.flent.gz"
    with gzip.open(file, "wt", compresslevel=1) as out:
        out.write('{"version": 4, "raw_values": [' + f"{value}," * 8_000_000 + "0]}")
    code = (
        "import pathlib, re, sys; from quell import InputError; from quell.inputs.flent import Measured\n"
        "try: Measured.load(sys.argv[1])\n"
        "except InputError as e: print(e, end=' ')\n"
        "print(*re.findall(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text()))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    said, kib = done.stdout.rsplit(maxsplit=1)
    assert said == f"{file}: more than 8 million values; cut the test shorter"
    assert int(kib) < 200_000


def test_a_file_of_two_gigabytes_is_refused_unread(quell: Quell, tmp_path: Path) -> None:
    with (tmp_path / "big.flent.gz").open("wb") as out:
        out.truncate(2 << 30)
    for command in ("show", "compare"):
        done = quell(command, "big.flent.gz")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "quell: big.flent.gz: cannot be read: it is longer than 256 MiB\n"


def test_nulls_absent_metadata_and_bytes_behind_the_end_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "gaps.flent.gz"
    nulls: list[float | None] = [None]
    results = {
        "TCP download": [*nulls, 5.0, *nulls, 7.0] * 20,
        "Ping (ms) ICMP": [30.0, *nulls, float("nan"), 20.0] * 20,
    }
    data = {"version": 4, "x_values": [0.2 * k for k in range(1, 81)], "results": results}
    file.write_bytes(_packed(data))
    measured = Measured.load(file)
    assert (measured.test, measured.title) == ("test", "")
    # 80 samples to 16 s; the margins leave those from 5.2 to 11 s, of which half are null.
    assert statistics.fmean(measured.total("download")) == pytest.approx(6.0, abs=0.1)
    assert 'rtt = "20ms"' in measured.scenario().toml()
    file.write_bytes(_packed(data) + b"more")
    assert Measured.load(file).results == measured.results


def test_a_name_that_flent_does_not_open_is_refused_before_anything_runs(quell: Quell, tmp_path: Path) -> None:
    done = quell("run", "home", "--flent", "x.json")
    assert "names end in .flent.gz" in done.stderr


def test_quantiles_are_samples() -> None:
    assert [quantile([3, 1, 2, 4], q) for q in (0.0, 0.25, 0.5, 0.95)] == [1, 1, 2, 4]
