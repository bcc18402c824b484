import json
import re

import pytest

from conftest import QUEUES, make_record
from quell._core import InputError
from quell.experiments.experiment import Job, Outcome, load, plan, run_jobs
from quell.views.report import page


def data(text: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    parsed: dict[str, object] = json.loads(found[1])
    return parsed


def test_page_needs_nothing_from_outside(outcome: Outcome) -> None:
    text = page(outcome, "quell compare")
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a namespace, never fetched
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=(?!\"data:)", text)
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def test_page_is_small_and_the_same_each_time(outcome: Outcome) -> None:
    first, second = page(outcome, "quell compare"), page(outcome, "quell compare")
    assert first == second
    assert len(first) < 200_000


def test_page_carries_scenario_command_and_every_queue(outcome: Outcome) -> None:
    text = page(outcome, "quell compare 'a file.toml' --aqm 'fq & <b>'")
    assert "quell compare &#x27;a file.toml&#x27; --aqm &#x27;fq &amp; &lt;b&gt;&#x27;" in text
    assert [q["name"] for q in data(text)["queues"]] == list(QUEUES)  # type: ignore[attr-defined]
    assert "15mbit" in text


def test_words_of_users_are_text_never_markup(outcome: Outcome) -> None:
    text = page(outcome, "quell </script><script>alert(1)</script>")
    assert "<script>alert" not in text
    assert "& <b>" not in text


def test_the_page_ends_with_what_to_cite() -> None:
    found = run_jobs(scenario := load("home", duration="2s"), plan(scenario, ["codel", "codel target 9ms", "pie"]))
    [foot] = re.findall("<footer>(.*)</footer>", page(found, "x"))
    assert foot.endswith("(CITATION.cff); codel: RFC 8289, Linux sch_codel; pie: RFC 8033, Linux sch_pie.")


def test_knobs_that_do_not_move_are_left_out(outcome: Outcome) -> None:
    series = {q["name"]: q["series"] for q in data(page(outcome, "x"))["queues"]}  # type: ignore[attr-defined]
    assert series["learnqueue"]["limit"] is not None
    assert series["pie"]["probability"] is not None
    assert series["fq_codel"]["limit"] is None
    assert series["fq_codel"]["probability"] is None


def test_gauges_and_settings_of_a_policy_are_drawn_per_bin() -> None:
    scenario = load("home", duration="8s")
    found = run_jobs(scenario, plan(scenario, ["hush", "fq_codel"], first_series=True))
    series = {q["name"]: q["series"] for q in data(page(found, "x"))["queues"]}  # type: ignore[attr-defined]
    assert "times" not in series["fq_codel"]
    mine, bins = series["hush"], len(series["hush"]["backlog"])
    assert list(mine["times"]) == ["T", "wait", "hold", "cap", "R"]
    for column in (*mine["times"].values(), mine["idle"], mine["active"], mine["trusted"]):
        assert len(column) == bins
        assert column[0] is None or column[-1] is not None
    assert 0 < mine["times"]["T"][-1] <= 50
    assert 0 <= mine["idle"][-1] <= 100
    assert mine["active"][-1] >= 1
    assert mine["trusted"][-1] is True


def test_pooled_distribution_is_the_mean_of_the_runs(outcome: Outcome) -> None:
    queues = {q["name"]: q for q in data(page(outcome, "x"))["queues"]}  # type: ignore[attr-defined]
    ms, share = queues["fq_codel"]["cdf"]
    assert ms == sorted(ms)
    assert share == sorted(share)
    # Three runs, with a tenth of their packets at each tenth of 7.6, 8 and 8.4 ms: at 4 ms 5, 5 and 4 tenths have come.
    at_4 = next(s for m, s in zip(ms, share, strict=True) if m == 4.0)
    assert abs(at_4 - (0.5 + 0.5 + 0.4) / 3) < 1e-3


def test_finding_compares_the_scenarios_queue_with_a_plain_fifo(outcome: Outcome) -> None:
    text = page(outcome, "x")
    # 400 ms against 8 ms; 13.0 against 14.5 Mbit/s.
    assert "cuts that delay by a factor of 50 and" in text
    assert "carries 10.3 % less" in text


def finding(*queues: tuple[str, float, float]) -> str:
    """Give the report's first sentences for queues with a goodput and a p95 each, three runs of each."""
    records = [
        make_record(name, seed, goodput, p95 + seed / 100) for name, goodput, p95 in queues for seed in (1, 2, 3)
    ]
    jobs = [Job(record["queue"], record["seed"]) for record in records]
    text = page(Outcome(None, jobs, dict(enumerate(records))), "x")
    return re.sub("</?b>", "", text.split('class="finding">')[1].split("</p>")[0])


def test_the_report_says_which_queue_to_take_on_which_condition() -> None:
    # One queue is best for both. A queue within 1 % of the highest goodput is not said to have the highest.
    assert finding(("fq", 13.0, 9.0), ("red", 13.05, 400.0)) == (
        "Take fq: it carries 13.00 Mbit/s, within 1 % of the most, and keeps the queue shortest: 95 % of packets are "
        "through within 9.02 ms."
    )
    assert "carries 13.00 Mbit/s, the most, and keeps" in finding(("fq", 13.0, 9.0), ("red", 13.0, 400.0))
    # Otherwise two are named, and the rest of the front lies between them; red is not on the front.
    assert finding(("fq", 13.0, 50.0), ("pie", 12.0, 20.0), ("codel", 10.0, 5.0), ("red", 9.0, 5.01)) == (
        "If goodput matters more, take fq: it carries 13.00 Mbit/s, the most, and 95 % of packets are through within "
        "50 ms. If delay matters more, take codel: 5.02 ms, with 23 % less goodput. 1 other queue of the front (◆) "
        "lies between."
    )


def test_the_report_takes_delays_within_their_intervals_for_equal() -> None:
    few = [("fq", 12.0, (9.0, 11.0, 13.0)), ("codel", 9.0, (8.0, 11.0, 13.0)), ("pfifo", 12.0, (300.0, 310.0, 320.0))]
    records = [make_record(name, k, goodput, p95) for name, goodput, all_p95 in few for k, p95 in enumerate(all_p95)]
    jobs = [Job(record["queue"], record["seed"]) for record in records]
    text = page(Outcome(None, jobs, dict(enumerate(records))), "x")
    assert "Take <b>fq</b>: it carries 12.00 Mbit/s, the most, and keeps the queue shortest" in text


def test_an_interrupted_experiment_says_so(outcome: Outcome) -> None:
    outcome.interrupted = True
    del outcome.by_job[26]
    assert "Interrupted: 26 of 27 runs had finished." in page(outcome, "x")


def test_records_without_flows_distribution_or_series_still_make_a_page(outcome: Outcome) -> None:
    for record in outcome.by_job.values():
        record.update(flows=[], sojourn_cdf=[], series=None, jain=None, rtt_ms=None)
    text = page(outcome, "x")
    assert all(q["series"] is None and q["cdf"] is None for q in data(text)["queues"])  # type: ignore[attr-defined]


def test_a_flow_shows_its_rtt_beyond_the_paths_own(outcome: Outcome) -> None:
    for index, record in outcome.by_job.items():
        own = [flow | {"base_rtt_ms": 20.0, "rtt_ms": {"mean": 25.0 + index}} for flow in record["flows"]]
        record["flows"] = [own[0], own[1] | {"rtt_ms": None}]
    for queue in data(page(outcome, "x"))["queues"]:  # type: ignore[attr-defined]
        (_, _, _, first), (_, _, _, second) = queue["flows"]
        runs = [i for i, job in enumerate(outcome.jobs) if job.queue == queue["name"] and i in outcome.by_job]
        assert first == pytest.approx(5.0 + sum(runs) / len(runs), rel=1e-3)
        assert second is None


def test_airtime_of_a_cells_queues_is_shown() -> None:
    scenario = load("wifi-flat", duration="8s", seeds="2")
    found = run_jobs(scenario, plan(scenario, ["fq_codel", "pfifo limit 200"]))
    text = page(found, "x")
    air = text.split("<h2>Airtime</h2>")[1].split("</section>")[0]
    assert air.count("<details") == 2
    queues = found.records[0]["wifi"]["queues"]
    for queue in queues:
        assert f"{queue['from']} → {queue['to']}" in air
    runs = [r["wifi"]["queues"][0]["airtime"] for r in found.records if r["queue"] == "fq_codel"]
    assert f'data-v="{sum(runs) / len(runs) * 100:.9g}"' in air


def test_a_link_has_no_section_on_airtime(outcome: Outcome) -> None:
    assert "<h2>Airtime</h2>" not in page(outcome, "x")


HOUSEHOLD = """
duration = "3s"
warmup = "1s"
seeds = 2
[link]
rate = "20mbit"
[[flow]]
count = 3
host = "<laptop>"
[[flow]]
count = 1
host = "phone"
dscp = "EF"
"""


def test_hosts_and_tins_show_their_shares() -> None:
    scenario = load(HOUSEHOLD)
    words = ["cake diffserv4 dual-dsthost", "fq_codel"]
    found = run_jobs(scenario, plan(scenario, words))
    text = page(found, "x")
    shares = text.split("Shares of hosts and tins")[1].split("</section>")[0]
    assert shares.count("<details") == 2
    assert "&lt;laptop&gt;" in shares
    runs = [r["hosts"][1]["share"] for r in found.records if r["queue"] == words[0]]
    assert f"<td>{sum(runs) / len(runs) * 100:.1f}</td>" in shares
    # Only cake has tins.
    assert shares.count("<td>Voice</td>") == 1


def test_link_without_hosts_has_no_shares(outcome: Outcome) -> None:
    assert "Shares of hosts and tins" not in page(outcome, "x")


def test_only_runs_without_bins_of_their_own_get_those_of_the_report() -> None:
    scenario = load("home", duration="8s", seeds="2")
    widths = [
        [job.series_bin_s for job in plan(scenario, ["pfifo"], series_bin_s=s, first_series=True)]
        for s in (None, 0.0, 0.5)
    ]
    assert widths[0][0] and widths[0][1] is None
    assert widths[1:] == [[0.0, 0.0], [0.5, 0.5]]
    with pytest.raises(InputError, match="0 s is not a time"):
        run_jobs(scenario, plan(scenario, ["pfifo"], series_bin_s=0.0))
