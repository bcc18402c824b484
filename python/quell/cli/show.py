"""`quell show FILE`: the content of a file: what a queue has learned, a network's card, result records."""

from __future__ import annotations

import json as _json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from string import digits
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table as RichTable

from quell import _core
from quell._core import InputError
from quell.cli import watch
from quell.cli.options import Csv, Flent, Html, Parquet, ShownJson
from quell.common import origin
from quell.common.console import err, out
from quell.common.files import write_text
from quell.common.text import counted, one_line
from quell.experiments import experiment
from quell.inputs import flent as flent_file
from quell.results import behaviour, commands, stats
from quell.views import commands as view_of
from quell.views import table
from quell.views.figures import Axis, Figure, Line, Panel, page
from quell.views.targets import Targets, command, write_each

EXAMPLES = (
    "Examples:\n\n  quell show before.json after.json --html both.html\n\n"
    "  quell show learnqueue.safetensors --html table.html\n\n  quell show rl-aqm.safetensors\n\n"
    "  quell show runs.json --html report.html --csv runs.csv\n\n  quell show rrul.flent.gz --html beside.html"
)
LESS, MORE, UNTRIED = "▼", "▲", "·"
ROWS = 24
"""Number of limits in the terminal's table."""


@dataclass(frozen=True)
class QTable:
    """LearnQueue's Q-table: a row per limit, with a column for the next smaller and for the next larger limit."""

    card: dict[str, Any]
    limits: list[int]
    """Limits in packets, ascending."""
    values: list[tuple[float, float]]
    """Q, ms."""
    visits: list[tuple[int, int]]

    @classmethod
    def load(cls, path: str | Path) -> QTable:
        """Read a table that `quell train learnqueue` wrote. Raises InputError, one line that names the file."""
        core = _core.LearnQueueTable(str(path), _core.read_file(path, "model"))
        values, visits = ([(a, b) for a, b in rows] for rows in (core.values(), core.visits()))
        return cls(_json.loads(core.card), core.limits(), values, [(int(a), int(b)) for a, b in visits])

    def greedy(self, row: int) -> str:
        """Return LearnQueue's greedy action at a row's limit; in a tie, the larger limit is chosen."""
        if not any(self.visits[row]):
            return UNTRIED
        less, more = self.values[row]
        return LESS if less > more else MORE

    @property
    def top(self) -> int:
        """Number of rows up to the largest limit at which an action was tried."""
        return max((k + 1 for k, tried in enumerate(self.visits) if any(tried)), default=1)


def show(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Table or network, a .safetensors with a card; result records as --json writes them; "
            "a data file of Flent; samples of quell watch. Several: records of quell shell.",
        ),
    ],
    json: ShownJson = None,
    html: Html = None,
    parquet: Parquet = None,
    csv: Csv = None,
    flent: Flent = None,
) -> int:
    """Show a file: a learned policy, a network's card, result records, what Flent or quell watch measured."""
    targets = Targets(json, html, parquet, csv, flent)
    if len(files) > 1:
        return show_commands([(file, _core.read_file(file, "records")) for file in files], targets)
    [file] = files
    if flent_file.is_flent(file):
        _no_runs(file, targets)
        return _show_flent(flent_file.Measured.load(file), targets)
    if watch.is_watched(file):
        from quell.views import samples as watched

        _no_runs(file, targets)
        return watched.show(file, targets)
    data = _core.read_file(file, "records")
    if data.lstrip()[:1] in (b"[", b"{"):
        return _show_records(file, data, targets)
    _no_runs(file, targets)
    # A model file begins with the length of its header in eight bytes, then has the header in JSON.
    if data[8:9] != b"{":
        raise InputError(f"{file}: neither a model file nor result records; for a scenario write quell run {file}")
    header = _header(data)
    if (networks := _learned_networks(header)) is not None:
        return _show_learned_networks(file, networks, targets)
    if any(name.startswith("heads.") for name in header):
        return _show_network(file, behaviour.Network(str(file), data), targets)
    learned = QTable.load(file)
    plain = {"card": learned.card, "limits": learned.limits, "q_ms": learned.values, "visits": learned.visits}
    targets.write_json(plain, indent=None)
    if not targets.quiet:
        _print_table(learned)
    if html is not None:
        write_text(html, picture(file.name, learned))
        err.print(f"Page: {html}", style="dim", soft_wrap=True)
    return 0


