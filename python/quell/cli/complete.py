"""Shell completion: queue words, scenarios, traces, papers, traffic, scenario keys, interfaces, controllers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from quell import _core
from quell.experiments import experiment
from quell.results.limits import NAMES

Completions = list[tuple[str, str]]
"""Pairs of a value and the description that a shell shows beside it."""
_CONTROLLERS = (
    ("wqm", "sets a limit"), ("learnqueue", "sets a limit"), ("fixed", "sets a limit or drops"),
    ("rlaqm", "drops, with clsact"), ("pace", "sets a rate"), ("pie", "drops, with clsact"),
    ("cake_autorate", "sets a rate"), ("sqm_autorate", "sets a rate"), ("-", "lines on standard input"),
)  # fmt: skip


def _starting(values: Iterable[tuple[str, str]], prefix: str) -> Completions:
    return [(value, about) for value, about in values if value.startswith(prefix)]


def _is_plain(name: str) -> bool:
    """Return whether a name is one shell word without quotes, because completion scripts evaluate names."""
    return all(char.isalnum() or char in "_@%+=:,./-" for char in name)


def kinds(incomplete: str) -> Completions:
    """Complete the name of a queue."""
    return _starting(((kind["name"], kind["summary"]) for kind in experiment.known_queues()), incomplete)


def words(incomplete: str) -> Completions:
    """Complete queue words: a kind and, after a space (inside quotes), its options."""
    before, space, last = incomplete.rpartition(" ")
    if not space:
        return kinds(incomplete)
    name = before.split(maxsplit=1)[0] if before.strip() else ""
    options: list[dict[str, str]] = next(
        (kind["options"] for kind in experiment.known_queues() if kind["name"] == name), []
    )
    return [(f"{before} {option}", about) for option, about in _starting(_named(options), last)]


def queues(incomplete: str) -> Completions:
    """Complete queue words, or a file of Python: the queue itself, or after ` + ` its controller."""
    before, plus, last = incomplete.rpartition(" + ")
    return ([] if plus else words(incomplete)) + [
        (f"{before}{plus}{name}", about) for name, about in _files(last, (".py",))
    ]


def _named(options: Iterable[dict[str, str]]) -> Iterable[tuple[str, str]]:
    # A flag and its opposite are listed as one option, `ecn|noecn`.
    return ((name, option["meaning"]) for option in options for name in option["name"].split("|"))


def scenarios(incomplete: str) -> Completions:
    """Complete the name of a built-in scenario."""
    return _starting(((name, about) for name, about, _ in _core.scenarios()), incomplete)


def files(incomplete: str) -> Completions:
    """Complete a scenario: the name of a built-in one, or a file."""
    return scenarios(incomplete) + _files(incomplete, (".toml", ".flent.gz"))


def compared(incomplete: str) -> Completions:
    """Complete a scenario, or records of `quell shell`."""
    return scenarios(incomplete) + _files(incomplete, (".toml", ".flent.gz", ".json"))


def traces(incomplete: str) -> Completions:
    """Complete a trace: the name of a built-in one, or a file."""
    sources = (
        ("lte", "LTE"),
        ("starlink", "Starlink"),
        ("docsis", "cable"),
        ("powerline", "PowerLine"),
        ("sleepy", "sleeps"),
    )
    ways = (("", "downlink"), ("-up", "uplink"))
    built_in = tuple((f"builtin:{name}{end}", f"{about}, {way}") for name, about in sources for end, way in ways)
    return _starting(built_in, incomplete) + _files(incomplete, ("",))


def _files(incomplete: str, endings: tuple[str, ...]) -> Completions:
    folder, slash, _ = incomplete.rpartition("/")
    prefix = folder + slash
    if not _is_plain(prefix):
        return []
    try:
        entries = sorted(Path(prefix or ".").iterdir())
    except OSError:
        return []
    shown = [path for path in entries if _is_plain(path.name) and not path.name.startswith(".")]
    found = [f"{prefix}{path.name}" + "/" * path.is_dir() for path in shown]
    return [(name, "") for name in found if name.startswith(incomplete) and name.endswith(("/", *endings))]


def limits(incomplete: str) -> list[str]:
    """Complete the metric of a limit on a run."""
    return [name for name in NAMES if name.startswith(incomplete)]


def flows(incomplete: str) -> list[str]:
    """Complete the first word of a flow: a congestion control, or a kind of traffic."""
    keys = json.loads(_core.scenario_schema())["$defs"]["flow"]["properties"]
    known = [*keys["cc"]["enum"], *keys["kind"]["enum"]]
    return [value for value in known if value.startswith(incomplete) and value != "tcp"]


def known_papers(incomplete: str) -> Completions:
    """Complete the name of a paper."""
    from quell import papers

    return _starting(((name, "") for name in papers.MODULES), incomplete)


def interfaces(incomplete: str) -> Completions:
    """Complete the name of a network interface; without /sys/class/net there are none."""
    devices = Path("/sys/class/net")
    names = sorted(path.name for path in devices.iterdir() if _is_plain(path.name)) if devices.is_dir() else []
    return _starting(((name, "") for name in names), incomplete)


def interface_or_controller(ctx: typer.Context, incomplete: str) -> Completions:
    """Complete the words of `quell steer`: first an interface, then a controller."""
    return _starting(_CONTROLLERS, incomplete) if ctx.params.get("words") else interfaces(incomplete)


def keys(incomplete: str) -> Completions:
    """Complete `TABLE.KEY=` for `quell sweep --over`."""
    tables = json.loads(_core.scenario_schema())["$defs"]
    named = (("link", "link"), ("link.up", "link.up"), ("flow", "flow"))
    known = (
        (f"{name}.{key}=", about.get("description", ""))
        for name, table in named
        for key, about in tables[table]["properties"].items()
        if key != "up"
    )
    return _starting(known, incomplete)


def framings(incomplete: str) -> Completions:
    """Complete `cake`'s keywords for a line's framing: DOCSIS, ATM and so on."""
    cake = next(kind for kind in experiment.known_queues() if kind["name"] == "cake")
    known = _named(option for option in cake["options"] if {"docsis", "atm"} & set(option["name"].split("|")))
    before, space, last = incomplete.rpartition(" ")
    return [(f"{before}{space}{word}", about) for word, about in _starting(known, last)]


def listed(*values: str) -> Callable[[str], list[str]]:
    """Return a completion for a list with commas: it completes the last value, without those already given."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [f"{before}{comma}{value}" for value in values if value.startswith(last) and value not in given]

    return complete


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Return a completion for one of these values."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]
