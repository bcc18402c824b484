"""The shell that a bare `quell shell` starts: its prompt names the link."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path


def interactive(link: str) -> list[str]:
    """Return the user's shell as a command, and set its prompt: `(quell 15mbit) `.

    QUELL_SHELL has the link for the user's own prompts.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    # Shells expand special characters in a prompt.
    shown = re.sub(r"[^\w ./:,-]", "?", link, flags=re.ASCII)
    os.environ["QUELL_SHELL"] = shown
    if Path(shell).name == "bash":
        return [shell, "--rcfile", str(files("quell.cli") / "prompt.bash")]
    end = "#" if os.geteuid() == 0 else "$"
    os.environ["PS1"] = f"(quell {shown}) {os.environ.get('PS1', f'{end} ')}"
    return [shell]
