"""A3C-L4S's testbed, reproduced: four NewReno flows through CoDel, PIE, FQ-CoDel, FQ-PIE and L4S.

`dualpi2`, `cake` and both readings of `l4s` are compared with the paper's five. Table 2's totals cannot be those of the
90 s that the text describes (42 MB at 10 Mbit/s takes 34 s), so totals are given for 90 and for 40 s, and verdicts are
on ratios between queues with the same settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quell._core import Scenario
from quell.papers import l4s_a3c_beyond, l4s_a3c_learner, l4s_a3c_studies
from quell.papers.bench import Bench, Sample, mean
from quell.papers.claim import AMOUNT, Claim, estimate
from quell.papers.paper import Paper
from quell.papers.study import Study
from quell.results.stats import Record, jain
from quell.views.figures import Axis, Figure, Line, Panel, Table

BIN_S = 0.5
SHORT_S = 40.0
"""Time on a busy link that approximately matches Table 2's totals."""
RATES = (10, 1)

PRINTED = {
    ("codel", 10): (46.574638, 41.101404),
    ("codel", 1): (4.938126, 4.523826),
    ("pie", 10): (50.339712, 45.790667),
    ("pie", 1): (4.976113, 6.371356),
    ("fq_codel", 10): (38.928913, 53.030176),
    ("fq_codel", 1): (5.245358, 5.571887),
    ("fq_pie", 10): (47.984545, 48.413749),
    ("fq_pie", 1): (5.389362, 5.438388),
    ("l4s", 10): (48.196893, 48.748529),
    ("l4s", 1): (5.676679, 5.159440),
}
"""Table 2: MB without and with ECN, by queue and Mbit/s."""

PIE = "target 15ms tupdate 15ms"
WORDS = {
    ("codel", False): "codel target 5ms interval 100ms limit 1000",
    ("codel", True): "codel target 5ms interval 100ms limit 1000 ecn",
    ("pie", False): f"pie {PIE}",
    ("pie", True): f"pie {PIE} ecn",
    ("fq_codel", False): "fq_codel noecn",
    ("fq_codel", True): "fq_codel",
    ("fq_pie", False): f"fq_pie {PIE} flows 6",
    ("fq_pie", True): f"fq_pie {PIE} flows 6 ecn",
    ("l4s", False): "l4s any_ect max_ecnth 0",
    ("l4s", True): "l4s any_ect max_ecnth 0.1",
    ("l4s as_published", False): "l4s as_published max_ecnth 0",
    ("l4s as_published", True): "l4s as_published",
    ("pie of FreeBSD", False): "l4s as_published pairs 1 max_ecnth 0",
    ("pie of FreeBSD", True): "l4s as_published pairs 1",
    ("fq_pie of FreeBSD", False): "l4s as_published pairs 6 max_ecnth 0",
    ("fq_pie of FreeBSD", True): "l4s as_published pairs 6",
    ("dualpi2", True): "dualpi2 any_ect",
    ("cake", True): "cake",
}
"""Queue words, by the paper's name and whether senders and queue use ECN.

The paper's PIE and FQ-PIE are FreeBSD's, from which its L4S is made; `pie` and `fq_pie` are Linux's. With the coupling
ineffective and all packets in one half of the pairs, L4S is FreeBSD's FQ-PIE with that number of sub-queues, and with
one pair its PIE.
"""
QUEUES = list(dict.fromkeys(name for name, _ in WORDS))
PIE_FAMILY = ("pie", "fq_pie")
FREEBSD = ("pie of FreeBSD", "fq_pie of FreeBSD")
FIGURES = {"codel": (4, 5, 6, 7), "pie": (8, 9, 10, 11), "fq_codel": (12, 13, 14, 15), "fq_pie": (16, 17, 18, 19),
           "l4s": (20, 21, 22, 23)}  # fmt: skip
"""Numbers of the figures: 10 Mbit/s with and without ECN, then 1 Mbit/s."""
SIDE_BY_SIDE = {"throughput": (28, 29, 30, 31), "rtt": (32, 33, 34, 35), "cwnd": (36, 37, 38, 39)}

Key = tuple[str, int, bool]
"""Queue, Mbit/s, ECN."""


def _name(key: Key) -> str:
    queue, rate, ecn = key
    return f"{queue}, {rate} Mbit/s, {'ECN' if ecn else 'no ECN'}"


