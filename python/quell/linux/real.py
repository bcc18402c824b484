"""`quell compare --real`: a scenario's flows as real Linux TCP over `quell shell`'s link, measured as in simulation."""

from __future__ import annotations

import json
import socket
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quell import _core
from quell._core import InputError, Scenario
from quell.common import files
from quell.experiments.experiment import BINS, Job, Outcome, fingerprint
from quell.experiments.queue import Parsed
from quell.linux import ends
from quell.results import stats

LABEL = "{queue}, real TCP"
"""Name of the row with real packets, beside the simulated one of its queue."""
_NAMES = {"newreno": "reno"}
_QUELLS = {linux: name for name, linux in _NAMES.items()}
_SIMULATED = ("mss", "iw", "min_rto", "rto", "delack", "delack_timeout", "sack", "limited_transmit", "ect")
"""Keys of TCP flows that only the simulator supports; values other than the defaults are refused."""
_START_S = 60.0


def check(scenario: Scenario) -> dict[str, Any]:
    """Return the parameters of the two ends. Raises InputError for parts of a scenario that cannot be run for real."""
    plain = tomllib.loads(scenario.toml())
    flows = _flows(plain, scenario.duration_s)
    forbidden = _check_system({flow["cc"] for flow in flows if flow["kind"] == "tcp"})
    sizes = {flow["buffer"] for flow in flows if flow["kind"] == "tcp"}
    most = max(sizes, default=6_000_000)
    ecn = {flow["ecn"] for flow in flows if flow["kind"] == "tcp" and flow["cc"] != "dctcp"}
    if len(ecn) > 1:
        raise InputError(
            "--real: flow.ecn: Linux has one setting for all; give all flows the same, or leave it to dctcp"
        )
    # Errors in names come first, so that all users see them, not only root.
    if forbidden:
        raise InputError(f"--real: flow.cc: Linux's {forbidden[0]} needs root")
    sysctl = {
        "tcp_ecn": "1" if True in ecn else "2",
        "tcp_no_metrics_save": "1",
        "tcp_rmem": f"4096 131072 {2 * most}",
        "tcp_wmem": f"4096 65536 {2 * most}",
    }
    return {"flows": flows, "duration_s": scenario.duration_s, "warmup_s": scenario.warmup_s, "sysctl": sysctl}


def check_path(option: str, plain: Mapping[str, Any]) -> None:
    """Check that a scenario's path consists of the two links of `quell shell`. Raises InputError."""
    for key, there_is in (("hop", "one link each way"), ("wifi", "no radio")):
        if key in plain:
            raise InputError(f"{option}: [{key}]: quell shell has {there_is}; leave it to the simulation")


def _flows(plain: Mapping[str, Any], duration_s: float) -> list[dict[str, Any]]:
    """List the flows, one by one."""
    check_path("--real", plain)
    usual = tomllib.loads(Scenario.from_keys(link={"rate": "1mbit"}).toml())["flow"][0]
    flows: list[dict[str, Any]] = []
    rtts = {flow["rtt"] for flow in plain.get("flow", ())}
    if len(rtts) > 1:
        raise InputError(
            f"--real: flow.rtt: {' and '.join(sorted(rtts))}; the link has one delay: give all flows one rtt"
        )
    for flow in plain.get("flow", ()):
        kind = flow["kind"]
        if kind not in ("tcp", "cbr"):
            raise InputError(f'--real: flow.kind: "{kind}" is only simulated; real are "tcp" and "cbr"')
        odd = [key for key in _SIMULATED if kind == "tcp" and key in flow and flow[key] != usual.get(key)]
        if flow.get("cc") in ("dctcp", "prague"):
            odd = [key for key in odd if key != "ect"]
        if "bytes" in flow:
            odd.append("bytes")
        if kind == "tcp" and flow.get("rate", "unlimited") != "unlimited":
            odd.append("rate")
        if odd:
            raise InputError(f"--real: flow.{odd[0]}: only simulated; leave it out")
        for _ in range(flow["count"]):
            number = len(flows)
            flows.append({
                "number": number, "kind": kind, "cc": _NAMES.get(flow.get("cc", ""), flow.get("cc", "")),
                "ecn": flow["ecn"], "direction": flow.get("direction", "down"), "rtt_ms": 1e3 * _seconds(flow["rtt"]),
                "start_s": _seconds(flow["start"]) + _seconds(flow["stagger"]) * _spread(number),
                "stop_s": _seconds(flow["stop"]) if "stop" in flow else duration_s,
                "size": _core.quantity(str(flow.get("size", 0)), "size"),
                "rate_bps": float(_core.quantity(flow["rate"], "rate")) if kind == "cbr" else 0.0,
                "buffer": _core.quantity(str(flow.get("buffer", "6mb")), "size"),
            })  # fmt: skip
    if not flows:
        raise InputError("--real: there are no flows; give [[flow]] or --flow")
    return flows


def _spread(number: int) -> float:
    """Return the position of a flow's start within the stagger: evenly scattered, the same in every run."""
    return (number * 0.6180339887498949) % 1.0


def _check_system(controls: set[str]) -> list[str]:
    """List the congestion controls that this user may not use. Raises InputError for missing ones."""
    if not sys.platform.startswith("linux"):
        raise InputError("--real needs Linux: network namespaces and TUN devices")
    forbidden = []
    for control in sorted(controls):
        with socket.socket() as probe:
            try:
                probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            except PermissionError:
                forbidden.append(control)
            except OSError:
                have = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
                raise InputError(
                    f"--real: flow.cc: Linux's {control} is not in this kernel ({', '.join(have)})"
                ) from None
    return forbidden


