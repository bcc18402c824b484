"""Search the constants of `pace` (crates/quell-qdisc/src/control/pace.rs) on generated lines.

    .venv/bin/python tools/pace.py down --trials 200

Each trial draws constants at random around the shipped ones, by factors up to --spread, and runs every line of `quell
compare autorate` with the seeds of --seeds. The shipped constants were chosen with seeds 1 to 8; the bench has other
seeds. The merit is the mean utilisation, minus one percentage point for each ms by which the mean p95 of the added
delay exceeds --delay (20 down, 36 up: those of the shipped constants). The first row has the shipped constants;
each further row has the best ones so far, as words of the queue. Both directions run in every trial, the other one with
the shipped constants.
"""

from __future__ import annotations

import argparse
import random
import sys
from statistics import fmean

from quell import autorate
from quell.experiments import experiment

_NAMES = ("target", "slack", "drain", "grow", "gain", "doubt", "most", "back", "least")
SHIPPED = {
    "down": dict(zip(_NAMES, (3, 5, 16, 4, 56, 600, 200, 104, 47), strict=True)),
    "up": dict(zip(_NAMES, (6, 44, 70, 14, 40, 550, 390, 103, 30), strict=True)),
}
"""Times in ms, shares in percent."""
TIMES = ("target", "slack", "drain")
LIMIT_MS = {"down": 20.0, "up": 36.0}


def words(way: str, law: dict[str, int]) -> str:
    """Return the queue words of a direction."""
    each = (f"{name} {value}{'ms' if name in TIMES else ''}" for name, value in law.items())
    return " ".join(["pace", *(["ingress"] if way == "down" else []), *each])


def drawn(way: str, rng: random.Random, spread: float, names: list[str]) -> dict[str, int]:
    """Draw constants around the shipped ones; the spread of `back` is a tenth of the others' spread."""
    law = dict(SHIPPED[way])
    for name in names or law:
        factor = spread ** (0.1 if name == "back" else 1.0)
        law[name] = max(1, round(law[name] * factor ** rng.uniform(-1, 1)))
    return law


def judge(way: str, laws: list[dict[str, int]], seeds: range, threads: int) -> list[dict[str, tuple[float, float]]]:
    """Run laws on all lines; return for each its mean utilisation and the p95 of its added delay, by line."""
    base = experiment.load(autorate.NAME)
    other = "up" if way == "down" else "down"
    runs = []
    for number, law in enumerate(laws):
        queues = {way: words(way, law), other: words(other, SHIPPED[other])}
        loop = autorate.Loop(str(number), lambda _, direction, queues=queues: queues[direction])  # type: ignore[misc]
        runs += [
            (autorate.scenario_of(base, line, seed, loop), loop, line.kind, seed)
            for line in autorate.LINES
            for seed in seeds
        ]
    work = [(scenario, experiment.plan(scenario, [scenario.queue])[0]) for scenario, *_ in runs]
    records = experiment.run_each(work, lambda record: record, threads=threads)
    found: list[dict[str, list[autorate.Result]]] = [{} for _ in laws]
    for record, (_, loop, kind, seed) in zip(records, runs, strict=True):
        result = autorate.measure(record, loop.name, kind, autorate.DIRECTIONS, seed)
        found[int(loop.name)].setdefault(kind, []).append(result)
    return [
        {kind: (fmean(r.utilisation[way] for r in own), fmean(r.added_ms[way] for r in own)) for kind, own in f.items()}
        for f in found
    ]


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=SHIPPED)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seeds", default="1-3", help="of the lines: FIRST-LAST")
    parser.add_argument("--spread", type=float, default=2.0)
    parser.add_argument("--delay", type=float, help="ms of mean p95 from which the merit falls")
    parser.add_argument("--only", default="", help="constants that are drawn: target,drain; default: all")
    parser.add_argument("--seed", type=int, default=1, help="of the draws")
    parser.add_argument("--jobs", type=int, default=0)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds, way = range(int(first), int(last or first) + 1), given.way
    if taken := set(seeds) & set(autorate.SEEDS):
        sys.exit(f"--seeds: {min(taken)} is a draw that quell compare autorate judges by")
    rng = random.Random(given.seed)
    names = given.only.split(",") if given.only else []
    limit, best, trial = given.delay or LIMIT_MS[way], float("-inf"), 0
    while trial < given.trials:
        laws = [dict(SHIPPED[way])] if trial == 0 else []
        laws += [drawn(way, rng, given.spread, names) for _ in range(min(8, given.trials - trial) - len(laws))]
        for law, by_line in zip(laws, judge(way, laws, seeds, given.jobs), strict=True):
            used, added = (fmean(values) for values in zip(*by_line.values(), strict=True))
            merit = used - max(0.0, added - limit) / 100
            trial += 1
            if merit > best:
                best = merit
                each = ", ".join(f"{kind} {u:.1%} {ms:.0f} ms" for kind, (u, ms) in by_line.items())
                print(
                    f"{trial:5} merit {merit:.4f}: {used:.1%}, {added:.1f} ms ({each})  {words(way, law)}", flush=True
                )


if __name__ == "__main__":
    main()
