"""The report: a page (`quell.views.page`) of an experiment.

`page.html` is its body, `page.js` its charts; `air.py` adds a Wi-Fi cell's section, `shares.py` that of hosts and tins.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from string import Template
from typing import Any

from quell import _core
from quell.common.text import counted, counted_range
from quell.experiments.experiment import Outcome, known_queues
from quell.results.stats import MEASURES, TIE, Measure, Record, Row, best, differ, row_name, shown_measures, summarise
from quell.views.page import again, part
from quell.views.page import page as frame
from quell.views.report import air, people, shares

_CDF_POINTS = 160
_SHOWN_AT_FIRST = 5
_AGAIN = "The same command gives the same figures on any machine, with any number of cores."
_READ = "Made from saved records."
TOML = """
  <div {}>
  <p class="note">The scenario with every default filled in, as a file for <code>quell compare</code>:</p>
  <pre id="toml">{}</pre>
  </div>"""
"""Part that shows the scenario; hidden if only records are known."""
NARROW = {"goodput_mbps", "sojourn_ms.p95", "loss_rate"}
"""Columns of the table that are also shown on phones."""


def page(outcome: Outcome, command: str) -> str:
    """Return the report of an experiment as HTML; `command` repeats it."""
    records, scenario = outcome.records, outcome.scenario
    rows = summarise(records)
    first_seed = records[0]["seed"] if scenario is None else scenario.run_seed(0)
    queues = []
    for row in rows:
        runs = [r for r in records if row_name(r) == row.queue]
        shown = next((r for r in runs if r["seed"] == first_seed), runs[0])
        queues.append(_queue(row, runs, shown))
    data = {"queues": queues, "shown": _shown_at_first(rows), "warmup": _warmup(outcome), "measured": outcome.measured}
    if scenario is None:
        note, toml = _READ, TOML.format("hidden", "")
    else:
        note, toml = _AGAIN, TOML.format("", escape(scenario.toml().strip()))
    parts = {
        "people": people.section([row.queue for row in rows], records),
        "mean": "Mean over runs with 95 % intervals.",
        "figures": "Mean over runs, ± half the width of the 95 % confidence interval (Student’s t).",
        "table": _table(rows),
        "air": air.section([row.queue for row in rows], records),
        "shares": shares.section([row.queue for row in rows], records),
        "again": again(command, f'\n  <p class="note">{note}</p>', toml),
        "made": _made(outcome),
        "cite": _cite(rows),
    }
    title = records[0]["scenario"] if scenario is None else scenario.name
    bad = people.bad_kinds([row.queue for row in rows], records)
    # Queues behind which an application is bad are not recommended.
    good = summarise(record for record in records if not bad.get(row_name(record))) if any(bad.values()) else rows
    most = max((row.mean("goodput_mbps") or 0.0 for row in rows), default=0.0)
    finding = " ".join(filter(None, (people.finding(bad, records), _finding(good, most))))
    js = page_script() + '\nreport(JSON.parse($("data").textContent));'
    return framed(title, escape(_facts(outcome, rows)), _notice(outcome), finding, parts, data=data, js=js)


def framed(
    title: str, facts: str, notice: str, finding: str, parts: Mapping[str, str], *, data: Any, js: str, css: str = ""
) -> str:
    """Return a page with the report's layout; all texts except the title are HTML, `parts` are those of `page.html`."""
    about = f'<p class="facts">{facts}</p>\n  {notice}\n  <p class="finding">{finding}</p>'
    body = Template(part(__name__, "page.html")).substitute(parts, version=escape(_core.__version__))
    return frame(title, about, body, data=data, css=css, js=js)


def page_script() -> str:
    """Return the charts' code: its function `report` draws data into the page."""
    return part(__name__, "page.js")


def _queue(row: Row, runs: Sequence[Record], shown: Record) -> dict[str, Any]:
    measures = {
        m.key: None if (v := row.values[m.key]) is None else [_round(v.mean, 6), _round(v.half, 3)] for m in MEASURES
    }
    return {
        "name": row.queue,
        "front": row.on_front,
        "unsure": row.unsure,
        "m": measures,
        "cdf": pooled_cdf([r["sojourn_cdf"] for r in runs if r["sojourn_cdf"]]),
        "flows": _flows(runs),
        "series": _series(shown.get("series")),
    }


