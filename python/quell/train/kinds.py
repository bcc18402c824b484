"""Random links of five kinds.

A link is a scenario drawn from a seed. Each kind has its own generator:

- `mixed`: rates, round trips and flows of all sizes; arriving and departing flows, changing rates, slow uplinks, UDP
- `settled`: the same sizes, nothing changes, and the run is long
- `far`: round trips of 150 to 600 ms, few flows of two to four congestion controls
- `moving`: generated cellular and satellite lines, and Wi-Fi cells whose stations move
- `busy`: short transfers and applications beside bulk transfers

Training and judging use the same number of links of each kind.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from quell._core import InputError, Scenario

PACKET_BITS = 8 * 1514
LARGEST_BDP_BITS = 8 * 8_000_000
SENDERS = {
    ("newreno",): "NewReno",
    ("cubic",): "CUBIC",
    ("bbr",): "BBR",
    ("prague",): "Prague",
    ("cubic", "prague"): "Prague + CUBIC",
}
"""Names in tables of the bulk flows' congestion controls; other sets are `several`."""
SEVERAL = "several"
PHY_MBPS = (6.5, 13.0, 19.5, 26.0, 39.0, 52.0, 58.5, 65.0)
"""PHY rates of 802.11n by MCS, one stream, 20 MHz."""
PER_MCS_DB = 3.0
"""Approximate additional SNR for each further MCS; the first needs 5 dB."""
WARMUP = 0.5
"""Warm-up as a share of a run, for kinds other than `mixed`. With a sixth, the delay of cobalt, whose BLUE takes a
minute to find its probability, would depend on the run's length (`benches/hush-length`)."""
ON_AIR = 0.7
"""Approximate share of the PHY rate that is usable with aggregation."""


@dataclass(frozen=True)
class Link:
    """A link and its properties for tables."""

    scenario: Scenario
    rate_mbps: float
    """Mean rate; on Wi-Fi approximate."""
    rtt_ms: float
    flows: int
    """Number of bulk flows."""
    what: str
    kind: str
    ccs: frozenset[str]
    """Congestion controls of the bulk flows."""

    @property
    def packets_per_flow(self) -> float:
        """Bandwidth-delay product per flow, packets."""
        return self.rate_mbps * self.rtt_ms * 1e3 / PACKET_BITS / self.flows

    @property
    def senders(self) -> str:
        """The name of the congestion controls in tables."""
        return SENDERS.get(tuple(sorted(self.ccs)), SEVERAL)


@dataclass(frozen=True)
class Span:
    """Length of runs: a factor `length`, and a limit of packets at the link's rate."""

    length: float = 1.0
    packets: float = math.inf

    def of(self, seconds: float, rate: float) -> float:
        """Return the length of a run whose default length is `seconds`."""
        return min(seconds * self.length, self.packets * PACKET_BITS / rate)


def draw(seed: int, count: int, seeds: int = 1, *, kind: str = "mixed", span: Span | None = None) -> list[Link]:
    """Draw links of a kind, the same for the same seed; `seeds` is the number of runs on each."""
    of = "" if kind == "mixed" else f"{kind} "
    make, span = KINDS[kind], span or Span()
    return [make(random.Random(f"hush {of}{seed} {index}"), index, seeds, span) for index in range(count)]


def draw_each(
    seed: int, count: int, seeds: int = 1, *, kinds: Sequence[str] = (), span: Span | None = None
) -> list[Link]:
    """Draw `count` links of every kind, or of these kinds, one kind after the other."""
    return [link for kind in kinds or KINDS for link in draw(seed, count, seeds, kind=kind, span=span)]


def known(kinds: Sequence[str], option: str = "--kind") -> list[str]:
    """Return the kinds in their own order; all if none are named. Raises InputError."""
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"{option} {kind}: write one of {', '.join(KINDS)}")
    return [kind for kind in KINDS if not kinds or kind in kinds]


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _rate_and_rtt(
    rng: random.Random, rates: tuple[float, float] = (1e6, 1e9), rtts: tuple[float, float] = (1e-3, 0.3)
) -> tuple[float, float]:
    while True:
        rate, rtt = log_uniform(rng, *rates), log_uniform(rng, *rtts)
        if rate * rtt <= LARGEST_BDP_BITS:
            return rate, rtt


