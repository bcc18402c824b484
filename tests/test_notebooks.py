"""The notebooks of examples/ run, and reproduce the committed outputs."""

from __future__ import annotations

import io
import json
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

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


def committed(folder: Path, source: str, output: dict[str, Any]) -> Path:
    """Write a checkout with one notebook of one cell; return the notebook."""
    (folder / "tools").mkdir()
    (folder / "examples").mkdir()
    (folder / "tools/notebooks.py").write_text((ROOT / "tools/notebooks.py").read_text("utf-8"))
    cell = {"cell_type": "code", "id": "a", "source": source, "metadata": {}, "execution_count": 1}
    whole = {"cells": [cell | {"outputs": [output]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "examples/wrong.ipynb").write_text(json.dumps(whole))
    return folder / "examples/wrong.ipynb"


@pytest.mark.slow
def test_output_that_differs_is_stale(tmp_path: Path) -> None:
    committed(tmp_path, "print(2 + 2)", {"output_type": "stream", "name": "stdout", "text": "5\n"})
    done = run([sys.executable, "tools/notebooks.py", "--check"], tmp_path, timeout=300)
    assert done.returncode == 1 and "have changed in wrong.ipynb" in done.stderr


@pytest.mark.slow
def test_a_cell_that_draws_another_image_is_stale_and_is_redrawn(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")

    def encoded(red: int, blue: int) -> str:
        held = io.BytesIO()
        image.new("RGB", (8, 8), (red, 0, blue)).save(held, "PNG")
        return b64encode(held.getvalue()).decode()

    plain = {"text/plain": "<PIL.Image.Image image mode=RGB size=8x8>"}
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}}
    source = 'from PIL import Image\nImage.new("RGB", (8, 8), (200, 0, 0))'
    file = committed(tmp_path, source, output | {"data": plain | {"image/png": encoded(0, 200)}})
    command = [sys.executable, "tools/notebooks.py"]
    done = run([*command, "--check"], tmp_path, timeout=300)
    assert done.returncode == 1 and "have changed in wrong.ipynb" in done.stderr
    done = run(command, tmp_path, timeout=300)
    assert (done.returncode, done.stdout) == (0, "notebooks: wrote wrong.ipynb\n"), done.stderr
    data = json.loads(file.read_text())["cells"][0]["outputs"][0]["data"]
    assert image.open(io.BytesIO(b64decode(data["image/png"]))).getpixel((0, 0)) == (200, 0, 0)
    # Another processor may round differently.
    file.write_text(file.read_text().replace(data["image/png"].strip(), encoded(201, 0)))
    done = run([*command, "--check"], tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
