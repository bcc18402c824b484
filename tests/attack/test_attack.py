"""The attacks of `make attack`, each once and short."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import attack
from live_net import Net, built, require


@pytest.fixture
def net() -> Iterator[Net]:
    require()
    with built(Net) as made:
        yield made


@pytest.mark.parametrize("name", attack.ATTACKS)
def test_an_attack_neither_stops_traffic_nor_leaves_rules(net: Net, name: str) -> None:
    try:
        outcome = attack.run(net, name, seconds=2.0)
    except attack.UnableError as why:
        pytest.skip(str(why))
    assert outcome.held, outcome
