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
from quell.tune import networkd, routeros, sqm
from quell.tune.line import Line, Shaped
from quell.tune.space import rate_text


@dataclass(frozen=True)
class Target:
    """A system to be configured."""

    about: str
    kinds: tuple[str, ...]
    """Disciplines that it has by default."""
    lines: Callable[[str, Line, Shaped, Shaped], list[str]]
    """Returns the lines to paste for an interface, a line and both directions."""
    use: str
    """Where to paste the lines; `{dev}`, `{ifb}` and `{name}`, the interface's name in UCI, are filled in."""
    undo: str
    """The line that removes the setting, with the same placeholders."""
    assumed: str = "{dev} is assumed to be the interface to the modem; --dev names another."
    """What to know without `--dev`, with the same placeholders."""
    lacks: frozenset[str] = frozenset()
    """Options of `space` that it does not support."""

    def filled(self, text: str, dev: str) -> list[str]:
        """Return `use`, `undo` or `assumed` for an interface, line by line."""
        return text.format(dev=dev, ifb=ifb(dev), name=sqm.section(dev)).splitlines()


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
    """Return the same commands to run."""
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
    # `replace` would keep options of a queue of the same kind that are not named here.
    delete = Command.of("tc qdisc del dev {dev} root", dev=dev, may_fail=True)
    if shaped.itself:
        return [delete, Command.of("tc qdisc add dev {dev} root", *queue, dev=dev)]
    rate = rate_text(_bits(shaped))
    size = Framing.of(line.framing).stab()
    return [
        delete,
        Command.of(f"tc qdisc add dev {{dev}} root handle 1: {size}htb default 10", dev=dev),
        Command.of("tc class add dev {dev} parent 1: classid 1:10 htb rate {rate} ceil {rate}", dev=dev, rate=rate),
        Command.of("tc qdisc add dev {dev} parent 1:10 handle 110:", *queue, dev=dev),
    ]


def _bits(shaped: Shaped) -> int:
    assert shaped.rate is not None, "only what has a rate is printed"
    return shaped.rate


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
        "rate": rate_text(_bits(up)),
        "aqm": words(up),
        "ingress": rate_text(_bits(down)),
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
        "If `uci show sqm` lists another enabled section for {dev}, disable it: sqm uses the first one.\n"
        "LuCI shows the settings at Network, SQM QoS.",
        undo="uci delete sqm.{name} && uci commit sqm && /etc/init.d/sqm restart",
        assumed="{dev} is assumed to be the interface to the modem; --dev names another. `ifstatus wan` on the router "
        "shows its name at l3_device.",
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
    ),
    "routeros": Target(
        "commands of RouterOS 7", routeros.KINDS, routeros.commands,
        use="Paste them into a terminal of the router.",
        undo="/queue/simple remove [find name=quell]; /queue/type remove [find name~\"^quell-\"]; "
        "/ip/firewall/filter enable [find action=fasttrack-connection]",
        lacks=routeros.LACKS,
    ),
    "live": Target(
        "a configuration of quell live",
        ("cake", "fq_codel", "codel", "pie", "fq_pie", "sfq", "pfifo", "cobalt", "hush"), _live,
        use="Write this into live.toml, then: sudo quell live --config live.toml",
        undo="Ctrl-C ends it and puts back what was there.",
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
    can = list(target(name).kinds)
    cells = Framing.of(line.framing).cells
    if name == "live" and cells != "none":
        raise InputError(f"--target live: quell live cannot count {cells.upper()}'s cells ({line.framing}); write tc")
    if cells == "ptm" or (cells == "atm" and name == "networkd"):
        # Size tables do not support PTM, and networkd has none.
        can = ["cake"]
    if name == "routeros" and not routeros.counts(Framing.of(line.framing)):
        can = ["cake"]
    if queues is None:
        return can
    asked = [kind.strip() for kind in queues.split(",")]
    for kind in asked:
        known("queue of quell tune", kind, KINDS, "--queues")
        if kind not in can:
            on = f" on a line with {line.framing}" if kind in target(name).kinds else ""
            raise InputError(f"--queues {kind}: --target {name} cannot be told that{on}; it has {', '.join(can)}")
    return list(dict.fromkeys(asked))