def _round(value: float | None, digits: int = 4) -> float | None:
    """Round to significant digits: the page shows no more, and becomes a third as long."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def pooled_cdf(cdfs: Sequence[Sequence[Sequence[float]]]) -> list[list[float | None]] | None:
    """Average the runs' distributions (step functions) at times evenly spaced on a logarithmic scale."""
    if not cdfs:
        return None
    known = sorted({ms for cdf in cdfs for ms, _ in cdf})
    positive = [ms for ms in known if ms > 0]
    apart = (positive[-1] / positive[0]) ** (1 / _CDF_POINTS) if positive else 1.0
    times = known[:1]
    for ms in known[1:-1]:
        if ms >= times[-1] * apart:
            times.append(ms)
    times += known[-1:] if len(known) > 1 else []
    split = [([ms for ms, _ in cdf], [share for _, share in cdf]) for cdf in cdfs]
    shares = [math.fsum(_step(xs, ys, ms) for xs, ys in split) / len(split) for ms in times]
    return [[_round(v) for v in times], [_round(v) for v in shares]]


def _step(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    k = bisect_right(xs, x)
    return ys[k - 1] if k else 0.0


def _flows(runs: Sequence[Record]) -> list[list[Any]]:
    count = min(len(r["flows"]) for r in runs)
    out: list[list[Any]] = []
    for k in range(count):
        flow = runs[0]["flows"][k]
        mean = math.fsum(r["flows"][k]["goodput_mbps"] for r in runs) / len(runs)
        waits = [r["flows"][k]["rtt_ms"]["mean"] - flow["base_rtt_ms"] for r in runs if r["flows"][k].get("rtt_ms")]
        queued = _round(math.fsum(waits) / len(waits)) if waits else None
        out.append([_label(flow), _round(mean), 1 if flow["kind"] == "tcp" else 0, queued])
    return out


def _label(flow: Mapping[str, Any]) -> str:
    more = f" {flow['kind']}" if flow["cc"] and flow["kind"] not in ("tcp", "web") else ""
    return f"{flow['cc'] or flow['kind']} {flow['base_rtt_ms']:g} ms{more}"


_TIMES = {"T": "target", "wait": "wait", "hold": "hold", "cap": "cap", "R": "rtt"}
"""Curves of a policy's times: their names, and their columns in the record."""


def _series(series: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Shorten a time series and leave out a knob that never changes."""
    if series is None:
        return None
    limit, probability = series["limit_packets"], series["probability"]
    return {
        "bin": series["bin_s"],
        "capacity": [_round(v) for v in series["capacity_mbps"]],
        "throughput": [_round(v) for v in series["throughput_mbps"]],
        "backlog": [_round(v) for v in series["backlog_ms"]],
        "limit": [_round(v) for v in limit] if len(set(limit)) > 1 else None,
        "probability": [_round(v * 100) for v in probability] if any(probability) else None,
    } | _policy(series.get("policy"))


def _policy(policy: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the readings and settings of the policy inside a queue, for the panels of the time series."""
    if policy is None:
        return {}

    def column(key: str, factor: float = 1.0) -> list[float | None]:
        return [None if v is None else _round(v * factor) for v in policy[key]]

    times = {name: column(f"{key}_ms") for name, key in _TIMES.items()}
    return {"times": times, "idle": column("idle", 100.0), "active": policy["flows"], "trusted": policy["trusted"]}


def _shown_at_first(rows: Sequence[Row]) -> list[int]:
    """Choose the queues shown initially: the file's own, a plain FIFO for comparison, then the middle of the front."""
    goodput = [row.mean("goodput_mbps") or 0.0 for row in rows]
    delay = [math.log(max(row.mean("sojourn_ms.p95") or 0.0, 0.01)) for row in rows]

    def distance_from_worst(i: int) -> float:
        return _share(goodput, i) + 1 - _share(delay, i)

    wanted = [0] + [i for i, row in enumerate(rows) if row.queue.split()[0] == "pfifo"]
    wanted += sorted(range(len(rows)), key=lambda i: (not rows[i].on_front, -distance_from_worst(i)))
    return sorted(list(dict.fromkeys(wanted))[:_SHOWN_AT_FIRST]) if rows else []


def _share(values: Sequence[float], i: int) -> float:
    """Return the position of a value between the minimum (0) and the maximum (1)."""
    return (values[i] - min(values)) / ((max(values) - min(values)) or 1.0)


def _facts(outcome: Outcome, rows: Sequence[Row]) -> str:
    scenario = outcome.scenario
    queues = counted(len(rows), "queue")
    each = f"{counted_range([row.runs for row in rows], 'run')} each"
    first = outcome.records[0] if outcome.by_job else None
    link = "" if first is None else f"{_rate(first['capacity_mbps'])}, {_traffic(first)} · "
    if scenario is None:
        return f"{link}{queues}, {each}" + ("" if first is None else f" · {first['measured_s']:g} s measured")
    return f"{link}{queues}, {each} · {scenario.duration_s:g} s simulated, the first {scenario.warmup_s:g} s left out"


def _warmup(outcome: Outcome) -> float:
    return 0.0 if outcome.scenario is None else outcome.scenario.warmup_s


def _made(outcome: Outcome) -> str:
    packets = f"{outcome.packets:,.0f} simulated packets"
    return packets if outcome.scenario is None else f"{packets} in {outcome.wall_s:.1f} s"


def _cite(rows: Sequence[Row]) -> str:
    """List the sources that a paper with these figures should cite."""
    sources = {kind["name"]: kind["source"] for kind in known_queues()}
    kinds = dict.fromkeys(kind for row in rows if (kind := row.queue.split()[0]) in sources)
    cited = "".join(f"; {escape(kind)}: {escape(sources[kind])}" for kind in kinds)
    return f"To cite: quell {escape(_core.__version__)} (CITATION.cff){cited}."


def _traffic(record: Record) -> str:
    """Describe the flows, with equal ones together."""
    kinds = Counter(_label(flow) for flow in record["flows"])
    named = [f"{count} × {label}" if count > 1 else label for label, count in kinds.most_common(4)]
    return " + ".join(named) + (" + …" if len(kinds) > 4 else "")


def _notice(outcome: Outcome) -> str:
    if not outcome.interrupted:
        return ""
    return f'<p class="notice">Interrupted: {len(outcome.by_job)} of {len(outcome.jobs)} runs had finished.</p>'


def _each(rows: Sequence[Row]) -> str:
    """Describe each queue's goodput and delay."""
    return " ".join(
        f"<b>{escape(r.queue)}</b>: {_rate(goodput)} of goodput, 95 % of packets through the queue within {_ms(p95)}."
        for r in rows
        if (p95 := r.mean("sojourn_ms.p95")) is not None and (goodput := r.mean("goodput_mbps")) is not None
    )


def _finding(rows: Sequence[Row], most: float) -> str:
    """Say which queue of the front to take for goodput and which for delay, if they differ.

    `most` is the highest mean goodput of all queues, Mbit/s.

    Of the queues that carry within 1 % of the front's most, the shortest is named for goodput. Of those whose delay
    does not differ from the front's least, the one that carries most is named for delay. Queues that are perhaps there
    by chance are named only if there is no other.
    """
    points = [
        (row, p95, goodput)
        for row in rows
        if (p95 := row.values["sojourn_ms.p95"]) is not None and (goodput := row.mean("goodput_mbps")) is not None
    ]
    if len(points) < 2:
        return _each(rows)
    front = [p for p in points if p[0].on_front]
    front = [p for p in front if not p[0].unsure] or front
    least = min((p95 for _, p95, _ in front), key=lambda p95: p95.mean)
    enough = (1 - TIE) * max(goodput for _, _, goodput in front)
    full = min((p for p in front if p[2] >= enough), key=lambda p: (p[1].mean, -p[2]))
    quick = max((p for p in front if not differ(p[1], least)), key=lambda p: (p[2], -p[1].mean))
    if not differ(full[1], least):
        quick = full
    if full[2] < (1 - TIE) * most:
        the_most = f"{_less(full[2], most)} than the most"
    else:
        the_most = "the most" if _rate(full[2]) == _rate(most) else "within 1 % of the most"
    delay = f"95 % of packets are through within {_ms(full[1].mean)}"
    if quick is full:
        text = f"Take {_name(full[0])}: it carries {_rate(full[2])}, {the_most}, and keeps the queue shortest: {delay}."
    else:
        text = (
            f"If goodput matters more, take {_name(full[0])}: it carries {_rate(full[2])}, {the_most}, and {delay}. "
            f"If delay matters more, take {_name(quick[0])}: {_ms(quick[1].mean)}, "
            f"with {_less(quick[2], full[2])} goodput."
        )
    if others := len(front) - len({full[0].queue, quick[0].queue}):
        text += f" {counted(others, 'other queue')} of the front (◆) {'lies' if others == 1 else 'lie'} between."
    plain = next((p for p in points if p[0].queue.split()[0] == "pfifo"), None)
    own = points[0]
    if plain is not None and own[0] != plain[0] and 0 < own[1].mean < plain[1].mean:
        gain, more = plain[1].mean / own[1].mean, own[2] / plain[2] - 1
        amount = f"{abs(more) * 100:.1f} % {'more' if more > 0 else 'less'}" if abs(more) >= 0.0005 else "as much"
        against, name = _name(plain[0]), _name(own[0])
        text += f" Against {against}, {name} cuts that delay by a factor of {gain:.2g} and carries {amount}."
    return text


def _less(goodput: float, than: float) -> str:
    return f"{(1 - goodput / than) * 100:.2g} % less"


def _name(row: Row) -> str:
    return f"<b>{escape(row.queue)}</b>{' (perhaps by chance)' if row.unsure else ''}"


def _rate(mbps: float) -> str:
    if mbps >= 999.5:
        return f"{mbps / 1000:.3g} Gbit/s"
    return f"{mbps:.2f} Mbit/s" if mbps < 99.95 else f"{mbps:.1f} Mbit/s"


def _ms(value: float) -> str:
    return f"{value:.3g} ms" if value < 999.5 else f"{value / 1000:.3g} s"


def _table(rows: Sequence[Row]) -> str:
    measures = shown_measures(rows)
    head = "".join(_heading(m) for m in measures)
    tops = {m.key: best(rows, m) for m in measures}
    body = "".join(_body_row(r, measures, tops) for r in rows)
    return f"<table><thead><tr><th>queue</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _heading(measure: Measure) -> str:
    name = f"sojourn<br>{measure.title}" if measure.key.startswith("sojourn") else measure.title
    down = ' data-down="1"' if measure.better > 0 else ""
    return f"<th{_wide(measure)}{down}>{name}<br>{measure.unit}</th>"


def _body_row(row: Row, measures: Sequence[Measure], tops: Mapping[str, set[str]]) -> str:
    mark = ""
    if row.unsure:
        mark = '<span class="d" title="on the front, perhaps by chance">◇</span>'
    elif row.on_front:
        mark = '<span class="d" title="on the front">◆</span>'
    cells = f"<tr><td>{escape(row.queue)}{mark}</td>"
    for m in measures:
        value = row.values[m.key]
        if value is None:
            cells += f'<td{_wide(m)} data-v="">–</td>'
            continue
        half = "" if value.half is None or m.letter else f" <small>±{value.half:.{m.digits}f}</small>"
        text = m.text(value.mean)
        if row.queue in tops[m.key]:
            text = f'<span class="best">{text}</span>'
        cells += f'<td{_wide(m)} data-v="{value.mean:.9g}">{text}{half}</td>'
    return cells + "</tr>"


def _wide(measure: Measure) -> str:
    return "" if measure.key in NARROW else ' class="wide"'
