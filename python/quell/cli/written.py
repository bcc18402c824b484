"""Refuses a command line that would write over a file that it also reads, or write two things to one file."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quell._core import InputError

_WRITES = ("--json", "--html", "--parquet", "--csv", "--flent", "--pcap", "--out")
_WITHIN = re.compile(r"[\s=,]+")
_LARGEST_SCENARIO = 1 << 20


def check(arguments: Sequence[str]) -> None:
    """Raise InputError for a file that is to be written and is named once more.

    Names within other words count, too, as in `--aqm 'hush model FILE'`, and those that a scenario has.
    """
    words = list(_apart(arguments))
    for at, (option, text) in enumerate(words):
        if option not in _WRITES or text == "-":
            continue
        for other, more in words[:at] + words[at + 1 :]:
            written = other in _WRITES
            parts = [part for part in (more, *_WITHIN.split(more)) if part not in ("", "-")]
            named = [*parts, *(name for part in parts for name in _within(part))]
            if any(
                same(text, part, written=written) or (option == "--flent" and _is_run(part, text)) for part in named
            ):
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
    """Give the files that a scenario may name: the words of all its texts, from its folder and from this one."""
    try:
        scenario = Path(path)
        if not scenario.is_file() or scenario.stat().st_size > _LARGEST_SCENARIO:
            return
        left: list[Any] = [tomllib.loads(scenario.read_text(encoding="utf-8"))]
    except (OSError, ValueError, RecursionError):  # the command itself says what is wrong with it
        return
    while left:
        value = left.pop()
        if isinstance(value, str):
            for name in (value, *_WITHIN.split(value)):
                yield from (name, str(scenario.parent / name))
        elif isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value


def _is_run(name: str, flent: str) -> bool:
    """Say whether `--flent` may write a file of this name: for each of several runs it adds the queue and the seed."""
    from quell.inputs.flent import SUFFIX

    stem = Path(flent).name.removesuffix(SUFFIX) + "."
    is_named_so = Path(name).name.startswith(stem) and name.endswith(SUFFIX)
    return is_named_so and os.path.realpath(Path(name).parent) == os.path.realpath(Path(flent).parent)


def same(one: str, other: str, *, written: bool) -> bool:
    """Say whether two words name the same plain file, which need not be there yet if both are `written`."""
    try:
        if Path(one).exists():
            return Path(one).is_file() and Path(one).samefile(other)
        return written and Path(one).resolve() == Path(other).resolve()
    except (OSError, RuntimeError, ValueError):  # the command itself says what is wrong with a name
        return False
