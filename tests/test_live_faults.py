"""`quell live` under faults: other instances, failing tools, a stopped loop, changes of rules and interfaces below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from live_net import Net, built, require, stop


@pytest.fixture(autouse=True, scope="module")
def able() -> None:
    require()


@pytest.fixture
def net() -> Iterator[Net]:
    with built(Net) as made:
        yield made


def queues(net: Net) -> list[int]:
    """Numbers of the packet queues that are bound on the router."""
    table = net.run(net.r, "cat", "/proc/net/netfilter/nfnetlink_queue").stdout
    return sorted(int(line.split()[0]) for line in table.splitlines())


def test_each_direction_of_each_instance_has_a_packet_queue_of_its_own_and_no_other(net: Net) -> None:
    first = net.live("--rate", "1mbit", "--ingress", "1mbit")
    second = net.live("--rate", "100mbit", "--ingress", "100mbit", dev="ra")
    ruled = {
        (device, int(number))
        for line in net.rules()
        for device, number in re.findall(r"-[io] (\w+) .*--queue-num (\d+)", line)
    }
    assert len({number for _, number in ruled}) == len(ruled) == 4, ruled
    assert queues(net) == sorted(number for _, number in ruled)
    for command in (first, second):
        status, errors = stop(command)
        assert status == 0, errors
    assert queues(net) == []
