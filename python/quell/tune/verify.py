"""`quell tune --verify`: current setting, best default and offered setting on real Linux TCP (docs/how-to/tune.md).

The printed lines of tc run in a network namespace; `quell.tune.replay` makes the line around them.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from quell import _core
from quell._core import InputError
from quell.inputs.framing import Framing
from quell.linux.programs import Command
from quell.results.stats import Estimate, estimate
from quell.tune import aims as aim
from quell.tune import targets
from quell.tune.aims import Aims
from quell.tune.line import BULK, NOTHING, Line
from quell.tune.search import Bench, Run, Shapes

SEEDS = 3
_START_S = 60.0
_FIRST = 2000
"""The first seed of the simulated runs beside the real ones."""
_BUFFER = 12_000_000
"""Receive buffer, bytes: twice a simulated connection's, since Linux reserves half of a buffer for itself."""
_REAL = (*BULK, "call", "game")
FIGURES = ("goodput_mbps.down", "goodput_mbps.up", "mos", "game_p99_ms", "objective")


@dataclass(frozen=True)
class Verified:
    """A setting in simulation and on Linux, with traffic that both support."""

    name: str
    simulated: dict[str, Estimate | None]
    linux: dict[str, Estimate | None]

    def plain(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        ways = {"simulated": self.simulated, "linux": self.linux}
        return {name: {key: None if e is None else e.mean for key, e in way.items()} for name, way in ways.items()}


def check() -> None:
    """Raise InputError if a replay is impossible: capabilities, programs or kernel queues are missing."""
    if not sys.platform.startswith("linux"):
        raise InputError("--verify needs Linux: network namespaces and tc")
    if os.geteuid() != 0:
        raise InputError("--verify needs root, to make network namespaces; leave it out, or run it with sudo")
    if absent := [name for name in ("ip", "tc", "nsenter") if shutil.which(name) is None]:
        raise InputError(f"--verify: {absent[0]} is missing; install iproute2 and util-linux, or leave --verify out")
    try:
        _command([], {"probe": True}, 60)
    except InputError as error:
        raise InputError(f"{error}; leave --verify out, or use a kernel that has it") from None


def traffic(line: Line) -> tuple[Line, list[str]]:
    """Return the line with traffic that can be replayed, and the kinds that were left out. Raises InputError."""
    keys = copy.deepcopy(line.keys)
    kept: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    for flow in keys["flow"]:
        kind = flow.get("kind", "tcp")
        can = kind in _REAL and not any(key in flow for key in ("bytes", "stop", "trace")) and not flow.get("ecn")
        (kept if can else left).append(flow)
    if not any(flow.get("kind", "tcp") in BULK for flow in kept):
        raise InputError(f"--verify: {line.name} has no transfers that can be real; leave --verify out")
    keys["flow"] = kept
    kinds = dict.fromkeys(str(flow.get("kind", "tcp")) for flow in left)
    real = Line(line.name, keys, line.down, line.up, line.framing, line.rtt_ms, line.buffer_s)
    return real, list(kinds)


def verify(
    bench: Bench,
    line: Line,
    dev: str,
    settings: Sequence[tuple[str, Shapes]],
    *,
    seeds: int = SEEDS,
    command: Sequence[str] = (),
    on_run: Callable[[str], object] = lambda _: None,
) -> list[Verified]:
    """Simulate and replay settings with the same traffic. `command` precedes a replay's command. Raises InputError."""
    real, _ = traffic(line)
    apart = Bench(Aims(), bench.threads, bench.on)
    found = []
    for name, ways in settings:
        on_run(name)
        runs = [Run(real, ways, _FIRST + seed) for seed in range(seeds)]
        apart.run(runs)
        simulated = [record for run in runs if (record := apart.record(run)) is not None]
        replayed = [_replay(real, dev, ways, seed, command) for seed in range(1, seeds + 1)]
        wanted = bench.aims.measured(replayed[0], real)
        found.append(Verified(name, *(_figures(records, real, wanted) for records in (simulated, replayed))))
    return found


def _figures(records: Sequence[dict[str, Any]], line: Line, aims: Aims) -> dict[str, Estimate | None]:
    def one(record: dict[str, Any]) -> tuple[float | None, ...]:
        ways = (aim.goodput(record, "down"), aim.goodput(record, "up"))
        applications = (aim.application(record, "call"), aim.application(record, "game p99"))
        return (*ways, *applications, aims.objective(record, line))

    return dict(zip(FIGURES, map(estimate, zip(*map(one, records), strict=True)), strict=True))


def _replay(line: Line, dev: str, ways: Shapes, seed: int, command: Sequence[str]) -> dict[str, Any]:
    limit = _START_S + 100 * (_seconds(line.keys["duration"]) + _START_S)
    return _command(command, _spec(line, dev, ways, seed), limit)


def _command(command: Sequence[str], spec: dict[str, Any], limit: float) -> dict[str, Any]:
    # -P: no module is imported from root's working folder.
    words = [*command, sys.executable, "-P", "-m", "quell.tune.replay", json.dumps(spec)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise InputError("--verify: the replay did not end; this machine is too busy") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise InputError(f"--verify: {said[-1]}")
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def _spec(line: Line, dev: str, ways: Shapes, seed: int) -> dict[str, Any]:
    """Return all parameters of the replay."""
    framing = Framing.of(line.framing)
    # Size tables do not support PTM, in which 65 bytes carry 64.
    share = 64 / 65 if framing.cells == "ptm" else 1.0
    flows, rtts = [], []
    servers: dict[str, str] = {}
    clients: dict[str, str] = {}
    for flow in line.keys["flow"]:
        kind = flow.get("kind", "tcp")
        ms = _core.quantity(flow["rtt"], "time") / 1e6
        if ms not in rtts:
            rtts.append(ms)
        host, to = flow.get("host", "host"), flow.get("to_host", flow.get("host", "host"))
        client = clients.setdefault(host, f"10.98.0.{len(clients) + 1}")
        server = servers.setdefault(f"{to} {ms}", f"10.99.{rtts.index(ms)}.{len(servers) + 1}")
        up = kind in ("upload", "backup") or flow.get("direction") == "up"
        one = {
            "kind": kind, "direction": "up" if up else "down", "host": host, "client": client, "server": server,
            "cc": {"newreno": "reno"}.get(flow.get("cc", ""), flow.get("cc", "cubic")),
            "start_s": _seconds(flow.get("start", "0s")), "stagger_s": _seconds(flow.get("stagger", "0s")),
        }  # fmt: skip
        flows += [one] * (1 if kind in ("call", "game") else flow.get("count", 1))
    if max(len(rtts), len(clients) // 15, len(servers) // 15) > 16:
        raise InputError(f"--verify: {line.name} has too many hosts or round trips to be replayed; leave --verify out")
    buffer = f"4096 131072 {_BUFFER}"
    return {
        "dev": dev, "seed": seed, "flows": flows, "rtts_ms": rtts,
        "duration_s": _seconds(line.keys["duration"]), "warmup_s": _warmup(line),
        "down": {"rate": round(line.down * share), "fifo": line.fifo(line.down)},
        "up": {"rate": round(line.up * share), "fifo": line.fifo(line.up)},
        "stab": framing.stab(),
        "commands": [asdict(command) for command in commands(dev, line, ways)],
        "sysctl": {"tcp_no_metrics_save": "1", "tcp_rmem": buffer, "tcp_wmem": f"4096 65536 {_BUFFER}"},
    }  # fmt: skip


def commands(dev: str, line: Line, ways: Shapes) -> list[Command]:
    """Return a setting's commands of tc for one or both directions; none without a shaper."""
    down, up = ways
    if ways == (NOTHING, NOTHING):
        return []
    if down == NOTHING:
        return targets.root_commands(dev, up, line)
    if up == NOTHING:
        return targets.ingress_commands(dev, down, line)
    return targets.tc_commands(dev, line, down, up)


def _warmup(line: Line) -> float:
    return line.scenario(NOTHING, NOTHING)[0].warmup_s


def _seconds(text: str) -> float:
    return _core.quantity(text, "time") * 1e-9


def agreement(found: Sequence[Verified]) -> str:
    """Return in one line whether Linux ranks the settings as the simulation does, and the difference in goodput."""

    def order(way: str) -> list[str]:
        return [one.name for one in sorted(found, key=lambda one: _mean(getattr(one, way)["objective"]))]

    ratios = [_mean(one.linux[key]) / _mean(one.simulated[key]) - 1 for one in found for key in FIGURES[:2]]
    worst = max(map(abs, ratios))
    which = "as the simulation does" if order("linux") == order("simulated") else "otherwise than the simulation does"
    return f"Linux orders the settings {which}; goodput differs by at most {100 * worst:.1f} %."


def _mean(value: Estimate | None) -> float:
    return 1e-9 if value is None else max(1e-9, value.mean)
