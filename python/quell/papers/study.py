"""Results of measuring a paper: values of its claims, figures, tables and notes, which the paper's module fills in."""

from __future__ import annotations

from dataclasses import dataclass, field

from quell.results.stats import Estimate
from quell.views.figures import Figure, Listing, Table


@dataclass(frozen=True)
class Measured:
    """Result for one claim."""

    value: Estimate | None
    why: str = ""
    """Why the claim is missed, found by an experiment of the same command; shown unless it is reached."""
    exact: bool = False
    """Whether the value is computed, so that it cannot vary and has no interval."""
    constant: bool = False
    """Whether the measured policy has a constant output, so that there is no verdict on a learner."""


@dataclass
class Study:
    """Results of measuring a paper."""

    measured: dict[str, Measured] = field(default_factory=dict)
    """Results by claim id; a claim without an entry was not measured."""
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Findings in one or two sentences each, derived from the numbers."""
    tables: list[Table] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)

    def put(
        self, claim: str, value: Estimate | None, why: str = "", *, exact: bool = False, constant: bool = False
    ) -> None:
        """Store the result for a claim."""
        self.measured[claim] = Measured(value, why, exact, constant)
