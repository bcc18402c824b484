"""Lines of `quell tune` for VyOS, OPNsense and QoSmate, compared with the definitions of these projects."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path

import pytest

from conftest import QUELL, Quell
from quell import _core
from quell._core import InputError
from quell.inputs.framing import ETHERNET, Framing
from quell.tune import search, space, targets, vyos
from quell.tune.line import Line
from quell.tune.space import Setting
from test_tune import SMALL, every, home, moved

FRAMINGS: tuple[str | None, ...] = (None, "docsis", "ethernet", "pppoe-ptm ether-vlan")


def lines(target: str, dev: str, line: Line, setting: Setting) -> list[str]:
    return targets.TARGETS[target].lines(dev, line, *search.shapes(setting, line))


BOTH_WAYS = """
flow = [{ count = 2, rtt = "20ms" }, { count = 2, rtt = "20ms", direction = "up" }]
link = { rate = "1gbit", framing = "docsis", up = { rate = "100mbit", queue = "fq_codel" } }
"""


# Rates of shapers that do not know the framing. ----------------------------------------------------------------------


@pytest.mark.parametrize("framing", FRAMINGS[1:])
def test_a_rate_without_the_framing_carries_what_that_with_it_carries(
    quell: Quell, tmp_path: Path, framing: str
) -> None:
    """Two transfers each way: the acknowledgments of a faster upload take a part of the download's rate."""
    rate = Framing.of(framing).scaled(20_000_000, ETHERNET, 100_000_000)
    (tmp_path / "both.toml").write_text(BOTH_WAYS.replace("docsis", framing))
    queues = (f"cake bandwidth 20mbit {framing}", f"cake bandwidth {rate}bit overhead 14")
    given = [word for queue in queues for word in ("--aqm", queue)]
    done = quell("compare", "both.toml", "--duration", "10s", "--seeds", "1", *given, "--json", "-")
    assert done.returncode == 0, done.stderr
    known, scaled = (
        sum(flow["goodput_mbps"] for flow in record["flows"] if flow["direction"] == "down")
        for record in json.loads(done.stdout)
    )
    assert scaled == pytest.approx(known, rel=0.01)


def test_a_shaper_that_counts_more_than_the_line_gets_a_higher_rate() -> None:
    assert Framing.of("overhead 0").scaled(15_000_000, ETHERNET, 0) == 15_140_000
    assert Framing.of("").scaled(15_140_000, ETHERNET, 10**9) == 15_140_000
    assert Framing.of("").scaled(15_140_000, 0, 0) == 15_000_000


def test_a_rate_is_one_of_acknowledgments_alone_where_they_take_all_of_it() -> None:
    # 52 of 66 bytes.
    assert Framing.of("").scaled(660_000, 0, 10**9) == 520_000


@pytest.mark.parametrize("target", ["vyos", "opnsense"])
def test_atm_cells_cannot_be_counted(target: str) -> None:
    with pytest.raises(InputError, match=rf"--target {target} cannot count ATM's cells \(pppoe-llcsnap\)"):
        targets.kinds(target, None, home("16mbit/1mbit", "pppoe-llcsnap"))


# VyOS. ---------------------------------------------------------------------------------------------------------------

VYOS_CAKE = {
    "bandwidth": r"\d+kbit",
    "flow-isolation": "blind|src-host|dst-host|host|flow|dual-src-host|dual-dst-host|triple-isolate",
    "flow-isolation-nat": "",
    "rtt": r"\d+",
}
VYOS_SHAPER = {
    "bandwidth": r"\d+kbit",
    "default": {
        "bandwidth": r"\d+kbit", "burst": r"\d+", "codel-quantum": r"\d+", "flows": r"\d+", "interval": r"\d+",
        "queue-limit": r"\d+", "queue-type": "fq-codel", "target": r"\d+",
    },
}  # fmt: skip
VYOS = {
    "qos": {
        "interface": {"*": {"egress": r"quell-\w+"}},
        "policy": {"cake": {"*": VYOS_CAKE}, "shaper": {"*": VYOS_SHAPER}},
    },
    "interfaces": {
        "input": {"*": ""},
        "ethernet": {"*": {"redirect": "ifb0", "vif": {"*": {"redirect": "ifb0"}}}},
        "pppoe": {"*": {"redirect": "ifb0"}},
    },
}
"""The paths among those of VyOS that are used: vyos/vyos-1x, commit 3710c587, and pull request 4173 (see vyos.py)."""


