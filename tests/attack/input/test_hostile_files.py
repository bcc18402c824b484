"""Hostile files: nested without end, with false lengths, with values that are not numbers, or with programs.

Each is refused in one line, in bounded memory and time. More in tests/test_bounds.py, test_flent.py,
test_fuzz_files.py.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import re
import struct
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from conftest import QUELL, QUELL_LIVE, ROOT
from quell.common.origin import split

GIB = 1 << 30
MIB100 = 100 << 20
DEEP = b"[" * 200_000 + b"]" * 200_000
LINK = b'[link]\nrate = "1mbit"\n'


class Program:
    """A pickle that runs a command when it is loaded."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch PLANTED",)


def model(header: bytes, length: int | None = None, rest: bytes = b"") -> bytes:
    """A safetensors file."""
    return struct.pack("<Q", len(header) if length is None else length) + header + rest


def parquet() -> bytes:
    """Samples of quell watch; columns claim 0 values (0x16, 0x00) in place of 50 (0x16, 0x64; 0x15, 0x0c: zstd)."""
    numbers = ("bytes", "packets", "drops", "overlimits", "requeues", "backlog_bytes", "backlog_packets")
    sample = dict.fromkeys(("device", "handle", "parent", "type", "kind"), "a") | dict.fromkeys(numbers, 1)
    file = io.BytesIO()
    pl.DataFrame([sample | {"time": 1.0, "rate_bps": 1.0, "sojourn_ms": 0.5}] * 50).write_parquet(file)
    return file.getvalue().replace(b"\x15\x0c\x16\x64", b"\x15\x0c\x16\x00")


PCAP = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 0xFFFFFFFF, 1)
SECTION = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
INTERFACE = struct.pack("<IIHHII", 1, 20, 1, 0, 0, 20)
PICKLE = pickle.dumps(Program(), 2)  # torch's protocol
HUGE = json.dumps({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 2**62]}}).encode()

