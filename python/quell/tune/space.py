"""The search space: disciplines, their options in tc's notation, and the shaper's rate in both directions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from quell.tune.line import Line, Shaped

Value = int | float | str

RATE_DOWN, RATE_UP = "download rate", "upload rate"
"""The shaper's rates, percent of the line's."""
_STEP = 0.1
"""Standard deviation of a step from a good value, as a share of the option's range."""
_SHARE = 90.0
"""The first share to try; guides recommend 80 to 95 %."""


@dataclass(frozen=True)
class Option:
    """An option: its default, its range in the search, and its words."""

    name: str
    default: Value
    choices: tuple[str, ...] = ()
    """Words to choose from; empty: a range of numbers."""
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    """Step of the numbers; None: integers on a logarithmic scale."""
    words: Callable[[Value], str] = str
    """The words for both directions."""
    words_up: Callable[[Value], str] | None = None
    """The words of the upload, if they differ."""
    ways: str = "both"
    """Directions: both, down or up."""

    def anywhere(self, rng: Random) -> Value:
        """Draw a value from the whole range."""
        if self.choices:
            return rng.choice(self.choices)
        low, high = self._scaled(self.low), self._scaled(self.high)
        return self._value(low + (high - low) * rng.random())

    def near(self, value: Value, rng: Random) -> Value:
        """Draw a value near another one: a normally distributed step of `_STEP` of the range, or any word."""
        if self.choices:
            return rng.choice(self.choices)
        low, high = self._scaled(self.low), self._scaled(self.high)
        moved = self._scaled(float(value)) + rng.gauss(0.0, _STEP * (high - low))
        return self._value(min(high, max(low, moved)))

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.step is None else value

    def _value(self, scaled: float) -> Value:
        if self.step is None:
            return round(math.exp(scaled))
        return round(self.low + self.step * round((scaled - self.low) / self.step), 3)


def _number(name: str, default: float, low: float, high: float, unit: str = "") -> Option:
    return Option(name, default, low=low, high=high, words=lambda value: f"{name} {value:g}{unit}")


def _chosen(name: str, *choices: str, ways: str = "both") -> Option:
    return Option(name, choices[0], choices, ways=ways)


_RATES = (
    Option(RATE_DOWN, _SHARE, low=70.0, high=100.0, step=0.5, words=lambda _: "", ways="down"),
    Option(RATE_UP, _SHARE, low=70.0, high=100.0, step=0.5, words=lambda _: "", ways="up"),
)
ISOLATION = ("flowblind", "srchost", "dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost", "triple-isolate")
TINS = ("besteffort", "precedence", "diffserv3", "diffserv4", "diffserv8")
"""Words of cake that exclude each other."""
_HOSTS = Option(
    "isolation", "triple-isolate", ("triple-isolate", "flows", "dual-dsthost"), words=str,
    # Hosts of the home receive the download and send the upload.
    words_up=lambda value: str(value).replace("dst", "src"),
)  # fmt: skip
_PIE = (
    _number("target", 15, 1, 100, "ms"),
    _number("tupdate", 15, 1, 60, "ms"),
    _number("alpha", 2, 1, 32),
    _number("beta", 20, 1, 32),
)
_CODEL = (_number("target", 5, 1, 60, "ms"), _number("interval", 100, 10, 400, "ms"))
_FLOWS = _number("quantum", 1514, 300, 6000)

