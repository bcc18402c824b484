"""An experiment: one scenario, several queues, several seeds; every run gives a record (docs/reference/records.md)."""

from __future__ import annotations

import json
import math
import os
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, Unpack

from quell import _core
from quell._core import InputError, Scenario
from quell.common.names import keywords
from quell.experiments.control import run_controlled
from quell.experiments.executor import HERE, ClusterError, Executor
from quell.experiments.queue import Controlled, OwnQueue, Parsed
from quell.inputs import flent, notes, shortcuts
from quell.inputs.shortcuts import Overrides
from quell.results.stats import row_name

T = TypeVar("T")

BINS = 300
"""Number of bins of a time series if no width is given."""


@keywords(Overrides)
def load(source: str | Path | Scenario | None = None, **overrides: Unpack[Overrides]) -> Scenario:
    """Find and check a scenario.

    `source` is a TOML file, the name of a built-in scenario, a data file of Flent (`*.flent.gz`: the measured line), a
    capture (`*.pcap`, `*.pcapng`: the captured line), TOML text (has a line break, or a `=` and is neither a file nor a
    name in `.toml`), or None: the built-in `home`, or a bare link if `rate`, `trace` or `tc` describes it.

    Raises InputError, one line that names the file, the key and what is allowed. Warns (UnitWarning) of rates in
    bytes per second.
    """
    given = shortcuts.plain(overrides)
    text, file = "", None
    lines = given.pop("tc", None)
    if lines:
        from quell.inputs import tc

        pasted = tc.read(tc.source(lines))
        tc.shortcuts(pasted, given, bare=source is None)
    found: Scenario | None = None
    if isinstance(source, Scenario):
        found = source
    elif source is not None and flent.is_flent(source):
        found = flent.Measured.load(source).scenario()
    elif source is not None and "." in str(source):
        from quell.inputs import capture

        if capture.is_capture(source):
            found = capture.Seen.load(source).scenario()
    if found is not None:
        scenario = Scenario(found, **given) if given else found
    elif isinstance(source, str) and _is_toml(source):
        scenario, text = Scenario(text=source, **given), source
    else:
        file = None if source is None else str(source)
        scenario = Scenario(file, **given)
    notes.warn(text, file, given)
    return tc.applied(pasted, scenario) if lines else scenario


def _is_toml(source: str) -> bool:
    if "\n" in source:
        return True
    return "=" in source and not source.endswith(".toml") and not os.path.exists(source)  # noqa: PTH110 (any length)


def rates(scenario: Scenario) -> str:
    """Return the rates of the bottleneck and of the other direction, as parsed, as text; empty for a cell."""
    link = tomllib.loads(scenario.toml()).get("link")
    if link is None:
        return ""
    return f"{rate(link)} down, {rate(link['up'])} up" if "up" in link else rate(link)


def rate(link: Mapping[str, Any]) -> str:
    """Return the rate of a link in a scenario file as text."""
    if "trace" in link:
        return f"trace {link['trace']}"
    if "schedule" in link:
        steps = sorted((rate for _, rate in link["schedule"]), key=lambda rate: _core.quantity(rate, "rate"))
        return f"{steps[0]} to {steps[-1]}"
    return str(link["rate"])


def fingerprint(scenario: Scenario) -> str:
    """Hash a scenario without its name, its seeds and the bottleneck's queue, which are in the records."""
    import hashlib  # loads OpenSSL, 4 MB

    plain = tomllib.loads(scenario.toml())
    for key in ("name", "seed", "seeds"):
        plain.pop(key, None)
    for table in ("link", "wifi"):
        plain.get(table, {}).pop("queue", None)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Job:
    """A run to be done."""

    queue: Parsed | str
    """Parsed words or a queue written in Python. Words that are not parsed are parsed in every run."""
    seed: int
    series_bin_s: float | None = None


