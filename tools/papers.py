#!/usr/bin/env python3
"""Reproduce papers; write the results into docs/lab/NAME.md, between the marks `<!-- NAME -->` and `<!-- /NAME -->`.

    .venv/bin/python tools/papers.py [NAME ...]

With --into FOLDER it also writes `NAME.json` and `NAME.html` there. Takes minutes; see `quell reproduce`.
"""

import argparse
import json
import pathlib

from quell import papers
from quell.common import marks
from quell.papers import page
from quell.papers.bench import SEEDS, Bench
from quell.papers.paper import rows, totals, totals_text

LAB = pathlib.Path(__file__).resolve().parents[1] / "docs" / "lab"


def number(value, digits):
    return "–" if value is None else f"{value:.{digits}f}"


def markdown(paper, study, measured):
    claims = {c.id: c for c in paper.claims}
    counted = [line for line in totals_text(totals(measured)) if line.startswith(("printed", "claim"))]
    lines = [f"{'; '.join(counted)}. The table leaves out rows of detail (`--all`).", ""]
    lines += [f"- {note}" for note in study.notes] + [""]
    lines += ["| row | kind | what | expected | measured | verdict |", "|---|---|---|---|---|---|"]
    reasons: dict[str, list[str]] = {}
    for row in measured:
        claim = claims[row["id"]]
        if claim.detail:
            continue
        half = "" if row["high"] is None else f" ± {row['high'] - row['measured']:.{claim.digits}f}"
        unit = f", {claim.unit}" if claim.unit else ""
        expected, value = (number(row[k], claim.digits) for k in ("expected", "measured"))
        cited = f"“{row['quote']}”, {row['source']}" if row["quote"] else row["source"]
        what = f"{row['what']}{unit}{f' ({cited})' if cited else ''}"
        lines.append(f"| `{row['id']}` | {row['kind']} | {what} | {expected} | {value}{half} | {row['verdict']} |")
        if row["why"]:
            reasons.setdefault(row["why"], []).append(f"`{row['id']}`")
    for table in study.tables:
        lines += ["", f"{table.title}:", "", f"| {' | '.join(table.columns)} |", "|" + "---|" * len(table.columns)]
        lines += [f"| {' | '.join(cells)} |" for cells in table.rows]
    if reasons:
        lines += ["", "What was measured about rows that are missed, contradicted or open:", ""]
        lines += [f"- {', '.join(ids)}: {why}" for why, ids in reasons.items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(papers.MODULES), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="maximum number of runs of a setting")
    parser.add_argument("--into", type=pathlib.Path, help="a folder for rows and pages")
    args = parser.parse_args()
    for name in args.names:
        paper = papers.find(name)
        bench = Bench(seeds=args.seeds)
        paper.measure(bench)
        study = bench.study
        measured = rows(paper, study)
        document = LAB / f"{name}.md"
        marks.fill(document, name, markdown(paper, study, measured))
        if args.into is not None:
            args.into.mkdir(parents=True, exist_ok=True)
            (args.into / f"{name}.json").write_text(json.dumps(measured, ensure_ascii=False, indent=1), "utf-8")
            command = f"quell reproduce {name} --seeds {args.seeds} --html {name}.html"
            html = page.page(paper, study, measured, command=command, notice="")
            (args.into / f"{name}.html").write_text(html, "utf-8")
        print(f"{name}: {totals_text(totals(measured))}")


if __name__ == "__main__":
    main()
