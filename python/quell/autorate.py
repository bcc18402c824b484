"""`quell compare autorate`: loops that set a shaper's rate, on lines of variable rate (docs/explanation/autorate.md).

The lines are generated. With `--trace` there is one line, whose traces are files or built in.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from quell._core import InputError, Scenario
from quell.common.console import bar, err, out
from quell.common.status import INTERRUPTED, OK
from quell.experiments import experiment
from quell.experiments.executor import executor
from quell.results.stats import mean
from quell.views.targets import Targets

NAME = "autorate"
OURS = "pace"
SEEDS = (101, 102, 103)
"""Default seeds of the lines. No constant of `pace` was chosen on lines with these seeds."""
MIN_UTILISATION, LEAD, REACHED, MAX_SHARE = 0.9, 0.05, 0.8, 0.5
"""Bars for `pace`, as fractions. Utilisation: the mean, or the lead over the best other loop. Delay: at most
`MAX_SHARE` of the lowest mean p95 of the added delay among other loops whose mean utilisation is at least `REACHED`."""
COLLAPSE_UTILISATION, COLLAPSE_MS = 0.4, 500.0
"""A loop collapses if in a loaded direction utilisation is lower, or the p95 of a call's added delay (ms) is higher."""
DIRECTIONS = ("down", "up")

Record = Mapping[str, Any]
Flows = Sequence[Any]


@dataclass(frozen=True)
class Line:
    """A line, generated or read from traces, with its mean rates, Mbit/s."""

    kind: str
    down: float
    up: float
    files: tuple[str, str] | None = None
    """The traces down and up; None: generated ones, by kind and seed."""

    def trace(self, direction: str, seed: int) -> str:
        """Return the name of the trace of one direction."""
        if self.files is not None:
            return self.files[DIRECTIONS.index(direction)]
        return f"builtin:{self.kind}{'-up' if direction == 'up' else ''}:{seed}"

    def rate(self, direction: str) -> float:
        """Return the mean rate of one direction, Mbit/s."""
        return self.down if direction == "down" else self.up


LINES = (Line("starlink", 60, 10), Line("docsis", 40, 10), Line("lte", 12, 6), Line("powerline", 30, 15))
SLEEPY = Line("sleepy", 20, 5)


@dataclass(frozen=True)
class Loop:
    """A loop that sets the rate: its queue words for a line and a direction."""

    name: str
    words: Callable[[Line, str], str]


def _ingress(words: str, direction: str) -> str:
    return f"{words} ingress" if direction == "down" else words


def _cake_autorate(_: Line, direction: str) -> str:
    return "cake_autorate ingress" if direction == "down" else "cake_autorate max 35mbit"


def _cake_autorate_told(line: Line, direction: str) -> str:
    mean = line.rate(direction)
    least, base, most = (max(100, round(mean * share)) for share in (200, 600, 2000))
    return _ingress(f"cake_autorate min {least}kbit base {base}kbit max {most}kbit", direction)


def _fixed(share: int) -> Callable[[Line, str], str]:
    """CAKE at a share, in percent, of the line's mean rate."""
    return lambda line, direction: _ingress(f"cake bandwidth {round(line.rate(direction) * 10 * share)}kbit", direction)


def _autorate_ingress(_: Line, direction: str) -> str:
    return "cake bandwidth 20mbit autorate-ingress ingress" if direction == "down" else "cake bandwidth 20mbit"


LOOPS = (
    Loop("none", lambda _, direction: "pfifo"),
    Loop("autorate-ingress", _autorate_ingress),
    Loop("cake_autorate", _cake_autorate),
    Loop("cake_autorate, told", _cake_autorate_told),
    Loop("sqm_autorate", lambda _, direction: _ingress("sqm_autorate", direction)),
    Loop(
        "sqm_autorate, told",
        lambda line, direction: _ingress(f"sqm_autorate base {round(line.rate(direction) * 1000)}kbit", direction),
    ),
    Loop(OURS, lambda _, direction: _ingress(OURS, direction)),
)
"""`told`: configured with the line's mean rate. cake_autorate then has a fifth of it as `min`, 0.6 of it as `base` and
twice it as `max`, each at least 100 kbit/s."""
PROBES_ONLY = Loop(f"{OURS} nopassive", lambda _, direction: _ingress(f"{OURS} nopassive", direction))
"""`pace` without the traffic's timestamps. Compared in the cases only: it differs only while no reflector answers."""
FIXED = (Loop("cake, half the mean", _fixed(50)), Loop("cake, 90 % of mean", _fixed(90)))
"""Constant rates, compared only on a line from traces."""


