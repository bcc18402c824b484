"""Metrics read by Prometheus' own readers, and their names in packaging/ and docs."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from conftest import QUELL_LIVE, ROOT
from live_net import Net, built, require, stop

OPEN = "application/openmetrics-text"
# The header that Prometheus 2.42 sends.
ACCEPT = f"{OPEN};version=1.0.0,{OPEN};version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
FETCH = """
import sys, urllib.request as r
with r.urlopen(r.Request(sys.argv[1], headers={"Accept": sys.argv[2]}), timeout=5) as answer:
    print(answer.headers["Content-Type"])
    print(answer.read().decode(), end="")
"""
KERNEL = "tc qdisc replace dev rb root handle 1: tbf rate 50mbit burst 10k latency 50ms"


class Said(NamedTuple):
    """An answer: its content type and its text."""

    kind: str
    text: str


@pytest.fixture(scope="module")
def scraped() -> Iterator[dict[str, Said]]:
    """Yield the metrics of `quell live` with a learned queue and of `quell watch`, in both formats, after traffic."""
    require()
    with built(Net) as net:
        assert net.run(net.r, *KERNEL.split()).returncode == 0
        live = net.live("--rate", "8mbit", "--ingress", "8mbit", "--aqm", "rlaqm", "--metrics", "9131")
        watch = net.start(net.r, QUELL_LIVE, "watch", "rb", "--every", "10ms", "--quiet", "--metrics", "9132")

        def ask(port: int, accept: str) -> Said:
            done = net.run(net.r, sys.executable, "-c", FETCH, f"http://127.0.0.1:{port}/metrics", accept)
            return Said(*done.stdout.split("\n", 1)) if done.returncode == 0 else Said("", done.stderr)

        try:
            # The learned queue may drop some packets of a burst.
            assert len(net.datagrams(50)) >= 25
            deadline = time.monotonic() + 20
            while 'quell_sojourn_seconds_count{dev="rb",direction="egress"} 0' in (said := ask(9131, "")).text or (
                "quell_queue_sent_bytes_total{" not in ask(9132, "").text
            ):
                assert time.monotonic() < deadline, said
                time.sleep(0.1)
            yield {
                f"{name} {form}": ask(port, accept)
                for name, port in (("live", 9131), ("watch", 9132))
                for form, accept in (("open", ACCEPT), ("plain", "text/plain"))
            }
        finally:
            stop(live)
            stop(watch)


def families(said: Said) -> dict[str, Any]:
    parse = openmetrics if said.kind.startswith(OPEN) else prometheus
    return {family.name: family for family in parse(said.text)}


def series(said: Said) -> set[str]:
    return {sample.name for family in families(said).values() for sample in family.samples}


@pytest.mark.real_time
@pytest.mark.parametrize("name", ["live", "watch"])
def test_a_client_that_requests_openmetrics_gets_what_its_parser_accepts(scraped: dict[str, Said], name: str) -> None:
    new, old = scraped[f"{name} open"], scraped[f"{name} plain"]
    assert new.kind == f"{OPEN}; version=1.0.0; charset=utf-8"
    assert old.kind == "text/plain; version=0.0.4; charset=utf-8"
    assert new.text.endswith("# EOF\n")
    assert "# EOF" not in old.text
    # The mean of the last 100 ms is missing if no packet left in that time.
    assert series(new) ^ series(old) <= {"quell_sojourn_ms"}
    # A reader of the old format removes _total from a counter's name.
    assert {(f.name, f.type) for f in families(new).values()} == {(f.name, f.type) for f in families(old).values()}


@pytest.mark.real_time
def test_the_histogram_counts_every_packet(scraped: dict[str, Said]) -> None:
    found = families(scraped["live open"])
    [count] = [s.value for s in found["quell_sojourn_seconds"].samples
               if s.name.endswith("_count") and s.labels["direction"] == "egress"]  # fmt: skip
    [octets] = [s.value for s in found["quell_sent_bytes"].samples if s.labels["direction"] == "egress"]
    assert count >= 25
    # Datagrams of at least 8 bytes of UDP, with IP and Ethernet headers.
    assert octets >= 42 * count


def expressions() -> list[str]:
    """Return the expressions of the dashboard and the alerts."""
    panels = json.loads((ROOT / "packaging/grafana/quell.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = yaml.safe_load((ROOT / "packaging/prometheus/quell-alerts.yml").read_text())
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return [expression.replace("$__rate_interval", "1m") for expression in asked]


def test_prometheus_can_read_every_expression() -> None:
    assert len(expressions()) > 20
    for expression in expressions():
        promql_parser.parse(expression)
    with pytest.raises(ValueError, match=r"."):
        promql_parser.parse("rate(quell_packets_total[")


@pytest.mark.real_time
def test_dashboard_and_alerts_name_what_there_is(scraped: dict[str, Said]) -> None:
    named = {name for expression in expressions() for name in re.findall(r"\bquell_\w+", expression)}
    # Only the guest of test_attach.py has gauges of attached queues; that test compares this list with them.
    attached = (
        (ROOT / "docs/how-to/kernel.md").read_text().partition("## Gauges of attached queues")[2].partition("\n## ")[0]
    )
    of_attached = set(re.findall(r"`(quell_queue_\w+)`", attached))
    there = series(scraped["live plain"]) | series(scraped["watch plain"])
    assert named <= there | of_attached, named - there
    assert named & of_attached


@pytest.mark.real_time
def test_docs_list_every_metric(scraped: dict[str, Said]) -> None:
    rows = re.findall(r"^\| (`quell_.*?) \|", (ROOT / "docs/how-to/live.md").read_text(), re.M)
    listed = {name for row in rows for name in re.findall(r"`(quell_\w+)`", row)}
    there = {
        f"{name}_total" if family.type == "counter" else name for name, family in families(scraped["live open"]).items()
    }
    assert listed == there
