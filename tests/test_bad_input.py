"""Bad input gets one line that names the place and the remedy, exit status 2, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import QUELL, Quell

GOOD = '[link]\nrate = "15mbit"\n'
CELL = '[wifi]\n[[wifi.node]]\nname = "ap"\n'

# Per error: the file's text, further arguments, and words that the message must have.
CASES: dict[str, tuple[str | bytes, list[str], list[str]]] = {
    "a wrong key": ('[link]\nrtae = "15mbit"\n', [], ["bad.toml:2", "rtae", "rate"]),
    "a wrong key in a flow": (GOOD + '[[flow]]\ncc = "cubic"\nrt = "20ms"\n', [], ["bad.toml:5", "rt", "rtt"]),
    "a wrong unit": ('[link]\nrate = "15parsec"\n', [], ["bad.toml:2", "rate", "15mbit"]),
    "no unit": ('[link]\nrate = "15"\n', [], ["bad.toml:2", "rate", "15mbit"]),
    "a time that is a rate": (GOOD + 'delay = "5mbit"\n', [], ["bad.toml:3", "delay", "20ms"]),
    "a negative rate": ('[link]\nrate = "-15mbit"\n', [], ["bad.toml:2", "rate", "-15mbit"]),
    "a rate of nothing": ('[link]\nrate = "0mbit"\n', [], ["bad.toml:2", "rate"]),
    "no rate at all": ('name = "x"\n', [], ["bad.toml", "rate"]),
    "zero flows": (GOOD + "[[flow]]\ncount = 0\n", [], ["bad.toml:4", "count", "1"]),
    "an unknown queue": (GOOD + 'queue = "fqcodel"\n', [], ["bad.toml:3", "fqcodel", "fq_codel"]),
    "an unknown option of a queue": (GOOD + 'queue = "codel targt 5ms"\n', [], ["bad.toml:3", "targt", "target"]),
    "an unknown congestion control": (GOOD + '[[flow]]\ncc = "cubik"\n', [], ["bad.toml:4", "cubik", "cubic"]),
    "an overflowing rate": ('[link]\nrate = "99999999999999999999gbit"\n', [], ["bad.toml:2", "rate"]),
    "an overflowing number": (GOOD + "[[flow]]\ncount = 99999999999999999999\n", [], ["bad.toml:4"]),
    "an overflowing time": (GOOD + '[[flow]]\nrtt = "1e300s"\n', [], ["bad.toml:4", "rtt"]),
    "a missing trace": ('[link]\ntrace = "nowhere.down"\n', [], ["bad.toml:2", "trace", "nowhere.down"]),
    "an empty trace": ('[link]\ntrace = "empty.down"\n', [], ["empty.down", "trace"]),
    "a trace of words": ('[link]\ntrace = "words.down"\n', [], ["words.down"]),
    "a rate and a trace": ('[link]\nrate = "1mbit"\ntrace = "empty.down"\n', [], ["bad.toml", "trace"]),
    "text that is not UTF-8": (b'[link]\nrate = "15mbit" # \xff\n', [], ["bad.toml:2", "UTF-8"]),
    "text that is not TOML": ("[link\nrate = 3", [], ["bad.toml:1"]),
    "bytes of a program": (bytes(range(256)), [], ["bad.toml"]),
    "a warm-up longer than the run": ('duration = "5s"\nwarmup = "9s"\n' + GOOD, [], ["bad.toml", "warmup"]),
    "a short cut with a wrong unit": (GOOD, ["--rtt", "20parsec"], ["rtt", "20ms"]),
    "a negative duration": (GOOD, ["--duration=-3s"], ["duration", "-3s"]),
    "text that is not a flow": (GOOD, ["--flow", "cubic:x"], ["flow", "cubic:x", "from 1 to 65535"]),
    "an unknown queue to compare": (GOOD, ["--aqm", "foo"], ["--aqm", "foo", "known"]),
    "seeds that are not a number": (GOOD, ["--seeds", "many"], ["seeds", "many"]),
    "zero seeds": (GOOD, ["--seeds", "0"], ["seeds", "1 to 1000000"]),
    "a negative number of seeds": (GOOD, ["--seeds", "-1"], ["seeds", "from 1 to 1000000"]),
    "a seed below zero": (GOOD, ["--seed", "-1"], ["seed", "from 0 to 9007199254740991"]),
    "an unknown MCS": ('[wifi]\nstations = 1\nmcs = "fast"\n', [], ["bad.toml:3", "mcs", "fast", "0 to 31"]),
    "a long name of a flow": (
        GOOD + '[[flow]]\nname = "' + "x" * 900_000 + '"\n',
        [],
        ["bad.toml:4: flow[1].name", "256"],
    ),
    "a long name of a host": (GOOD + '[[flow]]\nhost = "' + "x" * 257 + '"\n', [], ["bad.toml:4: flow[1].host", "256"]),
    "a long name of a scenario": ('name = "' + "x" * 257 + '"\n' + GOOD, [], ["bad.toml:1: name", "a shorter one"]),
    "a long name of a node": (
        CELL + '[[wifi.node]]\nname = "' + "x" * 257 + '"\n',
        [],
        ["bad.toml:5", "name", "256"],
    ),
    "a long unknown word": (GOOD + 'queue = "' + "x" * 800_000 + '"\n', [], ["bad.toml:3", "unknown queue", "x…x"]),
    "a long unknown key": (GOOD + "x" * 800_000 + " = 1\n", [], ["bad.toml:3", "unknown key", "x…x"]),
    "a long value": (GOOD + 'delay = "' + "x " * 400_000 + '"\n', [], ["bad.toml:3", "delay", "x …", "not a time"]),
    "jobs that are not a number": (GOOD, ["--jobs", "x"], ["--jobs"]),
    "an unknown option": (GOOD, ["--sedes", "3"], ["--sedes", "--seeds"]),
    "JSON into a missing folder": (
        GOOD,
        ["--json", "nowhere/a.json"],
        ["--json nowhere/a.json", "nowhere does not exist"],
    ),
    "a report into a missing folder": (GOOD, ["--html", "nowhere/a.html"], ["--html", "does not exist"]),
    "Parquet onto a folder": (GOOD, ["--parquet", "."], ["--parquet", "is a folder"]),
    "JSON where the system takes no file": (
        GOOD,
        ["--json", "/proc/x.json"],
        ["--json /proc/x.json", "cannot be written"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_line_and_status_2(case: str, quell: Quell, tmp_path: Path) -> None:
    text, arguments, pieces = CASES[case]
    (tmp_path / "bad.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "empty.down").write_text("")
    (tmp_path / "words.down").write_text("12\nthirteen\n")
    before = sorted(tmp_path.iterdir())
    done = quell("compare", "bad.toml", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("quell: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert len(done.stderr) < 2000, "a word or a text was printed whole"
    assert "Traceback" not in done.stderr
    for piece in pieces:
        assert piece in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "pieces"),
    [
        (["run", "--aqm", "foo"], ["foo", "fq_codel"]),
        (["compare", "nowhere.toml"], ["nowhere.toml", "home"]),
        (["compare", "."], ["."]),
        (["run", "--aqm", "pfifo", "--aqm", "codel"], ["--aqm", "quell run takes one", "quell compare"]),
        (["run", "a=b.toml"], ["a=b.toml", "scenario file"]),
        (["optimum", "--knob", "rate"], ["--knob", "limit", "drop"]),
        (["optimum", "--knob", "lmit"], ["--knob", "did you mean `limit`?"]),
        (["optimum", "--values", "8,x"], ["--values", "'x'", "number"]),
        (["optimum", "--values", "0.5"], ["--values", "0.5", "packets"]),
        (["optimum", "--knob", "drop", "--values", "2"], ["--values", "probability"]),
        (["optimum", "--reward", "fame"], ["--reward", "fame", "power"]),
        (["optimum", "--reward", "pwoer"], ["--reward", "did you mean `power`?"]),
        (["queues", "foo"], ["foo", "fq_codel"]),
        (["queues", "codl"], ["did you mean `codel`?"]),
        (["scenarios", "foo"], ["foo", "home"]),
        (["scenarios", "hoem"], ["did you mean `home`?"]),
        (["compare", "hoem"], ["did you mean `home`?"]),
        (["reproduce", "rlaqm"], ["did you mean `rl-aqm`?"]),
        (["shell", "--scenario", "wifi-house", "--", "true"], ["--scenario wifi-house", "[wifi]", "no radio"]),
        (["nonsense"], ["nonsense", "quell --help"]),
        (["run", "--pcap", "nowhere/x.pcapng"], ["--pcap", "nowhere does not exist"]),
        (["compare", "--trace", "nowhere.down"], ["trace", "nowhere.down"]),
        (["run", "--" + "x" * 100_000], ["No such option", "xx…xx", "quell run --help"]),
    ],
)
def test_bad_arguments_get_one_line_and_status_2(arguments: list[str], pieces: list[str], quell: Quell) -> None:
    done = quell(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert len(done.stderr) < 2000, "a word was printed whole"
    for piece in pieces:
        assert piece in done.stderr


def test_a_word_with_control_characters_does_not_reach_the_terminal_raw(quell: Quell) -> None:
    done = quell("run", "--aqm", "foo\x1b[31m\nbar")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_argument_that_is_not_text_is_bad_input(quell: Quell) -> None:
    for arguments in (["run", "caf\udcc3.toml"], ["run", "--aqm", "\udcff"], ["run", "--rate", "\udcff"],
                      ["run", 50 * "x" + "\udcff"]):  # fmt: skip
        done = quell(*arguments)
        assert done.returncode == 2
        assert "not text in this locale's encoding" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_write_that_fails_at_the_end_is_reported_without_a_traceback(quell: Quell, tmp_path: Path) -> None:
    done = quell("compare", "--duration", "6s", "--seeds", "1", "--aqm", "pfifo", "--json", "/dev/full")
    assert done.returncode in (1, 2)
    assert "/dev/full" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the streams")
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_with_a_closed_standard_stream_only_its_output_is_missing(tmp_path: Path, closed: str) -> None:
    words = f'exec "$0" compare --duration 6s --seeds 1 --aqm pfifo --json out.json --html out.html {closed}'
    done = subprocess.run(["sh", "-c", words, QUELL], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert (tmp_path / "out.json").read_text()[0] == "["
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("number", ["0", "-1", "x", "99999999", "9" * 5000])
def test_a_bad_number_of_threads_in_the_environment_is_ignored(tmp_path: Path, number: str) -> None:
    short = ["--rate", "1mbit", "--duration", "1s", "--aqm", "pfifo", "--seeds", "1"]
    words = [str(QUELL), "compare", *short, "--csv", "x.csv"]
    # As many threads as requested would take minutes, and more address space for stacks than this limit.
    limit = 'ulimit -v 16000000; exec "$@"'
    bad = os.environ | {"RAYON_NUM_THREADS": number, "POLARS_MAX_THREADS": number}
    done = subprocess.run(["sh", "-c", limit, "-", *words], cwd=tmp_path, env=bad, capture_output=True, text=True)
    assert done.returncode == 0 and "panic" not in done.stderr, done.stderr
    assert (tmp_path / "x.csv").read_text().startswith("scenario,")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux limits the address space")
@pytest.mark.parametrize("kib", [60_000, 120_000])
def test_too_little_memory_for_a_table_is_reported_before_the_runs(tmp_path: Path, kib: int) -> None:
    words = [str(QUELL), "compare", "home", "--duration", "1s", "--aqm", "pfifo", "--seeds", "1", "--csv", "x.csv"]
    limited = ["sh", "-c", f'ulimit -v {kib}; exec "$@"', "-", *words]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith("quell: there is too little memory; raise the limit (`ulimit -v`"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="Linux limits the address space")
def test_more_threads_than_memory_has_room_for_are_refused_with_the_remedy(tmp_path: Path) -> None:
    # A thread's stack takes 1 GiB of the address space, so that two fit and there is room for all else.
    words = [str(QUELL), "compare", "home", "--duration", "1s", "--aqm", "pfifo", "--seeds", "8", "--jobs", "8"]
    limited = ["sh", "-c", 'ulimit -v 2500000; exec "$@"', "-", *words]
    large = os.environ | {"RUST_MIN_STACK": str(1 << 30)}
    done = subprocess.run(limited, cwd=tmp_path, env=large, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "no thread can be started: " in done.stderr and "`ulimit -v` show them" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [("evaluate", "--jobs"), ("train", "rl-aqm", "--seed"), ("shell", "--mtu")])
def test_an_integer_beyond_64_bits_is_refused(words: tuple[str, ...]) -> None:
    done = subprocess.run([QUELL, *words, str(2**64)], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"'{words[-1]}': {2**64} is not in the range" in done.stderr


@pytest.mark.parametrize("words", [("train", "rl-aqm", "--delay-scale"), ("train", "hush", "--sigma")])
def test_nan_is_refused_where_a_number_is_expected(words: tuple[str, ...]) -> None:
    done = subprocess.run([QUELL, *words, "nan"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"'{words[-1]}': nan is not a number" in done.stderr


@pytest.mark.parametrize("number", ["0", "²", "x", "9" * 5000])
def test_a_bad_width_in_the_environment_is_ignored(number: str) -> None:
    """In 0 columns rich prints nothing, not even an error."""
    bad = os.environ | dict.fromkeys(("COLUMNS", "LINES", "TERMINAL_WIDTH"), number)
    done = subprocess.run([QUELL, "queues", "--nosuch"], env=bad, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "quell: No such option: --nosuch (see `quell queues --help`)\n")
    done = subprocess.run([QUELL, "queues", "--help"], env=bad, capture_output=True, text=True)
    assert done.returncode == 0 and "Examples" in done.stdout, done.stderr