def _id(key: Key) -> str:
    queue, rate, ecn = key
    return f"{queue.replace(' ', '_')}.{rate}.{'ecn' if ecn else 'noecn'}"


def _keys() -> list[Key]:
    return [(queue, rate, ecn) for rate in RATES for queue, ecn in WORDS]


def _printed(key: Key) -> float | None:
    queue, rate, ecn = key
    pair = PRINTED.get((queue, rate))
    return None if pair is None else pair[ecn]


def _ratio_printed(key: Key) -> float | None:
    """Return megabytes over the mean of all five queues with the same settings, from Table 2."""
    own = _printed(key)
    return None if own is None else own / mean(p[key[2]] for (_, rate), p in PRINTED.items() if rate == key[1])


OVER = {
    "freebsd_fq_pie": ("fq_pie of FreeBSD", "FreeBSD's FQ-PIE"),
    "freebsd_pie": ("pie of FreeBSD", "FreeBSD's PIE"),
    "linux_fq_pie": ("fq_pie", "Linux's FQ-PIE"),
    "linux_pie": ("pie", "Linux's PIE"),
}
"""The PIE family, relative to which L4S's RTT is given."""


UNFAIR = 0.9
"""Jain's index below which rates count as unfair, else as fair; the paper gives no number."""
SECOND_MS = 1000.0


def _claim(which: str, what: str, quote: str, section: str, bound: float, better: int, unit: str = "") -> Claim:
    return Claim(
        which,
        what,
        unit,
        bound,
        better,
        kind="claim",
        source=section if section == "abstract" else f"section {section}",
        quote=quote,
    )


def _sentences() -> list[Claim]:
    """List the paper's claims in words."""
    out = [
        _claim("C.second.1", "1 Mbit/s, ECN: lowest RTT of CoDel, PIE, FQ-CoDel, FQ-PIE less L4S's",
               "nearly a second faster", "7", 0.8 * SECOND_MS, +1, "ms"),
        _claim("C.lowest.1", "1 Mbit/s, ECN: L4S's RTT over the lowest of CoDel, PIE, FQ-CoDel, FQ-PIE",
               "very low RTT", "7", 1.0, -1),
    ]  # fmt: skip
    ecn, plain = "ECN", "with ECN over that without"
    out += [
        _claim("RTT.l4s_ecn.10", f"10 Mbit/s: L4S's RTT {plain}", "noticeably reduced overall RTT", "5.1.5", 1.0, -1),
        _claim("RTT.l4s_ecn.1", f"1 Mbit/s: L4S's RTT {plain}", "significantly reduced RTT", "6.2",
               1 - AMOUNT, -1),
        _claim("RTT.fq_codel_ecn.10", f"10 Mbit/s: FQ-CoDel's RTT {plain}", "very high RTT", "5.1.3", 1 + AMOUNT, +1),
        _claim("RTT.fq_codel_ecn.1", f"1 Mbit/s: FQ-CoDel's RTT {plain}", "significantly high RTT", "6.2",
               1 + AMOUNT, +1),
        _claim("RTT.fq_codel.10", "10 Mbit/s, no ECN: FQ-CoDel's RTT over the lowest of the others",
               "lowest consistent RTT", "6.2", 1.0, -1),
        _claim("RTT.fq_pie.10", f"10 Mbit/s, {ecn}: FQ-PIE's RTT (FreeBSD) over L4S's",
               "FQ-PIE, which exhibits higher RTT", "6.2", 1.0, +1),
        _claim("RTT.fq_pie.1", f"1 Mbit/s, {ecn}: FQ-PIE's RTT (FreeBSD) over L4S's",
               "FQ-PIE shows high RTT", "6.2", 1.0, +1),
        _claim("C.data.10", f"10 Mbit/s: L4S's data {plain}", "more data transferred", "6.1", 1.0, +1),
        _claim("C.data.1", f"1 Mbit/s: L4S's data {plain}", "higher data transfer", "6.1", 1.0, -1),
        _claim("C.throughput.10", f"10 Mbit/s, {ecn}: L4S's data over that of FQ-PIE (FreeBSD)",
               "L4S exhibits higher throughput", "6.1", 1.0, +1),
        _claim("C.fair.fq_codel.10", f"10 Mbit/s, {ecn}: Jain's index of FQ-CoDel's rates",
               "significant fairness in throughput", "5.1.3", UNFAIR, +1),
        _claim("C.fair.fq_codel.1", f"1 Mbit/s, {ecn}: Jain's index of FQ-CoDel's rates",
               "maintained fairness across its multiple", "6.1", UNFAIR, +1),
        _claim("C.unfair.l4s.10", f"10 Mbit/s, {ecn}: Jain's index of L4S's rates",
               "exhibit significant unfairness", "6.1", UNFAIR, -1),
        _claim("C.unfair.fq_pie.10", f"10 Mbit/s, {ecn}: Jain's index of the rates of FQ-PIE (FreeBSD)",
               "exhibit significant unfairness", "6.1", UNFAIR, -1),
        _claim("C.unfair.l4s.1", f"1 Mbit/s: Jain's index of L4S's rates {plain}",
               "higher unfairness in throughput", "6.1", 1.0, -1),
        _claim("C.unfair.fq_pie.1", f"1 Mbit/s: Jain's index of the rates of FQ-PIE (FreeBSD) {plain}",
               "higher unfairness in throughput", "6.1", 1.0, -1),
        _claim("C.unfair.pie.1", f"1 Mbit/s, {ecn}: Jain's index of the rates of PIE (FreeBSD)",
               "significant unfairness", "5.1.2", UNFAIR, -1),
        _claim("C.cwnd.10", f"10 Mbit/s, {ecn}: Jain's index of FQ-CoDel's congestion windows",
               "extreme unfairness in its cwnd", "6.3", UNFAIR, -1),
        _claim("C.loss.fq_pie.10", f"10 Mbit/s, {ecn}: L4S's loss over that of FQ-PIE (FreeBSD)",
               "mitigating latency and packet loss", "abstract", 1.0, -1),
        _claim("C.loss.1", "L4S, no ECN: loss at 1 Mbit/s over that at 10 Mbit/s", "higher packet loss", "5.1.5",
               1.0, +1),
    ]  # fmt: skip
    return out


