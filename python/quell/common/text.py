"""Texts for people: names on one line, numbers with a prefix."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Escape characters that would break the line or control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(number: int, noun: str) -> str:
    """Write a number of things: `1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def si(value: float) -> str:
    """Write a number with three digits and the unit's prefix."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f}"
