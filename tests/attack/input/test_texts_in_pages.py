"""Texts of files and of the kernel, in pages and on terminals: none acts as markup, script or control sequence."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Page, dashboard_of
from conftest import ROOT, Quell, make_record

pytestmark = pytest.mark.real_time

SCRIPT = "window.planted=(window.planted||0)+1"
TEXT = (
    f"""'"></title></style></textarea></script><script>{SCRIPT}</script>"""
    f"""<img src=x onerror="{SCRIPT}"><svg/onload='{SCRIPT}'><!--"""
)
"""Closes every place in which a page may have a text: element, attribute, style, script, comment."""


@pytest.fixture(autouse=True)
def log_read(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empty the browser's log, so that the next test does not see messages of these pages."""
    yield
    if "browser" in request.fixturenames:
        browser = request.getfixturevalue("browser")
        browser.get("about:blank")
        browser.get_log("browser")


def spoilt(value: Any, kept: tuple[str, ...] = ()) -> Any:
    """Replace every text, except the values of keys in `kept`."""
    if isinstance(value, dict):
        return {key: inner if key in kept else spoilt(inner, kept) for key, inner in value.items()}
    if isinstance(value, list):
        return [spoilt(inner, kept) for inner in value]
    return TEXT if isinstance(value, str) else value


def harmless(page: Page) -> None:
    """Open a page, move over its figures, and look for effects of the text."""
    page.open(1280)
    for _ in range(3):
        page.js("for (const b of document.querySelectorAll('button, th, summary')) b.click()")
    page.js(
        "for (const e of document.querySelectorAll('svg, path, canvas, text'))"
        " for (const kind of ['mousemove', 'mouseover', 'pointermove'])"
        " e.dispatchEvent(new MouseEvent(kind, {bubbles: true, clientX: 400, clientY: 300}))"
    )
    assert page.js("return window.planted") is None
    made = "return document.querySelectorAll('img, [onerror], [onload], iframe, object, body script ~ img').length"
    assert page.js(made) == 0


def shown(page: Page) -> bool:
    return bool(page.js("return document.documentElement.textContent.includes('window.planted')"))


def test_the_text_does_run_where_a_page_takes_it_for_markup(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(f"<!doctype html><html data-ready=1><title>{TEXT}</title></html>")
    page = Page(browser, path)
    page.open(1280)
    deadline = time.monotonic() + 10
    while not page.js("return window.planted"):
        assert time.monotonic() < deadline


ESCAPES = "\x1b]0;planted\x07\x1b[2J\x9b31m\u202e\r\n"
"""Control sequences: set the title, clear the screen, colour, right-to-left text, overwrite a line."""


def _records(folder: Path) -> list[str]:
    """Result records."""
    kept = ("drops_by_cause", "kind", "direction", "trace_hash", "scenario_hash")
    records = [spoilt(make_record("pie"), kept), make_record("fq_codel", scenario=TEXT)]
    (folder / "in.json").write_text(json.dumps(records))
    return ["show", "in.json"]


def _kinds(folder: Path) -> list[str]:
    """Result records with invalid kinds of flows."""
    records = [spoilt(make_record("pie")), spoilt(make_record("codel"))]
    (folder / "in.json").write_text(json.dumps(records))
    return ["show", "in.json"]


def _scenario(folder: Path) -> list[str]:
    text = 'name = NAME\nduration = "2s"\nwarmup = "0s"\n[link]\nrate = "5mbit"\nup = { rate = "1mbit" }\n'
    (folder / "in.toml").write_text(text.replace("NAME", json.dumps(TEXT)))
    return ["run", "in.toml"]


def _tune(folder: Path) -> list[str]:
    _scenario(folder)
    return ["tune", "in.toml", "--duration", "20s", "--trials", "2", "--seeds", "2", "--jobs", "1", "--queues", "codel"]


def _evaluation(folder: Path) -> list[str]:
    words = _queue(folder)[-1]
    return ["evaluate", "--sections", "12", "--seeds", "1", "--aqm", words]


def _queue(folder: Path) -> list[str]:
    """Queue words with a file in a folder whose name is markup without blanks."""
    at = folder / "<img" / "src=x"
    at.mkdir(parents=True)
    (at / f"onerror={SCRIPT}>").write_bytes((ROOT / "crates/quell-qdisc/src/disciplines/hush/shipped.txt").read_bytes())
    return ["run", "home", "--duration", "2s", "--warmup", "0s", "--aqm", f"hush model <img/src=x/onerror={SCRIPT}>"]


def _samples(folder: Path) -> list[str]:
    """Samples of quell watch."""
    names = "bytes packets drops overlimits requeues backlog_bytes backlog_packets sojourn_ms"
    rates = dict.fromkeys(("rate_bps", "packets_per_s", "drops_per_s"), 1.0)
    texts = dict.fromkeys(("device", "handle", "parent", "kind"), TEXT)
    sample = {"time": 1.0, "type": "qdisc", "xstats": {TEXT: TEXT}} | texts | dict.fromkeys(names.split(), 1) | rates
    lines = [json.dumps(sample | {"time": float(k)}) for k in range(5)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    return ["show", "in.jsonl"]


def _flent(folder: Path) -> list[str]:
    series = {
        "TCP download::1": 9.0,
        "Ping (ms) ICMP": 20.0,
        f"TCP download {TEXT}": 1.0,
        f"Ping (ms) {TEXT}": 30.0,
        TEXT: 1.0,
    }
    document = {
        "version": 4, "x_values": [k / 5 for k in range(100)], "metadata": {"NAME": TEXT, "TITLE": TEXT},
        "results": {name: [value] * 100 for name, value in series.items()},
    }  # fmt: skip
    (folder / "in.flent.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    return ["show", "in.flent.gz"]


SOURCES: tuple[Callable[[Path], list[str]], ...] = (
    _records,
    _kinds,
    _scenario,
    _queue,
    _samples,
    _flent,
    _tune,
    _evaluation,
)


@pytest.mark.parametrize("source", SOURCES, ids=[source.__name__.strip("_") for source in SOURCES])
def test_a_report_shows_texts_of_files_as_texts(
    browser: Any, quell: Quell, tmp_path: Path, source: Callable[[Path], list[str]]
) -> None:
    done = quell(*source(tmp_path), "--html", "out.html")
    assert done.returncode == 0, done.stderr
    page = Page(browser, tmp_path / "out.html")
    harmless(page)
    assert shown(page)


@pytest.mark.parametrize("source", SOURCES, ids=[source.__name__.strip("_") for source in SOURCES])
def test_a_terminal_obeys_no_text_of_a_file(
    quell: Quell, tmp_path: Path, source: Callable[[Path], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TEXT", ESCAPES)
    done = quell(*source(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout + done.stderr) & set(ESCAPES.replace("\n", "")) - set(map(chr, range(32, 127)))


LOOK = {
    "name": TEXT, "queue": TEXT, "trusted": True, "gauges": {TEXT: 1.0, "target, ms": 4.2}, "flows": [[TEXT, 1e6]],
    "hosts": [[TEXT, 1e6]], "faults": [TEXT], "capacity_mbps": 8, "throughput_mbps": 7.9, "sojourn_ms": 5.0,
    "backlog_packets": 3, "backlog_bytes": 4500, "bytes": 0, "drops": 4, "marks": 2, "lost": 0, "limit_packets": 0,
    "probability": 0, "missed": 0, "sojourns": [0, 0],
}  # fmt: skip


def _state() -> dict[str, Any]:
    """The dashboard's state with such names of interface and queues."""
    now = {"now_s": time.monotonic(), "packets": int(time.monotonic() * 1000)}
    return {"title": TEXT, "bounds_ns": [1e6], "queues": [LOOK | now, LOOK | now | {"name": "b"}], "hidden": 3}


def test_the_dashboard_shows_names_of_interfaces_and_queues_as_texts(browser: Any) -> None:
    with dashboard_of(_state) as address:
        page = Page(browser, Path(), address)
        page.open(1280)
        deadline = time.monotonic() + 20
        while page.js("return Math.max(0, ...[...queues.values()].map(q => q.samples.length))") < 4:
            assert time.monotonic() < deadline, page.errors()
            time.sleep(0.05)
        assert page.count("section") == 2 and shown(page)
        page.js("for (const b of document.querySelectorAll('button')) if (b.id !== 'export') b.click()")
        assert page.js("return window.planted") is None
        assert page.js("return document.querySelectorAll('img, [onerror], [onload], iframe').length") == 0
        browser.get("about:blank")  # before its server ends
