"""`quell tune --html`: the search, the front if two aims conflict, and the tables, as on a paper's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from rich.table import Table as RichTable

from quell.common.text import counted
from quell.tune import show, verify
from quell.tune.judge import Judged
from quell.tune.line import Line
from quell.tune.search import Bench, Found, Run, shapes
from quell.tune.space import Setting
from quell.tune.verify import Verified
from quell.views import figures as pages
from quell.views.figures import Axis, Figure, Listing, Panel, Table
from quell.views.figures import Line as Curve

_CONFLICT = 0.02
"""Two aims conflict if their scores vary by at least this much along the front."""

Scores = Mapping[Setting, Mapping[str, float]]


def page(
    line: Line, bench: Bench, found: Found, judged: Judged, verified: Sequence[Verified],
    *, listings: Sequence[Listing], about: str, command: str,
) -> str:  # fmt: skip
    """Return the page as HTML; `command` repeats it."""
    scores = scored(bench, found, line)
    figures = [_search(found, judged, scores), *_front(scores, judged)]
    notes = [show.verdict(judged)]
    if verified:
        notes.append(verify.agreement(verified))
    if len(figures) == 1 and len(bench.aims.weights) > 1:
        notes.append("No two aims conflict here: one setting is the best for each of them, or nearly so.")
    tables = [_table("Today, by default, tuned", show.compared(judged))]
    if judged.why:
        tables.append(_table("What changes when an option is left out", show.brought(judged)))
    if verified:
        tables.append(_table("The same traffic on real Linux TCP", show.verified(verified)))
    facts = f"{show.facts(line, bench.aims.text)} · {counted(len(found.scores), 'setting')}"
    return pages.page(
        f"Settings for {line.name}", facts, about, figures, command=command, tab="quell tune", notes=notes,
        tables=tables, listings=listings,
    )  # fmt: skip


def scored(bench: Bench, found: Found, line: Line) -> dict[Setting, dict[str, float]]:
    """Return the score of each aim for every setting of the search, with the search's seed."""
    result = {}
    for setting in found.scores:
        record = bench.record(Run(line, shapes(setting, line), 0))
        if record is not None:
            result[setting] = bench.aims.scores(record, line)
    return result


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other point surpasses in both values, sorted by the first value."""
    kept: list[tuple[float, float]] = []
    for x, y in sorted(set(points), reverse=True):
        if not kept or y > kept[-1][1]:
            kept.append((x, y))
    return kept[::-1]


def conflict(scores: Scores) -> tuple[str, str] | None:
    """Return the two aims with the largest conflict on the front; None if no two conflict."""
    names = list(next(iter(scores.values()), {}))
    found: tuple[float, tuple[str, str] | None] = (0.0, None)
    for a, b in combinations(names, 2):
        line = front([(each[a], each[b]) for each in scores.values()])
        given = [max(values) - min(values) for values in zip(*line, strict=True)]
        if min(given) >= _CONFLICT and min(given) > found[0]:
            found = (min(given), (a, b))
    return found[1]


def _search(found: Found, judged: Judged, scores: Scores) -> Figure:
    """Draw the objective of each setting in the order of the search, and the best so far."""
    points: dict[str, list[tuple[float, float]]] = {}
    best: list[tuple[float, float]] = []
    for number, (setting, value) in enumerate(found.scores.items(), 1):
        points.setdefault(setting.kind, []).append((number, value))
        if not best or value > best[-1][1]:
            best.append((number, value))
    best.append((len(found.scores), best[-1][1]))
    lines = [Curve(kind, dots, "dots", group) for group, (kind, dots) in enumerate(points.items())]
    lines.append(Curve("best so far", best, "steps", len(lines)))
    note = (
        "Each dot is a setting, simulated once with the same seed as all others. The disciplines share the search; "
        "after each round the better half of them is kept."
    )
    panel = Panel("Objective of each setting", Axis("setting, in the order of the search"), Axis("objective"), lines)
    good = sorted(found.scores.values())[len(found.scores) // 2]
    near = [
        Curve(one.name, [(x, y) for x, y in one.points if y is not None and y >= good], one.kind, one.group)
        for one in lines
    ]
    closer = Panel("The better half", panel.x, panel.y, [one for one in near if one.points])
    return Figure("search", "The search", note, [panel, closer])


def _front(scores: Scores, judged: Judged) -> list[Figure]:
    """Draw two aims against each other if they conflict."""
    names = conflict(scores)
    if names is None:
        return []
    a, b = names
    kinds: dict[str, list[tuple[float, float]]] = {}
    for setting, each in scores.items():
        kinds.setdefault(setting.kind, []).append((each[a], each[b]))
    lines = [Curve(kind, dots, "dots", group) for group, (kind, dots) in enumerate(kinds.items())]
    best = front([(each[a], each[b]) for each in scores.values()])
    lines.append(Curve("front", best, "line", len(lines)))
    marked = {"best default": judged.default} if judged.tuned else {}
    marked["offered"] = judged.setting
    for name, setting in marked.items():
        if setting in scores:
            point = (scores[setting][a], scores[setting][b])
            lines.append(Curve(name, [point], "dots", len(lines), printed=True))
    note = (
        f"Along the front more of {a} is less of {b}. The search looks for the best objective with the weights of "
        "the aims; other weights (--for) choose another point."
    )
    low = [(x, y) for x, y in best]
    least = (min(x for x, _ in low), min(y for _, y in low))
    room = [0.5 * (max(v) - min(v)) for v in zip(*low, strict=True)]
    near = [
        Curve(one.name, [(x, y) for x, y in one.points if y is not None and x >= least[0] - room[0]
                        and y >= least[1] - room[1]], one.kind, one.group, one.printed)
        for one in lines
    ]  # fmt: skip
    x, y = Axis(f"score of {a}"), Axis(f"score of {b}")
    panels = [Panel("All settings", x, y, lines), Panel("Near the front", x, y, [one for one in near if one.points])]
    return [Figure("front", f"{a.capitalize()} against {b}", note, panels)]


def _table(title: str, table: RichTable) -> Table:
    """Convert a table for the terminal."""
    columns = [str(column.header).replace("\n", " ") for column in table.columns]
    cells = [[str(cell) for cell in column._cells] for column in table.columns]
    return Table(title, columns, list(zip(*cells, strict=True)))
