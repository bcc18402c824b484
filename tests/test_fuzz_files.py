"""Randomly damaged files from elsewhere: captures, data files of Flent, lines of tc, samples of `quell watch`.

Each is read, or refused in one line. `QUELL_FUZZ=20000 pytest tests/test_fuzz_files.py` tries 20,000 new ones of each
kind instead of 100.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpkt
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packets import DOWN, UP, transfer, udp_exchange
from quell._core import InputError
from quell.inputs import tc
from quell.inputs.capture import Seen
from quell.inputs.flent import Measured
from quell.views import samples as watched

tries = settings(
    max_examples=int(os.environ.get("QUELL_FUZZ", "100")),
    deadline=None,
    derandomize="QUELL_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


def refused_or_read(read: Callable[[], object], name: str) -> None:
    """Fail on any other exception, and on a refusal that is not one line that names the file."""
    try:
        read()
    except InputError as error:
        text = str(error)
        assert text.startswith(name), text
        assert "\n" not in text, text
        assert len(text) < 1000, text[:2000]


@st.composite
def spoilt(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Draw a file with bytes changed, parts removed, repeated or inserted, and the end cut off."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.integers(0, 4)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                # Readers trust lengths and counts.
                word = draw(st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0]))
                data[at : at + 4] = struct.pack(draw(st.sampled_from("<>")) + "I", word)
            case 2:
                del data[at : at + draw(st.integers(1, 64))]
            case 3:
                data[at:at] = draw(st.binary(max_size=32))
            case _:
                data[at:at] = data[at : at + draw(st.integers(1, 200))]
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


def capture(writer: Any, link: int) -> bytes:
    file = io.BytesIO()
    out = writer(file, linktype=link) if link != 1 else writer(file)
    packets = transfer(0.0, 0.05, DOWN, "93.184.216.34", 5000, 0.02, up=False)
    packets += transfer(0.0, 0.05, UP, "93.184.216.34", 5001, 0.02, up=True)
    packets += udp_exchange("192.168.1.11", 0.2, 0.02, (120, 120), 6000)
    for at, frame in sorted(packets, key=lambda pair: pair[0]):
        out.writepkt(frame, ts=1e9 + at)
    return file.getvalue()


CAPTURES = [capture(writer, 1) for writer in (dpkt.pcap.Writer, dpkt.pcapng.Writer)]
CAPTURES += [capture(dpkt.pcap.Writer, link) for link in (0, 12, 101, 113, 276)]


@tries
@given(data=st.one_of(spoilt(st.sampled_from(CAPTURES)), st.binary(max_size=400)))
def test_a_spoilt_capture_is_read_or_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "line.pcap"
    path.write_bytes(data)

    def read() -> None:
        seen = Seen.load(path)
        seen.summary()
        seen.scenario("10mbit/1mbit", "20ms")
        seen.scenario()

    refused_or_read(read, str(path))


FLENT = {
    "version": 4, "x_values": [k / 5 for k in range(40)], "metadata": {"NAME": "rrul", "TITLE": ""},
    "results": {"TCP download::1": [9.0] * 40, "TCP upload::1": [1.0] * 40, "Ping (ms) ICMP": [20.0] * 40},
}  # fmt: skip
NUMBER = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
JSON: st.SearchStrategy[Any] = st.recursive(
    NUMBER,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
)


@st.composite
def flent(draw: st.DrawFn) -> bytes:
    """Draw a document with some of its values replaced."""
    document = json.loads(json.dumps(FLENT))
    for _ in range(draw(st.integers(0, 3))):
        within: Any = document
        keys = list(within)
        while True:
            key = draw(st.sampled_from(keys)) if keys else None
            if key is None:
                break
            inner = within[key]
            deeper = isinstance(inner, dict | list) and len(inner) > 0 and draw(st.booleans())
            if not deeper:
                within[key] = draw(JSON)
                break
            within, keys = inner, list(inner) if isinstance(inner, dict) else list(range(len(inner)))
    return gzip.compress(json.dumps(document).encode(), 1)


@tries
@given(data=st.one_of(flent(), spoilt(flent()), st.binary(max_size=100)))
def test_a_spoilt_file_of_flent_is_read_or_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.flent.gz"
    path.write_bytes(data)

    def read() -> None:
        measured = Measured.load(path)
        measured.summary()
        measured.line()
        measured.round_trips()
        measured.scenario()

    refused_or_read(read, str(path))


LINES = (
    "tc qdisc class filter add replace show dev eth0 ifb4eth0 root parent handle 1: 1:1 1:10 10: ffff: ingress",
    "htb hfsc tbf cake fq_codel codel pie red sfq pfifo bfifo fifo mq default rate ceil burst latency limit target",
    "interval quantum flows ecn noecn bandwidth besteffort diffserv4 overhead mpu atm ptm 20mbit 20Mbit 1500b",
    "5ms 100 0 -1 1e400 nan match ip dport 80 0xffff u32 flowid protocol prio stab linklayer mtu tsize netem delay",
    "loss ; && # \\ ' \" $X",
)
WORDS = [word for line in LINES for word in line.split()]


@tries
@given(words=st.lists(st.one_of(st.sampled_from([*WORDS, "\n"]), st.text(max_size=6)), max_size=60))
def test_lines_of_tc_are_read_or_refused(words: list[str]) -> None:
    text = "tc qdisc add dev eth0 root " + " ".join(words)
    refused_or_read(lambda: tc.read(text), "")


SAMPLES = (
    b'{"time":1.0,"device":"eth0","handle":"1:","parent":"root","type":"qdisc","kind":"pfifo","bytes":1,"packets":1,"drops":0,'
    b'"overlimits":0,"requeues":0,"backlog_bytes":0,"backlog_packets":0,"rate_bps":1.0,"sojourn_ms":0.5,"xstats":""}\n'
) * 3


PARQUET = io.BytesIO()
pl.read_ndjson(SAMPLES).write_parquet(PARQUET)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@tries
@given(data=st.one_of(spoilt(st.just(SAMPLES)), st.binary(max_size=100)))
def test_spoilt_samples_are_read_or_refused(data: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"samples{suffix}"
    path.write_bytes(data)
    refused_or_read(lambda: watched.summary(watched.load(path)), str(path))


# Each file is read in a process of its own, which takes longer, so fewer are tried.
@settings(tries, max_examples=tries.max_examples // 10)
@given(data=st.one_of(spoilt(st.sampled_from([SAMPLES, PARQUET.getvalue()])), st.binary(max_size=100)))
def test_spoilt_samples_in_parquet_are_read_or_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    path.write_bytes(data)
    refused_or_read(lambda: watched.summary(watched.load(path)), str(path))
