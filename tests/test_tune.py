"""`quell tune`: the search, the recommendation, and the printed lines."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import random
import re
import signal
import struct
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL, Quell
from oracle import in_guest
from quell import _core
from quell._core import InputError
from quell.experiments import experiment
from quell.inputs import speedtest, tc
from quell.tune import aims, install, judge, netlink, now, page, search, show, space, sqm, targets
from quell.tune.line import NOTHING, Line, Shaped, at_home, of_scenario
from quell.tune.search import Bench, Plan, Run
from quell.tune.space import Setting

SMALL = ["--trials", "12", "--seeds", "2", "--duration", "6s", "--queues", "cake,fq_codel"]


def home(rate: str = "10mbit/2mbit", framing: str | None = "docsis", words: str | None = None) -> Line:
    return at_home(rate, "30ms", framing, None, aims.Aims(words).weights, "6s", 1)


def moved(kind: str, lacks: frozenset[str] = frozenset()) -> Setting:
    """Return a setting in which every option differs from its default."""
    values: dict[str, Any] = {}
    for option in space.options(kind):
        choices = [choice for choice in option.choices if choice not in lacks]
        values[option.name] = choices[-1] if choices else 88.5 if option.step else int(option.low) + 7
        if option.name in lacks:
            values[option.name] = option.default
    return space.of(kind, values)


# The command. --------------------------------------------------------------------------------------------------------


def test_it_prints_a_table_and_lines_and_writes_what_programs_read(quell: Quell, tmp_path: Path) -> None:
    done = quell("tune", "--rate", "10mbit/2mbit", "--framing", "docsis", *SMALL, "--json", "out.json", columns=80)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.split("# commands")[0].splitlines())) <= 80 or "offered" in done.stdout
    result = json.loads((tmp_path / "out.json").read_text())
    assert {
        "target", "lines", "down", "up", "now", "default", "tuned", "held_out", "why", "evaluations", "wall_s",
    } <= result.keys()  # fmt: skip
    assert result["target"] == "tc"
    assert result["evaluations"] == 12
    for line in result["lines"]:
        assert line in done.stdout
    for way, rate in (("down", 10e6), ("up", 2e6)):
        assert _core.queue(result[way]["queue"])
        assert 0.7 * rate <= _core.quantity(result[way]["rate"], "rate") <= rate
    for key in ("now", "default", "tuned", "held_out"):
        metrics = result[key]
        assert list(metrics) == ["grade", "grade_ms", "rpm", "mos", "goodput_mbps", "p95_ms"], key
        for number in (metrics["grade_ms"], metrics["rpm"], *metrics["goodput_mbps"].values(), metrics["mos"]):
            assert number["low"] <= number["mean"] <= number["high"]
    # A modem's FIFO of 250 ms against any shaper: the difference does not depend on seeds.
    assert result["now"]["p95_ms"]["up"]["mean"] > 5 * result["tuned"]["p95_ms"]["up"]["mean"]


def test_json_alone_on_standard_output_and_the_same_again(quell: Quell) -> None:
    words = ["tune", "--rate", "10mbit/2mbit", *SMALL, "--json", "-"]
    first, second = (json.loads(quell(*words, "--jobs", jobs).stdout) for jobs in ("1", "2"))
    for result in (first, second):
        del result["wall_s"]
    assert first == second


def test_a_page_shows_the_search_the_front_and_the_lines(quell: Quell, tmp_path: Path) -> None:
    words = ["--rate", "10mbit/2mbit", "--framing", "docsis", "--for", "bulk,responsive", *SMALL]
    done = quell("tune", *words, "--html", "tune.html", "--json", "out.json")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "tune.html").read_text()
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)[0])
    result = json.loads((tmp_path / "out.json").read_text())
    search_ = data["figures"][0]["panels"][0]["lines"]
    assert sum(len(one["points"]) for one in search_ if one["kind"] == "dots") == result["evaluations"]
    best = search_[-1]["points"]
    assert [value for _, value in best] == sorted(value for _, value in best)
    for line in result["lines"]:
        assert html.escape(line) in text
    assert "quell tune --rate 10mbit/2mbit" in text


def test_the_front_is_what_nothing_surpasses_and_two_aims_conflict_where_it_is_long() -> None:
    assert page.front([(1, 1), (3, 1), (2, 2), (1, 3), (2, 1), (3, 1)]) == [(1, 3), (2, 2), (3, 1)]
    settings = [space.default(kind) for kind in ("cake", "fq_codel", "pie")]

    def scores(*values: tuple[float, float, float]) -> page.Scores:
        return {s: dict(zip(("calls", "bulk", "fair"), v, strict=True)) for s, v in zip(settings, values, strict=True)}

    assert page.conflict(scores((0.9, 0.5, 0.5), (0.8, 0.9, 0.4), (0.7, 0.6, 0.6))) == ("bulk", "fair")
    assert page.conflict(scores((0.9, 0.9, 0.9), (0.8, 0.8, 0.8), (0.7, 0.6, 0.6))) is None, "one is best for all"
    assert page.conflict(scores((0.9, 0.5, 0.5), (0.899, 0.9, 0.5), (0.7, 0.6, 0.1))) is None, "next to nothing is lost"


def test_a_scenario_is_tuned_with_its_own_traffic(quell: Quell) -> None:
    done = quell("tune", "home", "--for", "bulk", *SMALL, "--target", "live", "--json", "-")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["tuned"]["mos"] is None, "its call is plain packets"
    assert result["tuned"]["rpm"] is not None
    keys = tomllib.loads("\n".join(result["lines"]))
    assert keys["dev"] == "eth0"
    assert _core.quantity(keys["ingress"], "rate") <= 15_000_000


def test_a_file_of_flent_is_a_line_and_default_aims_are_those_that_it_measures(quell: Quell, tmp_path: Path) -> None:
    loads = ["--flow", "cubic:2", "--flow", "cubic:1"]
    made = quell("run", "home", *loads, "--duration", "12s", "--flent", "rrul.flent.gz")
    assert made.returncode == 0, made.stderr
    one_way = quell("tune", "rrul.flent.gz", *SMALL)
    assert one_way.returncode == 2, "it says nothing of the upload"
    assert "link.up" in one_way.stderr
    (tmp_path / "both.toml").write_text(
        '[link]\nrate="10mbit"\n[link.up]\nrate="2mbit"\n'
        '[[flow]]\ncount=2\nrtt="30ms"\n[[flow]]\ncount=2\nrtt="30ms"\ndirection="up"\n'
    )
    assert quell("run", "both.toml", "--duration", "12s", "--flent", "rrul.flent.gz").returncode == 0
    done = quell("tune", "rrul.flent.gz", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "for bulk,responsive,fair" in done.stdout


def test_questions_replace_the_options(tmp_path: Path) -> None:
    # After a wrong answer the question is repeated; an empty answer takes the default.
    answers = ["fast", "10mbit/2mbit", "", "cabel", "cable", "bulk,bulk", "bulk", "sqm", "wan"]
    words = [str(QUELL), "tune", "--ask", *SMALL]
    done = subprocess.run(words, input="\n".join(answers) + "\n", cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "10/2 Mbit/s, 30 ms, docsis; for bulk" in done.stdout
    assert "# /etc/sqm/wan.iface.conf" in done.stdout
    for text in ("give both directions", "did you mean `cable`", "bulk is there twice"):
        assert text in done.stderr
    # At the end of the answers it stops.
    done = subprocess.run(words, input="", cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (130, "")


def test_the_name_of_a_line_is_one_line() -> None:
    on = dataclasses.replace(at_home("5mbit/1mbit", "20ms", None, None, {"bulk"}, None, 1), name="x\n; touch y")
    assert show.heading(on, "bulk").plain.startswith("x\\n; touch y  ")


def test_a_fleet_gets_a_row_for_each_line(quell: Quell, tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text(
        "name,rate,rtt,framing\nanna,10mbit/2mbit,20ms,docsis\n'ben, 2',5mbit/1mbit,,\n".replace("'", '"')
    )
    done = quell("tune", "--fleet", "lines.csv", *SMALL, "--target", "openwrt")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["name"] for row in rows] == ["anna", "ben, 2"]
    for row, rate in zip(rows, (10e6, 5e6), strict=True):
        assert _core.queue(row["down_queue"])
        assert 0.7 * rate <= _core.quantity(row["down_rate"], "rate") <= rate
        assert row["offered"] in ("tuned", "default")
        assert float(row["objective"]) >= float(row["objective_default"]) - 1e-9
    assert "docsis" in rows[0]["up_queue"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\nanna\n", "lines.csv:1: no column `rate`"),
        ("rate\n", "has no rows"),
        ("rate,rtt\n5mbit/1mbit\n", "lines.csv:2: does not have 2 columns"),
        ("rate,rtt\n5mbit/1mbit,1\r0ms\n", "lines.csv:2: not CSV: new-line character"),
        ("rate,target\n5mbit/1mbit,tc\n", "`target` is one that is written"),
        ("rate\n5mbit/1mbit\n5mbit\n", "lines.csv:3: --rate 5mbit: give both directions"),
    ],
)
def test_a_fleet_that_is_wrong_is_one_line(quell: Quell, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "lines.csv").write_text(text)
    done = quell("tune", "--fleet", "lines.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "10mbit"], "both directions"),
        ([], "name the line"),
        (["--rate", "10mbit/fast"], "--rate: "),
        (["--rate", "10mbit/2mbit", "--rtt", "9s"], "--rtt 9s"),
        (["--rate", "10mbit/2mbit", "--for", "call"], "did you mean `calls`"),
        (["--rate", "10mbit/2mbit", "--for", "bulk:2,bulk"], "bulk is there twice"),
        (["--rate", "10mbit/2mbit", "--for", "bulk:0"], "a weight is a number above 0"),
        (["--rate", "10mbit/2mbit", "--framing", "docsys"], "did you mean `docsis`"),
        (["--rate", "10mbit/2mbit", "--target", "openwrt", "--queues", "pie"], "does not support it"),
        (["--rate", "10mbit/2mbit", "--target", "dosbox"], "--target: "),
        (["--rate", "10mbit/2mbit", "--queues", "pastry"], "--queues: "),
        (["--rate", "10mbit/2mbit", "--target", "live", "--framing", "pppoe-ptm"], "PTM"),
        (["--rate", "10mbit/2mbit", "--queues", "pie", "--framing", "pppoe-ptm"], "on a line with pppoe-ptm"),
        (["--rate", "10mbit/2mbit", "--dev", "eth0; reboot"], "--dev eth0; reboot"),
        (["--rate", "10mbit/2mbit", "--now", "hello"], "--now: these are not lines of tc"),
        (["--rate", "10mbit/2mbit", "--json", "no/such/folder.json"], "--json no/such/folder.json"),
        (["home", "--for", "calls"], "no flow of the scenario measures it"),
        (["home", "--rate", "1mbit/1mbit"], "leave out one of the two"),
        (["lte"], "constant rate"),
        (["--ask", "--rate", "10mbit/2mbit"], "leave out --rate"),
        (["home", "--speedtest", "no-such.json"], "leave out FILE"),
        (["--speedtest", "no-such.json"], "no-such.json"),
        (["no-such"], "no-such"),
    ],
)
def test_bad_input_is_one_line(quell: Quell, words: list[str], message: str) -> None:
    done = quell("tune", *words, "--trials", "1", "--duration", "2s")
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_a_first_answer_comes_before_the_search(quell: Quell) -> None:
    done = quell("tune", "--rate", "10mbit/2mbit", *SMALL)
    assert done.returncode == 0, done.stderr
    first, *lines = done.stderr.splitlines()
    said = r"quell: a first answer: \w+ with its defaults at 90 % of the rates: objective 0\.\d+, now 0\.\d"
    assert re.match(said, first)
    assert "(one run each)" in first
    assert lines[0] == "tc qdisc del dev eth0 root 2>/dev/null"
    assert sum("bandwidth" in line or "htb rate" in line for line in lines) == 2, "both directions"
    assert "a first answer" not in quell("tune", "--rate", "10mbit/2mbit", *SMALL, "--json", "-").stderr


def test_rates_in_bytes_per_second_are_noted(quell: Quell, tmp_path: Path) -> None:
    done = quell("tune", "--rate", "1mbps/250kbps", "--trials", "1", "--seeds", "2", "--duration", "2s", "--json", "-")
    assert done.returncode == 0, done.stderr
    down, up = done.stderr.splitlines()[:2]
    assert down.startswith('quell: --rate: "1mbps" is read as 8mbit')
    assert up.startswith('quell: --rate: "250kbps" is read as 2mbit')
    (tmp_path / "lines.csv").write_text("rate\n1mbps/2mbit\n")
    done = quell("tune", "--fleet", "lines.csv", "--trials", "1", "--seeds", "2", "--duration", "2s")
    assert done.returncode == 0, done.stderr
    assert 'quell: --fleet lines.csv:2: rate: "1mbps" is read as 8mbit' in done.stderr


def test_an_interface_that_is_assumed_is_noted_with_the_lines_and_on_the_page(quell: Quell, tmp_path: Path) -> None:
    words = ["--rate", "10mbit/2mbit", *SMALL, "--target", "openwrt", "--html", "tune.html"]
    comment = "eth0 is assumed to be the interface to the modem; --dev names another. `ifstatus wan` on the router"
    done = quell("tune", *words)
    assert done.returncode == 0, done.stderr
    assert f"# {comment}" in done.stdout
    paragraphs = re.findall(r'<p class="facts">(.*?)</p>', (tmp_path / "tune.html").read_text())
    assert paragraphs[1] == "The lines are commands of uci for SQM on OpenWrt."
    assert paragraphs[2].startswith(comment)
    assert paragraphs[-1] == "LuCI shows the settings at Network, SQM QoS."
    done = quell("tune", *words, "--dev", "eth0")
    assert done.returncode == 0, done.stderr
    assert "is assumed" not in done.stdout + (tmp_path / "tune.html").read_text()


def test_the_present_queue_stays_if_no_setting_is_better(quell: Quell, tmp_path: Path) -> None:
    words = ["--rate", "10mbit/2mbit", "--trials", "1", "--seeds", "2", "--duration", "6s", "--queues", "fq_codel"]
    done = quell("tune", *words, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert "Leave it" not in done.stdout
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["leave"] is False
    (tmp_path / "now.txt").write_text("\n".join(result["lines"]))
    done = quell("tune", *words, "--now", "now.txt", "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert "Leave it as it is" in done.stdout
    assert "+0.000 ±0.000" in done.stdout
    assert "a first answer" not in done.stderr, "it is what runs"
    assert json.loads((tmp_path / "out.json").read_text())["leave"] is True


# Speed tests. --------------------------------------------------------------------------------------------------------

OOKLA = {
    "type": "result", "ping": {"jitter": 0.6, "latency": 11.4}, "download": {"bandwidth": 11_625_000, "bytes": 1},
    "upload": {"bandwidth": 2_500_000, "bytes": 1}, "packetLoss": 0,
}  # fmt: skip
"""Format of Ookla's speedtest 1.2 with --format=json; bandwidth is in bytes per second."""


