"""All scenarios of RFC 7928; `entry.py` defines an entry."""

from __future__ import annotations

from quell.evaluation.bursts import SECTION_7
from quell.evaluation.costs import SECTIONS_11_12
from quell.evaluation.entry import Entry
from quell.evaluation.interaction import SECTION_4
from quell.evaluation.mixes import SECTION_9, SECTION_10
from quell.evaluation.stability import SECTION_8
from quell.evaluation.transports import SECTION_5, SECTION_6

SUITE: tuple[Entry, ...] = (
    *SECTION_4, *SECTION_5, *SECTION_6, *SECTION_7, *SECTION_8, *SECTION_9, *SECTION_10, *SECTIONS_11_12,
)  # fmt: skip
"""Every scenario, in the RFC's order."""

SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(entry.section for entry in SUITE))
"""The sections, in the RFC's order."""