def _claims() -> list[Claim]:
    out = _sentences()
    out += [
        Claim(f"RTT.{name}.{rate}", f"{rate} Mbit/s, ECN: L4S's RTT over that of {what}")
        for rate in RATES
        for name, (_, what) in OVER.items()
    ]
    out.append(Claim("RTT.fq_codel.1", "1 Mbit/s, no ECN: FQ-CoDel's RTT over the lowest of the others"))
    for key in _keys():
        ratio = _ratio_printed(key)
        what = f"{_name(key)}: data over the five queues' mean"
        if ratio is None:
            out.append(Claim(f"T2.{_id(key)}.ratio", what))
        else:
            out.append(Claim(f"T2.{_id(key)}.ratio", what, "", ratio, of="rate", kind="printed", source="Table 2"))
    for key in _keys():
        out.append(Claim(f"T2.{_id(key)}.mb40", f"{_name(key)}: data sent in 40 s", "MB", detail=True))
        out.append(Claim(f"T2.{_id(key)}.mb90", f"{_name(key)}: data sent in 90 s", "MB", detail=True))
        out.append(Claim(f"T2.{_id(key)}.rtt", f"{_name(key)}: mean smoothed RTT", "ms", digits=1))
        out.append(Claim(f"T2.{_id(key)}.jain", f"{_name(key)}: Jain's index while all four run", "", detail=True))
        out.append(Claim(f"T2.{_id(key)}.loss", f"{_name(key)}: loss", "%", detail=True))
    return [*l4s_a3c_learner.CLAIMS, *l4s_a3c_studies.CLAIMS, *l4s_a3c_beyond.CLAIMS, *out]


@dataclass(frozen=True)
class Measurements:
    """Results of one run."""

    mb: float
    mb40: float
    rtt_ms: float
    jain: float
    cwnd_jain: float
    loss: float
    """Share of packets lost."""
    courses: Mapping[str, Sequence[Sequence[float | None]]]
    """Throughput, RTT and cwnd: by flow, then by bin."""
    times: Sequence[float]


