"""Lines of tc, read as a link and its queue. Outputs of tc are from iproute2 6.1 on Linux 7.2."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import quell
from conftest import Quell
from quell import _core
from quell._core import InputError
from quell.inputs import tc
from quell.inputs.framing import Framing
from quell.inputs.notes import LeftOutWarning

# The words of a command, and the output of `tc qdisc show dev eth0` after it.
PAIRS = {
    "cake bandwidth 50mbit docsis ack-filter": "cake 8001: root refcnt 2 bandwidth 50Mbit diffserv3 triple-isolate "
    "nonat nowash ack-filter split-gso rtt 100ms noatm overhead 18 mpu 64",
    "cake bandwidth 9mbit besteffort dual-srchost nat overhead 44 atm mpu 96 rtt 60ms ingress": "cake 8002: root "
    "refcnt 2 bandwidth 9Mbit besteffort dual-srchost nat nowash ingress no-ack-filter split-gso rtt 60ms atm "
    "overhead 44 mpu 96",
    "cake unlimited": "cake 8003: root refcnt 2 bandwidth unlimited diffserv3 triple-isolate nonat nowash "
    "no-ack-filter split-gso rtt 100ms raw overhead 0",
    "fq_codel limit 600 target 12ms noecn ce_threshold 2ms": "fq_codel 8004: root refcnt 2 limit 600p flows 1024 "
    "quantum 1514 target 12ms ce_threshold 2ms interval 100ms memory_limit 32Mb drop_batch 64",
    "codel ecn target 20ms": "codel 8005: root refcnt 2 limit 1000p target 20ms interval 100ms ecn",
    "pie limit 200 target 20ms ecn": "pie 8006: root refcnt 2 limit 200p target 20ms tupdate 15ms alpha 2 beta 20 ecn",
    "fq_pie limit 5000 flows 512": "fq_pie 8007: root refcnt 2 limit 5000p flows 512 target 15ms tupdate 15ms alpha 2 "
    "beta 20 quantum 1514b memory_limit 32Mb ecn_prob 10",
    "fq flow_limit 50 maxrate 10mbit": "fq 8009: root refcnt 2 limit 10000p flow_limit 50p buckets 1024 orphan_mask "
    "1023 quantum 3028b initial_quantum 15140b maxrate 10Mbit low_rate_threshold 550Kbit refill_delay 40ms timer_slack "
    "10us horizon 10s horizon_drop",
    "bfifo limit 60000": "bfifo 800a: root refcnt 2 limit 60000b",
    "pfifo limit 77": "pfifo 800b: root refcnt 2 limit 77p",
    "sfq limit 200 perturb 10": "sfq 8010: root refcnt 2 limit 200p quantum 1514b depth 127 flows 128 divisor 1024 "
    "perturb 10sec",
    "hhf limit 200 admit_bytes 20000": "hhf 8011: root refcnt 2 limit 200p quantum 1514b hh_limit 2048 "
    "reset_timeout 40ms admit_bytes 20000b evict_timeout 1s non_hh_weight 2",
    "prio bands 4 priomap 2 2 3 3 1 1 0 0 2 2 2 2 2 2 2 2": "prio 8012: root refcnt 2 bands 4 priomap 2 2 3 3 1 1 0 "
    "0 2 2 2 2 2 2 2 2",
    "ets bands 4 strict 1 quanta 4500 3000 1500 priomap 3 3 2 3 1 3 0 0 3 3 3 3 3 3 3 3": "ets 8013: root refcnt 2 "
    "bands 4 strict 1 quanta 4500 3000 1500 priomap 3 3 2 3 1 3 0 0 3 3 3 3 3 3 3 3",
    "netem delay 20ms loss 1% rate 8mbit limit 300": "netem 800f: root refcnt 2 limit 300 delay 20ms loss 1% "
    "rate 8Mbit",
    "handle 1: tbf rate 10mbit burst 32kb latency 50ms": "tbf 1: root refcnt 2 rate 10Mbit burst 32Kb lat 50ms",
}  # fmt: skip


# tc prints a framing keyword as numbers, and `raw` if no framing was given.
SHOWN = {
    "cake bandwidth 50mbit docsis ack-filter": "cake bandwidth 50mbit ack-filter overhead 18 mpu 64",
    "cake unlimited": "cake unlimited raw",
}


@pytest.mark.parametrize("words", PAIRS)
def test_a_command_and_what_tc_shows_of_it_are_the_same_queue(words: str) -> None:
    command = tc.read(f"sudo tc qdisc replace dev eth0 root {words}")
    shown = tc.read(f"qdisc {PAIRS[words]} \n Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n backlog 0b 0p")
    assert command.up is None
    expected = SHOWN.get(words, command.down.queue)
    assert shown.down == replace(command.down, queue=expected, framing=shown.down.framing)
    assert Framing.of(shown.down.framing or "") == Framing.of(command.down.framing or "")


def test_a_long_line_of_other_words_is_read_in_linear_time() -> None:
    since = time.process_time()
    with pytest.raises(InputError):
        tc.read(" tc " * 40_000)
    assert time.process_time() - since < 10, "a quadratic search took more than a minute"


@pytest.mark.parametrize("text", ["x" * 1_000_000, "'" + "x \\\n" * 250_000 + "'"], ids=["one line", "continued"])
def test_a_line_of_megabytes_is_refused_at_once(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sqm.txt"
    file.write_text(f"# mine\n{text}\n")
    since = time.process_time()
    for given, place in ((str(file), f"{file}:"), (f"# mine\n{text}", "line ")):
        with pytest.raises(InputError, match=rf"^--tc: {place}\d+: it has more than 16384 characters; [^\n]*$"):
            quell.scenario("home", tc=[given])
    assert time.process_time() - since < 5, "shlex took more than 20 seconds"


def test_a_text_of_megabytes_is_refused_at_once() -> None:
    since = time.process_time()
    with pytest.raises(InputError, match=r"^--tc: the lines have more than 1048576 characters; [^\n]*$"):
        quell.scenario("home", tc=["tc qdisc add dev eth0 root pfifo\n" * 60_000])
    assert time.process_time() - since < 1


def test_thousands_of_filters_and_classes_are_read_in_linear_time() -> None:
    lines = ["tc qdisc add dev eth0 root handle 1: htb"]
    lines += [f"tc class add dev eth0 parent 1: classid 1:{i:x} htb rate 1mbit" for i in range(1, 4000)]
    lines += [f"tc filter add dev eth0 parent 1: handle {i} fw flowid 1:{i:x}" for i in range(1, 8000)]
    since = time.process_time()
    with pytest.raises(InputError, match="at most 128 classes"):
        tc.read("\n".join(lines))
    assert time.process_time() - since < 5, "each class read all filters: 30 seconds"


def test_shapers_without_end_are_refused_in_a_line() -> None:
    shaper = "tbf rate 1mbit burst 1kb limit 3kb"
    lines = [f"tc qdisc add dev eth0 parent {i}: handle {i + 1}: {shaper}" for i in range(1, 5000)]
    with pytest.raises(InputError, match="too many queues, one below the other"):
        tc.read("\n".join([f"tc qdisc add dev eth0 root handle 1: {shaper}", *lines]))
    root = f"tc qdisc add dev eth0 root handle 1: {shaper}"
    assert tc.read("\n".join([root, *lines[:7]])).down.queue
    for beyond in ([root, *lines[:8]], [root, lines[0], f"tc qdisc add dev eth0 parent 2: handle 2: {shaper}"]):
        with pytest.raises(InputError, match="too many queues, one below the other"):
            tc.read("\n".join(beyond))


def test_a_shaper_with_a_queue_below_is_a_link_with_that_queue() -> None:
    read = tc.read(
        "tc qdisc del dev eth0 root\n"
        "modprobe sch_tbf   # other lines of a script are ignored\n"
        "tc qdisc add dev eth0 root handle 1: \\\n  tbf rate 10mbit burst 32kb latency 50ms\n"
        "/sbin/tc qdisc add dev eth0 parent 1:1 fq_codel limit 99\n"
    )
    assert read.down.keys() == {"rate": "10mbit", "queue": "fq_codel limit 99", "shaper": "htb", "burst": 32768}
    # tc-tbf(8): the limit is 62,500 bytes (10 Mbit/s for 50 ms) and the bucket's 32,768 bytes.
    assert tc.read("tc qdisc add dev a root tbf rate 10mbit burst 32kb latency 50ms").down.queue == "bfifo limit 95268"


HTB = """qdisc htb 1: dev eth0 root refcnt 2 r2q 10 default 0x10 direct_packets_stat 0 direct_qlen 1000
qdisc codel 20: dev eth0 parent 1:10 limit 1000p target 5ms interval 100ms 
class htb 1:10 parent 1:1 leaf 20: prio 0 rate 1Mbit ceil 12Mbit burst 1600b cburst 1597b 
class htb 1:1 root rate 20Mbit ceil 20Mbit burst 15Kb cburst 1600b 
"""  # noqa: W291 (as tc prints it)


def test_a_tree_with_one_leaf_has_the_least_ceiling_on_the_way() -> None:
    commands = (
        "tc qdisc add dev eth0 root handle 1: htb default 10\n"
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 20mbit burst 15k\n"
        "tc class add dev eth0 parent 1:1 classid 1:10 htb rate 1mbit ceil 12mbit\n"
        "tc qdisc add dev eth0 parent 1:10 handle 20: codel\n"
        "tc filter add dev eth0 parent 1: protocol ip u32 match u32 0 0 flowid 1:10\n"
    )
    for text in (commands, HTB):
        side = tc.read(text).down
        assert (side.rate, side.queue) == ("12mbit", "codel")


def test_a_tree_with_several_leaves_is_a_queue_with_classes() -> None:
    commands = (
        "tc qdisc add dev eth0 root handle 1: htb default 20\n"
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 20mbit burst 15k\n"
        "tc class add dev eth0 parent 1:1 classid 1:10 htb rate 1mbit ceil 12mbit prio 1\n"
        "tc class add dev eth0 parent 1:1 classid 1:20 htb rate 5mbit ceil 20mbit quantum 1514\n"
        "tc qdisc add dev eth0 parent 1:10 handle 20: codel limit 50\n"
        "tc filter add dev eth0 parent 1: protocol ip prio 1 handle 6 fw flowid 1:10\n"
        "tc filter add dev eth0 parent 1: protocol ip u32 match ip dsfield 0xb8 0xfc flowid 1:20\n"
        "tc filter add dev eth0 parent 1: protocol ip u32 match ip dsfield 0x88 0xfc flowid 1:20\n"
        "tc filter add dev eth0 parent 1: protocol ip u32 match ip dport 80 0xffff flowid 1:20\n"
    )
    read = tc.read(commands)
    assert read.down.queue == (
        "htb default 20 class 1:1 rate 20mbit burst 15kb "
        "class 1:10 parent 1:1 rate 1mbit ceil 12mbit prio 1 fwmark 6 queue codel limit 50 "
        "class 1:20 parent 1:1 rate 5mbit ceil 20mbit quantum 1514 dscp AF41,EF"
    )
    assert (read.down.rate, read.down.shapes_itself) == ("20000000bit", True)
    assert read.left_out == ["filter parent 1: protocol ip u32 match ip dport 80 0xffff flowid 1:20"]
    shown = tc.read(HTB + "class htb 1:20 parent 1:1 leaf 30: prio 0 rate 5Mbit ceil 20Mbit burst 1600b cburst 1600b\n")
    assert "class 1:20 parent 1:1 rate 5mbit ceil 20mbit burst 1600 cburst 1600 prio 0" in shown.down.queue


def test_classes_of_prio_ets_and_drr_have_queues_and_filters() -> None:
    prio = (
        "tc qdisc add dev a root handle 1: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n"
        "tc qdisc add dev a parent 1:1 pfifo limit 9\n"
        "tc filter add dev a parent 1: flower ip_tos 0xb8/0xfc classid 1:1\n"
    )
    assert tc.read(prio).down.queue.endswith("class 1:1 dscp EF queue pfifo limit 9")
    drr = (
        "tc qdisc add dev a root handle 1: drr\n"
        "tc class add dev a parent 1: classid 1:1 drr quantum 3000\n"
        "tc class add dev a parent 1: classid 1:2 drr\n"
        "tc qdisc add dev a parent 1:2 fq_codel\n"
        "tc filter add dev a parent 1: u32 match mark 5 0xffffffff flowid 1:2\n"
        "tc filter add dev a parent 1: u32 match ip dst 10.0.0.9/32 flowid 1:1\n"
    )
    words = "drr class 1:1 quantum 3000 host 10.0.0.9 class 1:2 fwmark 5 queue fq_codel"
    assert tc.read(drr).down.queue == words


def test_a_size_table_that_a_keyword_describes_is_the_framing() -> None:
    def framing(stab: str) -> str | None:
        lines = (
            f"tc qdisc add dev eth0 root handle 1: stab {stab} htb default 10\n"
            "tc class add dev eth0 parent 1: classid 1:10 htb rate 1mbit\n"
            "tc qdisc add dev eth0 parent 1:10 fq_codel\n"
        )
        return tc.read(lines).down.framing

    # A size table's overhead is on top of the 14-byte Ethernet header, quell's on top of the IP packet.
    assert framing("overhead 4 mpu 64 linklayer ethernet") == "docsis"
    assert framing("mtu 2047 tsize 512 mpu 0 overhead 26 linklayer adsl") == "pppoe-llcsnap"
    assert framing("overhead 5") == "overhead 19"
    assert framing("mtu 2047 tsize 512 mpu 64 overhead 44 linklayer atm") == "overhead 58 mpu 64 atm"
    for wrong in ("overhead 500", "overhead 4 mpu 300", "overhead 4 linklayer ptm"):
        with pytest.raises(InputError, match="stab"):
            framing(wrong)
    with pytest.raises(InputError, match="are to be numbers"):
        framing("overhead lots")


def test_deleting_the_ingress_queue_leaves_the_egress_queue() -> None:
    text = "tc qdisc replace dev eth0 root cake bandwidth 10mbit\ntc qdisc del dev eth0 ingress\n"
    assert tc.read(text).down.rate == "10mbit"


def test_an_interface_and_its_ifb_are_both_directions() -> None:
    text = (
        "qdisc noqueue 0: dev lo root refcnt 2\n"
        "qdisc cake 8010: dev eth0 root refcnt 2 bandwidth 10Mbit nat rtt 100ms raw overhead 0\n"
        " memory used: 0b of 4Mb\n                   Bulk  Best Effort        Voice\n  thresh        625Kbit   10Mbit\n"
        "qdisc ingress ffff: dev eth0 parent ffff:fff1 ----------------\n"
        "qdisc cake 8011: dev ifb4eth0 root refcnt 2 bandwidth 50Mbit ingress rtt 100ms raw overhead 0\n"
    )
    scenario = quell.scenario(tc=text, duration="10s")
    written = scenario.toml()
    assert 'rate = "50mbit"' in written
    assert "[link.up]" in written
    assert 'rate = "10mbit"' in written
    assert "bandwidth 50mbit" in scenario.queue
    assert "nat" in written.split("[link.up]")[1]


def test_rate_and_round_trip_of_the_command_line_and_of_the_lines() -> None:
    cake = "tc qdisc replace dev eth0 root cake bandwidth 50mbit"
    assert 'rate = "80mbit"' in quell.scenario(tc=cake, rate="80mbit").toml()
    assert "bandwidth 50mbit" in quell.scenario(tc=cake, rate="80mbit").queue
    netem = quell.scenario(tc="tc qdisc add dev a root netem rate 8mbit delay 20ms loss 1%").toml()
    assert 'rtt = "20ms"' in netem
    assert "loss = 0.01" in netem
    with pytest.raises(InputError, match="--rate and --tc: the lines have a rate"):
        quell.scenario(tc="tc qdisc add dev a root tbf rate 1mbit burst 2k limit 9k", rate="2mbit")
    with pytest.raises(InputError, match="name no rate; add --rate"):
        quell.scenario(tc="tc qdisc add dev a root codel")
    assert quell.scenario("home", tc="tc qdisc add dev a root codel").queue == "codel"


def test_words_without_effect_are_named() -> None:
    with pytest.warns(LeftOutWarning, match="fq maxrate 10mbit"):
        quell.scenario(tc="tc qdisc add dev a root fq maxrate 10mbit flow_limit 50", rate="5mbit")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quell.scenario(tc="tc qdisc add dev a root codel", rate="5mbit")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not lines of tc"),
        ("hello", "not lines of tc"),
        ("tc", "no line sets up a queue"),
        ("tc qdisc", "no line sets up a queue"),
        ("qdisc", "no line sets up a queue"),
        ("tc qdisc add dev", "lacks"),
        ("tc qdisc add root codel", "lacks its interface"),
        ("tc qdisc add dev a root", "lacks a kind"),
        ("tc qdisc add dev a root nosuch", "unknown queue `nosuch`"),
        ("tc qdisc add dev a root codel tarket 5ms", "tarket"),
        ("tc qdisc add dev a root tbf rate 1mbit burst 2k", "neither limit nor latency"),
        ("tc qdisc add dev a root tbf rate 1mbit burst x limit 3000", "not a size"),
        ("tc qdisc add dev a root mq", "`mq`"),
        ("tc qdisc add dev a root handle 1: htb", "no class"),
        ("tc qdisc add dev a root stab overhead 400 linklayer atm codel", "stab"),
        ("qdisc add dev", "lacks"),
        ("$TC qdisc add dev $IF root cake bandwidth ${UP}kbit", "bandwidth"),
        ("qdisc sfq 1: dev a root limit 300p min 8000b max 60000b probability 0.2", "redflowlimit"),
        ("tc qdisc add dev a root codel\ntc qdisc add dev b root codel", "a, b"),
        ("tc qdisc add dev a root netem loss much", "much"),
        ("tc qdisc add dev a root cake bandwidth", "bandwidth"),
        ("tc qdisc add dev a root 'codel", "not lines of tc"),
    ],
)
def test_bad_lines_are_one_line(text: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        quell.scenario("home", tc=[text])
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


CAKE = "tc qdisc replace dev eth0 root cake bandwidth 40mbit"


@pytest.mark.parametrize(
    "text",
    [
        f"$ sudo {CAKE}",
        f"root@OpenWrt:~# {CAKE}",
        f"+ /usr/sbin/{CAKE}",
        f"sudo ip netns exec router {CAKE}",
        f"tc qdisc del dev eth0 root 2>/dev/null; {CAKE}",
        f"tc qdisc del dev eth0 root >/dev/null 2>&1 || true && {CAKE}",
        "$TC qdisc add dev $IFACE root cake bandwidth 40mbit",
        "${TC} qdisc add dev ${IFACE} root cake bandwidth 40mbit",
        f"#!/bin/sh\n# tc qdisc add dev eth0 root codel\nif true; then\n  {CAKE}\nfi",
        "qdisc replace dev eth0 root cake bandwidth 40mbit",
        f"if ! {CAKE}; then exit; fi",
    ],
)
def test_lines_of_scripts_terminals_and_batches_are_commands(text: str) -> None:
    assert tc.read(text).down.queue == "cake bandwidth 40mbit"


def test_lines_of_sqm_scripts() -> None:
    simple = (
        "$TC qdisc add dev eth0 root handle 1: stab mtu 2047 tsize 512 mpu 64 overhead 44 linklayer atm "
        "htb default 12\n"
        "$TC class add dev eth0 parent 1: classid 1:1 htb quantum 1514 rate 9500kbit ceil 9500kbit\n"
        "$TC class add dev eth0 parent 1:1 classid 1:11 htb quantum 1514 rate 128kbit ceil 3166kbit prio 1\n"
        "$TC class add dev eth0 parent 1:1 classid 1:12 htb quantum 1514 rate 1583kbit ceil 9484kbit prio 2\n"
        "$TC qdisc add dev eth0 parent 1:11 handle 110: fq_codel limit 1001 quantum 300 noecn\n"
        "$TC qdisc add dev eth0 parent 1:12 handle 120: fq_codel limit 1001 quantum 300 noecn\n"
        "$TC filter add dev eth0 parent 1:0 protocol ip prio 1 handle 1 fw classid 1:11\n"
    )
    side = tc.read(simple).down
    assert side.queue == (
        "htb default 12 class 1:1 rate 9.5mbit ceil 9.5mbit quantum 1514 "
        "class 1:11 parent 1:1 rate 128kbit ceil 3.166mbit prio 1 quantum 1514 fwmark 1 "
        "queue fq_codel limit 1001 quantum 300 noecn "
        "class 1:12 parent 1:1 rate 1.583mbit ceil 9.484mbit prio 2 quantum 1514 "
        "queue fq_codel limit 1001 quantum 300 noecn"
    )
    assert side.framing == "overhead 58 mpu 64 atm"
    layer_cake = (
        "/usr/sbin/tc qdisc add dev eth1 root cake bandwidth 9500kbit diffserv3 nat dual-srchost overhead 18 mpu 64\n"
        "/usr/sbin/tc qdisc add dev eth1 handle ffff: ingress\n"
        "/usr/sbin/tc qdisc add dev ifb4eth1 root cake bandwidth 95000kbit besteffort wash nat dual-dsthost ingress\n"
        "/usr/sbin/tc filter add dev eth1 parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 action mirred "
        "egress redirect dev ifb4eth1\n"
    )
    read = tc.read(layer_cake)
    assert read.up is not None
    assert (read.up.queue, read.up.framing) == (
        "cake bandwidth 9.5mbit dual-srchost nat overhead 18 mpu 64", "overhead 18 mpu 64"
    )  # fmt: skip
    assert read.down.queue == "cake bandwidth 95mbit besteffort dual-dsthost nat wash ingress"


@pytest.mark.parametrize(
    ("shown", "queue", "left_out"),
    [
        ("red 1: limit 240Kb min 15Kb max 45Kb ecn ewma 3 probability 0.1 Scell_log 13",
         "red limit 240kb min 15kb max 45kb probability 0.1 ecn", ["red ewma 3", "red Scell_log 13"]),
        ("sfb 1: rehash 300s db 30s limit 500p max 30p target 20p penalty_rate 20pps penalty_burst 30p",
         "sfb rehash 300000 db 30000 limit 500 max 30 target 20 penalty_rate 20 penalty_burst 30", []),
        ("fq_codel 1: limit 300p flows 64 quantum 300 target 3ms interval 30ms memory_limit 4Mb drop_batch 8",
         "fq_codel limit 300 flows 64 target 3ms interval 30ms quantum 300 noecn memory_limit 4mb drop_batch 8", []),
        ("tbf 1: rate 10Mbit burst 32Kb peakrate 12Mbit minburst 1539b lat 50ms", "bfifo limit 95268",
         ["tbf peakrate 12Mbit"]),
        ("netem 1: limit 500 delay 20ms  5ms 25% loss 1% duplicate 1% rate 10Mbit", "pfifo limit 500",
         ["netem duplicate 1%", "netem jitter 5ms"]),
        ("cake_mq 1: bandwidth 100Mbit besteffort", "cake bandwidth 100mbit besteffort", []),
    ],
)  # fmt: skip
def test_output_of_tc_for_other_disciplines_is_read(shown: str, queue: str, left_out: list[str]) -> None:
    read = tc.read(f"qdisc {shown.replace(':', ': dev eth0 root refcnt 2', 1)}")
    assert read.down.queue == queue
    assert read.left_out == left_out


# tc accepts these values, quell refuses them. tc wraps negative values and times above 2^32 us, takes the default for
# an rtt of 0, rounds bandwidths down to whole bytes per second (0: unlimited), and reads numbers without a unit in
# bit/s or us.
NO_SUCH_VALUE = (
    "bandwidth -1mbit", "bandwidth 1bit", "bandwidth 10", "bandwidth 99999tbit", "rtt 0", "rtt 100",
    "rtt -1ms", "rtt 5000s",
)  # fmt: skip
OWN_WORD = "target 5ms"


def test_cakes_words_mean_to_quell_what_they_mean_to_tc() -> None:
    table = Path(__file__).parent.parent / "crates" / "quell-link" / "tests" / "data" / "cake-words.txt"
    lines = [line.split("\t") for line in table.read_text().splitlines()]
    assert len(lines) > 1000

    def plain(queue: str) -> list[str]:
        # Leave out `unlimited`: without a rate, tc's CAKE does not shape, while in quell the link does. `raw` without
        # `overhead` has no effect.
        words = queue.removeprefix("cake").split()
        return [w for w in words if w != "unlimited" and (w != "raw" or "overhead" in words)]

    for words, shown in lines:
        if words == OWN_WORD:
            continue
        if shown.startswith("!") or words in NO_SUCH_VALUE:
            with pytest.raises(InputError) as error:
                _core.queue(f"cake {words}")
            assert "\n" not in str(error.value)
        else:
            here = plain(_core.queue(f"cake {words}"))
            assert here == plain(tc.read(shown.replace("root", "dev eth0 root", 1)).down.queue), words


def test_the_command_line_reads_lines_files_and_standard_input(quell: Quell, tmp_path: Path) -> None:
    line = "tc qdisc replace dev eth0 root cake bandwidth 20mbit besteffort"
    (tmp_path / "sqm.txt").write_text(line + "\n")
    for given in (line, str(tmp_path / "sqm.txt")):
        done = quell("run", "--tc", given, "--duration", "5s", "--json", "-")
        assert done.returncode == 0, done.stderr
        assert '"queue": "cake bandwidth 20mbit besteffort"' in done.stdout
    assert quell("run", "--tc", str(tmp_path / "none.txt")).returncode == 2
