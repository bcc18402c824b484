"""Completion of values, through the environment variables that shells use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import QUELL, loaded
from quell import InputError, Scenario, _core
from quell.cli import complete


def completed(line: str, folder: Path, shell: str = "bash") -> list[str]:
    """Ask as a shell's script does; return the values without the descriptions beside them."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = os.environ | asked | {"_QUELL_COMPLETE": f"complete_{shell}"}
    done = subprocess.run([QUELL], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    lines = done.stdout.strip().removeprefix("_arguments '*: :((").removesuffix("))'").splitlines()
    if shell == "zsh":  # "value":"text" in each line, or _files where there is no value
        return [re.split(r'(?<!\\)"', line)[1] for line in lines if line != "_files"]
    return [line.split("\t")[0] for line in lines]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("quell comp", ["compare"]),
        ("quell compare --aqm fq_p", ["fq_pie"]),
        ("quell compare --aqm my", ["my-links/", "my.py"]),
        ("quell live --aqm dual", ["dualpi2"]),
        ("quell compare wifi-h", ["wifi-house"]),
        ("quell compare --trace builtin:lte-", ["builtin:lte-up"]),
        ("quell compare --flow cub", ["cubic"]),
        ("quell compare --flow video_", ["video_call"]),
        ("quell reproduce learnq", ["learnqueue"]),
        ("quell optimum --knob d", ["drop"]),
        ("quell queues cob", ["cobalt"]),
        ("quell scenarios street", ["street-cabinet"]),
        ("quell live --dev l", ["lo"]),
        ("quell compare my", ["my-links/", "my.toml"]),
        ("quell compare my-links/", ["my-links/one.toml"]),
        ("quell compare nosuch", []),
        ("quell steer l", ["lo"]),
        ("quell steer lo w", ["wqm"]),
        ("quell steer lo wqm --with limit,r", ["limit,rate"]),
        ("quell watch l", ["lo"]),
        ("quell live --backend af_x", ["af_xdp"]),
        ("quell shell --up-trace builtin:sleepy-", ["builtin:sleepy-up"]),
        ("quell shell --scenario house", ["household"]),
        ("quell evaluate wifi-h", ["wifi-house"]),
        ("quell tune --for calls,b", ["calls,bulk"]),
        ("quell tune --target op", ["openwrt", "opnsense"]),
        ("quell tune --framing pppoa-v", ["pppoa-vcmux"]),
        ("quell tune --queues cake,fq_c", ["cake,fq_codel"]),
        ("quell sweep --over link.ra", ["link.rate="]),
        ("quell train rl-", ["rl-aqm"]),
    ],
)
def test_values_are_completed(line: str, values: list[str], tmp_path: Path) -> None:
    (tmp_path / "my.toml").touch()
    (tmp_path / "my.txt").touch()
    (tmp_path / "my.py").touch()
    (tmp_path / "my-links").mkdir()
    (tmp_path / "my-links/one.toml").touch()
    if {"--dev", "steer", "watch"} & set(line.split()) and not Path("/sys/class/net/lo").exists():
        pytest.skip("there is no /sys/class/net with an interface lo")
    found = completed(line, tmp_path)
    assert found == values


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("quell comp", ["compare"]),
        ("quell compare --aqm fq_p", ["fq_pie"]),
        ("quell compare wifi-h", ["wifi-house"]),
        ("quell reproduce learnq", ["learnqueue"]),
        ("quell compare nosuch", []),
    ],
)
def test_other_shells_get_the_same_values(shell: str, line: str, values: list[str], tmp_path: Path) -> None:
    assert completed(line, tmp_path, shell) == values


def test_bashs_script_completes_in_bash(tmp_path: Path) -> None:
    """The script that --install-completion writes, in a shell."""
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not installed")
    environment = os.environ | {"PATH": f"{QUELL.parent}{os.pathsep}{os.environ['PATH']}"}
    script = (
        'eval "$(_QUELL_COMPLETE=source_bash quell)"\n'
        "COMP_WORDS=(quell compare --aqm fq_p) COMP_CWORD=3\n"
        'complete -p quell >&2; _quell_completion quell; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "--norc", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "fq_pie\n", done.stderr
    assert "_quell_completion quell" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="no such names on Windows")
@pytest.mark.parametrize("name", ["$(touch run)", "`touch run`", "a;touch run", "a'b", "a\nb"])
def test_no_name_that_a_shell_would_run_is_completed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "plain.toml").touch()
    (tmp_path / f"{name}.toml").touch()
    (tmp_path / "plain.toml").touch()
    listed = [[value for value, _ in complete.files(start)] for start in (name[:1], f"{name}/", f"{name}/pl", "pl")]
    assert [name in value for values in listed for value in values].count(True) == 0
    assert listed[1:] == [[], [], ["plain.toml"]]


@pytest.mark.parametrize(
    ("asked", "others"),
    [
        ({"COMP_WORDS": "quell\nqueues\ncob", "COMP_CWORD": "2"}, False),
        ({"COMP_WORDS": "quell\nqueues", "COMP_CWORD": "1"}, True),
        ({"_TYPER_COMPLETE_ARGS": "quell queues "}, False),
        ({"_TYPER_COMPLETE_ARGS": "quell r"}, True),
    ],
)
def test_only_the_command_whose_words_are_completed_is_loaded(asked: dict[str, str], others: bool) -> None:
    shell = "bash" if "COMP_WORDS" in asked else "zsh"
    modules = loaded(**asked, _QUELL_COMPLETE=f"complete_{shell}")
    assert "quell.cli.queues" in modules
    assert ("quell.cli.tune" in modules) == others


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    environment = os.environ | {"_QUELL_COMPLETE": f"source_{shell}"}
    done = subprocess.run([QUELL], env=environment, capture_output=True, text=True, timeout=60)
    assert f"_QUELL_COMPLETE=complete_{shell}" in done.stdout


def test_the_controllers_that_are_completed_are_those_of_the_help(tmp_path: Path) -> None:
    _, words, _ = _core.options("steer")
    (text,) = (text for head, text in words if head == "CONTROLLER")
    names, _, _ = text.partition(", with options")
    named = set(re.sub(r"\(.*?\)|\bor\b|,", " ", names).split())
    assert set(completed("quell steer lo ", tmp_path)) == named | {"-"}


def test_the_traces_that_are_completed_are_the_built_in_ones() -> None:
    with pytest.raises(InputError) as refused:
        Scenario("home").replace(link={"trace": "builtin:?"})
    _, _, known = str(refused.value).partition("known: ")
    assert [name for name, _ in complete.traces("builtin:")] == [f"builtin:{name}" for name in known.split(", ")]
