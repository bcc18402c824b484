"""quell: short queues on full links.

>>> import quell
>>> quell.compare("home", aqm=["pfifo", "fq_codel"], seeds=3)      # a polars frame, one row per run
>>> quell.summary(_)                                               # a row per scenario and queue: means, 95 % intervals
"""

from __future__ import annotations

import os
import sys

from quell._moved import install as _install

# Importing typing would take longer than the rest of this module; type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from quell._core import InputError, Scenario, __version__
    from quell.api import (
        compare,
        evaluate,
        flatten,
        optimum,
        queues,
        run,
        scenario,
        scenarios,
        summary,
        sweep,
        to_pandas,
    )
    from quell.envs import baseline, env, vector_env
    from quell.envs.parallel import parallel_env
    from quell.policy import Policy
    from quell.views import plot as plot

__all__ = [
    "InputError",
    "Policy",
    "Scenario",
    "__version__",
    "baseline",
    "compare",
    "env",
    "evaluate",
    "flatten",
    "optimum",
    "parallel_env",
    "queues",
    "run",
    "scenario",
    "scenarios",
    "summary",
    "sweep",
    "to_pandas",
    "vector_env",
]


def __getattr__(name: str) -> object:
    """Load names on first use, so that the command line starts without polars and reacts to Ctrl-C early."""
    from importlib import import_module

    if name == "plot":  # needs an extra: not in __all__
        return import_module("quell.views.plot")
    if name not in __all__:
        raise AttributeError(f"module 'quell' has no attribute {name!r}")
    core = dict.fromkeys(("InputError", "Scenario", "__version__"), "_core")
    homes = core | {"Policy": "policy", "parallel_env": "envs.parallel"}
    homes |= dict.fromkeys(("baseline", "env", "vector_env"), "envs")
    home = f"quell.{homes.get(name, 'api')}"
    found: object = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    """List the names, including those loaded on first use."""
    return sorted({*globals(), *__all__})


_install()

if sys.platform == "linux":
    # On import, polars deletes folders with numeric names in /var/tmp/polars-USER/spill, and another user may have made
    # this path a link to any folder. So polars gets a path that no user can guess; it makes the folder when needed.
    os.environ.setdefault("POLARS_OOC_SPILL_DIR", f"/var/tmp/quell-{os.urandom(16).hex()}")

# Gymnasium finds environments by names registered on import; its import is slow, so it is not imported here.
if "gymnasium" in sys.modules:
    from quell import envs  # noqa: F401
