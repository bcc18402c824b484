"""The lines to paste for each kind of system, and the disciplines and options that it supports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quell import _core
from quell._core import InputError
from quell.common.names import known
from quell.inputs import tc
from quell.inputs.framing import Framing
from quell.linux.programs import Command
from quell.tune import networkd, opnsense, qosmate, routeros, sqm, vyos
from quell.tune.line import Line, Shaped
from quell.tune.space import rate_text

_ASSUMED = "{dev} is assumed to be the interface to the modem; --dev names another."
_ASSUMED_ON_OPENWRT = f"{_ASSUMED} `ifstatus wan` on the router shows its name at l3_device."


def _counts_with_size_tables(kind: str, framing: Framing) -> bool:
    """Return whether tc's shaper counts packets like the line: Linux's size tables have no cells of PTM."""
    return kind == "cake" or framing.cells != "ptm"


@dataclass(frozen=True)
class Target:
    """A system to be configured."""

    about: str
    kinds: tuple[str, ...]
    """Disciplines that it has by default."""
    lines: Callable[[str, Line, Shaped, Shaped], list[str]]
    """Returns the lines to paste for an interface, a line and both directions."""
    use: str
    """Where to paste the lines.

    Placeholders: `{dev}`, `{ifb}`, `{name}` (the interface's section in UCI), `{path}` (the interface's path in VyOS).
    """
    undo: str
    """The line that removes the setting, with the same placeholders."""
    assumed: str = _ASSUMED
    """Note on the assumed interface, shown without `--dev`, with the same placeholders."""
    lacks: frozenset[str] = frozenset()
    """Options of `space`, and choices of them, that it does not support."""
    counts: Callable[[str, Framing], bool] = _counts_with_size_tables
    """Returns whether the shaper of a discipline counts packets like a line with this framing."""
    dev: str = "eth0"
    """The interface that is assumed."""
    names: str | None = None
    """Pattern of its interfaces' names; None: any."""

    def interface(self, dev: str | None) -> str:
        """Check the name of the interface to the modem; None: the assumed one. Raises InputError."""
        name = interface(dev or self.dev)
        if self.names is not None and not re.fullmatch(self.names, name):
            like = "whose names are like eth0, pppoe0, eth0.7"
            raise InputError(f"--dev {name}: is not an interface of this --target, {like}")
        return name

    def filled(self, text: str, dev: str) -> list[str]:
        """Return `use`, `undo` or `assumed` for an interface, line by line."""
        return text.format(dev=dev, ifb=ifb(dev), name=sqm.section(dev), path=vyos.path(dev)).splitlines()


def interface(name: str, option: str = "--dev") -> str:
    """Check the name of an interface. Raises InputError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}", name):
        raise InputError(f"{option} {name}: is not a name of an interface (at most 15 letters, digits, . _ - @)")
    return name


def ifb(dev: str) -> str:
    """Return the name of the interface on which the download is shaped, as in sqm-scripts."""
    return f"ifb4{dev}"[:15]


def tc_lines(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return commands of tc and ip to paste for both directions, whatever queues exist."""
    return [command.text for command in tc_commands(dev, line, down, up)]


def tc_commands(dev: str, line: Line, down: Shaped, up: Shaped) -> list[Command]:
    """Return the commands of `tc_lines` in the form that quell runs."""
    commands = [*root_commands(dev, up, line), *ingress_commands(dev, down, line)]
    _read_back([command.text for command in commands], down, up)
    return commands


def ingress_commands(dev: str, down: Shaped, line: Line) -> list[Command]:
    """Return the commands that shape arriving packets on an ifb."""
    inner = ifb(dev)
    return [
        Command.of("ip link add name {inner} type ifb", unless="ip link show dev {inner}", inner=inner),
        Command.of("ip link set dev {inner} up", inner=inner),
        Command.of("tc qdisc del dev {dev} ingress", dev=dev, may_fail=True),
        Command.of("tc qdisc add dev {dev} handle ffff: ingress", dev=dev),
        redirect(dev, inner),
        *root_commands(inner, down, line),
    ]


def redirect(dev: str, inner: str) -> Command:
    """Return the command that redirects all arriving packets to another interface."""
    return Command.of(
        "tc filter add dev {dev} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 "
        "action mirred egress redirect dev {inner}",
        dev=dev, inner=inner,
    )  # fmt: skip


