"""Lookup of names that users type, with errors that suggest the nearest known name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping

from quell import _core
from quell._core import InputError


def known(sort: str, name: str, names: Iterable[str], option: str = "") -> str:
    """Return `name` if it is among `names`.

    Raises InputError with the nearest name and a list of all; the message starts with `option`.
    """
    listed = list(names)
    if name not in listed:
        prefix = f"{option}: " if option else ""
        raise InputError(prefix + _core.unknown(sort, name, listed))
    return name


def check_keywords(function: Callable[..., object], more: type, given: Mapping[str, object]) -> None:
    """Check that `function` or `more`, the TypedDict of its other keywords, has each given keyword.

    Raises InputError.
    """
    for name in given:
        if name not in more.__annotations__:
            own = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
            known("keyword", name, [*own, *(key for key in more.__annotations__ if key not in own)])
