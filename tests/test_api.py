"""The library: `import quell`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quell
from conftest import ROOT
from quell._moved import MOVED
from quell.cli import dispatch as cli
from quell.experiments.control import Gauges, Knobs

LINK: dict[str, Any] = {"rate": "10mbit", "rtt": "40ms", "flows": ["newreno"], "duration": "10s", "warmup": "2s"}


def test_run_gives_one_row_with_the_contracts_columns() -> None:
    from quell.results.frame import SCHEMA

    frame = quell.run(aqm="codel", series=0.1, **LINK)
    assert frame.schema == pl.Schema(SCHEMA)
    assert frame.height == 1
    assert frame["queue"][0] == "codel"
    assert 5 < frame["goodput_mbps"][0] <= 10
    assert len(frame["series"][0]["backlog_ms"]) == 100


def test_compare_gives_a_row_per_run_and_summary_one_per_queue() -> None:
    frame = quell.compare(aqm=["pfifo", "codel"], seeds=3, **LINK)
    assert frame["queue"].to_list() == ["pfifo"] * 3 + ["codel"] * 3
    summary = quell.summary(frame)
    assert summary["queue"].to_list() == ["pfifo", "codel"]
    assert summary["runs"].to_list() == [3, 3]
    means = frame.group_by("queue", maintain_order=True).agg(pl.col("goodput_mbps").mean())
    assert summary["goodput_mbps"].to_list() == pytest.approx(means["goodput_mbps"].to_list())
    assert summary["front"].any()


def test_a_printed_summary_shows_goodput_and_delay() -> None:
    frame = quell.compare("home", aqm=["pfifo"], seeds=1, duration="1s")
    head = str(quell.summary(frame)).splitlines()[2]
    for column in ("scenario", "queue", "goodput_mbps", "sojourn_ms", "runs", "front"):
        assert f" {column}" in head


def test_summary_keeps_scenarios_apart() -> None:
    """Runs of different scenarios are separate rows with fronts of their own, even under the same name."""
    link: dict[str, Any] = {"flows": ["newreno"], "duration": "4s", "seeds": 2}
    frame = pl.concat([
        quell.compare("home", aqm=["pfifo", "codel"], duration="4s", seeds=2),
        *(quell.compare("cable", aqm=["pfifo"], rate=rate, **link) for rate in ("10mbit", "20mbit")),
        quell.compare("cable", aqm=["pfifo"], rate="10mbit", seed=7, **link),
    ])  # fmt: skip
    summary = quell.summary(frame)
    assert summary.select("scenario", "queue", "runs").rows() == [
        ("home", "pfifo", 2), ("home", "codel", 2), ("cable", "pfifo", 4), ("cable", "pfifo", 2),
    ]  # fmt: skip
    assert summary["goodput_mbps"][2] < 10 < summary["goodput_mbps"][3]
    assert summary["scenario_hash"].n_unique() == 3
    assert summary["front"].to_list()[2:] == [True, True]


def test_a_scenarios_hash_is_that_of_what_it_says() -> None:
    from quell.experiments.experiment import fingerprint

    base = fingerprint(quell.scenario(rate="9mbit"))
    assert fingerprint(quell.scenario('name = "x"\n[link]\nrate = "9mbit"', seeds=9, seed=4, queue="codel")) == base
    assert fingerprint(quell.scenario("wifi-house", queue="codel")) == fingerprint(quell.scenario("wifi-house"))
    others = [quell.scenario(rate="8mbit"), quell.scenario(rate="9mbit", rtt="50ms"), quell.scenario("cable")]
    assert len({base, *map(fingerprint, others)}) == 4


def test_sources_of_a_scenario() -> None:
    text = 'name = "mine"\n[link]\nrate = "3mbit"\n'
    assert quell.scenario(text).name == "mine"
    assert quell.scenario().name == "home"
    assert quell.scenario("cable").name == "cable"
    assert quell.scenario(quell.scenario(text), duration="7s").duration_s == 7


def test_a_scenario_in_a_file_is_named_by_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "kitchen.toml"
    path.write_text('[link]\nrate = "3mbit"\n')
    assert quell.scenario(path).name == "kitchen"


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a=b.toml", "rate=3"):
        Path(name).write_text('[link]\nrate = "3mbit"\n')
        assert quell.run(name, duration="2s")["capacity_mbps"][0] == pytest.approx(3, rel=1e-3)
    with pytest.raises(
        quell.InputError, match=r"c=d\.toml: no such file; name a scenario file or a built-in scenario: home,"
    ):
        quell.run("c=d.toml")
    assert quell.scenario('link.rate = "4mbit"').toml().count('rate = "4mbit"') == 1  # text of one line


def test_bad_input_raises_one_line() -> None:
    with pytest.raises(quell.InputError, match="rate") as caught:
        quell.run(rate="10parsec")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("function", [quell.scenario, quell.run, quell.compare, quell.env, quell.envs.RlAqmEnv])
def test_help_and_notebooks_show_every_keyword(function: Callable[..., object]) -> None:
    shown = inspect.signature(function).parameters
    assert {"rate", "rtt", "flows", "ecn", "duration"} <= shown.keys()
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in shown.values())


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: quell.run(rat="1mbit"), "unknown keyword `rat`; did you mean `rate`"),  # type: ignore[call-arg]
        (lambda: quell.run(controler=None), "did you mean `controller`"),  # type: ignore[call-arg]
        (lambda: quell.compare(seds=3), "did you mean `seeds`"),  # type: ignore[call-arg]
        (lambda: quell.optimum(vlaues=[3]), "did you mean `values`"),  # type: ignore[call-arg]
        (lambda: quell.scenario(qeue="codel"), "did you mean `queue`"),  # type: ignore[call-arg]
        (lambda: quell.compare(queues=["pfifo"]), r"keyword `queues`; did you mean `aqm`\? Known: source, aqm,"),  # type: ignore[call-arg]
        (lambda: quell.sweep(qdisc="pfifo"), "did you mean `aqm`"),  # type: ignore[call-arg]
        (lambda: quell.compare(scenario="home"), "did you mean `source`"),  # type: ignore[call-arg]
        (lambda: quell.compare(runs=3), "did you mean `seeds`"),  # type: ignore[call-arg]
        (lambda: quell.compare(threads=3), "did you mean `jobs`"),  # type: ignore[call-arg]
        (lambda: quell.run(time="3s"), "did you mean `duration`"),  # type: ignore[call-arg]
        (lambda: quell.run(bandwidth="3mbit"), "did you mean `rate`"),  # type: ignore[call-arg]
        (lambda: quell.run(delay="3ms"), "did you mean `rtt`"),  # type: ignore[call-arg]
        (lambda: quell.evaluate(queues=["pfifo"]), "did you mean `aqm`"),  # type: ignore[call-arg]
        (lambda: quell.evaluate(scenario="home"), "did you mean `link`"),  # type: ignore[call-arg]
        (lambda: quell.evaluate(seed=3), "did you mean `seeds`"),  # type: ignore[call-arg]
        (lambda: quell.env("home", knobb="limit"), "did you mean `knob`"),  # type: ignore[call-arg]
        (lambda: quell.vector_env("home", num_env=3), "did you mean `num_envs`"),  # type: ignore[call-arg]
        (lambda: quell.run(rate=5e6), 'the rate "5000000" has no unit; write 5000000mbit'),  # type: ignore[arg-type]
        (lambda: quell.compare(queue=["pfifo"]), r"queue: \['pfifo'\] is not text; .* write aqm="),  # type: ignore[arg-type]
        (lambda: quell.run(rtt=20), 'the time "20" has no unit; write 20ms'),  # type: ignore[arg-type]
        (lambda: quell.run(aqm=["codel"]), "aqm: .* write queue words"),  # type: ignore[arg-type]
        (lambda: quell.compare(aqm=["codel", 5]), "aqm: 5 is neither text nor an object"),  # type: ignore[list-item]
        (lambda: quell.run(flows=3), "flows: 3 is not a list of flows"),  # type: ignore[arg-type]
        (lambda: quell.run(ecn="yes"), "ecn: 'yes' is neither True nor False"),  # type: ignore[arg-type]
        (lambda: quell.env("home", vary={"rte": 1}), "unknown range `rte`; did you mean `rate`"),  # type: ignore[dict-item]
        (lambda: quell.env("home", vary={"rate": 1}), "vary: rate: not two values"),  # type: ignore[dict-item]
        (lambda: quell.env("home", vary=3), "vary: 3 is not a dict of ranges"),  # type: ignore[arg-type]
        (lambda: quell.optimum(knob="lmit"), "knob: unknown knob `lmit`; did you mean `limit`"),
        (lambda: quell.optimum(reward="pwoer"), "reward: unknown reward `pwoer`; did you mean `power`"),
    ],
)
def test_a_slip_of_a_caller_gets_the_command_lines_hint(call: Callable[[], object], hint: str) -> None:
    with pytest.raises(quell.InputError, match=hint) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_one_queue_and_one_flow_need_no_list() -> None:
    frame = quell.compare(aqm="codel", seeds=1, rate="5mbit", flows="cubic:2", duration="2s", nested=True)
    assert frame["queue"].to_list() == ["codel"]
    assert len(frame["flows"][0]) == 2


def test_a_rate_in_bytes_per_second_is_warned_of() -> None:
    from quell.inputs.notes import UnitWarning

    with pytest.warns(UnitWarning, match='rate: "50mbps" is read as 400mbit.* write 50mbit$'):
        assert 'rate = "400mbit"' in quell.scenario(rate="50mbps").toml()


def test_a_file_with_the_name_of_a_built_in_scenario_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quell.inputs.notes import Note

    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").write_text('[link]\nrate = "3mbit"\n')
    with pytest.warns(Note, match="^home: the file of this name, not the built-in scenario"):
        assert 'rate = "3mbit"' in quell.scenario("home").toml()


def test_dir_lists_what_is_loaded_on_first_use() -> None:
    import subprocess
    import sys

    code = "import quell, sys; print(*dir(quell)); sys.exit('polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert set(quell.__all__) <= set(done.stdout.split())


@pytest.mark.slow
def test_a_type_checker_knows_every_keyword(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mypy = pytest.importorskip("mypy.api", reason="mypy is not installed")
    calls = {
        'quell.run(rtt="20ms", rate="5mbit", flows=["cubic"], ecn=True, seed=3)': None,
        'quell.compare("home", ["pfifo"], seeds=3, jobs=2, duration="5s")': None,
        'quell.env("home", knob="limit", steps=[1, -1], vary={"flows": (1, 2)}, rate="5mbit")': None,
        'quell.run(rtq="20ms")': "rtq",
        "quell.run(rate=5e6)": "rate",
        "quell.compare(aqm=3)": "aqm",
        'quell.compare(sedes="3")': "sedes",
        'quell.scenario(rtq="20ms")': "rtq",
        'quell.optimum(knb="limit")': "knb",
        'quell.env("home", knb="limit")': "knb",
        'quell.vector_env("home", observ=["delay_ms"])': "observ",
        'quell.parallel_env("home", stps=[1])': "stps",
        'quell.envs.RlAqmEnv(rtq="20ms")': "rtq",
        "quell.envs.LfqVectorEnv(3, alfa=1.0)": "alfa",
    }
    program = tmp_path / "program.py"
    program.write_text("import quell\nimport quell.envs\n" + "".join(f"{call}\n" for call in calls))
    monkeypatch.chdir(ROOT)  # has mypy's settings, and its cache from earlier runs
    said, _, _ = mypy.run([str(program)])
    for line, (call, refused) in enumerate(calls.items(), start=3):
        # The path's folder may be an earlier run's, from mypy's cache.
        mine = [text for text in said.splitlines() if f"program.py:{line}: error" in text]
        assert bool(mine) == (refused is not None), (call, said)
        assert all(str(refused) in text or "arg-type" in text for text in mine), (call, mine)


class Still:
    """Sets a limit once, then only records gauges."""

    period = 0.1

    def __init__(self, knobs: Knobs) -> None:
        self.first, self.seen = knobs, list[Gauges]()

    def decide(self, gauges: Gauges) -> Knobs | None:
        self.seen.append(gauges)
        return self.first if len(self.seen) == 1 else None


def test_a_controller_in_python_reads_gauges_on_its_cadence_and_turns_knobs() -> None:
    controller = Still({"limit": 5})
    frame = quell.run(aqm="fifo limit 1000", controller=controller, **LINK)
    times = [g["now"] for g in controller.seen]
    assert times == pytest.approx([0.1 * (k + 1) for k in range(len(times))])
    assert len(times) in (99, 100)
    assert controller.seen[-1]["limit_packets"] == 5
    assert max(g["backlog_packets"] for g in controller.seen[5:]) <= 5
    assert controller.seen[-1]["departures"] > 1000
    free = quell.run(aqm="fifo limit 1000", **LINK)
    assert frame["sojourn_ms.p95"][0] < free["sojourn_ms.p95"][0]


def test_a_controller_that_holds_still_is_the_constant_knob() -> None:
    held = quell.run(aqm="fifo limit 20", controller=Still({}), **LINK)
    assert held["trace_hash"].to_list() == quell.run(aqm="fifo limit 20", **LINK)["trace_hash"].to_list()


def test_a_run_with_a_controller_is_captured_like_any_other(tmp_path: Path) -> None:
    plain, held = tmp_path / "plain.pcapng", tmp_path / "held.pcapng"
    quell.run(aqm="fifo limit 20", pcap=plain, **LINK)
    frame = quell.run(aqm="fifo limit 20", controller=Still({}), pcap=held, **LINK)
    assert frame["packets"][0] > 1000
    assert held.read_bytes() == plain.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_that_fails_leaves_no_capture(tmp_path: Path) -> None:
    with pytest.raises(quell.InputError):
        quell.run(aqm="fifo", controller=Still({"limit": -1}), pcap=tmp_path / "x.pcapng", **LINK)
    assert not list(tmp_path.iterdir())
    with pytest.raises(quell.InputError, match=r"pcap .*nowhere does not exist"):
        quell.run(pcap=tmp_path / "nowhere" / "x.pcapng", **LINK)


@pytest.mark.parametrize(
    ("knobs", "error", "words"),
    [
        ({"limt": 3}, quell.InputError, "^controller Still: .*limt.*limit"),
        ({"drop": 1.5}, quell.InputError, "between 0 and 1"),
        ({"limit": -1}, quell.InputError, "limit is -1; .*at least 1"),
        ({"limit": 2.5}, quell.InputError, "limit is 2.5"),
        ([1], TypeError, "^controller Still: .*dict"),
    ],
)
def test_a_controllers_mistake_ends_the_run(knobs: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        quell.run(aqm="fifo", controller=Still(knobs), **LINK)


def test_a_controller_without_a_period_or_a_method_is_named() -> None:
    class Idle:
        period: Any = None

        def decide(self, gauges: Any) -> None: ...

    for controller, words in ((Idle(), "controller Idle: its period is None"), (3, "controller int: it has no method")):
        with pytest.raises(quell.InputError, match=words):
            quell.run(aqm="fifo", controller=controller, **LINK)  # type: ignore[arg-type]


class Sets(Still):
    """Declares the knobs that it sets."""

    def __init__(self, knobs: Any) -> None:
        super().__init__(dict.fromkeys(knobs, 0.1))  # type: ignore[arg-type]
        self.knobs = knobs


@pytest.mark.parametrize(
    ("aqm", "knobs", "words"),
    [
        ("cake", ["limit"], "^controller Sets: `cake` has no knob limit; it has none"),
        ("codel", ["drop"], "`codel` has no knob drop; it has limit"),
        ("fifo", ["drop", "base_probability"], "`fifo` has no knob base_probability; it has limit, drop"),
        ("fifo", ["limt"], "unknown knob `limt`; did you mean `limit`"),
        ("fifo", "drop", 'knobs = "drop" is a string; write knobs = \\("drop",\\)'),
    ],
)
def test_a_controller_of_a_knob_that_is_not_there_is_refused_before_the_run(aqm: str, knobs: Any, words: str) -> None:
    controller = Sets(knobs)
    with pytest.raises(quell.InputError, match=words) as caught:
        quell.run(aqm=aqm, controller=controller, **LINK)
    assert "\n" not in str(caught.value)
    assert not controller.seen


def test_a_controller_without_knobs_attribute_is_refused_before_the_run_or_at_its_first_decision() -> None:
    silent = Still({"limit": 3})
    with pytest.raises(quell.InputError, match=r"`cake` has no knobs; .* or write knobs = \(\)"):
        quell.run(aqm="cake", controller=silent, **LINK)
    assert not silent.seen
    wrong = Still({"base_probability": 0.5})
    with pytest.raises(quell.InputError, match="`fifo` has no knob base_probability; it has limit, drop"):
        quell.run(aqm="fifo", controller=wrong, **LINK)
    assert len(wrong.seen) == 1


def test_one_that_only_reads_works_everywhere() -> None:
    reader = Sets(())
    assert quell.run(aqm="cake", controller=reader, **LINK)["controller"].to_list() == ["Sets"]
    assert len(reader.seen) in (99, 100)


def test_the_record_names_the_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held, free = quell.run(aqm="fifo", controller=Still({}), **LINK), quell.run(aqm="fifo", **LINK)
    assert (held["controller"].to_list(), free["controller"].to_list()) == (["Still"], [None])
    summary = quell.summary(pl.concat([held, free]))
    assert summary.select("queue", "controller", "runs").rows() == [("fifo", "Still", 1), ("fifo", None, 1)]
    held.write_parquet(tmp_path / "run.parquet")
    assert pl.read_parquet(tmp_path / "run.parquet")["controller"].to_list() == ["Still"]
    run, again, page = (tmp_path / name for name in ("run.json", "again.json", "page.html"))
    held.write_json(run)
    assert cli.call(["show", str(run)]) == 2
    assert "or by write_json() of a frame with nested=True" in capsys.readouterr().err
    quell.run(aqm="fifo", controller=Still({}), nested=True, **LINK).write_json(run)
    assert cli.call(["show", str(run), "--json", str(again), "--html", str(page)]) == 0
    assert "fifo + Still" in capsys.readouterr().out
    assert "fifo + Still" in page.read_text("utf-8")
    assert json.loads(again.read_text()) == json.loads(run.read_text())


def test_controllers_are_compared_beside_queues() -> None:
    class Named(Still):
        name = "five"

    link: Any = {**LINK, "seeds": 2}
    frame = quell.compare(aqm=["codel", ("fifo limit 900", Named({"limit": 5})), ("fifo", lambda: Still({}))], **link)
    assert frame.select("queue", "controller", "seed").unique().height == 6
    summary = quell.summary(frame).select("queue", "controller", "runs").rows()
    assert summary == [("codel", None, 2), ("fifo limit 900", "five", 2), ("fifo", "Still", 2)]
    # The front is that of all rows: codel carries as much as a long FIFO, with less delay.
    beside = quell.compare(aqm=["codel", ("fifo limit 900", Still({}))], **link | {"flows": ["cubic:2"], "rtt": "20ms"})
    assert quell.summary(beside).select("controller", "front").rows() == [(None, True), ("Still", False)]
    alone = quell.run(aqm="fifo limit 900", controller=Named({"limit": 5}), **LINK)
    assert frame["trace_hash"].to_list().count(alone["trace_hash"][0]) == 1, "the first seed is the run's"
    assert alone["controller"].to_list() == ["five"]
    swept = quell.sweep(over={"link.rate": ["5mbit", "10mbit"]}, aqm=[("fifo", Still({"limit": 5}))], seeds=1, **LINK)
    assert swept["controller"].to_list() == ["Still", "Still"]
    for given, words in (
        ([("fifo", 3)], "not a controller: it has no decide"),
        ([("fifo",)], "has 1 part;"),
        ([("fifo", Still({})), ("fifo", Still({"limit": 5}))], "two queues are called fifo [+] Still; give them names"),
    ):
        with pytest.raises(quell.InputError, match=words):
            quell.compare(aqm=given, **LINK)  # type: ignore[arg-type]


def test_an_exception_of_a_controller_is_raised() -> None:
    class Broken:
        period = 0.1

        def decide(self, gauges: Gauges) -> None:
            raise RuntimeError(f"at {gauges['now']}")

    with pytest.raises(RuntimeError, match=r"at 0\.1"):
        quell.run(aqm="fifo", controller=Broken(), **LINK)


def test_optimum_has_a_row_per_setting() -> None:
    frame = quell.optimum(knob="limit", values=[4, 33], seeds=1, **LINK)
    assert frame["value"].to_list() == [4, 33]
    assert frame["best"].sum() == 1
    assert 0 < frame["utilisation"][1] <= 1


def test_queues_and_scenarios_are_listed() -> None:
    assert "codel" in quell.queues()["name"].to_list()
    assert "home" in quell.scenarios()["name"].to_list()


@pytest.mark.parametrize("old", MOVED)
def test_modules_are_found_under_their_old_names_with_a_warning(old: str) -> None:
    try:
        new = import_module(f"quell.{MOVED[old]}")
    except ImportError as error:
        pytest.skip(str(error))  # an extra that is not installed here
    sys.modules.pop(f"quell.{old}", None)
    with pytest.warns(DeprecationWarning, match=rf"^quell\.{old} is now quell\.{MOVED[old]}$"):
        assert import_module(f"quell.{old}") is new
    assert new.__spec__ is not None
    assert new.__spec__.name == new.__name__ == f"quell.{MOVED[old]}"


def test_the_package_starts_without_data_frames() -> None:
    import subprocess
    import sys

    code = "import sys, quell.cli.dispatch, quell.cli.compare; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_stub_names_what_the_extension_has() -> None:
    import ast

    from quell import _core

    path = Path(quell.__file__).parent / "_core.pyi"
    tree = ast.parse(path.read_text())
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    stub = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} | {c.name for c in classes} | {"__version__"}
    assert stub - {"__version__"} == {n for n in dir(_core) if not n.startswith("_")}
    for c in classes:
        written = {n.target.id for n in c.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        written |= {n.name for n in c.body if isinstance(n, ast.FunctionDef)} - {"__new__"}
        if c.name == "Scenario":
            assert written == {n for n in dir(_core.Scenario) if not n.startswith("_")}


@pytest.mark.parametrize("rpm", [None, True, False])
def test_the_command_compares_as_the_function_does(tmp_path: Path, rpm: bool | None) -> None:
    from quell.results.frame import runs

    aqm, file = ["pfifo", "codel target 5ms"], tmp_path / "runs.json"
    flags = {None: [], True: ["--rpm"], False: ["--no-rpm"]}[rpm]
    words = ["--aqm", aqm[0], "--aqm", aqm[1], "--seeds", "2", "--duration", "6s", "--json", str(file), *flags]
    assert cli.call(["compare", "home", *words]) == 0
    frame = quell.compare("home", aqm, seeds=2, duration="6s", rpm=rpm, nested=True)
    printed = runs(json.loads(file.read_text("utf-8")))
    varies = ("cpu_s", "packets_per_cpu_s")
    assert_frame_equal(frame.drop(varies), printed.drop(varies), check_exact=True)
