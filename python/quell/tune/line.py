"""A user's line with its traffic, and the effect of a shaper in front of it.

The line has a plain FIFO at each end: the provider's for the download, the modem's for the upload. A router cannot
control them, but keeps them empty by sending and receiving below the line's rate. A download passes the provider's FIFO
at the line's rate and then the router's queue. An upload passes the router's queue, which keeps the modem's FIFO empty
as long as its rate does not exceed the line's.
"""

from __future__ import annotations

import copy
import math
import re
import tomllib
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from quell import _core
from quell._core import InputError, Scenario
from quell.inputs import shortcuts

BUFFER = "250ms"
"""Default size of a line's FIFOs: the delay of a modem with DOCSIS buffer control."""
BULK = ("tcp", "download", "upload", "backup")
"""Kinds of flows that use all available rate."""
_DURATION_S, _MIN_DURATION_S = 20.0, 5.0
"""Length of a run on a line of up to `_LONG_UP_TO`, and its minimum, s: a faster line carries more in less time."""
_LONG_UP_TO = 100_000_000
"""Total rate of both directions, bit/s."""
_WARMUP_SHARE = 5
"""Length of a run as a multiple of its warm-up."""
_LAN = 1_000_000_000
"""Rate of the interface on which cake shapes by itself, bit/s."""
_SLOW_FOR_VIDEO = 4_000_000
"""Below this rate of the slower direction, bit/s, a video call would use the whole line."""
_MIN_FIFO = 32 * 1514
"""Minimum size of a FIFO of the line, bytes: 32 full-size packets."""


@dataclass(frozen=True)
class Shaped:
    """A queue in one direction, at a rate."""

    queue: str
    """Queue words."""
    rate: int | None
    """Rate in bit/s; None: no shaper, so the queue forms in the line's own FIFO."""

    @property
    def itself(self) -> bool:
        """Whether the queue is its own shaper."""
        return self.queue.split()[0] == "cake"

    @property
    def bits(self) -> int:
        """The rate, bit/s, of a queue behind a shaper."""
        assert self.rate is not None, "only what has a rate is printed"
        return self.rate

    def value(self, name: str, default: str) -> str:
        """Return the value of an option in the queue words."""
        found = re.search(rf" {name} (\S+)", self.queue)
        return found[1] if found else default

    def choice(self, words: Container[str], default: str) -> str:
        """Return the queue word that is one of `words`."""
        return next((word for word in self.queue.split()[1:] if word in words), default)


NOTHING = Shaped("pfifo", None)
"""No shaper."""


