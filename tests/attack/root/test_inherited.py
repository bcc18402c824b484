"""State that a command inherits: outputs that nothing reads, ignored signals, the environment, resource limits."""

from __future__ import annotations

import contextlib
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL, QUELL_LIVE, no_tun
from live_net import IPTABLES, Net, built, require
from namespace import VETH, Space, space_with
from quell.linux.spaces import has_interface, interface_name

pytestmark = pytest.mark.real_time

LIVE = (QUELL_LIVE, "--dev", "rb", "--rate", "8mbit")


@pytest.fixture
def net() -> Iterator[Net]:
    require()
    with built(Net) as made:
        yield made


@pytest.fixture
def space() -> Iterator[Space]:
    with space_with("qi", VETH + "tc qdisc add dev v0 root handle 1: pfifo limit 1000") as made:
        yield made


def fill(path: str) -> None:
    """Write to a pipe or a terminal until it has no room."""
    out = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    for piece in (b"x" * 4096, b"x"):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(out, piece)
    os.close(out)


@contextmanager
def full_pipe() -> Iterator[int]:
    """Yield the writing end of a full pipe that nothing reads."""
    ends = os.pipe()
    fill(f"/proc/self/fd/{ends[1]}")
    try:
        yield ends[1]
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def running(words: tuple[Path | str, ...], **how: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process that ends with the test."""
    process = subprocess.Popen(words, start_new_session=True, env=os.environ | {"QUELL_FIREWALL": "iptables"}, **how)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def holds_back(pid: int, number: signal.Signals) -> bool:
    """Whether a process has blocked a signal (proc_pid_status(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigBlk:")[2].split()[0], 16) >> (number - 1) & 1)


def until(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_live_obeys_and_restores_rules_though_nothing_reads_what_it_says(net: Net) -> None:
    with full_pipe() as write, running(("ip", "netns", "exec", net.r, *LIVE), stderr=write) as live:
        until(lambda: all(map(net.rules, IPTABLES)), "no rules were made")
        net.run(net.r, "iptables", "-t", "mangle", "-F")
        until(net.rules, "rules that were removed were not restored")
        live.terminate()
        assert live.wait(timeout=20) == 0
    assert net.rules() == []


@pytest.mark.parametrize("command", ["steer", "watch"])
def test_samples_that_nothing_reads_keep_no_signal_waiting(space: Space, command: str) -> None:
    knob = ("500", "--with", "limit") if command == "steer" else ()

    def is_limit(packets: int) -> bool:
        return f"limit {packets}p" in space.run("tc", "qdisc", "show", "dev", "v0").stdout

    words = ("ip", "netns", "exec", space.name, QUELL_LIVE, command, "v0", *knob, "--json", "--every", "20ms")
    with full_pipe() as write, running(words, stdout=write, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: holds_back(process.pid, signal.SIGTERM), "it did not start")
        if command == "steer":
            until(lambda: is_limit(500), "the limit was not set")
            # Longer than quell-live's watchdog waits.
            time.sleep(0.5)
            assert is_limit(500), "steering waits for the reader"
        process.terminate()
        said = process.communicate(timeout=20)[1]
    assert process.returncode == 0, said
    assert is_limit(1000)
    assert ("nothing read standard output" in said) == (command == "steer"), said


@pytest.mark.parametrize("command", ["live", "steer", "watch"])
def test_a_terminal_that_shows_nothing_more_keeps_no_signal_waiting(net: Net, command: str) -> None:
    net.run(net.r, "tc", "qdisc", "add", "dev", "rb", "root", "handle", "1:", "pfifo", "limit", "1000")
    words = {
        "live": ("--dev", "rb", "--rate", "8mbit", "--view"),
        "steer": ("steer", "rb", "500", "--with", "limit", "--json", "--every", "20ms"),
        "watch": ("watch", "rb", "--json", "--every", "20ms"),
    }[command]
    # Nothing reads the terminal any more, as when an SSH connection hangs.
    screen, terminal = os.openpty()
    fill(os.ttyname(terminal))
    ends = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with running(("ip", "netns", "exec", net.r, QUELL_LIVE, *words), **ends) as process:
        until(lambda: holds_back(process.pid, signal.SIGTERM), "it did not start")
        if command != "live":
            # Make room for a part of the output.
            os.read(screen, 100)
        time.sleep(0.5)
        process.terminate()
        assert process.wait(timeout=20) == 0
    os.close(screen)
    os.close(terminal)
    assert net.rules() == []
    assert "limit 1000p" in net.run(net.r, "tc", "qdisc", "show", "dev", "rb").stdout


BACKGROUND = """
import subprocess, sys, termios
own = termios.tcgetattr(0)
own[3] |= termios.TOSTOP
termios.tcsetattr(0, termios.TCSANOW, own)
job = subprocess.Popen(sys.argv[1:], process_group=0)
sys.stdin.readline()
job.terminate()
try:
    status = job.wait(20)
finally:
    job.kill()
sys.exit(status)
"""


def test_live_in_the_background_of_a_terminal_that_stops_what_writes_is_not_stopped(net: Net) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.environ["QUELL_FIREWALL"] = "iptables"
        words = ("ip", "netns", "exec", net.r, sys.executable, "-c", BACKGROUND, *map(str, LIVE))
        os.execvp(words[0], words)
    try:
        until(lambda: all(map(net.rules, IPTABLES)), "no rules were made")
        os.write(terminal, b"\n")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(terminal)
    assert net.rules() == []


def ignoring() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@pytest.mark.skipif(os.geteuid() != 0 or bool(no_tun()), reason="only root may forward packets")
def test_a_shell_obeys_and_removes_its_rules_though_nothing_reads_what_it_says(net: Net) -> None:
    def forwards() -> bool:
        return "MASQUERADE" in net.run(net.r, "iptables", "-t", "nat", "-S", "POSTROUTING").stdout

    def ended() -> bool:
        shell.terminate()
        return shell.poll() is not None

    words = ("ip", "netns", "exec", net.r, QUELL, "shell", "--rate", "8mbit", "--nat", "--", "sleep", "60")
    with full_pipe() as write, running(words, stderr=write) as shell:
        until(forwards, "no rules were made")
        time.sleep(0.5)
        shell.terminate()
        until(lambda: not forwards(), "rules are left")
        # Printing the final table waits for a reader, too, until a further SIGTERM.
        until(ended, "it does not end")
    assert "quell" not in net.run(net.r, "iptables", "-S", "FORWARD").stdout


@pytest.mark.skipif(bool(no_tun()), reason=no_tun())
def test_a_shell_ends_with_its_command_though_the_caller_ignores_that_children_end() -> None:
    words = (QUELL, "shell", "--rate", "8mbit", "--quiet", "--", "sh", "-c", "exit 3")
    with running(words, preexec_fn=ignoring) as shell:
        assert shell.wait(timeout=30) == 3


@pytest.mark.parametrize("program", [(QUELL, "live"), (QUELL_LIVE,)], ids=["quell", "quell-live"])
def test_live_starts_though_the_caller_ignores_that_children_end(net: Net, program: tuple[Path | str, ...]) -> None:
    words = ("ip", "netns", "exec", net.r, *program, *LIVE[1:], "--duration", "0.1s")
    with running(words, preexec_fn=ignoring, stderr=subprocess.PIPE, text=True) as live:
        said = live.communicate(timeout=60)[1]
        assert live.returncode == 0, said
    assert net.rules() == []


def hangup(live: subprocess.Popen[Any], net: Net) -> None:
    until(lambda: all(map(net.rules, IPTABLES)), "no rules were made")
    live.send_signal(signal.SIGHUP)


@pytest.mark.parametrize("program", [(QUELL, "live"), (QUELL_LIVE,)], ids=["quell", "quell-live"])
def test_live_without_a_configuration_ends_with_its_terminal(net: Net, program: tuple[Path | str, ...]) -> None:
    def at_a_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup

    words = ("ip", "netns", "exec", net.r, *program, *LIVE[1:], "--quiet")
    with running(words, preexec_fn=at_a_terminal) as live:
        hangup(live, net)
        assert live.wait(timeout=20) == 0
    assert net.rules() == []


def test_live_outlives_its_terminal_where_the_caller_ignores_that(net: Net) -> None:
    def nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with running(("ip", "netns", "exec", net.r, *LIVE, "--quiet", "--duration", "3s"), preexec_fn=nohup) as live:
        began = time.monotonic()
        hangup(live, net)
        assert live.wait(timeout=20) == 0
        assert time.monotonic() - began > 2.9, "SIGHUP has ended it"


def test_the_environment_sets_no_stack_of_a_loop(net: Net) -> None:
    done = net.run(net.r, "env", "RUST_MIN_STACK=1", *LIVE, "--duration", "0.1s")
    assert done.returncode == 0, done.stderr


def test_a_log_that_may_not_grow_does_not_end_live(net: Net, tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (80, 80))

    log = tmp_path / "log"
    words = ("ip", "netns", "exec", net.r, *LIVE)
    with log.open("w") as err, running(words, preexec_fn=limited, stderr=err) as live:
        until(lambda: all(map(net.rules, IPTABLES)), f"no rules were made: {log.read_text()}")
        for _ in range(2):
            net.run(net.r, "iptables", "-t", "mangle", "-F")
            until(net.rules, "rules that were removed were not restored")
        until(lambda: log.stat().st_size == 80, "nothing was said")
        live.terminate()
        assert live.wait(timeout=20) == 0
    assert net.rules() == []


def test_without_a_free_descriptor_live_does_not_take_its_interface_for_gone(net: Net) -> None:
    with running(("ip", "netns", "exec", net.r, *LIVE), stderr=subprocess.PIPE, text=True) as live:
        assert live.stderr is not None
        live.stderr.readline()
        net.run(net.r, "iptables", "-t", "mangle", "-F")
        # This message shows that it runs and is not just starting.
        assert "put back" in live.stderr.readline()
        before = resource.prlimit(live.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(live.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        # Longer than the second for which an interface may be missing; each change makes quell-live look for it.
        for length in range(1000, 1012):
            net.ip(f"-n {net.r} link set rb txqueuelen {length}")
            time.sleep(0.2)
        assert live.poll() is None and net.rules(), live.communicate()[1]
        resource.prlimit(live.pid, resource.RLIMIT_NOFILE, before)
        live.terminate()
        said = live.communicate(timeout=20)[1]
        assert live.returncode == 0, said
    assert net.rules() == []


@pytest.mark.parametrize("look", [lambda: has_interface("lo"), lambda: interface_name(1)], ids=["name", "number"])
def test_without_a_free_descriptor_tune_does_not_take_an_interface_for_gone(look: Callable[[], object]) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="open files"):
            look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert look()


def test_samples_in_a_file_that_may_not_grow_end_with_a_whole_line(space: Space, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    watch = (QUELL_LIVE, "watch", "v0", "--every", "1ms", "--quiet", "--out", out)
    done = space.run("prlimit", "--fsize=10000", *watch)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "File too large" in done.stderr
    assert out.read_text()[-1:] in ("", "\n")


@pytest.mark.skipif(os.geteuid() != 0 or bool(no_tun()), reason="only root may forward packets")
def test_too_few_descriptors_for_a_shell_are_not_a_bug(net: Net) -> None:
    shell = (QUELL, "shell", "--rate", "8mbit", "--nat", "--", "true")
    # With 10 to 15 descriptors it gets as far as the rules of --nat (Python 3.11).
    for most in (9, 11, 13, 15):
        words = ("ip", "netns", "exec", net.r, "prlimit", f"--nofile={most}", *shell)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        if done.returncode:
            assert "open files" in done.stderr and "a bug" not in done.stderr, done.stderr
        assert "quell" not in net.run(net.r, "iptables", "-S", "FORWARD").stdout
        assert net.run(net.r, "cat", "/proc/sys/net/ipv4/ip_forward").stdout.strip() == "1"
