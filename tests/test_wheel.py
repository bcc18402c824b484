"""The wheel, alone in an environment of its own: no checkout, no extras."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import ROOT, run
from kernel_vm import STATIC_LIVE, packaged


@dataclass
class Place:
    """An environment with the wheel in it, and an empty folder outside the checkout to run its programs in."""

    venv: Path
    folder: Path

    def __call__(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of the environment's programs."""
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            [str(self.venv / "bin" / program), *arguments], cwd=self.folder, env=kept | {"COLUMNS": "100"},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip


def _uv() -> str:
    mine = ROOT / ".cache/uv-bin/bin/uv"
    found = str(mine) if mine.exists() else shutil.which("uv")
    if found is None:
        pytest.skip("there is no uv to install the wheel with: make build puts one into .cache")
    return found


@pytest.fixture(scope="module")
def archives() -> tuple[Path, Path]:
    """Build the wheel and the source distribution as a user does."""
    done = run(["make", "wheel"], ROOT, timeout=1200)
    assert done.returncode == 0, done.stderr
    (wheel,) = (ROOT / "dist").glob("quell_aqm-*.whl")
    (source,) = (ROOT / "dist").glob("quell_aqm-*.tar.gz")
    return wheel, source


def _install(wheel: Path, folder: Path, extra: str, pins: str) -> Place:
    """Install the wheel into an empty environment, offline, from downloads of `make build` or `make test`."""
    uv, venv = _uv(), folder / "venv"
    environment = os.environ | {"UV_CACHE_DIR": str(ROOT / ".cache/uv")}
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], env=environment, check=True)
    install = [uv, "pip", "install", "--offline", "--python", str(venv / "bin/python"), f"quell-aqm{extra} @ {wheel}"]
    install += ["--constraint", str(ROOT / "requirements" / pins)]
    done = subprocess.run(install, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        pytest.skip(f"the wheel's dependencies are not in uv's cache: {done.stderr.strip()}")
    empty = folder / "empty"
    empty.mkdir()
    return Place(venv, empty)


@pytest.fixture(scope="module")
def installed(archives: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Install the wheel with its dependencies only."""
    return _install(archives[0], tmp_path_factory.mktemp("wheel"), "", "build.txt")


@pytest.fixture(scope="module")
def with_envs(archives: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Install the wheel with the extra for environments."""
    return _install(archives[0], tmp_path_factory.mktemp("envs"), "[envs]", "dev.txt")


@pytest.mark.slow
def test_one_wheel_serves_every_python_from_3_11_and_holds_all_that_quell_reads(archives: tuple[Path, Path]) -> None:
    wheel, _ = archives
    assert "-cp311-abi3-" in wheel.name
    held = set(zipfile.ZipFile(wheel).namelist())
    shipped = {
        str(path.relative_to(ROOT / "python"))
        for path in (ROOT / "python/quell").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".so"}
    }
    assert shipped - held == set()
    assert {"quell/py.typed", "quell/_core.pyi", "quell/_core.abi3.so"} <= held


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("PROFILE", "dist") != "dist", reason="of another profile than published wheels")
def test_the_wheel_is_a_small_download(archives: tuple[Path, Path]) -> None:
    assert archives[0].stat().st_size <= 6_000_000


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("PROFILE", "dist") != "dist", reason="of another profile than published programs")
@pytest.mark.skipif(not STATIC_LIVE.exists(), reason="dist/quell-live: `make quell-live` builds it")
def test_the_static_program_is_small() -> None:
    """The released program, with musl's C library; glibc's is larger."""
    glibc = b"GLIBC_TUNABLES" in STATIC_LIVE.read_bytes()
    assert STATIC_LIVE.stat().st_size <= (3_700_000 if glibc else 3_500_000)


