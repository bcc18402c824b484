"""quell: short queues on full links.

>>> import quell
>>> quell.compare("home", aqm=["pfifo", "fq_codel"], seeds=3)      # a polars frame, one row per run
>>> quell.summary(_)                                               # one row per queue: means, 95 % intervals, the front
"""

from __future__ import annotations

# Importing typing costs more than all else here; type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from quell._core import InputError, Scenario, __version__
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


def __getattr__(name: str) -> object:
    """Load on first use: the command line starts without data frames, and answers Ctrl-C from the start."""
    if name not in __all__:
        raise AttributeError(f"module 'quell' has no attribute {name!r}")
    from importlib import import_module

    home = "quell._core" if name in ("InputError", "Scenario", "__version__") else "quell.api"
    found: object = getattr(import_module(home), name)
    return found