@dataclass
class Outcome:
    """Results of an experiment."""

    scenario: Scenario | None
    """The scenario; None: only the records are known."""
    jobs: list[Job]
    by_job: dict[int, dict[str, Any]] = field(default_factory=dict)
    interrupted: bool = False
    failure: InputError | None = None
    """The error that interrupted it, if that was not Ctrl-C."""
    wall_s: float = 0.0
    packets: float = 0.0
    """Bottleneck packets simulated, warm-up included."""
    again: int = 0
    """Number of runs repeated with probes; `by_job` has only their responsiveness."""
    measured: tuple[list[float], list[float | None]] | None = None
    """Measured times, s, and wire rates, Mbit/s, which a report draws beside the simulated ones."""

    def add(self, more: Outcome) -> None:
        """Add the jobs and results of another outcome of the scenario."""
        self.by_job |= {len(self.jobs) + index: record for index, record in more.by_job.items()}
        self.jobs += more.jobs
        self.interrupted |= more.interrupted
        self.failure = self.failure or more.failure
        self.wall_s += more.wall_s
        self.packets += more.packets
        self.again += more.again

    @property
    def records(self) -> list[dict[str, Any]]:
        """Records of the finished runs, by queue in the requested order, then by ascending seed."""
        order = {queue: i for i, queue in enumerate(dict.fromkeys(job.queue for job in self.jobs))}
        return [self.by_job[i] for i in sorted(self.by_job, key=lambda i: (order[self.jobs[i].queue], i))]


def known_queues() -> list[dict[str, Any]]:
    """List the kinds of queues: `name`, `summary`, `source` and `options` (`name`, `value`, `default`, `meaning`)."""
    kinds: list[dict[str, Any]] = json.loads(_core.queues())
    return kinds


BY_NAME_ONLY = (
    *("fifo", "fixed"),  # equal to pfifo unless a knob is set
    *("pfifo_fast", "prio", "ets"),  # equal to pfifo if all flows have one priority
    "htb",  # equal to pfifo without classes
    *("sfq", "drr", "choke", "sfb", "hhf", "cebinae"),  # historical or for special uses
    *("cake_autorate", "sqm_autorate", "pace"),  # equal to cake at a constant rate without probes
)
"""Queues that are compared only if they are named."""


def every_queue(scenario: Scenario) -> list[_core.Queue]:
    """List the scenario's own queue, then every other kind with its defaults, except `BY_NAME_ONLY`."""
    own = _core.Queue(scenario.queue)
    kinds = [kind["name"] for kind in known_queues()]
    return [own] + [_core.Queue(kind) for kind in kinds if kind not in (str(own), *BY_NAME_ONLY)]


def plan(
    scenario: Scenario,
    queues: Sequence[Parsed | str],
    *,
    rounds: int = 0,
    series_bin_s: float | None = None,
    first_series: bool = False,
) -> list[Job]:
    """List the runs, seed by seed, so that an interrupted experiment has about as many runs of every queue.

    With `first_series` the runs of the first seed keep a time series for the report even if `series_bin_s` is None. The
    first `rounds * scenario.seeds` seeds are skipped.
    """
    first = scenario.duration_s / BINS if series_bin_s is None and first_series else series_bin_s
    return [
        Job(queue, scenario.run_seed(k), first if k == 0 else series_bin_s)
        for k in range(rounds * scenario.seeds, (rounds + 1) * scenario.seeds)
        for queue in dict.fromkeys(queues)
    ]


def run_jobs(
    scenario: Scenario,
    jobs: Sequence[Job],
    *,
    threads: int = 0,
    pcap: Path | None = None,
    on_record: Callable[[Outcome], object] | None = None,
    on: Executor = HERE,
) -> Outcome:
    """Run jobs, `threads` at a time (0: all cores), in this process or on a cluster.

    Ctrl-C, or the end of the cluster, ends it early with `interrupted` set and the finished runs kept.
    """
    outcome = Outcome(scenario, list(jobs))
    scenario_hash = fingerprint(scenario)
    started = time.monotonic()

    def done(index: int, record: Mapping[str, Any]) -> None:
        run = outcome.by_job[index] = {**record, "scenario_hash": scenario_hash}
        outcome.packets += run["packets_per_cpu_s"] * run["cpu_s"]
        outcome.wall_s = time.monotonic() - started
        if on_record is not None:
            on_record(outcome)

    try:
        if pcap is None:
            stream([(scenario, job) for job in jobs], done, threads=threads, on=on)
        else:
            [job] = jobs
            if isinstance(job.queue, Controlled):
                own = job.queue
                done(0, run_controlled(scenario, own.queue, job.seed, own.make(), job.series_bin_s, pcap))
            else:
                work = [(job.queue, job.seed, job.series_bin_s)]
                _core.run_many(scenario, work, lambda k, run: done(k, json.loads(run)), threads=threads, pcap=pcap)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except ClusterError as ended:
        outcome.interrupted, outcome.failure = True, ended
    outcome.wall_s = time.monotonic() - started
    return outcome


