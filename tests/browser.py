"""A real browser for tests: headless Chromium, driven through chromedriver."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
DASHBOARD = Path(__file__).parent.parent / "crates/quell-live/src/serve/dashboard.html"

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not (CHROMIUM and DRIVER):
        reason = "no chromium and chromedriver here; on Debian: apt-get install chromium chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@contextmanager
def dashboard_of(state: Callable[[], dict[str, Any]]) -> Iterator[str]:
    """Serve the dashboard's page with this state, evaluated for each request; yield its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/state":
                    body = json.dumps(state()).encode()
                case "/history":
                    body = json.dumps({**state(), "moments": []}).encode()
                case _:
                    body = DASHBOARD.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/?token=1"
        server.shutdown()


WIDTHS = (320, 390, 820, 1280, 1400, 1920)
"""Windows in which no page scrolls sideways, from a small telephone to a large screen."""


class Page:
    """A page, opened from its address or, without one, its file; its root gets `data-ready` once it has drawn."""

    def __init__(self, driver: Any, path: Path, address: str = "") -> None:
        self.driver, self.path, self.address = driver, path, address

    def size(self, width: int, dark: bool = False) -> None:
        """Set the window's size, and which colours are preferred."""
        screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, width: int, dark: bool = False) -> None:
        self.size(width, dark)
        self.driver.get(self.address or self.path.as_uri())
        deadline = time.monotonic() + 20
        while not self.js("return document.documentElement.dataset.ready"):
            assert time.monotonic() < deadline, f"the page's script did not finish: {self.errors()}"
            time.sleep(0.02)

    def fits(self, width: int) -> None:
        """Fail if the page is wider than its window; the message lists elements that reach beyond it."""
        beyond = (
            "return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth)"
            ".slice(0, 5).map(e => e.outerHTML.slice(0, 80))"
        )
        wide = self.js("return document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} px in a window of {width}: {self.js(beyond)}"

    def js(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def errors(self) -> list[str]:
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]

    def count(self, selector: str) -> int:
        return int(self.js("return document.querySelectorAll(arguments[0]).length", selector))

    def move(self, selector: str, x: float, y: float) -> None:
        """Move the mouse to a place within an element, given as shares of its width and height."""
        self.js("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        box = self.js("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
        where = {"type": "mouseMoved", "x": box["left"] + x * box["width"], "y": box["top"] + y * box["height"]}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", where)