@dataclass(frozen=True)
class Case:
    """A situation in which loops collapse."""

    name: str
    line: Line
    loaded: Sequence[str]
    flows: Callable[[Flows], Flows]


def _lost(flows: Flows) -> Flows:
    """End the probes at 30 s, as if every reflector were lost."""
    return [flow | {"stop": "30s"} if flow["kind"] == "ping" else flow for flow in flows]


def _none(flows: Flows) -> Flows:
    """Remove the probes, as if no reflector were named."""
    return [flow for flow in flows if flow["kind"] != "ping"]


def _limited(flows: Flows) -> Flows:
    return [flow | {"loss": 0.7} if flow["kind"] == "ping" else flow for flow in flows]


CASES = (
    Case("reflectors lost", LINES[0], DIRECTIONS, _lost),
    Case("no reflectors", LINES[0], DIRECTIONS, _none),
    Case("reflectors limited", LINES[0], DIRECTIONS, _limited),
    Case("down only", LINES[0], ("down",), lambda flows: [flow for flow in flows if flow["kind"] != "upload"]),
    Case("up only", LINES[0], ("up",), lambda flows: [flow for flow in flows if flow["kind"] != "download"]),
    Case("modem sleeps", SLEEPY, DIRECTIONS, lambda flows: flows),
)


