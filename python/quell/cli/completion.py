"""The words that a shell asks to complete, and the files of `quell --install-completion`.

The files are written atomically: typer empties a shell's settings before it writes them.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

from typer import _completion_shared as typers

from quell._core import InputError
from quell.common import files


def command() -> list[str]:
    """Return the command whose arguments a shell asks to complete, as a list; empty without one."""
    asked = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    # bash separates the words by line ends. The last one is the one to complete.
    return re.split(r"\s", asked)[1:-1][:1] if "_QUELL_COMPLETE" in os.environ else []


def install_whole() -> None:
    """Make typer call the functions below for shells whose settings it would write in place."""
    vars(typers).update(install_bash=bash, install_zsh=zsh, install_fish=fish)


def bash(**script: Any) -> Path:
    """Install completion for bash."""
    path = _script(Path.home() / ".bash_completions" / f"{script['prog_name']}.sh", script)
    _add(Path.home() / ".bashrc", f"source {shlex.quote(str(path))}")
    return path


def zsh(**script: Any) -> Path:
    """Install completion for zsh."""
    path = _script(Path.home() / ".zfunc" / f"_{script['prog_name']}", script)
    _add(Path.home() / ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit")
    return path


def fish(**script: Any) -> Path:
    """Install completion for fish, which needs no line in its settings."""
    return _script(Path.home() / f".config/fish/completions/{script['prog_name']}.fish", script)


def _script(path: Path, script: dict[str, Any]) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; name your home folder in HOME") from None
    files.write_text(path, typers.get_completion_script(**script) + "\n")
    return path


def _add(settings: Path, line: str) -> None:
    """Add a line to a shell's settings, whatever their encoding, unless they have it."""
    before = settings.read_bytes() if settings.exists() else b""
    if line.encode() not in before:
        between = b"" if before.endswith(b"\n") or not before else b"\n"
        files.write_bytes(settings, before + between + line.encode() + b"\n")
