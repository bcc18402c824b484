"""`quell live --view`: the contents of the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import QUELL, QUELL_LIVE
from live_net import Net, built, require


@pytest.fixture
def net() -> Iterator[Net]:
    require()
    with built(Net) as made:
        yield made


class Terminal:
    """A terminal of 24 rows and 140 columns that understands the sequences for drawing in place."""

    def __init__(self) -> None:
        self.end, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 140, 0, 0))
        self.lines, self.row = [""], 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        kept = ""
        while True:
            try:
                kept += os.read(self.end, 65536).decode()
            except (OSError, UnicodeDecodeError):
                return
            while piece := re.match(r"\x1b\[(\d*)([A-Z])|\r|\n|[^\x1b\r\n]+", kept):
                kept = kept[piece.end() :]
                self._write(piece)

    def _write(self, piece: re.Match[str]) -> None:
        if piece[2] == "A":
            self.row -= int(piece[1])
        elif piece[2] == "J":
            del self.lines[self.row + 1 :]
            self.lines[self.row] = ""
        elif piece[0] == "\n":
            self.row += 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif piece[0] != "\r" and piece[2] is None:
            self.lines[self.row] = piece[0]

    def wait(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if found := re.search(pattern, "\n".join(list(self.lines)), re.MULTILINE):
                return found
            time.sleep(0.05)
        raise AssertionError("\n".join(self.lines))


@pytest.mark.real_time
@pytest.mark.parametrize("program", [(QUELL, "live"), (QUELL_LIVE,)], ids=["Python", "static"])
def test_the_directions_are_drawn_in_place_below_what_is_said(
    net: Net, tmp_path: Path, program: tuple[str | Path, ...]
) -> None:
    terminal = Terminal()
    config = tmp_path / "live.toml"
    config.touch()
    words = ("--dev", "rb", "--rate", "9mbit", "--ingress", "2500kbit", "--aqm", "codel", "--dry-run", "--view")
    command = ["ip", "netns", "exec", net.r, *program, *words, "--config", config]
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=terminal.theirs, text=True)
    try:
        terminal.wait(r"^egress +0\.000 +9\.000 +-")
        net.datagrams(300, gap=0.005)
        terminal.wait(r"^ingress +0\.000 +2\.500 +-")
        # The bars of the last 15 s show that packets waited.
        terminal.wait(r"^egress .* +[_▁]*[^_▁ ]")
        # Messages of a reload are above the table, which stays whole.
        config.write_text("frob = 1\n")
        running.send_signal(signal.SIGHUP)
        terminal.wait(r"not reloaded: .*\n(.*\n)? +Mbit/s +of +in queue")
        text = "\n".join(terminal.lines)
        assert text.count("egress") == 2 and text.count("quell: rb: egress: 9mbit") == 1
    finally:
        running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=20) == 0
    # At the end the table of totals replaces the live table.
    terminal.wait(r"^ +rate +packets +sent")
    text = "\n".join(terminal.lines)
    assert "in queue" not in text
    assert re.search(r"^egress +9mbit +\d{3} ", text, re.MULTILINE)


def test_without_a_terminal_it_says_so_before_anything_is_touched(net: Net) -> None:
    for program in ((QUELL, "live"), (QUELL_LIVE,)):
        done = net.run(net.r, *program, "--dev", "rb", "--rate", "9mbit", "--view")
        assert done.returncode == 2
        assert done.stderr.startswith("quell: --view: standard error is not a terminal; leave it out")
        assert done.stderr.count("\n") == 1
    assert not net.rules()
