"""A fixture for pytest, `bottleneck`: a client and a server on both sides of an emulated link.

pytest loads this module at its start (entry point `pytest11`), so it imports neither quell nor anything slow. A link is
a process of `quell shell`.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Side = Sequence[str] | Callable[[str], Coroutine[Any, Any, object]]
"""A command as a list of words, or a coroutine function of a test module, which gets the server's address."""


@dataclass(frozen=True)
class Outcome:
    """What a client did behind a link, and what the link measured."""

    status: int
    """The client's exit status as in a shell; 0: it succeeded."""
    output: str
    """What client and server wrote to standard output."""
    errors: str
    """What client, server and quell wrote to standard error."""
    down: dict[str, Any]
    """The record of the direction to the client; docs/reference/records.md has the keys."""
    up: dict[str, Any]
    """The record of the direction from the client."""


class Bottleneck:
    """A link as `quell shell` emulates it."""

    def __init__(self, scenario: str | None, options: dict[str, object]) -> None:
        self._words = [] if scenario is None else ["--scenario", scenario]
        for name, value in options.items():
            self._words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]

    def run(self, client: Side, *, server: Side | None = None, timeout: float = 60) -> Outcome:
        """Run `client` behind the link until it ends, and `server` on the other side meanwhile.

        Each of them is a list of words, which find the server's address in the environment variable QUELL_SERVER, or a
        coroutine function at the top level of a module, which gets the address and runs in a process of its own. The
        client starts once the server listens. Without `server`, root's client reaches the servers of this machine.
        Raises RuntimeError if the link cannot be emulated as asked, and subprocess.TimeoutExpired after `timeout`
        seconds; no process remains then.
        """
        with tempfile.TemporaryDirectory(prefix="quell-") as folder:
            records = Path(folder, "records.json")
            words = ["--quiet", "--json", str(records), *self._words]
            if server is not None:
                words += ["--server", shlex.join(_command(server))]
            done = _shell([*words, "--", *_command(client)], timeout)
            try:
                down, up = json.loads(records.read_text("utf-8"))
            except FileNotFoundError:
                raise RuntimeError(done.stderr.strip() or f"quell shell ended with {done.returncode}") from None
        return Outcome(down["command"]["status"], done.stdout, done.stderr, down, up)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quell-require`."""
    text = "fail tests that use the fixture bottleneck where links cannot be emulated, instead of skipping them"
    parser.getgroup("quell").addoption("--quell-require", action="store_true", help=text)


@pytest.fixture(scope="session")
def _quell_missing() -> str:
    """Return why this machine cannot emulate a link; empty if it can."""
    done = _shell(["--quiet", "--rate", "1gbit", "--", "true"], 60)
    return "" if done.returncode == 0 else done.stderr.strip() or f"quell shell ended with {done.returncode}"


@pytest.fixture
def bottleneck(_quell_missing: str, pytestconfig: pytest.Config) -> Callable[..., Bottleneck]:
    """Return a function that makes a link: `bottleneck("lte", aqm="cake").run(client, server=server).down["grade"]`.

    Its argument is a built-in scenario or a scenario file, its keywords are the options of `quell shell`: `rate`,
    `delay`, `loss`, `trace`, `aqm`, the same with `up_` in front, `seed`, `series`. Where links cannot be emulated, the
    test is skipped and says why; with `--quell-require` it fails.
    """
    if _quell_missing:
        (pytest.fail if pytestconfig.getoption("--quell-require") else pytest.skip)(_quell_missing)

    def make(scenario: str | os.PathLike[str] | None = None, **options: object) -> Bottleneck:
        return Bottleneck(None if scenario is None else os.fspath(scenario), options)

    return make


def _shell(words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run `quell shell`. If it takes too long, it is killed, and its namespace ends with it."""
    command = [sys.executable, "-m", "quell", "shell", *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def _command(side: Side) -> list[str]:
    """Return the command of a client or a server."""
    if not callable(side):
        return list(side)
    file, name = inspect.getsourcefile(side), getattr(side, "__qualname__", "")
    if file is None or not name.isidentifier() or not inspect.iscoroutinefunction(side):
        raise TypeError(f"{side!r} is not a coroutine function at the top level of a module's file")
    return [sys.executable, "-m", "quell.pytest_plugin", str(Path(file).absolute()), name]


def _main(file: str, name: str) -> None:
    """Run a coroutine function of a module with the server's address."""
    import asyncio

    sys.path.insert(0, str(Path(file).parent))
    found = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    asyncio.run(getattr(module, name)(os.environ.get("QUELL_SERVER", "0.0.0.0")))


if __name__ == "__main__":
    _main(*sys.argv[1:])
