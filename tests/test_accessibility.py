"""The pages that quell makes have no violation that axe-core finds, in a real browser."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from browser import Page, dashboard_of
from conftest import ROOT, Quell
from quell import InputError
from quell.common import files
from quell.evaluation import candidate, link, run
from quell.evaluation import page as evaluation_page
from quell.experiments.experiment import Outcome, load, plan, run_jobs
from quell.results import commands
from quell.views import commands as commands_page
from quell.views.report import page
from test_browser import paper_page as paper_page
from test_dashboard import _state
from test_shell_queues import record
from test_show_samples import _samples as watched

VERSION = "4.14.1"
SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
KEPT = ROOT / f".cache/axe-core-{VERSION}.min.js"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the text of axe-core, which npm fetches once."""
    kept = KEPT.exists()
    data = KEPT.read_bytes() if kept else _fetched(tmp_path_factory.mktemp("npm"))
    assert hashlib.sha256(data).hexdigest() == SHA256, f"this is not axe-core {VERSION}; delete {KEPT}"
    if not kept:
        with suppress(OSError, InputError):  # where it cannot be kept, it is fetched each time
            KEPT.parent.mkdir(exist_ok=True)
            files.write_bytes(KEPT, data)
    return data.decode()


def _fetched(folder: Path) -> bytes:
    if (npm := shutil.which("npm")) is None:
        pytest.skip("axe-core cannot be fetched: no npm; on Debian: apt-get install npm")
    quiet = ["--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--fetch-retries", "1"]
    words = [npm, "install", "--prefix", str(folder), "--cache", str(folder / "cache"), *quiet, f"axe-core@{VERSION}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        pytest.skip("axe-core cannot be fetched: npm had not ended after 90 s")
    if done.returncode:
        pytest.skip(f"axe-core cannot be fetched: {(done.stderr.strip() or 'npm failed').splitlines()[0]}")
    return (folder / "node_modules/axe-core/axe.min.js").read_bytes()


def violations(shown: Page, axe: str) -> list[str]:
    """Return each rule that the page violates, with the elements."""
    shown.js(axe)
    script = """
        const done = arguments[0];
        axe.run({resultTypes: ["violations"]}).then(
            found => done(found.violations.map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 100)).join(" ")}`)),
            error => done([String(error)]),
        );
    """
    found: list[str] = shown.driver.execute_async_script(script)
    return found


@pytest.mark.parametrize("kind", ["report", "household", "wifi-house", "shell", "watch", "tune", "paper", "evaluation"])
def test_a_page_is_accessible(
    browser: Any, axe: str, outcome: Outcome, paper_page: Page, quell: Quell, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "page.html"
    match kind:
        case "report":
            text = page(outcome, "quell compare --html report.html")
        case "household" | "wifi-house":
            scenario = load(kind, duration="4s", warmup="1s", seeds="1")
            text = page(run_jobs(scenario, plan(scenario, ["pfifo", "fq_codel"])), "quell compare")
        case "shell":
            keys = ("throughput_mbps", "capacity_mbps", "sojourn_ms")
            series = {"bin_s": 0.1} | {key: [float(k % 7 + 1) for k in range(100)] for key in keys}
            told = [record(way, queue, series=series) for queue in ("pfifo", "hush") for way in ("down", "up")]
            text = commands_page.page(commands.runs(told), "10mbit, 20 ms each way", "quell shell -- ./measure")
        case "watch":
            (tmp_path / "s.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in watched()))
            assert quell("show", "s.jsonl", "--html", path.name).returncode == 0
            text = path.read_text("utf-8")
        case "tune":
            line = ["--rate", "10mbit/2mbit", "--duration", "2s", "--trials", "2", "--queues", "cake,pfifo"]
            done = quell("tune", *line, "--html", path.name)
            assert done.returncode == 0, done.stderr
            text = path.read_text("utf-8")
        case "paper":
            text = paper_page.path.read_text("utf-8")
        case _:
            plan_ = run.plan(link.parse(None), candidate.parse_all(["codel"]), sections=["5.4", "12"], seeds=1)
            text = evaluation_page.page(plan_, run.evaluate(plan_), "quell evaluate")
    path.write_text(text, encoding="utf-8")
    shown = Page(browser, path)
    for width in (390, 1280):
        for dark in (False, True):
            shown.open(width, dark)
            assert violations(shown, axe) == [], f"{width} px, {'dark' if dark else 'light'}"


@pytest.mark.real_time
def test_the_dashboard_is_accessible(browser: Any, axe: str) -> None:
    state = _state()
    for queue in state["queues"]:
        queue |= {"faults": ["packets left late"], "hosts": [("192.0.2.1", 1.0)], "flows": [("a to b", 2.0)]}
    with dashboard_of(lambda: state) as address:
        for width in (390, 1280):
            for dark in (False, True):
                shown = Page(browser, Path(), address)
                shown.open(width, dark)
                assert violations(shown, axe) == [], f"{width} px, {'dark' if dark else 'light'}"
        browser.get("about:blank")  # the page would report that its server ends
