"""The wheel, alone in an environment of its own: no checkout, no extras."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import ROOT

Installed = Callable[..., "subprocess.CompletedProcess[str]"]


def _uv() -> str | None:
    mine = ROOT / ".cache/uv-bin/bin/uv"
    return str(mine) if mine.exists() else shutil.which("uv")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel, install it, and run its `quell` in an empty folder."""
    uv = _uv()
    if uv is None:
        pytest.skip("there is no uv to install the wheel with: make build puts one into .cache")
    folder = tmp_path_factory.mktemp("wheel")
    # As the Makefile calls it, so that nothing is compiled again.
    environment = os.environ | {"PYO3_PYTHON": sys.executable, "UV_CACHE_DIR": str(ROOT / ".cache/uv")}
    maturin = [str(Path(sys.executable).with_name("maturin")), "build", "--release", "--locked", "--out", str(folder)]
    done = subprocess.run(maturin, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("quell_aqm-*.whl")
    venv = folder / "venv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], env=environment, check=True)
    # What `make build` downloaded is in the cache.
    install = [uv, "pip", "install", "--offline", "--python", str(venv / "bin/python"), str(wheel)]
    install += ["--constraint", str(ROOT / "requirements/build.txt")]
    done = subprocess.run(install, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        pytest.skip(f"the wheel's dependencies are not in uv's cache: {done.stderr.strip()}")
    empty = folder / "empty"
    empty.mkdir()

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        program, *arguments = words
        return subprocess.run(
            [str(venv / "bin" / program), *arguments], cwd=empty, env=kept | {"COLUMNS": "100"},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    return call


def test_the_environment_has_neither_numpy_nor_torch(installed: Installed) -> None:
    for module in ("numpy", "torch", "ray", "gymnasium"):
        assert "ModuleNotFoundError" in installed("python", "-c", f"import {module}").stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["--version"], "quell "),
        (["reproduce", "--list"], "l4s-a3c"),
        (["reproduce", "l4s-a3c", "--list"], "F27.10"),
        (["compare", "home", "--seeds", "1", "--duration", "5s"], "fq_codel"),
        (["compare", "--seeds", "1", "--duration", "5s", "--aqm", "lfq", "--html", "report.html"], "lfq"),
        (["queues"], "dualpi2"),
        (["scenarios"], "wifi-house"),
        (["train", "--help"], "learnqueue"),
        (["show", str(ROOT / "models/rl-aqm.safetensors")], "trained on"),
    ],
)
def test_a_command_works_from_the_wheel(installed: Installed, command: list[str], said: str) -> None:
    done = installed("quell", *command)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_curves_of_the_trainings_are_in_the_wheel(installed: Installed) -> None:
    code = "from quell.papers import curves; print(curves.__file__, len(curves.find('rl-aqm')['step']))"
    done = installed("python", "-c", code)
    assert done.returncode == 0, done.stderr
    file, rows = done.stdout.split()
    assert ROOT not in Path(file).parents
    assert int(rows) > 100


def test_what_needs_an_extra_names_the_line_for_a_wheel(installed: Installed) -> None:
    for command, line in (
        (["train", "rl-aqm"], "quell: training needs torch, numpy, safetensors: pip install 'quell-aqm[train]'\n"),
        (["compare", "--ray", "local"], "quell: --ray needs ray: pip install 'quell-aqm[ray]'\n"),
    ):
        done = installed("quell", *command)
        assert (done.returncode, done.stderr) == (2, line)
    done = installed("python", "-c", "import quell; quell.env('home')")
    assert re.search(r"environments need \w+: pip install 'quell-aqm\[envs\]'", done.stderr)
