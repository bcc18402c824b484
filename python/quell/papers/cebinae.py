"""Cebinae: Table 2 of its paper, sixteen mixes of flows through a FIFO, FQ-CoDel and Cebinae.

The printed numbers are the authors' reference results for that table, single runs of ns-3.35:
`ns/index/tbl2/rN/row.stdout` in github.com/eniac/Cebinae (commit cebcbdb); the settings are those of
`ns/configs/tbl2/rN.json` and `ns/cebinae/dumbbell_long/dumbbell_long.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from quell._core import Scenario
from quell.inputs.keys import Flow
from quell.papers.bench import Bench, Run, Sample, mean
from quell.papers.claim import MISSED, OPEN, Claim, estimate
from quell.papers.paper import Paper
from quell.results.stats import Record, jain
from quell.views.figures import Table

QUEUES = ("fifo", "fq_codel", "cebinae")
WIRE, IP = 1494, 1492
"""Bytes of a full packet on the wire (PPP), and in ns-3's queues: 1440 of data plus 52 of TCP and IP."""


@dataclass(frozen=True)
class Row:
    """A row of the table, with the printed numbers for each of `QUEUES`."""

    number: int
    mbps: int
    limit: int
    groups: tuple[tuple[str, int, float], ...]
    """Congestion control, number of flows, base round trip in ms."""
    round_ns: int
    """Cebinae's dT, ns."""
    rounds: int
    """Cebinae's P."""
    throughput: tuple[float, float, float]
    """Throughput on the wire, Mbit/s."""
    goodput: tuple[float, float, float]
    """Mbit/s."""
    jain: tuple[float, float, float]
    """Jain's index of the flows' goodput."""
    nic: int = 100
    """Size of the device's queue below the discipline, packets."""
    delta_port: float = 0.0

    @property
    def mix(self) -> str:
        """Description of the flows."""
        return " + ".join(f"{count} {cc} ({rtt:g} ms)" for cc, count, rtt in self.groups)


