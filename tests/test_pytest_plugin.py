"""The fixture `bottleneck` of quell.pytest_plugin, used by a test in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import no_tun

needs_tun = pytest.mark.skipif(bool(no_tun()), reason=no_tun())

TESTS = """
import asyncio, time

import pytest

async def server(host):
    async def answer(reader, writer):
        writer.write(bytes(125_000))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, host, 8000) as listening:
        await listening.serve_forever()

async def client(host):
    reader, writer = await asyncio.open_connection(host, 8000)
    print(len(await reader.read(-1)), "bytes")
    writer.close()

async def fails(host):
    raise OSError("no route")

async def never(host):
    await asyncio.sleep(3600)

def test_coroutines(bottleneck):
    begun = time.monotonic()
    done = bottleneck(rate="2mbit", delay="10ms", aqm="cake").run(client, server=server)
    assert (done.status, done.output) == (0, "125000 bytes\\n"), done.errors
    assert time.monotonic() - begun > 0.5, "1 Mbit at 2 Mbit/s"
    assert done.down["queue"].startswith("cake") and 80 < done.down["packets"] < 200, done.down["packets"]

def test_commands(bottleneck):
    done = bottleneck("lte", aqm="pie").run(["sh", "-c", "echo $QUELL_SERVER; exit 3"], server=["sleep", "60"])
    assert done.status == 3 and done.output.count(".") == 3
    assert done.down["queue"] == "pie", done.down["queue"]

def test_failures(bottleneck):
    done = bottleneck(rate="10mbit").run(fails, server=server)
    assert done.status == 1 and "no route" in done.errors
    with pytest.raises(RuntimeError, match="rate"):
        bottleneck(rate="fast").run(client, server=server)
    with pytest.raises(TypeError, match="coroutine function"):
        bottleneck(rate="10mbit").run(lambda host: None)

def test_a_client_that_never_ends(bottleneck):
    import subprocess
    with pytest.raises(subprocess.TimeoutExpired):
        bottleneck(rate="10mbit").run(never, server=server, timeout=3)
"""


def pytest_in(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as in another project, with quell's plugin."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *words]
    # Named, so that it does not matter whether the checkout's metadata has the entry point.
    return subprocess.run(
        [*command, "-p", "quell.pytest_plugin"],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@needs_tun
@pytest.mark.real_time
def test_clients_and_servers_run_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "test_link.py").write_text(TESTS)
    done = pytest_in(tmp_path, "--quell-require")
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in listed, "a process remains"


def test_without_namespaces_a_test_is_skipped_or_fails(tmp_path: Path) -> None:
    (tmp_path / "test_link.py").write_text("def test_it(bottleneck):\n    bottleneck()\n")
    # A `quell` that refuses as on such a machine.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'shell' in sys.orig_argv:\n"
        "    print('quell: this system does not let users have namespaces', file=sys.stderr)\n"
        "    sys.exit(1)\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    skipped = pytest_in(tmp_path, PYTHONPATH=path)
    assert skipped.returncode == 0 and "1 skipped" in skipped.stdout, skipped.stdout
    assert "does not let users have namespaces" in skipped.stdout
    failed = pytest_in(tmp_path, "--quell-require", PYTHONPATH=path)
    assert failed.returncode == 1 and "does not let users have namespaces" in failed.stdout, failed.stdout


def test_loading_it_imports_nothing_else_of_quell() -> None:
    code = "import pytest, sys; import quell.pytest_plugin; print(*(n for n in sys.modules if n.startswith('quell')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"quell", "quell._moved", "quell.pytest_plugin"}
