"""Pasted lines of `tc`: commands that set up a shaper and a queue, or the output of `tc qdisc show`.

Each interface becomes a link with queue words. Two interfaces of which one is an `ifb` become both directions: a router
shapes the download on an `ifb`.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from quell import _core
from quell._core import InputError, Scenario
from quell.inputs.framing import Framing
from quell.inputs.notes import LeftOutWarning

EXAMPLE = "'tc qdisc replace dev eth0 root cake bandwidth 50mbit docsis'"

_IGNORED = ("noqueue", "ingress", "clsact")
_COMMAND = re.compile(r"(?:^|[\s;&|$#>({])(?:[\w./]*/)?(?:tc|\$\{?TC\}?)\s")
"""Beginning of a command: after a prompt, `sudo`, `ip netns exec NAME` and the like, or as a variable of a script."""
_MAX_LINE = 1 << 14
"""Largest number of characters in a line. The time of shlex grows with the square of a word's length."""
_MAX_TEXT = 1 << 20
"""Largest number of characters in all lines."""
_MAX_DEPTH = 8
"""Maximum number of queues one below the other."""
_OBJECT = re.compile(r"\b(?:qdisc|class|filter)\b")
_PARTS = re.compile(r"\|\||&&|;")
_REDIRECT = re.compile(r"\s(?:\d?>>?(?:&\d|\s*\S+)|&>\s*\S+)")
_VERBS = ("add", "replace", "change", "link", "del", "delete")
_FRAMING = {
    "docsis", "ethernet", "ether-vlan", "pppoe-ptm", "bridged-ptm", "pppoa-vcmux", "pppoa-llc", "pppoe-vcmux",
    "pppoe-llcsnap", "bridged-vcmux", "bridged-llcsnap", "ipoa-vcmux", "ipoa-llcsnap", "conservative",
}  # fmt: skip
_WITHOUT_EFFECT: dict[str, dict[str, int]] = {
    "fq": {
        "pacing": 0, "nopacing": 0, "maxrate": 1, "low_rate_threshold": 1, "orphan_mask": 1, "timer_slack": 1,
        "horizon": 1, "horizon_cap": 0, "horizon_drop": 0, "offload_horizon": 1, "bands": 1, "weights": 3,
    },
    "dualpi2": {"split_gso": 0, "no_split_gso": 0},
    "pfifo_fast": {"bands": 1, "priomap": 16},
    "red": {"ewma": 1, "Scell_log": 1},
    "choke": {"ewma": 1, "Scell_log": 1},
    "sfq": {"ewma": 1, "Scell_log": 1},
}  # fmt: skip
"""Words of tc that quell's disciplines do not have, with the number of values after each."""


@dataclass(frozen=True)
class Side:
    """One direction: a link and its queue."""

    queue: str
    """Queue words."""
    rate: str | None = None
    burst: int | None = None
    """Size of a token bucket, bytes."""
    framing: str | None = None
    delay: str | None = None
    loss: float | None = None
    shapes_itself: bool = False
    """Whether the queue has its own rate, which may differ from the link's."""

    def keys(self) -> dict[str, Any]:
        """Return the keys of a scenario's link."""
        bucket = {} if self.burst is None else {"shaper": "htb", "burst": self.burst}
        rest = {"framing": self.framing, "loss": self.loss}
        return {"rate": self.rate, "queue": self.queue} | bucket | {k: v for k, v in rest.items() if v is not None}


@dataclass(frozen=True)
class Pasted:
    """The parsed lines."""

    down: Side
    up: Side | None
    left_out: list[str]
    """Words without effect in quell."""


@dataclass
class _Qdisc:
    kind: str
    handle: str
    words: list[str]
    framing: str | None = None
    """Framing of its size table, in keywords."""


@dataclass
class _Class:
    parent: str
    words: list[str]


@dataclass
class _Device:
    """State of an interface after its lines."""

    qdiscs: dict[str, _Qdisc] = field(default_factory=dict)
    """Disciplines by parent: `root` or a class."""
    classes: dict[str, _Class] = field(default_factory=dict)
    filters: dict[str, list[list[str]]] = field(default_factory=dict)
    """Words of the filters, by the class to which they lead."""


