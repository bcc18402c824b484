"""What a published paper claims, what was measured, and the verdict: the data that every paper's module fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from quell.results.stats import Estimate

if TYPE_CHECKING:
    from quell.papers.bench import Bench

BETTER, REACHED, MISSED, UNPRINTED = "better", "reached", "not reached", "no number printed"
VERDICTS = (BETTER, REACHED, MISSED, UNPRINTED)


@dataclass(frozen=True)
class Claim:
    """One number of a paper, or one that the paper should have had."""

    id: str
    """Table or figure of the paper, then the quantity after dots: `T7.fq100.avg`."""
    what: str
    unit: str = ""
    printed: float | None = None
    """As printed or digitised; None where the paper has none."""
    better: int = 0
    """+1: more is better, -1: less is better, 0: the figure itself is to be met."""
    tolerance: float = 0.0
    """How far on the bad side (either side, where `better` is 0) still counts as reached, in the claim's unit."""
    digits: int = 2
    """After the point, where it is printed for people."""
    detail: bool = False
    """The terminal's table shows it only with --all."""

    def verdict(self, measured: Estimate | None) -> str:
        """Judge: `better` where the whole interval beats the print, `reached` where the mean is within tolerance."""
        if self.printed is None:
            return UNPRINTED
        if measured is None:
            return MISSED
        off = measured.mean - self.printed
        if self.better and self.better * off > (measured.half or 0.0):
            return BETTER
        short = -self.better * off if self.better else abs(off)
        return REACHED if short <= self.tolerance * (1 + 1e-9) else MISSED


@dataclass(frozen=True)
class Measured:
    """What came out for one claim."""

    value: Estimate | None
    why: str = ""
    """What an experiment of this same command showed about the miss; shown only where the claim is not reached."""


@dataclass(frozen=True)
class Axis:
    """How a panel's axis is named and scaled."""

    title: str
    log: bool = False


@dataclass(frozen=True)
class Line:
    """One curve or cloud of points."""

    name: str
    points: Sequence[tuple[float, float | None]]
    kind: Literal["line", "steps", "dots", "both"] = "line"
    """`both` is a line through dots."""
    group: int = 0
    """Lines of one group have one colour."""
    printed: bool = False
    """Taken from the paper: hollow dots, dashed lines."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]


@dataclass(frozen=True)
class Figure:
    """A figure drawn anew, panels side by side."""

    id: str
    title: str
    note: str
    panels: Sequence[Panel]


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

    def put(self, claim: str, value: Estimate | None, why: str = "") -> None:
        """Keep what was measured for a claim."""
        self.measured[claim] = Measured(value, why)


@dataclass(frozen=True)
class Table:
    """A matrix beside the rows, such as one setting against another."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Listing:
    """Lines to read as they are."""

    title: str
    text: str


@dataclass(frozen=True)
class Paper:
    """A paper that `quell reproduce` measures again."""

    name: str
    title: str
    source: str
    """Authors, venue, year."""
    about: str
    """What is measured, in a line."""
    claims: Sequence[Claim]
    measure: Callable[[Bench], Study]


def short(value: float) -> str:
    """Write a number with three digits, and no power of ten."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def rows(paper: Paper, study: Study) -> list[dict[str, Any]]:
    """One row per claim, in the paper's order: what `--json` writes."""
    known = {claim.id for claim in paper.claims}
    if stray := sorted(study.measured.keys() - known):
        raise ValueError(f"{paper.name}: measured but not claimed: {', '.join(stray)}")
    return [_row(claim, study.measured) for claim in paper.claims]


def _row(claim: Claim, all_measured: Mapping[str, Measured]) -> dict[str, Any]:
    measured = all_measured.get(claim.id, Measured(None, "not measured in this run"))
    value, verdict = measured.value, claim.verdict(measured.value)
    half = None if value is None else value.half
    return {
        "id": claim.id,
        "what": claim.what,
        "unit": claim.unit,
        "printed": claim.printed,
        "measured": None if value is None else value.mean,
        "low": None if value is None or half is None else value.mean - half,
        "high": None if value is None or half is None else value.mean + half,
        "verdict": verdict,
        "why": measured.why if verdict == MISSED or value is None else "",
    }
