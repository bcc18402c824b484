"""Controllers written in Python: read a queue's gauges on a cadence, set its knobs."""

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
    """When it was read, seconds since the start."""
    backlog_packets: int
    backlog_bytes: int
    limit_packets: int
    sojourn: float
    """Seconds that the packet that left last had spent in the queue; 0 before the first."""
    head_age: float
    """Seconds that the head of the queue has waited; 0 if empty."""
    rate_bps: int
    share: float
    """Share of the link that this queue gets, 0..1; in a cell what others leave of the channel."""
    achieved_bps: int
    """In a cell: bits that arrive per second of the air that the queue's frames take; 0 on a wire."""
    busy: float
    """In a cell: share of the time in which the air is in use, 0..1; 0 on a wire."""
    contenders: int
    """Nodes that lately sent data on the same channel, the queue's own included: 1 on a wire."""
    aggregate: float
    """Frames per aggregate: 1 on a wire."""
    arrivals: int
    departures: int
    departed_bytes: int
    drops_overflow: int
    drops_early: int
    dropped_bytes: int
    marks: int
    probability: float
    backlog_packet_seconds: float
    """Packets queued, integrated over time: the mean backlog of a period is the difference over its length."""


class Knobs(TypedDict, total=False):
    """What a controller sets; a knob left out stays as it is."""

    limit: int
    """Packets."""
    drop: float
    """Probability of dropping each arrival, 0..1."""
    base_probability: float
    """p' of coupled queues, 0..1."""


class Controller(Protocol):
    """What `quell.run(controller=...)` takes.

    It may have an attribute `name`, which records and tables call it by, and an attribute `knobs`, which lists the
    knobs that it sets, as in `knobs = ("limit", "drop")`: a queue that lacks one is then refused before the run, else
    at the first decision that sets it. `knobs = ()` is for a controller that only reads gauges.
    """

    period: float
    """Seconds between decisions, at least 1e-9."""

    def decide(self, gauges: Gauges, /) -> Knobs | None:
        """Look at the gauges and return the knobs to set; None leaves all as they are."""


def run_controlled(
    scenario: Scenario,
    queue: _core.Queue | str,
    seed: int,
    controller: Controller,
    series_bin_s: float | None,
    pcap: Path | None = None,
) -> dict[str, Any]:
    """Simulate one run with a controller from outside; returns the result record.

    Raises InputError, also where the queue lacks a knob that the controller sets.
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
    """Return what a controller or a queue written in Python is called: its attribute `name`, or its class."""
    given = getattr(own, "name", None)
    return given if isinstance(given, str) else type(own).__name__


@contextmanager
def _named(controller: Controller) -> Iterator[None]:
    """Put the name of the controller before what is wrong with its answer."""
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
        raise InputError(f'{_title(controller)}: knobs = "{wanted}" is one text; write knobs = ("{wanted}",)')
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
