"""`quell shell` with several queues, its records in `quell show`, limits on measured values."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL, Quell
from quell._core import InputError
from quell.cli import shell
from quell.common.console import Screen
from quell.common.status import INTERRUPTED
from quell.results.commands import are_commands, runs
from quell.results.limits import NAMES, STATUS, Limit
from quell.views import commands as view
from test_shell import FETCH, SERVE, missing, python

in_namespaces = pytest.mark.skipif(bool(missing()), reason=f"quell shell cannot run here: {missing()}")


def record(way: str, queue: str, **keys: Any) -> dict[str, Any]:
    summary = {"mean": 20.0, "p50": 10.0, "p95": 120.0, "p99": 150.0, "max": 200.0}
    told = {"words": ["./measure"], "status": 0, "wall_s": 4.0}
    return {
        "scenario": way, "queue": queue, "seed": 1, "measured_s": 4.0, "goodput_mbps": 9.0, "throughput_mbps": 9.5,
        "utilisation": 0.95, "capacity_mbps": 10.0, "sojourn_ms": summary, "sojourn_cdf": [[1.0, 0.5], [200.0, 1.0]],
        "packets": 1000, "drops": 3, "marks": 0, "loss_rate": 0.003, "mark_rate": 0.0, "flows": [],
        "live": {"missed": 2, "late_ms": summary}, "command": told,
    } | keys  # fmt: skip


@pytest.mark.real_time
@in_namespaces
def test_the_command_runs_once_behind_each_queue(quell: Quell, tmp_path: Path) -> None:
    # The transfer takes longer than the interval at which quell lists connections, because the kernel's notice of a
    # closed connection does not name its congestion control.
    (tmp_path / "file").write_bytes(bytes(2_000_000))
    fetch = python(tmp_path, "fetch.py", FETCH + "print('fetched')\n")
    done = quell(
        "shell", "--rate", "20mbit", "--aqm", "pfifo", "--aqm", "codel", "--json", "both.json", "--html", "both.html",
        "--server", SERVE, "--", sys.executable, fetch, "QUELL_SERVER",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "fetched\nfetched\n"
    records = json.loads((tmp_path / "both.json").read_text())
    assert [(r["scenario"], r["queue"]) for r in records] == [
        ("down", "pfifo"), ("up", "pfifo"), ("down", "codel"), ("up", "codel"),
    ]  # fmt: skip
    for r in records:
        assert r["command"]["words"] == [sys.executable, fetch, "QUELL_SERVER"]
        assert r["command"]["status"] == 0 and 0.75 < r["command"]["wall_s"] < 60
        # One TCP connection: the file goes down, the request up.
        [flow] = r["flows"]
        assert flow["direction"] == r["scenario"] and flow["cc"] and flow["rtt_ms"]["mean"] >= flow["base_rtt_ms"] > 0
    assert 2_000_000 < 1.25e5 * records[0]["flows"][0]["goodput_mbps"] * records[0]["measured_s"] < 2_002_000
    assert "1 of 2: 20mbit, pfifo each way" in done.stderr and "2 of 2: 20mbit, codel each way" in done.stderr
    page = (tmp_path / "both.html").read_text()
    assert (
        '"name":"pfifo"' in page and '"name":"codel"' in page and "Rate, down" in page and "congestion control" in page
    )


@pytest.mark.real_time
@in_namespaces
def test_a_queue_s_failure_is_the_exit_status_and_the_others_still_run(quell: Quell, tmp_path: Path) -> None:
    script = "[ -e once ] && exit 0; touch once; exit 6"
    done = quell("shell", "--rate", "5mbit", "--aqm", "pfifo", "--aqm", "hush", "--", "sh", "-c", script)
    assert done.returncode == 6
    assert "2 of 2" in done.stderr


@pytest.mark.real_time
@in_namespaces
def test_flent_gets_a_file_for_each_run(quell: Quell, tmp_path: Path) -> None:
    aqm = ["--aqm", "pfifo", "--aqm", "pfifo", "--aqm", "codel"]
    done = quell("shell", "--rate", "5mbit", *aqm, "--flent", "a.flent.gz", "--", "sleep", "0.7")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.codel.1.flent.gz", "a.pfifo__1.1.flent.gz", "a.pfifo__2.1.flent.gz"]


@pytest.mark.real_time
@in_namespaces
@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo ready; exec sleep 60", 128 + signal.SIGTERM),
        ("trap 'exit 0' TERM; echo ready; while sleep 0.1; do :; done", INTERRUPTED),
    ],
)
def test_a_signal_ends_the_turns_and_an_earlier_file_stays(tmp_path: Path, script: str, status: int) -> None:
    words = [str(QUELL), "shell", "--rate", "5mbit", "--aqm", "pfifo", "--aqm", "hush", "--json", "run.json", "--"]
    (tmp_path / "run.json").write_text("both queues")
    process = subprocess.Popen(
        [*words, "sh", "-c", script], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == status
    assert "quell: stopped after 1 of 2 queues\n" in errors
    assert (tmp_path / "run.json").read_text() == "both queues"
    assert len(json.loads((tmp_path / "run.interrupted.json").read_text())) == 2


@pytest.mark.real_time
@in_namespaces
def test_a_command_that_can_no_longer_be_executed_takes_no_earlier_run_along(quell: Quell, tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.write_text("#!/bin/sh\nrm once\n")
    once.chmod(0o755)
    done = quell("shell", "--rate", "5mbit", "--aqm", "pfifo", "--aqm", "hush", "--json", "run.json", "--", "./once")
    assert done.returncode == 127
    assert "quell: ./once: No such file or directory\nquell: stopped after 1 of 2 queues\n" in done.stderr
    assert [r["queue"] for r in json.loads((tmp_path / "run.json").read_text())] == ["pfifo", "pfifo"]


def test_names_in_records_are_not_markup() -> None:
    flow = {
        "kind": "tcp", "cc": "[/cc]", "goodput_mbps": 1.0, "rtt_ms": {"mean": 2.0}, "base_rtt_ms": 1.0,
        "retransmits": 0,
    }  # fmt: skip
    name = "[/b] [link=http://example.org]pfifo[/link]"
    other = {key: value for key, value in flow.items() if key != "rtt_ms"}
    found = runs([record(way, name, flows=[flow, other], live={"missed": "[/m]"}) for way in ("down", "up")])
    screen = Screen(file=io.StringIO(), width=150, force_terminal=True)
    screen.print(view.table(found, screen.width))
    screen.print(view.flows(found))
    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()
    assert text.count(name) == 2 and text.count("[/m]") == 2 and text.count("[/cc]") == 2
    assert "\x1b]8" not in text


@in_namespaces
@pytest.mark.parametrize(
    ("arguments", "banner"),
    [
        (
            ["--scenario", "lte", "--aqm", "fq_codel"],
            "down trace builtin:lte, 20 ms, fq_codel; up trace builtin:lte-up",
        ),
        (["--scenario", "lte", "--aqm", "fq_codel"], "builtin:lte-up, 20 ms, fq_codel; the other side"),
        (["--scenario", "lte", "--aqm", "fq_codel", "--up-aqm", "pie"], "builtin:lte-up, 20 ms, pie; the other side"),
        (
            ["--rate", "9mbit/3mbit", "--aqm", "codel", "--loss", "1%"],
            "down 9mbit, 1 % loss, codel; up 3mbit, 1 % loss",
        ),
        (["--rate", "9mbit", "--aqm", "codel", "--up-aqm", "pie"], "quell: down 9mbit, codel; up 9mbit, pie; "),
        (["--rate", "9mbit", "--delay", "5ms"], "quell: 9mbit, 5 ms, fq_codel each way; "),
    ],
)
def test_the_banner_says_what_each_direction_has(quell: Quell, arguments: list[str], banner: str) -> None:
    done = quell("shell", *arguments, "--json", "run.json", "--", "true")
    assert banner in done.stderr


@in_namespaces
def test_json_on_standard_output_is_alone_there(quell: Quell) -> None:
    done = quell("shell", "--rate", "5mbit", "--json", "-", "--", "sh", "-c", "echo hello; echo there >&2")
    down, up = json.loads(done.stdout)
    assert (down["scenario"], up["scenario"]) == ("down", "up")
    assert "hello\n" in done.stderr and "there\n" in done.stderr


@in_namespaces
def test_a_server_that_is_not_there_is_an_error(quell: Quell) -> None:
    done = quell("shell", "--rate", "5mbit", "--server", "nosuchserver", "--", "true")
    assert done.returncode == 2
    assert done.stderr == "quell: --server nosuchserver: no such command; write one that is on PATH, or its path\n"


@in_namespaces
def test_a_command_that_reaches_nothing_is_told_why(quell: Quell) -> None:
    done = quell("shell", "--rate", "5mbit", "--", "true")
    assert "no data of TCP or UDP crossed the link" in done.stderr and "127.0.0.1" in done.stderr
    assert "The Internet needs --nat" in done.stderr
    done = quell("shell", "--rate", "5mbit", "--server", "sleep 60", "--", "true")
    assert "--server's must listen on 0.0.0.0" in done.stderr and "--nat" not in done.stderr
    done = quell("shell", "--rate", "5mbit", "--quiet", "--fail-if", "down.p95>1s", "--", "true")
    assert done.returncode == STATUS
    assert done.stderr == "quell: --fail-if down.p95>1s: fq_codel: no data of TCP or UDP crossed the link\n"


ASK = "import os, socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'?', (os.environ['QUELL_SERVER'], 53))"


def test_a_list_of_queues_is_refused_with_what_to_write(quell: Quell) -> None:
    done = quell("shell", "--rate", "5mbit", "--aqm", "pfifo,hush", "--", "true")
    assert done.returncode == 2
    assert done.stderr == "quell: --aqm: `pfifo,hush` is a list; write --aqm pfifo --aqm hush\n"


def test_advice_is_what_can_help_there() -> None:
    none = runs([record(way, "hush") | {"packets": 4, "goodput_mbps": 0.0} for way in ("down", "up")])
    unprivileged = str(shell._unreached(none, "unprivileged", out=False))
    assert "--server" in unprivileged and "this machine" not in unprivileged and "--nat" not in unprivileged
    assert "--nat" not in str(shell._unreached(none, "caller", out=True))
    # Without quotes the user's own shell replaces the variable.
    assert "sh -c 'curl http://$QUELL_SERVER:8000/'" in str(shell._unreached(none, "server", out=False))
    reached = runs([record("down", "pfifo"), record("up", "pfifo")])
    assert shell._unreached([*none, *reached], "caller", out=False) is None


@in_namespaces
def test_a_command_that_fails_without_an_answer_is_told_why(quell: Quell) -> None:
    for status, told in ((1, True), (0, False)):
        done = quell("shell", "--rate", "5mbit", "--", sys.executable, "-c", f"{ASK}; raise SystemExit({status})")
        assert done.returncode == status
        assert ("no data of TCP or UDP came back over the link" in done.stderr) == told


@in_namespaces
def test_a_limit_that_is_exceeded_is_the_exit_status_unless_the_command_fails(quell: Quell) -> None:
    run = ["shell", "--rate", "5mbit", "--quiet", "--fail-if", "wall>1ms", "--fail-if", "wall>1h", "--", "sh", "-c"]
    done = quell(*run, "exit 0")
    assert done.returncode == STATUS
    assert done.stderr.startswith("quell: --fail-if wall>1ms: fq_codel: ") and done.stderr.count("\n") == 1
    assert quell(*run, "exit 5").returncode == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("down.p96>1ms", "unknown metric `down.p96`; did you mean `down.p9"),
        ("p95>1ms", "p95 of which direction? Write down.p95 or up.p95"),
        ("down.p95=1ms", "not a condition; write METRIC>VALUE, as in 'down.p95>100ms'"),
        ("down.p95>100", "100 is not a time; write it as 100ms"),
        ("down.goodput<5ms", "5ms is not a rate; write it as 5mbit"),
        ("up.loss>lots", "lots is not a share; write it as 1%"),
        ("up.drops>1e999", "1e999 is not a count; write it as 10"),
        ("", "not a condition"),
    ],
)
def test_a_bad_limit_names_the_metric_and_the_remedy(text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^--fail-if ") as caught:
        Limit.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "had"),
    [
        ("down.p95>100ms", "120.00 ms"),
        ("down.p95 >= 120ms", "120.00 ms"),
        ("down.p95>120ms", None),
        ("down.goodput<10mbit", "9.000 Mbit/s"),
        ("down.used<96%", "95.00 %"),
        ("down.loss>0.1%", "0.30 %"),
        ("down.loss>0.01", None),
        ("down.drops>=3", "3"),
        ("down.missed>1", "2"),
        ("wall>3s", "4000.00 ms"),
    ],
)
def test_a_limit_is_compared_in_its_unit(text: str, had: str | None) -> None:
    [run] = runs([record("down", "pfifo"), record("up", "pfifo")])
    assert Limit.parse(text).exceeded(run) == had


def test_every_metric_can_be_read_from_a_record() -> None:
    [run] = runs([record("down", "pfifo"), record("up", "pfifo")])
    units = {"goodput": "1bit", "throughput": "1bit", "used": "0%", "loss": "0%", "drops": "0", "marks": "0"}
    units |= {"missed": "0"}
    for name in NAMES:
        value = units.get(name.split(".")[-1], "0ms")
        assert Limit.parse(f"{name}>={value}").exceeded(run) is not None, name


def test_runs_of_one_name_are_distinguished() -> None:
    both = [record("down", "pfifo"), record("up", "pfifo")] * 2 + [record("down", "pfifo"), record("up", "pie")]
    assert are_commands(both)
    assert [run.name for run in runs(both)] == ["pfifo #1", "pfifo #2", "pfifo, up pie"]
    assert not are_commands(both[:3])
    assert not are_commands([r | {"scenario": "home"} for r in both])


@pytest.mark.real_time
@in_namespaces
@pytest.mark.parametrize("command", ["show", "compare"])
def test_records_of_several_files_are_shown_side_by_side(quell: Quell, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_bytes(bytes(300_000))
    fetch = python(tmp_path, "fetch.py", FETCH)
    for name in ("a", "b"):
        done = quell(
            "shell", "--rate", "20mbit", "--aqm", "codel", "--json", f"{name}.json", "--quiet", "--server", SERVE,
            "--", sys.executable, fetch, "QUELL_SERVER",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    one = quell("show", "a.json")
    assert [line.split()[:2] for line in one.stdout.splitlines() if "codel" in line][:2] == [
        ["down", "codel"], ["up", "codel"],
    ]  # fmt: skip
    assert "±" not in one.stdout and "◆" not in one.stdout
    both = quell(command, "a.json", "b.json", "--html", "both.html", "--json", "both.json")
    assert both.returncode == 0, both.stderr
    assert "a.json: codel" in both.stdout and "b.json: codel" in both.stdout
    assert len(json.loads((tmp_path / "both.json").read_text())) == 4
    assert "--series 0.1" in (tmp_path / "both.html").read_text()
    again = quell("show", "both.json")
    assert "codel #2" in again.stdout


@pytest.mark.parametrize("told", [None, 3, {"words": "ls"}, {"words": [], "status": "0", "wall_s": None}])
def test_a_record_that_does_not_tell_how_the_command_ended_is_shown(told: object) -> None:
    [run] = runs([record("down", "pfifo", command=told), record("up", "pfifo", command=told)])
    assert run.command == {}
    assert "pfifo; down 9.00 Mbit/s of goodput" in view.page([run], "10mbit", "quell show old.json")
    assert not are_commands([record("down", "pfifo", live=told), record("up", "pfifo")]) or isinstance(told, dict)


def test_other_records_beside_each_other_are_refused(quell: Quell, tmp_path: Path) -> None:
    quell("run", "--rate", "5mbit", "--duration", "1s", "--warmup", "0s", "--json", "one.json")
    done = quell("show", "one.json", "one.json")
    assert done.returncode == 2
    assert done.stderr.startswith("quell: one.json: not records of quell shell; ")
    done = quell("compare", "home", "lte")
    assert done.stderr == "quell: lte: compare takes one scenario, or records of quell shell (.json)\n"
    done = quell("compare", "one.json", "--seeds", "3")
    assert done.stderr == "quell: --seeds: not with records, which are of runs that are over; leave it out\n"


@in_namespaces
@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])
def test_the_prompt_of_a_bare_shell_shows_the_link(tmp_path: Path, shell: str) -> None:
    if not Path(shell).exists():
        pytest.skip(f"{shell} is not installed")
    environment = os.environ | {"SHELL": shell, "HOME": str(tmp_path)}
    (tmp_path / ".bashrc").write_text("PS1='mine> '\n")
    environment.pop("PS1", None)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(QUELL, [str(QUELL), "shell", "--rate", "7mbit/1mbit"], environment)
    seen, until = b"", time.monotonic() + 30
    while b"(quell 7mbit down, 1mbit up)" not in seen and time.monotonic() < until:
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 4096)
    assert b"(quell 7mbit down, 1mbit up)" in seen, seen
    assert b"mine>" in seen or shell.endswith("/sh")
    os.write(terminal, b"exit 3\n")
    while time.monotonic() < until:
        try:
            if not os.read(terminal, 4096):
                break
        except OSError:
            break
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # dash cannot give the terminal back to a group outside its PID namespace.
    assert status == 3 or shell.endswith("/sh")
