"""The site builds without a warning, from pages whose links stay within it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Page
from conftest import ROOT, run

SITE = ROOT / "target/site"
CUT = "const e = document.querySelector('pre code'); return e.scrollWidth - e.clientWidth"
"""How many pixels of the first block are cut off."""


def test_a_link_to_a_folder_without_a_page_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code = "import pathlib, runpy, sys; sys.path.insert(0, 'tools'); page = pathlib.Path(sys.argv[1]); "
    code += "runpy.run_path('tools/site.py')['linked']('[x](empty)', page, page)"
    done = run([sys.executable, "-c", code, str(tmp_path / "page.md")], ROOT)
    assert done.returncode == 1
    why = "(empty) is a folder without README.md and Cargo.toml; link a file"
    assert done.stderr == f"{tmp_path}/page.md: {why}\n"


@pytest.fixture(scope="module")
def site() -> Path:
    """Build the site; --strict fails on every warning, such as a dead link."""
    done = run(["make", "docs"], ROOT, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE


@pytest.mark.slow
def test_every_link_and_picture_of_every_page_is_a_file_of_the_site(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 35
    for page in pages:
        if page.name == "404.html":
            continue  # its links are relative to the server's root
        for target in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text("utf-8")):
            # rustdoc's scripts contain templates; a trait without implementors refers to a list that is not written.
            if not re.match(r"(?:https?|data|mailto|javascript):|.*(?:\$\{|/trait\.impl/)", target):
                assert (page.parent / target).resolve().exists(), f"{page.relative_to(site)}: {target}"


@pytest.mark.slow
def test_no_page_shows_the_marks_of_a_block(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "rust" not in page.parts]  # rustdoc's pages show sources
    assert len(pages) > 35
    assert [str(page) for page in pages if "```" in page.read_text("utf-8")] == []


@pytest.mark.slow
def test_no_page_shows_backslashes_before_bars_or_names_of_files_as_links(site: Path) -> None:
    for page in site.rglob("*.html"):
        if not {"rust", "files", "gallery"} & {*page.parts}:
            text = page.read_text("utf-8")
            assert "\\|" not in re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL), page
            assert not re.findall(r">([\w/.-]+\.md)</a>", text), page


@pytest.mark.slow
def test_the_site_needs_no_other_host(site: Path) -> None:
    """Fonts, scripts, styles and pictures are local, so that the site opens from a folder."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]*src="https?:', text), page
        assert not re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="https?:', text), page


@pytest.mark.slow
def test_reference_pages_have_every_command_queue_and_scenario(site: Path) -> None:
    from quell import _core
    from quell.experiments import experiment

    commands = (site / "reference/help.html").read_text("utf-8")
    for name in ("compare", "evaluate", "live", "shell", "train", "watch"):
        assert f"quell {name}" in commands
    queues = (site / "reference/queues.html").read_text("utf-8")
    assert all(f'id="{kind["name"]}"' in queues for kind in experiment.known_queues())
    scenarios = (site / "reference/builtin.html").read_text("utf-8")
    assert all(f'id="{name}"' in scenarios for name, _, _ in _core.scenarios())


@pytest.mark.slow
def test_the_site_has_the_playground_or_says_why_not(site: Path) -> None:
    text = (site / "how-to/playground.html").read_text("utf-8")
    built = (site / "playground/index.html").exists()
    assert built != ("Not built here: Rust has no library for wasm32-unknown-unknown" in text)
    assert built == ('href="../playground/index.html"' in text)


@pytest.mark.slow
def test_notebooks_are_pages_with_their_pictures_and_can_be_downloaded(site: Path) -> None:
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        page = (site / f"notebooks/{path.stem}.html").read_text("utf-8")
        assert f'href="{path.stem}.ipynb"' in page and (site / f"notebooks/{path.stem}.ipynb").exists()
    assert (site / "notebooks/compare.html").read_text("utf-8").count('alt="what the cell draws"') == 2


@pytest.mark.slow
def test_the_gallery_opens_each_report_in_place(site: Path) -> None:
    page = (site / "gallery.html").read_text("utf-8")
    reports = re.findall(r'<iframe src="([^"]+)"', page)
    assert len(reports) >= 6 and len(set(reports)) == len(reports)
    for report in reports:
        text = (site / report).read_text("utf-8")
        # The page names the command that made the report.
        command = report.removeprefix("gallery/").removesuffix(".html").replace("-", " ", 1)
        assert "<svg" in text or "<script>" in text
        assert f"quell {command}" in page
    shown = re.findall(r'<a href="(gallery/[^"]+)"><img [^>]*class="part"', page)
    assert len(shown) == 3 and set(shown) < set(reports), "pictures lead to reports"