# fmt: off
ROWS = (
    Row(0, 100, 250, (("newreno", 2, 20.8), ("newreno", 8, 28)), 67108864, 1,
        (98.95, 98.95, 98.16), (95.36, 95.34, 94.60), (0.664, 1.000, 0.975)),
    Row(1, 100, 350, (("cubic", 8, 20.4), ("cubic", 2, 40)), 67108864, 20,
        (98.96, 98.96, 98.43), (95.37, 95.37, 94.79), (0.540, 1.000, 0.949)),
    Row(2, 100, 500, (("vegas", 2, 20.4), ("vegas", 8, 60)), 67108864, 1,
        (98.88, 98.88, 98.80), (95.29, 95.29, 95.21), (0.873, 0.892, 0.992)),
    Row(3, 100, 1700, (("newreno", 16, 200), ("cubic", 1, 200)), 268435456, 4,
        (98.28, 95.76, 97.13), (94.55, 92.21, 93.50), (0.426, 0.998, 0.702)),
    Row(4, 100, 850, (("newreno", 16, 100), ("cubic", 1, 100)), 268435456, 1,
        (98.72, 97.47, 98.11), (95.11, 93.90, 94.52), (0.553, 0.998, 0.917)),
    Row(5, 100, 420, (("newreno", 16, 50), ("cubic", 1, 50)), 134217728, 5,
        (98.90, 98.67, 97.96), (95.30, 95.08, 94.39), (0.891, 0.999, 0.987)),
    Row(6, 100, 85, (("vegas", 16, 10), ("cubic", 1, 10)), 134217728, 1,
        (98.98, 98.98, 97.77), (95.40, 95.40, 94.23), (0.158, 0.314, 0.935)),
    Row(7, 100, 850, (("vegas", 16, 100), ("newreno", 1, 100)), 134217728, 2,
        (98.71, 98.63, 96.87), (95.06, 95.02, 93.33), (0.093, 0.473, 0.984)),
    Row(8, 100, 500, (("vegas", 8, 60), ("newreno", 8, 60), ("cubic", 1, 60)), 134217728, 1,
        (98.87, 98.79, 98.42), (95.27, 95.19, 94.83), (0.435, 0.924, 0.809)),
    Row(9, 1000, 420, (("newreno", 32, 5), ("cubic", 32, 5)), 33554432, 10,
        (989.85, 989.85, 979.32), (954.05, 954.05, 943.55), (0.771, 0.974, 0.907)),
    Row(10, 1000, 8500, (("newreno", 32, 100), ("cubic", 32, 100)), 16777216, 50,
        (985.98, 937.01, 943.14), (949.86, 902.53, 906.88), (0.619, 0.978, 0.857)),
    Row(11, 1000, 4200, (("newreno", 64, 50), ("bbr", 1, 50)), 67108864, 1,
        (988.39, 943.78, 976.56), (952.42, 909.40, 937.60), (0.974, 0.974, 0.982), nic=10),
    Row(12, 1000, 850, (("vegas", 128, 10), ("cubic", 1, 10)), 16777216, 1,
        (989.79, 989.79, 987.68), (953.96, 953.97, 941.80), (0.039, 0.966, 0.959)),
    Row(13, 1000, 850, (("vegas", 64, 10), ("newreno", 1, 10)), 16777216, 1,
        (989.77, 989.77, 989.57), (953.64, 953.95, 953.13), (0.039, 0.958, 0.715)),
    Row(14, 1000, 850, (("vegas", 128, 10), ("bbr", 1, 10)), 16777216, 1,
        (989.79, 989.79, 987.34), (953.96, 953.97, 933.13), (0.886, 0.965, 0.965), nic=1),
    Row(15, 1000, 8500, (("bic_ns3", 4, 100), ("cubic", 32, 100)), 134217728, 1,
        (985.16, 968.04, 969.67), (948.52, 931.59, 931.85), (0.645, 0.999, 0.929), delta_port=0.01),
)
# fmt: on
START_S, END_S, QUICK_END_S = 1, 99, 20
DIVISOR_S = 99
"""The authors divide the bytes from 1 s to 99 s by 99 s: the last of their 99 periods of 1 s is in the divisor, but its
bytes are not counted."""
_NS3: Flow = {
    "mss": 1440,
    "iw": 10,
    "delack": 1,
    "min_rto": "1s",
    "rto": "ns3",
    "buffer": "2097152",
    "start": f"{START_S}s",
    "stagger": "10ms",
}
"""Keys of TCP as in the authors' simulation, except `stagger`: their flows all start at the same instant."""
NEAR = (0.996, 0.997, 0.998, 0.999, 1.0, 1.001, 1.002, 1.003, 1.004)
"""Factors on round trips, which determine how packets of different flows coincide at a full queue."""
QUICK_MBPS = 100
"""The quick version leaves out rows with faster links."""


@dataclass(frozen=True)
class Setting:
    """A possible difference between quell and the authors' model."""

    name: str = ""
    flow: Mapping[str, object] | None = None
    """Keys of flows."""
    of: str = ""
    """Congestion control of the flows with these keys; empty: all flows."""
    delta_port: float | None = None
    """Cebinae's delta_port, in place of the row's."""
    nic: bool = True
    """Whether there is a device below the queue."""


PLAIN = Setting()
OTHERS = (
    Setting("loss recovery without SACK", flow={"sack": False}),
    Setting("all flows starting at one instant", flow={"stagger": "0s"}),
    Setting("no device below the queue", nic=False),
)
"""Settings that are run for each missed row and queue."""
BBR_ALONE = Setting("loss recovery without SACK of the BBR flow alone", flow={"sack": False}, of="bbr")
LESS_THAN_FULL = Setting("delta_port 0.01", delta_port=0.01)
"""All rows except the last have `delta_port` 0: a link then counts as saturated only if it took more from the queue
than it can send in that time, which happens only while the device below the queue fills up."""


