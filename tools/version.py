#!/usr/bin/env python3
"""Write a version into every file that has one, or check that all agree.

    python3 tools/version.py 0.2.0 [DATE]
    python3 tools/version.py --check

Cargo.toml's workspace has the version that the others must match. DATE (2026-11-22) is the date of the release
(default: today). Nothing is written unless every place was found.
"""

import datetime
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
NUMBER = r"\d+\.\d+\.\d+"
CRATES = r'name = "quell-(?:lab|link|live|py|qdisc|sim|web|fuzz)"\nversion = "'
PLACES = {
    "Cargo.toml": (r'(\[workspace\.package\]\nversion = ")', r'(quell-\w+ = \{ version = ")'),
    "Cargo.lock": (f"({CRATES})",),
    "examples/own-discipline/Cargo.lock": (f"({CRATES})",),
    "CITATION.cff": (r'(^version: ")',),
    "packaging/openwrt/Makefile": (r"(^PKG_VERSION:=)",),
}
"""Per file, the text before each number."""
DATED = {"CITATION.cff": r"(^date-released: )\d{4}-\d\d-\d\d", "CHANGELOG.md": r"(^## Unreleased)$"}


def fail(text):
    sys.exit(f"version: {text}")


def read(root, name):
    try:
        return (root / name).read_text("utf-8")
    except OSError as error:
        fail(f"{name}: {error.strerror}")


def found(root):
    """Return every place as (file, line, number)."""
    places = []
    for name, patterns in PLACES.items():
        text = read(root, name)
        for pattern in patterns:
            hits = list(re.finditer(f"{pattern}({NUMBER})", text, re.MULTILINE))
            if not hits:
                fail(f"{name}: nothing like {pattern}{NUMBER}; change PLACES in tools/version.py")
            places += [(name, text.count("\n", 0, hit.start(2)) + 1, hit[2]) for hit in hits]
    return places


def check(root):
    places = found(root)
    expected = places[0][2]
    wrong = [f"{name}:{line}: {number}" for name, line, number in places if number != expected]
    if wrong:
        fail(f"Cargo.toml has {expected}, but {'; '.join(wrong)}: make version V={expected}")
    print(f"{expected} in {len(places)} places")


def write(root, version, date):
    found(root)  # exits if a place is missing, before anything is written
    texts = {name: read(root, name) for name in {*PLACES, *DATED}}
    for name, patterns in PLACES.items():
        for pattern in patterns:
            texts[name] = re.sub(f"{pattern}{NUMBER}", rf"\g<1>{version}", texts[name], flags=re.MULTILINE)
    texts["CITATION.cff"] = re.sub(DATED["CITATION.cff"], rf"\g<1>{date}", texts["CITATION.cff"], flags=re.MULTILINE)
    if f"\n## {version} " not in texts["CHANGELOG.md"]:
        heading = rf"\g<1>\n\n## {version} ({date})"
        texts["CHANGELOG.md"], n = re.subn(DATED["CHANGELOG.md"], heading, texts["CHANGELOG.md"], flags=re.MULTILINE)
        if n != 1:
            fail(f"CHANGELOG.md: {n} headings `## Unreleased`; it needs one")
    for name, text in texts.items():
        (root / name).write_text(text, "utf-8")
    check(root)


def main(words, root=ROOT):
    if words == ["--check"]:
        return check(root)
    if not words or len(words) > 2 or not re.fullmatch(NUMBER, words[0]):
        fail(f"{' '.join(words) or 'nothing'!r} is not a version; write for example 0.2.0")
    date = words[1] if len(words) == 2 else datetime.date.today().isoformat()
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        fail(f"{date!r} is not a date; write for example 2026-11-22")
    return write(root, words[0], date)


if __name__ == "__main__":
    main(sys.argv[1:])