FILES: dict[str, bytes | Callable[[], bytes]] = {
    "deep.json": DEEP,
    "deep-objects.json": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep.jsonl": DEEP + b"\n",
    "deep.toml": b"a = " + DEEP,
    "deep-key.toml": b".".join([b"a"] * 100_000) + b" = 1\n",
    "deep-table.toml": b"[" + b".".join([b"a"] * 100_000) + b"]\n",
    "deep.flent.gz": lambda: gzip.compress(b'{"version":4,"x_values":' + DEEP + b"}"),
    "deep.safetensors": model(b'{"a":' + DEEP),
    "nan.json": b'[{"queue": "a", "seed": 1, "goodput_mbps": NaN}]',
    "infinite.json": b'[{"queue": "a", "seed": 1, "goodput_mbps": 1e999}]',
    "rate.toml": b"[link]\nrate = 1e308\n",
    "rate-of-nan.toml": b'[link]\nrate = "nanmbit"\n',
    "rate-of-inf.toml": b'[link]\nrate = "infmbit"\n',
    "rate-of-1e308.toml": b'[link]\nrate = "1e308gbit"\n',
    "time-of-1e308.toml": LINK + b'delay = "1e308s"\n',
    "infinite-time.toml": b"duration = inf\n" + LINK,
    "loss-of-nan.toml": LINK + b"loss = nan\n",
    "2^64.down": b"18446744073709551615\n",
    "minus.down": b"-1\n5\n",
    "nan.down": b"nan\n",
    "2^63.safetensors": model(b"{}", 2**63),
    "2^64.safetensors": model(b"{}", 2**64 - 1),
    "length.safetensors": model(b'{"a":1', MIB100),
    "shape.safetensors": model(HUGE),
    "pickle.safetensors": PICKLE,
    "pickle.json": PICKLE,
    "length.pcap": PCAP + struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 0xFFFFFFFF) + b"x",
    "length-2^31.pcap": PCAP + struct.pack("<IIII", 0, 0, 0x7FFFFFFF, 60) + b"x",
    "length.pcapng": SECTION + struct.pack("<II", 1, 0xFFFFFFF0) + bytes(40),
    "length-0.pcapng": SECTION + struct.pack("<II", 6, 0) + bytes(40),
    "length-4.pcapng": SECTION + struct.pack("<III", 6, 4, 4) * 1000,
    "packet.pcapng": SECTION + INTERFACE + struct.pack("<7I", 6, 64, 0, 0, 0, 2**32 - 1, 2**32 - 1) + bytes(40),
    "interfaces.pcapng": lambda: SECTION + INTERFACE * 300_000,
    "names.jsonl": lambda: b"".join(b'{"k%d":1}\n' % k for k in range(50_000)),
    "columns.csv": lambda: b"," * (10 << 20),
    "100MB.json": lambda: b"[" + b" " * MIB100 + b"]",
    "100MB.toml": lambda: b"#" * MIB100,
    "100MB.csv": lambda: b"," * MIB100,
    "100MB.jsonl": lambda: b"x" * MIB100,
    "100MB.parquet": lambda: b"PAR1" + bytes(MIB100) + b"PAR1",
    "100MB.flent.gz": lambda: b"\x1f\x8b" + bytes(MIB100),
    "100MB.safetensors": lambda: model(b" " * MIB100),
    "0-values.parquet": parquet,
    "gauge.jsonl": (
        b'{"time":1.0,"device":"v0","handle":"1:","type":"qdisc","kind":"a","backlog_packets":1,"drops":0,"rate_bps":1.0,'
        b'"sojourn_ms":0.5,"xstats":{"idle":1e308}}\n'
    ),
    "queues.csv": lambda: (
        b"time,device,handle,type,kind,backlog_packets,drops,rate_bps,sojourn_ms\n"
        + b"".join(b"1,v0,%x:,qdisc,pfifo,0,0,0,0\n" % k for k in range(100_000))
    ),
    "word.txt": lambda: b"x" * 3_000_000,
    "100MB.txt": lambda: b"tc " * (MIB100 // 3),
}
READERS: dict[str, list[list[str]]] = {
    ".toml": [["run", "FILE"]],
    ".down": [["run", "--trace", "FILE"]],
    ".safetensors": [
        ["show", "FILE"],
        ["run", "home", "--aqm", "rlaqm model FILE"],
        ["run", "home", "--aqm", "learnqueue table FILE"],
    ],
    ".pcap": [["tune", "FILE"]],
    ".pcapng": [["tune", "FILE"]],
    ".txt": [["compare", "--tc", "FILE"], ["tune", "--rate", "5mbit/1mbit", "--rtt", "20ms", "--now", "FILE"]],
    ".gz": [["show", "FILE"], ["compare", "FILE"]],
}
CASES = [(name, words) for name in FILES for words in READERS.get(Path(name).suffix, [["show", "FILE"]])]


@pytest.mark.parametrize("suffix", sorted({Path(name).suffix for name in FILES}))
def test_a_hostile_file_is_refused_in_a_line(tmp_path: Path, suffix: str) -> None:
    def read(number: int) -> None:
        name, words = cases[number]
        folder, data = tmp_path / str(number), FILES[name]
        folder.mkdir()
        (folder / name).write_bytes(data() if callable(data) else data)
        refused(folder, name, words)
        (folder / name).unlink()

    cases = [(name, words) for name, words in CASES if Path(name).suffix == suffix]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(read, range(len(cases))))


