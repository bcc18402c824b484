"""Training of the learned controllers: one file per paper, each readable from top to bottom."""

from __future__ import annotations

from importlib.util import find_spec

from quell._core import InputError


def need_torch() -> None:
    """Raise InputError, which names the extra to install, where torch or safetensors is missing."""
    missing = [name for name in ("torch", "safetensors") if find_spec(name) is None]
    if missing:
        raise InputError(f"training needs {' and '.join(missing)}: pip install 'quell[train]'")
