"""Optional dependencies: their names, and the command that installs them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import ROOT
from quell.common import extras

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_in_a_checkout_the_line_is_a_make_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(ROOT / ".venv"))
    monkeypatch.chdir(ROOT)
    assert extras.install("train") == "make extras EXTRAS=train"
    assert extras.install("envs", "train") == "make extras EXTRAS='envs train'"
    monkeypatch.chdir(tmp_path)
    assert shlex.split(extras.install("ray")) == ["make", "-C", str(ROOT), "extras", "EXTRAS=ray"]


def test_anywhere_else_it_is_the_distributions_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert extras.install("train") == "pip install 'quell-aqm[train]'"
    assert extras.install("envs", "train") == "pip install 'quell-aqm[envs,train]'"


@pytest.mark.parametrize("path", sorted((ROOT / "python").rglob("*.py")) + sorted((ROOT / "examples").glob("*.py")))
def test_every_extra_that_is_named_exists(path: Path) -> None:
    import ast

    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "install":
            assert {ast.literal_eval(argument) for argument in node.args} <= EXTRAS.keys()


@pytest.mark.torch
@pytest.mark.skipif(Path(sys.prefix).resolve() != ROOT / ".venv", reason="quell does not run in the checkout's .venv")
def test_make_extras_installs_what_it_is_asked_for() -> None:
    # Everything is already installed where tests run; this checks, offline, that names and constraints fit.
    for words in ([], ["EXTRAS=train"], ["EXTRAS=envs ray"], ["EXTRAS=onnx,sb3"]):
        done = subprocess.run(
            ["make", "extras", *words], cwd=ROOT, env=os.environ | {"UV_OFFLINE": "1"}, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    unknown = subprocess.run(["make", "extras", "EXTRAS=nonsense"], cwd=ROOT, capture_output=True, text=True)
    assert unknown.returncode != 0
    assert "nonsense" in unknown.stderr