@pytest.mark.slow
def test_the_source_distribution_compiles(archives: tuple[Path, Path]) -> None:
    # Cargo distinguishes two checkouts by neither path nor content: this one gets its own target folder and new times.
    folder = ROOT / "target/sdist"
    shutil.rmtree(folder / "source", ignore_errors=True)
    with tarfile.open(archives[1]) as archive:
        # Python 3.11.2 of Debian 12 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        for member in archive:
            member.mtime = time.time()
            archive.extract(member, folder / "source")
    (unpacked,) = (folder / "source").iterdir()
    # The archive has only a part of the workspace, so cargo removes the rest from the lock file, as it does for pip.
    check = ["cargo", "check", "--quiet", "--offline", "--package", "quell-py", "--target-dir", str(folder / "target")]
    done = run(check, unpacked, timeout=900)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_environment_has_neither_numpy_nor_torch(installed: Place) -> None:
    for module in ("numpy", "torch", "ray", "gymnasium"):
        assert "ModuleNotFoundError" in installed("python", "-c", f"import {module}").stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["--version"], "quell "),
        (["reproduce", "--list"], "l4s-a3c"),
        (["reproduce", "l4s-a3c", "--list"], "F27.10"),
        (["compare", "home", "--seeds", "1", "--duration", "5s"], "fq_codel"),
        (["reproduce", "wqm", "--quick"], "goodput"),
        (["optimum", "home", "--duration", "5s", "--seeds", "1"], "limit"),
        (["queues"], "dualpi2"),
        (["scenarios"], "wifi-house"),
        (["train", "--help"], "learnqueue"),
        (["show", str(ROOT / "crates/quell-link/models/rl-aqm.safetensors")], "trained on"),
    ],
)
def test_a_command_works_from_the_wheel(installed: Place, command: list[str], said: str) -> None:
    done = installed("quell", *command)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.slow
def test_a_queue_is_attached_to_an_interface_from_the_wheel(installed: Place) -> None:
    # The guest gets the files that the command reads here.
    code = """
import sys
from quell.__main__ import main
sys.argv = ["quell", "attach", "lo", "hush", "--dry-run"]
try:
    main()
except SystemExit as done:
    assert not done.code
print(*{getattr(module, "__file__", None) or "" for module in sys.modules.values()}, sep="\\n")
"""
    done = installed("python", "-c", code)
    assert done.returncode == 0, done.stderr
    program, python = installed.venv / "bin/quell", installed.venv / "bin/python"
    files = [Path(file) for file in done.stdout.splitlines() if file]
    assert any(file.name == "_core.abi3.so" and installed.venv in file.parents for file in files), files
    packaged(program, {str(file): file for file in (*files, program, python, installed.venv / "pyvenv.cfg")})


@pytest.mark.slow
def test_curves_of_the_trainings_are_in_the_wheel(installed: Place) -> None:
    code = "from quell.papers import curves; print(curves.__file__, len(curves.find('rl-aqm')['step']))"
    done = installed("python", "-c", code)
    assert done.returncode == 0, done.stderr
    file, rows = done.stdout.split()
    assert ROOT not in Path(file).parents
    assert int(rows) > 100


@pytest.mark.slow
def test_commands_that_need_an_extra_name_the_line_for_a_wheel(installed: Place) -> None:
    for command, line in (
        (["train", "rl-aqm"], "quell: training needs torch, numpy, safetensors: pip install 'quell-aqm[train]'\n"),
        (["compare", "--ray", "local"], "quell: --ray needs ray: pip install 'quell-aqm[ray]'\n"),
    ):
        done = installed("quell", *command)
        assert (done.returncode, done.stderr) == (2, line)
    done = installed("python", "-c", "import quell; quell.env('home')")
    assert re.search(r"environments need \w+: pip install 'quell-aqm\[envs\]'", done.stderr)


@pytest.mark.slow
def test_the_report_from_the_wheel_is_one_whole_page(installed: Place) -> None:
    done = installed("quell", "compare", "--seeds", "1", "--duration", "5s", "--aqm", "lfq", "--html", "report.html")
    assert done.returncode == 0, done.stderr
    page = (installed.folder / "report.html").read_text("utf-8")
    assert "<script>" in page and "lfq" in page
    assert not re.findall(r"(?:src|href)=[\"']https?:", page)


@pytest.mark.slow
def test_an_environment_from_the_wheel_needs_no_import_of_quell(with_envs: Place) -> None:
    code = """
import gymnasium
env = gymnasium.make("quell:quell/RlAqm-v0", duration="1s")
env.reset(seed=1)
steps = 1
while not env.step(1)[3]:
    steps += 1
print(steps, gymnasium.make_vec("quell/Lfq-v0", num_envs=2).reset(seed=1)[0].shape)
"""
    done = with_envs("python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "50 (2, 60)\n"