def _header(data: bytes) -> dict[str, Any]:
    """Return the header of a model file; empty if it cannot be read."""
    try:
        header, _ = origin.split(data)
    except (ValueError, RecursionError):
        return {}
    return header


_NETWORKS = {
    "rlaqm networks": ("champion", "the one in force, and the newest"),
    "lfq networks": ("actor", "the one in force, and the critic"),
}
"""By kind of file: the tensor with the weights of the network in force, and a description of both networks."""


def _learned_networks(header: dict[str, Any]) -> dict[str, Any] | None:
    """Return the card of a file in which `quell live` keeps networks that have learned; None for other files."""
    try:
        card = _json.loads(header["__metadata__"]["quell"])
        acting, _ = _NETWORKS[card["kind"]]
        card["weights"] = header[acting]["shape"][0]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return dict(card)


def _show_learned_networks(file: Path, card: dict[str, Any], targets: Targets) -> int:
    if targets.html is not None:
        raise InputError(f"{file}: networks have no picture; leave --html out")
    targets.write_json({"card": card}, indent=None)
    if not targets.quiet:
        learner = card["kind"].replace("networks", "learn")
        _, names = _NETWORKS[card["kind"]]
        trained = f", which has learned from {card['batches']} batches" if card.get("batches") else ""
        out.print(f"two networks of {learner}, {card['weights']} weights each: {names}{trained}", soft_wrap=True)
        out.print(one_line(f"learned in {card.get('trained_on')}"), soft_wrap=True)
    return 0


def _show_network(file: Path, network: behaviour.Network, targets: Targets) -> int:
    does = _behaviour(network)
    if targets.html is not None:
        raise InputError(f"{file}: a network has no picture; leave --html out")
    targets.write_json({"card": network.card, "behaviour": does}, indent=None)
    if not targets.quiet:
        _print_card(network.card)
        _print_behaviour(does)
    return 0


def _show_records(file: Path, data: bytes, targets: Targets) -> int:
    outcome = experiment.recorded(file, data)
    if commands.are_commands(outcome.records):
        return show_commands([(file, data)], targets)
    if not targets.quiet:
        rows = stats.summarise(outcome.records)
        out.print(table.compare(rows, out.width))
        if quality := table.applications(outcome.records, out.width):
            out.print(quality)
        out.print(table.legend(rows, out.width, styled=out.is_terminal))
    targets.write(outcome, series=True, json=_json.loads(data))
    return 0


def _no_runs(file: Path, targets: Targets) -> None:
    """Refuse options that write result records. Raises InputError."""
    for option in ("parquet", "csv", "flent"):
        if getattr(targets, option) is not None:
            raise InputError(f"--{option}: {file} has no records of simulated runs; leave it out")


