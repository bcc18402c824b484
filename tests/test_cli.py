"""What the commands print and write."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from conftest import QUELL, QUELL_LIVE, ROOT, Quell, loaded
from quell.cli import usage
from quell.experiments import experiment
from quell.results import frame

SHORT = ["--duration", "6s", "--warmup", "1s", "--seeds", "2", "--aqm", "pfifo", "--aqm", "fq_codel"]


def test_compare_prints_a_table_that_fits_its_columns(quell: Quell) -> None:
    for columns in (80, 100):
        done = quell("compare", *SHORT, columns=columns)
        assert done.returncode == 0, done.stderr
        assert max(map(len, done.stdout.splitlines())) <= columns
        assert "pfifo" in done.stdout
        assert "±" in done.stdout
        assert "◆" in done.stdout


def test_compare_says_where_the_seeds_made_no_difference(quell: Quell, tmp_path: Path) -> None:
    text = '[link]\nrate = "10mbit"\n[[flow]]\ncount = 4\n'
    for stagger in ("", 'stagger = "1s"\n'):
        (tmp_path / "mine.toml").write_text(text + stagger)
        done = quell("compare", "mine.toml", *SHORT)
        assert ("pfifo, fq_codel: every seed gave the same run" in done.stdout) == (not stagger), done.stdout
    # Without a file the flows are quell's own, with staggered starts.
    assert "every seed" not in quell("compare", "--rate", "10mbit", *SHORT).stdout


def test_compare_takes_every_queue_by_default_the_files_own_first(quell: Quell) -> None:
    done = quell("compare", "--duration", "6s", "--warmup", "1s", "--seeds", "1", "--json", "-")
    queues = [record["queue"] for record in json.loads(done.stdout)]
    assert queues[0] == "fq_codel"
    known = {kind["name"] for kind in experiment.known_queues()}
    assert set(queues) == known - set(experiment.BY_NAME_ONLY)
    assert known > set(experiment.BY_NAME_ONLY)


def test_compare_takes_linuxs_seldom_seen_queues_by_their_words(quell: Quell) -> None:
    words = ["sfq perturb 10", "prio bands 4 priomap 3 2", "ets strict 1 quanta 4500 1500", "choke ecn", "drr"]
    queues = [word for queue in words for word in ("--aqm", queue)]
    done = quell("compare", *queues, "--duration", "6s", "--warmup", "1s", "--seeds", "1", "--json", "-")
    records = json.loads(done.stdout)
    assert records[1]["queue"] == "prio bands 4 priomap 3 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1"
    assert [tin["name"] for tin in records[2]["tins"]] == ["Band 0", "Band 1", "Band 2"]
    shown = quell("queues", "ets").stdout
    assert all(option in shown for option in ("bands", "strict", "quanta", "priomap"))


def test_json_on_standard_output_stands_alone_and_has_the_contracts_keys(quell: Quell) -> None:
    done = quell("compare", *SHORT, "--json", "-")
    records = json.loads(done.stdout)
    assert [(r["queue"], r["seed"]) for r in records] == [
        (queue, seed) for queue in ("pfifo", "fq_codel") for seed in (records[0]["seed"], records[1]["seed"])
    ]
    optional = {"applications", "controller", "guard", "hops", "hosts", "modem", "rpm", "series", "tins", "wifi"}
    contract = set(frame.SCHEMA) - optional
    assert set(records[0]) >= contract
    assert "series" not in records[0]
    one = json.loads(quell("run", "--duration", "6s", "--warmup", "1s", "--json", "-", "--series", "0.5").stdout)
    assert one["queue"] == "fq_codel"
    assert one["series"]["bin_s"] == 0.5
    assert len(one["series"]["backlog_ms"]) == 12


def test_files_say_the_same_in_every_format(quell: Quell, tmp_path: Path) -> None:
    done = quell("compare", *SHORT, "--json", "a.json", "--parquet", "a.parquet", "--csv", "a.csv", "--html", "a.html")
    assert done.returncode == 0, done.stderr
    records = json.loads((tmp_path / "a.json").read_text())
    parquet = pl.read_parquet(tmp_path / "a.parquet")
    assert parquet.columns == list(frame.SCHEMA)
    assert parquet["goodput_mbps"].to_list() == [r["goodput_mbps"] for r in records]
    assert [s["p95"] for s in parquet["sojourn_ms"].to_list()] == [r["sojourn_ms"]["p95"] for r in records]
    csv = pl.read_csv(tmp_path / "a.csv")
    assert csv["sojourn_ms.p95"].to_list() == pytest.approx([r["sojourn_ms"]["p95"] for r in records])
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert len(list(tmp_path.iterdir())) == 4


def test_a_report_repeats_its_command_and_its_scenario(quell: Quell, tmp_path: Path) -> None:
    quell("compare", *SHORT, "--json", "a.json", "--html", "a.html")
    html = (tmp_path / "a.html").read_text()
    found = re.search(r'<code id="command">(.*?)</code>', html)
    assert found
    assert shlex.split(found[1])[1:] == ["compare", *SHORT, "--json", "a.json", "--html", "a.html"]
    toml = re.search(r'<pre id="toml">(.*?)</pre>', html, re.S)
    assert toml
    (tmp_path / "again.toml").write_text(toml[1].replace("&quot;", '"').replace("&#x27;", "'"))
    again = quell("compare", "again.toml", "--aqm", "pfifo", "--aqm", "fq_codel", "--json", "-")
    first = json.loads((tmp_path / "a.json").read_text())
    assert [r["trace_hash"] for r in json.loads(again.stdout)] == [r["trace_hash"] for r in first]


def test_the_number_of_jobs_changes_nothing(quell: Quell) -> None:
    hashes = [
        [r["trace_hash"] for r in json.loads(quell("compare", *SHORT, "--jobs", jobs, "--json", "-").stdout)]
        for jobs in ("1", "2", "100000")
    ]
    assert hashes[0] == hashes[1] == hashes[2]
    assert len(set(hashes[0])) == 4


def test_one_run_can_be_repeated_by_its_seed(quell: Quell) -> None:
    both_ways = ["--flow", "cubic:2", "--flow", "cubic:2@direction=up"]
    for flows in ([], both_ways):
        records = json.loads(quell("compare", *SHORT, *flows, "--json", "-").stdout)
        for record in records[:2]:
            seed = str(record["seed"])
            again = quell("run", *SHORT[:4], *flows, "--aqm", record["queue"], "--seed", seed, "--json", "-")
            repeated = json.loads(again.stdout)
            assert repeated["trace_hash"] == record["trace_hash"]
            assert repeated["scenario_hash"] == record["scenario_hash"]


def test_short_cuts_take_the_place_of_a_file(quell: Quell) -> None:
    arguments = ["--rate", "10mbit", "--rtt", "30ms", "--flow", "cubic:2", "--flow", "newreno@rtt=60ms", "--ecn"]
    record = json.loads(quell("run", *arguments, "--duration", "6s", "--json", "-").stdout)
    assert [(f["cc"], f["base_rtt_ms"]) for f in record["flows"]] == [("cubic", 30), ("cubic", 30), ("newreno", 60)]
    assert record["capacity_mbps"] == pytest.approx(10, rel=1e-3)


def test_a_made_up_cellular_trace_runs(quell: Quell, tmp_path: Path) -> None:
    import sys

    sys.path.insert(0, str(ROOT / "examples"))
    from lte_trace import trace

    times = trace(seconds=20, mean_mbps=9.0, seed=1)
    assert times == sorted(times)
    assert trace(seconds=20, mean_mbps=9.0, seed=1) == times
    assert times[-1] == 20_000
    (tmp_path / "lte.down").write_text("".join(f"{t}\n" for t in times))
    arguments = [
        "compare",
        "--trace",
        "lte.down",
        "--rtt",
        "40ms",
        "--flow",
        "cubic:2",
        "--duration",
        "20s",
        "--seeds",
        "1",
    ]
    done = quell(*arguments, "--html", "lte.html", "--json", "lte.json")
    assert done.returncode == 0, done.stderr
    offered = len(times) * 1504 * 8 / 20e6
    for record in json.loads((tmp_path / "lte.json").read_text()):
        assert record["capacity_mbps"] == pytest.approx(offered, rel=0.2)  # the warm-up is left out
        assert record["utilisation"] > 0.3


def test_optimum_sweeps_a_knob_and_names_the_best(quell: Quell) -> None:
    link = ["--rate", "10mbit", "--rtt", "40ms", "--cc", "newreno", "--duration", "20s", "--seeds", "1"]
    points = json.loads(quell("optimum", *link, "--values", "1,32,1000", "--json", "-").stdout)
    assert [p["value"] for p in points] == [1, 32, 1000]
    # 10 Mbit/s times 40 ms are 33 packets: with a buffer of that size, one NewReno flow keeps the link full.
    assert [p["best"] for p in points] == [False, True, False]
    drops = json.loads(quell("optimum", *link, "--knob", "drop", "--values", "0,0.3", "--json", "-").stdout)
    assert drops[0]["goodput_mbps"] > 2 * drops[1]["goodput_mbps"]
    shown = quell("optimum", *link, "--values", "1,32").stdout
    assert "▶" in shown and "\nreward power: " in shown


def test_lists_of_queues_and_scenarios(quell: Quell) -> None:
    everything = quell("queues").stdout
    for kind in experiment.known_queues():
        assert kind["name"] in everything
    assert "interval TIME" in quell("queues", "codel").stdout
    assert "pfifo" not in quell("queues", "codel").stdout
    listed = quell("scenarios").stdout
    names = [s["name"] for s in json.loads(quell("scenarios", "--json", "-").stdout)]
    assert {"home", "cable", "fibre", "lte", "satellite", "datacenter"} <= set(names)
    for name in names:
        assert name in listed
        assert f'name = "{name}"' in quell("scenarios", name).stdout


def test_a_run_in_a_cell_prints_airtime(quell: Quell) -> None:
    done = quell("run", "wifi-mesh", "--duration", "3s")
    assert re.search(r"gateway → relay +[0-9.]+ +[0-9.]+ +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+", done.stdout)
    record = json.loads(quell("run", "wifi-mesh", "--duration", "3s", "--json", "-").stdout)
    assert 0.5 < record["wifi"]["busy"] <= 1
    assert sum(q["airtime"] for q in record["wifi"]["queues"]) < 1.2


def test_every_built_in_scenario_reads_back_from_its_own_toml() -> None:
    from quell import _core

    for name, _, _ in _core.scenarios():
        scenario = _core.Scenario(name)
        assert _core.Scenario(text=scenario.toml()).toml() == scenario.toml()


@pytest.mark.parametrize("command", [name for group in usage.COMMANDS.values() for name in group])
def test_help_has_examples(quell: Quell, command: str) -> None:
    text = quell(command, "--help")
    assert text.returncode == 0
    examples = text.stdout.partition(" Example")[2]
    assert f"quell {command}" in examples
    assert command != "detach" or "quell attach" not in examples


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("command", [[], ["tune"], ["compare"], ["show"], ["live"]], ids=" ".join)
def test_help_fits_the_terminal_and_cuts_no_word(quell: Quell, command: list[str], columns: int) -> None:
    text = quell(*command, "--help", columns=columns).stdout
    assert "Examples:" in text and "…" not in text
    assert max(map(len, text.splitlines())) <= columns


def test_the_help_of_tune_begins_with_the_line_and_ends_with_the_search(quell: Quell) -> None:
    text = quell("tune", "--help").stdout
    places = [text.index(option) for option in ("--rate ", "--for ", "--apply ", "--trials ", "--json ")]
    assert places == sorted(places)


def test_the_list_of_commands_version_and_completion_exist(quell: Quell) -> None:
    assert "compare" in quell().stdout
    # The parent process tells which shell to complete for; the second command keeps bash from becoming quell.
    words = ["bash", "-c", '"$0" --show-completion; exit', str(QUELL)]
    assert "complete" in subprocess.run(words, capture_output=True, text=True, timeout=120).stdout
    first, second = quell("--version").stdout.splitlines()
    assert first.startswith("quell ")
    built = r"built from commit (unknown|[0-9a-f]{12}( with changes)?); profile: [\w-]+; features: [\w ]+"
    assert re.fullmatch(built, second)


@pytest.mark.skipif(not QUELL_LIVE.exists(), reason="quell-live is not built")
def test_quell_live_names_an_unknown_command_and_takes_version_as_its_first_word_alone() -> None:
    def live(*words: str) -> tuple[int, str]:
        done = subprocess.run([QUELL_LIVE, *words], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    assert live("wath") == (2, "quell: wath: unknown command; see quell-live --help\n")
    for words in (("--dev", "eth0", "foo", "bar"), ("--rate=8mbit", "foo")):
        assert live(*words) == (2, "quell: foo: unexpected argument; see quell-live --help\n")
    returncode, text = live("--version")
    assert returncode == 0 and re.fullmatch(r"quell-live \d+\.\d+\.\d+\n", text)
    # Here it is the value of --dev, not an option.
    assert live("--dev", "--version", "--nosuch") == (2, "quell: --nosuch: unknown option; see quell-live --help\n")


def test_a_scenarios_name_does_not_speak_to_the_terminal(quell: Quell, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('name = "[red]x\\u001b[31m"\nduration = "2s"\n[link]\nrate = "1mbit"\n')
    done = quell("run", "a.toml")
    assert done.returncode == 0, done.stderr
    assert "[red]x" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_file_or_folder_named_home_does_not_hide_the_default_scenario(quell: Quell, tmp_path: Path) -> None:
    words = ["--duration", "2s", "--aqm", "pfifo", "--json", "-"]

    def capacity(*arguments: str) -> float:
        done = quell("run", *arguments, *words)
        assert done.returncode == 0, done.stderr
        return float(json.loads(done.stdout)["capacity_mbps"])

    (tmp_path / "home").mkdir()
    assert capacity() == capacity("home") == pytest.approx(15, rel=1e-3)
    (tmp_path / "home").rmdir()
    (tmp_path / "home").write_text('[link]\nrate = "3mbit"\n')
    assert capacity() == pytest.approx(15, rel=1e-3)
    assert capacity("home") == pytest.approx(3, rel=1e-3)  # an existing file is meant


@pytest.mark.parametrize(
    ("arguments", "rates"),
    [
        (["--rate", "15000kbit"], "15mbit; "),
        (["home"], "15mbit down, 1mbit up; "),
        (["lte"], "trace builtin:lte down, trace builtin:lte-up up; "),
        (["steps.toml"], "6.5mbit to 13mbit; "),
        (["wifi-mesh"], ""),
    ],
)
def test_the_heading_says_the_rate_that_was_understood(
    arguments: list[str], rates: str, quell: Quell, tmp_path: Path
) -> None:
    (tmp_path / "steps.toml").write_text(
        '[link]\nschedule = [["0s", "13mbit"], ["1s", "6500kbit"], ["2s", "10mbit"]]\n'
    )
    done = quell("run", *arguments, "--duration", "3s", "--aqm", "pfifo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split("  ")[1].startswith(f"{rates}3 s, ")
    assert done.stderr == ""


NOTE = '{place}: "{text}" is read as {rate}: in tc, bps is bytes per second; for bits per second write {bits}'


@pytest.mark.parametrize(
    ("arguments", "place", "text", "rate", "bits"),
    [
        (["--rate", "50mbps"], "rate", "50mbps", "400mbit", "50mbit"),
        (["--rate", "1Gbps"], "rate", "1Gbps", "8gbit", "1gbit"),
        (["--rate", "9mbit", "--flow", "udp@rate=2kbps"], "flow udp@rate=2kbps", "2kbps", "16kbit", "2kbit"),
        (["bytes.toml"], "bytes.toml: link.up.rate", "500kbps", "4mbit", "500kbit"),
    ],
)
def test_a_rate_in_bytes_per_second_is_read_as_in_tc_with_a_line_of_warning(
    arguments: list[str], place: str, text: str, rate: str, bits: str, quell: Quell, tmp_path: Path
) -> None:
    (tmp_path / "bytes.toml").write_text('[link]\nrate = "9mbit"\n[link.up]\nrate = "500kbps"\n')
    done = quell("run", *arguments, "--duration", "2s", "--json", "-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["seed"] == 1
    assert done.stderr == f"quell: {NOTE.format(place=place, text=text, rate=rate, bits=bits)}\n"


@pytest.mark.parametrize(
    "setting", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_a_stream_that_takes_ascii_only_gets_ascii(
    setting: dict[str, str], quell: Quell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "cafe.toml").write_text('name = "café"\nduration = "3s"\n[link]\nrate = "3mbit"\n', "utf-8")
    for arguments in (
        ["compare", *SHORT], ["run", "wifi-mesh", "--duration", "2s"], ["optimum", "--values", "5,50", *SHORT[:6]],
        ["reproduce", "--list"], ["queues"], ["scenarios"], ["scenarios", "wifi-cafe"], ["compare", "--help"],
        ["run", "cafe.toml", "--json", "-"],
    ):  # fmt: skip
        done = quell(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert (done.stdout + done.stderr).isascii()
        assert "?" not in done.stdout.replace("caf?", "")
    assert json.loads(done.stdout)["scenario"] == "café"
    table = quell("compare", *SHORT).stdout
    assert "~: 95 % confidence" in table
    assert "* on the front" in table


def test_help_is_the_same_in_every_folder(quell: Quell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for words in (["train", "--help"], ["compare", "--help"]):
        here = subprocess.run([QUELL, *words], cwd=ROOT, capture_output=True, text=True, check=True)
        assert quell(*words).stdout == here.stdout


def test_help_needs_no_library(quell: Quell) -> None:
    seen = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "quell", "--help"], capture_output=True, text=True, check=True
    )
    modules = {line.rsplit("|", 1)[1].strip() for line in seen.stderr.splitlines() if "|" in line}
    assert "quell.cli.usage" in modules
    assert not modules & {"typer", "rich", "quell._core", "quell.cli.dispatch", "polars"}


def test_a_comparison_loads_only_what_it_uses(quell: Quell) -> None:
    small = ("--duration", "1s", "--warmup", "0s", "--seeds", "1")
    seen = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "quell", "compare", *small],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = {line.rsplit("|", 1)[1].strip() for line in seen.stderr.splitlines() if "|" in line}
    assert {"quell.views.table", "rich.table"} <= modules
    idle = {
        "quell.autorate",
        "quell.inputs.capture",
        "quell.inputs.tc",
        "quell.papers",
        "rich.progress",
        "rich._emoji_codes",
    }
    assert not modules & {*idle, "statistics", "pydantic", "polars"}


def test_a_command_does_not_load_the_others() -> None:
    modules = loaded("compare", "--help")
    assert {"quell.cli.options", "quell.cli.compare"} <= modules
    others = ("evaluate", "reproduce", "train", "tune", "shell", "doctor", "live", "watch", "steer", "attach", "show")
    assert not modules & {*(f"quell.cli.{name}" for name in others), "polars"}


@pytest.mark.parametrize(
    ("words", "helps"),
    [(["tune", "--dev"], "quell tune"), (["compare", "--frob"], "quell compare"), (["frob"], "quell")],
)
def test_an_error_of_the_command_line_names_the_help_of_its_command(quell: Quell, words: list[str], helps: str) -> None:
    assert quell(*words).stderr.rstrip().endswith(f"(see `{helps} --help`)")


def test_no_former_name_of_an_option_is_proposed(quell: Quell) -> None:
    said = quell("live", "--doo").stderr
    assert said.startswith("quell: No such option: --doo (Possible options: --dev, --to)")


@pytest.mark.parametrize("command", ["queues", "scenarios", "doctor", "show"])
def test_the_help_of_a_list_does_not_promise_records_of_runs(quell: Quell, command: str) -> None:
    lines = " ".join(quell(command, "--help", columns=200).stdout.split())
    assert "--json PATH|- What is shown, as JSON" in lines


def test_a_queue_that_may_be_on_the_front_by_chance_gets_more_runs(quell: Quell, tmp_path: Path) -> None:
    words = ["compare", "--rate", "5mbit", "--rtt", "100ms", "--flow", "download:3", "--duration", "6s"]
    words += ["--warmup", "1s", "--aqm", "pfifo", "--aqm", "fq_codel", "--aqm", "codel"]

    def seeds(*more: str) -> tuple[str, dict[str, set[int]]]:
        done = quell(*words, "--json", "runs.json", *more)
        assert done.returncode == 0, done.stderr
        found: dict[str, set[int]] = {}
        for record in json.loads((tmp_path / "runs.json").read_text()):
            found.setdefault(record["queue"], set()).add(record["seed"])
        return done.stdout, found

    table, found = seeds()
    assert len(found["pfifo"]) == 5 and len(found["fq_codel"]) in (10, 15)
    assert f"5 to {max(map(len, found.values()))} runs per queue" in table
    # A given number of runs is not increased.
    table, given = seeds("--seeds", "5")
    assert given["codel"] == given["fq_codel"] == given["pfifo"] == found["pfifo"] < found["fq_codel"]
    assert "◇" in table and "5 runs per queue" in table
