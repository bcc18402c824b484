#!/usr/bin/env python3
"""Run the notebooks of examples/ and write the outputs of their cells: text and pictures.

    .venv/bin/python tools/notebooks.py [--check] [NAME...]

--check writes nothing and fails if a text or a picture differs. Run `make build` before it.
"""

import base64
import io
import pathlib
import sys
import tempfile
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image, ImageChops, ImageStat

ROOT = pathlib.Path(__file__).resolve().parents[1]
KEPT = ("text/plain", "image/png")
ROUNDING = 16
"""Largest difference of a pixel, of 255, that another processor may cause."""


def executed(path):
    """Run a notebook in an empty folder; return it with only the texts and pictures of its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        try:
            # Unix sockets in a folder of this user instead of TCP ports, to which other users could connect.
            kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
            NotebookClient(notebook, km=kernel, timeout=500, resources={"metadata": {"path": folder}}).execute()
        except CellExecutionError as error:
            sys.exit(f"notebooks: {path.name}: {error.ename}: {error.evalue}")
    # Drop metadata, which depends on the machine and the time.
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if "outputs" in cell:
            cell.outputs = joined(cell.outputs)
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data = {kind: output.data[kind] for kind in KEPT if kind in output.data}
                output.metadata = {}
    return notebook


def joined(outputs):
    """Join successive outputs of a cell on the same stream."""
    whole: list[Any] = []
    for output in outputs:
        if whole and output.output_type == "stream" == whole[-1].output_type and output.name == whole[-1].name:
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def shown(notebook):
    """Return the sources and the text outputs of the cells; of a picture only its formats."""
    cells = []
    for cell in notebook.cells:
        outputs = [output.get("text") or sorted(output.get("data", {})) for output in cell.get("outputs", [])]
        outputs += [
            output.data["text/plain"]
            for output in cell.get("outputs", [])
            if set(output.get("data", ())) == {"text/plain"}
        ]
        cells.append((cell.source, outputs))
    return cells


def pictures(notebook):
    """Return the pictures of the outputs, in their order."""
    data = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    files = [io.BytesIO(base64.b64decode(one["image/png"])) for one in data if "image/png" in one]
    return [Image.open(file).convert("RGB") for file in files]


def same(one, other):
    """Return whether two notebooks have the same sources, texts and pictures."""
    return shown(one) == shown(other) and all(map(alike, pictures(one), pictures(other)))


def alike(one, other):
    """Return whether two pictures differ by rounding only."""
    if one.size != other.size:
        return False
    return all(highest <= ROUNDING for _, highest in ImageStat.Stat(ImageChops.difference(one, other)).extrema)


def main(words):
    """Write or check the notebooks."""
    names = [word for word in words if word != "--check"]
    paths = {path.stem: path for path in sorted((ROOT / "examples").glob("*.ipynb"))}
    if unknown := set(names) - set(paths):
        sys.exit(f"notebooks: unknown: {', '.join(sorted(unknown))}; known: --check, {', '.join(paths)}")
    stale = []
    for path in (paths[name] for name in names or paths):
        now = executed(path)
        if not same(now, nbformat.read(path, as_version=4)):
            stale.append(path.name)
            if "--check" not in words:
                nbformat.write(now, path)
    if stale and "--check" in words:
        sys.exit(f"notebooks: cells' outputs have changed in {', '.join(stale)}: .venv/bin/python tools/notebooks.py")
    print(f"notebooks: {'wrote ' + ', '.join(stale) if stale else 'nothing has changed'}")


if __name__ == "__main__":
    main(sys.argv[1:])
