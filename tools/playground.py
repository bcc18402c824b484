#!/usr/bin/env python3
"""Write the playground: one HTML file with the simulator in it, drawn by the report's code.

    .venv/bin/python tools/playground.py target/playground.html

Compiles crates/quell-web for wasm32-unknown-unknown, for which Rust needs a library: docs/how-to/playground.md.
"""

import base64
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
from dataclasses import asdict
from html import escape
from string import Template

from quell.experiments import experiment
from quell.results import stats
from quell.views import report
from quell.views.page import again

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARTS = ROOT / "tools" / "playground"
TARGET = "wasm32-unknown-unknown"
COLUMNS = (*stats.DOWNWARD, "jain", "rtt_ms.p95")
CHECKED = ("pfifo", "codel", "pie", "fq_codel")
"""Queues that are selected at first."""


def missing():
    """Return why this machine cannot compile for WebAssembly; empty if it can."""
    root = pathlib.Path(subprocess.check_output(["rustc", "--print", "sysroot"], cwd=ROOT, text=True).strip())
    library = root / "lib/rustlib" / TARGET
    if not library.exists() and shutil.which("rustup"):
        subprocess.run(["rustup", "--quiet", "target", "add", TARGET], cwd=ROOT, capture_output=True, check=False)
    if library.exists():
        return ""
    return f"Rust has no library for {TARGET} here: rustup target add {TARGET}"


def compiled():
    """Compile the simulator; return the module's bytes."""
    small = {"CARGO_PROFILE_RELEASE_DEBUG": "0", "CARGO_PROFILE_RELEASE_STRIP": "symbols"}
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "quell-web", "--target", TARGET]
    # Settings of a Cargo profile in the environment are for the host, not for WebAssembly.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CARGO_PROFILE_") and k != "RUSTFLAGS"}
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    subprocess.run(command, cwd=ROOT, env=environment | small, check=True)
    return (folder / TARGET / "release/quell_web.wasm").read_bytes()


def heading(measure):
    name = f"sojourn<br>{measure.title}" if measure.key.startswith("sojourn") else measure.title
    down = ' data-down="1"' if measure.better > 0 else ""
    wide = "" if measure.key in report.NARROW else ' class="wide"'
    return f"<th{wide}{down}>{name}<br>{measure.unit}</th>"


def choice(kind):
    checked = " checked" if kind["name"] in CHECKED else ""
    return f'<label title="{escape(kind["summary"])}"><input type="checkbox" name="aqm" value="{kind["name"]}"{checked}>{kind["name"]}</label>'


def page(module):
    """Return the page with this module in it."""
    measures = [m for m in stats.MEASURES if m.key in COLUMNS]
    own = {name: (PARTS / name).read_text("utf-8") for name in ("controls.html", "page.css", "page.js", "worker.js")}
    choices = "".join(choice(kind) for kind in experiment.known_queues() if kind["name"] not in experiment.BY_NAME_ONLY)
    data = {
        "measures": [
            {k: v for k, v in asdict(m).items() if k != "letter"} | {"wide": m.key not in report.NARROW}
            for m in measures
        ],
        "worker": own["worker.js"],
        "module": base64.b64encode(gzip.compress(module, mtime=0)).decode(),
        "bins": experiment.BINS,
        "tie": stats.TIE,
    }
    head = "".join(heading(m) for m in measures)
    note = (
        "One run of each queue. This command gives the same figures, packet by packet; without <code>--seeds 1</code> "
        "it makes five runs of each and adds their 95 % intervals."
    )
    parts = {
        "mean": "One run of each queue.", "figures": "One run of each queue.",
        "people": "", "air": "", "shares": "",
        "table": f'<table id="figures"><thead><tr><th>queue</th>{head}</tr></thead><tbody></tbody></table>',
        "again": again("", f'\n  <p class="note">{note}</p>', report.TOML.format("", "")),
        "made": '<span id="made">no packets yet</span>',
        "cite": "",
    }  # fmt: skip
    return report.framed(
        "Playground",
        "Change the line, choose queues: the simulator runs in this page, and nothing leaves it.",
        Template(own["controls.html"]).substitute(choices=choices),
        '<span id="finding"></span>',
        parts,
        data=data,
        css=own["page.css"],
        js=f"{report.page_script()}\n{own['page.js']}",
    )


def main(path):
    if reason := missing():
        sys.exit(f"playground: {reason}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(compiled()), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
