"""The notebooks of examples/ run, and reproduce the committed outputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conftest import ROOT, run

pytest.importorskip("nbclient", reason="nbclient is not installed")
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.slow
def test_there_are_some() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"compare", "environment", "own_queue"}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_and_draws_what_is_committed(path: Path) -> None:
    done = run([sys.executable, "tools/notebooks.py", "--check", path.stem], ROOT, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_its_outputs_and_nothing_of_the_machine(path: Path) -> None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 3 and any(cell["outputs"] for cell in code)
    assert not any("Error" in output["output_type"] for cell in code for output in cell["outputs"])
    assert str(ROOT) not in path.read_text("utf-8") and path.stat().st_size < 300_000


@pytest.mark.slow
def test_what_prints_something_else_is_stale(tmp_path: Path) -> None:
    source = (ROOT / "tools/notebooks.py").read_text("utf-8")
    (tmp_path / "tools").mkdir()
    (tmp_path / "examples").mkdir()
    (tmp_path / "tools/notebooks.py").write_text(source)
    output = {"output_type": "stream", "name": "stdout", "text": "5\n"}
    cell = {"cell_type": "code", "id": "a", "source": "print(2 + 2)", "metadata": {}, "execution_count": 1}
    whole = {"cells": [cell | {"outputs": [output]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "examples/wrong.ipynb").write_text(json.dumps(whole))
    done = run([sys.executable, "tools/notebooks.py", "--check"], tmp_path, timeout=300)
    assert done.returncode == 1 and "has changed in wrong.ipynb" in done.stderr