def _reduce(record: Record) -> Measurements:
    series = record["series"]
    rate, read, bin_s = series["throughput_mbps"], series["delivered_in_order_mbps"], series["bin_s"]
    moved = [mbps * bin_s / 8 for mbps in rate]
    lasting = [flow[round(31 / bin_s) : round(60 / bin_s)] for flow in read]
    shares = [mean(flow) for flow in lasting]
    windows = [
        mean([w for w in flow[round(31 / bin_s) : round(60 / bin_s)] if w is not None] or [0.0])
        for flow in series["cwnd_packets"]
    ]
    return Measurements(
        mb=sum(moved),
        mb40=sum(moved[: round(SHORT_S / bin_s)]),
        rtt_ms=record["rtt_ms"]["mean"],
        jain=jain(shares) or 0.0,
        cwnd_jain=jain(windows) or 0.0,
        loss=record["loss_rate"],
        courses={"throughput": read, "rtt": series["rtt_ms"], "cwnd": series["cwnd_packets"]},
        times=[(k + 0.5) * bin_s for k in range(len(rate))],
    )


Results = Mapping[Key, Sequence[Measurements]]


def _scenario(rate: int, *, ecn: bool) -> Scenario:
    return Scenario("l4s").replace(link={"rate": f"{rate}mbit"}, flow={"ecn": ecn})


def measure(bench: Bench) -> None:
    """Measure the paper."""
    study = bench.study
    settings = {key: (_scenario(key[1], ecn=key[2]), WORDS[key[0], key[2]]) for key in _keys()}
    claims = _claims()
    results = bench.seeds_of(
        "Table 2, Figures 4 to 39", settings, _reduce, bin_s=BIN_S, samples=_samples, claims=claims
    )
    swept = l4s_a3c_beyond.round_trips(study, bench, lambda rate: _scenario(rate, ecn=True), RATES)
    _table_2(study, results)
    _rtt(study, results, swept)
    _draw(study, results)
    l4s_a3c_beyond.measure(study, bench)
    l4s_a3c_learner.measure(study, bench)
    l4s_a3c_studies.measure(study)


# What rows are judged by. --------------------------------------------------------------------------------------------


def _samples(results: Results) -> Iterator[Sample[Key]]:
    """Yield the values of each row that Table 2's runs decide."""

    def of(name: str, key: Key) -> list[float]:
        return [float(getattr(s, name)) for s in results[key]]

    def over(which: str, name: str, key: Key, *others: Key) -> Sample[Key]:
        """Compare a setting with the lowest of others, seed by seed."""
        columns = [of(name, other) for other in others]
        values = [a / min(b) for a, *b in zip(of(name, key), *columns, strict=False)]
        return Sample(which, values, (key, *others))

    five = list(dict.fromkeys(queue for queue, _ in PRINTED))
    low = ("l4s", 1, True)
    others = [(queue, 1, True) for queue in five if queue != "l4s"]
    gain = [min(b) - a for a, *b in zip(of("rtt_ms", low), *(of("rtt_ms", key) for key in others), strict=False)]
    yield Sample("C.second.1", gain, (low, *others))
    yield over("C.lowest.1", "rtt_ms", low, *others)
    for rate in RATES:
        l4s, plain, pie = ("l4s", rate, True), ("l4s", rate, False), ("fq_pie of FreeBSD", rate, True)
        codel, codel_plain = ("fq_codel", rate, True), ("fq_codel", rate, False)
        yield over(f"RTT.l4s_ecn.{rate}", "rtt_ms", l4s, plain)
        yield over(f"RTT.fq_codel_ecn.{rate}", "rtt_ms", codel, codel_plain)
        rest = [(queue, rate, False) for queue in five if queue != "fq_codel"]
        yield over(f"RTT.fq_codel.{rate}", "rtt_ms", codel_plain, *rest)
        yield over(f"RTT.fq_pie.{rate}", "rtt_ms", pie, l4s)
        yield over(f"C.data.{rate}", "mb", l4s, plain)
        yield Sample(f"C.fair.fq_codel.{rate}", of("jain", codel), (codel,))
    l4s, pie, codel = ("l4s", 10, True), ("fq_pie of FreeBSD", 10, True), ("fq_codel", 10, True)
    yield over("C.throughput.10", "mb", l4s, pie)
    yield over("C.loss.fq_pie.10", "loss", l4s, pie)
    yield Sample("C.unfair.l4s.10", of("jain", l4s), (l4s,))
    yield Sample("C.unfair.fq_pie.10", of("jain", pie), (pie,))
    yield over("C.unfair.l4s.1", "jain", ("l4s", 1, True), ("l4s", 1, False))
    yield over("C.unfair.fq_pie.1", "jain", ("fq_pie of FreeBSD", 1, True), ("fq_pie of FreeBSD", 1, False))
    yield Sample("C.unfair.pie.1", of("jain", ("pie of FreeBSD", 1, True)), (("pie of FreeBSD", 1, True),))
    yield Sample("C.cwnd.10", of("cwnd_jain", codel), (codel,))
    yield over("C.loss.1", "loss", ("l4s", 1, False), ("l4s", 10, False))
    for key in _keys():
        rivals = [(queue, key[1], key[2]) for queue in five]
        columns = [of("mb", rival) for rival in rivals]
        values = [mb / mean(column) for mb, *column in zip(of("mb", key), *columns, strict=False)]
        yield Sample(f"T2.{_id(key)}.ratio", values, (key, *rivals))


