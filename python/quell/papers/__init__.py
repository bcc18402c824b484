"""`quell reproduce`: published tables and figures, reproduced beside the printed numbers.

A paper is a module of this package with a `PAPER` (`quell.papers.paper.Paper`): the claims, each with its printed
number and its criterion, and a function that measures them on a `quell.papers.bench.Bench`. Goodput or throughput of an
application in the papers is the data that their receivers read: `delivered_in_order_mbps` of a record.
"""

from __future__ import annotations

from importlib import import_module

from quell.common.names import known
from quell.papers.paper import Paper

MODULES = {
    "rl-aqm": "rl_aqm",
    "lfq": "lfq",
    "l4s-a3c": "l4s_a3c",
    "learnqueue": "learnqueue",
    "wqm": "wqm",
    "l4s-tests": "l4s_tests",
    "cebinae": "cebinae",
}
"""Name on the command line: module in this package."""


def find(name: str) -> Paper:
    """Find a paper by its name. Raises InputError, which lists the names."""
    module = MODULES[known("paper", name, MODULES)]
    paper: Paper = import_module(f"quell.papers.{module}").PAPER
    return paper
