"""QoSmate on OpenWrt: `uci` commands for `/etc/config/qosmate`.

Names of options are those of `etc/config/qosmate` in hudra0/qosmate (commit ad5ef37a). `etc/qosmate.sh` there says
which words cake gets from them, in `get_cake_link_params` and `setup_cake`: the download always has `ingress`, which a
later `egress` takes back, and `ack-filter` or `no-ack-filter` is the last word of the upload.
"""

from __future__ import annotations

import math

from quell.inputs.framing import Framing
from quell.tune.line import Line, Shaped
from quell.tune.space import ISOLATION, TINS
from quell.tune.sqm import quoted

KINDS = ("cake",)
"""The only discipline of `space` that it has; its other ones divide packets into classes first."""

LACKS = frozenset({"ack-filter-aggressive"})
"""The choice that it does not support."""

BACKUP = "/etc/qosmate.before-quell"
"""Copy of the earlier configuration."""


def commands(dev: str, line: Line, down: Shaped, up: Shaped) -> list[str]:
    """Return commands of the router's shell; they set every option that concerns cake, and keep those of rules."""
    settings = {"settings": _settings(dev, down, up), "advanced": _advanced(line, down, up), "cake": _cake(down, up)}
    settings |= {"autorate": {"enabled": "0"}}
    return [
        f"[ -e {BACKUP} ] || cp /etc/config/qosmate {BACKUP}",
        *(f"uci set qosmate.{section}={section}" for section in settings),
        "uci -q delete qosmate.advanced.ETHER_VLAN_KEYWORD",
        *(
            f"uci set qosmate.{section}.{key}={quoted(value)}"
            for section, values in settings.items()
            for key, value in values.items()
        ),
        "uci commit qosmate",
        "/etc/init.d/qosmate restart",
    ]


def _settings(dev: str, down: Shaped, up: Shaped) -> dict[str, str]:
    rates = {"DOWNRATE": str(down.bits // 1000), "UPRATE": str(up.bits // 1000)}
    return {"WAN": dev, **rates, "ROOT_QDISC": "cake"}


def _advanced(line: Line, down: Shaped, up: Shaped) -> dict[str, str]:
    framing = Framing.of(line.framing)
    return {
        # The preset's word is `ethernet`, whose overhead and minimum size the next words replace.
        "COMMON_LINK_PRESETS": "ethernet",
        "OVERHEAD": str(framing.counted),
        "MPU": str(framing.mpu),
        "LINK_COMPENSATION": "noatm" if framing.cells == "none" else framing.cells,
        # The largest ratio of download to upload rate: QoSmate lowers a download rate above it.
        "BWMAXRATIO": str(max(20, math.ceil(down.bits / up.bits))),
        "WASHDSCPUP": "0",
        "WASHDSCPDOWN": "0",
    }


def _cake(down: Shaped, up: Shaped) -> dict[str, str]:
    isolation = [side.choice(ISOLATION, "triple-isolate") for side in (down, up)]
    return {
        "PRIORITY_QUEUE_INGRESS": down.choice(TINS, "diffserv3"),
        "PRIORITY_QUEUE_EGRESS": up.choice(TINS, "diffserv3"),
        "USE_MQ": "0",
        "HOST_ISOLATION": "1" if isolation == ["dual-dsthost", "dual-srchost"] else "0",
        "NAT_INGRESS": "1",
        "NAT_EGRESS": "1",
        "ACK_FILTER_EGRESS": "1" if up.choice(("ack-filter",), "") else "0",
        "RTT": up.value("rtt", "100ms").removesuffix("ms"),
        "AUTORATE_INGRESS": "0",
        "EXTRA_PARAMETERS_INGRESS": f"{down.choice(('ingress',), 'egress')} {isolation[0]}",
        "EXTRA_PARAMETERS_EGRESS": isolation[1],
    }
