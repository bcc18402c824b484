#!/usr/bin/env python3
"""Run the simulations from which `tools/pgo` makes a profile: hot_paths.py MODULE.

MODULE is built with counters. The runs have other rates, round trips, numbers of flows and limits than those by which
docs/lab/speed.md judges a build.
"""

import importlib.util
import sys

BULK = [
    ("400mbit", "3s", ["newreno:3"], "pfifo limit 700"),
    ("400mbit", "3s", ["cubic:20"], "pfifo limit 700"),
    ("300mbit", "3s", ["newreno:400"], "pfifo limit 700"),
    ("30mbit", "20s", ["cubic:3"], "pfifo limit 700"),
    ("30mbit", "20s", ["newreno:25"], "pfifo limit 700"),
    ("30mbit", "20s", ["newreno:400"], "pfifo limit 700"),
    ("5mbit", "60s", ["newreno:20"], "pfifo limit 700"),
    ("60mbit", "8s", ["bbr:5", "cubic:5"], "pfifo limit 700"),
    ("60mbit", "8s", ["prague:5", "cubic:5"], "dualpi2"),
    *[("60mbit", "8s", ["cubic:15"], queue) for queue in ("codel", "pie", "fq_codel", "cake", "hush")],
]
"""Rate, duration, flows and queue of bulk transfers."""

QUEUES = ["pfifo", "codel", "fq_codel", "cake", "pie", "dualpi2", "red", "hush"]
LEARNED = ["rlaqm", "learnqueue", "lfq", "a3c_l4s"]
SCENARIOS = [("home", "8s"), ("lte", "8s"), ("household", "8s"), ("wifi-house", "4s")]


def main() -> None:
    """Run all on one thread."""
    (file,) = sys.argv[1:]
    found = importlib.util.spec_from_file_location("_core", file)
    assert found and found.loader, file
    core = importlib.util.module_from_spec(found)
    found.loader.exec_module(core)
    jobs = [
        (core.Scenario(rate=rate, rtt="33ms", flows=flows, duration=duration, warmup="500ms"), queue, 1, None)
        for rate, duration, flows, queue in BULK
    ]
    for name, duration in SCENARIOS:
        scenario = core.Scenario(name, duration=duration, warmup="500ms")
        jobs += [(scenario, queue, 1, None) for queue in QUEUES + LEARNED]
    records: list[str] = []
    core.run_each(jobs, lambda _, record: records.append(record), threads=1)
    assert len(records) == len(jobs)


if __name__ == "__main__":
    main()