@dataclass(frozen=True)
class Line:
    """A line and its traffic."""

    name: str
    keys: dict[str, Any]
    """Keys of a scenario, without queues and hops."""
    down: int
    """Rate, bits per second."""
    up: int
    framing: str
    """Keywords of tc-cake(8); empty: only Ethernet's header."""
    rtt_ms: float
    """Minimum round trip, ms."""
    buffer_s: float

    @property
    def rates(self) -> tuple[float, float]:
        """The rates down and up, Mbit/s."""
        return self.down / 1e6, self.up / 1e6

    @property
    def measured_s(self) -> float:
        """Measured time of a run, seconds."""
        return self._base.duration_s - self._base.warmup_s

    @cached_property
    def transfers(self) -> dict[str, set[str]]:
        """By direction, the hosts with transfers that use all available rate; an empty name: flows without a host."""
        found: dict[str, set[str]] = {"down": set(), "up": set()}
        for flow in self.keys["flow"]:
            kind = flow.get("kind", "tcp")
            if kind in BULK:
                way = "up" if kind in ("upload", "backup") else flow.get("direction", "down")
                found[way].add(flow.get("host", ""))
        return found

    @cached_property
    def _base(self) -> Scenario:
        """The line without a shaper."""
        link = {"rate": _rate(self.down), "queue": self._bfifo(self.down)}
        way_up = {"rate": _rate(self.up), "queue": self._bfifo(self.up)}
        framing = {"framing": self.framing} if self.framing else {}
        keys: Any = copy.deepcopy(self.keys)
        keys["link"] = keys.get("link", {}) | link | framing | {"up": way_up}
        return Scenario.from_keys(**keys)

    def scenario(self, down: Shaped, up: Shaped) -> tuple[Scenario, str]:
        """Return the scenario with these queues of the router, and the queue words of its bottleneck."""
        changes: Any = {}
        if up.rate is not None and up.rate <= self.up:
            bucket = {} if up.itself else {"rate": _rate(up.rate), "shaper": "htb"}
            changes["link"] = {"up": {"queue": up.queue, **bucket}}
        if down.rate is not None:
            hop: dict[str, Any] = {"queue": down.queue, "rate": _rate(max(_LAN, 2 * self.down))}
            if not down.itself:
                hop |= {"rate": _rate(down.rate), "shaper": "htb"}
                hop |= {"framing": self.framing} if self.framing else {}
            changes["hop"] = [hop]
        return self._base.replace(**changes), self._base.queue

    def fifo(self, rate: int) -> int:
        """Return the size of a FIFO of the line at a rate, bytes."""
        return max(_MIN_FIFO, round(rate * self.buffer_s / 8))

    def _bfifo(self, rate: int) -> str:
        return f"bfifo limit {self.fifo(rate)}"

    def neighbours(self) -> list[Line]:
        """List similar lines, on which a setting must also be good."""
        return [
            self._with("rate x0.8", rate=0.8),
            self._with("rate x1.2", rate=1.2),
            self._with("RTT x0.5", rtt=0.5),
            self._with("RTT x2", rtt=2.0),
            self._with("half the transfers", count=lambda n: max(1, n // 2)),
            self._with("twice the transfers", count=lambda n: 2 * n),
        ]

    def _with(
        self, name: str, *, rate: float = 1.0, rtt: float = 1.0, count: Callable[[int], int] = lambda n: n
    ) -> Line:
        keys = copy.deepcopy(self.keys)
        for flow in keys["flow"]:
            if rtt != 1.0:
                flow["rtt"] = f"{round(_core.quantity(flow['rtt'], 'time') * rtt)}ns"
            if flow.get("kind", "tcp") in BULK:
                flow["count"] = count(flow["count"])
        delay = keys.get("link", {}).get("delay")
        if delay is not None:
            keys["link"]["delay"] = f"{round(_core.quantity(delay, 'time') * min(rtt, 1.0))}ns"
        down, up = round(self.down * rate), round(self.up * rate)
        return Line(name, keys, down, up, self.framing, self.rtt_ms * rtt, self.buffer_s)


def _rate(bits: int) -> str:
    return f"{bits}bit"


def time_on(rate: int) -> float:
    """Return the length of a run, s, by the total rate of both directions, bit/s, with which its cost grows."""
    return max(_MIN_DURATION_S, round(_DURATION_S * math.sqrt(min(1.0, _LONG_UP_TO / rate)), 1))


def at_home(
    rate: str,
    rtt: str | None,
    framing: str | None,
    buffer: str | None,
    aims: Container[str],
    duration: str | None,
    seed: int,
) -> Line:
    """Make a home line: two-way transfers of two hosts beside the applications of these aims. Raises InputError."""
    down, up = shortcuts.both_ways(rate)
    rates = [_quantity("--rate", text, "rate") for text in (down, up)]
    if min(rates) < 100_000:
        raise InputError(f"--rate {rate}: a line of less than 100kbit is too slow for what quell tune measures")
    round_trip = "30ms" if rtt is None else rtt
    base = _quantity("--rtt", round_trip, "time")
    if not 100_000 <= base <= 2_000_000_000:
        raise InputError(f"--rtt {round_trip}: the base round trip is to be from 0.1ms to 2s")

    def flow(kind: str, host: str, count: int = 1, scale: int = 1, **more: Any) -> dict[str, Any]:
        way = {"direction": "up"} if kind == "upload" else {}
        ends = {"host": host, "to_host": f"server of {kind}, {host}"}
        return {"kind": kind, "count": count, "rtt": f"{base * scale}ns", "stagger": "1s", **ends, **way, **more}

    # Servers differ, and those of the second host are twice as far away. With a single server, cake's triple-isolate
    # would see one host at that end and share among flows.
    flows = [
        flow("download", "laptop", 3), flow("download", "tv", 1, 2), flow("upload", "laptop", 2),
        flow("upload", "tv", 1, 2), flow("call", "phone"), flow("game", "console"), flow("probe", "phone"),
    ]  # fmt: skip
    if "calls" in aims and min(rates) >= _SLOW_FOR_VIDEO:
        flows.append(flow("video_call", "phone"))
    if "pages" in aims:
        flows.append(flow("page", "phone", think="1s"))
    seconds = time_on(sum(rates))
    keys: dict[str, Any] = {
        "name": "line", "duration": duration or f"{seconds:g}s", "seed": seed, "link": {}, "flow": flows,
    }  # fmt: skip
    if duration is None:
        keys["warmup"] = f"{seconds / _WARMUP_SHARE:g}s"
    return _checked(
        Line("the line", keys, rates[0], rates[1], framing or "", base / 1e6, _buffer(buffer)),
        "--framing" if framing else "quell tune",
    )


def of_scenario(scenario: Scenario, framing: str | None, buffer: str | None) -> Line:
    """Take link and traffic from a scenario; its queues are the subject of the search. Raises InputError."""
    keys = tomllib.loads(scenario.toml())
    name, link = scenario.name, keys.get("link")
    if link is None:
        raise InputError(f"{name}: quell tune needs a [link]; a Wi-Fi cell has no shaper in front of it")
    if "hop" in keys:
        raise InputError(f"{name}: quell tune takes one [link], without [[hop]]")
    if "up" not in link:
        raise InputError(f"{name}: quell tune sets both directions; give the scenario a [link.up] with its rate")
    for table in (link, link["up"]):
        if "rate" not in table:
            raise InputError(f"{name}: quell tune needs a constant rate both ways, not a trace or a schedule")
    kept = {key: value for key, value in link.items() if key in ("delay", "loss")}
    flows = [dict(flow) for flow in keys.get("flow", ())]
    for flow in flows:
        flow.pop("hops", None)
    if not any(flow.get("kind") == "probe" for flow in flows):
        flows.append({"kind": "probe", "count": 1, "rtt": flows[0]["rtt"]})
    made: dict[str, Any] = {key: keys[key] for key in ("name", "duration", "warmup", "seed") if key in keys}
    least = min(_core.quantity(flow["rtt"], "time") for flow in flows)
    down, up = (_core.quantity(table["rate"], "rate") for table in (link, link["up"]))
    words = link.get("framing", "") if framing is None else framing
    kept_keys: dict[str, Any] = {**made, "link": kept, "flow": flows}
    line = Line(name, kept_keys, down, up, words, least / 1e6, _buffer(buffer))
    return _checked(line, "--framing" if framing else name)


def _checked(line: Line, place: str) -> Line:
    """Check everything once with the simulator, with the user's words in errors."""
    try:
        line.scenario(NOTHING, NOTHING)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return line


def _buffer(text: str | None) -> float:
    return _quantity("--buffer", text or BUFFER, "time") / 1e9


def _quantity(option: str, text: str, kind: Literal["rate", "time"]) -> int:
    try:
        return _core.quantity(text.strip(), kind)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None
