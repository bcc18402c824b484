"""Lookup of names that users type, with errors that suggest the nearest known name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

from quell import _core
from quell._core import InputError

P = ParamSpec("P")
R = TypeVar("R")


_OTHER_WORDS = {
    "aqm": ("queues", "qdisc", "qdiscs", "disciplines", "algorithms"),
    "source": ("scenario", "file", "path"),
    "link": ("scenario", "source"),
    "seeds": ("runs", "repeats", "repetitions"),
    "jobs": ("threads", "workers", "processes", "cores"),
    "duration": ("time", "length", "seconds"),
    "rate": ("bandwidth", "capacity", "speed"),
    "rtt": ("delay", "latency", "ping"),
    "flows": ("traffic",),
}
"""Wrong keywords that callers try, by the keyword that they mean."""


def known(sort: str, name: str, names: Iterable[str], option: str = "") -> str:
    """Return `name` if it is among `names`.

    Raises InputError with the nearest name and a list of all; the message starts with `option`.
    """
    listed = list(names)
    if name not in listed:
        prefix = f"{option}: " if option else ""
        raise InputError(prefix + _core.unknown(sort, name, listed))
    return name


def keywords(more: type | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a decorator for a function whose last parameter may be `**options: Unpack[more]`, `more` being a TypedDict.

    `help()` and notebooks then show the keys of `more` as keywords. An unknown keyword raises InputError with the
    keyword that it means, or else the nearest one.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function)
        shown = {p.name: p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD}
        for name, kind in ({} if more is None else more.__annotations__).items():
            written = getattr(kind, "__forward_arg__", kind)
            default = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=written)
            shown.setdefault(name, default)
        names = [name for name in shown if name != "self"]

        @functools.wraps(function)
        def checked(*args: P.args, **options: P.kwargs) -> R:
            for name in options:
                _keyword(name, names)
            return function(*args, **options)

        vars(checked)["__signature__"] = own.replace(parameters=list(shown.values()))
        return checked

    return decorate


def _keyword(name: str, names: Sequence[str]) -> None:
    meant = next((each for each, words in _OTHER_WORDS.items() if name in words and each in names), None)
    if meant is not None and name not in names:
        raise InputError(f"unknown keyword `{name}`; did you mean `{meant}`? Known: {', '.join(names)}")
    known("keyword", name, names)
