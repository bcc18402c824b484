"""The part of tests/test_tune_linux.py that runs `quell tune --apply` as root, in a kernel of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from quell._core import InputError
from quell.linux.programs import Command
from quell.tune import install, search, space, targets
from quell.tune.aims import Aims
from quell.tune.line import at_home

LINE = at_home("50mbit/10mbit", "30ms", "docsis", None, Aims().weights, None, 1)
RUN = Path("/run/quell")


def commands(kind: str) -> list[Command]:
    return targets.tc_commands("wan", LINE, *search.shapes(space.default(kind), LINE))


def sh(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def seen() -> str:
    """Return all queues, classes and filters, without counters."""
    links = [link for link in ("wan", "ifb4wan", "ifb9") if Path(f"/sys/class/net/{link}").exists()]
    text = "\n".join(
        sh(f"tc qdisc show dev {link}; tc class show dev {link}; tc filter show dev {link} ingress") for link in links
    )
    # The kernel numbers actions. Classes of cake and fq_codel are flows with recent packets; IPv6 sends some.
    return re.sub(r"index \d+|class (cake|fq_codel) .*\n?", "", text)


def refused(what: str, dev: str = "wan", *, replace: bool = False) -> None:
    """Expect a refusal in one line, and nothing changed."""
    before = seen()
    try:
        install.apply(dev, commands("cake"), replace=replace)
    except InputError as error:
        text = str(error)
        assert what in text, text
        assert "\n" not in text
    else:
        raise AssertionError(f"no error of {what}")
    assert seen() == before
    assert not list(RUN.glob("tune-*.json"))


def there_and_back(*kinds: str, replace: bool = False) -> None:
    before = seen()
    for kind in kinds:
        install.check("wan", replace=replace)
        install.apply("wan", commands(kind), replace=replace)
        now = seen()
        assert sh("tc qdisc show dev wan; tc qdisc show dev ifb4wan").count(f"qdisc {kind} ") == 2, now
        assert "Redirect to device ifb4wan" in now
        try:
            install.apply("wan", commands("cake"), replace=True)
        except InputError as error:
            assert "first `quell tune --undo wan`" in str(error)
        else:
            raise AssertionError("a second one")
        assert seen() == now
        assert "again what it had" in install.undo("wan", replace=False)
        assert seen() == before, f"{kind}\n{before}\n---\n{seen()}"
        assert not list(RUN.glob("tune-*.json"))


def main() -> None:
    sh("ip link add wan type veth peer name other; ip link set wan up; ip link set other up")
    for part in (full, interrupted, searching) if sys.argv[1:] == ["stopped"] else ():
        part()
        print(f"{part.__name__}: ok", flush=True)
    if sys.argv[1:]:
        return
    there_and_back(*targets.TARGETS["tc"].kinds)
    print("default queue: ok", flush=True)

    configured = {
        "cake": "tc qdisc add dev wan root cake bandwidth 7mbit rtt 50ms nat ack-filter",
        "fq_codel": "tc qdisc add dev wan root handle 5: fq_codel target 7ms limit 999",
        "pie": "tc qdisc add dev wan root pie target 20ms",
        "tbf": "tc qdisc add dev wan root tbf rate 9mbit burst 5000 latency 50ms",
        "htb": "tc qdisc add dev wan root handle 1: htb default 10; "
        "tc class add dev wan parent 1: classid 1:10 htb rate 9mbit; "
        "tc class add dev wan parent 1: classid 1:20 htb rate 1mbit ceil 3mbit; "
        "tc qdisc add dev wan parent 1:10 handle 110: fq_codel quantum 300",
        # Its root class, which the kernel lists without a minor number, is created with the queue.
        "hfsc": "tc qdisc add dev wan root handle 1: hfsc default 10; "
        "tc class add dev wan parent 1: classid 1:1 hfsc sc rate 9mbit ul rate 9mbit; "
        "tc class add dev wan parent 1:1 classid 1:10 hfsc rt m1 5mbit d 10ms m2 1mbit ls rate 2mbit; "
        "tc qdisc add dev wan parent 1:10 handle 110: pfifo limit 78",
    }
    for name, command in configured.items():
        sh(command)
        refused(f"that is not quell's ({name}")
        there_and_back("cake", "fq_codel", replace=True)
        sh("tc qdisc del dev wan root")
    print("configured queues: ok", flush=True)

    # Lines pasted earlier may use the ifb of quell's name or another one.
    for inner in ("ifb4wan", "ifb9"):
        sh(f"ip link add {inner} type ifb; ip link set {inner} up; tc qdisc add dev wan handle ffff: ingress; "
           f"{targets.redirect('wan', inner).text}; tc qdisc add dev {inner} root cake bandwidth 30mbit; "
           f"tc qdisc add dev {inner} handle ffff: ingress; {targets.redirect(inner, 'other').text}")  # fmt: skip
        refused("that is not quell's (")
        there_and_back("cake", "fq_codel", replace=True)
        sh(f"tc qdisc del dev wan ingress; ip link del {inner}")
    print("configured ifb: ok", flush=True)

    sh("tc qdisc add dev wan root handle 1: htb default 10; "
       "tc filter add dev wan parent 1: protocol ip u32 match ip dport 22 0xffff flowid 1:10")  # fmt: skip
    refused("filters", replace=True)
    sh("tc qdisc del dev wan root; tc qdisc add dev wan handle ffff: ingress; "
       "tc filter add dev wan parent ffff: protocol ip u32 match ip dport 22 0xffff flowid 1:1 "
       "action mirred egress redirect dev other")  # fmt: skip
    refused("filters on what arrives", replace=True)
    sh("tc qdisc del dev wan ingress; tc qdisc add dev wan handle ffff: ingress; "
       f"{targets.redirect('wan', 'other').text.replace('protocol all', 'protocol ip')}")  # fmt: skip
    refused("filters on what arrives", replace=True)
    sh("tc qdisc del dev wan ingress; tc qdisc add dev wan clsact")
    refused("wan has clsact", replace=True)
    sh("tc qdisc del dev wan clsact")
    # The kernel does not report the size table of tc.
    sh("tc qdisc add dev wan root handle 1: stab overhead 18 mpu 64 linklayer ethernet htb default 1")
    refused("put back", replace=True)
    sh("tc qdisc del dev wan root")
    refused("no such interface", "nowhere")
    install.fits("wan", (10_000.0, 1000.0))
    try:
        install.fits("wan", (20_000.0, 1000.0))  # veth reports 10 Gbit/s
    except InputError as error:
        assert "runs at 10000 Mbit/s and cannot shape a line of 20000 Mbit/s" in str(error)
    else:
        raise AssertionError("the interface is slower than the line")
    # Missing parts of a kernel are found before the search.
    before = seen()
    why = install.refused("wan", [*targets.TARGETS["tc"].kinds, "hush"], LINE)
    assert list(why) == ["hush"] and why["hush"].startswith("this kernel refuses `tc qdisc add "), why
    assert seen() == before
    print("refusals: ok", flush=True)

    killed()
    print("killed: ok", flush=True)

    install.apply("wan", commands("cake"), replace=False)
    sh("tc qdisc replace dev wan root sfq")
    try:
        install.undo("wan", replace=False)
    except InputError as error:
        assert "--replace" in str(error)
    else:
        raise AssertionError("another program configured it")
    install.undo("wan", replace=True)
    assert "sfq" not in seen()
    print("changed meanwhile: ok", flush=True)

    install.apply("wan", commands("fq_codel"), replace=False)
    sh("ip link del wan")
    assert "not the interface any more" in install.undo("wan", replace=False)
    assert not Path("/sys/class/net/ifb4wan").exists()
    print("gone: ok", flush=True)


def full() -> None:
    """A folder in which no state can be stored is refused before the search, and by `apply` with nothing changed."""
    before = seen()
    attempts: list[Callable[[], None]] = [
        lambda: install.check("wan", replace=False),
        lambda: install.apply("wan", commands("cake"), replace=False),
    ]
    RUN.mkdir(exist_ok=True)
    sh(f"mount -t tmpfs -o size=4k,mode=755 none {RUN}")
    try:
        for fault, message in ((f"head -c 9000 /dev/zero > {RUN}/filler || true", "No space left"),
                               (f"mount -o remount,ro {RUN}", "Read-only")):  # fmt: skip
            sh(fault)
            for attempt in attempts:
                try:
                    attempt()
                except InputError as error:
                    assert message in str(error) and "\n" not in str(error), error
                else:
                    raise AssertionError(f"no error of {message}")
                assert seen() == before
                assert not [*RUN.glob("*.json"), *RUN.glob("*.part")]
    finally:
        sh(f"umount {RUN}")


def interrupted() -> None:
    """Ctrl-C at any command of `apply`, once or twice: nothing is half applied, or `--undo` restores what was there."""
    sh("tc qdisc add dev wan root handle 7: fq_codel target 7ms")
    before = seen()
    for presses in (1, 2):
        steps = 0
        while True:
            child = os.fork()
            if not child:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                try:
                    die_at("apply", steps, signal.SIGINT, presses)
                except KeyboardInterrupt:
                    os._exit(3)
            status = os.waitpid(child, 0)[1]
            if os.WEXITSTATUS(status) == 0:
                break
            assert os.WEXITSTATUS(status) == 3
            left = list(RUN.glob("tune-*.json"))
            assert presses == 2 or not left, f"step {steps}: {left}"
            if left:
                install.undo("wan", replace=False)
            assert seen() == before, f"{presses} times at step {steps}:\n{seen()}"
            assert not list(RUN.glob("*.part"))
            steps += 1
        assert steps >= 3
        install.undo("wan", replace=False)
        assert seen() == before
    sh("tc qdisc del dev wan root")


def searching() -> None:
    """Ctrl-C during the search: the best result so far is printed, nothing is installed."""
    before = seen()
    # The guest's clock does not advance while a program computes: a search is interrupted after its first round.
    text = (
        "import os, signal; from quell import __main__; from quell.tune import search; real = search.search\n"
        "search.search = lambda bench, plan, seen: real(bench, plan, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "__main__.main()"
    )
    words = ["tune", "--rate", "5mbit/1mbit", "--duration", "5s", "--seeds", "2", "--queues", "cake", "--apply", "wan"]
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert "nothing was installed on wan" in done.stderr
    assert "tc qdisc add dev wan root cake" in done.stdout
    assert seen() == before
    assert not list(RUN.glob("tune-*.json"))


def killed() -> None:
    """Kill quell at any command, while it applies and while it undoes: `--undo` restores the former state."""
    sh("tc qdisc add dev wan root handle 7: fq_codel target 7ms")
    before = seen()
    for verb in ("apply", "undo"):
        steps = 0
        while True:
            child = os.fork()
            if not child:
                die_at(verb, steps)
            status = os.waitpid(child, 0)[1]
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0
                break
            if list(RUN.glob("tune-*.json")):
                install.undo("wan", replace=False)
            assert seen() == before, f"{verb}, step {steps}:\n{seen()}"
            steps += 1
        assert steps >= 3, verb
        if verb == "apply":
            install.undo("wan", replace=False)
        assert seen() == before
    sh("tc qdisc del dev wan root")


def die_at(verb: str, step: int, by: signal.Signals = signal.SIGKILL, times: int = 1) -> None:
    """Apply or undo; a signal arrives before each of `times` commands for the real interface, after `step` others."""
    if verb == "undo":
        install.apply("wan", commands("cake"), replace=True)
    left, real = step, install.run

    def run(*commands: Command, before: tuple[str, ...] = ()) -> None:
        nonlocal left
        for command in commands:
            # Commands of rehearsals, which run in another network namespace, do not count.
            if Path("/proc/self/ns/net").stat().st_ino == HOME:
                left -= 1
                if -times <= left < 0:
                    os.kill(os.getpid(), by)
                    time.sleep(9)
            real(command, before=before)

    install.run = run
    if verb == "apply":
        install.apply("wan", commands("cake"), replace=True)
    else:
        install.undo("wan", replace=False)
    os._exit(0)


HOME = Path("/proc/self/ns/net").stat().st_ino
main()
