"""Commands whose options are a table in crates/quell-live/src/options, for typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar

import typer

from quell import _core
from quell.cli import complete

Command = TypeVar("Command", bound=Callable[..., int])
_COMPLETED: dict[str, Callable[[str], Any]] = {"NAME": complete.interfaces, "WORDS": complete.words}
"""What completes a value, by the value's name."""


def examples(command: str, typed: str) -> str:
    """Return the text below the help: how the command is typed, with each line of its examples."""
    return "\n\n".join(["Examples:", *(f"  {typed} {words}" for words in _core.options(command)[1])])


def options(command: str) -> Callable[[Command], Command]:
    """Give a function that takes keywords the options of a command as its signature."""

    def sign(function: Command) -> Command:
        parameters = [parameter for row in _core.options(command)[0] for parameter in _parameters(row)]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return function

    return sign


def _parameters(row: _core.OptionRow) -> Iterator[inspect.Parameter]:
    name, former, value, text, _, repeats, _ = row
    names = [f"--{name.replace('_', '-')}", *(["-q"] if name == "quiet" else [])]
    kind: Any = bool if not value else list[str] | None if repeats else str | None
    choices = complete.one_of(*value.split("|")) if value.islower() else None
    option = typer.Option(
        *names,
        metavar=value or None,
        help=f"{text[0].upper()}{text[1:]}.",
        autocompletion=_COMPLETED.get(value, choices),
    )
    yield _parameter(name, kind, option)
    if former:
        yield _parameter(former, kind, typer.Option(f"--{former}", hidden=True))


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    default = False if kind is bool else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