def beside(
    scenario: Scenario,
    simulated: Outcome,
    queues: Sequence[Parsed | str],
    spec: Mapping[str, Any],
    on_done: Callable[[int], object],
) -> Outcome:
    """Run each queue once, in real time; return all runs, the real one after its queue's simulated ones.

    Ctrl-C or a failed run ends it early with `interrupted` set and the finished runs kept.
    """
    started = time.monotonic()
    scenario_hash = fingerprint(scenario)
    outcome = replace(simulated, jobs=[], by_job={})
    for done, queue in enumerate(queues):
        for index, job in enumerate(simulated.jobs):
            if job.queue == queue and index in simulated.by_job:
                outcome.by_job[len(outcome.jobs)] = simulated.by_job[index]
                outcome.jobs.append(job)
        if outcome.interrupted:
            continue
        try:
            own = scenario.replace(link={"queue": str(queue)})
            record = _run_one(own, spec) | {"scenario_hash": scenario_hash}
        except (KeyboardInterrupt, InputError) as error:
            outcome.interrupted = True
            outcome.failure = error if isinstance(error, InputError) else None
            continue
        outcome.by_job[len(outcome.jobs)] = record
        outcome.jobs.append(Job(record["queue"], record["seed"]))
        on_done(done + 1)
    outcome.wall_s += time.monotonic() - started
    return outcome


def _run_one(scenario: Scenario, spec: Mapping[str, Any]) -> dict[str, Any]:
    with files.temporary_folder("quell-real-") as folder:
        text = json.dumps({**spec, "folder": str(folder)})
        end = [sys.executable, "-I", str(Path(ends.__file__).resolve())]
        running = _core.Shell(
            scenario, [*end, "near", text], base_rtt=True, bin_s=scenario.duration_s / BINS,
            server=[*end, "far", text], mtu=1500,
        )  # fmt: skip
        until = time.monotonic() + _START_S
        while not (start := folder / "start").exists():
            _expect(running, until, "the two ends did not start")
        begin = float(start.read_text())
        _sleep_until(running, begin, begin + spec["duration_s"])
        running.restart(True)
        _sleep_until(running, begin + spec["warmup_s"], begin + spec["duration_s"])
        running.restart(False)
        while running.wait(0.02) is None:
            if time.monotonic() > begin + spec["duration_s"] + _START_S:
                raise InputError("--real: the sender did not end; this machine is too busy")
        down, up = json.loads(running.finish())
        near, far = (folder / "near.json", folder / "far.json")
        if not near.exists() or not far.exists():
            raise InputError("--real: an end of the flows failed; what it said is above")
        seen = [*json.loads(near.read_text()), *json.loads(far.read_text())]
    return _record(scenario, spec, down if _mostly_down(spec) else up, seen)


def _mostly_down(spec: Mapping[str, Any]) -> bool:
    return any(flow["direction"] == "down" for flow in spec["flows"])


def _expect(running: _core.Shell, until: float, what: str) -> None:
    if (status := running.wait(0.01)) is not None or time.monotonic() > until:
        raise InputError(
            f"--real: {what} (exit status {status}); this machine is too busy, or lets no {sys.executable} run"
        )


def _sleep_until(running: _core.Shell, moment: float, until: float) -> None:
    while (left := moment - time.monotonic()) > 0:
        if running.wait(min(left, 0.2)) is not None:
            raise InputError("--real: the flows ended early; what they said is above")


# The record. ----------------------------------------------------------------------------------------------------------


def _record(
    scenario: Scenario, spec: Mapping[str, Any], link: Mapping[str, Any], seen: Sequence[Any]
) -> dict[str, Any]:
    """Make a record like that of a simulated run from the bottleneck's record and both ends' measurements."""
    flows = [_flow(flow, spec, [s for s in seen if s["flow"] == flow["number"]]) for flow in spec["flows"]]
    rates = [flow["goodput_mbps"] for flow in flows if flow["kind"] == "tcp"]
    rtts = sorted(us / 1e3 for s in seen for us in s["rtts_us"])
    record = {key: value for key, value in link.items() if key not in ("live", "trace_hash")}
    return record | {
        "scenario": scenario.name, "queue": LABEL.format(queue=link["queue"]), "flows": flows,
        "goodput_mbps": sum(flow["goodput_mbps"] for flow in flows),
        "delivered_in_order_mbps": sum(flow["delivered_in_order_mbps"] for flow in flows),
        "jain": stats.jain(rates), "rtt_ms": _summary(rtts),
    }  # fmt: skip


def _flow(flow: Mapping[str, Any], spec: Mapping[str, Any], seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sent = next((s for s in seen if s["sends"]), None)
    got = sum(s["bytes"] for s in seen if not s["sends"])
    windows = sent["windows"] if sent else []
    span = spec["duration_s"] - spec["warmup_s"]
    return {
        "kind": flow["kind"], "cc": _QUELLS.get(flow["cc"], flow["cc"]),
        "direction": flow["direction"], "base_rtt_ms": flow["rtt_ms"],
        "goodput_mbps": got * 8e-6 / span, "delivered_in_order_mbps": got * 8e-6 / span,
        "retransmits": sent["resent"] if sent else 0, "cwnd_packets": sum(windows) / len(windows) if windows else 0.0,
        "rtt_ms": _summary(sorted(us / 1e3 for us in sent["rtts_us"])) if sent else None,
        "fct_ms": None, "completed": 0, "refused": 0, "delay_ms": None, "jitter_ms": None, "loss_rate": None,
    }  # fmt: skip


def _summary(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    quantiles = {f"p{100 * q:g}": stats.quantile(values, q) for q in (0.5, 0.95, 0.99)}
    return {"mean": stats.mean(values), **quantiles, "max": values[-1]}


def _seconds(text: str) -> float:
    return _core.quantity(text, "time") * 1e-9
