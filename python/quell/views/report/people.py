"""Application quality, a report's first section if the scenario has applications: a column for each queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from quell.common.text import one_line
from quell.results.experience import FIGURES, Figure, mean, shown
from quell.results.stats import Estimate, Record, estimate, grade, row_name

_GRADES = {"A+": "good", "A": "good", "B": "fair", "C": "fair"}


def section(queues: Sequence[str], records: Sequence[Record]) -> str:
    """Return the section as HTML; empty without applications."""
    figures = shown(records)
    if not figures:
        return ""
    runs = [[r for r in records if row_name(r) == queue] for queue in queues]
    rows = [_row(f.title, f.unit, [_cell(f, mean(own, f)) for own in runs]) for f in figures]
    for key, title in (("grade_ms", "grade"), ("grade_down_ms", "grade down"), ("grade_up_ms", "grade up")):
        increases = [estimate(r.get(key) for r in own) for own in runs]
        if any(increases):
            letters = ["–" if increase is None else grade(increase.mean) for increase in increases]
            rows.append(_row(title, "", [(letter, _GRADES.get(letter, "bad")) for letter in letters]))
    rpms = [estimate(r.get("rpm") for r in own) for own in runs]
    if any(rpms):
        rows.append(_row("responsiveness", "RPM", [("–" if rpm is None else f"{rpm.mean:.0f}", "") for rpm in rpms]))
    heads = "".join(f"<th>{escape(one_line(queue))}</th>" for queue in queues)
    return (
        '<section id="people">\n<h2>Application quality</h2>\n'
        '<p class="note">Mean over runs and over applications of a kind. Call: mean opinion score, 1 to 4.5. '
        "Frame: 95th percentile of the time from a picture's capture to its display in a video call; freezes: times "
        "per minute that the picture freezes. Page: median time to load. Stalls: share of the time in which a stream "
        "stalls. Game: 99th percentile of the round trip. Grade: growth of latency under load; without "
        "a direction, of the worse one. Responsiveness: round trips per minute under load. Green is good, red is "
        "bad.</p>\n"
        f'<div class="table wide-table"><table class="felt"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>\n</section>"
    )


def bad_kinds(queues: Sequence[str], records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """List for each queue the kinds of applications that are bad behind it; empty if none can be judged."""
    judged = [figure for figure in shown(records) if figure.bounds]
    bad = {}
    for queue in queues if judged else ():
        runs = [r for r in records if row_name(r) == queue]
        kinds = (f.kind.replace("_", " ") for f in judged if _verdict(f, mean(runs, f)) == "bad")
        bad[queue] = tuple(dict.fromkeys(kinds))
    return bad


def finding(bad: Mapping[str, tuple[str, ...]], records: Sequence[Record]) -> str:
    """Name the queues behind which applications are bad (see `bad_kinds`), as HTML; empty if none can be judged."""
    behind: dict[tuple[str, ...], list[str]] = {}
    for queue, kinds in bad.items():
        behind.setdefault(kinds, []).append(queue)
    if not behind:
        return ""
    said = []
    for kinds, names in sorted(behind.items(), key=lambda item: -len(item[0])):
        what = f"{_joined(kinds)} {'is' if len(kinds) == 1 else 'are'} bad" if kinds else "nothing is bad"
        said.append(f"behind {_joined([f'<b>{escape(one_line(name))}</b>' for name in names])} {what}")
    text = f"{'; '.join(said)}."
    return f"{text[0].upper()}{text[1:]}{_price(behind, records)}"


def _price(behind: Mapping[tuple[str, ...], Sequence[str]], records: Sequence[Record]) -> str:
    """Say what rate a download has behind queues where nothing is bad, and behind the others."""
    [figure] = [figure for figure in FIGURES if figure.kind == "download"]

    def rates(queues: Iterable[str]) -> str:
        means = [mean([r for r in records if row_name(r) == queue], figure) for queue in queues]
        if not (values := sorted(each.mean for each in means if each is not None)):
            return ""
        least, most = figure.text(values[0]), figure.text(values[-1])
        return most if least == most else f"{least.split()[0]} to {most}"

    good = rates(behind.get((), ()))
    bad = rates(queue for kinds, queues in behind.items() if kinds for queue in queues)
    return f" A download has {good} where nothing is bad, {bad} elsewhere." if good and bad and good != bad else ""


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _verdict(figure: Figure, value: Estimate | None) -> str:
    """Judge a figure. With bounds, a missing value is bad, as in a call that never showed a picture."""
    if value is None:
        return "bad" if figure.bounds else ""
    return figure.verdict(value.mean)


def _cell(figure: Figure, value: Estimate | None) -> tuple[str, str]:
    """Return a figure without its unit, and its verdict."""
    return "–" if value is None else figure.text(value.mean).split(" ")[0], _verdict(figure, value)


def _row(title: str, unit: str, cells: Sequence[tuple[str, str]]) -> str:
    shown = "".join(f'<td class="{verdict}">{escape(text)}</td>' for text, verdict in cells)
    return f"<tr><td>{escape(title)}{f' <small>{escape(unit)}</small>' if unit else ''}</td>{shown}</tr>"
