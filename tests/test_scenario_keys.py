"""Keys of scenario files: documents, types and schema agree with the tables; Python changes keys and never TOML."""

from __future__ import annotations

import ast
import json
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import quell
from conftest import ROOT, Quell
from quell import InputError, Scenario, _core
from quell.experiments import experiment
from quell.inputs.keys import Flow

SCHEMA = json.loads(_core.scenario_schema())
VALIDATOR = Draft202012Validator(SCHEMA)
LINK = '[link]\nrate = "15mbit"\n'
CELL = "[wifi]\nstations = 2\n"


def problems(text: str) -> list[str]:
    return [f"{e.json_path}: {e.message}" for e in VALIDATOR.iter_errors(tomllib.loads(text))]


def test_documents_and_types_are_those_of_the_tables() -> None:
    done = subprocess.run([sys.executable, "tools/keys.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_is_one_and_the_command_prints_it(quell: Quell) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    done = quell("scenarios", "--schema")
    assert (done.returncode, json.loads(done.stdout)) == (0, SCHEMA)
    for more in (["home"], ["--json", "-"]):
        done = quell("scenarios", *more, "--schema")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_every_key_has_a_description() -> None:
    for table in (SCHEMA, *SCHEMA["$defs"].values()):
        assert table["properties"]
        assert all(key["description"] for key in table["properties"].values())
    assert SCHEMA["$defs"]["link"]["properties"]["shaper"]["default"] == "line"
    assert SCHEMA["$defs"]["wifi"]["properties"]["eifs"]["default"] is True


FILES = [
    *((name, toml) for name, _, toml in _core.scenarios()),
    *((f"{name}, defaults written out", Scenario(name).toml()) for name, _, _ in _core.scenarios()),
    *((path.name, path.read_text()) for path in sorted((ROOT / "examples").glob("*.toml"))),
    *(
        (f"docs/reference/scenarios.md, block {k}", text)
        for k, text in enumerate(
            re.findall(r"```toml\n(.*?)```", (ROOT / "docs/reference/scenarios.md").read_text(), re.DOTALL)
        )
    ),
]


@pytest.mark.parametrize(("name", "text"), FILES, ids=[name for name, _ in FILES])
def test_files_are_valid_and_read(name: str, text: str) -> None:
    assert problems(text) == []
    Scenario(text=text)


def test_there_is_an_example_with_a_line_for_editors() -> None:
    assert any(path.read_text().startswith("#:schema ") for path in (ROOT / "examples").glob("*.toml"))


MISTAKES = [
    '[link]\nrtae = "15mbit"\n',
    "[link]\nrate = 15\n",
    '[link]\nrate = "15"\n',
    '[link]\nrate = "15parsec"\n',
    'name = "x"\n',
    "[link]\n",
    '[link]\nrate = "1mbit"\ntrace = "x"\n',
    f"{LINK}loss = 1.5\n",
    f'{LINK}delay = "5mbit"\n',
    f"{LINK}delay = 5\n",
    f"{LINK}burst = 3000\n",
    f'{LINK}shaper = "hbt"\n',
    '[link]\nschedule = [["0s"]]\n',
    "[link]\nschedule = []\n",
    f"seeds = 0\n{LINK}",
    f'duration = "60"\n{LINK}',
    f"{LINK}[[hop]]\n",
    f"{LINK}[link.up]\nrat = 3\n",
    f"{LINK}[wifi]\nstations = 1\n",
    f"flow = 3\n{LINK}",
    f"{LINK}[[flow]]\ncount = 0\n",
    f'{LINK}[[flow]]\ncc = "cubik"\n',
    f'{LINK}[[flow]]\nkind = "udp"\n',
    f"{LINK}[[flow]]\nsize = 5\n",
    f'{LINK}[[flow]]\nkind = "cbr"\nmss = 500\n',
    f'{LINK}[[flow]]\nkind = "cbr"\nrate = "unlimited"\n',
    f'{LINK}[[flow]]\nkind = "web"\nbytes = 5\n',
    f"{LINK}[[flow]]\nbeta = 0.5\n",
    f'{LINK}[[flow]]\ncc = "bbr"\nrfc9438 = true\n',
    f'{LINK}[[flow]]\necn = "yes"\n',
    f"{LINK}[[flow]]\nhops = [0]\n",
    f'{LINK}[[flow]]\nfrom = "ap"\n',
    "[wifi]\n",
    f'{CELL}[[wifi.node]]\nname = "a"\n',
    "[wifi]\n[[wifi.node]]\nmcs = 3\n",
    f'{CELL}mcs = "fast"\n',
    f"{CELL}per = [0.1, 0.2]\n",
    f"{CELL}per = 0.1\nsnr = 20\n",
    f"{CELL}streams = 2\n",
    f"{CELL}width = 80\n",
    f"{CELL}amsdu = 4000\n",
    f'{CELL}[[flow]]\ndirection = "up"\n',
    f"{CELL}[wifi.noise]\nlos = 1\n",
]


@pytest.mark.parametrize("text", MISTAKES)
def test_typical_mistakes_are_found_by_the_schema_and_by_quell(text: str) -> None:
    assert problems(text)
    with pytest.raises(InputError):
        Scenario(text=text)


NUMBERS = [
    "5", "5.", "5.5", ".5", "+5", "+.5", "5e0", "5.E+0", ".5e1",
    "-5", "-0", "", ".", "+", "e1", "5e", "5.5.5", "++5", "0x5",
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("key", ["rate", "delay", "burst", "loss"])
def test_the_schema_takes_the_numbers_that_quell_takes(key: str, number: str) -> None:
    for unit in {
        "rate": ("mbit", " Mbit", "\\tkbit", "", "meter"),
        "delay": ("ms", " MS", "", "mbit"),
        "burst": ("kb", " KB", "", "ms"),
        "loss": ("%", " %", "ms"),
    }[key]:
        value = f'"{number}{unit}"'
        shaper = 'shaper = "htb"\n' if key == "burst" else ""
        head = f"[link]\n{shaper}" if key == "rate" else f"{LINK}{shaper}"
        text = f"{head}{key} = {value}\n"
        try:
            Scenario(text=text)
            refused = ""
        except InputError as error:
            refused = str(error)
        assert bool(problems(text)) == bool(refused), f"{text}: {refused or problems(text)}"


@pytest.mark.parametrize("zero", ['"0"', '"0.0"', '"+.0"', "0", '"00"'])
def test_only_a_time_of_nothing_needs_no_unit(zero: str) -> None:
    text = f"{LINK}delay = {zero}\n"
    assert not problems(text)
    Scenario(text=text)


# Changing keys. -------------------------------------------------------------------------------------------------------


def toml(scenario: Scenario) -> dict[str, Any]:
    return tomllib.loads(scenario.toml())


def test_replace_changes_what_is_named_and_nothing_else() -> None:
    home = Scenario("home")
    changed = home.replace(duration="9s", link={"rate": "3mbit", "up": {"queue": "pie"}}, flow={"start": "1s"})
    expected = toml(home)
    expected |= {"duration": "9s", "warmup": "2.25s"}
    expected["link"]["rate"], expected["link"]["up"]["queue"] = "3mbit", "pie"
    for flow in expected["flow"]:
        flow["start"] = "1s"
    assert toml(changed) == expected
    assert toml(home)["duration"] == "60s"


def test_defaults_follow_what_was_replaced() -> None:
    base = Scenario.from_keys(link={"rate": "5mbit", "delay": "10ms"}, flow=[{"cc": "bic_ns3", "beta": 0.7}])
    far = toml(base.replace(link={"delay": "40ms"}, flow={"cc": "prague"}))["flow"][0]
    assert (far["rtt"], far["ecn"], far["ect"]) == ("80ms", True, 1)
    assert "beta" not in far
    traced = toml(base.replace(link={"trace": "builtin:lte"}))["link"]
    assert (traced["trace"], traced["overhead"], "rate" in traced) == ("builtin:lte", 4, False)


def test_a_key_of_some_kinds_changes_the_flows_of_these_kinds() -> None:
    tables: list[Flow] = [
        {"cc": "cubic"}, {"kind": "cbr", "size": 200}, {"kind": "download"}, {"kind": "poisson", "size": 300},
    ]  # fmt: skip
    base = Scenario.from_keys(link={"rate": "5mbit"}, flow=tables)
    changed = toml(base.replace(flow={"cc": "bbr", "rtt": "30ms"}))["flow"]
    assert [flow.get("cc") for flow in changed] == ["bbr", None, "bbr", None]
    assert [flow["rtt"] for flow in changed] == ["30ms"] * 4
    assert [flow.get("size") for flow in toml(base.replace(flow={"size": 99}))["flow"]] == [None, 99, None, 99]
    # Keys that no flow of the scenario can have are still errors, as are unknown keys.
    alone = Scenario.from_keys(link={"rate": "5mbit"}, flow=[{"kind": "cbr"}])
    for scenario, keys in ((alone, {"cc": "bbr"}), (base, {"ccc": "bbr"})):
        with pytest.raises(InputError, match="unknown key"):
            scenario.replace(flow=keys)  # type: ignore[arg-type]
    # A change of kind may set that kind's keys.
    calls = toml(Scenario.from_keys(link={"rate": "5mbit"}, flow=[{"kind": "game"}]).replace(
        flow={"kind": "call", "codec": "opus"}))["flow"]  # fmt: skip
    assert [flow["codec"] for flow in calls] == ["opus"]


def test_a_scenario_is_printed_as_its_file_and_represented_in_a_line() -> None:
    home = Scenario("home")
    assert str(home) == home.toml()
    assert repr(home) == f"<Scenario home: queue fq_codel, 60s, 5 seeds, {len(toml(home)['flow'])} tables of flows>"
    assert repr(Scenario(rate="5mbit", seeds="1")).endswith("1 seed, 1 table of flows>")


def test_a_list_replaces_tables_and_none_takes_a_key_away() -> None:
    home = Scenario("home")
    two = home.replace(flow=[{"cc": "bbr"}, {"kind": "cbr", "rate": "64kbit", "size": 200}], hop=[{"rate": "9mbit"}])
    assert [flow["kind"] for flow in toml(two)["flow"]] == ["tcp", "cbr"]
    assert toml(two)["hop"][0]["rate"] == "9mbit"
    alone = two.replace(hop=None, link={"up": None})
    assert "hop" not in toml(alone)
    assert "up" not in toml(alone)["link"]
    assert toml(alone.replace(link={"trace": None}))["link"]["rate"] == "15mbit"


def test_a_cell_of_keys() -> None:
    cell = Scenario.from_keys(
        wifi={"mode": "mesh", "routes": [["a", "b", "c"]], "per": 0.1, "noise": {"quiet": "1s"},
              "node": [{"name": "a", "hears": ["b"]}, {"name": "b"}, {"name": "c", "snr": 20, "mcs": 3}]},
        flow=({"from": "a", "to": "b"}, {"from": "a", "to": "c"}),
    )  # fmt: skip
    assert [node.get("per") for node in toml(cell)["wifi"]["node"]] == [0.1, 0.1, None]
    assert toml(cell.replace(wifi={"node": {"queue": "pie"}}))["wifi"]["node"][2]["queue"] == "pie"
    with pytest.raises(InputError, match=r"^link: `link` and \[wifi\] exclude each other; keep one of them$"):
        cell.replace(link={"rate": "1mbit"})


def test_the_documents_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/reference/scenarios.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert toml(names["slow"])["link"]["up"]["rate"] == "500kbit"
    assert [flow["kind"] for flow in toml(names["mixed"])["flow"]] == ["tcp", "cbr"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"lnik": {}}, "unknown key in a scenario `lnik`; did you mean `link`?"),
        ({"link": {"rat": "1mbit"}}, "link: unknown key in [link] `rat`; did you mean `rate`?"),
        ({"link": {"rate": 5e6}}, 'link.rate: the rate "5000000" has no unit; write 5000000mbit'),
        ({"link": {"up": {"loss": 2}}}, 'link.up.loss: "2" is not a probability'),
        ({"link": 3}, "link: a table is wanted here; write [link]"),
        (
            {"link": {"queue": object()}},
            "link.queue: a value of type object is not possible here; write",
        ),
        ({"flow": []}, "flow: a list of tables is wanted here"),
        ({"flow": [{}, {"rtt": True}]}, 'flow[2].rtt: "true" is not a time'),
        ({"flow": {"size": 3}}, "flow[1]: unknown key in a [[flow]] of kind tcp `size`"),
        ({"duration": "1s", "warmup": "1s"}, "warmup: 1s is not shorter than the duration of 1s"),
    ],
)
def test_errors_name_the_key(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        Scenario.from_keys(link={"rate": "1mbit"}, flow=[{}]).replace(**keys)
    assert str(error.value).startswith(message), error.value


def test_replaced_keys_survive_pickling_and_overrides(tmp_path: Path) -> None:
    (tmp_path / "cell.up").write_text("1\n2\n")
    (tmp_path / "mine.toml").write_text('[link]\ntrace = "cell.up"\ndelay = "5ms"\n')
    made = experiment.load(tmp_path / "mine.toml", duration="8s").replace(link={"queue": "codel"})
    again = pickle.loads(pickle.dumps(made))
    assert (again.toml(), again.name) == (made.toml(), "mine")
    # Values that were not set are still derived from the others.
    for scenario in (made, again):
        assert toml(scenario.replace(link={"delay": "30ms"}))["flow"][0]["rtt"] == "60ms"
        short = quell.scenario(scenario, duration="2s")
        assert (short.warmup_s, short.queue, short.name) == (0.5, "codel", "mine")


# No code writes TOML. -------------------------------------------------------------------------------------------------


def _formatted(tree: ast.AST) -> list[str]:
    """List the formatted strings that look like keys of a file."""
    found = []
    expected = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Assert) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in expected:
            pieces = [str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values]
            text = "".join(pieces)
            if re.search(r"(?m)^\[\[?[a-z.]+\]\]?$|^[a-z_]+ = [\"{\[\d]", text):
                found.append(f"{node.lineno}: {text}")
    return found


def _templates(tree: ast.AST) -> list[str]:
    """List the strings that have tables of a file and fields to fill in."""
    pattern = re.compile(r"^\[\[?[a-z.]+\]\]?$.*\{[a-z]*\}", re.MULTILINE | re.DOTALL)
    texts = [(n.lineno, n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    return [f"{line}: {text}" for line, text in texts if isinstance(text, str) and pattern.search(text)]


def test_no_code_formats_values_into_toml() -> None:
    folders = ("python", "tools", "benches", "examples", "tests")
    every = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files = [path for path in every if path.suffix == ".py" or b"python3\n" in path.read_bytes()[:30]]
    assert len(files) > 80
    assert ROOT / "benches" / "shell" / "fidelity" in files
    allowed = {ROOT / "tests" / "test_scenario_keys.py"}  # its patterns and wrong files would be found
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if path not in allowed
        for tree in [ast.parse(path.read_text())]
        for find in (_formatted, _templates)
        for line in find(tree)
    }
    assert not found
