"""Records the files of this checkout that a test depends on, in each Python that has this folder on PYTHONPATH.

tests/by-file sets it. Each input becomes a symbolic link in the folder QUELL_TEST_INPUTS: a link needs neither a
descriptor nor space in a file, both of which some tests take away. The input `*` means all files; it is recorded for
programs that may read files which their command line does not name. Inputs of programs that pytest's own process starts
count for all tests of the file.
"""

from __future__ import annotations

import itertools
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROOT = os.path.realpath(__file__).removesuffix("tests/recorder/sitecustomize.py")
INPUTS = os.environ.get("QUELL_TEST_INPUTS", "")
BUILT = tuple(ROOT + folder for folder in ("target/", ".venv/", ".git/", ".cache/", "dist/"))
READ_NOTHING = re.compile(
    r"(python[\d.]*|quell|quell-live|ip|tc|nft|ip6?tables\S*|bridge|ethtool|sysctl|modprobe|mount|umount|sh|bash|fish|zsh|env"
    r"|nice|timeout|unshare|nsenter|setpriv|strace|script|ping|curl|iperf3|tshark|flent|netperf|cat|tar|dpkg-deb|lintian|chromium"
    r"|chromedriver|selenium-manager|stty|sleep|true|false|kill|ps|uname|lsb_release|id|ldconfig|gpg|md5sum|prlimit"
    r"|systemd-analyze)"
)
"""Programs that read only those files of the checkout that their command line names, and pass the environment on."""
READ_MUCH = re.compile(r"(make|cargo|rustc|git|uv|maturin|ruff|mypy|mkdocs|node|runuser|sudo|su|docker)")
"""Programs that make a command's inputs unknown, wherever they are in it."""
PYTHON = re.compile(r"(^|/)python[\d.]*$")
PROGRAMS = (".venv/bin/quell-live", "dist/quell-live")
"""Programs that are inputs although they are in folders of build results (BUILT)."""
seen: set[tuple[str, str]] = set()


def note(name: str, folder: str = INPUTS) -> None:
    if (name, folder) not in seen:
        seen.add((name, folder))
        try:
            os.symlink(name, f"{folder}/{name.replace('/', '%')}")
        except FileExistsError:
            pass


def read(path: str, inputs: str = INPUTS) -> None:
    """Record a file of the checkout; for compiled Python, its source."""
    path = os.path.realpath(path)
    if not path.startswith(ROOT) or not os.path.isfile(path):
        return
    if path.startswith(BUILT) and path.removeprefix(ROOT) not in PROGRAMS:
        return
    folder, _, name = path.removeprefix(ROOT).rpartition("/")
    if folder.endswith("__pycache__"):
        folder, name = folder.removesuffix("__pycache__").rstrip("/"), name.partition(".")[0] + ".py"
    note(f"{folder}/{name}" if folder else name, inputs)


def ran(program: Any, words: Any, folder: Any, environment: Any) -> None:
    """Record what a program depends on, for the test that the environment names."""
    inputs = os.environ.get("QUELL_TEST_INPUTS", INPUTS)
    words = [words] if isinstance(words, str | bytes | os.PathLike) else list(words or ())
    words = [os.fsdecode(word) for word in (program or words[0], *words)]
    folder = os.fsdecode(folder or ".")
    # A Python child records its inputs itself.
    scripts = {k + 2 for k in range(len(words) - 1) if words[k + 1] == "-c" and PYTHON.search(words[k])}
    searched = [word for k, word in enumerate(words) if k not in scripts]
    tokens = [token for word in searched for token in re.split(r"[\s'\"=;|&()]+", word) if token]
    names = [os.path.basename(token) for token in tokens]
    passed_on = environment is None or any(os.fsdecode(name) == "QUELL_TEST_INPUTS" for name in environment)
    # A shell's commands are either on its command line or unknown.
    options = itertools.takewhile(re.compile("-|pipefail").match, words[2:])
    script = names[0] in ("sh", "bash") and not any(re.fullmatch(r"-\w*c", word) for word in options)
    if (
        not READ_NOTHING.fullmatch(names[0])
        or any(READ_MUCH.fullmatch(name) for name in names)
        or (names[0] != "ldconfig" and not passed_on)
        or script
        or names[-1] in ("sh", "bash")
    ):
        note("*")
    if "quell-live" in names:
        # Both, because either may be in PATH.
        for program in PROGRAMS:
            note(program, inputs)
    for token in tokens:
        read(os.path.join(folder, token), inputs)


def hook(event: str, values: tuple[Any, ...]) -> None:
    if event == "open":
        if isinstance(values[0], str | bytes | os.PathLike):
            read(os.fsdecode(values[0]))
    elif event == "import":
        if values[1]:
            read(values[1])
    elif event == "subprocess.Popen":
        ran(*values)
    elif event in ("os.posix_spawn", "os.exec"):
        ran(values[0], values[1], None, values[2])
    elif event == "os.system":
        ran("sh", values[0], None, None)


if INPUTS:
    sys.addaudithook(hook)
