"""The tables of commands and options, read in this process, so that all commands are inputs of these tests."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from conftest import Quell
from quell.cli import complete, dispatch, usage
from quell.experiments import experiment


def test_a_bug_gets_one_line_and_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(experiment, "load", fail)
    assert dispatch.call(["run"]) == 1
    assert (
        capsys.readouterr().err
        == "quell: a bug: ZeroDivisionError: division\\nby zero (QUELL_TRACEBACK=1 shows where)\n"
    )


class PanicException(BaseException):
    """Has the name of the exception that a panic in Rust raises, a class that no Rust module exports."""


@pytest.mark.parametrize(
    ("panic", "says"),
    [
        ("index out of range", "a bug: PanicException: index out of range (QUELL_TRACEBACK=1 shows where)"),
        ("could not start: ThreadPoolBuildError", dispatch._NO_THREAD),
        ("called `unwrap()` on an `Err` value: Os { kind: WouldBlock }", dispatch._NO_THREAD),
    ],
)
def test_a_panic_of_rust_code_gets_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], panic: str, says: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PanicException(panic)

    monkeypatch.setattr(experiment, "load", fail)
    assert dispatch.call(["run"]) == 1
    assert capsys.readouterr().err == f"quell: {says}\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), dispatch._NO_THREAD),
        (RuntimeError("can't start new thread"), dispatch._NO_THREAD),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), dispatch._NO_MEMORY),
        (MemoryError(), dispatch._NO_MEMORY),
        (ImportError("x.so: failed to map segment from shared object"), dispatch._NO_MEMORY),
        (OSError(errno.EROFS, "Read-only file system", "x"), "x: cannot be written: Read-only file system"),
    ],
)
def test_a_limit_of_the_system_is_not_reported_as_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, says: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(experiment, "load", fail)
    assert dispatch.call(["run"]) == 1
    assert capsys.readouterr().err == f"quell: {says}\n"


def test_the_list_of_commands_is_theirs_and_fits_the_terminal(quell: Quell) -> None:
    listed = {name: about for group in usage.COMMANDS.values() for name, about in group.items()}
    group: Any = get_command(dispatch.app())
    theirs = {name: command.help or "" for name, command in group.commands.items()}
    assert {name: " ".join(text.split("\n\n")[0].split()) for name, text in theirs.items()} == listed
    assert quell().stdout == quell("--help").stdout == quell("--help", "--version").stdout
    for columns in (40, 80, 100):
        text = usage.text(columns)
        assert text.isascii()
        assert max(map(len, text.splitlines())) <= max(columns, 80)


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from _commands(command, (*path, name))


def test_help_shows_every_bracket_of_its_texts(monkeypatch: pytest.MonkeyPatch, quell: Quell) -> None:
    checked = 0
    for path, command in _commands(get_command(dispatch.app())):
        texts = [command.help or "", *(getattr(p, "help", None) or "" for p in command.params)]
        texts += [getattr(p, "metavar", None) or "" for p in command.params]
        brackets = [b for text in texts for b in re.findall(r"\\?(\[[^\]]*\])", text)]
        shown = "".join(quell(*path, "--help", columns=400).stdout.split()) if brackets else ""
        for bracket in brackets:
            assert "".join(bracket.split()) in shown, (path, bracket)
        checked += len(brackets)
    assert checked > 10


def test_every_option_with_known_values_completes_them() -> None:
    """Queue words, interfaces, knobs and other fixed sets; other values are numbers, times and files."""

    def options(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        for child, other in getattr(command, "commands", {}).items():
            yield from options(other, f"{name} {child}")
        yield from ((name, parameter) for parameter in command.params)

    fixed = {"WORDS", "KIND", "KNOB", "DEV", "[DEV]...", "DEV [PARENT] CONTROLLER", "CC", "KIND,KIND"}
    chosen = ("aqm", "dev", "to", "target", "scenario", "trace", "up_trace", "flow")
    left = []
    for name, parameter in options(get_command(dispatch.app()), "quell"):
        wants = parameter.metavar in fixed or (parameter.name in chosen and parameter.metavar in {"NAME", "FILE"})
        wants &= name != "quell watch" or parameter.name != "to"  # a file to write
        if wants and parameter._custom_shell_complete is None and not getattr(parameter, "hidden", False):
            left.append(f"{name} {parameter.name}")
    assert not left, " ".join(left)


def test_options_of_a_queue_are_completed_behind_its_name() -> None:
    assert [words for words, _ in complete.words("codel int")] == ["codel interval"]
    assert [words for words, _ in complete.words("codel target 5ms no")] == ["codel target 5ms noecn"]
    assert complete.words("nosuch l") == []
