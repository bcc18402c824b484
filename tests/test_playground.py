"""The site's playground in a real browser: it simulates like the command line and draws like the report."""

from __future__ import annotations

import json
import shlex
import sys
import time
from typing import Any

import pytest

from browser import WIDTHS, Page
from conftest import ROOT, Quell, run
from quell.results.stats import summarise

TOOL = [sys.executable, "tools/playground.py"]


@pytest.fixture(scope="module")
def playground(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Build the page; skip the tests if Rust's library for WebAssembly is missing and cannot be had."""
    path = tmp_path_factory.mktemp("playground") / "index.html"
    done = run([*TOOL, str(path)], ROOT, timeout=600)
    if done.returncode and "Rust has no library" in done.stderr:
        print(done.stderr)
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return Page(browser, path)


def settled(page: Page) -> list[dict[str, Any]]:
    """Wait until every queue has run; return the records."""
    deadline = time.monotonic() + 60
    while not page.js("return document.documentElement.dataset.done"):
        assert time.monotonic() < deadline, page.errors()
        time.sleep(0.02)
    records: list[dict[str, Any]] = page.js("return window.quell.records")
    return records


def turn(page: Page, control: str, value: str | int) -> None:
    page.js("delete document.documentElement.dataset.done; const e = document.getElementById(arguments[0]);"
            "e.value = arguments[1]; e.dispatchEvent(new Event('input', {bubbles: true}))", control, value)  # fmt: skip


@pytest.mark.slow
def test_the_page_simulates_what_its_command_does(playground: Page, quell: Quell) -> None:
    playground.open(1280)
    settled(playground)
    turn(playground, "rate", 20)
    turn(playground, "duration", 10)
    found = settled(playground)
    typed = playground.js("return document.getElementById('command').textContent")
    done = quell(*shlex.split(typed)[1:], "--json", "-", "--no-rpm")
    expected = json.loads(done.stdout)
    assert "--rate 10mbit" in typed
    assert [r["queue"] for r in found] == [r["queue"] for r in expected] == ["pfifo", "codel", "pie", "fq_codel"]
    # The hash covers every packet's times and fates.
    assert [r["trace_hash"] for r in found] == [r["trace_hash"] for r in expected]
    assert [r["goodput_mbps"] for r in found] == [r["goodput_mbps"] for r in expected]
    rows = summarise(expected)
    marks = playground.js(
        "return [...document.querySelectorAll('#figures tbody tr')].map(r => !!r.querySelector('.d'))"
    )
    assert marks == [row.on_front for row in rows]
    shown = playground.js("return [...document.querySelectorAll('#figures tbody tr')].map(r => +r.cells[1].dataset.v)")
    assert shown == pytest.approx([row.mean("goodput_mbps") for row in rows])
    assert playground.count("#scatter path.dot") == 4
    assert playground.count("#ride path.mark") >= 8
    assert "million packets a second" in playground.js("return document.getElementById('speed').textContent")
    assert playground.errors() == []


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_its_window_and_asks_no_other_host(playground: Page, width: int) -> None:
    playground.open(width)
    settled(playground)
    playground.fits(width)
    drawn = playground.js("return [...document.querySelectorAll('svg')].map(s => s.outerHTML).join()")
    assert not any(bad in drawn for bad in ("NaN", "undefined", "Infinity"))
    asked = playground.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in asked if not name.startswith(("blob:", "data:"))] == []


@pytest.mark.slow
def test_words_of_ones_own_run_and_wrong_ones_are_named(playground: Page) -> None:
    playground.open(1280)
    settled(playground)
    for words, named in (("codel target 1ms", ""), ("codl", "codl")):
        playground.js("delete document.documentElement.dataset.done;"
                      "document.getElementById('words').value = arguments[0];"
                      "document.querySelector('#queues button').click()", words)  # fmt: skip
        records = settled(playground)
        assert records[-1]["queue"] == "codel target 1ms"
        told = playground.js("const e = document.getElementById('wrong'); return e.hidden ? '' : e.textContent")
        assert named in told and bool(named) == bool(told)
    # An invalid queue is not used. Its words stay in the field, and the next change of a control hides the message.
    assert "codl" not in playground.js("return document.getElementById('command').textContent")
    assert playground.js("return document.getElementById('words').value") == "codl"
    turn(playground, "rtt", 20)
    settled(playground)
    assert playground.js("return document.getElementById('wrong').hidden")


@pytest.mark.slow
def test_the_address_leads_to_the_same_line_and_queues(playground: Page) -> None:
    command = "return document.getElementById('command').textContent"
    playground.open(1280)
    settled(playground)
    go = "delete document.documentElement.dataset.done; location.hash = arguments[0]"
    playground.js(go, "#rate=20&rtt=20&count=6&duration=10&cc=bbr&seed=7&ecn=&aqm=cake&aqm=codel+target+20ms")
    settled(playground)
    shown = playground.js(command)
    assert shown == (
        "quell compare --rate 10mbit --rtt 10ms --flow bbr:2 --ecn --duration 10s --seed 7 --seeds 1 "
        "--aqm cake --aqm 'codel target 20ms'"
    )
    turn(playground, "seed", 9)
    settled(playground)
    address = playground.js("return location.hash")
    turn(playground, "seed", 1)
    settled(playground)
    playground.js(go, address)
    settled(playground)
    assert playground.js(command) == shown.replace("--seed 7", "--seed 9")


@pytest.mark.slow
def test_hidden_queues_stay_hidden_when_the_line_changes(playground: Page) -> None:
    playground.open(1280)
    settled(playground)
    playground.js("document.querySelector('#legend button').click()")
    assert playground.count("#cdf path.mark") == 3
    turn(playground, "rate", 23)
    settled(playground)
    assert playground.count("#cdf path.mark") == 3
    assert playground.count("#cdf path.mark[data-q='0']") == 0
