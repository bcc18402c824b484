"""The dashboard: in a real browser while `quell shell` runs traffic, and its refusals to others."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from browser import WIDTHS, Page, dashboard_of
from conftest import QUELL, Quell
from quell.cli import dispatch
from test_shell import missing

TRAFFIC = """
import os, socket, threading, time
listener = socket.create_server(("0.0.0.0", 9000))
def serve():
    while True:
        taken, _ = listener.accept()
        threading.Thread(target=pour, args=(taken,), daemon=True).start()
def pour(to):
    try:
        while True:
            to.sendall(bytes(65536))
    except OSError:
        pass
serve()
"""
FETCH = """
import os, socket, time
with socket.create_connection((os.environ["QUELL_SERVER"], 9000)) as s:
    while s.recv(65536):
        pass
"""


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the dashboard of a shell whose command downloads all the time."""
    if missing():
        pytest.skip(f"quell shell cannot run here: {missing()}")
    folder = tmp_path_factory.mktemp("dashboard")
    (folder / "serve.py").write_text(TRAFFIC)
    (folder / "fetch.py").write_text(FETCH)
    words = ["--rate", "10mbit", "--delay", "5ms", "--aqm", "pie", "--dashboard"]
    server = f"{sys.executable} serve.py"
    shell = subprocess.Popen(
        [QUELL, "shell", *words, "--server", server, "--", sys.executable, "fetch.py"],
        cwd=folder, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert shell.stderr is not None
    first = shell.stderr.readline()
    assert first.startswith("quell: dashboard: http://127.0.0.1:"), first
    yield first.split()[-1]
    shell.terminate()
    shell.communicate(timeout=30)


def opened(browser: Any, address: str, width: int) -> Page:
    page = Page(browser, Path(), address)
    browser.get("about:blank")
    page.errors()  # discards those of an earlier page, whose server has ended
    page.open(width)
    return page


def figures(page: Page) -> dict[str, str]:
    """Return the texts of the first queue's figures."""
    found: dict[str, str] = page.js(
        "const rows = [...document.querySelector('dl').children];"
        "return Object.fromEntries(rows.map(row => [...row.children].map(cell => cell.textContent)))"
    )
    return found


def recorded(address: str) -> list[dict[str, Any]]:
    """Return the moments that the server has kept."""
    with urllib.request.urlopen(address.replace("/?", "/history?"), timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)["moments"]
    return found


def until(page: Page, what: str) -> None:
    deadline = time.monotonic() + 20
    while not page.js(f"return {what}"):
        assert time.monotonic() < deadline, page.js("return document.body.innerText")
        time.sleep(0.1)


@pytest.mark.real_time
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_draws_the_link_while_it_runs(browser: Any, dashboard: str, width: int) -> None:
    page = opened(browser, dashboard, width)
    until(page, "queues.get('down pie')?.samples.length > 4")
    page.fits(width)
    assert page.count("section") == 2
    assert page.count("canvas") == 8
    # Each chart has a pixel that is not transparent.
    drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v)"
    assert page.js(f"return [...document.querySelectorAll('canvas')].every({drawn})")
    said = figures(page)
    assert said["rate, Mbit/s"].endswith("of 10")
    assert len(said["p50, p95, p99 now, ms"].split(" · ")) == 3 or said["p50, p95, p99 now, ms"] == "–"
    # Samples have the link's traffic, and the median packet of a full link waits.
    until(page, "queues.get('down pie').samples.some(s => s.throughput_mbps > 1 && s.p[0] > 0.1)")
    assert page.js("return document.getElementById('status').textContent") == "live"
    assert page.errors() == []


@pytest.mark.real_time
def test_a_page_that_is_opened_late_shows_earlier_samples(browser: Any, dashboard: str) -> None:
    deadline = time.monotonic() + 20
    while not (known := recorded(dashboard)) or known[0]["age_s"] < 6:
        assert time.monotonic() < deadline, known
        time.sleep(0.2)
    assert [queue["name"] for queue in known[-1]["queues"]] == ["down", "up"]
    page = opened(browser, dashboard, 1280)
    until(page, "queues.get('down pie')?.samples.length > 4")
    before, rates = page.js(
        "const {samples} = queues.get('down pie'), opened = performance.timeOrigin / 1000;"
        "return [opened - samples[0].at, samples.filter(s => s.at < opened).map(s => s.throughput_mbps)]"
    )
    assert before > 3 and max(rates) > 8
    times = page.js("return queues.get('down pie').samples.map(s => s.at)")
    assert times == sorted(times)
    # Before its first full bin a queue's limit is 0, and pie's never changes.
    assert page.js("return queues.get('down pie').samples.every(s => !s.limited)")


@pytest.mark.real_time
def test_it_pauses_and_resumes(browser: Any, dashboard: str) -> None:
    page = opened(browser, dashboard, 1280)
    until(page, "queues.get('down pie')?.samples.length > 2")
    page.js("document.getElementById('pause').click()")
    before, kept = page.js("return range()"), page.js("return queues.get('down pie').samples.length")
    until(page, f"queues.get('down pie').samples.length > {kept}")
    assert page.js("return range()") == before
    page.js("document.getElementById('pause').click()")
    until(page, f"range()[1] > {before[1]}")


@pytest.mark.real_time
def test_exported_records_are_shown_as_a_report(browser: Any, dashboard: str, tmp_path: Path, quell: Quell) -> None:
    page = opened(browser, dashboard, 1280)
    until(page, "queues.get('down pie')?.samples.length > 6")
    (tmp_path / "seen.json").write_text(json.dumps(page.js("return records()")))
    done = quell("show", "seen.json", "--html", "seen.html")
    assert done.returncode == 0, done.stderr
    assert "down: pie" in done.stdout and "up: pie" in done.stdout
    report = Page(browser, tmp_path / "seen.html")
    report.open(1280)
    assert report.count("#small button") == 2
    assert report.errors() == []


