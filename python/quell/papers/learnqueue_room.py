"""LearnQueue's Table 2 on a channel that carries more than the offered load, except during bursts of noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quell._core import LearnQueueTable, Scenario
from quell.common import files
from quell.inputs.keys import Wifi
from quell.papers.bench import Bench, mean
from quell.papers.claim import Claim, estimate
from quell.papers.learnqueue_cell import LQ, cell, udp
from quell.papers.learnqueue_table2 import (
    BIN_S,
    DELAYS,
    LIMITS,
    LOSSES,
    OFFERED,
    PRINTED,
    Measurements,
    Room,
    reduce,
    traded,
    weights,
)
from quell.papers.paper import short
from quell.papers.study import Study
from quell.train.learnqueue import episode
from quell.views.figures import Table

WHAT = "39 Mbit/s, bursts of 100 ms after 500 ms"
WIFI: Wifi = {"mcs": 4, "noise": {"loss": 1.0, "quiet": "500ms", "noisy": "100ms"}}
PRESENT = f"{LQ} current_max_delay"
RUNS = 10
"""Number of runs from which a table is learned."""
MAX_DELAY_MS = 738.46

_WHERE = "with spare capacity, with the present limit in equation 13"
CLAIMS = [
    Claim("LQ12.room.delays", f"{DELAYS}, {_WHERE}", "ms"),
    Claim("LQ12.room.losses", f"{LOSSES}, {_WHERE}", "%"),
]


def measure(study: Study, bench: Bench) -> Room:
    """Measure Table 2 on this channel; return the data for the figure."""
    seconds, runs = (20, 2) if bench.quick else (100, RUNS)
    scenario = cell([udp(round(OFFERED["18 Mbit/s of UDP payload"], 3))], wifi=WIFI, seconds=seconds)
    with files.temporary_folder("quell-paper-") as folder:
        learned = {delta: _learned(scenario, delta, runs, folder) for delta in PRINTED}
        words = {(q, delta): weights(q, delta) for q in (LQ, PRESENT) for delta in PRINTED}
        words |= {("learned", delta): table for delta, table in learned.items()}
        words |= {("constant", float(n)): f"pfifo limit {n}" for n in LIMITS}
        settings = {key: (scenario, queue) for key, queue in words.items()}
        got = bench.seeds_of("Table 2 with room", settings, reduce, bin_s=BIN_S)
    constant = [got["constant", float(n)] for n in LIMITS]
    rows = []
    for delta, (delay, loss) in PRINTED.items():
        rewards = [_reward(measured, delta) for measured in constant]
        best = rewards.index(max(rewards))
        cells = [f"{delta}", _pair(delay, loss), str(LIMITS[best])]
        rows.append(
            [*cells, *(_text(x) for x in (constant[best], got[PRESENT, delta], got[LQ, delta], got["learned", delta]))]
        )
    columns = ["delta", "printed", "limit with the best reward", "its result", f"`{PRESENT}`", f"`{LQ}`",
               f"`{LQ}` after {runs} runs"]  # fmt: skip
    study.tables.append(Table(f"Table 2 with spare capacity ({WHAT}): delay, ms, and loss, %", columns, rows))
    for name, row in (("delay", "LQ12.room.delays"), ("loss", "LQ12.room.losses")):
        means = [mean(getattr(x, name) for x in got[PRESENT, delta]) for delta in PRINTED]
        why = f"{name} at delta 0.9/0.7/0.5/0.3/0.1: {'/'.join(short(m) for m in means)}; see the table of {WHAT}"
        present = {delta: got[PRESENT, delta] for delta in PRINTED}
        study.put(row, estimate(traded(present, name)), why)
    delays = {q: "/".join(short(_means(got[q, delta])[0]) for delta in PRINTED) for q in (PRESENT, LQ, "learned")}
    study.notes.append(
        f"Where the channel carries more than is offered between its bursts ({WHAT}), limits do trade delay for loss. "
        f"At delta 0.9/0.7/0.5/0.3/0.1 `{PRESENT}` has {delays[PRESENT]} ms, `{LQ}` {delays[LQ]} ms and after {runs} "
        f"runs {delays['learned']} ms: how far the limit gets from one packet in 100 s matters more than the weights."
    )
    return Room(WHAT, [_means(x) for x in constant], [_means(got[PRESENT, delta]) for delta in PRINTED])


def _learned(scenario: Scenario, delta: float, runs: int, folder: Path) -> str:
    """Return queue words that start from a table learned in `runs` runs, whose seeds differ from the measured ones."""
    table: LearnQueueTable | None = None
    for k in range(runs):
        _, table = episode(scenario, weights(LQ, delta), scenario.run_seed(1000 + k), table=table)
    path = folder / f"{delta}.safetensors"
    if table is not None:
        path.write_bytes(table.save(f"{runs} runs", scenario.seed))
    return f"learnqueue table {path}"


def _reward(measured: Sequence[Measurements], delta: float) -> float:
    """Return the reward of equation 14, ms, for the mean delay and loss of a constant limit."""
    delay, loss = _means(measured)
    return delta * (30 - delay) + (1 - delta) * (MAX_DELAY_MS - 30) * (1 - loss / 100)


def _means(measured: Sequence[Measurements]) -> tuple[float, float]:
    return mean(x.delay for x in measured), mean(x.loss for x in measured)


def _text(measured: Sequence[Measurements]) -> str:
    return _pair(*_means(measured))


def _pair(delay: float, loss: float) -> str:
    return f"{short(delay)}, {loss:.2f}"