def _words(row: Row, queue: str, setting: Setting) -> str:
    if queue == "fifo":
        return f"pfifo limit {row.limit}"
    if queue == "fq_codel":
        # The authors use a queue for each flow, and ns-3's quantum is the device's MTU.
        return f"fq_codel limit {row.limit} flows 65536 quantum 1500"
    # In ns-3 the queue's lengths do not include link-layer bytes, but the rate with which they are compared does.
    rate = round(row.mbps * 1_000_000 * WIRE / IP)
    words = f"cebinae limit {row.limit} rate {rate}bit dt {row.round_ns}ns vdt 1ns l 100us p {row.rounds}"
    delta_port = row.delta_port if setting.delta_port is None else setting.delta_port
    return f"{words} tau 0.01 delta_port {delta_port} delta_flow 0.01 count_drops"


def _scenario(row: Row, seconds: int, setting: Setting) -> Scenario:
    flows = []
    for cc, count, rtt in row.groups:
        flow = {"cc": cc, "count": count, "rtt": f"{rtt:g}ms", "rate": f"{row.mbps}mbit"}
        other = setting.flow if setting.of in ("", cc) else None
        flows.append(cast("Flow", {**flow, **_NS3, **(other or {})}))
    return Scenario.from_keys(
        name="cebinae",
        warmup=f"{START_S}s",
        duration=f"{seconds}s",
        link={"rate": f"{row.mbps}mbit", "overhead": WIRE - IP, "nic": row.nic if setting.nic else 0},
        flow=flows,
    )


Result = tuple[float, float, float]
"""Throughput, goodput, Jain's index."""


def _result(record: Record) -> Result:
    rates = [flow["delivered_in_order_mbps"] for flow in record["flows"]]
    counted = (END_S - START_S) / DIVISOR_S
    return counted * record["throughput_mbps"], counted * sum(rates), jain(rates) or 0.0


_PARTS: tuple[tuple[str, str, str, Callable[[Row], Sequence[float]]], ...] = (
    ("jfi", "Jain's index", "", lambda row: row.jain),
    ("goodput", "goodput", "Mbit/s", lambda row: row.goodput),
    ("throughput", "throughput", "Mbit/s", lambda row: row.throughput),
)
_AT = {"throughput": 0, "goodput": 1, "jfi": 2}


def _claims() -> list[Claim]:
    out = []
    for row in ROWS:
        for part, what, unit, printed in _PARTS:
            for queue, number in zip(QUEUES, printed(row), strict=True):
                share = part == "jfi"
                out.append(
                    Claim(
                        f"T2.{row.number}.{queue}.{part}",
                        f"{row.mbps} Mbit/s, {row.mix}, {queue}: {what}",
                        unit,
                        number,
                        digits=3 if share else 2,
                        detail=part == "throughput",
                        kind="printed",
                        source=f"Table 2, row {row.number}",
                        link=row.mbps,
                    )
                )
    return out


CLAIMED = {claim.id: claim for claim in _claims()}


def measure(bench: Bench) -> None:
    """Measure the table; repeat missed rows and queues with possible differences from ns-3."""
    seconds = QUICK_END_S if bench.quick else END_S
    rows = [row for row in ROWS if not bench.quick or row.mbps <= QUICK_MBPS]
    cells = [(row, queue) for row in rows for queue in QUEUES]
    plain = {(row.number, queue): (_scenario(row, seconds, PLAIN), _words(row, queue, PLAIN)) for row, queue in cells}
    found = bench.seeds_of("Table 2", plain, _result, samples=_samples, claims=CLAIMED.values())
    missed = [(row, queue) for row, queue in cells if _missed(row, queue, found[row.number, queue])]
    again = {
        (row.number, queue, setting.name): (_scenario(row, seconds, setting), _words(row, queue, setting))
        for row, queue in missed
        for setting in _settings(row, queue)
    }
    others = replace(bench, seeds=1).seeds_of("With other settings", again, _result)
    study = bench.study
    for row in ROWS:
        for queue in QUEUES:
            results = found.get((row.number, queue))
            why = "left out of the quick version"
            if results is not None:
                why = _why({name: other[0] for (*cell, name), other in others.items() if cell == [row.number, queue]})
            for part, at in _AT.items():
                value = None if results is None else estimate(result[at] for result in results)
                study.put(f"T2.{row.number}.{queue}.{part}", value, why)
    study.tables.append(_table(found))
    if not bench.quick:
        study.tables.append(_near(bench))


