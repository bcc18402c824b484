"""Text for users: names on one line, numbers with a prefix."""

from __future__ import annotations

import re
from collections.abc import Collection

_WORD, _TEXT = 300, 1500
"""Longest word and text that an error prints in full, characters, as in crates/quell-link/src/error.rs."""


def one_line(text: str) -> str:
    """Escape characters that would break the line or control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str) -> str:
    """Cut the middle out of a text, and of each word in it, that is too long to print."""
    return _without_middle(re.sub(rf"\S{{{_WORD + 1},}}", lambda word: _without_middle(word[0], _WORD), text), _TEXT)


def _without_middle(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most * 3 // 4]}…{text[-(most // 4) :]}"


def error_line(text: str) -> str:
    """Format an error for the terminal: one line, shortened."""
    return one_line(shortened(text))


def counted(number: int, noun: str) -> str:
    """Write a number of things: `1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def counted_range(numbers: Collection[int], noun: str) -> str:
    """Write the range of several counts with its noun: `5 runs`, `5 to 15 runs`."""
    least, most = min(numbers, default=0), max(numbers, default=0)
    return counted(most, noun) if least == most else f"{least} to {counted(most, noun)}"


def si(value: float) -> str:
    """Write a number with three significant digits and the prefix k, M or G of a unit."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f}"
