"""quell: short queues on full links.

>>> import quell
>>> quell.compare("home", aqm=["pfifo", "fq_codel"], seeds=3)      # a polars frame, one row per run
>>> quell.summary(_)                                               # one row per queue: means, 95 % intervals, the front
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quell._core import InputError, Scenario, __version__

if TYPE_CHECKING:
    from quell.api import compare, optimum, queues, run, scenario, scenarios, summary

__all__ = [
    "InputError",
    "Scenario",
    "__version__",
    "compare",
    "optimum",
    "queues",
    "run",
    "scenario",
    "scenarios",
    "summary",
]


def __getattr__(name: str) -> Any:
    """Load the library on first use: the command line starts without data frames."""
    if name not in __all__:
        raise AttributeError(f"module 'quell' has no attribute {name!r}")
    from quell import api

    return getattr(api, name)
