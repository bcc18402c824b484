"""A line's framing in numbers, read from keywords of tc-cake(8) like those of `cake`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quell import _core

ETHERNET = 14
"""Header bytes that the kernel already counts (stab, htb), and that packets have without a given framing."""
_FULL = 1500
"""Bytes of a full IP packet."""


@dataclass(frozen=True)
class Framing:
    """Framing of an IP packet on a line."""

    overhead: int
    mpu: int
    cells: str
    """Kind of cells: none, atm or ptm."""
    given: bool
    """Whether the framing is known. If not, packets count with Ethernet's header."""

    @classmethod
    def of(cls, words: str) -> Framing:
        """Read keywords of tc-cake(8). Raises InputError."""
        values = _core.queue(f"cake {words}").split()[1:]
        numbers = {key: int(values[values.index(key) + 1]) for key in ("overhead", "mpu") if key in values}
        cells = next((word for word in ("atm", "ptm") if word in values), "none")
        return cls(numbers.get("overhead", 0), numbers.get("mpu", 0), cells, bool(words))

    @property
    def counted(self) -> int:
        """Bytes in addition to an IP packet: the overhead, or Ethernet's header if the framing is unknown."""
        return self.overhead if self.given else ETHERNET

    @property
    def beyond_ethernet(self) -> int:
        """Bytes in addition to those that the kernel counts."""
        return self.overhead - ETHERNET

    def scaled(self, rate: int, counted: int) -> int:
        """Return the rate of a shaper that adds `counted` bytes to an IP packet in place of the framing.

        IP packets of 1500 bytes then take as long as with the framing at `rate`. ATM's cells are not supported.
        """
        size = max(_FULL + self.counted, self.mpu)
        if self.cells == "ptm":
            # One byte in 65 belongs to the coding.
            size += math.ceil(size / 64)
        return rate * (_FULL + counted) // size

    def stab(self) -> str:
        """Return the words of tc-stab(8) with a trailing space; empty if nothing has to be added."""
        if not self.given:
            return ""
        kind = "atm" if self.cells == "atm" else "ethernet"
        return f"stab overhead {self.beyond_ethernet} mpu {self.mpu} linklayer {kind} "
