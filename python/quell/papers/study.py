"""What measuring a paper gives: the data that every paper's module fills."""

from __future__ import annotations

from dataclasses import dataclass, field

from quell.results.stats import Estimate
from quell.views.figures import Figure, Listing, Table


@dataclass(frozen=True)
class Measured:
    """What came out for one claim."""

    value: Estimate | None
    why: str = ""
    """What an experiment of this same command showed about the miss; shown only where the claim is not reached."""
    exact: bool = False
    """Computed: it has no interval because it cannot vary."""
    constant: bool = False
    """The policy measured answers the same to every input: no verdict on a learner."""


@dataclass
class Study:
    """What measuring a paper gives."""

    measured: dict[str, Measured] = field(default_factory=dict)
    """By claim id; a claim without an entry was not measured."""
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Findings in a sentence or two each, made from the numbers."""
    tables: list[Table] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)

    def put(
        self, claim: str, value: Estimate | None, why: str = "", *, exact: bool = False, constant: bool = False
    ) -> None:
        """Keep what was measured for a claim."""
        self.measured[claim] = Measured(value, why, exact, constant)
