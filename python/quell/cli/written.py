"""Refuses a command line that would write over a file that it also reads, or write two things to one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

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
            if any(_same(text, part, written=written) for part in (more, *more.split()) if part != "-"):
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
        elif arguments[0] == "shell" and not option:
            return
        else:
            yield option, word
            option = ""


def _same(one: str, other: str, *, written: bool) -> bool:
    """Say whether two words name the same plain file, which need not be there yet if both are `written`."""
    try:
        if Path(one).exists():
            return Path(one).is_file() and Path(one).samefile(other)
        return written and Path(one).absolute() == Path(other).absolute()
    except OSError:  # the command itself says what is wrong with a name
        return False
