"""A number or a sentence of a paper, and the verdict on what was measured for it."""

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
"""Of the interval at each of four looks, so that all four hold with 95 % (Bonferroni)."""
MIN_SEEDS = 5
"""Runs or trainings: fewer decide nothing."""

Quantity = Literal["amount", "rate", "share", "count"]
AMOUNT, RATE, SHARE = 0.20, 0.03, 0.05
"""The tolerances: of an amount (time, packets, loss) a share of the printed number; of a rate a share of the link's, or
of the printed rate where flows have links of their own; of a share or an index that much. A count has none."""
QUANTITIES: dict[str, Quantity] = {
    "ms": "amount", "s": "amount", "packets": "amount", "flows": "amount", "KB": "amount",
    "Mbit/s": "rate", "MB": "rate", "%": "share", "": "share",
}  # fmt: skip
"""By unit, where a claim does not say it."""


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Mean and interval of `LEVEL`; None without any value."""
    return stats.estimate(values, LEVEL)


@dataclass(frozen=True)
class Claim:
    """One row: a number or a sentence of a paper, an aim, or something that the paper does not have."""

    id: str
    """Table or figure of the paper, then the quantity after dots: `T7.fq100.avg`."""
    what: str
    unit: str = ""
    expected: float | None = None
    """As printed or digitised; of a claim or an aim the bound; None where nothing is to be met."""
    better: int = 0
    """+1: more is better, -1: less is better, 0: the figure itself is to be met. Claims and aims have a direction."""
    slack: float | None = None
    """In place of the rule's tolerance."""
    digits: int = 2
    """After the point, where it is printed for people."""
    detail: bool = False
    """The terminal's table shows it only with --all."""
    kind: Kind = "beyond"
    source: str = ""
    """Table, figure, section or page of the paper."""
    quote: str = ""
    """Of a claim: at most five words of the sentence."""
    of: Quantity | None = None
    """What kind of number it is; None: as the unit says."""
    link: float | None = None
    """The rate that a rate's tolerance is a share of; None: the printed rate."""

    def __post_init__(self) -> None:
        """Refuse rows that do not say where they are from."""
        bound = self.kind in ("claim", "aim")
        if (
            (self.kind == "printed" and not (self.source and self.expected is not None))
            or (self.kind == "claim" and not (self.source and 1 <= len(self.quote.split()) <= 5))
            or (bound and not (self.better and self.expected is not None))
        ):
            raise ValueError(f"{self.id}: a row of the kind {self.kind} lacks its source, quote, number or direction")

    @property
    def tolerance(self) -> float:
        """How far from the number still counts as reached, in the claim's unit; bounds have none."""
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
        """Judge by the whole interval. A value without one, or of fewer than five runs, decides nothing.

        `exact` is for what is computed and has no interval because it cannot vary.
        """
        if self.expected is None:
            return MEASURED
        if measured is None or not (exact or (measured.half is not None and measured.runs >= MIN_SEEDS)):
            return OPEN
        half = 0.0 if exact else (measured.half or 0.0)
        sign = self.better or 1
        # From here on more is better.
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
