"""Programs of the system, and commands that `quell tune` runs or prints."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from quell._core import InputError


def find(name: str) -> str | None:
    """Return the path of a system program, even if a user's PATH lacks its folder, as on Debian."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")))


def completed(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a system program, found by `find`, to its end, without input; return its status and output."""
    program = find(words[0]) or words[0]
    return subprocess.run(
        (program, *words[1:]), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )


@dataclass(frozen=True)
class Command:
    """A program and its arguments, which run without a shell."""

    words: tuple[str, ...]
    may_fail: bool = False
    """Whether a failure is allowed, such as that of deleting what does not exist."""
    unless: tuple[str, ...] = ()
    """Another command; if it succeeds, this one is not run."""

    @classmethod
    def of(cls, template: str, *more: str, may_fail: bool = False, unless: str = "", **values: object) -> Command:
        """Split a template into words, then fill in values, which are never split."""

        def filled(text: str) -> tuple[str, ...]:
            return tuple(word.format(**values) for word in text.split())

        return cls((*filled(template), *more), may_fail, filled(unless))

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Command:
        """Make it from its fields in JSON."""
        return cls(tuple(plain["words"]), plain["may_fail"], tuple(plain["unless"]))

    @property
    def text(self) -> str:
        """Return the line to paste into a shell."""
        before = f"{shlex.join(self.unless)} >/dev/null 2>&1 || " if self.unless else ""
        return f"{before}{shlex.join(self.words)}{' 2>/dev/null' if self.may_fail else ''}"


def run(*commands: Command, before: tuple[str, ...] = ()) -> None:
    """Run commands, each after the words `before`. Raises InputError at the first failure that is not allowed."""
    for command in commands:
        if command.unless and completed(*before, *command.unless).returncode == 0:
            continue
        done = completed(*before, *command.words)
        if done.returncode and not command.may_fail:
            why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
            what = shlex.join(command.words)
            raise InputError(f"this kernel refuses `{what}`: {why.removeprefix('Error: ').rstrip('.')}")
