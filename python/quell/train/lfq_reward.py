"""Rewards for LFQ's experiments: the paper's, which charges for queued data, one for delay, or your own."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from quell._core import InputError


@dataclass(frozen=True)
class Readings:
    """Measurements of one side of an experiment, from its decision to the end of its flow."""

    rate_mbyte_s: float
    """Rate of departures from the queue, 1e6 bytes/s."""
    queue_packets: float
    """Mean number of packets queued."""
    delay_s: float
    """Mean time of a packet in the queue."""
    limit_packets: int
    """The limit of this side."""
    link_mbps: float
    """Rate of the link."""
    rtt_s: float
    """Round trip without queues."""


Reward = Callable[[Readings], float]


def find(text: str, alpha: float) -> Reward | None:
    """Return the reward of `--reward`; None for `queue`, which the simulator computes. Raises InputError."""
    if text == "queue":
        return None
    if text == "delay":
        return lambda readings: readings.rate_mbyte_s - alpha * readings.delay_s
    module, _, name = text.partition(":")
    if not (module and name):
        raise InputError(f"--reward {text}: write queue, delay or module:name, a function in Python")
    here = str(Path.cwd())  # folder of `mine.py` for `mine:reward`
    sys.path.insert(0, here)
    try:
        function = getattr(import_module(module), name, None)
    except Exception as error:
        raise InputError(f"--reward {text}: cannot import {module}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(here)
    if not callable(function):
        raise InputError(f"--reward {text}: {module} has no function `{name}`")

    def checked(readings: Readings) -> float:
        try:
            value = float(function(readings))
        except Exception as error:
            raise InputError(f"--reward {text}: {type(error).__name__}: {error}, of {readings}") from None
        if not math.isfinite(value):
            raise InputError(f"--reward {text}: gave {value}, of {readings}")
        return value

    return checked
