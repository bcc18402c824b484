#!/usr/bin/env python3
"""Run the commands of docs/tutorials and write what they print below each.

    .venv/bin/python tools/tutorials.py [--check] [PAGE...]

In a page, a block marked `console` holds one command behind `$ ` and then its standard output, 100 columns wide, without empty
lines; ` | head -N` may follow it. A block of Python or TOML whose first line is a comment with a file's name, as in `# mine.py`, is that file for the commands
below it. A block marked `console real` holds a command on real packets: it runs in a network namespace whose interface eth0 has a
line of 20 Mbit/s, a modem that never drops, and one sender behind it; its output is written, standard error included, and compared
without its numbers. --check writes nothing and fails if an output differs. Run `make build` first.
"""

import contextlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^```console(?P<real> real)?\n\$ (?P<command>.*?)\n(?P<printed>.*?)^```"
    r"|^```(?:python|toml)\n# (?P<file>[\w.-]+)\n(?P<text>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
LINE = """
ip link set lo up
ip link add eth0 type veth peer name modem
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 || true
ip address add 192.0.2.1/24 dev eth0
ip link set eth0 up; ip link set modem up
ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev eth0
tc qdisc replace dev eth0 root handle 1: htb default 10
tc class add dev eth0 parent 1: classid 1:10 htb rate 20mbit quantum 1514
tc qdisc add dev eth0 parent 1:10 handle 110: pfifo limit 200
"""
"""eth0 as the tutorials have it."""
SENDER = """
import socket, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setblocking(False)
while True:
    for _ in range(5):
        try:
            sender.sendto(bytes(1200), ("192.0.2.2", 9))
        except BlockingIOError:
            pass
    time.sleep(0.002)
"""


def run(words, folder, prefix=(), errors=False):
    """Give what a program of this environment prints."""
    program = pathlib.Path(sys.executable).with_name(words[0])
    if words[0] not in ("quell", "python"):
        sys.exit(f"tutorials: {shlex.join(words)}: begin it with quell or python")
    done = subprocess.run(
        [*prefix, str(program), *words[1:]],
        cwd=folder,
        env=os.environ | {"COLUMNS": "100", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=500,
        stderr=subprocess.STDOUT if errors else subprocess.PIPE,
    )
    if done.returncode:
        sys.exit(f"tutorials: {shlex.join(words)}: {(done.stderr or done.stdout).strip()}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines() if line.strip())


def missing():
    """Say why commands on real packets cannot run here; empty where they can."""
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "root and /dev/net/tun are needed"
    done = subprocess.run(["unshare", "--net", "sh", "-ec", LINE], capture_output=True, text=True)
    return done.stderr.strip()


@contextlib.contextmanager
def line():
    """Make the network namespace; give the words that run a program in it."""
    with contextlib.ExitStack() as closing:
        script = f"{LINE}\necho ready\nexec {sys.executable} -c '{SENDER}'"
        holder = subprocess.Popen(["unshare", "--net", "sh", "-ec", script], stdout=subprocess.PIPE, text=True)
        closing.callback(holder.wait)
        closing.callback(holder.kill)
        assert holder.stdout is not None
        holder.stdout.readline()
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]


def shape(text):
    """Give an output without its numbers, and without what follows from them: widths, and what a busy machine was too late for."""
    text = re.sub(r"^quell: (down|up): .*too slow.*\n|, .*their time had passed.*", "", text, flags=re.MULTILINE)
    return re.sub(r"[ ─]+", " ", re.sub(r"[-–\d.]*\d[\d.]*|(?<= )[-–](?= )", "N", text))


def fresh(text, real):
    """Give a page with what its commands print now; `real` are the words that run a program on the line, or nothing."""
    with tempfile.TemporaryDirectory() as folder:

        def block(found):
            if found["file"]:
                pathlib.Path(folder, found["file"]).write_text(found["text"], "utf-8")
                return found[0]
            command, _, most = found["command"].removeprefix("sudo ").partition(" | head -")
            words = shlex.split(command)
            if not found["real"]:
                # A training's result is a file; what it says of it goes to standard error.
                printed = run(words, folder, errors=words[1:2] == ["train"])
            elif real is None:
                return found[0]
            else:
                printed = run(words, folder, real, errors=True)
                if shape(printed) == shape(found["printed"]):
                    printed = found["printed"]
            if most:
                printed = "".join(printed.splitlines(keepends=True)[: int(most)])
            return f"```console{found['real'] or ''}\n$ {found['command']}\n{printed}```"

        # A page's commands share a folder: one may read what another wrote.
        return BLOCK.sub(block, text)


def main(words):
    """Write or check the pages."""
    names = [word for word in words if word != "--check"]
    pages = [page for page in sorted((ROOT / "docs/tutorials").glob("*.md")) if not names or page.stem in names]
    why = missing()
    if why:
        print(f"tutorials: commands on real packets are not run: {why}")
    stale = []
    with contextlib.nullcontext() if why else line() as real:
        for page in pages:
            text = page.read_text("utf-8")
            now = fresh(text, real)
            if now != text:
                stale.append(page)
                if "--check" not in words:
                    page.write_text(now, "utf-8")
    changed = ", ".join(page.name for page in stale)
    if stale and "--check" in words:
        sys.exit(f"tutorials: what commands print has changed in {changed}: .venv/bin/python tools/tutorials.py")
    print(f"tutorials: {'wrote ' + changed if stale else 'all as printed'}")


if __name__ == "__main__":
    main(sys.argv[1:])
