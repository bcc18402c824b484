"""Optional dependencies (the extras of pyproject.toml), and how to install them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

DISTRIBUTION = "quell-aqm"
"""Name on package indexes, where `quell` is another project."""


def install(*extras: str) -> str:
    """Return the command that installs extras for this quell: in a checkout's .venv, or where a wheel is installed."""
    root = Path(__file__).resolve().parents[3]
    if Path(sys.prefix).resolve() == root / ".venv" and (root / "Makefile").exists():
        folder = "" if Path().samefile(root) else f" -C {shlex.quote(str(root))}"
        return f"make{folder} extras EXTRAS={shlex.quote(' '.join(extras))}"
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
