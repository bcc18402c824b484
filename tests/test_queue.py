"""Queues written in Python."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quell
from conftest import ROOT, Quell
from quell import _core
from quell.cli import dispatch as cli
from quell.experiments import experiment
from quell.experiments.queue import CE, ECT0, NOT_ECT, Aqm, Packet, parse_all

LINK: dict[str, Any] = {"rate": "10mbit", "rtt": "20ms", "flows": ["cubic:2"], "duration": "4s"}
UDP = '[link]\nrate = "10mbit"\n[[flow]]\nkind = "cbr"\nrate = "1mbit"\n'
WEB = '[link]\nrate = "10mbit"\n[[flow]]\nkind = "web"\n[[flow]]\ncount = 3\n'


class Fifo:
    def __init__(self, limit: int = 100) -> None:
        self.packets, self.limit = deque[Packet](), limit

    def enqueue(self, packet: Packet, now: float) -> Any:
        if len(self.packets) >= self.limit:
            return False
        self.packets.append(packet)
        return True

    def dequeue(self, now: float) -> Any:
        return self.packets.popleft() if self.packets else None


def run(queue: Any, source: str | None = None, **more: Any) -> dict[str, Any]:
    link = LINK if source is None else {"duration": LINK["duration"]}
    return quell.run(source, aqm=queue, nested=True, **{**link, **more}).to_dicts()[0]


def measured(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("queue", "cpu_s", "packets_per_cpu_s")}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"flows": ["bbr", "cubic:2@ecn=1"], "series": 0.5},
        {"source": "wifi-house"},
        {"source": WEB},
    ],
)
def test_a_fifo_in_python_is_quells_own_to_the_last_bit(more: dict[str, Any]) -> None:
    own, python = run("pfifo limit 30", **more), run(Fifo(30), **more)
    assert (own["queue"], python["queue"]) == ("pfifo limit 30", "Fifo")
    assert own["drops"] > 0
    if own["series"] is not None:
        assert set(own["series"].pop("limit_packets")) == {30.0}
        assert set(python["series"].pop("limit_packets")) == {0.0}  # unknown
    if own["wifi"] is not None:
        for record in (own, python):
            record["wifi"] = [{**queue, "queue": ""} for queue in record["wifi"]["queues"]]
    assert measured(own) == measured(python)


def test_it_is_compared_with_quells_own_on_any_number_of_cores() -> None:
    class Noisy(Fifo):
        name = "noisy fifo"

        def __init__(self) -> None:
            super().__init__()
            self.random = random.Random(7)

        def enqueue(self, packet: Packet, now: float) -> Any:
            return self.random.random() > 0.01 and super().enqueue(packet, now)

    def compare(jobs: int) -> list[dict[str, Any]]:
        frame = quell.compare(aqm=["fq_codel", Noisy(), Fifo, "pfifo"], seeds=2, jobs=jobs, **LINK)
        return [{**measured(record), "queue": record["queue"]} for record in frame.to_dicts()]

    one = compare(1)
    assert [r["queue"] for r in one] == ["fq_codel"] * 2 + ["noisy fifo"] * 2 + ["Fifo"] * 2 + ["pfifo"] * 2
    assert compare(2) == one
    assert compare(0) == one
    assert one[2]["loss_rate"] == pytest.approx(0.01, abs=0.005)


def test_its_row_is_in_tables_reports_and_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, page = tmp_path / "runs.json", tmp_path / "page.html"
    frame = quell.compare(aqm=[Fifo(), "codel"], seeds=2, series=0.5, **LINK)
    assert quell.summary(frame)["queue"].to_list() == ["Fifo", "codel"]
    frame.write_json(records)
    assert {r["queue"] for r in json.loads(records.read_text())} == {"Fifo", "codel"}
    assert cli.call(["show", str(records), "--html", str(page)]) == 0
    assert any("Fifo" in line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert "Fifo" in page.read_text("utf-8")
    frame.write_parquet(tmp_path / "runs.parquet")


def test_a_packet_shows_what_a_queue_may_know() -> None:
    seen: list[tuple[int, int, int, float, float]] = []

    class Watch(Fifo):
        def enqueue(self, packet: Packet, now: float) -> Any:
            seen.append((packet.length, packet.flow, packet.ecn, packet.enqueued, now))
            assert "flow" in repr(packet)
            return super().enqueue(packet, now)

    run(Watch(), flows=["cubic", "cubic@ecn=1"])
    assert {length for length, *_ in seen} <= {*range(40, 1519)}
    assert len({flow for _, flow, *_ in seen}) == 2
    assert {ecn for _, _, ecn, *_ in seen} == {NOT_ECT, ECT0}
    assert all(enqueued == now for *_, enqueued, now in seen)
    assert [now for *_, now in seen] == sorted(now for *_, now in seen)


def test_marks_count_and_reach_the_senders() -> None:
    class Marking(Fifo):
        def dequeue(self, now: float) -> Any:
            packet = super().dequeue(now)
            if packet is not None and now - packet.enqueued > 0.005:
                able = packet.ecn != NOT_ECT
                assert packet.mark() is able
                assert packet.mark() is able  # counts once
                assert packet.ecn == (CE if able else NOT_ECT)
            return packet

    marked, free = run(Marking(), flows=["cubic:2@ecn=1"]), run(Fifo(), flows=["cubic:2@ecn=1"])
    assert free["marks"] == 0 < marked["marks"] <= marked["packets"]
    assert marked["sojourn_ms"]["p95"] < free["sojourn_ms"]["p95"] / 2
    assert run(Marking())["marks"] == 0


def test_kept_packets_may_be_dropped_later_or_at_once() -> None:
    class Late(Fifo):
        def dequeue(self, now: float) -> Any:
            while (packet := super().dequeue(now)) is not None:
                if now - packet.enqueued < 0.02:
                    break
                packet.drop()
            return packet

    class Early(Fifo):
        def enqueue(self, packet: Packet, now: float) -> Any:
            if len(self.packets) > 20:
                packet.drop()
                return True
            return super().enqueue(packet, now)

    assert run(Late())["drops_by_cause"]["early"] > 0
    assert run(Late())["sojourn_ms"]["max"] <= 20.0
    assert run(Early())["drops_by_cause"]["early"] > 0
    assert run(Early())["backlog_packets"]["max"] <= 21


def test_a_time_lets_packets_wait_and_an_arrival_asks_again() -> None:
    class Held(Fifo):
        """Keeps each packet for 10 ms."""

        def dequeue(self, now: float) -> Any:
            if self.packets and now < (due := self.packets[0].enqueued + 0.01):
                return due
            return super().dequeue(now)

    assert run(Held(), UDP)["sojourn_ms"] == pytest.approx(
        {"mean": 10, "p50": 10, "p95": 10, "p99": 10, "max": 10}, rel=0.01
    )

    class Pairs(Fifo):
        """Releases a packet when the next one arrives."""

        def dequeue(self, now: float) -> Any:
            return float("inf") if len(self.packets) == 1 else super().dequeue(now)

    record = run(Pairs(), UDP)
    assert record["packets"] > 100
    assert record["backlog_packets"]["p50"] == 1


def test_an_object_is_copied_for_each_run_and_a_class_instantiated() -> None:
    mine = Fifo()
    frame = quell.compare(aqm=[mine], seeds=2, **LINK)
    assert not mine.packets
    assert frame["drops"].sum() > 0
    made: list[Fifo] = []

    def make() -> Fifo:
        made.append(Fifo())
        return made[-1]

    quell.compare(aqm=[make], seeds=2, **LINK)
    assert len(made) == 3  # one more is made to check what the function returns
    assert [bool(queue.packets) for queue in made] == [False, True, True]


class Loses(Fifo):
    """Loses each hundredth packet."""

    count = 0

    def enqueue(self, packet: Packet, now: float) -> Any:
        self.count += 1
        return self.count % 100 == 0 or super().enqueue(packet, now)


class LosesLater(Fifo):
    def dequeue(self, now: float) -> Any:
        if len(self.packets) > 2:
            self.packets.popleft()
        return super().dequeue(now)


class Hoards(Fifo):
    """Keeps packets for ever."""

    def dequeue(self, now: float) -> Any:
        return None


class Twice(Fifo):
    last: Packet | None = None

    def dequeue(self, now: float) -> Any:
        self.last = super().dequeue(now) or self.last
        return self.last


class DropsAndReturns(Fifo):
    def dequeue(self, now: float) -> Any:
        packet = super().dequeue(now)
        if packet is not None:
            packet.drop()
        return packet


class DropsTwice(Fifo):
    def dequeue(self, now: float) -> Any:
        packet = super().dequeue(now)
        if packet is not None:
            packet.drop()
            packet.drop()


class RefusesAndKeeps(Fifo):
    def enqueue(self, packet: Packet, now: float) -> Any:
        self.packets.append(packet)
        return len(self.packets) % 2 == 1


class MarksWhatHasLeft(Twice):
    def dequeue(self, now: float) -> Any:
        if self.last is not None:
            self.last.mark()
        return super().dequeue(now)


class Past(Fifo):
    def dequeue(self, now: float) -> Any:
        return now - 0.001 if self.packets else None


class Now(Fifo):
    def dequeue(self, now: float) -> Any:
        return now if self.packets else None


class Nan(Fifo):
    def dequeue(self, now: float) -> Any:
        return float("nan") if self.packets else None


class Minus(Fifo):
    def dequeue(self, now: float) -> Any:
        return float("-inf")


class Garbage(Fifo):
    def dequeue(self, now: float) -> Any:
        return ["a", "list"]


class Truth(Fifo):
    def dequeue(self, now: float) -> Any:
        return True


class Hesitates(Fifo):
    """Always says that its packets may leave a nanosecond later."""

    def dequeue(self, now: float) -> Any:
        return now + 1e-9


class KeepsNumbers(Fifo):
    def enqueue(self, packet: Packet, now: float) -> Any:
        self.packets.append(packet)
        return len(self.packets)


class OfTheClass(Fifo):
    """Keeps its packets in a shared container, not in the object."""

    def __init__(self) -> None:
        super().__init__()
        self.packets = _shared


_shared = deque[Packet]()


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        (
            Loses,
            "^Loses: enqueue\\(\\) lost packets: 1; keep each packet, return it, or call its drop",
        ),
        (LosesLater, "^LosesLater: dequeue\\(\\) lost packets: 1;"),
        (
            Hoards,
            "^Hoards: dequeue\\(\\) returned None while packets are queued: 1;",
        ),
        (Twice, "^Twice: dequeue\\(\\) returned a packet that it had returned or dropped before$"),
        (DropsAndReturns, "returned a packet that it had returned or dropped before$"),
        (DropsTwice, "drop\\(\\) of a packet that has left its queue$"),
        (RefusesAndKeeps, "returned a packet that it had returned or dropped before$"),
        (MarksWhatHasLeft, "mark\\(\\) of a packet that has left its queue$"),
        (Past, "dequeue\\(\\) returned the time .*, which is not after now, "),
        (Now, "dequeue\\(\\) returned the time .*, which is not after now, "),
        (Hesitates, "^Hesitates returned a time \\(NotBefore\\) 100000 times in a row and no packet; return the time"),
        (Nan, "dequeue\\(\\) returned the time nan, which is not after now, "),
        (Minus, "dequeue\\(\\) returned the time -inf, which is not after now, "),
        (Garbage, "dequeue\\(\\) returned \\['a', 'list'\\]; it returns a packet, None, or a time in seconds"),
        (Truth, "dequeue\\(\\) returned True; it returns a packet, None, or a time in seconds"),
        (KeepsNumbers, "enqueue\\(\\) returned 1; it returns True or None for a packet that it keeps, False for one"),
    ],
)
@pytest.mark.parametrize("source", ["home", "wifi-house"])
def test_an_error_of_a_queue_is_reported(queue: Any, said: str, source: str) -> None:
    more = LINK if source == "home" else {"duration": "4s"}
    with pytest.raises(quell.InputError, match=said) as caught:
        quell.run(source, aqm=queue, **more)
    assert "\n" not in str(caught.value)


def test_packets_of_another_run_are_refused() -> None:
    with pytest.raises(quell.InputError, match="of another queue or run; does an attribute of the class hold packets"):
        quell.compare(aqm=[OfTheClass], seeds=2, **LINK)


class Raises(Fifo):
    def dequeue(self, now: float) -> Any:
        if now > 1:
            raise ZeroDivisionError(f"at {now:.1f}")
        return super().dequeue(now)


class RaisesAtArrival(Fifo):
    def enqueue(self, packet: Packet, now: float) -> Any:
        raise LookupError("no room")


class FewArguments(Fifo):
    def enqueue(self, packet: Packet) -> Any:  # type: ignore[override]
        return True


@pytest.mark.parametrize(
    ("queue", "error", "said", "where"),
    [
        (Raises, ZeroDivisionError, "at 1.0", 'raise ZeroDivisionError(f"at {now:.1f}")'),
        (RaisesAtArrival, LookupError, "no room", 'raise LookupError("no room")'),
        (FewArguments, TypeError, "takes 2 positional arguments but 3 were given", "run_each"),
    ],
)
def test_an_exception_of_a_queue_is_raised_with_its_traceback(
    queue: Any, error: type[Exception], said: str, where: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        quell.compare(aqm=["fq_codel", queue, "pfifo"], **LINK)
    assert where in "".join(traceback.format_exception(caught.value))


def test_a_queue_that_cannot_be_made_ends_the_run() -> None:
    made: list[int] = []

    def second_time() -> Fifo:
        made.append(0)
        if len(made) > 1:
            raise OSError("no more")
        return Fifo()

    with pytest.raises(OSError, match="no more"):
        run(second_time)
    with pytest.raises(TypeError, match="limit"):
        run(type("Needs", (Fifo,), {"__init__": lambda self, limit: None}))


def nothing(self: object, packet: Packet, now: float) -> None: ...


@pytest.mark.parametrize(
    ("aqm", "said"),
    [
        (
            type("Wrong", (), {"enque": nothing, "deque": nothing})(),
            "neither text nor an object with enqueue\\(\\) and",
        ),
        (type("Wrong", (), {"enqueue": nothing})(), "aqm: Wrong has enqueue\\(\\) but no dequeue\\(\\); docs"),
        (type("Wrong", (), {"enqueue": nothing}), "aqm: Wrong has enqueue\\(\\) but no dequeue\\(\\); docs"),
        (type("Wrong", (), {"dequeue": nothing})(), "aqm: Wrong has dequeue\\(\\) but no enqueue\\(\\); docs"),
        (type("Wrong", (), {}), "Wrong has no methods enqueue\\(\\) and dequeue\\(\\)"),
        (lambda: "codel", "str has no methods enqueue\\(\\) and dequeue\\(\\)"),
        (type("codel", (Fifo,), {}), "the queue's name \"codel\" is that of quell's own codel; choose another"),
        (type("Spaces", (Fifo,), {"name": " "}), 'the queue\'s name " " is empty'),
        ([Fifo(1), Fifo(2)], "two queues are called Fifo; give them names: an attribute `name`"),
        ([Fifo(), None], "None is neither text nor an object"),
    ],
)
def test_an_invalid_queue_is_refused_before_the_run(aqm: Any, said: str) -> None:
    with pytest.raises(quell.InputError, match=said) as caught:
        quell.compare(aqm=aqm, **LINK)
    assert "\n" not in str(caught.value)


def test_an_object_that_cannot_be_copied_is_refused_with_the_remedy() -> None:
    class Locked(Fifo):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    class Guarded:
        period = 0.1
        lock = None

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def decide(self, gauges: Any) -> None: ...

    for aqm, name in ((Locked(), "Locked"), (("fifo limit 100", Guarded()), "Guarded")):
        with pytest.raises(quell.InputError, match=f"aqm: {name} cannot be copied.*aqm=\\[lambda: {name}\\(\\)\\]"):
            quell.compare(aqm=[aqm], seeds=1, **LINK)
    assert quell.compare(aqm=[Locked], seeds=1, **LINK)["queue"].to_list() == ["Locked"]


def test_names_distinguish_two_of_a_class() -> None:
    short = Fifo(10)
    short.name = "short"  # type: ignore[attr-defined]
    assert quell.compare(aqm=[Fifo(), short], seeds=1, **LINK)["queue"].to_list() == ["Fifo", "short"]
    once: list[Aqm] = [Fifo, Fifo]
    assert quell.compare(aqm=once, seeds=1, **LINK)["queue"].to_list() == ["Fifo"]


def test_a_controller_has_no_knobs_to_turn_in_it() -> None:
    class Idle:
        period = 0.1

        def decide(self, gauges: object) -> None:
            return None

    with pytest.raises(quell.InputError, match="Fifo is written in Python and has no knobs"):
        quell.run(aqm=Fifo(), controller=Idle(), **LINK)


def test_a_capture_of_it_is_like_any_other(tmp_path: Path) -> None:
    own, python = tmp_path / "own.pcapng", tmp_path / "python.pcapng"
    quell.run(aqm="pfifo limit 30", pcap=own, **LINK)
    quell.run(aqm=Fifo(30), pcap=python, **LINK)
    assert own.read_bytes() == python.read_bytes()
    with pytest.raises(quell.InputError):
        quell.run(aqm=Twice, pcap=tmp_path / "none.pcapng", **LINK)
    assert not (tmp_path / "none.pcapng").exists()


def test_control_c_ends_it_and_keeps_what_is_done() -> None:
    class Stops(Fifo):
        def dequeue(self, now: float) -> Any:
            if now > 1:
                raise KeyboardInterrupt
            return super().dequeue(now)

    with pytest.raises(KeyboardInterrupt):
        run(Stops)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "runs.json: no result records: the list is empty; name a file written by"),
        ("[{}]", "runs.json: no result records: missing field `scenario`"),
        ('{"queue": 3}', "runs.json: no result records: "),
        ("[1, 2]", "runs.json: no result records: "),
        ("[{", "runs.json: no result records: EOF while parsing"),
    ],
)
def test_a_file_without_records_is_refused(text: str, said: str, tmp_path: Path, quell: Quell) -> None:
    (tmp_path / "runs.json").write_text(text)
    done = quell("show", "runs.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def packets_per_cpu_s(queue: Callable[[], Fifo]) -> float:
    frame = quell.compare(aqm=[queue], seeds=3, rate="100mbit", rtt="20ms", flows=["cubic:10"], duration="10s")
    return float(frame["packets_per_cpu_s"].max() or 0)  # type: ignore[arg-type]


def test_it_is_fast_enough() -> None:
    assert packets_per_cpu_s(Fifo) > 300_000


def test_the_example_runs(tmp_path: Path) -> None:
    records = tmp_path / "runs.json"
    command = [sys.executable, "examples/own_queue.py", str(records)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "OwnCoDel" in done.stdout
    assert cli.call(["show", str(records)]) == 0
    by_name = {r["queue"]: r for r in json.loads(records.read_text())}
    assert by_name["TailDrop"]["trace_hash"] == by_name["pfifo"]["trace_hash"]
    assert by_name["OwnCoDel"]["sojourn_ms"]["p95"] == pytest.approx(by_name["codel"]["sojourn_ms"]["p95"], rel=0.1)


def test_words_that_are_parsed_compare_hash_pickle_and_are_written_shortly() -> None:
    long, short = _core.Queue("codel limit 1000p target 5ms ecn"), _core.Queue("codel ecn")
    assert str(long) == str(short) == _core.queue("codel ecn")
    assert long == short
    assert {long} == {short}
    assert long != _core.Queue("codel")
    assert long != "codel ecn"
    assert pickle.loads(pickle.dumps(long)) == long
    with pytest.raises(quell.InputError, match="unknown queue"):
        _core.Queue("frob")


def test_a_queue_is_parsed_once_before_all_runs(tmp_path: Path) -> None:
    """The queue's model is read then, and not again for each run."""
    shipped = ROOT / "crates/quell-link/models/rl-aqm.safetensors"
    model = tmp_path / "model.safetensors"
    model.write_bytes(shipped.read_bytes())
    (queue,) = parse_all([f"rlaqm model {model}"])
    model.unlink()
    scenario = quell.scenario("home", duration="3s", warmup="1s", seeds=2)
    outcome = experiment.run_jobs(scenario, experiment.plan(scenario, [queue]))
    assert len(outcome.records) == 2
