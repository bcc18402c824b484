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


def test_a_circle_of_two_folders_is_found_though_none_of_their_files_is_in_one(tmp_path: Path) -> None:
    for file, text in [
        ("lib.rs", "mod left;\nmod right;\n"),
        ("left/mod.rs", "mod one;\nmod two;\n"),
        ("left/one.rs", "use crate::right::three::Three;\n"),
        ("left/two.rs", "pub struct Two;\n"),
        ("right/mod.rs", "pub mod three;\nmod four;\n"),
        ("right/three.rs", "pub struct Three;\n"),
        ("right/four.rs", ""),
    ]:
        path = tmp_path / "crates/planted/src" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = circles(tmp_path)
    (tmp_path / "crates/planted/src/right/four.rs").write_text("\nuse crate::left::two::Two;\n")
    after = circles(tmp_path)
    assert (before.returncode, after.returncode) == (0, 1), before.stdout
    assert "left/one.rs:1: left::one uses right::three\n" in after.stdout
    assert "right/four.rs:2: right::four uses left::two\n" in after.stdout


def test_paths_in_tests_comments_and_strings_are_not_uses(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "crates/quell-link/src", tmp_path / "crates/quell-link/src")
    planted = tmp_path / "crates/quell-link/src/units.rs"
    with planted.open("a") as file:
        file.write('// crate::queue::ManagedQueue\nconst PLANTED: &str = "crate::queue::ManagedQueue";\n')
        file.write("#[cfg(test)]\nmod planted {\n    use crate::queue::ManagedQueue;\n}\n")
    assert circles(tmp_path).returncode == 0
