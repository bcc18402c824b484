"""Commands and names in README, docs, examples and help texts exist, and the map describes the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "crates/quell-link/models").glob("*.md")),
]
TEXTS = [*PAGES, *sorted((ROOT / "examples").glob("*.py")), *sorted((ROOT / "python").rglob("*.py"))]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_says_to_install_the_other_package_of_that_name(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.findall(r"pip install (?:-\S+ )*['\"]?quell(?![\w-])", text)
    assert not re.findall(r"\bquell\\*\[", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith("http"):
            continue
        name, _, heading = target.partition("#")
        path = page.resolve().parent / name if name else page
        assert path.exists(), target
        if heading:
            assert heading in _anchors(path.read_text("utf-8")), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_one_title_since_the_site_lists_what_is_below_the_first(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1


def _anchors(page: str) -> list[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", sorted((ROOT / "docs/lab").glob("[!R]*.md")), ids=lambda page: page.stem)
def test_a_page_of_the_lab_begins_with_its_answer(page: Path) -> None:
    text = page.read_text("utf-8")
    answer = re.match(r"# .*\n\n\*\*Answer\.\*\* ([^\n].*?)\n\n", text, re.DOTALL)
    assert answer is not None
    if counted := re.search(r"^Of \d+ rows: (.*?)\. ", text, re.MULTILINE):  # written by tools/papers.py
        verdicts = {what: int(count) for count, what in re.findall(r"(\d+) ([a-z ]+)", counted[1])}
        verdicts.pop("no number printed", None)
        stated = [int(number) for number in re.findall(r"\d+", answer[1].partition(".")[0])]
        assert stated[: len(verdicts) + 1] == [sum(verdicts.values()), *verdicts.values()]


def test_the_map_fits_on_a_screen() -> None:
    lines = (ROOT / "docs/map.md").read_text("utf-8").splitlines()
    assert len(lines) <= 60
    assert max(len(line) for line in lines) <= 120


def test_the_distribution_has_its_own_name() -> None:
    from importlib.metadata import distribution

    assert distribution("quell-aqm").metadata["Name"] == "quell-aqm"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_traces_are_shipped_or_made_by_the_same_page(path: Path) -> None:
    text = path.read_text("utf-8")
    for found in re.finditer(r"quell [^\n`]*?--(?:up-)?trace (\S+)", text):
        name = found[1].strip("'\"`")
        assert name.startswith("builtin:") or re.search(rf"> {name}\b", text[: found.end()]), found[0]


@pytest.mark.parametrize("page", ["README.md", "docs/reference/commands.md"])
def test_before_the_first_bare_command_a_page_says_how_there_is_one(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    activate = text.index(". .venv/bin/activate")
    # Before that come only examples of output, which have a prompt, and prose.
    assert not re.search(r"^quell ", text[:activate], re.MULTILINE)


@pytest.mark.parametrize(
    ("what", "most", "own", "sample"),
    [
        (
            "a discipline",
            4,
            "crates/quell-qdisc/src/disciplines/fq_pie.rs",
            r"\bFqPie\b|\bfq_pie\b(?=::|,)|mod fq_pie\b",
        ),
        ("a controller", 2, "crates/quell-qdisc/src/control/wqm.rs", r"\bwqm::Params\b|mod wqm\b"),
        ("a congestion control", 2, "crates/quell-sim/src/cc/illinois.rs", r"\bIllinois\b|\billinois::|mod illinois\b"),
    ],
)
def test_the_map_names_the_few_files_that_something_new_is_entered_in(
    what: str, most: int, own: str, sample: str
) -> None:
    found = re.search(rf"^- {what}: (.*?)(?=\n- |\Z)", (ROOT / "docs/map.md").read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    named = set(re.findall(r"`([^`]+)`", found[1]))
    # Code, not its tests.
    sources = [path for path in (ROOT / "crates").glob("*/src/**/*.rs") if "tests" not in path.stem]
    code = {path: path.read_text().split("#[cfg(test)]\nmod tests {")[0] for path in sources}
    paths = [str(path.relative_to(ROOT)) for path, text in code.items() if re.search(sample, text)]
    entered = {path for path in paths if not path.startswith(own)}
    assert len(entered) <= most
    assert {path for path in entered if not path.startswith(tuple(named))} == set()
    assert {name for name in named if not any(path.startswith(name) for path in entered)} == set()


_UNITS = {"": 1, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "Mbit/s": 1e6}
_CONSTANTS = {"NS": 1, "US": 1e3, "MS": 1e6, "SEC": 1e9, "MTU": 1514}


def _defaults(text: str) -> Iterator[tuple[str, float, float]]:
    """Yield parameters of a source file that have a number as default: name, documented and actual default."""
    for name, body in re.findall(r"^pub struct (\w*Params) \{\n(.*?)\n\}", text, re.MULTILINE | re.DOTALL):
        made = re.search(rf"^impl Default for {name} \{{.*?^\}}", text, re.MULTILINE | re.DOTALL)
        for lines, field in re.findall(r"((?:^    ///.*\n)+)(?:^    #\[.*\n)*^    pub (\w+):", body, re.MULTILINE):
            doc = re.sub(r"\s+/// ", " ", lines)
            stated = re.search(r"\(default ([\d.]*\d(?:/\d+)?)(?: (ns|us|ms|s|KiB|MiB|Mbit/s)\b)?", doc)
            value = made and re.search(rf"^ +{field}: ([\d._*/< ]*(?:[\d.]|NS|US|MS|SEC|MTU)),$", made[0], re.MULTILINE)
            if stated and value:
                unit = 2**32 if "units of 2^-32" in doc else _UNITS[stated[2] or ""]
                yield f"{name}.{field}", eval(stated[1]) * unit, eval(value[1], _CONSTANTS)


def test_documented_defaults_of_parameters_are_those_of_the_code() -> None:
    sources = sorted((ROOT / "crates/quell-qdisc/src").rglob("*.rs"))
    found = [(path.name, *row) for path in sources for row in _defaults(path.read_text("utf-8"))]
    assert len(found) > 120
    assert [row for row in found if row[2] != pytest.approx(row[3])] == []
