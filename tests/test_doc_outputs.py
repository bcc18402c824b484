"""README and docs show the current output of the commands."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, run


def printed(page: str) -> list[tuple[str, str]]:
    """Find the commands on a page that are shown with their output."""
    return re.findall(r"^```\n\$ quell (.*?)\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def outputs(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "tools/outputs.py", "--check", *words], folder, timeout=600)


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/compare.md", "docs/lab/wifi.md"])
def test_a_page_shows_what_its_commands_print(page: str) -> None:
    """The seeds of the scenario fix the figures; pages leave out empty lines and other tables."""
    done = outputs(page)
    assert done.returncode == 0, done.stderr


def test_readme_and_the_guide_to_compare_show_a_table_each() -> None:
    shown = [command.split()[1] for page in ("README.md", "docs/how-to/compare.md") for command, _ in printed(page)]
    assert shown == ["household", "lte"]


@pytest.mark.real_time
@pytest.mark.parametrize("page", sorted((ROOT / "docs/tutorials").glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_shows_what_its_commands_print(page: Path) -> None:
    done = outputs(str(page.relative_to(ROOT)))
    assert done.returncode == 0, done.stderr
    if "console real" in page.read_text("utf-8") and "not run" in done.stdout:
        pytest.skip(done.stdout.splitlines()[0])


def test_real_packets_support_the_medians_that_a_tutorial_explains() -> None:
    tool = runpy.run_path(str(ROOT / "tools/outputs.py"))
    printed = "answers: median 229 ms, slowest 286 ms, 0 lost; download 9.6 Mbit/s\n"
    again = "answers: median 241 ms, slowest 303 ms, 1 lost; download 9.5 Mbit/s\n"
    assert tool["supports"](again, printed)
    # 47 ms, as with BBR, which limits its own queue.
    assert not tool["supports"](again.replace("241", "47"), printed)
    assert not tool["supports"](again.replace("lost", "gone"), printed)


@pytest.mark.parametrize(
    ("page", "text", "message"),
    [
        ("docs/tutorials/page.md", "```console\n$ quell --version\nquell 0.0.0\n```\n", "has changed: "),
        ("docs/tutorials/page.md", "```console\n$ quell compare nosuch\n```\n", "quell: unknown scenario file"),
        ("docs/tutorials/page.md", "```console\n$ rm -r /\n```\n", "begin it with quell or python"),
        ("README.md", "```\n$ quell --version\nnosuch 0\n```\n", "prints no line like the first one shown"),
        ("README.md", "```\n$ quell --version\nquell 0.0.0\n```\n", "has changed: "),
        ("nosuch.md", "", "nosuch.md: no page with outputs"),
    ],
)
def test_a_page_whose_command_prints_something_else_is_stale(
    page: str, text: str, message: str, tmp_path: Path
) -> None:
    """The check fails for a wrong page."""
    (tmp_path / "docs/tutorials").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/outputs.py", tmp_path / "tools")
    (tmp_path / page).write_text(text)
    done = outputs(page, folder=tmp_path)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert (tmp_path / page).read_text() == text
