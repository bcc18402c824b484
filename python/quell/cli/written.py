"""Checks that a command line does not overwrite a file that it also reads, or write two results to one file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from quell._core import InputError
from quell.inputs import toml

_WRITES = ("--json", "--html", "--parquet", "--csv", "--flent", "--pcap", "--cache", "--out")
_WITHIN = re.compile(r"[\s=,:]+")
_MAX_SCENARIO = 1 << 20


class _Word:
    """A word of the command line after an option. The files that it may name are looked up once and only if needed."""

    def __init__(self, option: str, text: str) -> None:
        self.option = option
        self.text = text
        self.is_written = option in _WRITES

    @cached_property
    def names(self) -> set[str]:
        parts = {self.text, *_WITHIN.split(self.text)} - {"", "-"}
        return parts if self.is_written else parts.union(*map(_within, parts))

    @cached_property
    def files(self) -> set[tuple[int, int]]:
        return {file for name in self.names if (file := _identity(name)) is not None}

    @cached_property
    def file(self) -> tuple[int, int] | None:
        return _identity(self.text) if os.path.isfile(self.text) else None  # noqa: PTH113 (a name of any length)


def check(arguments: Sequence[str]) -> None:
    """Raise InputError for a file that is to be written and is named a second time.

    Names within other words also count, as in `--aqm 'hush model FILE'`, and names in a scenario.
    """
    words = [_Word(option, text) for option, text in _apart(arguments)]
    for output in words:
        if not output.is_written or output.text == "-":
            continue
        for other in words:
            if other is not output and _is_named(output, other):
                how = f"{other.option} writes it, too" if other.is_written else "the command reads it, too"
                raise InputError(f"{output.option} {output.text}: {how}; name another file")


def _is_named(output: _Word, other: _Word) -> bool:
    if output.option == "--flent" and _has_run(other.names, output.text):
        return True
    if other.is_written:
        return any(same(output.text, name, written=True) for name in other.names)
    return output.file is not None and output.file in other.files


def _identity(name: str) -> tuple[int, int] | None:
    """Return device and inode."""
    try:
        status = os.stat(name)  # noqa: PTH116 (a Path takes as long as the look-up)
    except (OSError, ValueError):  # the command itself reports the error
        return None
    return status.st_dev, status.st_ino


def _apart(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each word that is not an option, with the option before it; for `quell shell` without its command."""
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
    """Yield the files that a scenario may name: the words of all its texts, relative to its folder and to this one."""
    try:
        scenario = Path(path)
        if not scenario.is_file() or scenario.stat().st_size > _MAX_SCENARIO:
            return
        left: list[Any] = [toml.read(scenario.read_text(encoding="utf-8"))]
    except (OSError, ValueError):  # the command itself reports the error
        return
    folder = os.path.dirname(path)  # noqa: PTH120 (as above)
    while left:
        value = left.pop()
        if isinstance(value, str):
            for name in (value, *_WITHIN.split(value)):
                yield from (name, os.path.join(folder, name))  # noqa: PTH118 (as above)
        elif isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value


def _has_run(names: Iterable[str], flent: str) -> bool:
    """Return whether `--flent` may write one of these: for each of several runs it adds the queue and the seed."""
    from quell.inputs.flent import SUFFIX

    stem = Path(flent).name.removesuffix(SUFFIX) + "."
    runs = (Path(name) for name in names if name.endswith(SUFFIX))
    folders = {str(run.parent) for run in runs if run.name.startswith(stem)}
    folder = _identity(str(Path(flent).parent))
    return folder is not None and folder in map(_identity, folders)


def same(one: str, other: str, *, written: bool) -> bool:
    """Return whether two words name the same plain file, which need not exist yet if both are `written`."""
    try:
        if Path(one).exists():
            return Path(one).is_file() and Path(one).samefile(other)
        return written and Path(one).resolve() == Path(other).resolve()
    except (OSError, RuntimeError, ValueError):  # the command itself reports the error
        return False
