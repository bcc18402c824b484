"""Entry of the command line: finds the command by its name and loads only that one.

Loading a command takes the time of its imports and, in typer, of a validator for each of its options.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Annotated, Any

import typer

from quell import _core
from quell._core import InputError
from quell.cli import completion, usage, written
from quell.cli.command import Command
from quell.common import files
from quell.common.console import err, out
from quell.common.status import BAD_INPUT, FAILED, INTERRUPTED, OK
from quell.common.text import error_line
from quell.inputs.notes import Note
from quell.train import Stopped

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors of a disk that is full, fails or is read-only."""
_DESCRIPTOR_ERRORS = (errno.EMFILE, errno.ENFILE)
"""Errors of a process or system that cannot open more files."""
_FILES = {"detach": "attach"}
"""Commands in a file of another name."""
_NO_THREAD = "no thread or process can be started; raise the limits (`ulimit -u` and `ulimit -v` show them)"
_NO_MEMORY = "there is too little memory; raise the limit (`ulimit -v` shows it), or end other programs"
_MEMORY_TEXTS = ("failed to map segment", "Cannot allocate memory")
"""Texts in ImportError if a library does not fit into memory."""
NAMES = [name for group in usage.COMMANDS.values() for name in group]
_SIMULATING = {*usage.COMMANDS["Simulate"], "train", "reproduce"}
"""Commands that keep finished runs when they are interrupted."""


class _Commands(typer.core.TyperGroup):
    """All commands; their list is the one that `quell --help` prints without loading them."""

    def get_help(self, ctx: Any) -> str:
        return usage.text().rstrip("\n")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"quell {_core.__version__}")
        out.print(_core.__build__, soft_wrap=True)
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find a queue that keeps a network link responsive."""


def app(names: Sequence[str] = NAMES) -> typer.Typer:
    """Build the command line with these commands."""
    program = typer.Typer(
        name="quell",
        cls=_Commands,
        add_completion=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    completion.install_whole()
    program.callback()(_main)
    for name in names:
        _add(program, name)
    return program


def _add(program: typer.Typer, name: str) -> None:
    module = import_module(f"quell.cli.{_FILES.get(name, name)}")
    if name == "train":
        program.add_typer(module.training, name=name)
    else:
        settings = getattr(module, "CONTEXT", None)
        examples = module.EXAMPLES if isinstance(module.EXAMPLES, str) else module.EXAMPLES[name]
        program.command(name, cls=Command, context_settings=settings, epilog=examples)(getattr(module, name))


def _usage(error: typer.TyperException, named: Sequence[str]) -> str:
    """Describe an error of the command line in one line, with the command that prints help."""
    context = getattr(error, "ctx", None)  # None if the parser found the error; the command's name is known then
    if context is not None and (near := getattr(error, "possibilities", None)):
        former = {name for option in context.command.params if getattr(option, "hidden", False) for name in option.opts}
        error.possibilities = [name for name in near if name not in former]  # type: ignore[attr-defined]
    path = context.command_path if context is not None else " ".join(["quell", *named])
    return f"{error_line(' '.join(error.format_message().split()))} (see `{path} --help`)"


def call(arguments: Sequence[str]) -> int:
    """Run the command line; errors become one line and an exit status, and quell's own warnings one line each."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", Note)
        others = warnings.showwarning

        def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, Note):
                err.print(f"quell: {error_line(str(message))}", style="yellow", soft_wrap=True)
            else:
                others(message, category, *where, **more)

        warnings.showwarning = show_warning
        with files.ended_as_by_ctrl_c() if set(arguments[:1]) & _SIMULATING else nullcontext():
            return _call(arguments)


SHELL_FLAGS = {"--nat", "--no-offload", "--view", "--quiet", "--help"}
"""Options of `quell shell` without a value. The user's command begins at the first word that is not an option."""