def stats(way: str, medians: dict[Any, float]) -> list[dict[str, Any]]:
    """Return entries of github.com/code-inflation/cfspeedtest: measurements.rs (1.x), engine/types.rs (2.x)."""
    return [{"test_type": way, "payload_size": size, "median": value, "max": 999.0} for size, value in medians.items()]


CLOUDFLARE_1 = stats("Download", {100_000: 31.0, 10_000_000: 93.0}) + stats("Upload", {100_000: 9.0, 1_000_000: 20.0})
CLOUDFLARE_2 = {
    "metadata": {"colo": "FRA"}, "latency": {"avg_ms": 14.0, "min_ms": 11.4, "max_ms": 30.0, "samples": []},
    "download": {"overall_mbps": 70.0, "measurements": [], "stats": stats("download", {"K100": 31.0, "M10": 93.0})},
    "upload": {"overall_mbps": 15.0, "measurements": [], "stats": stats("upload", {"K100": 9.0, "M1": 20.0})},
}  # fmt: skip


@pytest.mark.parametrize(
    ("plain", "rtt"), [(OOKLA, "11ms"), (CLOUDFLARE_1, None), (CLOUDFLARE_2, "11ms")], ids=["Ookla", "1.x", "2.x"]
)
def test_a_speed_test_is_a_line(tmp_path: Path, plain: Any, rtt: str | None) -> None:
    (tmp_path / "test.json").write_text(json.dumps(plain))
    found = speedtest.load(str(tmp_path / "test.json"))
    assert (found.rate, found.rtt) == ("88350kbit/19000kbit", rtt), "5 % below what was measured"
    assert "93.0/20.0 Mbit/s" in found.summary()


