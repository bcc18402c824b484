"""`tests/circles.py`, which `make test` runs, sees a circle among the modules of a crate."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def circles(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "tests/circles.py", root], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("units", "use crate::{error::Error, queue::ManagedQueue as Planted};"),
        ("units", "type Planted<P> = super::queue::ManagedQueue<P>;"),
        ("units", "pub fn planted(_: &crate::ManagedQueue<(), ()>) {}"),
    ],
)
def test_a_planted_circle_is_named_with_file_and_line(tmp_path: Path, module: str, line: str) -> None:
    shutil.copytree(ROOT / "crates/quell-link/src", tmp_path / "crates/quell-link/src")
    before = circles(tmp_path)
    planted = tmp_path / f"crates/quell-link/src/{module}.rs"
    text = planted.read_text()
    # After the module's own comment, before its tests.
    end = text.index("\n#[cfg(test)]")
    planted.write_text(f"{text[:end]}\n{line}\n{text[end:]}")
    after = circles(tmp_path)
    assert (before.returncode, after.returncode) == (0, 1), before.stdout
    assert f"{planted}:{text[:end].count(chr(10)) + 2}: units uses " in after.stdout


def test_paths_in_tests_comments_and_strings_are_not_uses(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "crates/quell-link/src", tmp_path / "crates/quell-link/src")
    planted = tmp_path / "crates/quell-link/src/units.rs"
    with planted.open("a") as file:
        file.write('// crate::queue::ManagedQueue\nconst PLANTED: &str = "crate::queue::ManagedQueue";\n')
        file.write("#[cfg(test)]\nmod planted {\n    use crate::queue::ManagedQueue;\n}\n")
    assert circles(tmp_path).returncode == 0