def read(text: str) -> Pasted:
    """Read lines of tc.

    Raises InputError, one line that names the words that cannot be simulated, and supported ones.
    """
    devices: dict[str, _Device] = {}
    for words, shown in _lines(text):
        _enter(devices, words, shown)
    # The outputs of `tc class show` and `tc qdisc show dev NAME` contain no interface.
    trees = [device for device in devices.values() if "root" in device.qdiscs and device.qdiscs["root"].kind == "htb"]
    if (nameless := devices.get("")) is not None and len(trees) == 1:
        trees[0].classes |= nameless.classes
    left_out: list[str] = []
    for device in devices.values():
        _check_depth(device)
    sides = {name: _side(name, d, "root", left_out) for name, d in devices.items() if "root" in d.qdiscs}
    if not sides:
        raise _error(f"no line sets up a queue; write for example {EXAMPLE}")
    downloads = [name for name in sides if name.startswith("ifb")]
    if len(sides) == 1:
        return Pasted(next(iter(sides.values())), None, left_out)
    if len(sides) == 2 and len(downloads) == 1:
        (up,) = (side for name, side in sides.items() if name not in downloads)
        return Pasted(sides[downloads[0]], up, left_out)
    raise _error(f"the lines are about {', '.join(sides)}; give those of one interface, or of one and its ifb")


def shortcuts(pasted: Pasted, given: dict[str, Any], bare: bool) -> None:
    """Add rate and round trip to the given shortcuts; `bare`: there is no scenario that has them.

    Raises InputError.
    """
    down, up = pasted.down, pasted.up
    asked = [key for key in ("rate", "trace") if key in given]
    if down.rate is None and not asked and bare:
        raise _error("the lines name no rate; add --rate RATE, the link's, or a scenario that has one")
    if down.rate is not None and not asked:
        given["rate"] = down.rate
    elif down.rate is not None and not down.shapes_itself:
        raise InputError(f"--{asked[0]} and --tc: the lines have a rate ({down.rate}); leave out one of the two")
    delays = [side.delay for side in (down, up) if side is not None and side.delay is not None]
    if delays and bare and "rtt" not in given:
        given["rtt"] = f"{sum(_core.quantity(delay, 'time') for delay in delays)}ns"


def applied(pasted: Pasted, scenario: Scenario) -> Scenario:
    """Return the scenario with the links and queues of the lines; warn of words that were left out.

    Raises InputError. Warns (LeftOutWarning).
    """
    link: Any = {key: value for key, value in pasted.down.keys().items() if key != "rate"}
    if (up := pasted.up) is not None:
        has_up = "up" in tomllib.loads(scenario.toml()).get("link", {})
        if up.rate is None and not has_up:
            pasted.left_out.append("the other direction, which has no rate")
        else:
            link["up"] = {key: value for key, value in up.keys().items() if value is not None}
    if pasted.left_out:
        warnings.warn(f"--tc: left out: {'; '.join(dict.fromkeys(pasted.left_out))}", LeftOutWarning, stacklevel=3)
    return scenario.replace(link=link)


def source(given: Sequence[str]) -> str:
    """Return the lines given to `--tc`: each value is a line, the name of a file of lines, or `-` for standard input.

    Raises InputError.
    """
    texts = []
    for item in given:
        file = "/dev/stdin" if item == "-" else item
        is_file = len(item.split()) < 3 and os.path.exists(file)  # noqa: PTH110 (a name of any length)
        texts.append(_core.read_file(file, "scenario").decode(errors="replace") if is_file else item)
        _check_lengths(texts[-1], f"{file}:" if is_file else "line ")
    if sum(map(len, texts)) > _MAX_TEXT:
        raise _error(f"the lines have more than {_MAX_TEXT} characters; give only those of tc")
    return "\n".join(texts)


def _check_lengths(text: str, place: str) -> None:
    length = 0
    for number, line in enumerate(text.splitlines(), 1):
        length += len(line)
        if length > _MAX_LINE:
            raise _error(f"{place}{number}: it has more than {_MAX_LINE} characters; give only lines of tc")
        if not line.endswith("\\"):  # else the next line continues it
            length = 0