def test_a_speed_test_can_be_piped_and_overridden() -> None:
    words = [str(QUELL), "tune", "--speedtest", "-", "--rtt", "40ms", *SMALL, "--trials", "2", "--for", "bulk"]
    done = subprocess.run(words, input=json.dumps(OOKLA), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "88.35/19 Mbit/s, 40 ms" in done.stdout
    assert done.stderr.startswith("quell: Ookla's speedtest measured 93.0/20.0 Mbit/s, 11 ms; 5 % less is taken.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "--speedtest"),
        ("{}", "has no rates of a speed test; write it with"),
        ("[1, null, {}]", "has no rates"),
        ('{"download": 5, "upload": {"bandwidth": true}}', "has no rates"),
        ('{"download": {"bandwidth": 1e400}, "upload": {"bandwidth": 1}}', "has no rates"),
        ('{"download": {"bandwidth": 1' + "0" * 400 + '}, "upload": {"bandwidth": 1}}', "has no rates"),
        ('{"download": {"bandwidth": 100}, "upload": {"bandwidth": 1e9}}', "rates are to be from 0.1"),
        (
            '{"download": {"bandwidth": 1e6}, "upload": {"bandwidth": 1e6}, "ping": {"latency": 1e300}}',
            "1e+300 ms: a round trip is to be at most 10000 ms",
        ),
    ],
)
def test_an_invalid_speed_test_is_refused_in_one_line(quell: Quell, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "test.json").write_text(text)
    done = quell("tune", "--speedtest", "test.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_ctrl_c_gives_the_best_so_far(tmp_path: Path) -> None:
    words = ["tune", "--rate", "10mbit/2mbit", "--trials", "100000", "--seeds", "2", "--duration", "5s", "--json", "t"]
    (tmp_path / "t").write_text("of a whole search")
    for seconds in (2, 8, 30):  # on a busy machine the search starts later
        process = subprocess.Popen(
            [QUELL, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            deadline = time.monotonic() + 60
            while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == 130, err
        assert "Traceback" not in err
        if "judging the best so far" in err:
            break
    assert "tc qdisc" in out, err
    assert (tmp_path / "t").read_text() == "of a whole search"
    result = json.loads((tmp_path / "t.interrupted").read_text())
    assert 0 < result["evaluations"] < 100_000
    assert result["tuned"]["goodput_mbps"]["down"]["mean"] > 0


# The search and its judge. -------------------------------------------------------------------------------------------


def test_the_search_finds_what_a_grid_finds() -> None:
    """The search chooses only the shaper's rates, for bulk alone, so the highest rates are the best."""
    line, bench = home(words="bulk"), Bench(aims.Aims("bulk"))
    lacks = frozenset(option.name for option in space.OPTIONS["fq_codel"])
    found = search.search(bench, Plan(line, ["fq_codel"], 150, 1, lacks), lambda _: None)
    best, score = found.best()
    grid = {}
    for down in (90.0, 95.0, 99.0, 100.0):
        for up in (90.0, 95.0, 99.0, 100.0):
            values = dict(space.default("fq_codel").values) | {space.RATE_DOWN: down, space.RATE_UP: up}
            setting = space.of("fq_codel", values)
            bench.run([Run(line, search.shapes(setting, line), 0)])
            grid[down, up] = bench.value(Run(line, search.shapes(setting, line), 0)) or 0.0
    assert len(found.scores) == 150
    assert score >= 0.995 * max(grid.values()), (best, grid)


def test_a_search_that_has_converged_still_finds_new_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    line, bench = home(), Bench(aims.Aims("bulk"))
    monkeypatch.setattr(bench, "run", lambda runs, on_done=None: None)
    monkeypatch.setattr(bench.aims, "check", lambda records, line: None)

    def value(run: Run) -> float:
        numbers = [float(number) for shape in run.shapes for number in re.findall(r"\d+", shape.queue)]
        return -sum(abs(number - 90) for number in numbers)

    monkeypatch.setattr(bench, "value", value)
    proposed = 0
    propose = Plan.propose

    def counted(*arguments: Any) -> Any:
        nonlocal proposed
        proposed += 1
        return propose(*arguments)

    monkeypatch.setattr(Plan, "propose", counted)
    found = search.search(bench, Plan(line, ["cake"], 3000, 1), lambda _: None)
    assert len(found.scores) == 3000
    assert proposed < 3 * 3000


def test_fewer_trials_than_disciplines_are_the_defaults() -> None:
    line, bench = home(words="bulk"), Bench(aims.Aims("bulk"))
    found = search.search(bench, Plan(line, ["sfq", "codel", "pie"], 1, 1), lambda _: None)
    assert list(found.scores) == [space.default(kind) for kind in ("sfq", "codel", "pie")]


def test_a_discipline_with_few_settings_ends_its_search() -> None:
    line, bench = home(words="bulk"), Bench(aims.Aims("bulk"))
    lacks = frozenset({"limit", "quantum", space.RATE_DOWN, space.RATE_UP})
    found = search.search(bench, Plan(line, ["sfq"], 100, 1, lacks), lambda _: None)
    assert [dict(setting.values)["headdrop"] for setting in found.scores] == ["taildrop", "headdrop"]


def test_a_fast_line_is_simulated_for_a_shorter_time() -> None:
    def seconds(rate: str) -> float:
        keys = at_home(rate, None, None, None, aims.Aims().weights, None, 1).keys
        assert _core.quantity(keys["warmup"], "time") * 5 == _core.quantity(keys["duration"], "time")
        return _core.quantity(keys["duration"], "time") / 1e9

    assert [seconds(rate) for rate in ("50mbit/10mbit", "300mbit/20mbit", "1gbit/50mbit", "10gbit/10gbit")] == [
        20.0, 11.2, 6.2, 5.0,
    ]  # fmt: skip


def test_every_setting_sees_the_same_seeds() -> None:
    line, bench = home(), Bench(aims.Aims())
    search.search(bench, Plan(line, ["cake", "codel"], 30, 1), lambda _: None)
    seeds: dict[Any, set[int]] = {}
    for _, shapes, seed in bench.records:
        seeds.setdefault(shapes, set()).add(seed)
    assert {min(each) for each in seeds.values()} == {0}
    assert {tuple(sorted(each)) for each in seeds.values()} == {(0,), tuple(range(7))}, "30 settings: 8 remain"


def test_the_judge_uses_no_seed_of_the_search_and_other_lines() -> None:
    line, bench = home(), Bench(aims.Aims("bulk"))
    found = search.search(bench, Plan(line, ["fq_codel"], 10, 1), lambda _: None)
    before = set(bench.records)
    judged = judge.Judge(bench, line, (NOTHING, NOTHING), 2).judge(found, lambda _: None)
    after = set(bench.records) - before
    assert {seed for _, _, seed in before}.isdisjoint({seed for _, _, seed in after})
    assert len({key for key, _, _ in after}) == 7, "the line and six neighbours"
    assert judged.held_out is not None


def test_a_setting_that_is_better_only_on_the_training_line_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is ahead on the line and far behind on its neighbours."""
    line, bench = home(), Bench(aims.Aims("bulk"))
    good = space.default("fq_codel")
    trap = space.of("fq_codel", dict(good.values) | {"quantum": 300})
    monkeypatch.setattr(bench, "run", lambda runs, on_done=None: None)

    def value(run: Run) -> float:
        trapped = "quantum" in run.shapes[0].queue
        return 0.5 + (0.1 if run.line is line else -0.3) * trapped + 0.001 * (run.seed % 7)

    monkeypatch.setattr(bench, "value", value)
    monkeypatch.setattr(bench, "record", lambda run: None)
    found = search.Found({good: 0.5, trap: 0.6}, [trap, good])
    judged = judge.Judge(bench, line, (NOTHING, NOTHING), 3).judge(found, lambda _: None)
    assert (judged.tuned, judged.setting) == (False, good)
    # If it is ahead everywhere, the same setting is offered.
    monkeypatch.setattr(bench, "value", lambda run: 0.5 + 0.1 * ("quantum" in run.shapes[0].queue) + 0.001 * run.seed)
    judged = judge.Judge(bench, line, (NOTHING, NOTHING), 3).judge(found, lambda _: None)
    assert (judged.tuned, judged.setting) == (True, trap)


def test_options_that_bring_nothing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    line, bench = home(), Bench(aims.Aims("bulk"))
    whole = moved("fq_codel")
    monkeypatch.setattr(bench, "run", lambda runs, on_done=None: None)
    # Only the target matters.
    monkeypatch.setattr(bench, "value", lambda run: 0.5 + 0.1 * ("target" in run.shapes[0].queue))
    monkeypatch.setattr(bench, "record", lambda run: None)
    found = search.Found({whole: 0.6, space.default("fq_codel"): 0.5}, [whole])
    judged = judge.Judge(bench, line, (NOTHING, NOTHING), 2).judge(found, lambda _: None)
    assert judged.setting.changed() == ["target"]
    assert [reason.option for reason in judged.why] == ["target 8ms"]


def test_an_option_that_matters_on_the_line_is_not_dropped_on_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving out the target costs a sixth, the other options nothing: only those are tried on the neighbours."""
    line, bench = home(), Bench(aims.Aims("bulk"))
    whole = moved("fq_codel")
    ran: list[Run] = []
    monkeypatch.setattr(bench, "run", lambda runs, on_done=None: ran.extend(runs))
    monkeypatch.setattr(bench, "value", lambda run: 0.5 + 0.1 * ("target" in run.shapes[0].queue))
    judged = judge.Judge(bench, line, (NOTHING, NOTHING), 5)._plain(whole)
    assert judged.changed() == ["target"]
    elsewhere = [run for run in ran if run.line is not line]
    assert elsewhere and all("target" in run.shapes[0].queue for run in elsewhere)
    # 5 of 6 options are dropped one by one: six settings, each with twelve runs on the neighbours.
    assert len({(id(run.line), run.shapes, run.seed) for run in elsewhere}) == 12 * 6


def test_neighbours_differ_in_one_thing() -> None:
    line = home()
    rates = [(each.down, each.up) for each in line.neighbours()]
    assert rates[:2] == [(8_000_000, 1_600_000), (12_000_000, 2_400_000)]
    assert [each.rtt_ms for each in line.neighbours()] == [30, 30, 15, 60, 30, 30]
    counts = [sum(flow["count"] for flow in each.keys["flow"]) for each in (line, *line.neighbours()[4:])]
    assert counts[1] < counts[0] < counts[2]


# Aims. ---------------------------------------------------------------------------------------------------------------


def test_an_aim_without_a_figure_says_whether_a_flow_or_time_is_missing() -> None:
    line = home()
    record = dict.fromkeys(("applications", "flows", "hosts"), ()) | {"jain": None}
    with pytest.raises(InputError, match="--for games: no flow has measured it in 6s; give a longer --duration"):
        aims.Aims("games").check([record], line)
    with pytest.raises(InputError, match=r"--for pages: no flow of the scenario measures it; add a flow \(page\)"):
        aims.Aims("pages").check([record], line)
    # One run that measured it is enough. A run in which no page loads, as behind a bad queue, counts as if a page took
    # the measured 4.5 s of the 6 s.
    loaded = record | {"applications": [{"kind": "page", "page_load_ms": {"p50": 3000.0}}]}
    aims.Aims("pages").check([record, loaded], line)
    assert [aims.Aims("pages").scores(run, line)["pages"] for run in (record, loaded)] == [pytest.approx(0.4), 0.5]
    assert aims.Aims("games").scores(record, line) == {"games": 0.001}


def test_aims_are_scored_as_the_documents_say() -> None:
    line = home()
    flows = [{"direction": "down", "goodput_mbps": 8.0}, {"direction": "up", "goodput_mbps": 1.0}]
    applications = [
        {"kind": "call", "mos": 1 + 3.41 / 2},
        {"kind": "video_call", "freezes_per_minute": 3.0, "frame_delay_ms": {"p95": 1.0}},
        {"kind": "game", "round_trip_ms": {"p99": 80.0}},
        {"kind": "page", "page_load_ms": {"p50": 6000.0}},
        {"kind": "probe", "rpm": 500.0},
    ]
    hosts = [
        {"direction": way, "host": host, "goodput_mbps": rate}
        for way in ("down", "up")
        for host, rate in (("laptop", 3.0), ("tv", 1.0), ("phone", 0.1))
    ]
    record = {"flows": flows, "applications": applications, "hosts": hosts, "jain": None}
    scores = aims.Aims(",".join(aims.WORDS)).scores(record, line)
    # Halfway to 4.41; 3 freezes a minute; 50 ms above 30; 6 s; (80 + 50 %) / 2; 500 of 2000; (3+1)^2 / 2 / 10.
    assert scores == pytest.approx(
        {"calls": 0.5, "games": 0.5, "pages": 1 / 3, "bulk": 0.65, "responsive": 0.25, "fair": 0.8}
    )
    # Weighted geometric mean: (0.65^3 * 0.5)^(1/4).
    assert aims.Aims("bulk:3,calls").objective(record, line) == pytest.approx((0.65**3 * 0.5) ** 0.25)


# Lines to paste. -----------------------------------------------------------------------------------------------------


def every(target: str, line: Line) -> list[Setting]:
    lacks = targets.TARGETS[target].lacks
    kinds = targets.kinds(target, None, line)
    return [setting for kind in kinds for setting in (space.default(kind), moved(kind, lacks))]


@pytest.mark.parametrize("framing", [None, "docsis", "pppoe-llcsnap", "pppoe-ptm ether-vlan", "ethernet"])
def test_lines_of_tc_are_read_back_as_what_was_simulated(framing: str | None) -> None:
    line = home("50mbit/10mbit", framing)
    for setting in every("tc", line):
        down, up = search.shapes(setting, line)
        read = tc.read("\n".join(targets.tc_lines("eth0", line, down, up)))
        for side, shaped in ((read.down, down), (read.up, up)):
            assert side is not None
            assert side.rate is not None
            assert _core.queue(side.queue) == _core.queue(shaped.queue)
            assert _core.quantity(side.rate, "rate") == shaped.rate
            words = None if side.framing is None else _core.queue(f"cake {side.framing}")
            assert words == (None if framing is None else _core.queue(f"cake {framing}"))


def test_a_fifo_has_the_simulated_limit_not_that_of_an_interface() -> None:
    """Linux gives a pfifo without a limit its interface's txqueuelen: 32 packets for an ifb."""
    line = home("50mbit/10mbit")
    lines = targets.tc_lines("eth0", line, *search.shapes(space.default("pfifo"), line))
    queues = [text.partition("110: ")[2] for text in lines if "110:" in text]
    limit = next(option["default"] for option in _pfifo()["options"] if option["name"] == "limit")
    assert queues == [f"pfifo limit {limit}"] * 2


def _pfifo() -> dict[str, Any]:
    return next(kind for kind in json.loads(_core.queues()) if kind["name"] == "pfifo")


def test_lines_that_run_today_are_simulated_as_they_are() -> None:
    line = home("50mbit/10mbit")
    for setting in every("tc", line):
        down, up = search.shapes(setting, line)
        today = now.read(targets.tc_lines("eth0", line, down, up))
        assert [shaped.rate for shaped in today] == [down.rate, up.rate]
    assert now.read(["tc qdisc replace dev eth0 root fq_codel"]) == (NOTHING, NOTHING), "no shaper"
    only_up = now.read(["tc qdisc replace dev eth0 root cake bandwidth 9mbit"])
    assert only_up == (NOTHING, Shaped("cake bandwidth 9mbit", 9_000_000))


def test_networkd_has_every_word_of_what_it_is_given() -> None:
    line = home("50mbit/10mbit", "docsis")
    lines = targets.TARGETS["networkd"].lines("wan", line, *search.shapes(moved("cake", frozenset({"ingress"})), line))
    up = lines[: lines.index("")]
    assert up[1:] == [
        "[CAKE]", "Parent=root", "Bandwidth=8850K", "OverheadBytes=18", "MPUBytes=64", "NAT=yes", "RTTSec=12ms",
        "FlowIsolationMode=dual-srchost", "PriorityQueueingPreset=diffserv4", "AckFilter=aggressive",
    ]  # fmt: skip
    fq_codel = targets.TARGETS["networkd"].lines("wan", line, *search.shapes(moved("fq_codel"), line))
    for text in ("[HierarchyTokenBucketClass]", "Rate=44250K", "OverheadBytes=4", "TargetSec=8ms", "PacketLimit=107"):
        assert text in fq_codel


# manual.mikrotik.com/docs/cli-reference/queue/type: the values of arguments that are not a number, rate or time.
ROUTEROS = {
    "kind": "bfifo pfifo red sfq pcq mq-pfifo none codel fq-codel cake",
    "cake-atm": "none atm ptm",
    "cake-diffserv": "diffserv3 diffserv4 diffserv8 besteffort precedence",
    "cake-flowmode": "flowblind srchost dsthost hosts flows dual-srchost dual-dsthost triple-isolate",
    "cake-ack-filter": "none filter aggressive",
} | dict.fromkeys(("cake-nat", "cake-wash", "codel-ecn", "fq-codel-ecn"), "yes no")
ROUTEROS_NUMBERS = {
    "cake": ("bandwidth", "overhead", "mpu", "rtt"),
    "codel": ("limit", "interval", "target"),
    "fq-codel": ("limit", "interval", "target", "flows", "quantum"),
    "pfifo": ("limit",),
}


@pytest.mark.parametrize("framing", [None, "docsis", "pppoe-ptm", "pppoe-llcsnap"])
def test_routeros_knows_every_argument(framing: str | None) -> None:
    line = home("50mbit/10mbit", framing)
    for setting in every("routeros", line):
        lines = targets.TARGETS["routeros"].lines("ether1", line, *search.shapes(setting, line))
        types = [line.split()[2:] for line in lines if line.startswith("/queue/type add")]
        assert [words[0] for words in types] == ["name=quell-down", "name=quell-up"]
        for key, value in (word.split("=") for words in types for word in words[1:]):
            if key in ROUTEROS:
                assert value in ROUTEROS[key].split()
            else:
                kind, _, option = key.rpartition("-")
                assert option in ROUTEROS_NUMBERS[kind]
                assert re.fullmatch(r"\d+(ms|k)?", value), (key, value)
        shaped = any(word.startswith("cake-bandwidth=") for word in types[0])
        assert shaped == ("max-limit=" not in lines[-1]), "one shaper"


def test_routeros_has_the_download_first_on_the_interface_to_the_line() -> None:
    line = home("50mbit/10mbit", "docsis")
    lines = targets.TARGETS["routeros"].lines(
        "ether1", line, *search.shapes(moved("cake", frozenset({"ingress"})), line)
    )
    assert lines[-1] == "/queue/simple add name=quell target=ether1 queue=quell-down/quell-up"
    assert lines[6] == (
        "/queue/type add name=quell-up kind=cake cake-bandwidth=8850k cake-rtt=12ms cake-diffserv=diffserv4 "
        "cake-flowmode=dual-srchost cake-nat=yes cake-ack-filter=aggressive cake-wash=no cake-overhead=18 "
        "cake-mpu=64 cake-atm=none"
    )
    plain = home("50mbit/10mbit")
    lines = targets.TARGETS["routeros"].lines("ether1", plain, *search.shapes(space.default("fq_codel"), plain))
    assert lines[-1].endswith("max-limit=45000k/9000k bucket-size=0.001/0.001")
    assert targets.kinds("routeros", None, line) == ["cake"], "its htb does not count framing"
    with pytest.raises(InputError, match="--queues codel: --target routeros does not support it on a line with docsis"):
        targets.kinds("routeros", "codel", line)


def test_sqm_configurations() -> None:
    line = home("50mbit/10mbit", "docsis")
    cake = search.shapes(moved("cake"), line)
    uci = targets.TARGETS["openwrt"].lines("eth0.2", line, *cake)
    assert uci[:2] == ["uci -q delete sqm.eth0_2", "uci set sqm.eth0_2=queue"]
    for text in ("interface='eth0.2'", "download='44250'", "upload='8850'", "script='layer_cake.qos'"):
        assert f"uci set sqm.eth0_2.{text}" in uci
    words = "docsis nat rtt 12ms dual-srchost diffserv4 ack-filter-aggressive"
    assert f"uci set sqm.eth0_2.eqdisc_opts='{words}'" in uci
    assert uci[-2:] == ["uci commit sqm", "/etc/init.d/sqm restart"]
    plain = targets.TARGETS["sqm"].lines("eth0", line, *search.shapes(moved("fq_codel"), line))
    for text in ('QDISC="fq_codel"', 'ITARGET="8ms"', 'EQDISC_OPTS="interval 17ms quantum 307"', 'OVERHEAD="4"'):
        assert text in plain


UCI_OPTIONS = """
    interface enabled download upload qdisc script squash_dscp squash_ingress iqdisc_opts eqdisc_opts linklayer
    itarget etarget ilimit elimit overhead tcMPU linklayer_adaptation_mechanism qdisc_advanced
    qdisc_really_really_advanced linklayer_advanced
"""
"""openwrt.org's page on /etc/config/sqm, and run-openwrt.sh of sqm-scripts; the last three are LuCI's."""


@pytest.mark.parametrize("framing", [None, "docsis", "pppoe-llcsnap"])
@pytest.mark.parametrize("dev", ["pppoe-wan", "eth0'; touch made; '", "eth0`touch made`$(touch made)\n\ntouch made\n"])
def test_a_shell_passes_every_option_to_uci_and_does_nothing_else(
    tmp_path: Path, dev: str, framing: str | None
) -> None:
    line = home("50mbit/10mbit", framing)
    target = targets.TARGETS["openwrt"]
    for setting in every("openwrt", line):
        *lines, restart = target.lines(dev, line, *search.shapes(setting, line))
        assert restart == "/etc/init.d/sqm restart"
        script = "\n".join(["uci() { printf '%s\\0' \"$@\"; }", *lines])
        done = subprocess.run(["sh", "-eu"], input=script, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])
        told = done.stdout.split("\0")
        values = dict(word.partition("=")[::2] for word in told if "=" in word)
        name = sqm.section(dev)
        assert values.pop(f"sqm.{name}") == "queue"
        assert values[f"sqm.{name}.interface"] == dev
        assert values[f"sqm.{name}.qdisc"] == setting.kind
        assert {path.removeprefix(f"sqm.{name}.") for path in values} <= set(UCI_OPTIONS.split())
        # A value that is empty would delete the option, and some versions then print an error.
        assert all(values.values())


def test_quell_live_takes_its_configuration(tmp_path: Path) -> None:
    line = home("50mbit/10mbit", "docsis")
    for setting in every("live", line):
        file = tmp_path / "live.toml"
        file.write_text("\n".join(targets.TARGETS["live"].lines("lo", line, *search.shapes(setting, line))))
        keys = tomllib.loads(file.read_text())
        for key in ("aqm", "ingress_aqm"):
            assert _core.queue(keys[key]).split()[0] == setting.kind
        assert (keys["rate"], keys["overhead"]) in (("9mbit", 18), ("8850kbit", 18))


@pytest.mark.guest
def test_linux_takes_the_lines_of_tc(tmp_path: Path) -> None:
    """In the kernel of the oracle: every discipline with its defaults and with every option moved.

    The lines run a second time in another order, to show that earlier settings make no difference.
    """
    script = ["set -x", "ip link add eth0 type veth peer name other", "ip link set eth0 up"]
    lines = [home("50mbit/10mbit", framing) for framing in (None, "docsis", "pppoe-llcsnap")]
    settings = [(setting, line) for line in lines for setting in every("tc", line)]
    order = [*range(len(settings)), *random.Random(1).sample(range(len(settings)), len(settings))]
    for setting, line in (settings[index] for index in order):
        for text in targets.tc_lines("eth0", line, *search.shapes(setting, line)):
            check = "" if "2>/dev/null" in text else f" || echo 'REFUSED {text}'"
            script.append(text + check)
        script += ["echo == shown", "tc qdisc show dev eth0", "tc qdisc show dev ifb4eth0"]
    (tmp_path / "guest.sh").write_text("\n".join(script))
    done = in_guest(tmp_path / "guest.sh")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "REFUSED" not in done.stdout, done.stdout + done.stderr
    shown = done.stdout.split("== shown\n")[1:]
    before: dict[int, str] = {}
    for index, text in zip(order, shown, strict=True):
        assert text.count(f"qdisc {settings[index][0].kind} ") == 2, text
        assert "qdisc ingress ffff:" in text
        # The kernel chooses handles of queues that have none.
        plain = re.sub(r"qdisc (\w+) 8\w+:", r"qdisc \1", text)
        assert before.setdefault(index, plain) == plain


def test_a_scenario_without_what_tune_needs_is_refused() -> None:
    for source, message in (
        ('[link]\nrate="5mbit"\n[[flow]]\n', "link.up"),
        ('[link]\nrate="5mbit"\n[link.up]\n[[hop]]\nrate="1mbit"\n[[flow]]\n', r"\[\[hop\]\]"),
    ):
        with pytest.raises(InputError, match=message):
            of_scenario(experiment.load(source), None, None)


@pytest.mark.parametrize(
    ("kind", "value", "chooses"),
    [(8, b"eth1\0", True), (10, struct.pack("III", 5, 255, 0), True), (3, bytes(4), True), (11, bytes(4), False)],
    ids=["TCA_U32_INDEV", "TCA_U32_MARK", "TCA_U32_LINK", "TCA_U32_FLAGS"],
)
def test_a_filter_that_chooses_is_not_taken_for_one_that_redirects_all(
    monkeypatch: pytest.MonkeyPatch, kind: int, value: bytes, chooses: bool
) -> None:
    """A kernel with CONFIG_CLS_U32_MARK lists TCA_U32_MARK, too; other kernels ignore it."""
    one = netlink._attribute
    mirred = one(1, b"mirred\0") + one(2, one(2, struct.pack("20xiI", 1, 7)))
    selector = one(5, struct.pack("BBB13x16x", 1, 0, 1))
    options = one(2, selector + one(7, one(1, mirred)) + one(kind, value))
    rows = {
        netlink._QDISC: netlink.Node(netlink._QDISC, "ingress", 0xFFFF0000, netlink._INGRESS, ""),
        netlink._FILTER: netlink.Node(netlink._FILTER, "u32", 0x80000800, 0xFFFF0000, options.hex()),
    }
    monkeypatch.setattr(netlink, "_index", lambda dev: 1)
    monkeypatch.setattr(netlink, "_rows", lambda index, what, parent=0: [(rows[what], 10 << 16 | netlink._EVERYTHING)])
    if chooses:
        with pytest.raises(ValueError, match="a filter that chooses"):
            netlink.redirected("eth0")
    else:
        assert netlink.redirected("eth0") == 7


@pytest.mark.parametrize("jitter", [0, 31250])
def test_netem_with_jitter_is_not_taken_for_what_can_be_put_back(monkeypatch: pytest.MonkeyPatch, jitter: int) -> None:
    """The kernel does not report the distribution of the jitter."""
    options = netlink._attribute(netlink._OPTIONS, struct.pack("6I", 156250, 1000, 0, 0, 0, jitter))
    node = netlink.Node(netlink._QDISC, "netem", 0x10000, netlink._ROOT, options.hex())
    monkeypatch.setattr(install, "has_interface", lambda dev: True)
    monkeypatch.setattr(netlink, "tree", lambda dev: [node])
    monkeypatch.setattr(netlink, "has_filters", lambda dev: False)
    monkeypatch.setattr(netlink, "redirected", lambda dev: 0)
    if jitter:
        with pytest.raises(InputError, match="netem with jitter, whose distribution could not be put back"):
            install.Side.of("lo")
    else:
        assert install.Side.of("lo").tree == [node]
