"""tools/oracle/diverge: what it reads from quell's capture, and how it finds the first difference."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def diverge() -> Any:
    loader = SourceFileLoader("diverge", str(ROOT / "tools/oracle/diverge"))
    spec = spec_from_loader("diverge", loader)
    assert spec is not None
    module = sys.modules["diverge"] = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_segments_drops_and_acks_of_each_flow_are_read(diverge: Any, tmp_path: Path) -> None:
    one, two = diverge.of_quell(diverge.cell_of("10,20,pfifo limit 20,cubic:1+newreno:1@rtt=40ms,2"), 1, 1, tmp_path)
    for flow in (one, two):
        assert (flow.sent[0].length, flow.sent[1].seq, flow.sent[1].length) == (0, 1, 1448)
        assert flow.dropped and {drop.seq for drop in flow.dropped} <= {sent.seq for sent in flow.sent}
        # The bytes that had left by half a second before the end were acknowledged.
        last = max(sent.seq + sent.length for sent in flow.sent if sent.at < 1.5)
        assert max(ack.seq for ack in flow.acks) >= last > 100_000
        assert [ack.seq for ack in flow.acks] == sorted(ack.seq for ack in flow.acks)
    # The first data leave after the handshake; the second flow's also wait for the first flow's first window.
    assert one.sent[1].at == pytest.approx(0.020, abs=0.003) and 0.039 < two.sent[1].at < 0.06


def test_the_first_difference_is_one_of_order_size_mark_or_time(diverge: Any) -> None:
    segments = [diverge.Segment(k / 1000, 1 + 1448 * k, 1448, False) for k in range(5)]
    assert diverge.first_difference(segments, segments, 0.0) is None
    for change in ({"seq": 1}, {"length": 100}, {"ce": True}, {"at": 0.0035}):
        other = [*segments[:3], replace(segments[3], **change), segments[4]]
        assert diverge.first_difference(segments, other, 1e-4) == 3
    assert diverge.first_difference(segments, [replace(s, at=s.at + 5e-5) for s in segments], 1e-4) is None


def test_a_cell_is_a_row_of_the_tables_or_is_written_out(diverge: Any) -> None:
    assert diverge.cell_of("10mbit-codel-noecn-cubic1")["queue"] == "codel noecn"
    assert diverge.cell_of("5,40,codel,bbr:2,3")["duration_s"] == "3"
    with pytest.raises(SystemExit, match="no such row"):
        diverge.cell_of("10mbit-nothing")
