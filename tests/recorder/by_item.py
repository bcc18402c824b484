"""A pytest plugin that records the inputs of each test separately from those of its whole file.

Files that pytest's own process reads are inputs of all tests of the file. Files that a child process reads are inputs
of the test that started it, or of all tests of the file if a fixture that several tests share started it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

COMMON = os.environ["QUELL_TEST_INPUTS"]
FOLDER = Path(COMMON).parent


class Plugin:
    """Gives each test a folder for its inputs, deselects unchanged tests, and records which tests passed."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        unchanged = set(json.loads((FOLDER / "unchanged.json").read_text()))
        if left_out := [item for item in items if item.nodeid in unchanged]:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in unchanged]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        own = FOLDER / f"{len(self.tests)}"
        own.mkdir()
        own.chmod(0o777)
        self.tests[item.nodeid] = {"inputs": own.name, "passed": False}
        os.environ["QUELL_TEST_INPUTS"] = str(own)
        try:
            return (yield)
        finally:
            os.environ["QUELL_TEST_INPUTS"] = COMMON

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        before = os.environ["QUELL_TEST_INPUTS"]
        if fixturedef.scope != "function":
            os.environ["QUELL_TEST_INPUTS"] = COMMON
        try:
            return (yield)
        finally:
            os.environ["QUELL_TEST_INPUTS"] = before

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        if nextitem is None:
            # The last teardown also ends shared fixtures.
            os.environ["QUELL_TEST_INPUTS"] = COMMON

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        # An interrupted test has no report of its teardown. A skipped one counts as passed.
        if report.when == "teardown":
            self.tests[report.nodeid]["passed"] = report.nodeid not in self.failed

    def pytest_sessionfinish(self) -> None:
        (FOLDER / "tests.json").write_text(json.dumps(self.tests))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Plugin())