@pytest.mark.slow
def test_the_reference_has_every_key_of_records(site: Path) -> None:
    from quell import Scenario, _core
    from quell.experiments import experiment

    page = (site / "reference/keys.html").read_text("utf-8")
    described = set(re.findall(r"<code>(\w+)</code></td>", page))

    def keys(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from keys(part)

    for name, queue in (("household", "cake"), ("wifi-house", "wqm"), ("home", "pfifo")):
        scenario = Scenario(name, duration="22s" if name == "household" else "2s")
        work = experiment.plan(scenario, [_core.queue(queue)], series_bin_s=0.5)[:1]
        record = experiment.run_jobs(scenario, work).records[0]
        # Grades and scores have pages of their own; their inner keys are not in the record's source.
        found = set(keys({key: value for key, value in record.items() if key not in ("aim", "qoo")}))
        assert found - described == set(), name


@pytest.mark.slow
def test_the_reference_has_every_metric_that_grafana_and_alerts_ask_for(site: Path) -> None:
    page = (site / "reference/prometheus.html").read_text("utf-8")
    described = set(re.findall(r"<code>(quell_\w+)</code>", page))
    for path in sorted((ROOT / "packaging").glob("*/*")):
        if path.suffix in (".json", ".yml") and path.parent.name in ("grafana", "prometheus"):
            asked = set(re.findall(r"\bquell_[a-z0-9_]+", path.read_text("utf-8")))
            asked = {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked}
            assert asked and asked - described == set(), path.name


@pytest.mark.slow
def test_the_reference_has_every_name_of_python(site: Path) -> None:
    import quell

    page = (site / "reference/python.html").read_text("utf-8")
    for name in (*quell.__all__, "QueueVectorEnv", "VectorEnv", "Aqm"):
        assert re.search(rf'<h3 id="[^"]*"><code>{name}</code>', page), name


@pytest.mark.slow
def test_the_reference_has_every_crate(site: Path) -> None:
    page = (site / "reference/rust.html").read_text("utf-8")
    crates = {path.parent.name.replace("-", "_") for path in (ROOT / "crates").glob("*/Cargo.toml")}
    # Python's reference has the bindings.
    assert set(re.findall(r'href="../rust/(\w+)/index.html"', page)) == crates - {"quell_py"}


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 1920])
def test_the_first_page_offers_three_ways_and_shows_its_picture_and_its_table_whole(
    site: Path, browser: Any, width: int
) -> None:
    page = Page(browser, site / "index.html")
    page.size(width)
    browser.get(page.path.as_uri())
    buttons = page.js("return [...document.querySelectorAll('.md-button')].map(e => e.getAttribute('href'))")
    built = (site / "playground/index.html").exists()
    first = "playground/index.html" if built else "tutorials/home.html"
    assert buttons == [first, "how-to/tune.html", "how-to/extending.html"]
    shown = "return [...document.images].filter(e => e.naturalWidth > 0 && e.clientWidth > 300).length"
    assert page.js(shown) == 1
    card = page.js("return [...document.querySelectorAll('meta[property^=og]')].map(e => e.content)")
    assert len(card) == 3 and all(card)
    assert page.js(CUT) <= 0


@pytest.mark.slow
def test_an_output_of_a_hundred_columns_fits_between_the_navigation_and_the_contents(site: Path, browser: Any) -> None:
    page = Page(browser, site / "how-to/compare.html")
    page.size(1280)
    browser.get(page.path.as_uri())
    assert page.js(CUT) <= 0


@pytest.mark.slow
def test_a_site_that_was_opened_from_a_file_can_be_searched(site: Path, browser: Any) -> None:
    browser.get((site / "index.html").as_uri())
    type_it = "const e = document.querySelector('.md-search__input'); e.focus(); e.value = 'responsiveness';"
    browser.execute_script(type_it + "e.dispatchEvent(new KeyboardEvent('keyup', {key: 's', bubbles: true}))")
    found = "return [...document.querySelectorAll('.md-search-result__link')].map(e => e.href)"
    deadline = time.monotonic() + 20
    while not any("reference/metrics.html" in link for link in browser.execute_script(found)):
        assert time.monotonic() < deadline, browser.get_log("browser")
        time.sleep(0.1)


@pytest.mark.slow
def test_a_report_of_the_gallery_draws_where_it_is_opened(site: Path, browser: Any) -> None:
    browser.get((site / "gallery.html").as_uri())
    browser.execute_script("document.querySelector('details').open = true")
    frame = browser.execute_script("const e = document.querySelector('iframe'); e.scrollIntoView(); return e")
    assert browser.execute_script("return arguments[0].clientHeight", frame) > 300
    browser.switch_to.frame(frame)
    deadline = time.monotonic() + 20
    while not browser.execute_script("return document.querySelectorAll('#scatter path').length"):
        assert time.monotonic() < deadline, "the report did not draw"
        time.sleep(0.05)
    browser.switch_to.default_content()