def _split(rng: random.Random, flows: int, parts: int) -> list[int]:
    cuts = [0, *sorted(rng.sample(range(1, flows), parts - 1)), flows]
    return [last - first for first, last in pairwise(cuts)]


def _mixed(rng: random.Random, index: int, seeds: int, span: Span) -> Link:
    rate, rtt = _rate_and_rtt(rng)
    flows = round(log_uniform(rng, 1, 100))
    # Long enough for flows to leave slow start, then for 100 round trips and 2500 packets, within bounds.
    warmup = min(max(40 * rtt, 1.0), 10.0)
    measured = min(max(100 * rtt, 2500 * PACKET_BITS / rate, 3.0), 30.0) * span.length
    measured = min(measured, max(span.packets * PACKET_BITS / rate - warmup, 1.0))
    duration = warmup + measured
    parts = 1 if flows == 1 or rng.random() < 0.6 else min(flows, rng.choice((2, 3)))
    classic = rng.random() < 0.2
    tables: list[dict[str, Any]] = []
    names = rng.sample(("newreno", "cubic", "cubic", "bbr", "prague"), parts)
    for cc, count in zip(names, _split(rng, flows, parts), strict=True):
        own = rtt if parts == 1 else min(rtt * log_uniform(rng, 0.5, 2.0), 0.5)
        table = {"cc": cc, "count": count, "rtt": _us(own), "stagger": f"{warmup * 500:.0f}ms"}
        if classic and cc in ("newreno", "cubic"):
            table["ecn"] = True
        tables.append(table)
    what = _name(names, classic and any("ecn" in t for t in tables))
    link: dict[str, Any] = {"rate": _bps(rate)}
    if rng.random() < 1 / 3:
        what += " " + _vary_flows(rng, tables, rate, rtt, warmup, duration)
    if rng.random() < 1 / 5:
        steps = rng.randint(2, 5)
        times = [0.0, *(warmup + measured * (k + 1) / (steps + 1) for k in range(steps))]
        rates = [rate, *(rate * log_uniform(rng, 0.4, 1.6) for _ in range(steps))]
        link = {"schedule": [[_ms(t), _bps(r)] for t, r in zip(times, rates, strict=True)]}
        what += " changing"
    if rng.random() < 1 / 10:
        link["up"] = {"rate": _bps(rate / rng.uniform(10, 25))}
        what += " slow-up"
    if rng.random() < 1 / 10:
        tables.append(_udp(rng, rate))
        what += " udp"
    scenario = _scenario(f"link-{index}", duration, warmup, seeds, rng, {"link": link, "flow": tables})
    return Link(scenario, rate / 1e6, rtt * 1e3, flows, what, "mixed", frozenset(names))


def _vary_flows(
    rng: random.Random, tables: list[dict[str, Any]], rate: float, rtt: float, warmup: float, duration: float
) -> str:
    """Let a table of flows start or stop in the middle, or add short transfers throughout."""
    if rng.random() < 0.5:
        tables.append(_web(rng, rate, rtt, (0.05, 0.2)))
        return "web"
    changed = rng.choice(tables)
    half = changed["count"] // 2
    if half:
        tables.append(changed | {"count": half})
        changed["count"] -= half
        changed = tables[-1]
    middle = rng.uniform(warmup, duration)
    if rng.random() < 0.5 or len(tables) == 1:
        changed["start"], changed["stagger"] = _ms(middle), "0ms"
        return "coming"
    changed["stop"] = _ms(middle)
    return "going"


def _settled(rng: random.Random, index: int, seeds: int, span: Span) -> Link:
    rate, rtt = _rate_and_rtt(rng)
    flows = round(log_uniform(rng, 1, 100))
    duration = span.of(rng.uniform(30, 90), rate)
    names = _senders(rng, flows)
    flows = max(flows, len(names))
    # Nearly simultaneous, but not synchronised, because otherwise most queues would have the same run with every seed.
    tables, what = _bulk(rng, names, flows, rtt, stagger=rtt)
    scenario = _scenario(
        f"settled-{index}", duration, duration * WARMUP, seeds, rng, {"link": {"rate": _bps(rate)}, "flow": tables}
    )
    return Link(scenario, rate / 1e6, rtt * 1e3, flows, what, "settled", frozenset(names))