def run_each(
    runs: Sequence[tuple[Scenario, Job]],
    reduce: Callable[[dict[str, Any]], T],
    *,
    threads: int = 0,
    on_done: Callable[[int], object] = lambda _: None,
    on: Executor = HERE,
) -> list[T]:
    """Run jobs that differ in their scenarios, `threads` at a time (0: all cores), in this process or on a cluster.

    Return `reduce` of each record.

    `on_done` is called with the number of finished runs. Raises KeyboardInterrupt on Ctrl-C.
    """
    kept: dict[int, T] = {}

    def done(index: int, record: dict[str, Any]) -> None:
        kept[index] = reduce(record)
        on_done(len(kept))

    stream(runs, done, threads=threads, on=on)
    return [kept[index] for index in range(len(runs))]


def stream(
    runs: Sequence[tuple[Scenario, Job]],
    done: Callable[[int, dict[str, Any]], object],
    *,
    threads: int = 0,
    on: Executor = HERE,
) -> None:
    """Run jobs like `run_each`; call `done` with each job's index and record as it finishes, in no fixed order.

    Queues with a controller run last, one after another in this thread. Raises KeyboardInterrupt on Ctrl-C, after
    `done` got all finished records.
    """
    places, work, controlled = [], [], []
    for index, (scenario, job) in enumerate(runs):
        if isinstance(job.queue, Controlled):
            controlled.append((index, scenario, job, job.queue))
        else:
            places.append(index)
            work.append((scenario, job.queue, job.seed, job.series_bin_s))
    if on is HERE:
        _core.run_each(work, lambda k, record: done(places[k], json.loads(record)), threads=threads)
    else:
        for k, record in on.stream(run_one, work, at_once=threads):
            done(places[k], json.loads(record))
    for index, scenario, job, own in controlled:
        done(index, run_controlled(scenario, own.queue, job.seed, own.make(), job.series_bin_s))


def run_one(work: tuple[Scenario, _core.Queue | OwnQueue | str, int, float | None]) -> str:
    """Run one job, `(scenario, queue, seed, width of the series' bins in seconds)`; return its record as JSON."""
    records: list[str] = []
    _core.run_each([work], lambda _, record: records.append(record), threads=1)
    return records[0]


def recorded(file: str | Path, data: bytes) -> Outcome:
    """Read result records from `--json`, from a frame's write_json(), or from a program that uses quell's crates.

    Raises InputError, which names `file`.
    """
    _core.check_records(str(file), data)
    read = json.loads(data)
    records: list[dict[str, Any]] = read if isinstance(read, list) else [read]
    rows: dict[str, list[Any]] = {}
    for record in records:
        name = row_name(record)
        if rows.setdefault(name, _rows(record)) != _rows(record):
            raise InputError(f"{file}: its runs of {name} differ in hosts, tins or Wi-Fi queues")
    jobs = [Job(row_name(record), record["seed"]) for record in records]
    packets = math.fsum(record["packets_per_cpu_s"] * record["cpu_s"] for record in records)
    return Outcome(None, jobs, dict(enumerate(records)), packets=packets)


def _rows(record: Mapping[str, Any]) -> list[Any]:
    """Return the names of a run's hosts, Wi-Fi queues and tins: the rows of its tables, which show means over runs."""
    hosts = [(host["host"], host["direction"]) for host in record.get("hosts") or []]
    air = [(queue["from"], queue["to"], queue["ac"]) for queue in (record.get("wifi") or {}).get("queues") or []]
    tins = [[tin["name"] for tin in way.get("tins") or []] for way in (record, record.get("up") or {})]
    return [hosts, air, *tins]


def without_series(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copy records, leaving out the time series that only the report wanted."""
    return [{key: value for key, value in record.items() if key != "series"} for record in records]
