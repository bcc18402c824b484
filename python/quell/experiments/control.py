"""Controllers written in Python: they read a queue's gauges periodically and set its knobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypedDict

from quell import _core
from quell._core import InputError, Scenario
from quell.common.names import known


class Gauges(TypedDict):
    """Readings of one queue. Counters run from the queue's creation."""

    now: float
    """Time of the reading, seconds since the start."""
    backlog_packets: int
    backlog_bytes: int
    limit_packets: int
    """The limit in force."""
    sojourn: float
    """Time that the last departed packet spent in the queue, s; 0 before the first."""
    head_age: float
    """Waiting time of the head of the queue, s; 0 if empty."""
    rate_bps: int
    """Current rate of the link, bit/s."""
    share: float
    """Share of the link that this queue gets, 0..1; in a cell, the share of the airtime that other nodes leave."""
    achieved_bps: int
    """In a cell: bits delivered per second of airtime of the queue's frames; 0 on a wire."""
    busy: float
    """In a cell: share of the time in which the channel is busy, 0..1; 0 on a wire."""
    contenders: int
    """Nodes that recently sent data on the same channel, including the queue's own; 1 on a wire."""
    aggregate: float
    """Frames per aggregate: 1 on a wire."""
    arrivals: int
    departures: int
    departed_bytes: int
    drops_overflow: int
    """Packets dropped because a limit was reached."""
    drops_early: int
    """Packets dropped by a law or a knob."""
    dropped_bytes: int
    marks: int
    probability: float
    """Probability of dropping or marking in force, if the queue has one."""
    backlog_packet_seconds: float
    """Packets queued, integrated over time. The mean backlog of a period is the difference divided by its length."""


class Knobs(TypedDict, total=False):
    """Knobs that a controller sets; a knob that is left out keeps its value."""

    limit: int
    """Packets."""
    drop: float
    """Probability of dropping each arrival, 0..1."""
    base_probability: float
    """p' of coupled queues, 0..1."""


class Controller(Protocol):
    """A controller for `quell.run(controller=...)`.

    An optional attribute `name` is its name in records and tables. An optional attribute `knobs` lists the knobs that
    it sets, as in `knobs = ("limit", "drop")`: a queue without one of them is then refused before the run, otherwise at
    the first decision that sets it. `knobs = ()` is for a controller that only reads gauges.
    """

    period: float
    """Seconds between decisions, at least 1e-9."""

    def decide(self, gauges: Gauges, /) -> Knobs | None:
        """Read the gauges and return the knobs to set; None keeps all of them."""


def run_controlled(
    scenario: Scenario,
    queue: _core.Queue | str,
    seed: int,
    controller: Controller,
    series_bin_s: float | None,
    pcap: Path | None = None,
) -> dict[str, Any]:
    """Simulate one run with a controller written in Python; return the result record.

    Raises InputError, also if the queue lacks a knob that the controller sets.
    """
    world = _core.World(scenario, queue, seed, series_bin_s=series_bin_s, pcap=pcap)
    _check_knobs(controller, queue, world.knobs())
    with _named(controller):
        world.control(_period(controller))
    while (question := world.run()) is not None:
        which, sub_queue, gauges = question
        knobs = controller.decide(gauges)
        with _named(controller):
            world.set(knobs, which, sub_queue)
    record: dict[str, Any] = json.loads(world.finish()) | {"controller": name(controller)}
    return record


def name(own: object) -> str:
    """Return the name of a controller or queue written in Python: its attribute `name`, or the name of its class."""
    given = getattr(own, "name", None)
    return given if isinstance(given, str) else type(own).__name__


@contextmanager
def _named(controller: Controller) -> Iterator[None]:
    """Put the controller's name before errors in its answer."""
    try:
        yield
    except (InputError, TypeError) as error:
        raise type(error)(f"{_title(controller)}: {error}") from None


def _title(controller: Controller) -> str:
    return f"controller {name(controller)}"


def _period(controller: Controller) -> float:
    if not callable(getattr(controller, "decide", None)):
        raise InputError("it has no method decide(gauges); docs/how-to/extending.md shows one")
    period: Any = getattr(controller, "period", None)
    try:
        return float(period)
    except (TypeError, ValueError):
        remedy = "write the seconds between two decisions, as in period = 0.1"
        raise InputError(f"its period is {period!r}; {remedy}") from None


def _check_knobs(controller: Controller, queue: _core.Queue | str, there: Sequence[str]) -> None:
    wanted = getattr(controller, "knobs", None)
    if isinstance(wanted, str):
        raise InputError(f'{_title(controller)}: knobs = "{wanted}" is a string; write knobs = ("{wanted}",)')
    if not isinstance(wanted, Sequence | Set):
        if not there:
            remedy = (
                'choose another queue, as in aqm="fifo", or write knobs = () in a controller that only reads gauges'
            )
            raise InputError(f"{_title(controller)}: `{queue}` has no knobs; {remedy}")
        return
    for knob in wanted:
        known("knob", str(knob), Knobs.__annotations__, _title(controller))
        if knob not in there:
            has = f"it has {', '.join(there)}" if there else "it has none"
            raise InputError(f"{_title(controller)}: `{queue}` has no knob {knob}; {has}")