def accepts(path: list[str]) -> bool:
    """Return whether VyOS has a path with its value; the name of an object ends a path that deletes it."""
    known: object = VYOS
    for number, word in enumerate(path):
        if isinstance(known, str):
            return number == len(path) - 1 and re.fullmatch(known, word) is not None
        assert isinstance(known, dict)
        known = known.get("*", known.get(word))
        if known is None:
            return False
    return known == "" or isinstance(known, dict)


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("dev", ["eth0", "eth1.7", "pppoe0"])
def test_vyos_has_every_path(framing: str | None, dev: str) -> None:
    line = home("50mbit/10mbit", framing)
    for setting in every("vyos", line):
        *commands, commit = lines("vyos", dev, line, setting)
        assert commit == "commit"
        deleted = 0
        for command in commands:
            verb, *path = command.split()
            assert verb in ("set", "delete")
            assert accepts(path), command
            deleted += verb == "delete"
        assert {command.split()[0] for command in commands[:deleted]} == {"delete"}, "first"
        undo = targets.TARGETS["vyos"].filled(targets.TARGETS["vyos"].undo, dev)
        assert len(undo) == 1
        # Whatever is made is removed.
        made = {" ".join(words[1:5]) for words in map(str.split, commands) if words[:2] == ["set", "qos"]}
        removed = {part.strip().removeprefix("delete ") for part in undo[0].split(";")}
        assert {re.sub(r" egress$", "", path) for path in made} <= {f"{path}" for path in removed}
        assert {"interfaces input ifb0", f"interfaces {vyos.path(dev)} redirect"} <= removed


def test_vyos_does_not_know_a_wrong_path() -> None:
    for path in ("qos policy cake a nat", "qos policy cake a rtt 5ms", "qos interface eth0 egress a b", "nat source"):
        assert not accepts(path.split()), path


def test_vyos_recorded() -> None:
    line = home("50mbit/10mbit", "docsis")
    lacks = targets.TARGETS["vyos"].lacks
    assert lines("vyos", "eth0", line, moved("cake", lacks)) == [
        "delete qos interface eth0",
        "delete qos interface ifb0",
        "delete qos policy cake quell-down",
        "delete qos policy cake quell-up",
        "delete qos policy shaper quell-down",
        "delete qos policy shaper quell-up",
        # 88.5 % of the line's rate; of 1518 bytes and 70 bytes, 1514 and 66 are counted.
        "set qos policy cake quell-down bandwidth 44122kbit",
        "set qos policy cake quell-down flow-isolation dual-dst-host",
        "set qos policy cake quell-down rtt 12",
        "set qos policy cake quell-down flow-isolation-nat",
        "set qos policy cake quell-up bandwidth 8771kbit",
        "set qos policy cake quell-up flow-isolation dual-src-host",
        "set qos policy cake quell-up rtt 12",
        "set qos policy cake quell-up flow-isolation-nat",
        "set qos interface eth0 egress quell-up",
        "set qos interface ifb0 egress quell-down",
        "set interfaces input ifb0",
        "set interfaces ethernet eth0 redirect ifb0",
        "commit",
    ]
    upload = [text for text in lines("vyos", "pppoe0", line, moved("fq_codel")) if "shaper quell-up " in text]
    assert upload == [
        # No header is counted on pppoe0: of 1518 bytes and 70 bytes, 1500 and 52.
        "set qos policy shaper quell-up bandwidth 8494kbit",
        "set qos policy shaper quell-up default bandwidth 8494kbit",
        "set qos policy shaper quell-up default burst 1600",
        "set qos policy shaper quell-up default queue-type fq-codel",
        "set qos policy shaper quell-up default flows 1024",
        "set qos policy shaper quell-up default codel-quantum 307",
        "set qos policy shaper quell-up default interval 17",
        "set qos policy shaper quell-up default queue-limit 107",
        "set qos policy shaper quell-up default target 8",
    ]


def test_vyos_has_sections_for_interfaces(quell: Quell) -> None:
    paths = {
        "eth0": "ethernet eth0", "eth0.7": "ethernet eth0 vif 7", "eth0.7.8": "ethernet eth0 vif-s 7 vif-c 8",
        "pppoe3": "pppoe pppoe3", "bond0.20": "bonding bond0 vif 20", "br1": "bridge br1",
    }  # fmt: skip
    assert {dev: vyos.path(dev) for dev in paths} == paths
    assert [targets.TARGETS["vyos"].interface(dev) for dev in paths] == list(paths)
    done = quell("tune", "--rate", "10mbit/2mbit", "--target", "vyos", "--dev", "wan")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "--dev wan: is not an interface of this --target" in done.stderr


