"""Queues and controllers in a Python file, named on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import ROOT, Quell

LINK = ["--rate", "10mbit", "--rtt", "20ms", "--flow", "cubic:2", "--duration", "4s"]
MINE = """
from collections import deque

from beside import LIMIT


class Fifo:
    def __init__(self):
        self.packets = deque()

    def enqueue(self, packet, now):
        if len(self.packets) == LIMIT:
            return False
        self.packets.append(packet)

    def dequeue(self, now):
        return self.packets.popleft() if self.packets else None


class Broken(Fifo):
    def dequeue(self, now):
        return 1 / 0


class Needs(Fifo):
    def __init__(self, limit):
        super().__init__()


class Halve:
    period = 0.02

    def decide(self, gauges):
        limit = gauges["limit_packets"]
        return {"limit": max(4, limit // 2 if gauges["sojourn"] > 0.015 else limit + 1)}


class Confused(Halve):
    def decide(self, gauges):
        return {}["limit"]


gentle = Halve()
gentle.name = "gentle"
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "beside.py").write_text("LIMIT = 30\n")
    (tmp_path / "one.py").write_text("from mine import Fifo, Halve\nclass Own(Fifo): pass\nclass Set(Halve): pass\n")
    (tmp_path / "empty.py").write_text("from mine import Fifo, Halve\n")
    (tmp_path / "control.py").write_text("from mine import Halve\nclass Set(Halve): pass\n")
    (tmp_path / "wrong.py").write_text("a = 1\nb = nosuch\n")
    (tmp_path / "syntax.py").write_text("a = 1\ndef f(:\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")


def records(quell: Quell, *words: str) -> list[dict[str, object]]:
    done = quell(*words, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else [found]


def test_a_queue_and_controllers_in_a_file_are_compared_under_their_names(quell: Quell, tmp_path: Path) -> None:
    given = ["pfifo limit 30", "mine.py:Fifo", "fifo limit 30 + mine.py:Halve", "fifo limit 30 + mine.py:gentle"]
    words = [word for aqm in given for word in ("--aqm", aqm)]
    done = quell("compare", *LINK, "--seeds", "1", *words, "--json", "runs.json", "--html", "report.html")
    assert done.returncode == 0, done.stderr
    plain, own, halved, gentle = json.loads((tmp_path / "runs.json").read_text())
    # A FIFO in Python gives the result of quell's own to the last bit; with half of the limit the result differs.
    assert own["sojourn_ms"] == plain["sojourn_ms"] != halved["sojourn_ms"] == gentle["sojourn_ms"]
    assert (own["queue"], halved["controller"], gentle["controller"]) == ("Fifo", "Halve", "gentle")
    for name in ("Fifo", "fifo limit 30 + Halve", "fifo limit 30 + gentle"):
        assert name in done.stdout and name in (tmp_path / "report.html").read_text()


def test_a_file_with_one_queue_or_controller_needs_no_name(quell: Quell) -> None:
    [own] = records(quell, "run", *LINK, "--aqm", "one.py")
    [controlled] = records(quell, "run", *LINK, "--aqm", "fifo limit 30 + one.py")
    assert own["queue"] == "Own" and controlled["controller"] == "Set"


def test_other_commands_take_a_file(quell: Quell) -> None:
    aqm = ["--aqm", "one.py:Own", "--aqm", "fifo limit 30 + one.py:Set"]
    swept = records(quell, "sweep", *LINK, "--over", "link.rate=5mbit,10mbit", "--seeds", "1", *aqm)
    assert [run["queue"] for run in swept].count("Own") == 2
    cells = records(quell, "evaluate", "--sections", "5.3", "--seeds", "1", *aqm)
    assert {"Own", "fifo limit 30 + Set"} <= {cell["queue"] for cell in cells}


def test_a_capture_of_a_controlled_queue_is_written(quell: Quell, tmp_path: Path) -> None:
    for name, aqm in (("own.pcapng", "fifo limit 30 + mine.py:Halve"), ("other.pcapng", "fifo limit 30")):
        done = quell("run", *LINK, "--no-rpm", "--aqm", aqm, "--pcap", name)
        assert done.returncode == 0, done.stderr
    assert len((tmp_path / "own.pcapng").read_bytes()) > 100_000
    assert (tmp_path / "own.pcapng").read_bytes() != (tmp_path / "other.pcapng").read_bytes()


@pytest.mark.parametrize(
    ("aqm", "said"),
    [
        ("nosuch.py", "--aqm: nosuch.py: there is no such file"),
        ("mine.py", "--aqm: mine.py: write mine.py:Fifo or mine.py:Broken or mine.py:Needs"),
        ("fifo + mine.py", "--aqm: mine.py: write mine.py:Halve or mine.py:Confused or mine.py:gentle"),
        ("one.py:Owm", "--aqm: one.py: there is no Owm in it; write one.py:Own"),
        ("empty.py", "--aqm: empty.py: it has no queue, which is a class with enqueue() and dequeue() (docs/how-to/"),
        ("fifo + empty.py", "--aqm: empty.py: it has no controller, which is a class with decide() (docs/how-to/"),
        ("control.py", "control.py: a controller needs a queue, as in --aqm 'fifo limit 100 + control.py:Set'"),
        ("control.py:Set", "Set has no methods enqueue() and dequeue()"),
        ("pfifo,fq_codel", "--aqm: `pfifo,fq_codel` is a list; write --aqm pfifo --aqm fq_codel"),
        ("nosuch + one.py", "--aqm: unknown queue `nosuch`; known: pfifo,"),
        ("mine:Fifo", "--aqm: `mine:Fifo` names no queue; name the file of a queue in Python, as in mine.py:Fifo"),
        ("wrong.py", "wrong.py, line 2: NameError: name 'nosuch' is not defined"),
        ("syntax.py", "syntax.py, line 2: SyntaxError: invalid syntax"),
        ("exits.py", "exits.py, line 2: SystemExit: 3"),
        ("mine.py:Needs", "--aqm: mine.py:Needs: TypeError: "),
        ("mine.py:Broken", "mine.py, line 22: ZeroDivisionError: division by zero (QUELL_TRACEBACK=1 shows all calls)"),
        ("fifo + mine.py:Confused", "mine.py, line 40: KeyError: 'limit' (QUELL_TRACEBACK=1 shows all calls)"),
    ],
)
def test_an_error_names_the_file_and_what_to_write(quell: Quell, aqm: str, said: str) -> None:
    done = quell("compare", *LINK, "--seeds", "1", "--aqm", aqm)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1 and "a bug" not in done.stderr and "Traceback" not in done.stderr


def test_python_runs_neither_on_a_cluster_nor_on_real_packets(quell: Quell) -> None:
    done = quell("compare", *LINK, "--aqm", "one.py", "--ray", "local")
    assert done.returncode == 2 and "--ray: Own is written in Python" in done.stderr
    done = quell("compare", *LINK, "--aqm", "fifo + one.py", "--real")
    assert done.returncode == 2 and "--real: fifo + Set: what is written in Python is only simulated" in done.stderr


def test_the_file_is_not_overwritten(quell: Quell, tmp_path: Path) -> None:
    for aqm in ("mine.py:Fifo", "fifo + mine.py:Halve"):
        done = quell("compare", *LINK, "--aqm", aqm, "--json", "mine.py")
        assert done.returncode == 2 and "the command reads it, too" in done.stderr
    assert (tmp_path / "mine.py").read_text() == MINE


def test_the_files_of_the_examples_are_compared(quell: Quell) -> None:
    own, aimd = ROOT / "examples/own_queue.py", ROOT / "examples/aimd.py"
    found = records(quell, "compare", *LINK, "--seeds", "1", "--aqm", f"{own}:OwnCoDel", "--aqm", f"fifo + {aimd}")
    assert found[0]["queue"] == "OwnCoDel" and found[1]["controller"] == "Aimd"