def _far(rng: random.Random, index: int, seeds: int, span: Span) -> Link:
    rate, rtt = _rate_and_rtt(rng, (1e6, 100e6), (0.15, 0.6))
    duration = span.of(240, rate)
    names = rng.sample(("newreno", "cubic", "bbr", "prague"), rng.randint(2, 4))
    flows = max(round(log_uniform(rng, 2, 20)), len(names))
    # The default receive window, 6 MB, would be the bottleneck.
    tables, what = _bulk(rng, names, flows, rtt, stagger=1.0, rtts=(0.15, 0.6), buffer="32mb")
    link: dict[str, Any] = {"rate": _bps(rate)}
    if rng.random() < 1 / 5:
        link["loss"] = log_uniform(rng, 1e-6, 1e-4)
        what += " loss"
    if rng.random() < 1 / 4:
        tables.append(_udp(rng, rate))
        what += " udp"
    scenario = _scenario(f"far-{index}", duration, duration * WARMUP, seeds, rng, {"link": link, "flow": tables})
    return Link(scenario, rate / 1e6, rtt * 1e3, flows, what, "far", frozenset(names))


def _moving(rng: random.Random, index: int, seeds: int, span: Span) -> Link:
    where = rng.choice(("cellular", "satellite", "wifi"))
    rtt = log_uniform(rng, 0.02, 0.1)
    flows = round(log_uniform(rng, 1, 8))
    names = _senders(rng, flows)
    flows = max(flows, len(names))
    seconds = 60.0 * span.length
    if where == "wifi":
        own, rate = _cell(rng, seconds, names, flows, rtt)
        flows, what = sum(table["count"] for table in own["flow"]), _name(names, False)
    else:
        line, mbps = rng.choice(
            (("lte", 12), ("lte-up", 6)) if where == "cellular" else (("starlink", 60), ("starlink-up", 10))
        )
        rate = mbps * 1e6
        tables, what = _bulk(rng, names, flows, rtt, stagger=1.0)
        own = {"link": {"trace": f"builtin:{line}:{rng.randrange(2, 1 << 31)}"}, "flow": tables}
    if rng.random() < 1 / 3:
        own["flow"].append(_web(rng, rate, rtt, (0.05, 0.3)))
        what += " web"
    seconds = min(seconds, span.packets * PACKET_BITS / rate)
    scenario = _scenario(f"moving-{index}", seconds, seconds * WARMUP, seeds, rng, own)
    return Link(scenario, rate / 1e6, rtt * 1e3, flows, f"{where} {what}", "moving", frozenset(names))


def _cell(
    rng: random.Random, seconds: float, names: Sequence[str], flows: int, rtt: float
) -> tuple[dict[str, Any], float]:
    """Draw a Wi-Fi cell, its flows to its stations, and its approximate rate."""
    stations = rng.randint(1, min(flows, 5))
    wide = rng.random() < 0.5
    nodes: list[dict[str, Any]] = [{"name": "ap"}]
    slowness = []
    for k in range(stations):
        node: dict[str, Any] = {"name": f"sta{k + 1}"}
        how = rng.choice(("still", "walks", "minstrel"))
        if how == "minstrel":
            node |= {"mcs": "minstrel", "snr": round(rng.uniform(8, 30), 1)}
            seen = [min(max(int((node["snr"] - 5) / PER_MCS_DB), 0), 7)]
        elif how == "walks":
            seen = [rng.randrange(8)]
            for _ in range(rng.randint(2, 8)):
                seen.append(min(max(seen[-1] + rng.choice((-2, -1, 1, 2)), 0), 7))
            node["schedule"] = [[_ms(seconds * j / len(seen)), mcs] for j, mcs in enumerate(seen)]
        else:
            seen = [rng.randrange(8)]
            node |= {"mcs": seen[0], "per": round(rng.choice((0.0, rng.uniform(0, 0.1))), 3)}
        nodes.append(node)
        slowness += [1 / PHY_MBPS[mcs] / len(seen) for mcs in seen]
    tables: list[dict[str, Any]] = []
    for k in range(flows):
        table = {"cc": names[k % len(names)], "to": f"sta{k % stations + 1}", "rtt": _us(rtt), "stagger": "1s"}
        same = next((t for t in tables if {**t, "count": 0} == {**table, "count": 0}), None)
        if same is None:
            tables.append(table | {"count": 1})
        else:
            same["count"] += 1
    rate = ON_AIR * 1e6 * stations / sum(slowness) * (2 if wide else 1)
    return {"wifi": {"width": 40 if wide else 20, "node": nodes}, "flow": tables}, rate