def _samples(found: Mapping[tuple[int, str], Sequence[Result]]) -> Iterator[Sample[tuple[int, str]]]:
    for (number, queue), results in found.items():
        for part, at in _AT.items():
            yield Sample(f"T2.{number}.{queue}.{part}", [result[at] for result in results], ((number, queue),))


def _near(bench: Bench) -> Table:
    """Measure rows 0 and 1 behind the FIFO again, with round trips that differ by less than half a percent."""
    rows = []
    for row in ROWS[:2]:
        near = [_with_round_trips(row, factor) for factor in NEAR]
        runs = [Run(_scenario(one, END_S, PLAIN), _words(one, "fifo", PLAIN)) for one in near]
        found = bench.run(f"Row {row.number}, other round trips", runs, _result)
        rows.append([str(row.number), f"{row.jain[0]:.3f}", *(f"{result[2]:.3f}" for result in found)])
    columns = ["row", "printed", *(f"{factor:g}" for factor in NEAR)]
    return Table("Jain's index behind the FIFO with all round trips times a factor", columns, rows)


def _with_round_trips(row: Row, factor: float) -> Row:
    return replace(row, groups=tuple((cc, count, rtt * factor) for cc, count, rtt in row.groups))


def _settings(row: Row, queue: str) -> tuple[Setting, ...]:
    bbr = (BBR_ALONE,) if any(cc == "bbr" for cc, _, _ in row.groups) else ()
    return (*OTHERS, *bbr, *((LESS_THAN_FULL,) if queue == "cebinae" else ()))


def _missed(row: Row, queue: str, results: Sequence[Result]) -> list[str]:
    """Return the parts that are missed or open."""
    out = []
    for part, at in _AT.items():
        claim = CLAIMED[f"T2.{row.number}.{queue}.{part}"]
        if claim.verdict(estimate(result[at] for result in results)) in (MISSED, OPEN):
            out.append(part)
    return out


def _why(others: Mapping[str, Result]) -> str:
    parts = [f"{name}: {jfi:.3f} and {goodput:.1f}" for name, (_, goodput, jfi) in others.items()]
    return f"Jain's index and Mbit/s of goodput with {'; with '.join(parts)}" if parts else ""


def _table(found: Mapping[tuple[int, str], Sequence[Result]]) -> Table:
    columns = ["row", "flows", *(f"{queue}, {side}" for queue in QUEUES for side in ("printed", "measured"))]
    rows = []
    for row in ROWS:
        if (row.number, QUEUES[0]) in found:
            cells = []
            for queue, printed in zip(QUEUES, row.jain, strict=True):
                cells += [f"{printed:.3f}", f"{mean(result[2] for result in found[row.number, queue]):.3f}"]
            rows.append([str(row.number), f"{row.mbps} Mbit/s, {row.mix}", *cells])
    return Table("Jain's index of goodput", columns, rows)


PAPER = Paper(
    name="cebinae",
    title="Cebinae: Scalable In-network Fairness Augmentation",
    source="Yu, Sonchack and Liu, SIGCOMM 2022",
    about="Table 2: sixteen mixes of TCP flows through a FIFO, FQ-CoDel and Cebinae",
    claims=list(CLAIMED.values()),
    measure=measure,
)
