"""Quantities that are probably not what their writer meant: rates in bytes per second."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quell import _core
from quell._core import InputError
from quell.inputs import toml


class Note(UserWarning):
    """A note to the user on the interpretation of input."""


class UnitWarning(Note):
    """A quantity whose unit is probably not the intended one."""


class LeftOutWarning(Note):
    """Words of tc without effect in quell."""


def warn(text: str, file: str | None, overrides: Mapping[str, Any]) -> None:
    """Warn of rates in bytes per second in a scenario's overrides and in its file, or in its text if there is no file.

    Also warn of a file that has the name of a built-in scenario: in another user's folder it may be that user's.
    """
    built_in = {name for name, _, _ in _core.scenarios()}
    if file is not None and file in built_in and os.path.isfile(file):  # noqa: PTH113
        why = "the file of this name, not the built-in scenario (quell scenarios prints that)"
        warnings.warn(f"{file}: {why}", Note, stacklevel=4)
    _warn([*_in_toml(text if file is None else _read(file), file), *_in_overrides(overrides)])


def warn_of_keys(keys: Mapping[str, Any]) -> None:
    """Warn of rates in bytes per second in the keys of a scenario."""
    _warn(_values("", keys))


def warn_of_values(place: str, values: Iterable[str]) -> None:
    """Warn of rates in bytes per second among the values of an option or of a cell."""
    _warn((place, value.strip()) for value in values)


def _warn(found: Iterable[tuple[str, str]]) -> None:
    for where, value in found:
        if (note := _core.note_on_rate(value)) is not None:
            warnings.warn(f"{where}: {note}", UnitWarning, stacklevel=5)


def _read(file: str) -> str:
    if not os.path.isfile(file):  # noqa: PTH113 (a name of any length)
        return ""
    try:
        return _core.read_file(file, "scenario").decode(errors="replace")
    except InputError:
        return ""  # reading the scenario reports the error


def _in_overrides(overrides: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "rate", overrides.get("rate", "")
    for flow in overrides.get("flows", ()):
        for part in flow.split("@")[1:]:
            yield f"flow {flow}", part.partition("=")[2]


def _in_toml(text: str, file: str | None) -> Iterator[tuple[str, str]]:
    if "bps" not in text.lower():
        return
    try:
        plain = toml.read(text)
    except ValueError:
        return  # reading the scenario reports the error
    yield from _values("" if file is None else f"{file}: ", plain)


def _values(place: str, value: object) -> Iterator[tuple[str, str]]:
    """List every string below a value with its place: the file's name and the keys."""
    if isinstance(value, str):
        yield place.removesuffix("."), value
    elif isinstance(value, list):
        for item in value:
            yield from _values(place, item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _values(f"{place}{key}.", item)
