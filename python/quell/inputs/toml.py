"""Untrusted TOML files."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MAX_PARTS = 4
"""Largest number of parts of a dotted key; a scenario has three. Time and memory of tomllib grow with the square."""
_PART = r"""(?:(?<![\w-])[\w-]++|(?<!\\)"(?:[^"\\\n]++|\\.)*+"|(?<!\\)'[^'\n]*+')[ \t]*+\.[ \t]*+"""
"""A bare or quoted part of a key. It begins only where a key can and does not backtrack, so searches take linear
time."""
_LONG_KEY = re.compile(f"(?:{_PART}){{{_MAX_PARTS}}}")


def read(text: str) -> dict[str, Any]:
    """Read TOML in bounded time and memory.

    Raises ValueError.
    """
    if _LONG_KEY.search(text) is not None:
        raise ValueError(f"a key has more than {_MAX_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
