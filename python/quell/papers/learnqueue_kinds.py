"""Kinds of LearnQueue's rows: where the paper prints their numbers, and which are sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase

from quell.papers.claim import RATE, Claim

PRINTED = {
    "LQ1.*": "Figure 6a",
    "LQ2.*": "Figure 6b",
    "LQ3.*": "Figure 6c",
    "LQ4.*": "Figure 8",
    "LQ5.*": "Figure 6d",
    "LQ6.*": "Figure 6e",
    "LQ7.*": "Figure 6f",
    "LQ8.*": "Figure 9a",
    "LQ9.*": "section 4.2",
    "LQ10.*": "Figure 9c",
    "LQ11.thr": "Figure 11b",
    "LQ11.*": "Figure 11a",
    "LQ12.[0-9]*": "Table 2",
    "LQ14.fixed": "section 5",
}
"""Sources by row; the first match counts, and rows with a number but no match are beyond the paper."""
SENTENCES = {
    "*.least": ("section 1", "outperforms other well-known techniques"),
    "LQ7.wqm.worse": ("section 4.1", "behaves even worse than the"),
    "LQ12.delays": ("section 4.4", "queuing latency raise to"),
    "LQ12.losses": ("section 4.4", "the dropping rate declines"),
}
HELD = ("LQ6.lq",)
"""Delays of Figure 6 that the paper says are held around a reference, so lower ones also count as errors."""


def kinds(rows: Callable[[], list[Claim]]) -> Callable[[], list[Claim]]:
    """Add to each row its kind and source; its tolerance becomes that of its kind of number (`Claim.tolerance`)."""
    return lambda: [_with_kind(claim) for claim in rows()]


def _with_kind(claim: Claim) -> Claim:
    if claim.expected is None or claim.kind != "beyond":
        return replace(claim, slack=None)
    for pattern, (source, quote) in SENTENCES.items():
        if fnmatchcase(claim.id, pattern):
            return replace(claim, kind="claim", source=source, quote=quote, slack=None)
    if claim.id.endswith(".share") and claim.expected == 1.0:
        kept = replace(
            claim, kind="claim", source="section 1", quote="without impacting the link utilization", slack=None
        )
        return replace(kept, expected=1 - RATE)
    better = 0 if claim.id in HELD else claim.better
    of = "rate" if claim.id.endswith(".share") else "amount" if claim.id.endswith(".loss") else claim.of
    for pattern, source in PRINTED.items():
        if fnmatchcase(claim.id, pattern):
            return replace(claim, kind="printed", source=source, better=better, of=of, slack=None)
    return replace(claim, of="count" if claim.unit == "" else of, slack=None)
