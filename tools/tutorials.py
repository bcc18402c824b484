#!/usr/bin/env python3
"""Run the commands of docs/tutorials and write what they print below each.

    .venv/bin/python tools/tutorials.py [--check]

In a page, a block marked `console` holds one command behind `$ ` and then its standard output, 100 columns wide, without empty
lines. --check writes nothing and fails if an output differs. Run `make build` first.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def printed(command, folder):
    """Give what a command of quell prints."""
    program, *words = shlex.split(command)
    if program != "quell":
        sys.exit(f"tutorials: {command}: begin it with quell")
    run = [str(pathlib.Path(sys.executable).with_name("quell")), *words]
    done = subprocess.run(run, cwd=folder, env=os.environ | {"COLUMNS": "100"}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"tutorials: {command}: {done.stderr.strip()}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines() if line.strip())


def main():
    stale = []
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        text = page.read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            # A page's commands share a folder: one may read what another wrote.
            fresh = BLOCK.sub(lambda block: f"```console\n$ {block[1]}\n{printed(block[1], folder)}```", text)
        if fresh != text:
            stale.append(page)
            if "--check" not in sys.argv[1:]:
                page.write_text(fresh, "utf-8")
    names = ", ".join(page.name for page in stale)
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"tutorials: what commands print has changed in {names}: .venv/bin/python tools/tutorials.py")
    print(f"tutorials: {'wrote ' + names if stale else 'all as printed'}")


if __name__ == "__main__":
    main()
