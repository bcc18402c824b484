"""Scripts in the oracle's kernel: Linux in virtual time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT

_ORACLE = Path(os.environ.get("QUELL_ORACLE", ROOT.parent / "shared/oracle/oracle"))


def in_guest(script: Path, *arguments: str | Path, wall_limit: int = 100) -> subprocess.CompletedProcess[str]:
    """Run a shell script as root of the guest, for `wall_limit` seconds at most; skip the test without an oracle."""
    if not _ORACLE.exists():
        pytest.skip("there is no oracle: QUELL_ORACLE says where it is")
    words = (_ORACLE, "exec", "--wall-limit", str(wall_limit), "/bin/sh", script, *arguments)
    return subprocess.run(words, capture_output=True, text=True, timeout=wall_limit + 50)
