"""Traffic crosses while `quell live` is killed, stopped, flooded, starved: 2 s of each attack; --long: 3 times 8 s."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crossing import ATTACKS, HEAD, SLOW, UnableError, row, run
from live_net import Net, built, require

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in ATTACKS]
)
def test_an_attack_neither_stops_traffic_nor_leaves_rules(
    name: str, long: bool, record_property: Callable[[str, object], None]
) -> None:
    require()
    outcomes = []
    for _ in range(3 if long else 1):
        with built(Net) as net:
            try:
                outcomes.append(run(net, name, 8.0 if long else 2.0))
            except UnableError as why:
                pytest.skip(str(why))
    record_property(HEAD, row(outcomes))
    assert all(outcome.held for outcome in outcomes), outcomes
