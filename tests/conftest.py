"""Fixtures of several tests: the command as a user runs it, and made-up result records."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser import browser as browser
from quell.experiments.experiment import Job, Outcome, load

ROOT = Path(__file__).resolve().parent.parent
QUELL = Path(sys.executable).parent / "quell"
QUELL_LIVE = Path(sys.executable).parent / "quell-live"

# A shell starts background jobs with SIGINT ignored, and the programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Quell = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker state folders of its own, so that none restores what another one changed."""
    if "QUELL_TEST_INPUTS" not in os.environ or not sys.platform.startswith("linux") or os.geteuid() != 0:
        return
    new_mounts = 0x20000
    if ctypes.CDLL(None, use_errno=True).unshare(new_mounts):
        return  # a container may forbid it; its tests run one at a time
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for folder in ("/run/quell", "/run/quell-live"):
        Path(folder).mkdir(mode=0o755, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "quell", folder], check=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="tests/attack: the long form (make attack LONG=1)")


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    """Whether an attack takes its long form."""
    return bool(request.config.getoption("--long"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("long") and not item.config.getoption("--long"):
        pytest.skip("takes minutes: make attack LONG=1")
    if item.get_closest_marker("torch") and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: make .venv/dev.installed")
    if item.get_closest_marker("machine_root") and not is_machine_root():
        pytest.skip("needs root of the machine, not of a user namespace")


def is_machine_root() -> bool:
    """Whether this process is root in the machine's own user namespace."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    mapped = Path("/proc/self/uid_map")
    return not mapped.exists() or mapped.read_text().split() == ["0", "0", "4294967295"]


def no_tun() -> str:
    """Return why no TUN device can be made; empty if one can."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"/dev/net/tun: {error.strerror}"
    return ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print tables: rows that tests give with `record_property(HEADING, ROW)`, the heading being a line of Markdown."""
    tables: dict[str, list[str]] = {}
    for kind in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(kind, []):
            if report.when == "call":
                for head, row in report.user_properties:
                    tables.setdefault(head, []).append(row)
    for head, rows in tables.items():
        terminalreporter.write_line("")
        for line in (head, re.sub("[^|]+", "---", head), *rows):
            terminalreporter.write_line(line)


@pytest.fixture
def quell(tmp_path: Path) -> Quell:
    """Run `quell ARGUMENTS` in an empty folder."""

    def call(*arguments: str, columns: int = 100) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"COLUMNS": str(columns)}
        return subprocess.run(
            [QUELL, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )

    return call


def loaded(*words: str, **environment: str) -> set[str]:
    """Run `quell WORDS`; return the modules that it has loaded at its end."""
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from quell.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def run(command: list[str], folder: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a developer's command as typed in a shell, also if `make` runs the tests."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)


def make_record(queue: str, seed: int = 1, goodput: float = 10.0, p95: float = 20.0, **more: Any) -> dict[str, Any]:
    """Make up a result record of a queue on a link; `more` replaces or adds keys."""
    summary = {"mean": p95 / 2, "p50": p95 / 2, "p95": p95, "p99": p95 * 1.3, "max": p95 * 2}
    bins = 40
    flow = {
        "kind": "tcp",
        "cc": "cubic",
        "direction": "down",
        "base_rtt_ms": 20.0,
        "goodput_mbps": goodput / 2,
        "delivered_in_order_mbps": goodput / 2,
        "retransmits": 3,
        "cwnd_packets": 12.5,
        "rtt_ms": summary,
        "fct_ms": None,
        "completed": 0,
        "refused": 0,
        "delay_ms": summary,
        "jitter_ms": 0.5,
        "loss_rate": 0.002,
    }
    record = {
        "scenario": "made up",
        "queue": queue,
        "seed": seed,
        "measured_s": 55.0,
        "goodput_mbps": goodput,
        "delivered_in_order_mbps": goodput,
        "throughput_mbps": goodput * 1.05,
        "capacity_mbps": 15.0,
        "utilisation": goodput * 1.05 / 15,
        "sojourn_ms": summary,
        "sojourn_cdf": [[0.1 * k * p95, min(1.0, 0.1 * k)] for k in range(12)],
        "backlog_packets": summary,
        "backlog_ms": summary,
        "limit_packets": None,
        "packets": 50_000,
        "drops": 100,
        "marks": 0,
        "loss_rate": 0.002,
        "mark_rate": 0.0,
        "drops_by_cause": {"overflow": 0, "early": 100, "forced": 0, "link": 0},
        "jain": 0.98,
        "rtt_ms": summary,
        "fct_ms": None,
        "flows": [flow, flow | {"cc": "bbr"}],
        "series": {
            "bin_s": 1.5,
            "backlog_ms": [p95 / 2 + k % 7 for k in range(bins)],
            "throughput_mbps": [goodput + k % 3 for k in range(bins)],
            "capacity_mbps": [15.0] * bins,
            "sojourn_ms": [None] + [p95 / 2] * (bins - 1),
            "drops": [2] * bins,
            "marks": [0] * bins,
            "limit_packets": [float(30 + k % 5) for k in range(bins)] if queue == "learnqueue" else [1000.0] * bins,
            "probability": [0.01 * (k % 4) for k in range(bins)] if queue == "pie" else [0.0] * bins,
            "goodput_mbps": [[goodput / 2] * bins] * 2,
            "delivered_in_order_mbps": [[goodput / 2] * bins] * 2,
        },
        "events": 300_000,
        "cpu_s": 0.01,
        "packets_per_cpu_s": 5e6,
        "trace_hash": "00",
        "scenario_hash": "00",
    }
    return record | more


QUEUES = {  # queue words: goodput, p95 sojourn; fq_codel, pie and pfifo form the front
    "fq_codel": (13.0, 8.0),
    "pfifo": (14.5, 400.0),
    "codel": (12.9, 12.0),
    "pie": (13.4, 24.0),
    "fq limit 100 flow_limit 20 & <b>": (12.5, 60.0),
    "learnqueue": (13.3, 30.0),
    "red": (13.1, 90.0),
    "dualpi2": (12.0, 9.0),
    "cake": (12.7, 10.0),
}


@pytest.fixture
def outcome() -> Outcome:
    """Nine queues, three runs each, with series in the first."""
    scenario = load('[link]\nrate = "15mbit"\n')
    jobs = [Job(queue, scenario.run_seed(k)) for k in range(3) for queue in QUEUES]
    records = {}
    for i, job in enumerate(jobs):
        k = i // len(QUEUES)
        queue = str(job.queue)
        goodput, p95 = QUEUES[queue]
        records[i] = make_record(queue, job.seed, goodput + 0.1 * (k - 1), p95 * (1 + 0.05 * (k - 1)))
        if k:
            del records[i]["series"]
    return Outcome(scenario, jobs, records, wall_s=1.0)
