"""What is evaluated: queue words, a queue written in Python, or a queue with a controller written in Python."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from quell._core import InputError
from quell.experiments import experiment
from quell.experiments.control import Controller
from quell.experiments.queue import Aqm, OwnQueue, Parsed, parse

Evaluated: TypeAlias = Aqm | tuple[Aqm, Controller | Callable[[], Controller]]
"""A queue as `quell.run` takes it, or such a queue and a controller: an object, or what makes one for each run."""

_SENSITIVE = ("target", "rtt", "interval", "probability", "alpha", "delta", "limit")
"""Parameters to turn for section 8.3, the first that a queue has."""


class LeftOut(Exception):  # noqa: N818 (no error: a scenario that a queue has no part in)
    """A scenario is not run with a queue; the text says why."""


@dataclass(frozen=True)
class Candidate:
    """One column of the matrix."""

    name: str
    queue: Parsed
    make: Callable[[], Controller] | None = None
    """Makes a fresh controller for each run."""

    @property
    def words(self) -> str:
        """Return the queue's words. Raises LeftOut where the queue or its controller is written in Python."""
        if isinstance(self.queue, OwnQueue) or self.make is not None:
            raise LeftOut("needs queue words; what is written in Python works at the bottleneck, as it is given")
        return str(self.queue)

    def options(self) -> list[dict[str, Any]]:
        """List the parameters: `name`, `value`, `default`, `meaning`; empty where the queue is written in Python."""
        if isinstance(self.queue, OwnQueue):
            return []
        kind = str(self.queue).split()[0]
        found = next(k for k in experiment.known_queues() if k["name"] == kind)
        options: list[dict[str, Any]] = found["options"]
        return options

    def with_ecn(self) -> str:
        """Return the words with marking switched on, where it is an option that was not given."""
        words = self.words
        default = next((o["default"] for o in self.options() if o["name"] == "ecn|noecn"), None)
        return f"{words} ecn" if default == "noecn" and not {"ecn", "noecn"} & set(words.split()) else words

    def turned(self, factor: float) -> tuple[str, str]:
        """Return the words with a parameter multiplied, and the parameter. Raises LeftOut if there is none."""
        words = self.words.split()
        defaults = {option["name"]: option["default"] for option in self.options()}
        for name in _SENSITIVE:
            given = words[words.index(name) + 1] if name in words[:-1] else defaults.get(name, "")
            if (number := re.fullmatch(r"(\d+(?:\.\d+)?)(\D*)", given)) is None:
                continue
            value = float(number[1]) * factor
            whole = not number[2] and "." not in number[1]
            shown = f"{max(1, round(value))}" if whole else f"{value:g}{number[2]}"
            rest = [word for k, word in enumerate(words) if word != name and (k == 0 or words[k - 1] != name)]
            return " ".join([rest[0], name, shown, *rest[1:]]), name
        raise LeftOut("has no parameter that is a number")


def parse_all(given: list[object]) -> list[Candidate]:
    """Read what `quell.evaluate` takes. Raises InputError."""
    found = list(dict.fromkeys(_parse(one) for one in given))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"aqm: two queues are called {name}; give them names: an attribute `name` of the object")
    return found


def _parse(given: object) -> Candidate:
    if not isinstance(given, tuple):
        queue = parse(given)
        return Candidate(str(queue), queue)
    if len(given) != 2:
        raise InputError(
            f"aqm: {given!r} has {len(given)} parts; write a queue and its controller: (queue, controller)"
        )
    queue, controller = parse(given[0]), given[1]
    if isinstance(queue, OwnQueue):
        raise InputError(
            f"aqm: {queue} is written in Python and has no knobs; a controller needs a queue that has some"
        )
    if isinstance(controller, type) or not hasattr(controller, "decide"):
        if not callable(controller):
            raise InputError(
                f"aqm: {controller!r} is no controller: it has no decide(); docs/how-to/extending.md shows one"
            )
        make = cast("Callable[[], Controller]", controller)
    else:
        kept = cast("Controller", controller)

        def make() -> Controller:
            return copy.deepcopy(kept)

    if not hasattr(made := make(), "decide"):
        raise InputError(f"aqm: {type(made).__name__} has no decide(); docs/how-to/extending.md shows a controller")
    name = getattr(made, "name", None)
    return Candidate(f"{queue} + {name if isinstance(name, str) else type(made).__name__}", queue, make)
