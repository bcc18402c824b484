"""tests/by-file: which tests run again after which change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conftest import ROOT

TESTS = """
    import subprocess, sys
    from pathlib import Path
    import pytest
    import imported

    HERE = Path(__file__).parent.parent

    def started(name):
        subprocess.run([sys.executable, HERE / "programs" / name], check=True)

    @pytest.fixture(scope="module")
    def shared():
        started("shared.py")

    def test_one():
        started("one.py")

    def test_two():
        started("two.py")

    def test_three(shared):
        pass

    def test_four():
        (HERE / "read.txt").read_text()

    def test_five():
        # What a shell reads from its standard input is unknown.
        subprocess.run(["sh"], input="true", text=True, check=True)
"""
FILES = {
    "tests/test_it.py": TESTS,
    "tests/test_other.py": "import subprocess\n\ndef test_it():\n    subprocess.run(['dist/quell-live'], check=True)\n",
    "tests/imported.py": "X = 1\n",
    "read.txt": "text\n",
    "programs/one.py": "open(__file__)\n",
    "programs/two.py": "open(__file__)\n",
    "programs/shared.py": "open(__file__)\n",
    "other.txt": "text\n",
    "dist/quell-live": "#!/bin/sh\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a small checkout with tests that start programs and read files."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    (tmp_path / "dist/quell-live").chmod(0o755)
    for name in ("by-file", "kinds.py", "circles.py", "recorder/sitecustomize.py", "recorder/by_item.py"):
        (tmp_path / "tests" / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    (tmp_path / ".gitignore").write_text("target/\ndist/\n__pycache__/\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def ran(checkout: Path) -> set[str]:
    """Run the tests that are due; return their names."""
    named = ("CI", "FORCE", "PYTHONPATH", "QUELL_TEST_INPUTS")
    environment = {key: value for key, value in os.environ.items() if key not in named}
    words = [sys.executable, "tests/by-file", "--", "-v", "-p", "no:anyio"]
    done = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True, timeout=120)
    assert not done.stderr, done.stderr
    lines = [line.split(" ")[0] for line in done.stdout.splitlines() if "::" in line and "PASSED" in line]
    return {line.removeprefix("tests/") for line in lines}


IT = {f"test_it.py::test_{name}" for name in ("one", "two", "three", "four")}
UNKNOWN, OTHER = {"test_it.py::test_five"}, {"test_other.py::test_it"}


def test_only_tests_whose_inputs_changed_run_again(checkout: Path) -> None:
    def change(name: str) -> set[str]:
        with (checkout / name).open("a") as file:
            file.write("# More.\n")
        return ran(checkout)

    every = IT | UNKNOWN | OTHER
    assert ran(checkout) == every
    assert ran(checkout) == set()
    assert change("other.txt") == UNKNOWN | IT  # started by pytest itself, so all tests of the file depend on it
    # Without this line each test is recorded separately.
    file = checkout / "tests/test_it.py"
    file.write_text(file.read_text().partition("def test_five")[0])
    assert ran(checkout) == IT
    assert change("other.txt") == set()
    assert change("programs/one.py") == {"test_it.py::test_one"}
    assert change("programs/shared.py") == IT
    assert change("read.txt") == IT
    assert change("tests/imported.py") == IT
    assert change("tests/test_other.py") == OTHER
    assert change("dist/quell-live") == OTHER
    # A new file name can change any test's result.
    assert change("new.txt") == IT | OTHER


def test_only_failed_tests_run_again(checkout: Path) -> None:
    assert ran(checkout) == IT | UNKNOWN | OTHER
    program = checkout / "programs/two.py"
    program.write_text("raise SystemExit(1)\n")
    file = checkout / "tests/test_it.py"
    file.write_text(file.read_text().partition("def test_five")[0])
    two = "test_it.py::test_two"
    assert ran(checkout) == IT - {two}
    assert ran(checkout) == set()
    program.write_text("pass\n")
    assert ran(checkout) == {two}
    assert ran(checkout) == set()


def test_an_interrupted_test_runs_again_even_if_another_failed(checkout: Path) -> None:
    (checkout / "target").mkdir()
    (checkout / "tests/test_stopped.py").write_text(
        textwrap.dedent("""
            from pathlib import Path
            import pytest

            def test_fails():
                assert False

            def test_stops():
                # Files that git ignores are not inputs.
                with (Path(__file__).parent.parent / "target/runs").open("a") as file:
                    file.write("run\\n")
                pytest.exit("stopped", returncode=1)
        """)
    )
    for runs in (1, 2):
        ran(checkout)
        assert (checkout / "target/runs").read_text() == "run\n" * runs
