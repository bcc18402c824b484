"""A line's framing in numbers, read from keywords of tc-cake(8) like those of `cake`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quell import _core

ETHERNET = 14
"""Bytes of Ethernet's header, which the kernel already counts (stab, htb). Packets have it if no framing is given."""
_FULL, _ACK = 1500, 52
"""Bytes of a full IP packet, and of an acknowledgment with timestamps."""


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

    def scaled(self, rate: int, counted: int, opposite: int) -> int:
        """Return the rate of a shaper that adds `counted` bytes to an IP packet in place of the framing.

        At that rate the shaper sends as many packets as at `rate` with the framing, provided that it sends full
        packets, and one acknowledgment for two full packets that arrive in the opposite direction at the rate
        `opposite`. Rates are in bit/s.
        """
        full, ack = self._size(_FULL), self._size(_ACK)
        acks = min(opposite / (2 * full), rate / ack)
        return round((rate - acks * ack) * (_FULL + counted) / full + acks * (_ACK + counted))

    def _size(self, packet: int) -> int:
        """Return the bytes of an IP packet on the line, without ATM's cells."""
        size = max(packet + self.counted, self.mpu)
        # One byte in 65 belongs to PTM's coding.
        return size + math.ceil(size / 64) if self.cells == "ptm" else size

    def stab(self) -> str:
        """Return the words of tc-stab(8) with a trailing space; empty if nothing has to be added."""
        if not self.given:
            return ""
        kind = "atm" if self.cells == "atm" else "ethernet"
        return f"stab overhead {self.beyond_ethernet} mpu {self.mpu} linklayer {kind} "