# OPNsense. -----------------------------------------------------------------------------------------------------------

OPNSENSE = {
    "Pipes": {
        "Bandwidth": r"\d+", "Bandwidth Metric": "bit/s|kbit/s|Mbit/s|Gbit/s", "Scheduler type": "FlowQueue-CoDel",
        "(FQ-)CoDel target": r"\d{1,4}", "(FQ-)CoDel interval": r"\d{1,4}", "(FQ-)CoDel ECN": "checked",
        "FQ-CoDel quantum": r"\d{1,4}", "FQ-CoDel limit": r"\d{1,5}", "FQ-CoDel flows": r"\d{1,5}",
        "Description": ".+",
    },
    "Queues": {"Pipe": ".+", "Description": ".+"},
    "Rules": {"Interface": ".+", "Direction": "in|out", "Target": ".+", "Description": ".+"},
}  # fmt: skip
"""Labels and values of fields: opnsense/core, commit f95e8151 (see opnsense.py)."""


@pytest.mark.parametrize("framing", FRAMINGS)
def test_opnsense_has_every_field(framing: str | None) -> None:
    line = home("50mbit/10mbit", framing)
    for setting in every("opnsense", line):
        first, *steps, last = lines("opnsense", "WAN", line, setting)
        assert "delete older entries" in first
        assert last == "Apply"
        pages: list[tuple[str, dict[str, str]]] = []
        for step in steps:
            if found := re.fullmatch(r"Firewall > Shaper > (\w+): add", step):
                pages.append((found[1], {}))
            else:
                label, value = step.removeprefix("    ").split(": ")
                pages[-1][1][label] = value
        assert [page for page, _ in pages] == ["Pipes", "Pipes", "Queues", "Queues", "Rules", "Rules"]
        for page, fields in pages:
            assert list(fields) == list(OPNSENSE[page])
            for label, value in fields.items():
                assert re.fullmatch(OPNSENSE[page][label], value), (page, label, value)
        # Each queue names a pipe, and each rule a queue.
        names = [fields["Description"] for _, fields in pages]
        assert [fields["Pipe"] for page, fields in pages if page == "Queues"] == names[:2]
        assert [fields["Target"] for page, fields in pages if page == "Rules"] == names[2:4]
        assert len(set(names)) == 6
        # The greatest values that dummynet takes (dn_sched_fq_codel.c).
        for fields in (pages[0][1], pages[1][1]):
            assert int(fields["FQ-CoDel quantum"]) <= 9000
            assert int(fields["FQ-CoDel limit"]) <= 20480


def test_opnsense_recorded() -> None:
    line = home("50mbit/10mbit", None)
    steps = lines("opnsense", "WAN", line, moved("fq_codel"))
    assert steps[:12] == [
        "Firewall > Shaper > Rules, Queues, Pipes: delete older entries whose descriptions begin with quell-",
        "Firewall > Shaper > Pipes: add",
        # 88.5 % of the line's rate; of 1514 bytes and 66 bytes, 1500 and 52 are counted.
        "    Bandwidth: 43801",
        "    Bandwidth Metric: kbit/s",
        "    Scheduler type: FlowQueue-CoDel",
        "    (FQ-)CoDel target: 8",
        "    (FQ-)CoDel interval: 17",
        "    (FQ-)CoDel ECN: checked",
        "    FQ-CoDel quantum: 307",
        "    FQ-CoDel limit: 107",
        "    FQ-CoDel flows: 1024",
        "    Description: quell-download",
    ]
    assert steps[23:] == [
        "Firewall > Shaper > Queues: add",
        "    Pipe: quell-download",
        "    Description: quell-download-queue",
        "Firewall > Shaper > Queues: add",
        "    Pipe: quell-upload",
        "    Description: quell-upload-queue",
        "Firewall > Shaper > Rules: add",
        "    Interface: WAN",
        "    Direction: in",
        "    Target: quell-download-queue",
        "    Description: quell-download-rule",
        "Firewall > Shaper > Rules: add",
        "    Interface: WAN",
        "    Direction: out",
        "    Target: quell-upload-queue",
        "    Description: quell-upload-rule",
        "Apply",
    ]