def root_commands(dev: str, shaped: Shaped, line: Line) -> list[Command]:
    """Return the commands that shape departing packets."""
    queue = shaped.queue.split()
    if queue == ["pfifo"]:
        # Linux's default is the interface's txqueuelen, which is 32 for an ifb; the simulated one is this.
        queue += ["limit", "1000"]
    # `replace` would keep options of a queue of the same kind that are not named here.
    delete = Command.of("tc qdisc del dev {dev} root", dev=dev, may_fail=True)
    if shaped.itself:
        return [delete, Command.of("tc qdisc add dev {dev} root", *queue, dev=dev)]
    rate = rate_text(shaped.bits)
    size = Framing.of(line.framing).stab()
    return [
        delete,
        Command.of(f"tc qdisc add dev {{dev}} root handle 1: {size}htb default 10", dev=dev),
        Command.of("tc class add dev {dev} parent 1: classid 1:10 htb rate {rate} ceil {rate}", dev=dev, rate=rate),
        Command.of("tc qdisc add dev {dev} parent 1:10 handle 110:", *queue, dev=dev),
    ]


def _read_back(lines: Sequence[str], down: Shaped, up: Shaped) -> None:
    """Check that the lines match the simulated setting, by reading them like `quell compare --tc`."""
    read = tc.read("\n".join(lines))
    for side, shaped in ((read.down, down), (read.up, up)):
        if side is None or _core.queue(side.queue) != _core.queue(shaped.queue):
            raise RuntimeError(f"the lines say {side}, not {shaped.queue}")


