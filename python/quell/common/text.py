"""Texts for people: names on one line, numbers with a prefix."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Escape characters that would break the line or control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def si(value: float) -> str:
    """Write a number with three digits and the unit's prefix."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f}"