def show_commands(given: Sequence[tuple[Path, bytes]], targets: Targets) -> int:
    """Show records of `quell shell`, several files side by side."""
    runs, names, plain = [], [], []
    for file, data in given:
        found = experiment.recorded(file, data).records
        if not commands.are_commands(found):
            raise InputError(f"{file}: not records of quell shell; of other records show one file at a time")
        runs += commands.runs(found)
        names += [file.name] * (len(found) // 2)
        plain += found
    _no_runs(given[0][0], targets)
    runs = commands.distinct(runs, names)
    if not targets.quiet:
        out.print(view_of.table(runs, out.width))
        if (flows := view_of.flows(runs)) is not None:
            out.print(flows)
    writes = [
        partial(targets.write_json, plain, indent=None),
        partial(targets.write_page, lambda: view_of.page(runs, view_of.rates(runs), command()), "Report"),
    ]
    write_each(writes)
    return 0


def _show_flent(measured: flent_file.Measured, targets: Targets) -> int:
    series = {name: values for name, values in measured.results.items() if any(v is not None for v in values)}
    loaded = {name: [v for i in measured.loaded() if (v := values[i]) is not None] for name, values in series.items()}
    if not targets.quiet:
        out.print(one_line(measured.summary()), soft_wrap=True)
        shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        shown.add_column("series")
        for title in ("samples", "mean", "p5", "p50", "p95"):
            shown.add_column(title, justify="right", no_wrap=True)
        for name, values in loaded.items():
            if values and name.startswith(("TCP ", "Ping ")) and "::tcp_" not in name:
                quantiles = [f"{stats.quantile(values, q):.2f}" for q in (0.05, 0.5, 0.95)]
                shown.add_row(one_line(name), str(len(values)), f"{stats.mean(values):.2f}", *quantiles)
        out.print(shown)
        out.print("TCP: Mbit/s, Ping: ms, while the line was loaded", style="dim")
    targets.write_json(
        {"test": measured.test, "title": measured.title, "x_s": measured.x, "series": series}, indent=None
    )
    if targets.html is not None:
        write_text(targets.html, beside(measured))
        err.print(f"Page: {targets.html}", style="dim", soft_wrap=True)
    return 0


def beside(measured: flent_file.Measured) -> str:
    """Return a page with the measured series beside those of a simulated run of the measured line."""
    runs = [("measured", measured.x, measured.results)]
    for queue in ("pfifo", "fq_codel"):
        scenario = measured.scenario(up_queue=queue).replace(seeds=1)
        jobs = experiment.plan(scenario, [queue], series_bin_s=flent_file.STEP_S)
        [record] = experiment.run_jobs(scenario, jobs).records
        document = flent_file.document(record, datetime.now(UTC))
        runs.append((queue, document["x_values"], document["results"]))
    time = Axis("time, s")
    panels = []
    for way in ("download", "upload"):
        if measured.streams(way):
            lines = [_line(name, x, [results.get(f"TCP {way} sum")], k) for k, (name, x, results) in enumerate(runs)]
            panels.append(Panel(f"{way.capitalize()}, all streams", time, Axis("Mbit/s"), lines))
    pings = [
        _line(name, x, [v for key, v in results.items() if key.startswith("Ping (ms)") and not key.endswith("avg")], k)
        for k, (name, x, results) in enumerate(runs)
    ]
    panels.append(Panel("Round trip, mean of the pings", time, Axis("ms"), pings))
    figure = Figure(
        "beside",
        "Measured and simulated",
        f"Simulated: {experiment.rates(scenario)}, as many CUBIC flows as the test had streams, the lowest ping as "
        "base round trip, the named queue in both directions. Their round trip is what the TCP senders saw.",
        panels,
    )
    title = f"{measured.path.name}: {measured.test}"
    about = (title, measured.title, measured.summary())
    return page(*about, [figure], command=command(), tab=measured.path.name)


def _line(name: str, x: Sequence[float], series: Sequence[flent_file.Values | None], group: int) -> Line:
    means = flent_file.over([values for values in series if values is not None], stats.mean)
    return Line(name, list(zip(x, means, strict=False)), "line", group)


def _about(table: QTable) -> str:
    p = table.card["params"]
    tried = sum(n > 0 for pair in table.visits for n in pair)
    return (
        f"delta {p['delta']:g}, eta {p['eta']:g}, target {p['target_ns'] / 1e6:g} ms, "
        f"{counted(len(table.limits), 'limit')} from 1 to {p['max_size']}"
        f"{', the published reward' if p.get('published_reward', True) else ''}"
        f"{', integers' if p['fixed_point'] else ''}; {tried} of {2 * len(table.limits)} pairs tried, "
        f"limit {table.card['limit']} at the end"
    )


def _numbered(names: Iterable[str]) -> list[str]:
    """Write three names or more that differ by consecutive numbers at their ends as one: `backlog_5 to 14`."""
    runs: list[list[str]] = []
    before = None
    for name in names:
        stem = name.rstrip(digits)
        number = name[len(stem) :]
        here = (stem, int(number)) if 0 < len(number) < 9 else None
        if here is not None and before == (stem, here[1] - 1):
            runs[-1].append(name)
        else:
            runs.append([name])
        before = here
    out = []
    for run in runs:
        last = run[-1][len(run[-1].rstrip(digits)) :]
        out += run if len(run) < 3 else [f"{run[0]} to {last}"]
    return out


def _print_card(card: dict[str, Any]) -> None:
    heads = ", ".join(f"{h['name']} ({', '.join(h['outputs'])})" for h in card["heads"])
    inputs = ", ".join(_numbered(i["name"] for i in card["inputs"]))
    lines = [card["what"], f"reads {inputs}", f"gives {heads}"]
    lines += [f"trained on {card['trained_on']}", *(f"{k}: {v}" for k, v in card["results"].items())]
    lines += origin.lines(card)
    for line in lines:
        out.print(one_line(line), soft_wrap=True)


def _print_table(table: QTable) -> None:
    for line in (_about(table), f"learned in {table.card['trained_on']}"):
        out.print(one_line(line), soft_wrap=True)
    out.print("".join(map(table.greedy, range(table.top))), soft_wrap=False)
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in ("limit\npackets", "greedy", "Q less\nms", "Q more\nms", "visits\nless", "visits\nmore"):
        shown.add_column(title, justify="right", no_wrap=True)
    for rows in _groups(table.top):
        votes = [table.greedy(row) for row in rows]
        tried = [row for row in rows if table.greedy(row) != UNTRIED]
        q = [_mean([table.values[row][a] for row in tried]) for a in (0, 1)]
        n = [str(sum(table.visits[row][a] for row in rows)) for a in (0, 1)]
        first, last = table.limits[rows[0]], table.limits[rows[-1]]
        name = f"{first}" if first == last else f"{first} to {last}"
        shown.add_row(name, "".join(f"{v}{votes.count(v)}" for v in (LESS, MORE, UNTRIED) if v in votes), *q, *n)
    out.print(shown)
    last = table.limits[table.top - 1]
    out.print(f"{LESS} a smaller limit, {MORE} a larger one, {UNTRIED} never tried, limits 1 to {last}", style="dim")


def _behaviour(network: behaviour.Network) -> list[dict[str, Any]]:
    """Return a network's behaviour over a grid of its inputs and over a recorded run."""
    run, rows = behaviour.recorded(network)
    out = []
    for where, points in (("a grid of the inputs", behaviour.grid(network)), (run, rows)):
        if points:
            out += [
                {"over": where, "points": len(points), **asdict(head), "constant": head.constant}
                for head in behaviour.over(network, points)
            ]
    return out


MAX_INPUTS = 6
"""Largest number of inputs whose sensitivity the terminal shows."""


def _print_behaviour(does: Sequence[dict[str, Any]]) -> None:
    for head in does:
        if head["actions"] is not None:
            answers = ", ".join(f"{name} {100 * share:.1f} %" for name, share in head["actions"].items() if share)
        else:
            least, mean, greatest = head["values"]
            answers = f"{least:.3g} to {greatest:.3g}, mean {mean:.3g}"
        constant = "constant: " if head["constant"] else ""
        where = f"{head['head']} over {head['over']} ({head['points']} points)"
        out.print(one_line(f"{where}: {constant}{answers}"), soft_wrap=True)
        if not head["constant"]:
            ordered = sorted(head["sensitivity"].items(), key=lambda item: -item[1])[:MAX_INPUTS]
            listed = ", ".join(f"{name} {100 * share:.0f} %" for name, share in ordered)
            out.print(one_line(f"  changed by another value of {listed}"), soft_wrap=True)


def _groups(top: int) -> list[range]:
    size = -(-top // ROWS)
    return [range(first, min(first + size, top)) for first in range(0, top, size)]


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.1f}" if values else "–"


def picture(name: str, table: QTable) -> str:
    """Return a page with a table's Q, the greedy policy, and the number of visits of each pair."""
    tops, limits = range(table.top), table.limits
    ends = {(0, 0), (len(limits) - 1, 1)}

    def q(action: int) -> list[tuple[float, float | None]]:
        known = {n for n in tops if table.visits[n][action] and (n, action) not in ends}
        return [(limits[n], table.values[n][action] if n in known else None) for n in tops]

    def gain(sign: str) -> list[tuple[float, float | None]]:
        inner = [n for n in tops if 0 < n < len(limits) - 1 and table.greedy(n) == sign]
        return [(limits[n], table.values[n][1] - table.values[n][0]) for n in inner]

    def tried(action: int) -> list[tuple[float, float | None]]:
        return [(limits[n], table.visits[n][action] or None) for n in tops]

    limit = Axis("limit, packets")
    figure = Figure(
        "policy",
        "The policy",
        "Without exploring the limit goes down where the smaller limit has the larger Q, else up. What was rarely "
        "tried is hardly known, and what was never tried counts 0. Steps out of the range are left out.",
        [
            Panel("Q of both actions", limit, Axis("Q, ms"),
                  [Line("smaller limit", q(0), "line", 0), Line("larger limit", q(1), "line", 1)]),
            Panel("What a larger limit is worth", limit, Axis("Q more - Q less, ms"),
                  [Line("smaller limit", gain(LESS), "dots", 0), Line("larger limit", gain(MORE), "dots", 1)]),
            Panel("How often tried", limit, Axis("visits", True),
                  [Line("smaller limit", tried(0), "line", 0), Line("larger limit", tried(1), "line", 1)]),
        ],
    )  # fmt: skip
    about = (f"LearnQueue's table {name}", table.card["trained_on"], _about(table))
    return page(*about, [figure], command=command(), tab=name)
