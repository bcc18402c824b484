"""The link of an evaluation."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quell import _core
from quell._core import InputError
from quell.experiments import experiment
from quell.inputs import notes

DEFAULT = "10mbit@rtt=100ms"
PACKET = 1514
"""Size of a full-size packet on the link, bytes: 1500 plus an Ethernet header."""
_MIN_BDP, _MAX_BDP = 10, 20_000
"""Range of the bandwidth-delay product, packets: below it, a mild load is less than one flow; above it, thousands."""
_KEPT = ("shaper", "burst", "overhead", "framing", "nic")
"""Keys of a scenario's [link] that an evaluation keeps."""


@dataclass(frozen=True)
class Link:
    """A constant rate and a base round trip."""

    rate_bps: int
    rtt_s: float
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of [link]."""

    @property
    def packets(self) -> int:
        """Bandwidth-delay product in full-size packets: the buffer of RFC 7928, section 3.2."""
        return math.ceil(self.rate_bps * self.rtt_s / 8 / PACKET)

    def table(self, share: float = 1.0) -> dict[str, Any]:
        """Return the table [link] with a share of the link's rate."""
        return {"rate": self.rate(share), **self.keys}

    def rate(self, share: float) -> str:
        """Return a share of the rate in the notation of scenario files."""
        return f"{round(self.rate_bps * share)}bit"

    def rtt(self, factor: float = 1.0) -> str:
        """Return a multiple of the base round trip in the notation of scenario files."""
        return f"{round(self.rtt_s * factor * 1e6)}us"

    def at(self, seconds: float) -> str:
        """Return a time of the suite as text, extended in proportion to round trips above 100 ms.

        On a long path, a window needs as many round trips to grow as on a short one.
        """
        return f"{round(self.seconds(seconds) * 1000)}ms"

    def seconds(self, seconds: float) -> float:
        """Return a time of the suite as extended by `at`."""
        return seconds * max(1.0, self.rtt_s / 0.1)

    def __str__(self) -> str:
        return f"{self.rate_bps / 1e6:g} Mbit/s, {self.rtt_s * 1e3:g} ms"


def parse(text: str | None) -> Link:
    """Read `RATE[@rtt=TIME]`, or take the link and the first flow's round trip of a scenario. Raises InputError."""
    given = DEFAULT if text is None else text
    if given[:1].isdigit():
        rate, at, rtt = given.partition("@rtt=")
        if not at and "@" in given:
            raise InputError(f"{given}: a round trip is written with its name, as in {DEFAULT}")
        if at and not rtt:
            raise InputError(f"{given}: no time after @rtt=; write a link as in {DEFAULT}")
        notes.warn("", None, {"rate": rate})
        link = Link(_core.quantity(rate, "rate"), _core.quantity(rtt or "100ms", "time") / 1e9)
    else:
        link = _of_scenario(given)
    # The product is compared before it is rounded to packets.
    bits = link.rate_bps * link.rtt_s
    if not _MIN_BDP * PACKET * 8 <= bits <= _MAX_BDP * PACKET * 8:
        raise InputError(
            f"{given}: rate times round trip is {bits / 8 / PACKET:.3g} packets; "
            f"scenarios of RFC 7928 need {_MIN_BDP} to {_MAX_BDP}, as in {DEFAULT}"
        )
    return link


def _of_scenario(name: str) -> Link:
    plain = tomllib.loads(experiment.load(name).toml())
    table = plain.get("link", {})
    if "rate" not in table:
        what = "a Wi-Fi cell" if "wifi" in plain else "no constant rate"
        raise InputError(f"{name}: has {what}; RFC 7928's scenarios need a rate: write quell evaluate {DEFAULT}")
    rtts = [flow["rtt"] for flow in plain.get("flow", ()) if "rtt" in flow]
    rtt_s = _core.quantity(rtts[0], "time") / 1e9 if rtts else 0.1
    return Link(_core.quantity(table["rate"], "rate"), rtt_s, {k: table[k] for k in _KEPT if k in table})