def _busy(rng: random.Random, index: int, seeds: int, span: Span) -> Link:
    rate, rtt = _rate_and_rtt(rng, (3e6, 300e6), (5e-3, 0.12))
    duration = span.of(90, rate)
    flows = round(log_uniform(rng, 1, 10))
    names = _senders(rng, flows)
    flows = max(flows, len(names))
    tables, what = _bulk(rng, names, flows, rtt, stagger=1.0)
    link: dict[str, Any] = {"rate": _bps(rate), "up": {"rate": _bps(max(rate / log_uniform(rng, 1, 15), 1e6))}}
    if rng.random() < 2 / 3:
        tables.append(_web(rng, rate, rtt, (0.05, 0.4)))
        what += " web"
    kinds = ("call", "video_call", "game", "page", "video")
    for kind in sorted(rng.sample(kinds, rng.randint(2, len(kinds)))):
        # An application uses at most a few Mbit/s, so fast links have more of them.
        count = rng.randint(1, max(1, min(round(rate / 10e6), 4)))
        tables.append({"kind": kind, "count": count, "rtt": _us(rtt * log_uniform(rng, 0.5, 2.0)), "stagger": "2s"})
        what += f" {kind}"
    if rng.random() < 1 / 4:
        tables.append({"kind": "upload", "count": 1, "rtt": _us(rtt), "stagger": "2s"})
        what += " upload"
    scenario = _scenario(f"busy-{index}", duration, duration * WARMUP, seeds, rng, {"link": link, "flow": tables})
    return Link(scenario, rate / 1e6, rtt * 1e3, flows, what, "busy", frozenset(names))


KINDS: dict[str, Callable[[random.Random, int, int, Span], Link]] = {
    "mixed": _mixed, "settled": _settled, "far": _far, "moving": _moving, "busy": _busy,
}  # fmt: skip


def _senders(rng: random.Random, flows: int) -> list[str]:
    """Draw congestion controls: one, Prague beside CUBIC, or two or three."""
    which = rng.choice(("newreno", "cubic", "bbr", "prague+cubic", SEVERAL))
    if which != SEVERAL:
        return which.split("+")
    return rng.sample(("newreno", "cubic", "bbr", "prague"), rng.choice((2, 3)) if flows > 2 else 2)


def _bulk(
    rng: random.Random, names: Sequence[str], flows: int, rtt: float, *, stagger: float,
    rtts: tuple[float, float] = (0.0, 0.5), **more: Any,
) -> tuple[list[dict[str, Any]], str]:  # fmt: skip
    """Draw flows for each congestion control, with a round trip near `rtt`, and their description for tables."""
    classic = rng.random() < 0.2
    tables = []
    for cc, count in zip(names, _split(rng, flows, len(names)), strict=True):
        own = rtt if len(names) == 1 else min(max(rtt * log_uniform(rng, 0.5, 2.0), rtts[0]), rtts[1])
        table = {"cc": cc, "count": count, "rtt": _us(own), "stagger": _us(stagger), **more}
        if classic and cc in ("newreno", "cubic"):
            table["ecn"] = True
        tables.append(table)
    return tables, _name(names, any("ecn" in table for table in tables))


def _web(rng: random.Random, rate: float, rtt: float, load: tuple[float, float]) -> dict[str, Any]:
    size = log_uniform(rng, 10e3, 300e3)
    arrivals = min(rate * rng.uniform(*load) / (8 * size), 200.0)
    return {"kind": "web", "size": f"exp:{size:.0f}", "arrivals": arrivals, "rtt": _us(rtt)}


def _udp(rng: random.Random, rate: float) -> dict[str, Any]:
    return {"kind": "cbr", "rate": _bps(rate * rng.uniform(0.02, 0.2)), "size": 1200}


def _name(names: Sequence[str], ecn: bool) -> str:
    return "+".join(dict.fromkeys(names)) + (" ecn" if ecn else "")


def _scenario(
    name: str, duration: float, warmup: float, seeds: int, rng: random.Random, tables: dict[str, Any]
) -> Scenario:
    return Scenario.from_keys(
        name=name, duration=_ms(duration), warmup=_ms(warmup), seeds=seeds, seed=rng.randrange(1 << 31),
        **cast(Any, tables),
    )  # fmt: skip


def _bps(rate: float) -> str:
    return f"{rate:.0f}bit"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}ms"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}us"
