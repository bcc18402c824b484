"""The subject of an evaluation: queue words, a queue written in Python, or a queue with a controller in Python."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from quell import _core
from quell.experiments import experiment
from quell.experiments.queue import Controlled, OwnQueue, Parsed
from quell.experiments.queue import parse_all as queues

_SENSITIVE = ("target", "rtt", "interval", "probability", "alpha", "delta", "limit")
"""Parameters to vary for section 8.3; the first that a queue has is used."""


class LeftOut(Exception):  # noqa: N818 (no error: a scenario that a queue has no part in)
    """A scenario is not run with a queue; the text gives the reason."""


@dataclass(frozen=True)
class Candidate:
    """One column of the matrix."""

    queue: Parsed

    @property
    def name(self) -> str:
        """Title of the column."""
        return str(self.queue)

    @property
    def words(self) -> str:
        """Return the queue's words. Raises LeftOut if the queue or its controller is written in Python."""
        if not isinstance(self.queue, _core.Queue):
            raise LeftOut("needs queue words; what is written in Python works at the bottleneck, as it is given")
        return str(self.queue)

    def options(self) -> list[dict[str, Any]]:
        """List the parameters: `name`, `value`, `default`, `meaning`; empty if the queue is written in Python."""
        queue = self.queue.queue if isinstance(self.queue, Controlled) else self.queue
        if isinstance(queue, OwnQueue):
            return []
        kind = str(queue).split()[0]
        found = next(k for k in experiment.known_queues() if k["name"] == kind)
        options: list[dict[str, Any]] = found["options"]
        return options

    def with_ecn(self) -> str:
        """Return the words, with `ecn` added if the queue marks only with this option and it was left open."""
        words = self.words
        default = next((o["default"] for o in self.options() if o["name"] == "ecn|noecn"), None)
        return f"{words} ecn" if default == "noecn" and not {"ecn", "noecn"} & set(words.split()) else words

    def turned(self, factor: float) -> tuple[str, str]:
        """Return the words with a parameter, the first of `_SENSITIVE`, multiplied, and its name. Raises LeftOut."""
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
    """Parse the queues for `quell.evaluate`. Raises InputError."""
    return [Candidate(queue) for queue in queues(given)]
