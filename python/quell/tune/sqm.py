"""sqm-scripts: `uci` commands for OpenWrt's `/etc/config/sqm`, and the plain configuration of other systems.

Names of options are those of its `run-openwrt.sh`, `defaults.sh` and `eth0.iface.conf.example`. With
`piece_of_cake.qos` and `layer_cake.qos` cake is the shaper and takes further words from `*qdisc_opts`; the last of
contradicting words counts. With `simplest.qos` htb is the shaper and the discipline is its leaf.
"""

from __future__ import annotations

import re

from quell.inputs.framing import Framing
from quell.tune.line import Line, Shaped

KINDS = ("cake", "fq_codel")
"""Disciplines that OpenWrt's sqm-scripts install."""


def openwrt(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return commands of the router's shell that replace the interface's section of `/etc/config/sqm`."""
    options = {
        "interface": dev,
        "enabled": "1",
        **{key: value for key, (value, _) in _values(line, down, up).items()},
        "qdisc_advanced": "1",
        "qdisc_really_really_advanced": "1",
        "linklayer_advanced": "1",
    }
    path = f"sqm.{section(dev)}"
    return [
        f"uci -q delete {path}",
        f"uci set {path}=queue",
        *(f"uci set {path}.{key}={quoted(value)}" for key, value in options.items() if value),
        "uci commit sqm",
        "/etc/init.d/sqm restart",
    ]


def quoted(text: str) -> str:
    """Quote a value for a shell, always, as `uci show` does."""
    return "'" + text.replace("'", "'\\''") + "'"


def section(dev: str) -> str:
    """Return the name of an interface's section, since names in UCI allow only letters, digits and underscores."""
    return re.sub(r"\W", "_", dev, flags=re.ASCII)


def plain(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return `/etc/sqm/DEV.iface.conf`."""
    values = _values(line, down, up).values()
    return [f"# /etc/sqm/{dev}.iface.conf", *(f'{key}="{value}"' for value, key in values)]


def _values(line: Line, down: Shaped, up: Shaped) -> dict[str, tuple[str, str]]:
    """Return the values by their name in UCI, each with its name in the shell."""
    kind = up.queue.split()[0]
    framing = Framing.of(line.framing)
    rates = [(side.rate or 0) // 1000 for side in (down, up)]
    values = {
        "download": (str(rates[0]), "DOWNLINK"),
        "upload": (str(rates[1]), "UPLINK"),
        "qdisc": (kind, "QDISC"),
        "script": ("layer_cake.qos" if kind == "cake" else "simplest.qos", "SCRIPT"),
        # Words below define the treatment of DSCPs.
        "squash_dscp": ("0", "ZERO_DSCP_INGRESS"),
        "squash_ingress": ("0", "IGNORE_DSCP_INGRESS"),
        "iqdisc_opts": (_options(down), "IQDISC_OPTS"),
        "eqdisc_opts": (_options(up), "EQDISC_OPTS"),
    }
    if kind == "cake":
        # cake's words contain the framing.
        return values | {"linklayer": ("none", "LINKLAYER")}
    # Without these the scripts choose a target by the rate, and a limit of 1001 packets.
    values |= {
        "itarget": (down.value("target", "5ms"), "ITARGET"),
        "etarget": (up.value("target", "5ms"), "ETARGET"),
        "ilimit": (down.value("limit", "10240"), "ILIMIT"),
        "elimit": (up.value("limit", "10240"), "ELIMIT"),
    }
    if not framing.given:
        return values | {"linklayer": ("none", "LINKLAYER")}
    return values | {
        "linklayer": ("atm" if framing.cells == "atm" else "ethernet", "LINKLAYER"),
        "overhead": (str(framing.beyond_ethernet), "OVERHEAD"),
        "tcMPU": (str(framing.mpu), "STAB_MPU"),
        "linklayer_adaptation_mechanism": ("tc_stab", "LLAM"),
    }


def _options(side: Shaped) -> str:
    """Return the queue words without those of other options."""
    return re.sub(r" (bandwidth|target|limit) \S+", "", side.queue).partition(" ")[2]
