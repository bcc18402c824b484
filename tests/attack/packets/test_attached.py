"""Queues of `quell attach`, flooded: a TCP flow continues, memory is released, the kernel logs no complaint."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel_vm import in_kernel, ready

HERE = Path(__file__).resolve().parent
HEAD = "| attached queue | frames | taken of 3600 | goodput of a concurrent TCP flow, of 20 Mbit/s | memory growth |"


@pytest.mark.guest
def test_a_flood_harms_neither_the_kernel_nor_a_concurrent_flow(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    ready()
    flood = tmp_path / "flood"
    subprocess.run(["cc", "-static", "-O2", "-Wall", "-Werror", "-o", flood, HERE / "flood.c"], check=True)

    def guest(queues: tuple[str, str]) -> str:
        return in_kernel(HERE / "attach_guest.sh", *queues, more=lambda: flood, limit_s=600)

    # Guests have one processor each, and clocks that do not depend on other load of this machine.
    with ThreadPoolExecutor() as pool:
        outs = list(pool.map(guest, (("hush", "fq_codel"), ("codel", "rlaqm"))))
    out = "".join(outs)
    assert "refused" not in out
    rows = re.findall(r"^== (\w+) (\w+) (\d+) (.*) (-?\d+)$", out, re.MULTILINE)
    assert len(rows) == 20, out[-3000:]
    for queue, kind, sent, goodput, more in rows:
        mbps = float(goodput.split()[0]) / 1000
        record_property(HEAD, f"| {queue} | {kind} | {sent} | {mbps:.1f} Mbit/s | {more} KiB |")
        assert int(sent) > 200 and mbps > 1 and int(more) < 30_000, (queue, kind, sent, goodput, more)
    assert [one.partition("== end\n")[2].strip() for one in outs] == ["", ""], "the kernel complains"
    assert out.count("qdisc noqueue 0: root") >= 4
