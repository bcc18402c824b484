"""Queues written in Python: a class that keeps packets and returns them.

>>> class Fifo:
...     def __init__(self, limit=100):
...         self.packets, self.limit = collections.deque(), limit
...     def enqueue(self, packet, now):
...         if len(self.packets) == self.limit:
...             return False
...         self.packets.append(packet)
...     def dequeue(self, now):
...         return self.packets.popleft() if self.packets else None
>>> quell.compare("home", aqm=["fq_codel", Fifo(), Fifo])

docs/how-to/extending.md has the rules, docs/lab/performance.md the costs of such a queue.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, cast

from quell import _core
from quell._core import InputError, Packet
from quell.common.text import counted
from quell.experiments import control
from quell.experiments.control import Controller

__all__ = ["CE", "ECT0", "ECT1", "NOT_ECT", "Aqm", "Controlled", "OwnQueue", "Packet", "Queue"]

_METHODS = ("enqueue", "dequeue")
T = TypeVar("T")

NOT_ECT, ECT1, ECT0, CE = range(4)
"""The ECN field of a packet (RFC 3168, section 5; RFC 9331)."""


class Queue(Protocol):
    """Methods of a queue written in Python. Its name in tables is its attribute `name`, or else that of its class."""

    def enqueue(self, packet: Packet, now: float, /) -> bool | None:
        """Keep the packet that arrives at `now` (seconds), or return False to drop it."""

    def dequeue(self, now: float, /) -> Packet | float | None:
        """Return the next packet for the link, None if there is none, or the time (s) before which none may leave."""


Aqm: TypeAlias = str | Queue | Callable[[], Queue] | tuple[str, Controller | Callable[[], Controller]]
"""A queue: words as in tc, an object that is copied for each run, or a class or function that makes one.

Or words and a controller of that queue: an object that is copied for each run, or a class or function that makes one.
"""


@dataclass(frozen=True)
class OwnQueue:
    """A queue written in Python: the name of its runs, and the function that makes a new queue for each run."""

    name: str
    make: Callable[[], Queue]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Controlled:
    """A queue with a controller written in Python, and the function that makes a new controller for each run."""

    queue: _core.Queue
    name: str
    make: Callable[[], Controller]

    def __str__(self) -> str:
        return f"{self.queue} + {self.name}"


Parsed: TypeAlias = _core.Queue | OwnQueue | Controlled
"""A queue, parsed and checked. It can be pickled if it is made of words."""


def parse(aqm: object) -> Parsed:
    """Return parsed queue words, the factory of a queue written in Python, or words with a controller's factory.

    Raises InputError.
    """
    if isinstance(aqm, str):
        return _core.Queue(aqm)
    if isinstance(aqm, tuple):
        return _controlled(aqm)
    if isinstance(aqm, type) or not _is_queue(aqm):
        _refuse_incomplete(aqm)
        if not callable(aqm):
            what = "neither text nor an object with enqueue() and dequeue()"
            raise InputError(f'aqm: {aqm!r} is {what}; write queue words, as in aqm="codel target 5ms"')
        made = aqm()
        if not _is_queue(made):
            raise InputError(
                f"aqm: {control.name(made)} has no methods enqueue() and dequeue(); docs/how-to/extending.md shows both"
            )
        return OwnQueue(control.name(made), aqm)
    queue = cast("Queue", aqm)
    return OwnQueue(control.name(queue), lambda: _copy(queue))


def _refuse_incomplete(given: object) -> None:
    """Raise InputError for an object or class with only one of the two methods."""
    has = [name for name in _METHODS if callable(getattr(given, name, None))]
    if len(has) == 1:
        [lacks] = set(_METHODS) - set(has)
        name = given.__name__ if isinstance(given, type) else control.name(given)
        raise InputError(f"aqm: {name} has {has[0]}() but no {lacks}(); docs/how-to/extending.md shows both")


def _copy(given: T) -> T:
    """Copy an object for a run. Raises InputError if it contains what cannot be copied, such as an open file."""
    try:
        return copy.deepcopy(given)
    except TypeError as error:
        if not str(error).startswith("cannot pickle"):
            raise
        name = control.name(given)
        why = f"aqm: {name} cannot be copied, as it is for each run ({error})"
        raise InputError(f"{why}; pass its class, or a function that makes one: aqm=[lambda: {name}()]") from error


def _controlled(given: tuple[object, ...]) -> Controlled:
    if len(given) != 2:
        raise InputError(
            f"aqm: {given!r} has {counted(len(given), 'part')}; write a queue and its controller: (queue, controller)"
        )
    queue, controller = parse(given[0]), given[1]
    if not isinstance(queue, _core.Queue):
        raise InputError(
            f"aqm: {queue} is written in Python and has no knobs; a controller needs a queue that has some"
        )
    if isinstance(controller, type) or not hasattr(controller, "decide"):
        if not callable(controller):
            raise InputError(
                f"aqm: {controller!r} is not a controller: it has no decide(); docs/how-to/extending.md shows one"
            )
        make = cast("Callable[[], Controller]", controller)
    else:
        kept = cast("Controller", controller)

        def make() -> Controller:
            return _copy(kept)

    if not hasattr(made := make(), "decide"):
        raise InputError(f"aqm: {type(made).__name__} has no decide(); docs/how-to/extending.md shows a controller")
    return Controlled(queue, control.name(made), make)


def parse_all(aqm: Iterable[object]) -> list[Parsed]:
    """Return the queues of one table without duplicates.

    Raises InputError, also if two queues have the same name, since one row would have the runs of both.
    """
    parsed = list(dict.fromkeys(parse(one) for one in aqm))
    names = [str(queue) for queue in parsed]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"aqm: two queues are called {name}; give them names: an attribute `name` of the object")
    return parsed


def _is_queue(thing: object) -> bool:
    return all(callable(getattr(thing, method, None)) for method in _METHODS)