def _live(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return the configuration of `quell live`, which has one overhead for both directions."""
    framing = Framing.of(line.framing)

    def words(shaped: Shaped) -> str:
        # quell live is the shaper and counts the framing.
        words = re.sub(r" bandwidth \S+", "", shaped.queue).split()
        return " ".join(word for word in words if word not in line.framing.split())

    keys = {
        "dev": dev,
        "rate": rate_text(up.bits),
        "aqm": words(up),
        "ingress": rate_text(down.bits),
        "ingress_aqm": words(down),
        "overhead": framing.counted,
    }
    # TOML has the same notation of texts and numbers as JSON.
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]


_UNDO_TC = "tc qdisc del dev {dev} root; tc qdisc del dev {dev} ingress; ip link del dev {ifb}"

TARGETS = {
    "tc": Target(
        "commands of tc and ip", ("cake", "fq_codel", "codel", "pie", "fq_pie", "sfq", "pfifo"), tc_lines,
        use="Paste them into a root shell. A reboot removes them.",
        undo=_UNDO_TC,
    ),
    "openwrt": Target(
        "commands of uci for SQM on OpenWrt", sqm.KINDS, sqm.openwrt,
        use="Once: opkg update && opkg install sqm-scripts luci-app-sqm\n"
        "(OpenWrt 25.12 and later: apk update && apk add sqm-scripts luci-app-sqm)\n"
        "Paste the lines into a root shell of the router. They replace the section {name} of /etc/config/sqm.\n"
        "If it exists, save it first: cp /etc/config/sqm /root/sqm\n"
        "(to restore it: cp /root/sqm /etc/config/sqm && /etc/init.d/sqm restart)\n"
        "If `uci show sqm` lists another enabled section for {dev}, disable it: sqm uses the first one.\n"
        "LuCI shows the settings at Network, SQM QoS.",
        undo="uci delete sqm.{name} && uci commit sqm && /etc/init.d/sqm restart",
        assumed=_ASSUMED_ON_OPENWRT,
    ),
    "sqm": Target(
        "/etc/sqm/DEV.iface.conf of sqm-scripts", sqm.KINDS, sqm.plain,
        use="Write this into /etc/sqm/{dev}.iface.conf, then: sqm reload {dev}",
        undo="sqm stop {dev}; rm /etc/sqm/{dev}.iface.conf",
    ),
    "networkd": Target(
        "files of systemd-networkd", networkd.KINDS, networkd.files,
        use="Write the files, then: networkctl reload && networkctl reconfigure {dev}",
        undo="rm /etc/systemd/network/{dev}.network.d/queue.conf /etc/systemd/network/{ifb}.net*; networkctl reload; "
        + _UNDO_TC,
        lacks=networkd.LACKS,
        counts=networkd.counts,
    ),
    "routeros": Target(
        "commands of RouterOS 7", routeros.KINDS, routeros.commands,
        use="Paste them into a terminal of the router.",
        undo="/queue/simple remove [find name=quell]; /queue/type remove [find name~\"^quell-\"]; "
        "/ip/firewall/filter enable [find action=fasttrack-connection]",
        lacks=routeros.LACKS,
        counts=routeros.counts,
    ),
    "vyos": Target(
        "configuration commands of VyOS", vyos.KINDS, vyos.commands,
        use="Type `configure`, paste them, and after a test `save`. They replace other policies of {dev} and ifb0.\n"
        "VyOS says that there is nothing to delete where nothing was. Versions before November 2024 refuse\n"
        "flow-isolation-nat: type `flow-isolation nat` in its place.\n"
        "The rates make up for the line's overhead, which VyOS does not count.",
        undo="delete interfaces {path} redirect; delete interfaces input ifb0; delete qos interface {dev}; "
        "delete qos interface ifb0; delete qos policy cake quell-down; delete qos policy cake quell-up; "
        "delete qos policy shaper quell-down; delete qos policy shaper quell-up; commit",
        lacks=vyos.LACKS,
        counts=lambda _, framing: framing.cells != "atm",
        names=vyos.NAMES,
    ),
    "opnsense": Target(
        "entries of OPNsense's shaper", opnsense.KINDS, opnsense.steps,
        use="Enter them in the web interface, with `advanced mode` on. Fields that are not listed keep the values of\n"
        "a new entry. Other rules of {dev} with a lower sequence number come first: disable them.\n"
        "The rates make up for the line's overhead, which OPNsense does not count.",
        undo="Firewall > Shaper > Rules, then Queues, then Pipes: delete the entries whose descriptions begin with "
        "quell-, then Apply",
        counts=lambda _, framing: framing.cells != "atm",
        dev="WAN",
    ),
    "qosmate": Target(
        "commands of uci for QoSmate on OpenWrt", qosmate.KINDS, qosmate.commands,
        use="Paste the lines into a root shell of a router that has QoSmate, and on which SQM is disabled.\n"
        "Rules of QoSmate stay: they decide which tin of cake a packet enters.",
        undo=f"mv {qosmate.BACKUP} /etc/config/qosmate && if [ \"$(uci -q get qosmate.global.enabled)\" = 1 ]; "
        "then /etc/init.d/qosmate restart; else /etc/init.d/qosmate stop; fi",
        assumed=_ASSUMED_ON_OPENWRT,
        lacks=qosmate.LACKS,
        counts=lambda *_: True,
    ),
    "live": Target(
        "a configuration of quell live",
        ("cake", "fq_codel", "codel", "pie", "fq_pie", "sfq", "pfifo", "cobalt", "hush"), _live,
        use="Write this into live.toml, then: sudo quell live --config live.toml",
        undo="Ctrl-C ends it and puts back what was there.",
        counts=lambda _, framing: framing.cells == "none",
    ),
}  # fmt: skip

KINDS = sorted({kind for each in TARGETS.values() for kind in each.kinds})
"""Every discipline that some target has."""


def target(name: str) -> Target:
    """Find a target. Raises InputError."""
    return TARGETS[known("target", name, TARGETS, "--target")]


def kinds(name: str, queues: str | None, line: Line) -> list[str]:
    """List the disciplines to search: all of the target's, or the requested ones among them.

    Raises InputError.
    """
    chosen = target(name)
    framing = Framing.of(line.framing)
    can = [kind for kind in chosen.kinds if chosen.counts(kind, framing)]
    if not can:
        cells = framing.cells.upper()
        raise InputError(f"--target {name} cannot count {cells}'s cells ({line.framing}); write --target tc")
    if queues is None:
        return can
    asked = [kind.strip() for kind in queues.split(",")]
    for kind in asked:
        known("queue of quell tune", kind, KINDS, "--queues")
        if kind not in can:
            on = f" on a line with {line.framing}" if kind in chosen.kinds else ""
            raise InputError(f"--queues {kind}: --target {name} does not support it{on}; it has {', '.join(can)}")
    return list(dict.fromkeys(asked))
