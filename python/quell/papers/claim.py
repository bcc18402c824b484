"""A number or sentence of a paper, and the verdict of a measurement on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from quell.results import stats
from quell.results.stats import Estimate

Kind = Literal["printed", "claim", "aim", "beyond"]
KINDS: dict[Kind, str] = {
    "printed": "numbers that the paper prints or draws",
    "claim": "sentences of the paper, as inequalities",
    "aim": "bounds that quell set itself",
    "beyond": "settings, variants and quantities that the paper does not have",
}
REACHED, BETTER, MISSED, CONTRADICTED, OPEN = "reached", "better", "missed", "contradicted", "open"
CONSTANT, MEASURED = "constant", "measured"
VERDICTS = (REACHED, BETTER, MISSED, CONTRADICTED, OPEN, CONSTANT, MEASURED)

LEVEL = 0.9875
"""Confidence level of each interval. With four evaluations as runs are added, all four hold with 95 % (Bonferroni)."""
MIN_SEEDS = 5
"""Fewest runs or trainings for a verdict; with fewer it is `OPEN`."""

Quantity = Literal["amount", "rate", "share", "count"]
AMOUNT, RATE, SHARE = 0.20, 0.03, 0.05
"""Tolerances. Amounts (time, packets, bytes): 20 % of the printed number. Rates: 3 % of the link's rate or, if a claim
has no `link`, of the printed rate. Shares and indices: 0.05, or 5 percentage points. Counts have none."""
QUANTITIES: dict[str, Quantity] = {
    "ms": "amount", "s": "amount", "packets": "amount", "flows": "amount", "KB": "amount",
    "MB": "amount", "Mbit/s": "rate", "%": "share", "": "share",
}  # fmt: skip
"""The kind of number by unit, for claims without `of`."""


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Return mean and confidence interval of `LEVEL`; None without any value."""
    return stats.estimate(values, LEVEL)


@dataclass(frozen=True)
class Claim:
    """One row: a number or a sentence of a paper, an aim, or a quantity that the paper does not have."""

    id: str
    """Table or figure of the paper, then the quantity after dots: `T7.fq100.avg`."""
    what: str
    unit: str = ""
    expected: float | None = None
    """The number as printed or digitised; for a claim or an aim the bound; None if there is nothing to compare with."""
    better: int = 0
    """+1: more is better, -1: less is better, 0: the number itself is to be reached. Claims and aims have +1 or -1."""
    slack: float | None = None
    """Tolerance in the claim's unit, instead of that of its kind of number."""
    digits: int = 2
    """Digits after the decimal point in tables."""
    detail: bool = False
    """Shown in the terminal's table only with --all."""
    kind: Kind = "beyond"
    source: str = ""
    """Table, figure, section or page of the paper."""
    quote: str = ""
    """For a claim: one to five words of the sentence."""
    of: Quantity | None = None
    """The kind of number; None: by `QUANTITIES`."""
    link: float | None = None
    """The rate of which a rate's tolerance is a share; None: the printed rate."""

    def __post_init__(self) -> None:
        """Check that a row has what its kind requires: source, number, quote or direction."""
        bound = self.kind in ("claim", "aim")
        if (
            (self.kind == "printed" and not (self.source and self.expected is not None))
            or (self.kind == "claim" and not (self.source and 1 <= len(self.quote.split()) <= 5))
            or (bound and not (self.better and self.expected is not None))
        ):
            raise ValueError(f"{self.id}: a row of the kind {self.kind} lacks its source, quote, number or direction")
        compared = self.kind == "printed" and self.slack is None
        if compared and self.of is None and self.unit not in QUANTITIES:
            raise ValueError(f"{self.id}: the kind of number in {self.unit} is unknown; name it with `of`")

    @property
    def tolerance(self) -> float:
        """Largest distance from the number that counts as reached, in the claim's unit; 0 for claims and aims."""
        if self.expected is None or self.kind in ("claim", "aim"):
            return 0.0
        if self.slack is not None:
            return self.slack
        quantity = self.of or QUANTITIES[self.unit]
        if quantity == "share":
            return SHARE * (100 if self.unit == "%" else 1)
        share = {"amount": AMOUNT, "rate": RATE, "count": 0.0}[quantity]
        base = self.link if quantity == "rate" and self.link is not None else abs(self.expected)
        return share * base

    def verdict(self, measured: Estimate | None, *, exact: bool = False) -> str:
        """Return the verdict by the whole confidence interval: `OPEN` without one, or with fewer than `MIN_SEEDS` runs.

        `exact`: the value is computed and cannot vary, so it needs no interval and no runs.
        """
        if self.expected is None:
            return MEASURED
        if measured is None or not (exact or (measured.half is not None and measured.runs >= MIN_SEEDS)):
            return OPEN
        half = 0.0 if exact else (measured.half or 0.0)
        sign = self.better or 1
        # With `better` -1 all signs are reversed, so that more is better from here on.
        low, high = sorted((sign * (measured.mean - half), sign * (measured.mean + half)))
        slack = self.tolerance * (1 + 1e-9)
        least, most = sign * self.expected - slack, sign * self.expected + slack
        if high < least:
            return CONTRADICTED if self.kind == "claim" else MISSED
        if self.kind in ("claim", "aim"):
            return REACHED if low >= least else OPEN
        if low > most:
            return BETTER if self.better else MISSED
        return REACHED if low >= least and (self.better or high <= most) else OPEN
