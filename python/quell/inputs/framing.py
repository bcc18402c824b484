"""A line's framing in numbers, read from keywords of tc-cake(8) as `cake` reads them."""

from __future__ import annotations

from dataclasses import dataclass

from quell import _core

_ETHERNET = 14
"""Bytes of header that the kernel counts already (stab, htb), and that a packet has where no framing is given."""


@dataclass(frozen=True)
class Framing:
    """What a line makes of an IP packet."""

    overhead: int
    mpu: int
    cells: str
    """none, atm or ptm."""
    given: bool
    """False: nothing is known of the line; packets count with Ethernet's header."""

    @classmethod
    def of(cls, words: str) -> Framing:
        """Read keywords of tc-cake(8). Raises InputError."""
        values = _core.queue(f"cake {words}").split()[1:]
        numbers = {key: int(values[values.index(key) + 1]) for key in ("overhead", "mpu") if key in values}
        cells = next((word for word in ("atm", "ptm") if word in values), "none")
        return cls(numbers.get("overhead", 0), numbers.get("mpu", 0), cells, bool(words))

    @property
    def counted(self) -> int:
        """Bytes on top of an IP packet: the overhead, or Ethernet's header where nothing is known of the line."""
        return self.overhead if self.given else _ETHERNET

    @property
    def beyond_ethernet(self) -> int:
        """Bytes on top of what the kernel counts."""
        return self.overhead - _ETHERNET

    def stab(self) -> str:
        """Return the words of tc-stab(8) with a blank at the end; nothing where nothing is to be added."""
        if not self.given:
            return ""
        kind = "atm" if self.cells == "atm" else "ethernet"
        return f"stab overhead {self.beyond_ethernet} mpu {self.mpu} linklayer {kind} "
