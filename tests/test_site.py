"""The site builds without a warning, from pages whose links stay within it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import ROOT, run

SITE = ROOT / "target/site"


@pytest.fixture(scope="module")
def site() -> Path:
    """Build the site; --strict fails on every warning, a dead link among them."""
    done = run(["make", "docs"], ROOT, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE


def test_every_link_and_picture_of_every_page_is_a_file_of_the_site(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 35
    for page in pages:
        if page.name == "404.html":
            continue  # whose links are from the server's root
        for target in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text("utf-8")):
            if not re.match(r"(?:https?|data|mailto):", target):
                assert (page.parent / target).resolve().exists(), f"{page.relative_to(site)}: {target}"


def test_the_site_needs_no_other_host(site: Path) -> None:
    """Neither fonts, scripts, styles nor pictures come from elsewhere: it opens from a folder."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]*src="https?:', text), page
        assert not re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="https?:', text), page


def test_reference_pages_have_every_command_queue_and_scenario(site: Path) -> None:
    from quell import _core, experiment

    commands = (site / "reference/commands.html").read_text("utf-8")
    for name in ("compare", "evaluate", "live", "shell", "train", "watch"):
        assert f"quell {name}" in commands
    queues = (site / "reference/queues.html").read_text("utf-8")
    assert all(f'id="{kind["name"]}"' in queues for kind in experiment.known_queues())
    scenarios = (site / "reference/scenarios.html").read_text("utf-8")
    assert all(f'id="{name}"' in scenarios for name, _, _ in _core.scenarios())


def test_the_site_has_the_playground_or_says_why_not(site: Path) -> None:
    text = (site / "playground.html").read_text("utf-8")
    built = (site / "playground/index.html").exists()
    assert built != ("Not built here: Rust has no library for wasm32-unknown-unknown" in text)
    assert built == ('href="playground/index.html"' in text)