def with_port(arguments: Sequence[str]) -> list[str]:
    """Write a `--dashboard` without a port as one with port 0, since typer has no options with an optional value.

    `--dev` is inserted before the interface in `quell live eth0` and `quell doctor eth0`.
    """
    words = list(arguments)
    # watch, steer and attach also take the interface as an argument.
    if words[:1] in (["live"], ["doctor"]) and words[1:] and not words[1].startswith("-"):
        words.insert(1, "--dev")
    if not words or words[0] not in ("live", "shell", "watch"):
        return words
    k = 1
    while k < len(words) and words[k] != "--":
        word = words[k]
        if word == "--dashboard" and not "".join(words[k + 1 : k + 2]).isdigit():
            words[k] = "--dashboard=0"
        elif words[0] == "shell":
            if not word.startswith("-"):
                break
            k += word.startswith("--") and "=" not in word and word not in SHELL_FLAGS
        k += 1
    return words


def _call(arguments: Sequence[str]) -> int:
    arguments = with_port(arguments)
    first = arguments[:1] or completion.command()
    named = [name for name in first if name in NAMES]
    try:
        written.check(arguments)
        program = app(named if named or first == ["--version"] else NAMES)
        status = program(args=list(arguments) or ["--help"], prog_name="quell", standalone_mode=False)
        if out.failure is not None:
            raise out.failure
    except InputError as error:
        err.print(f"quell: {error_line(str(error))}", soft_wrap=True)
        return BAD_INPUT
    except Stopped as stop:
        err.print(f"quell: {error_line(str(stop))}", soft_wrap=True)
        return stop.status
    except typer.TyperException as error:
        err.print(f"quell: {_usage(error, named)}", soft_wrap=True)
        return BAD_INPUT
    except (typer.Abort, KeyboardInterrupt):
        err.print("quell: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in _DESCRIPTOR_ERRORS:
            err.print(f"quell: {error.strerror}; raise the limit (`ulimit -n` shows it)", soft_wrap=True)
            return FAILED
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            err.print(f"quell: {_NO_MEMORY if error.errno == errno.ENOMEM else _NO_THREAD}", soft_wrap=True)
            return FAILED
        if error.errno not in _DISK_ERRORS:
            return _bug(error)
        where = error.filename or "standard output"
        err.print(f"quell: {error_line(str(where))}: cannot be written: {error.strerror}", soft_wrap=True)
        return FAILED
    except UnicodeEncodeError as error:  # an argument is not valid text
        near = error.object[max(error.start - 40, 0) : error.end + 40]
        err.print(f"quell: {near!a}: not text in this locale's encoding; try LC_ALL=C.UTF-8", soft_wrap=True)
        return BAD_INPUT
    except Exception as error:
        if isinstance(error, MemoryError) or (
            isinstance(error, ImportError) and any(text in str(error) for text in _MEMORY_TEXTS)
        ):
            err.print(f"quell: {_NO_MEMORY}", soft_wrap=True)
            return FAILED
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            err.print(f"quell: {_NO_THREAD}", soft_wrap=True)
            return FAILED
        return _bug(error)
    except BaseException as error:
        # A panic in Rust code, of quell or polars; no module exports its class.
        if type(error).__name__ != "PanicException":
            raise
        if any(text in str(error) for text in ("ThreadPoolBuildError", "WouldBlock")):
            err.print(f"quell: {_NO_THREAD}", soft_wrap=True)
            return FAILED
        return _bug(error)
    return status if isinstance(status, int) else OK


def _bug(error: BaseException) -> int:
    if "QUELL_TRACEBACK" in os.environ:
        raise error
    message = error_line(f"{type(error).__name__}: {error}")
    own = import_module("quell.experiments.own")
    if where := own.where(error):
        err.print(f"quell: {error_line(where)}: {message} (QUELL_TRACEBACK=1 shows all calls)", soft_wrap=True)
        return BAD_INPUT
    err.print(f"quell: a bug: {message} (QUELL_TRACEBACK=1 shows where)", soft_wrap=True)
    return FAILED
