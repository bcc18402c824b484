"""Refuses a command line that would write over a file that it also reads, or write two things to one file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quell._core import InputError

_WRITES = ("--json", "--html", "--parquet", "--csv", "--flent", "--pcap", "--out")


def check(arguments: Sequence[str]) -> None:
    """Raise InputError for a file that is to be written and is named once more.

    Names within other words count, too, as in `--aqm 'hush model FILE'`.
    """
    words = list(_apart(arguments))
    for at, (option, text) in enumerate(words):
        if option not in _WRITES or text == "-":
            continue
        for other, more in words[:at] + words[at + 1 :]:
            written = other in _WRITES
            named = more, *more.split(), *_within(more)
            if any(same(text, part, written=written) for part in named if part != "-"):
                how = f"{other} writes it, too" if written else "the command reads it, too"
                raise InputError(f"{option} {text}: {how}; name another file")


def _apart(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give each word that is no option, with the option before it; of `quell shell` not its command."""
    option = ""
    for word in arguments[1:]:
        if word == "--":
            return
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            if equals:
                yield option, value
                option = ""
        elif re.fullmatch(r"-\w+", word):
            option = ""
        elif arguments[0] == "shell" and not option:
            return
        else:
            yield option, word
            option = ""


def _within(path: str) -> Iterator[str]:
    """Give the files that a scenario may name: all its texts, from its folder."""
    try:
        if not path.endswith(".toml"):
            return
        left: list[Any] = [tomllib.loads(Path(path).read_text(encoding="utf-8"))]
    except (OSError, ValueError, RecursionError):  # the command itself says what is wrong with it
        return
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield str(Path(path).parent / value)
        elif isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value


def same(one: str, other: str, *, written: bool) -> bool:
    """Say whether two words name the same plain file, which need not be there yet if both are `written`."""
    try:
        if Path(one).exists():
            return Path(one).is_file() and Path(one).samefile(other)
        return written and Path(one).resolve() == Path(other).resolve()
    except (OSError, RuntimeError, ValueError):  # the command itself says what is wrong with a name
        return False
