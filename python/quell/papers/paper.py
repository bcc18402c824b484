"""A published paper, its claims with the measurements, and the totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quell.papers.bench import Bench
from quell.papers.claim import (
    BETTER,
    CONSTANT,
    CONTRADICTED,
    KINDS,
    MISSED,
    OPEN,
    REACHED,
    VERDICTS,
    Claim,
    Kind,
)
from quell.papers.study import Measured, Study


@dataclass(frozen=True)
class Paper:
    """A paper for `quell reproduce`."""

    name: str
    title: str
    source: str
    """Authors, venue, year."""
    about: str
    """What is measured, in one line."""
    claims: Sequence[Claim]
    measure: Callable[[Bench], None]
    """Fills the bench's study."""


def short(value: float) -> str:
    """Format a number with three digits and without a power of ten."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def rows(paper: Paper, study: Study) -> list[dict[str, Any]]:
    """Return one row per claim, in the paper's order, as written by `--json`."""
    known = {claim.id for claim in paper.claims}
    if stray := sorted(study.measured.keys() - known):
        raise ValueError(f"{paper.name}: measured but not claimed: {', '.join(stray)}")
    return [_row(claim, study.measured) for claim in paper.claims]


def _row(claim: Claim, all_measured: Mapping[str, Measured]) -> dict[str, Any]:
    measured = all_measured.get(claim.id, Measured(None, "not measured in this run"))
    value, verdict = measured.value, claim.verdict(measured.value, exact=measured.exact)
    half = None if value is None else value.half
    if measured.constant and verdict in (REACHED, BETTER):
        verdict = CONSTANT
    return {
        "id": claim.id,
        "what": claim.what,
        "unit": claim.unit,
        "kind": claim.kind,
        "source": claim.source,
        "quote": claim.quote,
        "expected": claim.expected,
        "measured": None if value is None else value.mean,
        "low": None if value is None or half is None else value.mean - half,
        "high": None if value is None or half is None else value.mean + half,
        "runs": None if value is None else value.runs,
        "verdict": verdict,
        "why": measured.why if verdict in (MISSED, CONTRADICTED, OPEN) or value is None else "",
    }


def totals(rows: Sequence[Mapping[str, Any]]) -> dict[Kind, dict[str, int]]:
    """Count the rows of each kind by verdict, in the order of `VERDICTS`, without zeros."""
    out: dict[Kind, dict[str, int]] = {}
    for kind in KINDS:
        of = [row["verdict"] for row in rows if row["kind"] == kind]
        if of:
            out[kind] = {verdict: of.count(verdict) for verdict in VERDICTS if verdict in of}
    return out


def totals_text(counted: Mapping[Kind, Mapping[str, int]]) -> list[str]:
    """Return totals as text, one line per kind."""
    return [
        f"{kind}: {sum(of.values())} ({', '.join(f'{n} {verdict}' for verdict, n in of.items())})"
        for kind, of in counted.items()
    ]
