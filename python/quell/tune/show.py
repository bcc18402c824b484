"""Tables of `quell tune` for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from quell.common.text import one_line
from quell.results import stats
from quell.results.stats import Estimate
from quell.tune.judge import Judged, Metrics
from quell.tune.line import Line
from quell.tune.search import Found
from quell.tune.space import Setting
from quell.tune.verify import Verified

_ROWS = (
    ("grade_ms", "grade", "", 0),
    ("rpm", "responsiveness", "RPM", 0),
    ("mos", "call", "MOS", 2),
    ("goodput_mbps.down", "download", "Mbit/s", 2),
    ("goodput_mbps.up", "upload", "Mbit/s", 2),
    ("p95_ms.down", "waits down, p95", "ms", 1),
    ("p95_ms.up", "waits up, p95", "ms", 1),
    ("objective", "objective", "0..1", 3),
)
_VERIFIED = (
    ("goodput_mbps.down", "download Mbit/s", 2),
    ("goodput_mbps.up", "upload Mbit/s", 2),
    ("mos", "call MOS", 2),
    ("game_p99_ms", "game, p99 ms", 1),
    ("objective", "objective 0..1", 3),
)
_SHORT = {
    "rpm": "RPM", "goodput_mbps.down": "down\nMbit/s", "goodput_mbps.up": "up\nMbit/s",
    "p95_ms.down": "p95 down\nms", "p95_ms.up": "p95 up\nms", "objective": "objective\n%",
}  # fmt: skip


def heading(line: Line, aims: str) -> Text:
    """Return the line's name and facts."""
    return Text.assemble((one_line(line.name), "bold"), (f"  {facts(line, aims)}", "dim"))


def facts(line: Line, aims: str) -> str:
    """Write rates, round trip, framing and aims."""
    framing = f", {line.framing}" if line.framing else ""
    rates = "/".join(f"{rate:g}" for rate in line.rates)
    return f"{rates} Mbit/s, {line.rtt_ms:g} ms{framing}; for {aims}"


def compared(judged: Judged) -> Table:
    """Return a table of the current setting, the best default and the tuned setting."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    columns = [("now", judged.now), (f"default\n{judged.default.kind}", judged.of_default)]
    if judged.tuned:
        columns += [(f"tuned\n{judged.setting.kind}", judged.of_setting), ("tuned, on\nother lines", judged.held_out)]
    table.add_column("")
    for title, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for key, name, unit, digits in _ROWS:
        table.add_row(f"{name} {unit}".strip(), *(_cell(metrics, key, digits) for _, metrics in columns))
    return table


def _cell(metrics: Metrics | None, key: str, digits: int) -> Text:
    value = None if metrics is None else metrics.values[key]
    if value is None:
        return Text("–", "dim")
    if key == "grade_ms":
        return Text(stats.grade(value.mean))
    return _with_half(value, digits)


def _with_half(value: Estimate, digits: int, sign: str = "") -> Text:
    text = Text(f"{value.mean:{sign}.{digits}f}")
    if value.half is not None:
        text.append(f" ±{value.half:.{digits}f}", "dim")
    return text


def verified(found: Sequence[Verified]) -> Table:
    """Return a table of the same traffic in simulation and on Linux."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("simulated → real Linux TCP")
    for one in found:
        table.add_column(one.name, justify="right", no_wrap=True)
    for key, name, digits in _VERIFIED:
        cells = []
        for one in found:
            ways = (one.simulated[key], one.linux[key])
            cells.append(" → ".join("–" if e is None else f"{e.mean:.{digits}f}" for e in ways))
        table.add_row(name, *cells)
    return table


def brought(judged: Judged) -> Table:
    """Return a table of the effect of leaving out each option."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("left out", max_width=28)
    for title in _SHORT.values():
        table.add_column(title, justify="right", no_wrap=True)
    digits = {key: digits for key, _, _, digits in _ROWS}
    whole = judged.of_setting.values["objective"] if judged.of_setting else None
    for reason in judged.why:
        cells = []
        for key in _SHORT:
            value = reason.effect.values[key]
            if value is None:
                cells.append("–")
            elif key == "objective" and whole is not None:
                cells.append(f"{100 * value.mean / whole.mean:+.1f}")
            else:
                cells.append(f"{value.mean:+.{digits[key]}f}")
        table.add_row(reason.option, *cells)
    return table


def verdict(judged: Judged) -> str:
    """Return whether to change anything, and whether the search found a gain that holds on other seeds and lines."""
    if judged.leave:
        assert judged.gain_over_now is not None
        gain = judged.gain_over_now
        return (
            "Leave it as it is: the objective of what would be offered differs from that of what runs now by "
            f"{gain.mean:+.3f} ±{gain.half or 0:.3f}, which is not a certain gain."
        )
    if judged.gain is None or judged.gain_elsewhere is None:
        return "The best default is offered: the search found nothing better."
    here, elsewhere = judged.gain, judged.gain_elsewhere
    gains = f"by {here.mean:+.3f} ±{here.half or 0:.3f} on new seeds and {elsewhere.mean:+.3f} on other lines"
    if judged.tuned:
        return f"The tuned setting's objective differs from the best default's {gains}."
    uncertain = f"the search's best setting differs from it {gains}, which is not a certain gain"
    return f"The best default is offered: {uncertain}."


def described(setting: Setting) -> str:
    """Return a setting's changed options as text."""
    changed = [setting.shown(name) for name in setting.changed()]
    return f"{setting.kind} with {', '.join(changed) if changed else 'its defaults, at 90 % of the rates'}"


def progress(found: Found, now: float) -> str:
    """Describe the best setting so far and its gain over the current one."""
    setting, score = found.best()
    return f"{setting.kind} {score:.3f}, now {now:.3f}"


def first(found: Found, now: float, lines: Sequence[str]) -> str | None:
    """Return the text of a first answer, or None if the current setting is better.

    `found` has the defaults, and `now` is the objective of the current setting, both from one run.
    """
    setting, score = found.best()
    if score <= now:
        return None
    return "\n".join([
        f"quell: a first answer: {setting.kind} with its defaults at 90 % of the rates: objective {score:.3f}, "
        f"now {now:.3f} (one run each). Better ones follow; Ctrl-C ends the search with the best so far.", *lines,
    ])  # fmt: skip
