"""The result of one check of `quell doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One check: `state` is ok, warn (works, with a reservation), fail or unknown."""

    check: str
    state: str
    found: str
    remedy: str = ""
