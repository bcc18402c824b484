"""The check of phrases: it finds a planted phrase, and honours exceptions and code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, run

RULES = "# Rules\n\n\\bnobody\\b\tname who\n\\bstands in\\b\tis in\tstands in line\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a repository with the check, a word list of two rules and a clean page."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "tests/prose.py", tmp_path / "tests")
    (tmp_path / "tests/prose.txt").write_text(RULES)
    (tmp_path / "README.md").write_text("A packet stands in line.\n\n```\nnobody\n```\n\nAs `nobody` says.\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    return run([sys.executable, "tests/prose.py", *words], folder)


def test_code_and_exceptions_are_not_hits(repository: Path) -> None:
    done = check(repository)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "text", ["What nobody sees.\n", "The queue stands\nin a file.\n"], ids=["phrase", "broken line"]
)
def test_a_planted_phrase_fails_with_its_place_and_advice(repository: Path, text: str) -> None:
    (repository / "docs/page.md").write_text("# Page\n\n" + text)
    done = check(repository)
    assert done.returncode == 1
    assert done.stdout.startswith("docs/page.md:3: ") and done.stdout.endswith((": name who\n", ": is in\n"))


def test_comments_are_checked_and_folders_can_be_named(repository: Path) -> None:
    (repository / "src").mkdir()
    (repository / "src/code.rs").write_text("// What nobody\n// sees, nobody at all.\n")
    assert check(repository).returncode == 1
    assert check(repository, "docs/").returncode == 0
    assert check(repository, "src/").stdout.count("src/code.rs") == 2


def test_a_wide_comment_of_rust_fails_but_not_a_table_or_code(repository: Path) -> None:
    wide = "packet " * 14
    (repository / "code.rs").write_text(f"/// | {wide} |\n/// `{wide}`,\nlet a = 1; // {wide}\n")
    assert check(repository).returncode == 0
    (repository / "code.rs").write_text(f"fn f() {{\n    // A {wide}\n}}\n")
    assert check(repository).stdout.startswith("code.rs:2: '// A packet")


def test_names_of_functions_are_read_as_sentences(repository: Path) -> None:
    (repository / "test_it.py").write_text("def test_nobody_waits() -> None: ...\n\n\nnobody_else = 1\n")
    done = check(repository)
    assert (done.returncode, done.stdout) == (1, "test_it.py:1: 'nobody': name who\n")