def _state() -> dict[str, Any]:
    """Return the state from `quell watch` of a queue with gauges of its own and of one without."""
    common = {
        "capacity_mbps": 8, "throughput_mbps": 7.9, "sojourn_ms": 5.0, "backlog_packets": 3, "backlog_bytes": 4500,
        "packets": int(time.monotonic() * 1000), "bytes": 0, "drops": 4, "marks": 2, "lost": 0, "limit_packets": 0,
        "probability": 0, "missed": 0, "sojourns": [0, 0], "flows": [], "hosts": [], "faults": [], "gauges": {},
        "now_s": time.monotonic(),
    }  # fmt: skip
    law = {"target, ms": 4.2, "wait, ms": 1.6, "hold, ms": 302.0, "R, ms": 20.1, "idle, %": 0.1, "active flows": 2}
    queues = [
        common | {"name": "eth0 9e00:", "queue": "quell_hush", "trusted": True, "gauges": law},
        common | {"name": "eth1 7:", "queue": "fq_codel"},
    ]
    return {"title": "the kernel's queues", "bounds_ns": [1e6], "queues": queues, "hidden": 0}


@pytest.mark.real_time
def test_gauges_of_a_queue_in_the_kernel_have_figures_and_a_chart(browser: Any) -> None:
    with dashboard_of(_state) as address:
        page = opened(browser, address, 1280)
        until(page, "queues.get('eth0 9e00: quell_hush')?.samples.length > 3")
        said = figures(page)
        assert said["target, ms"] == "4.2" and said["active flows"] == "2" and said["decides now"] == "learned"
        # A queue without a cap shows none; a queue without gauges has no chart for them.
        assert "cap, ms" not in said
        counts = page.js(
            "return [...document.querySelectorAll('section')].map(s => s.querySelectorAll('canvas').length)"
        )
        assert counts == [5, 4]
        drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v)"
        assert page.js(f"return [...document.querySelectorAll('canvas')].every({drawn})")
        assert page.errors() == []


@pytest.mark.real_time
def test_values_under_the_mouse_are_shown_and_directions_are_side_by_side_on_a_large_screen(browser: Any) -> None:
    with dashboard_of(_state) as address:
        page = opened(browser, address, 1920)
        until(page, "queues.get('eth0 9e00: quell_hush')?.samples.length > 8")
        tops = page.js("return [...document.querySelectorAll('section')].map(s => s.getBoundingClientRect().top)")
        assert tops[0] == tops[1]
        legend = "return document.querySelector('figcaption').innerText"
        assert "7.9" not in page.js(legend)
        page.move("canvas", 0.999, 0.5)
        assert "sent 7.9" in page.js(legend).replace("\n", " ") and "line 8" in page.js(legend).replace("\n", " ")
        page.move("h1", 0.5, 0.5)
        assert "7.9" not in page.js(legend)
        assert page.errors() == []


@pytest.mark.real_time
def test_long_names_make_the_page_scroll_sideways_in_no_window(browser: Any) -> None:
    long, state = "a" * 90, _state()
    for k, queue in enumerate(state["queues"]):
        queue |= {"name": f"eth{k}{long}", "queue": f"hush model /{long}", "faults": [long], "hosts": [(long, 1.0)]}
    state["title"] = long
    with dashboard_of(lambda: state | {"now_s": time.monotonic()}) as address:
        for width in WIDTHS:
            page = opened(browser, address, width)
            until(page, "document.querySelectorAll('section').length == 2")
            page.fits(width)
            assert page.errors() == []


@pytest.mark.real_time
def test_access_without_the_token_is_refused(dashboard: str) -> None:
    address, token = dashboard.split("?")
    state = f"{address}state"

    def status(url: str, **more: Any) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, **more), timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert status(f"{state}?{token}") == 200
    assert status(state) == 403
    assert status(f"{state}?{token[:-1]}") == 403
    assert status(f"{state}?{token}", headers={"Host": "evil.example"}) == 403
    assert status(f"{state}?{token}", data=b"x") == 405


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("live --dev eth0 --dashboard", "live --dev eth0 --dashboard=0"),
        ("live --dashboard 9200 --dev eth0", "live --dashboard 9200 --dev eth0"),
        ("shell --rate 1mbit --dashboard --view -- ls", "shell --rate 1mbit --dashboard=0 --view -- ls"),
        ("shell --aqm --dashboard", "shell --aqm --dashboard"),
        ("shell --view tool --dashboard", "shell --view tool --dashboard"),
        ("shell -- tool --dashboard", "shell -- tool --dashboard"),
        ("compare --dashboard", "compare --dashboard"),
        ("live eth0 --rate 5mbit --dashboard", "live --dev eth0 --rate 5mbit --dashboard=0"),
        ("doctor eth0 --json -", "doctor --dev eth0 --json -"),
    ],
)
def test_the_port_can_be_left_out(typed: str, read: str) -> None:
    assert dispatch.with_port(typed.split()) == read.split()


def test_flags_of_the_shell_are_known() -> None:
    command: Any = get_command(dispatch.app(["shell", "live"]))
    flags = {name for p in command.commands["shell"].params for name in p.opts if getattr(p, "is_flag", False)}
    assert {name for name in flags if name.startswith("--")} | {"--help"} == dispatch.SHELL_FLAGS