@dataclass(frozen=True)
class Result:
    """A loop's results by direction: utilisation of the modem's line (0 to 1), p95 of a call's added delay (ms)."""

    loop: str
    line: str
    loaded: Sequence[str]
    utilisation: dict[str, float]
    added_ms: dict[str, float]
    seed: int

    @property
    def collapsed(self) -> bool:
        """Return whether a loaded direction is below `COLLAPSE_UTILISATION` or above `COLLAPSE_MS`."""
        return any(
            self.utilisation[way] < COLLAPSE_UTILISATION or self.added_ms[way] > COLLAPSE_MS for way in self.loaded
        )

    def plain(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        ways = {way: {"utilisation": self.utilisation[way], "added_p95_ms": self.added_ms[way]} for way in self.loaded}
        return {"loop": self.loop, "line": self.line, "seed": self.seed, **ways, "collapsed": self.collapsed}


def measure(record: Record, loop: str, line: str, loaded: Sequence[str], seed: int) -> Result:
    """Return the result that a run's record contains."""
    modems = {"down": record["modem"], "up": record["up"]["modem"]}
    calls = {flow["direction"]: flow for flow in record["flows"] if flow["kind"] == "call"}
    added = {way: max(0.0, call["delay_ms"]["p95"] - call["base_rtt_ms"] / 2) for way, call in calls.items()}
    return Result(loop, line, loaded, {way: modems[way]["utilisation"] for way in DIRECTIONS}, added, seed)


def scenario_of(base: Scenario, line: Line, seed: int, loop: Loop) -> Scenario:
    """Return the scenario of a loop on a line."""
    down, up = (loop.words(line, way) for way in DIRECTIONS)
    keys: Any = {
        "queue": down,
        "modem_trace": line.trace("down", seed),
        "up": {"queue": up, "modem_trace": line.trace("up", seed)},
    }
    return base.replace(link=keys)


Planned = tuple[Scenario, Loop, str, Sequence[str], int]
"""A run: scenario, loop, name of the line, directions that are loaded, seed."""


def plan(base: Scenario, seeds: Sequence[int]) -> list[Planned]:
    """List the runs: every loop on every line with every seed, then every loop in every case with the first seed.

    `PROBES_ONLY` runs in the cases only.
    """
    flows: Flows = tomllib.loads(base.toml())["flow"]
    lines = [
        (scenario_of(base, line, seed, loop), loop, line.kind, DIRECTIONS, seed)
        for line in LINES
        for seed in seeds
        for loop in LOOPS
    ]
    cases = [
        (
            scenario_of(base, case.line, seeds[0], loop).replace(flow=case.flows(flows)),
            loop,
            case.name,
            case.loaded,
            seeds[0],
        )
        for case in CASES
        for loop in (*LOOPS, PROBES_ONLY)
    ]
    return lines + cases


def run(
    base: Scenario, seeds: Sequence[int] = SEEDS, *, threads: int = 0, ray: str | None = None
) -> tuple[list[Result], bool]:
    """Run the bench; return the results of the draws that all loops finished, and whether Ctrl-C ended it."""
    return _run(plan(base, seeds), threads, ray)


def traces(trace: str) -> tuple[str, str | None]:
    """Return the traces down and up: `NAME.up` beside `NAME.down`, if it exists; `builtin:lte-up` for `builtin:lte`.

    Raises InputError.
    """
    if trace.startswith("builtin:"):
        kind, *draw = trace.removeprefix("builtin:").split(":", 1)
        if kind.endswith("-up"):
            raise InputError(f"--trace {trace}: name the way down; the way up is found by it")
        up: str | None = ":".join(["builtin", f"{kind}-up", *draw])
    else:
        beside = Path(trace).with_suffix(".up")
        up = str(beside) if trace.endswith(".down") and beside.exists() else None
    for each in filter(None, (trace, up)):
        experiment.load(trace=each)
    return trace, up


def plan_traced(base: Scenario, trace: str, seeds: Sequence[int]) -> tuple[Line, list[Planned]]:
    """Return a line from traces, with its mean rates over the measured time, and the runs on it. Raises InputError.

    If there is no trace up, the ACKs pass a line with the trace down, and there are no uploads.
    """
    down, up = traces(trace)
    name = down.removeprefix("builtin:") if down.startswith("builtin:") else Path(down).stem
    line = Line(name, 1, 1, (down, up or down))
    loaded = DIRECTIONS if up else DIRECTIONS[:1]
    flows: Flows = [flow for flow in tomllib.loads(base.toml())["flow"] if up or flow["kind"] != "upload"]
    base = base.replace(flow=flows)
    bare = scenario_of(base, line, 0, LOOPS[0])
    [record] = experiment.run_each([(bare, experiment.plan(bare, [bare.queue])[0])], lambda record: record)
    line = Line(name, record["modem"]["capacity_mbps"], record["up"]["modem"]["capacity_mbps"], line.files)
    return line, [
        (scenario_of(base, line, seed, loop).replace(seed=seed), loop, name, loaded, seed)
        for seed in seeds
        for loop in (*LOOPS[:-1], *FIXED, LOOPS[-1])
    ]


def _run(runs: Sequence[Planned], threads: int, ray: str | None) -> tuple[list[Result], bool]:
    work = [(scenario, experiment.plan(scenario, [scenario.queue])[0]) for scenario, *_ in runs]
    finished: dict[int, Result] = {}
    interrupted = False
    with executor(ray) as on, bar("Simulating", len(work), "runs") as update:

        def done(index: int, record: dict[str, Any]) -> None:
            _, loop, line, loaded, seed = runs[index]
            finished[index] = measure(record, loop.name, line, loaded, seed)
            update(len(finished), "")

        try:
            experiment.stream(work, done, threads=threads, on=on)
        except KeyboardInterrupt:
            interrupted = True
    wanted = Counter((line, seed) for _, _, line, _, seed in runs)
    return whole([finished[index] for index in sorted(finished)], wanted), interrupted


def whole(results: Sequence[Result], wanted: Mapping[tuple[str, int], int]) -> list[Result]:
    """Leave out draws (a line or case and a seed) that not every loop has finished: their means are not comparable."""
    had = Counter((r.line, r.seed) for r in results)
    return [r for r in results if had[r.line, r.seed] == wanted[r.line, r.seed]]


@dataclass(frozen=True)
class Verdict:
    """`pace` compared with its bars in one direction: utilisation as a fraction, delays as mean p95."""

    direction: str
    utilisation: float
    best_other: float
    added_ms: float
    bound_ms: float
    bound_by: str

    def text(self) -> str:
        """Return it as one line of text."""
        used = self.utilisation >= MIN_UTILISATION or self.utilisation >= self.best_other + LEAD
        short = self.added_ms <= self.bound_ms
        return (
            f"{self.direction}: utilisation {self.utilisation:.0%} (bar: {MIN_UTILISATION:.0%}, or "
            f"{self.best_other + LEAD:.0%}): {'reached' if used else 'not reached'}; p95 of added delay "
            f"{self.added_ms:.0f} ms (bar: {self.bound_ms:.0f} ms, half of {self.bound_by}'s): "
            f"{'reached' if short else 'not reached'}"
        )


def means(results: Sequence[Result], loop: str, direction: str) -> tuple[float, float]:
    """Return a loop's mean utilisation (0 to 1) and mean p95 of the added delay (ms) over these results."""
    own = [r for r in results if r.loop == loop]
    return mean([r.utilisation[direction] for r in own]), mean([r.added_ms[direction] for r in own])


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    """Compare `pace` with its bars; of the other loops, `none` and, upwards, `autorate-ingress` do not count."""
    on_lines = [r for r in results if r.line in {line.kind for line in LINES}]
    all_verdicts = []
    for way in DIRECTIONS:
        left_out = {OURS, "none"} | ({"autorate-ingress"} if way == "up" else set())
        others = {loop.name: means(on_lines, loop.name, way) for loop in LOOPS if loop.name not in left_out}
        best = max(others.values())[0]
        reached = {name: delay for name, (used, delay) in others.items() if used >= REACHED}
        # If no loop reaches it, the bound is that of the loop with the highest utilisation.
        bound_by = min(reached, key=reached.__getitem__) if reached else max(others, key=others.__getitem__)
        used, added = means(on_lines, OURS, way)
        all_verdicts.append(Verdict(way, used, best, added, MAX_SHARE * others[bound_by][1], bound_by))
    return all_verdicts


def _table(results: Sequence[Result], names: Sequence[str], first: str) -> Table:
    """Lay out the loops on each line or in each case. `first`: title of the first column; empty with only one line."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    if first:
        table.add_column(first, no_wrap=True)
    table.add_column("loop", no_wrap=True)
    for way in DIRECTIONS:
        table.add_column(f"{way}:\nused", justify="right")
        table.add_column("p95\nadded", justify="right")
    for name in names:
        for i, loop in enumerate(dict.fromkeys(r.loop for r in results)):
            own = [r for r in results if r.loop == loop and name in (r.line, "all")]
            cells: list[str | Text] = []
            for way in DIRECTIONS:
                loaded = all(way in r.loaded for r in own)
                used, added = means(own, loop, way)
                cells += [f"{used:.0%}", f"{added:.0f} ms"] if loaded else ["", ""]
            collapsed = any(r.collapsed for r in own)
            style = "red" if collapsed else "bold" if loop == OURS else ""
            mark = " !" if collapsed else ""
            title = [name if i == 0 else ""] if first else []
            table.add_row(*title, loop + mark, *cells, style=style)
        if name != names[-1]:
            table.add_section()
    return table


def _headed(heading: str) -> None:
    out.print(Text.assemble((NAME, "bold"), (f"  {heading}", "dim")), soft_wrap=True)


def _legend() -> None:
    out.print(
        f"used: share of what the line offered; p95 added: delay of a call's packets beyond the base, 95th percentile; "
        f"!: a loaded direction used below {COLLAPSE_UTILISATION:.0%} or added above {COLLAPSE_MS:.0f} ms in some run",
        style="dim",
    )


def show(results: Sequence[Result], heading: str) -> None:
    """Print the tables and the verdicts."""
    there = {r.line for r in results}
    kinds = [line.kind for line in LINES]
    lines = [kind for kind in kinds if kind in there]
    cases = [case.name for case in CASES if case.name in there]
    on_lines = [r for r in results if r.line in kinds]
    _headed(heading)
    if lines:
        out.print(_table(on_lines, [*lines, "all"] if lines == kinds else lines, "line"))
    if cases:
        out.print(_table([r for r in results if r.line not in kinds], cases, "case"))
    _legend()
    for verdict in verdicts(results) if lines == kinds else ():
        out.print(f"{OURS} {verdict.text()}")


def _seeds(drawn: Sequence[int]) -> str:
    return f"seeds {drawn[0]} to {drawn[-1]}" if len(drawn) > 1 else f"seed {drawn[0]}"


def compare(
    *, trace: str | None = None, seeds: str | None, jobs: int, ray: str | None, duration: str | None, json: str | None
) -> int:
    """Run the bench for `quell compare autorate`. Raises InputError."""
    targets = Targets(json)
    base = experiment.load(NAME, duration=duration)
    if trace is None and base.duration_s <= 30:
        raise InputError("--duration: the bench takes more than 30s; write --duration 120s, the default")
    count = len(SEEDS) if seeds is None else int(seeds) if seeds.isdecimal() else 0
    if not 1 <= count <= 100:
        raise InputError(f"--seeds: '{seeds}' is no number from 1 to 100")
    drawn = range(SEEDS[0], SEEDS[0] + count)
    about = f"{base.duration_s:g} s, the first {base.warmup_s:g} s left out; "
    if trace is None:
        results, interrupted = run(base, drawn, threads=jobs, ray=ray)
        about += f"lines of {_seeds(drawn)}"
    else:
        line, runs = plan_traced(base, trace, drawn)
        results, interrupted = _run(runs, jobs, ray)
        rates = "/".join(f"{line.rate(way):.3g}" for way in runs[0][3])
        about += f"{line.kind}, {rates} Mbit/s on average; traffic of {_seeds(drawn)}"
    if results:
        if interrupted:
            targets.keep_earlier()
        targets.write_json([result.plain() for result in results])
    if results and not targets.quiet:
        if trace is None:
            show(results, about)
        else:
            _headed(about)
            out.print(_table(results, ["all"], ""))
            _legend()
    if interrupted:
        err.print(f"quell: interrupted: {len(results)} runs are shown, of the lines that every loop has finished")
        return INTERRUPTED
    err.print(f"{len(results)} runs", style="dim")
    return OK
