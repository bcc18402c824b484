#!/usr/bin/env python3
"""Find phrases that tests/prose.txt lists, and say what to write instead; find comments of Rust beyond column 100.

    tests/prose.py [FOLDER...]

Without arguments all texts and sources of the repository are checked. The exit status is 1 if there is a hit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
FENCED = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"`[^`\n]+`")
NAME = re.compile(r"\b(?:fn|def) \w+")
"""The name of a function. It is checked like a sentence, because the names of tests are sentences."""
TEXT = (".md", ".py", ".pyi", ".rs", ".toml", ".html", ".js", ".c", ".h", ".txt", ".sh", ".yml", ".ipynb")

WIDE = re.compile(r"^(?=.{101})\s*//[/!]?+ *+(?!\|)[^`\n]*?\w (?:[^`\n]|`[^`\n]*`)*$", re.MULTILINE)
"""A comment of Rust beyond column 100 that could be broken; table rows and lines of code alone are excepted."""


@dataclass(frozen=True)
class Rule:
    """A pattern, its replacement, and lines in which it is allowed."""

    pattern: re.Pattern[str]
    advice: str
    exception: re.Pattern[str] | None


def rules(text: str) -> list[Rule]:
    """Read the word list."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            pattern, advice, *exception = re.split(r"\t+", line)
            found.append(Rule(re.compile(pattern), advice, re.compile(exception[0]) if exception else None))
    return found


def prose(path: Path) -> str:
    """Return a file's text; of a page without its code, of a program with spaces in the names of functions.

    Line numbers stay the same.
    """
    text = path.read_text("utf-8", "replace")
    if path.suffix != ".md":
        return NAME.sub(lambda found: found[0].replace("_", " "), text)
    return QUOTED.sub("`code`", FENCED.sub(lambda found: "\n" * found[0].count("\n"), text))


def hits(path: Path, listed: list[Rule], some: re.Pattern[str]) -> Iterator[tuple[int, str, str]]:
    """Yield each hit of a file: line, phrase, advice. Phrases may continue on the next line."""
    text = prose(path)
    flat = re.sub(r"\n[ \t]*(?:(?://[/!]|#|\*|>)[ \t]+)?(?=\S)", lambda found: " " * len(found[0]), text)
    for rule in listed if some.search(flat) else ():
        for found in rule.pattern.finditer(flat):
            line = text.count("\n", 0, found.start()) + 1
            around = flat[max(found.start() - 60, 0) : found.end() + 60]
            if rule.exception is None or not rule.exception.search(around):
                yield line, re.sub(r"\s+", " ", found[0]), rule.advice
    for found in WIDE.finditer(text) if path.suffix == ".rs" else ():
        yield text.count("\n", 0, found.start()) + 1, found[0].strip()[:60], "break the line at column 100"


def tracked(root: Path) -> list[Path]:
    """List the text files of the repository without the word list and its test."""
    done = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
    paths = [
        Path(name) for name in done.stdout.splitlines() if not name.startswith(("tests/prose", "tests/test_prose"))
    ]
    return [path for path in paths if path.suffix in TEXT or (path.parts[0] == "benches" and not path.suffix)]


def main(words: list[str]) -> int:
    """Check everything, or the named folders."""
    root = LIST.parents[1]
    listed = rules(LIST.read_text("utf-8"))
    # Most files have no hit, so one expression for all phrases runs first; it takes a sixth of the time.
    some = re.compile("|".join(rule.pattern.pattern for rule in listed))
    found = 0
    for path in tracked(root):
        named = not words or str(path).startswith(tuple(words))
        for line, phrase, advice in hits(root / path, listed, some) if named and (root / path).is_file() else ():
            found += 1
            print(f"{path}:{line}: {phrase!r}: {advice}")
    return found > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