# Table 2. ------------------------------------------------------------------------------------------------------------


def _table_2(study: Study, results: Results) -> None:
    ratios = {f"T2.{_id(key)}.ratio": _amount_sent(results, key) for key in _keys()}
    for sample in _samples(results):
        if sample.claim in ratios:
            study.put(sample.claim, estimate(sample.values), ratios[sample.claim])
    for key in _keys():
        name, measured = f"T2.{_id(key)}", results[key]
        study.put(f"{name}.mb40", estimate(s.mb40 for s in measured), _amount_sent(results, key))
        study.put(f"{name}.mb90", estimate(s.mb for s in measured))
        study.put(f"{name}.rtt", estimate(s.rtt_ms for s in measured))
        study.put(f"{name}.jain", estimate(s.jain for s in measured))
        study.put(f"{name}.loss", estimate(100 * s.loss for s in measured))
    rows = [
        [
            f"{queue}, {rate} Mbit/s",
            *(
                _cell(results, (queue, rate, ecn), name, digits)
                for name, digits in (("mb", 1), ("mb40", 1), ("rtt_ms", 0), ("jain", 2))
                for ecn in (False, True)
            ),
        ]
        for rate in RATES
        for queue in QUEUES
    ]
    columns = [
        f"{what}, {ecn}" for what in ("MB in 90 s", "MB in 40 s", "RTT, ms", "Jain") for ecn in ("no ECN", "ECN")
    ]
    study.tables.append(Table("Data sent, round trips and fairness", ["", *columns], rows))


def _cell(results: Results, key: Key, name: str, digits: int) -> str:
    return "" if key not in results else f"{mean(getattr(s, name) for s in results[key]):.{digits}f}"


def _amount_sent(results: Results, key: Key) -> str:
    """Return, as text, how much a full link carries, and how much this one did."""
    most = key[1] / 8
    sent = mean(s.mb for s in results[key])
    return (
        f"sent {sent:.1f} MB of the {90 * most:.1f} that the link carries in 90 s, and "
        f"{mean(s.mb40 for s in results[key]):.1f} of {SHORT_S * most:.1f} in 40 s; "
        f"the printed amount is what a busy link carries in {(_printed(key) or 0.0) / most:.0f} s"
    )


# Round trips. --------------------------------------------------------------------------------------------------------


def _rtts(results: Results, key: Key) -> list[float]:
    return [s.rtt_ms for s in results[key]]


def _ratios(results: Results, key: Key, others: Sequence[Key]) -> list[float]:
    least = [min(rtts) for rtts in zip(*(_rtts(results, other) for other in others), strict=False)]
    return [own / low for own, low in zip(_rtts(results, key), least, strict=False)]


def _late_rtts(results: Results, rate: int) -> str:
    """Return, as text, the round trips after the start of all flows."""
    queues = ("l4s", *PIE_FAMILY, *FREEBSD)
    listed = ", ".join(f"{q} {mean(v for s in results[q, rate, True] for v in _late(s)):.0f}" for q in queues)
    return f"from 50 to 60 s, when all flows are past their start: {listed}"


def _late(measured: Measurements) -> list[float]:
    courses = measured.courses["rtt"]
    return [
        v for course in courses for t, v in zip(measured.times, course, strict=True) if v is not None and 50 < t < 60
    ]


def _why(swept: Mapping[tuple[str, int], float], rate: int) -> str:
    """Return, as text, which of the possible readings would give the lowest round trip."""

    def at(*names: str) -> str:
        return ", ".join(f"{swept[name, rate]:.0f}" for name in names)

    pairs = at("1 pair", "paper's settings, 3 pairs", "6 pairs", "64 pairs")
    one, six = at("FreeBSD's PIE"), at("FreeBSD's FQ-PIE, 6")
    return (
        "it depends on how many PIEs share the link, not on the coupling, since all classic halves are empty when all "
        f"flows use ECN (coupling_factor 1, 8: {at('coupling_factor 1', 'coupling_factor 8')} ms): with 1, 3, 6 and 64 "
        f"pairs {pairs} ms. FreeBSD's PIE is one such queue ({one}) and its FQ-PIE six of them "
        f"({six})"
    )