def _lines(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each line of tc without `tc` itself, and whether tc printed it (else it is a command)."""
    found = False
    lines = re.sub(r"\\\r?\n", " ", text).splitlines()
    for line in (part for whole in lines for part in _PARTS.split(whole)):
        command = None if line.lstrip().startswith("#") else _COMMAND.search(line)
        if command is not None and not _OBJECT.search(line, command.end()):
            command = None
        said = line if command is None else _REDIRECT.sub("", line[command.end() :])
        try:
            words = shlex.split(said, comments=True)
        except ValueError:
            continue  # a quotation mark in a line that is not tc's
        if words == ["tc"]:
            found = True
        if not words or (command is None and words[0] not in ("qdisc", "class", "filter")):
            continue
        # Lines of a file for `tc -batch` have verbs like commands; the output of tc has a kind there.
        shown = command is None and not set(words[1:2]) & set(_VERBS)
        if shown and words[0] == "filter":
            continue
        found = True
        yield ([w for w in words if w != "[offloaded]"] if shown else _after_options(words)), shown
    if not found:
        raise _error(f"these are not lines of tc; write for example {EXAMPLE}, or give what `tc -s qdisc show` prints")


def _after_options(words: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        words = words[1:]
    return words


def _enter(devices: dict[str, _Device], words: list[str], shown: bool) -> None:
    """Add a line: `qdisc VERB dev X root handle 1: KIND ...`, or in tc's output `qdisc KIND 1: dev X root ...`."""
    what, *rest = words or [""]
    if what == "filter" and "dev" in rest[:-1] and not shown:
        to = next((rest[i + 1] for i, word in enumerate(rest[:-1]) if word in ("flowid", "classid")), "")
        devices.setdefault(rest[rest.index("dev") + 1], _Device()).filters.setdefault(to, []).append(rest)
    if what not in ("qdisc", "class") or not rest:
        return
    if shown:
        kind, name, *rest = [*rest, "", ""][: max(len(rest), 2)]
    else:
        (verb, *rest), kind, name = rest, "", ""
        if verb in ("show", "list", "ls", "del", "delete"):
            if verb.startswith("del") and "dev" in rest[:-1] and not {"ingress", "clsact"} & set(rest):
                devices.pop(rest[rest.index("dev") + 1], None)
            return
    dev, parent, options, framing = "", "root", [], None
    while rest:
        word = rest.pop(0)
        if word in ("dev", "parent", "handle", "classid", "refcnt", "leaf") and rest:
            value = rest.pop(0)
            dev = value if word == "dev" else dev
            parent = value if word == "parent" else parent
            name = value if word in ("handle", "classid") else name
        elif word in ("root", "ingress", "clsact") and not kind:
            kind = "" if word == "root" else word
        elif word == "root":
            continue
        elif word == "stab":
            framing, rest = _stab(rest)
        elif not kind:
            kind, options, rest = word, rest, []
        else:
            options, rest = [word, *rest], []
    if not kind or not (dev or shown):
        raise _error(f"`{' '.join(words)}` lacks {'a kind of queue' if dev else 'its interface (dev NAME)'}")
    device = devices.setdefault(dev, _Device())
    if what == "class":
        device.classes[name] = _Class(parent, options)
    elif kind not in _IGNORED:
        if kind == "fq_codel" and shown and "ecn" not in options:
            options.append("noecn")  # tc prints only what is on
        kind = "cake" if kind == "cake_mq" else kind
        device.qdiscs[parent] = _Qdisc(kind, name.partition(":")[0] or "0", options, framing)


def _check_depth(device: _Device) -> None:
    """Refuse queues that are nested more deeply than in the kernel (`check_loop` of sch_api.c), or in a circle."""
    above = {qdisc.handle: parent.partition(":")[0] for parent, qdisc in device.qdiscs.items() if qdisc.handle != "0"}
    for bottom in above:
        handle = bottom
        for _ in range(_MAX_DEPTH):
            handle = above.get(handle, "root")
        if handle in above:
            raise _error("too many queues, one below the other; give those that the kernel takes")


def _side(name: str, device: _Device, parent: str, left_out: list[str]) -> Side:
    qdisc = device.qdiscs[parent]
    values = _values(qdisc.words)
    if qdisc.kind == "mq":
        return _of_mq(name, device, left_out)
    if qdisc.kind == "htb":
        return _of_htb(name, device, qdisc, left_out)
    if qdisc.kind in ("tbf", "netem"):
        below = [p for p in device.qdiscs if p.partition(":")[0] == qdisc.handle and qdisc.handle != "0"]
        inner = _side(name, device, below[0], left_out) if below else Side(_own_queue(qdisc.kind, values))
        rate = inner.rate or _rate(values)
        if qdisc.kind == "tbf":
            framing = qdisc.framing or _table(values) or inner.framing
            _leave_out(qdisc, ("peakrate",), left_out)
            return replace(inner, rate=rate, burst=inner.burst or _bucket(values), framing=framing)
        _leave_out(qdisc, ("duplicate", "reorder", "corrupt", "slot", "distribution"), left_out)
        if re.match(r"\d", jitter := values.get(values.get("delay", ""), "")):
            left_out.append(f"netem jitter {jitter}")
        return replace(inner, rate=rate, delay=values.get("delay", inner.delay), loss=_share(values, inner.loss))
    words = _queue_words(qdisc, left_out)
    if qdisc.kind in ("prio", "ets", "drr"):
        words = _with_classes(name, device, qdisc, words, left_out)
    if qdisc.kind != "cake" or values.get("bandwidth", "unlimited") == "unlimited" or "unlimited" in words.split():
        return Side(words, framing=qdisc.framing)
    framing = " ".join(w for w in qdisc.words if w in _FRAMING) or _numbers(words) or qdisc.framing
    return Side(words, rate=_rate(values, "bandwidth"), framing=framing, shapes_itself=True)


def _leave_out(qdisc: _Qdisc, names: Sequence[str], left_out: list[str]) -> None:
    values = _values(qdisc.words)
    left_out.extend(f"{qdisc.kind} {name} {values[name]}" for name in names if name in values)


def _of_mq(name: str, device: _Device, left_out: list[str]) -> Side:
    """Treat the equal queues of a device with several rings as one queue."""
    leaves = [p for p in device.qdiscs if p != "root"]
    if not leaves:
        raise _error(f"{name} has `mq` whose queues are not among the lines; give those with `parent :1`, too")
    sides = [_side(name, device, p, left_out) for p in leaves]
    if any(side != sides[0] for side in sides):
        raise _error(f"the queues of {name} below `mq` differ; give one of them as root")
    return sides[0]


def _of_htb(name: str, device: _Device, qdisc: _Qdisc, left_out: list[str]) -> Side:
    """Return the side of a tree. With a single leaf it is a shaper; its rate is the lowest on the path to the root."""
    parents = {c.parent for c in device.classes.values()}
    own = [key for key in device.classes if key.partition(":")[0] == qdisc.handle]
    leaves = [key for key in own if key not in parents]
    if not leaves:
        raise _error(f"the htb of {name} has no class; give the lines of its classes, too")
    if len(leaves) > 1:
        words = _with_classes(name, device, qdisc, _head_of_htb(qdisc), left_out)
        roots = [key for key in own if device.classes[key].parent not in device.classes]
        # A top class with other classes below it does not borrow.
        total = sum(_core.quantity(_limit(name, device, key, above=key in leaves), "rate") for key in roots)
        return Side(words, rate=f"{total}bit", framing=qdisc.framing, shapes_itself=True)
    rates, at, burst = [], leaves[0], 0
    while at in device.classes:
        node = device.classes[at]
        values = _values(node.words)
        below_root = node.parent in device.classes
        rate = _rate(values, "ceil" if below_root and "ceil" in values else "rate")
        if rate is None:
            raise _error(f"class {at} of {name} has no rate")
        rates.append(rate)
        burst = burst or ("burst" in values and _bytes(values["burst"]))
        at = node.parent
    below = leaves[0] if leaves[0] in device.qdiscs else None
    inner = _side(name, device, below, left_out) if below else Side("pfifo")
    least_rate = min(rates, key=lambda rate: _core.quantity(rate, "rate"))
    framing = qdisc.framing or _table(_values(device.classes[leaves[0]].words)) or inner.framing
    return Side(inner.queue, rate=least_rate, burst=burst or 1600, framing=framing, delay=inner.delay)


def _stab(words: list[str]) -> tuple[str, list[str]]:
    """Read a size table (tc-stab(8)) as framing; also return the words after it."""
    given, rest = {"overhead": "0", "mpu": "0", "linklayer": "ethernet"}, list(words)
    while rest and rest[0] in (*given, "mtu", "tsize"):
        name, value, *rest = [*rest, ""] if len(rest) < 2 else rest
        given[name] = value
    try:
        # The kernel already counts Ethernet's header; keywords count from the IP packet on.
        overhead, mpu = int(given["overhead"]) + 14, int(given["mpu"])
    except ValueError:
        raise _error(f"stab: {given['overhead']} and {given['mpu']} are to be numbers") from None
    cells = given["linklayer"].replace("adsl", "atm")
    if cells not in ("atm", "ethernet"):
        raise _error(f"stab: linklayer {cells} is to be ethernet, atm or adsl")
    if not (-64 <= overhead <= 256 and 0 <= mpu <= 256):
        raise _error(f"stab: overhead {given['overhead']} and mpu {mpu} are too far from a packet's own length")
    wanted = (overhead, mpu, cells.replace("ethernet", "none"))
    for words_ in (*sorted(_FRAMING), *(f"{word} ether-vlan" for word in sorted(_FRAMING))):
        framing = Framing.of(words_)
        if (framing.overhead, framing.mpu, framing.cells) == wanted:
            return words_, rest
    return " ".join(
        [f"overhead {overhead}", *([f"mpu {mpu}"] if mpu else []), *(["atm"] if cells == "atm" else [])]
    ), rest


def _table(values: dict[str, str]) -> str | None:
    """Return the framing from the words of a shaper's rate table, which are those of a size table."""
    words = [word for name in ("overhead", "mpu", "linklayer") if name in values for word in (name, values[name])]
    return _stab(words)[0] if words else None


def _numbers(words: str) -> str | None:
    """Return the framing in queue words of CAKE; None if it counts packets unchanged."""
    given = words.split()
    found = [f"{name} {given[given.index(name) + 1]}" for name in ("overhead", "mpu") if name in given]
    found += [cells for cells in ("atm", "ptm") if cells in given]
    return " ".join(found) if "overhead" in given and "raw" not in given else None


def _limit(name: str, device: _Device, key: str, *, above: bool) -> str:
    """Return the rate of a class; with `above`, its ceiling if it has one."""
    values = _values(device.classes[key].words)
    rate = _rate(values, "ceil" if above and "ceil" in values else "rate")
    if rate is None:
        raise _error(f"class {key} of {name} has no rate")
    return rate


def _head_of_htb(qdisc: _Qdisc) -> str:
    values = _values(qdisc.words)
    kept = [f"{word} {values[word]}" for word in ("default", "r2q", "direct_qlen") if word in values]
    return " ".join(["htb", *kept])


_OF_CLASS = {"rate": True, "ceil": True, "burst": False, "cburst": False, "prio": False, "quantum": False}
"""Supported words of a class of htb or drr, and whether their values are rates."""


def _with_classes(name: str, device: _Device, qdisc: _Qdisc, head: str, left_out: list[str]) -> str:
    """Return queue words with a discipline's classes, their queues and their filters."""
    below = dict.fromkeys(key for key in device.classes if key.partition(":")[0] == qdisc.handle)
    below |= dict.fromkeys(key for key in device.qdiscs if key.partition(":")[0] == qdisc.handle != "0")
    words = [head]
    for key in below:
        known = device.classes.get(key, _Class("", []))
        words += ["class", key]
        if qdisc.kind == "htb" and known.parent in device.classes:
            words += ["parent", known.parent]
        for word, value in _values(known.words).items():
            if word in _OF_CLASS and not (word == "prio" and known.parent == ""):
                words += [word, value.lower() if _OF_CLASS[word] else str(_count(value))]
            elif word in ("overhead", "mpu", "linklayer", "mtu"):
                left_out.append(f"class {key} {word} {value}")
        words += _filter(device, key, left_out)
        if key in device.qdiscs:
            inner = _side(name, device, key, left_out)
            if inner.rate is not None and not inner.shapes_itself:
                raise _error(f"class {key} of {name} has a shaper; give its rate as the class's ceil")
            words += ["queue", *inner.queue.split()]
    return _core.queue(" ".join(words))


def _count(text: str) -> int:
    return int(text) if text.isdigit() else _bytes(text)


def _filter(device: _Device, key: str, left_out: list[str]) -> list[str]:
    """Return words for the filters of a class: marks, DSCPs and hosts."""
    found: dict[str, list[str]] = {}
    for words in device.filters.get(key, []):
        said = _conditions(words)
        # Several filters by DSCP form one list; of each other kind quell supports one condition.
        if not said or (found and (set(said) | set(found) != {"dscp"})):
            left_out.append(f"filter {' '.join(words[words.index('dev') + 2 :])}")
            continue
        for sort, value in said.items():
            found.setdefault(sort, []).append(value)
    return [word for sort, values in found.items() for word in (sort, ",".join(values))]


def _conditions(words: list[str]) -> dict[str, str]:
    """Return a filter's conditions in quell's words; empty if quell does not support all of them."""
    text = " ".join(words)
    if (mark := re.search(r"\bhandle (\w+)(?:/0xf+)? fw\b", text)) is not None:
        return {"fwmark": str(int(mark[1], 0))}
    said: dict[str, str] = {}
    asked = re.findall(r"\bmatch (\S+ \S+) (\S+)(?: (0x\w+))?", text)
    asked += [(f"flower {key}", value, "") for key, value in re.findall(r"\b(ip_tos|src_ip|dst_ip) (\S+)", text)]
    for what, value, mask in asked:
        bits, _, of = value.partition("/")
        if what in ("ip dsfield", "ip tos", "flower ip_tos") and (mask or of or "0xfc") in ("0xfc", "0xff"):
            said["dscp"] = str(int(bits, 0) >> 2)
        elif what in ("ip src", "ip dst", "flower src_ip", "flower dst_ip") and of in ("", "32"):
            said["host"] = bits
        elif what.startswith("mark ") and value == "0xffffffff":
            said["fwmark"] = str(int(what.split()[1], 0))
        else:
            return {}
    return said


def _own_queue(kind: str, values: dict[str, str]) -> str:
    """Return the queue of a shaper without a child: netem's in packets, tbf's in bytes, from limit or latency."""
    if kind == "netem":
        return f"pfifo limit {values.get('limit', '1000').removesuffix('p')}"
    if "limit" in values:
        return f"bfifo limit {_bytes(values['limit'])}"
    latency = values.get("latency", values.get("lat"))
    if latency is None or "rate" not in values:
        raise _error("tbf has neither limit nor latency")
    # tc-tbf(8): the bytes that arrive within the latency, plus the bucket.
    waiting = _core.quantity(_rate(values) or "", "rate") * _core.quantity(latency, "time") / 8e9
    return f"bfifo limit {round(waiting) + _bucket(values)}"


def _bucket(values: dict[str, str]) -> int:
    """Return the size of tbf's bucket, bytes."""
    for name in ("burst", "buffer", "maxburst"):
        if name in values:
            return _bytes(values[name])
    raise _error("tbf has no burst")


def _queue_words(qdisc: _Qdisc, left_out: list[str]) -> str:
    """Return queue words: tc's, without the units that it prints after counts and without words that have no effect."""
    known = _WITHOUT_EFFECT.get(qdisc.kind, {})
    kept, rest = [qdisc.kind], list(qdisc.words)
    while rest:
        word, *rest = rest
        if word in known:
            left_out.append(f"{qdisc.kind} {' '.join([word, *rest[: known[word]]])}")
            rest = rest[known[word] :]
        elif word == "bandwidth" and rest[:1] == ["unlimited"]:  # as tc prints it
            continue
        else:
            # tc reads these values in milliseconds and prints them in seconds.
            seconds = re.fullmatch(r"(\d+)s", word) if qdisc.kind == "sfb" else None
            kept.append(f"{seconds[1]}000" if seconds else _plain(word))
    return _core.queue(" ".join(kept))


def _plain(word: str) -> str:
    """Convert tc's output to queue words: `10240p`, `10pps`, `10%`, `10sec`, `50Mbit`, `autorate_ingress`."""
    if (number := re.fullmatch(r"(\d+)(p|pps|b|%|sec)", word)) is not None:
        return number[1]
    if word == "autorate_ingress":
        return "autorate-ingress"
    return word.lower() if re.fullmatch(r"[\d.]+[KMGT]?(bit|b)", word, re.IGNORECASE) else word


def _values(words: Sequence[str]) -> dict[str, str]:
    return dict(pairwise(words))


def _rate(values: dict[str, str], key: str = "rate") -> str | None:
    if key not in values:
        return None
    text = values[key].lower()
    try:
        _core.quantity(text, "rate")
    except InputError as error:
        raise _error(f"{key}: {error}") from None
    return text


def _share(values: dict[str, str], otherwise: float | None) -> float | None:
    """Return netem's loss, `1%` or `random 1%`, as a share."""
    text = values.get("loss", "")
    text = values.get("random", "") if text == "random" else text
    if not text:
        return otherwise
    if re.fullmatch(r"\d{1,3}(\.\d+)?%", text) is None:
        raise _error(f"netem loss `{text}` is not a percentage; only random loss is read")
    return float(text[:-1]) / 100


def _bytes(text: str) -> int:
    """Read `32kb`, `1600b`, or `15Kb/8`, as `tc -d` prints a bucket with the cell size of its rate table."""
    try:
        return _core.quantity(_plain(text.partition("/")[0]), "size")
    except InputError as error:
        raise _error(str(error)) from None


def _error(message: str) -> InputError:
    return InputError(f"--tc: {message}")
