"""Captures of the bottleneck's packets, which Wireshark can read."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from conftest import Quell

LINK = ["run", "--rate", "10mbit", "--rtt", "20ms", "--flow", "newreno", "--duration", "6s", "--aqm", "pfifo limit 100"]


def test_a_capture_is_written_whole(quell: Quell, tmp_path: Path) -> None:
    done = quell(*LINK, "--pcap", "a.pcapng")
    assert done.returncode == 0, done.stderr
    data, at, kinds = (tmp_path / "a.pcapng").read_bytes(), 0, []
    # Each block has its type, its length, its body, and its length again.
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        assert length >= 12 and struct.unpack_from("<I", data, at + length - 4) == (length,)
        kinds.append(kind)
        at += length
    assert at == len(data)
    section, interface, packet = 0x0A0D0D0A, 1, 6
    assert kinds[0] == section and set(kinds[1:]) == {interface, packet}
    assert [p.name for p in tmp_path.iterdir()] == ["a.pcapng"]


def test_tshark_reads_every_packet_as_tcp(quell: Quell, tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        reason = "no tshark here; on Debian: apt-get install tshark"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    # The record leaves out the warm-up, the capture has it.
    record = json.loads(quell(*LINK, "--warmup", "0s", "--pcap", "a.pcapng", "--json", "-").stdout)
    fields = ["-T", "fields", "-e", "frame.interface_id", "-e", "tcp.len", "-e", "_ws.malformed"]
    done = subprocess.run(
        ["tshark", "-r", "a.pcapng", *fields], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    packets = [line.split("\t") for line in done.stdout.splitlines()]
    assert all(malformed == "" for *_, malformed in packets)
    # The first interface has packets that left the queue, the second its drops. The first packet carries no data.
    of = [interface for interface, *_ in packets]
    assert (of.count("0"), of.count("1")) == (record["packets"], record["drops"])
    assert sum(length == "1448" for _, length, _ in packets) == len(packets) - 1