def refused(folder: Path, name: str, words: list[str], beside: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command with 4 GiB of address space; expect one line that names the file."""
    command: list[str | Path] = ["prlimit", f"--as={4 * GIB}", QUELL, *(word.replace("FILE", name) for word in words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (name, words, done.stderr[-2000:])
    assert name in done.stderr and len(done.stderr) < 1000, (name, words)
    assert sorted(path.name for path in folder.iterdir()) == sorted([name, *beside])
    return done


def test_a_line_without_an_end_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    (tmp_path / "line.jsonl").write_bytes(b'{"time":1}\n')
    os.truncate(tmp_path / "line.jsonl", 64 * GIB)  # a hole, which takes no room on the disk
    assert "a line is longer than 1 MiB" in refused(tmp_path, "line.jsonl", ["show", "FILE"]).stderr


@pytest.mark.parametrize("key", [b"x", b'"\\""', b"' '\t"])
def test_a_scenario_of_a_long_key_is_refused_before_an_output_is_compared_with_its_names(
    tmp_path: Path, key: bytes
) -> None:
    (tmp_path / "key.toml").write_bytes(key + (b"." + key) * 50_000 + b" = 1 # bps\n")
    (tmp_path / "out.json").touch()
    refused(tmp_path, "key.toml", ["run", "FILE", "--json", "out.json"], beside=["out.json"])


def test_the_names_of_a_large_scenario_are_soon_compared_with_the_outputs(tmp_path: Path) -> None:
    names = [f"d{k}/o.{k}.flent.gz" for k in range(20_000)] + [f"{k:x}" for k in range(80_000)]
    (tmp_path / "names.toml").write_bytes(b'[link]\nqueue = "' + " ".join(names).encode() + b'"\n')
    outputs = ["out.json", "out.csv", "o.flent.gz"]
    for name in outputs:
        (tmp_path / name).touch()
    options = ["--json", "out.json", "--csv", "out.csv", "--flent", "o.flent.gz"]
    refused(tmp_path, "names.toml", ["compare", "FILE", *options], beside=outputs)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("records")
    words = ("compare", "home", "--duration", "3s", "--seeds", "2", "--aqm", "pfifo", "--json", "runs.json")
    subprocess.run([QUELL, *words], cwd=folder, check=True, capture_output=True, timeout=60)
    return (folder / "runs.json").read_text()


@pytest.mark.parametrize(
    ("key", "value"), [("rpm", "fast"), ("rpm", [1]), ("goodput_mbps", 1e308), ("utilisation", -1e200)]
)
def test_a_record_with_an_odd_value_is_refused_in_a_line(tmp_path: Path, records: str, key: str, value: object) -> None:
    runs = json.loads(records)
    runs[1][key] = value
    (tmp_path / "odd.json").write_text(json.dumps(runs))
    refused(tmp_path, "odd.json", ["show", "FILE"])


def test_a_record_without_a_delay_over_the_air_has_a_page(tmp_path: Path) -> None:
    words = ["compare", "wifi-house", "--duration", "2s", "--seeds", "1", "--aqm", "pfifo", "--json", "runs.json"]
    subprocess.run([QUELL, *words], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    [run] = json.loads((tmp_path / "runs.json").read_text())
    del run["wifi"]["queues"][0]["delay_ms"]  # optional
    (tmp_path / "odd.json").write_text(json.dumps(run))
    subprocess.run([QUELL, "show", "odd.json", "--html", "page.html"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_records_whose_rows_do_not_match_are_refused_in_a_line(tmp_path: Path, records: str) -> None:
    runs = json.loads(records)
    host = {"host": "a", "direction": "down", "flows": 1, "goodput_mbps": 1.0, "share": 1.0}
    for number, run in enumerate(runs):
        run["hosts"] = [host] * (number + 1)
    (tmp_path / "odd.json").write_text(json.dumps(runs))
    words = [str(QUELL), "show", "odd.json", "--html", "page.html"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert (
        done.stderr.startswith("quell: odd.json: its runs of pfifo differ in hosts")
        and not (tmp_path / "page.html").exists()
    )


def test_a_record_without_round_trip_times_and_a_model_that_ignores_an_input_are_shown(
    tmp_path: Path, records: str
) -> None:
    runs = json.loads(records)
    for run in runs:
        for flow in run["flows"]:
            del flow["rtt_ms"]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    whole = (ROOT / "crates/quell-link/models/a3c-l4s.safetensors").read_bytes()
    header, weights = split(whole)
    for name, text in header["__metadata__"].items():
        if text.startswith("{"):
            card = json.loads(text)
            card["inputs"][0]["scale"] = 0.0
            header["__metadata__"][name] = json.dumps(card)
    (tmp_path / "model.safetensors").write_bytes(model(json.dumps(header).encode(), rest=bytes(weights)))
    for words in (["runs.json", "--html", "page.html"], ["model.safetensors"]):
        done = subprocess.run([QUELL, "show", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not QUELL_LIVE.exists(), reason="quell-live is not built")
@pytest.mark.parametrize("words", [[], ["watch"], ["steer", "v0"], ["attach"], ["--dev"], ["--config"]])
def test_an_argument_that_is_not_text_is_refused_in_a_line(words: list[str]) -> None:
    done = subprocess.run([QUELL_LIVE, *words, b"\xff"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert '"\\xFF"' in done.stderr


RESUME = ["train", "learnqueue", "home", "--duration", "1s", "--episodes", "9", "--out", "out", "--resume"]
LAST, CURVE = "out.last.safetensors", "out.curve.csv"


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".safetensors")])
def test_a_hostile_table_is_not_continued(tmp_path: Path, name: str) -> None:
    data = FILES[name]
    (tmp_path / LAST).write_bytes(data() if callable(data) else data)
    (tmp_path / CURVE).write_text("run\n")
    refused(tmp_path, LAST, RESUME, beside=[CURVE])


CURVES: dict[str, bytes | Callable[[], bytes]] = {
    "empty": b"",
    "no number": b"run\n1,nan,1,1,1,1\n",
    "infinite run": b"run\ninf,1,1,1,1,1\n",
    "too few columns": b"run\n1,1,1\n",
    "another run": b"run\n2,1,1,1,1,1\n",
    "text": b"run\n\xff\xfe\n",
    "one long line": lambda: b"run\n" + b"," * (10 << 20),
    "many lines": lambda: b"run\n" + b"\n" * (60 << 20),
    "100 MB": lambda: b"1," * (MIB100 // 2),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_hostile_learning_curve_is_not_continued(tmp_path: Path, name: str) -> None:
    train = [word if word != "9" else "1" for word in RESUME[:-1]]
    subprocess.run([QUELL, *train], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    data = CURVES[name]
    (tmp_path / CURVE).write_bytes(data() if callable(data) else data)
    refused(tmp_path, CURVE, RESUME, beside=["out", LAST])


def test_a_table_of_runs_beyond_all_numbers_is_not_continued(tmp_path: Path) -> None:
    train = [word if word != "9" else "1" for word in RESUME[:-1]]
    subprocess.run([QUELL, *train], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    data = (tmp_path / LAST).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = data[8 : 8 + size].replace(b"1 run of", b"9" * 5000 + b" runs of")
    # A table of format 2 has no checksum.
    header = re.sub(rb',\\"checksum\\":\\"[0-9a-f]{16}\\"', b"", header).replace(rb"\"format\":3", rb"\"format\":2")
    (tmp_path / LAST).write_bytes(model(header, rest=data[8 + size :]))
    done = subprocess.run([QUELL, *RESUME], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr[-2000:]
    assert "--resume: out was learned in" in done.stderr and len(done.stderr) < 1000


def test_two_million_flows_of_a_capture_are_too_many(tmp_path: Path, long: bool) -> None:
    packet = bytes(12) + b"\x08\0" + struct.pack(">BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0)
    size = struct.pack("<II", 42, 42)
    with (tmp_path / "flows.pcap").open("wb") as file:
        file.write(PCAP)
        for k in range(2_000_000 if long else 120_000):
            ends = struct.pack(">I4sHHHH", 0x0A000000 + k, b"\x08\x08\x08\x08", k & 0xFFFF, 53, 8, 0)
            file.write(struct.pack("<II", k // 20_000, 0) + size + packet + ends)
    done = refused(tmp_path, "flows.pcap", ["tune", "FILE"])
    assert "over 100000 flows" in done.stderr


@pytest.mark.long
def test_a_checkpoint_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "out-checkpoints"
    folder.mkdir()
    (folder / "last.pt").write_bytes(PICKLE)
    words = ["train", "rl-aqm", "--resume", "--out", str(tmp_path / "out.safetensors")]
    done = subprocess.run([QUELL, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "not a whole checkpoint" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out-checkpoints"]