OPTIONS: dict[str, tuple[Option, ...]] = {
    "cake": (
        _number("rtt", 100, 5, 400, "ms"),
        _HOSTS,
        _chosen("tins", "diffserv3", "besteffort", "diffserv4"),
        _chosen("ack filter", "no-ack-filter", "ack-filter", "ack-filter-aggressive", ways="up"),
        _chosen("ingress", "egress", "ingress", ways="down"),
    ),
    "fq_codel": (*_CODEL, _FLOWS, _number("limit", 10240, 100, 20000)),
    "codel": (*_CODEL, _number("limit", 1000, 20, 4000)),
    "pie": (*_PIE, _number("limit", 1000, 20, 4000)),
    "fq_pie": (*_PIE, _FLOWS, _number("limit", 10240, 100, 20000)),
    "cobalt": (*_CODEL, _number("limit", 1000, 20, 4000)),
    "sfq": (_number("limit", 127, 20, 1000), _FLOWS, Option("headdrop", "taildrop", ("taildrop", "headdrop"),
            words=lambda value: "headdrop" if value == "headdrop" else "")),
    "pfifo": (_number("limit", 1000, 5, 2000),),
    "hush": (_FLOWS,),
}  # fmt: skip
"""Every discipline of the search with its options. Options without effect on simulated lines keep their defaults: `nat`
and `split-gso` of cake, ECN without flows that negotiate it."""


@dataclass(frozen=True)
class Setting:
    """A discipline with all its options for both directions."""

    kind: str
    values: tuple[tuple[str, Value], ...]

    def shaped(self, line: Line, way: str) -> Shaped:
        """Return queue words and rate on a line."""
        values = dict(self.values)
        share = values[RATE_DOWN if way == "down" else RATE_UP]
        assert isinstance(share, float)
        # Whole kbit/s, as sqm-scripts require.
        rate = max(1000, round((line.down if way == "down" else line.up) * share / 100_000) * 1000)
        words = [self.kind]
        if self.kind == "cake":
            # Behind a router's address translation, cake distinguishes the home's hosts only with `nat`.
            words += [f"bandwidth {rate_text(rate)}", line.framing, "nat"]
        for option in OPTIONS[self.kind]:
            value = values[option.name]
            if value != option.default and option.ways in ("both", way):
                words.append((option.words_up or option.words if way == "up" else option.words)(value))
        return Shaped(" ".join(word for word in words if word), rate)

    def without(self, name: str) -> Setting:
        """Return the setting with the default of one option."""
        default = next(option.default for option in options(self.kind) if option.name == name)
        return Setting(self.kind, tuple((key, default if key == name else value) for key, value in self.values))

    def changed(self) -> list[str]:
        """List the options that differ from their defaults."""
        defaults = {option.name: option.default for option in options(self.kind)}
        return [name for name, value in self.values if value != defaults[name]]

    def shown(self, name: str) -> str:
        """Return an option in readable form: `rtt 20ms`, `download rate 95 %`."""
        value = dict(self.values)[name]
        if name in (RATE_DOWN, RATE_UP):
            return f"{name} {value:g} %"
        option = next(option for option in OPTIONS[self.kind] if option.name == name)
        up = None if option.words_up is None else option.words_up(value)
        return option.words(value) if up is None else f"{option.words(value)} / {up}"


def options(kind: str) -> tuple[Option, ...]:
    """List the options of a discipline, the shaper's rates first."""
    return _RATES + OPTIONS[kind]


def default(kind: str, share_down: float = _SHARE, share_up: float = _SHARE) -> Setting:
    """Return a discipline with its defaults, shaped to 90 % of the line or to other shares."""
    shares = {RATE_DOWN: share_down, RATE_UP: share_up}
    return Setting(kind, tuple((option.name, shares.get(option.name, option.default)) for option in options(kind)))


def starts(kind: str) -> list[Setting]:
    """List the first settings of a search: the default with other shares of the rates, the most important options."""
    return [default(kind, down, up) for down in (95.0, 98.0) for up in (down, 100.0)]


def moved(kind: str) -> Setting:
    """Return a discipline with every option at its last choice or highest value, which uses all its words."""
    values = {option.name: option.choices[-1] if option.choices else option.high for option in options(kind)}
    return of(kind, values)


def of(kind: str, values: Mapping[str, Any]) -> Setting:
    """Return the setting with these values."""
    return Setting(kind, tuple((option.name, values[option.name]) for option in options(kind)))


def rate_text(bits: int) -> str:
    """Return a rate in tc's notation: `45mbit`, `47250kbit`."""
    return f"{bits // 1_000_000}mbit" if bits % 1_000_000 == 0 else f"{bits // 1000}kbit"
