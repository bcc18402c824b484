"""Training of the learned controllers, one file per paper."""

from __future__ import annotations

from importlib.util import find_spec

from quell._core import InputError
from quell.common.extras import install


class Stopped(Exception):  # noqa: N818 (Ctrl-C is not an error)
    """A training stopped early: the message is one line with the reason and how to continue."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """Exit status: 1, or 130 after Ctrl-C."""


def need_torch(*others: str) -> None:
    """Raise InputError, which names the extra to install, if torch, numpy, safetensors or another one is missing."""
    missing = [name for name in ("torch", "numpy", "safetensors", *others) if find_spec(name) is None]
    if missing:
        raise InputError(f"training needs {', '.join(missing)}: {install('train')}")
