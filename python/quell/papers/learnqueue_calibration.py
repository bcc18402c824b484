"""LearnQueue's unknown parameters: the best fit to one and five TCP flows (LQ3, LQ5), and the reward's optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from quell.papers.bench import mean
from quell.papers.learnqueue_cell import DEFAULT, LQ, Results
from quell.papers.paper import short
from quell.views.figures import Table

CALIBRATION = {"LQ3": 5.16, "LQ5": 4.08}
"""Printed delays that choose the readings, ms."""
LIMITS = (1, 2, 3, 4, 6, 8, 10, 14, 20, 28, 40, 60, 100, 200, 400)
"""Constant limits among which the one with the largest reward is found."""
GRID = tuple(
    " ".join(word for word in (LQ, *words) if word)
    for words in product(
        ("", "alpha 0.1", "alpha 0.3", "alpha 0.5"), ("", "initial 5"), ("", "bytes_max_delay"), ("", "printed_gamma")
    )
)
"""Readings near those that fit, for a finer calibration."""
EQUATION_13: Mapping[str, Callable[[int], float]] = {
    "bits, largest limit (default)": lambda _: 738.46,
    "bytes, largest limit (`bytes_max_delay`)": lambda _: 92.31,
    "bits, present limit (`current_max_delay`)": lambda limit: 1.846 * limit,
}
"""Readings of equation 13: max_delay, ms, as a function of the limit."""


def misfit(results: Results, queue: str) -> float:
    """Return the mean error of the delays of LQ3 and LQ5 in doublings of the printed ones."""
    off = [abs(math.log2(mean(x.delay for x in results[which, queue]) / ms)) for which, ms in CALIBRATION.items()]
    return mean(off)


def _known(results: Results, readings: Sequence[str]) -> list[str]:
    return [queue for queue in readings if ("LQ3", queue) in results]


def calibration(results: Results, readings: Sequence[str]) -> Table:
    """Return a table of the readings."""
    rows = []
    for queue in _known(results, readings):
        cells = [queue]
        for which in CALIBRATION:
            measured, base = results[which, queue], mean(x.goodput for x in results[which, DEFAULT])
            delays = [x.delay for x in measured]
            cells += [
                f"{mean(delays):.1f} ({min(delays):.1f} to {max(delays):.1f})",
                f"{mean(x.goodput for x in measured) / base:.3f}",
            ]
        rows.append([*cells, f"{misfit(results, queue):.2f}"])
    columns = ["reading", "LQ3, ms (seeds)", "throughput", "LQ5, ms (seeds)", "throughput", "doublings off"]
    return Table("Calibration on LQ3 (printed 5.16 ms) and LQ5 (4.08 ms); throughput over the default's", columns, rows)


def calibration_note(results: Results, readings: Sequence[str]) -> str:
    """Return, as text, how well the chosen reading fits."""
    delays = [[x.delay for x in results["LQ5", queue]] for queue in _known(results, readings)]
    wide = [max(ms) / min(ms) for ms in delays]
    named = {
        f"{LQ} current_max_delay": "with the present limit in equation 13",
        "learnqueue as_published": "as printed",
    }
    listed = ", ".join(f"{what} {misfit(results, queue):.1f}" for queue, what in named.items())
    return (
        f"`{LQ}` is {misfit(results, LQ):.1f} doublings off the two delays it was calibrated on; {listed}. "
        f"Delays of seeds differ by up to {max(wide):.0f} times: after 100 s the table is far from learned."
    )


def grid_note(results: Results, words: Sequence[str]) -> str:
    """Return, as text, the best of many readings that cost no throughput, and the results of a constant limit."""
    base = {which: mean(x.goodput for x in results[which, DEFAULT]) for which in CALIBRATION}

    def full(queue: str) -> bool:
        shares = (mean(x.goodput for x in results[which, queue]) / base[which] for which in CALIBRATION)
        return all(round(share, 2) >= 0.97 for share in shares)

    def delay(queue: str) -> float:
        return mean(x.delay for x in results["LQ5", queue])

    tried = list(dict.fromkeys(words))
    kept = [queue for queue in tried if full(queue)] or [LQ]
    best, least = min(kept, key=lambda queue: misfit(results, queue)), min(kept, key=delay)
    constant = [queue for which, queue in results if which == "LQ5" and queue.startswith("pfifo") and full(queue)]
    shortest = min(constant, key=delay)
    also = "which also" if least == best else f"and `{least}`"
    return (
        f"Of {len(tried)} readings (rate of learning, first limit, equation 13, gamma) {len(kept)} keep 97 % (to two "
        f"digits) of the default's throughput on LQ3 and LQ5. Of these `{best}` fits best ({misfit(results, best):.2f} "
        f"doublings off), {also} has the least delay on LQ5, {delay(least):.1f} ms; the constant limit of "
        f"`{shortest}` has {delay(shortest):.1f} ms."
    )


def _reward(results: Results, which: str, limit: int, max_delay_ms: float) -> float:
    """Return equation 14 of a constant limit's mean delay and loss, ms."""
    measured = results[which, f"pfifo limit {limit}"]
    delay, loss = mean(x.delay for x in measured), mean(x.loss for x in measured)
    return 0.5 * (30 - delay) + 0.5 * (max_delay_ms - 30) * (1 - loss)


def _best_limit(results: Results, which: str, limits: Sequence[int], reading: str) -> int:
    return max(limits, key=lambda n: _reward(results, which, n, EQUATION_13[reading](n)))


def optimum_table(results: Results, limits: Sequence[int]) -> Table:
    """Find the constant limit with the largest reward, for each reading of equation 13."""
    rows = []
    for reading in EQUATION_13:
        cells = [reading]
        for which in CALIBRATION:
            n = _best_limit(results, which, limits, reading)
            measured, base = results[which, f"pfifo limit {n}"], mean(x.goodput for x in results[which, DEFAULT])
            cells += [str(n), short(mean(x.delay for x in measured)), f"{mean(x.goodput for x in measured) / base:.3f}"]
        rows.append(cells)
    columns = ["equation 13"]
    for which in CALIBRATION:
        columns += [f"{which}: limit", "delay, ms", "throughput"]
    return Table("Optimum of the reward: the constant limit with the largest equation 14", columns, rows)


def optimum_note(results: Results, limits: Sequence[int]) -> str:
    """Describe the optimum of the reward."""
    best = {which: _best_limit(results, which, limits, next(iter(EQUATION_13))) for which in CALIBRATION}
    listed = [f"{short(mean(x.delay for x in results[w, f'pfifo limit {n}']))} ms on {w}" for w, n in best.items()]
    return (
        f"Among constant limits the default's reward is largest at {' and '.join(listed)}; with no reading of equation "
        "13 is it largest near both printed delays. A fully trained queue would be there, not at 4.08 ms; 100 s "
        "from a limit of one packet are only a part of the training."
    )