def _rtt(study: Study, results: Results, swept: Mapping[tuple[str, int], float]) -> None:
    def rtts_text(rate: int, *, ecn: bool) -> str:
        keys = [(queue, rate, ecn) for queue in QUEUES if (queue, rate, ecn) in results]
        listed = ", ".join(f"{key[0]} {mean(_rtts(results, key)):.0f}" for key in keys)
        return f"mean smoothed RTT in ms, {'ECN' if ecn else 'no ECN'}: {listed}"

    whys: dict[str, str] = {}
    for rate in RATES:
        for name, (queue, _) in OVER.items():
            ratios = _ratios(results, ("l4s", rate, True), [(queue, rate, True)])
            study.put(
                f"RTT.{name}.{rate}",
                estimate(ratios),
                f"{rtts_text(rate, ecn=True)}; {_late_rtts(results, rate)}; {_why(swept, rate)}",
            )
        whys[f"{rate}"] = f"{rtts_text(rate, ecn=True)}; {rtts_text(rate, ecn=False)}"
        study.notes.append(f"At {rate} Mbit/s: {rtts_text(rate, ecn=True)}; {rtts_text(rate, ecn=False)}.")
    jains = {
        f"{rate}": ", ".join(
            f"{queue} {mean(s.jain for s in results[queue, rate, True]):.2f}, without ECN "
            f"{mean(s.jain for s in results[queue, rate, False]):.2f}"
            for queue in ("fq_codel", "l4s", *FREEBSD)
        )
        for rate in RATES
    }
    sentences = {"RTT.fq_codel.1", *(claim.id for claim in _sentences())}
    for sample in _samples(results):
        if sample.claim in sentences:
            at = sample.claim.rsplit(".", 1)[1]
            why = f"Jain's index with ECN: {jains[at]}" if "fair" in sample.claim else whys[at]
            study.put(sample.claim, estimate(sample.values), why)


# Figures. ------------------------------------------------------------------------------------------------------------

AXES = {"throughput": "goodput, Mbit/s", "rtt": "smoothed RTT, ms", "cwnd": "cwnd, packets"}


def _flows(measured: Measurements, what: str) -> list[Line]:
    return [
        Line(f"flow {k + 1}", list(zip(measured.times, course, strict=True)), "line", k)
        for k, course in enumerate(measured.courses[what])
    ]


def _panel(results: Results, key: Key, what: str, title: str) -> Panel:
    log = what != "throughput"
    return Panel(title, Axis("time, s"), Axis(AXES[what], log), _flows(results[key][0], what))


def _draw(study: Study, results: Results) -> None:
    settings = [(10, True), (10, False), (1, True), (1, False)]
    for queue, numbers in FIGURES.items():
        for number, (rate, ecn) in zip(numbers, settings, strict=True):
            key = (queue, rate, ecn)
            panels = [_panel(results, key, what, AXES[what].split(",")[0]) for what in ("throughput", "cwnd", "rtt")]
            study.figures.append(Figure(f"F{number}", f"Figure {number}: {_name(key)}", WORDS[queue, ecn], panels))
    for what, numbers in SIDE_BY_SIDE.items():
        for number, (rate, ecn) in zip(numbers, settings, strict=True):
            panels = [_panel(results, (q, rate, ecn), what, q) for q in ("fq_codel", "fq_pie", "l4s")]
            title = f"Figure {number}: {AXES[what].split(',')[0]}, {rate} Mbit/s, {'ECN' if ecn else 'no ECN'}"
            study.figures.append(Figure(f"F{number}", title, "One run each.", panels))


PAPER = Paper(
    name="l4s-a3c",
    title="L4S with A3C in FreeBSD, reproduced",
    source="Satish, Kua, Pokhrel: Active Queue Management in L4S with Asynchronous Advantage Actor-Critic, "
    "Future Internet 16 (2024) 265",
    about="Table 2 and Figures 4 to 39: four NewReno flows through five queues at 10 and 1 Mbit/s, ECN on and off",
    claims=_claims(),
    measure=measure,
)
