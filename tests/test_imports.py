"""The layers of `python/quell`, which `lint-imports` checks (pyproject.toml), and imports that it cannot see."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python/quell"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the package in a folder against the contracts of pyproject.toml."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([program, "--no-cache"], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        ("common/text.py", "", "2 kept, 0 broken"),
        ("common/text.py", "from quell.results import stats", "quell.common.text -> quell.results.stats"),
        ("tune/line.py", "from quell.papers import paper", "quell.tune.line -> quell.papers.paper"),
        ("train/kit.py", "from quell.tune import line", "quell.train.kit -> quell.tune.line"),
        ("tune/line.py", "from quell.tune import aims", ".line -> .aims"),
        ("views/page.py", "def late():\n    from quell.cli import usage", "quell.views.page -> quell.cli.usage"),
        ("stray.py", "", "stray"),
    ],
)
def test_an_import_that_points_up_is_named(tmp_path: Path, module: str, line: str, said: str) -> None:
    copy = tmp_path / "quell"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__", "trained"))
    with (copy / module).open("a") as file:
        file.write(f"\n{line}\n")
    done = lint(tmp_path)
    assert said in done.stdout
    assert done.returncode == ("0 broken" not in said)


def faces(folder: Path) -> Iterator[str]:
    """List imports from `quell` itself; modules must import a name from its own module, such as `quell._core`."""
    parts = {path.stem for path in PACKAGE.iterdir()} | {"_core"}
    for path in sorted(folder.rglob("*.py")):
        if path == folder / "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            strays: list[str] = []
            if isinstance(node, ast.Import):
                strays = [name.name for name in node.names if name.name == "quell"]
            elif isinstance(node, ast.ImportFrom) and (node.level or node.module == "quell"):
                strays = [name.name for name in node.names if node.level or name.name not in parts]
            yield from (f"{path.relative_to(folder)}:{getattr(node, 'lineno', 0)}: {name}" for name in strays)


def test_nothing_inside_imports_the_face(tmp_path: Path) -> None:
    assert list(faces(PACKAGE)) == []
    (tmp_path / "planted.py").write_text("import quell\nfrom quell import _core, compare\nfrom . import common\n")
    assert list(faces(tmp_path)) == ["planted.py:1: quell", "planted.py:2: compare", "planted.py:3: common"]
