#!/usr/bin/env python3
"""Run the commands whose output pages show, and update the outputs.

    .venv/bin/python tools/outputs.py [--check] [PAGE...]

Without PAGE: README.md, docs/how-to/compare.md, tune.md (minutes), docs/lab/wifi.md and docs/tutorials. Outputs are 100
columns wide. --check writes nothing and fails if an output differs. Run `make build` first.

In a tutorial, a block marked `console` holds one command after `$ ` and then its standard output, without empty lines;
` | head -N` may follow the command. A block of Python or TOML whose first line is a comment with a file's name, as in
`# mine.py`, is that file for the commands below it. A block marked `console real` holds a command on real packets: it runs
in a network namespace whose interface eth0 has a line of 20 Mbit/s, a modem that never drops, and one sender behind it.
Its output, with standard error, is replaced only if it differs in more than its numbers. Medians, which the text
explains, may differ by a factor of 2.

On the other pages, an output with empty lines is complete. An output without them is an excerpt: it has as many lines
as the page shows, and begins at the first line that equals the first one shown except for numbers.
"""

import contextlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import quell

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHOWN = ("README.md", "docs/how-to/compare.md", "docs/how-to/tune.md")
WIFI = "docs/lab/wifi.md"
PAGES = (*SHOWN, WIFI, *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/tutorials/*.md")))
PLAIN = re.compile(r"^```\n\$ (?P<command>quell .*?)\n(?P<printed>.+?)^```", re.DOTALL | re.MULTILINE)
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
"""Commands that set up eth0 of the tutorials."""
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
    """Return the output of a program of this environment."""
    program = pathlib.Path(sys.executable).with_name(words[0])
    if words[0] not in ("quell", "python"):
        sys.exit(f"outputs: {shlex.join(words)}: begin it with quell or python")
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
        sys.exit(f"outputs: {shlex.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def without_empty_lines(text):
    """Remove empty lines, and blanks at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def missing():
    """Return why commands on real packets cannot run here; empty if they can."""
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "root and /dev/net/tun are needed"
    done = subprocess.run(["unshare", "--net", "sh", "-ec", LINE], capture_output=True, text=True)
    return done.stderr.strip()


@contextlib.contextmanager
def line():
    """Make the network namespace; yield the words that run a program in it."""
    with contextlib.ExitStack() as closing:
        script = f"{LINE}\necho ready\nexec {sys.executable} -c '{SENDER}'"
        holder = subprocess.Popen(["unshare", "--net", "sh", "-ec", script], stdout=subprocess.PIPE, text=True)
        closing.callback(holder.wait)
        closing.callback(holder.kill)
        assert holder.stdout is not None
        holder.stdout.readline()
        yield ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]


def shape(text):
    """Remove numbers, column widths, which depend on them, and messages about a busy machine."""
    text = re.sub(r"^quell: (down|up): .*too slow.*\n|, .*skipped as late.*", "", text, flags=re.MULTILINE)
    return re.sub(r"[ ─]+", " ", re.sub(r"[-–\d.]*\d[\d.]*|(?<= )[-–](?= )", "N", text))


def supports(fresh, printed):
    """Return whether an output on real packets has the printed form, and medians of the printed size."""
    pairs = zip(re.findall(r"median (\d+)", fresh), re.findall(r"median (\d+)", printed), strict=False)
    return shape(fresh) == shape(printed) and all(int(a) <= 2 * int(b) <= 4 * int(a) for a, b in pairs)


def tutorial(text, real):
    """Return a tutorial with fresh outputs; `real` are the words that run a program on the line, or None."""
    with tempfile.TemporaryDirectory() as folder:

        def block(found):
            if found["file"]:
                pathlib.Path(folder, found["file"]).write_text(found["text"], "utf-8")
                return found[0]
            command, _, most = found["command"].removeprefix("sudo ").partition(" | head -")
            words = shlex.split(command)
            if not found["real"]:
                # A training writes its result to a file and its messages to standard error.
                printed = without_empty_lines(run(words, folder, errors=words[1:2] == ["train"]))
            elif real is None:
                return found[0]
            else:
                printed = without_empty_lines(run(words, folder, real, errors=True))
                if supports(printed, found["printed"]):
                    printed = found["printed"]
            if most:
                printed = "".join(printed.splitlines(keepends=True)[: int(most)])
            return f"```console{found['real'] or ''}\n$ {found['command']}\n{printed}```"

        # A page's commands share a folder, because one may read the files of another.
        return BLOCK.sub(block, text)


def shown(text):
    """Return a page with fresh outputs of the commands in its plain blocks."""
    with tempfile.TemporaryDirectory() as folder:

        def block(found):
            printed, old = run(shlex.split(found["command"]), folder), found["printed"]
            if "\n\n" in old:
                printed = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
            else:
                lines = without_empty_lines(printed).splitlines(keepends=True)
                wanted = old.splitlines(keepends=True)
                first = next((k for k, line in enumerate(lines) if shape(line) == shape(wanted[0])), None)
                if first is None:
                    sys.exit(
                        f"outputs: {found['command']}: prints no line like the first one shown: {wanted[0].strip()}"
                    )
                printed = "".join(lines[first : first + len(wanted)])
            return f"```\n$ {found['command']}\n{printed}```"

        return PLAIN.sub(block, text)


def wifi(text):
    """Return the page on Wi-Fi with a fresh table, made by two commands."""
    row = re.compile(r"^\| `(.+?)` \| [\d.]+ \| \d+ \| \d+ \|$", re.MULTILINE)
    queues = row.findall(text)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run(["quell", "train", "learnqueue", "wifi-house"], folder)
        runs = quell.compare("wifi-house", aqm=queues)
    means = iter(quell.summary(runs).select("goodput_mbps", "sojourn_ms.p95", "fct_ms.p95").rows())

    def fresh(found):
        goodput, p95, pages = next(means)
        return f"| `{found[1]}` | {goodput:.1f} | {p95:.0f} | {pages:.0f} |"

    return row.sub(fresh, text)


def fresh(page, text, real):
    """Return a page with fresh outputs."""
    if page in SHOWN:
        return shown(text)
    return wifi(text) if page == WIFI else tutorial(text, real)


def main(words):
    """Write or check the pages."""
    names = [word for word in words if word != "--check"]
    if unknown := [name for name in names if name not in PAGES]:
        sys.exit(f"outputs: {unknown[0]}: no page with outputs; there are {', '.join(PAGES)}")
    pages = names or PAGES
    why = missing() if any(BLOCK.search((ROOT / page).read_text("utf-8")) for page in pages) else ""
    if why:
        print(f"outputs: commands on real packets are not run: {why}")
    stale = []
    with contextlib.nullcontext() if why else line() as real:
        for page in pages:
            path = ROOT / page
            text = path.read_text("utf-8")
            now = fresh(page, text, real)
            if now != text:
                stale.append(page)
                if "--check" not in words:
                    path.write_text(now, "utf-8")
    changed = " ".join(stale)
    if stale and "--check" in words:
        sys.exit(f"outputs: what commands print has changed: .venv/bin/python tools/outputs.py {changed}")
    print(f"outputs: {'wrote ' + changed if stale else 'all as printed'}")


if __name__ == "__main__":
    main(sys.argv[1:])
