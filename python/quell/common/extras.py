"""What quell needs beyond its dependencies (the extras of pyproject.toml), and how to install it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

DISTRIBUTION = "quell-aqm"
"""The name on package indexes, where `quell` is another project."""


def install(*extras: str) -> str:
    """Return the line that installs extras where this quell runs: in a checkout's .venv, or wherever a wheel is."""
    root = Path(__file__).resolve().parents[3]
    if Path(sys.prefix).resolve() == root / ".venv" and (root / "Makefile").exists():
        folder = "" if Path().samefile(root) else f" -C {shlex.quote(str(root))}"
        return f"make{folder} extras EXTRAS={shlex.quote(' '.join(extras))}"
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
