"""Commands whose options are a table in crates/quell-live/src/options, for typer."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar

import typer

from quell import _core
from quell.cli import complete

Command = TypeVar("Command", bound=Callable[..., int])
_COMPLETED: dict[str, Callable[[str], Any]] = {
    "NAME": complete.interfaces,
    "WORDS": complete.words,
    "KNOB": complete.listed("limit", "target", "rate", "clsact", "bpf"),
}
"""Completions by the name of the value."""


def examples(command: str) -> str:
    """Return the text below the help."""
    return "\n\n".join(["Examples:", *(f"  {line}" for line in _core.options(command)[2])])


def argument(command: str, first: int = 0, last: int | None = None, **settings: Any) -> Any:
    """Return some positional words of a command as one argument for typer."""
    heads, texts = zip(*_core.options(command)[1][first:last], strict=True)
    return typer.Argument(metavar=" ".join(heads), help=_sentence("; ".join(texts)), show_default=False, **settings)


def options(command: str) -> Callable[[Command], Command]:
    """Give a function the options of a command in place of its keywords `**options`."""

    def sign(function: Command) -> Command:
        named = inspect.signature(function, eval_str=True).parameters.values()
        own = [parameter for parameter in named if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        rows = [parameter for row in _core.options(command)[0] for parameter in _parameters(row)]
        function.__signature__ = inspect.Signature([*own, *rows])  # type: ignore[attr-defined]
        return function

    return sign


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _parameters(row: _core.OptionRow) -> Iterator[inspect.Parameter]:
    name, former, value, text, _, repeats, _ = row
    names = [f"--{name.replace('_', '-')}", *(["-q"] if name == "quiet" else [])]
    kind: Any = bool if not value else list[str] | None if repeats else str | None
    choices = complete.one_of(*value.split("|")) if value.islower() else None
    option = typer.Option(
        *names,
        metavar=value or None,
        help=_sentence(text),
        autocompletion=_COMPLETED.get(value, choices),
    )
    yield _parameter(name, kind, option)
    if former:
        yield _parameter(former, kind, typer.Option(f"--{former}", hidden=True))


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    default = False if kind is bool else None
    name += "_" * keyword.iskeyword(name)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