def test_the_interface_of_opnsense_is_assumed_to_be_wan_and_the_page_has_the_fields(
    quell: Quell, tmp_path: Path
) -> None:
    done = quell("tune", "--rate", "10mbit/2mbit", *SMALL[:-2], "--target", "opnsense", "--html", "tune.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "tune.html").read_text()
    for text in ("WAN is assumed to be the interface to the modem", "    Interface: WAN", "FlowQueue-CoDel"):
        assert text in done.stdout
        assert text in page
    assert "# to undo it: Firewall > Shaper > Rules, then Queues, then Pipes: delete" in done.stdout


def test_ask_offers_the_targets_default_interface(tmp_path: Path) -> None:
    answers = ["10mbit/2mbit", "", "cable", "bulk", "opnsense", ""]
    words = [str(QUELL), "tune", "--ask", *SMALL[:-2], "--json", "-"]
    done = subprocess.run(words, input="\n".join(answers) + "\n", cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "    Interface: WAN" in json.loads(done.stdout)["lines"]


# QoSmate. ------------------------------------------------------------------------------------------------------------

QOSMATE = {
    "settings": "WAN DOWNRATE UPRATE ROOT_QDISC",
    "advanced": "COMMON_LINK_PRESETS OVERHEAD MPU LINK_COMPENSATION BWMAXRATIO WASHDSCPUP WASHDSCPDOWN",
    "cake": "PRIORITY_QUEUE_INGRESS PRIORITY_QUEUE_EGRESS USE_MQ HOST_ISOLATION NAT_INGRESS NAT_EGRESS "
    "ACK_FILTER_EGRESS RTT AUTORATE_INGRESS EXTRA_PARAMETERS_INGRESS EXTRA_PARAMETERS_EGRESS",
    "autorate": "enabled",
}
"""Sections and options of etc/config/qosmate in hudra0/qosmate, commit ad5ef37a: of `cake` all."""


def told(tmp_path: Path, dev: str, line: Line, setting: Setting) -> dict[str, str]:
    """Run the lines in a shell whose `uci` and `cp` are functions; return the options by path."""
    *script, restart = lines("qosmate", dev, line, setting)
    assert restart == "/etc/init.d/qosmate restart"
    script = ["uci() { printf '%s\\0' \"$@\"; }", "cp() { :; }", *script]
    done = subprocess.run(["sh", "-eu"], input="\n".join(script), cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])
    words = done.stdout.split("\0")
    return dict(word.removeprefix("qosmate.").partition("=")[::2] for word in words if "=" in word)


def words_of_cake(options: dict[str, str], way: str) -> str:
    """Write cake's words in the order in which etc/qosmate.sh writes them."""

    def cake(key: str) -> str:
        return options[f"cake.{key}_{way}"]

    def flag(word: str, value: str) -> str:
        return word if value == "1" else f"no{word}"

    down = way == "INGRESS"
    rate = options[f"settings.{'DOWN' if down else 'UP'}RATE"]
    words = ["cake", f"bandwidth {rate}kbit", "ingress" if down else "", cake("PRIORITY_QUEUE")]
    if options["cake.HOST_ISOLATION"] == "1":
        words.append("dual-dsthost" if down else "dual-srchost")
    words += [f"rtt {options['cake.RTT']}ms", options["advanced.COMMON_LINK_PRESETS"]]
    words += [f"overhead {options['advanced.OVERHEAD']}", f"mpu {options['advanced.MPU']}"]
    words += [options["advanced.LINK_COMPENSATION"], cake("EXTRA_PARAMETERS"), flag("nat", cake("NAT"))]
    words.append(flag("wash", options[f"advanced.WASHDSCP{'DOWN' if down else 'UP'}"]))
    words.append("" if down else flag("-ack-filter", cake("ACK_FILTER")).removeprefix("-"))
    return " ".join(words)


@pytest.mark.parametrize("framing", [*FRAMINGS, "pppoe-llcsnap"])
@pytest.mark.parametrize("dev", ["pppoe-wan", "eth0'; touch made; '"])
def test_qosmate_gives_cake_the_simulated_words(tmp_path: Path, dev: str, framing: str | None) -> None:
    line = home("50mbit/10mbit", framing)
    flows = space.of("cake", dict(space.default("cake").values) | {"isolation": "flows", "tins": "besteffort"})
    for setting in (*every("qosmate", line), flows):
        options = told(tmp_path, dev, line, setting)
        sections = {path: kind for path, kind in options.items() if "." not in path}
        assert sections == {name: name for name in QOSMATE}
        for path, value in options.items():
            if path not in sections:
                section, _, key = path.partition(".")
                assert key in QOSMATE[section].split()
                # An empty value would delete the option, and its default would count.
                assert value
        assert options["settings.WAN"] == dev
        assert options["settings.ROOT_QDISC"] == "cake"
        for way, shaped in zip(("INGRESS", "EGRESS"), search.shapes(setting, line), strict=True):
            wanted = shaped.queue if framing else f"{shaped.queue} overhead 14"
            assert _core.queue(words_of_cake(options, way)) == _core.queue(wanted), way


def test_qosmate_does_not_lower_the_download_rate(tmp_path: Path) -> None:
    options = [told(tmp_path, "eth1", home(rate), space.default("cake")) for rate in ("50mbit/10mbit", "50mbit/1mbit")]
    assert [each["advanced.BWMAXRATIO"] for each in options] == ["20", "50"]


def test_qosmate_has_no_aggressive_filter_of_acks() -> None:
    plan = search.Plan(home(), ["cake"], 1, 1, targets.TARGETS["qosmate"].lacks)
    rng = random.Random(1)
    found = {dict(plan.propose("cake", [space.default("cake")], rng).values)["ack filter"] for _ in range(400)}
    assert found == {"no-ack-filter", "ack-filter"}


def test_qosmate_recorded() -> None:
    line = home("50mbit/10mbit", "docsis")
    setting = moved("cake", targets.TARGETS["qosmate"].lacks)
    assert lines("qosmate", "eth1", line, setting) == [
        "[ -e /etc/qosmate.before-quell ] || cp /etc/config/qosmate /etc/qosmate.before-quell",
        "uci set qosmate.settings=settings",
        "uci set qosmate.advanced=advanced",
        "uci set qosmate.cake=cake",
        "uci set qosmate.autorate=autorate",
        "uci -q delete qosmate.advanced.ETHER_VLAN_KEYWORD",
        "uci set qosmate.settings.WAN='eth1'",
        "uci set qosmate.settings.DOWNRATE='44250'",
        "uci set qosmate.settings.UPRATE='8850'",
        "uci set qosmate.settings.ROOT_QDISC='cake'",
        "uci set qosmate.advanced.COMMON_LINK_PRESETS='ethernet'",
        "uci set qosmate.advanced.OVERHEAD='18'",
        "uci set qosmate.advanced.MPU='64'",
        "uci set qosmate.advanced.LINK_COMPENSATION='noatm'",
        "uci set qosmate.advanced.BWMAXRATIO='20'",
        "uci set qosmate.advanced.WASHDSCPUP='0'",
        "uci set qosmate.advanced.WASHDSCPDOWN='0'",
        "uci set qosmate.cake.PRIORITY_QUEUE_INGRESS='diffserv4'",
        "uci set qosmate.cake.PRIORITY_QUEUE_EGRESS='diffserv4'",
        "uci set qosmate.cake.USE_MQ='0'",
        "uci set qosmate.cake.HOST_ISOLATION='1'",
        "uci set qosmate.cake.NAT_INGRESS='1'",
        "uci set qosmate.cake.NAT_EGRESS='1'",
        "uci set qosmate.cake.ACK_FILTER_EGRESS='1'",
        "uci set qosmate.cake.RTT='12'",
        "uci set qosmate.cake.AUTORATE_INGRESS='0'",
        "uci set qosmate.cake.EXTRA_PARAMETERS_INGRESS='ingress dual-dsthost'",
        "uci set qosmate.cake.EXTRA_PARAMETERS_EGRESS='dual-srchost'",
        "uci set qosmate.autorate.enabled='0'",
        "uci commit qosmate",
        "/etc/init.d/qosmate restart",
    ]


def test_the_undo_of_qosmate_restores_the_file_and_starts_what_ran(tmp_path: Path) -> None:
    undo = targets.TARGETS["qosmate"].filled(targets.TARGETS["qosmate"].undo, "eth1")
    assert len(undo) == 1
    for enabled, wanted in (("1", "restart"), ("0", "stop")):
        script = undo[0].replace("/etc/", f"{tmp_path}/").replace("init.d/qosmate", "service")
        (tmp_path / "config").mkdir(exist_ok=True)
        (tmp_path / "config/qosmate").write_text("new")
        (tmp_path / "qosmate.before-quell").write_text("old")
        (tmp_path / "service").write_text("#!/bin/sh\necho $1\n")
        (tmp_path / "service").chmod(0o755)
        stub = f"uci() {{ echo {enabled}; }}\n"
        done = subprocess.run(["sh", "-eu"], input=stub + script, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{wanted}\n", "")
        assert (tmp_path / "config/qosmate").read_text() == "old"
        assert not (tmp_path / "qosmate.before-quell").exists()
