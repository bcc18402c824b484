"""What `quell live` changes in the system: iptables rules, written down before they are made, and undone."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from quell._core import InputError

FOLDER = Path("/run/quell")
"""Where state files are. Gone after a reboot, as the rules are."""
MARK = 0x7175656C
"""Packets with this mark (`SO_MARK`) are not queued: those of quell's own sockets."""


def namespace() -> int:
    """Give the number of this network namespace: rules and interfaces' names belong to it."""
    return Path("/proc/self/ns/net").stat().st_ino


def _path(dev: str) -> Path:
    return FOLDER / f"live-{namespace()}-{dev}.json"


@contextmanager
def only_one(dev: str) -> Iterator[Path]:
    """Hold the interface for this process, and undo what one before it left behind; gives the state file's path."""
    path = _path(dev)
    try:
        FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _lock(path) as free:
            if not free:
                raise InputError(f"--dev {dev}: another quell live has it; stop that one first")
            undo(path)
            yield path
    except OSError as error:
        raise InputError(f"{FOLDER}: {error.strerror}; the state file must be there before rules are made") from None


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Hold the lock beside a state file, which ends with the process at the latest; False if another process has it."""
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def rules(dev: str, egress: int | None, ingress: int | None) -> list[list[str]]:
    """Give the rules that send what leaves, or arrives at, an interface to these packet queues."""
    made = []
    own = ["-m", "mark", "!", "--mark", hex(MARK)]
    for chain, flag, queue in (("POSTROUTING", "-o", egress), ("PREROUTING", "-i", ingress)):
        if queue is None:
            continue
        target = ["-j", "NFQUEUE", "--queue-num", str(queue), "--queue-bypass"]
        made += [[program, chain, flag, dev, *own, *target] for program in _programs()]
    return made


def _programs() -> list[str]:
    """Give iptables, and ip6tables where the kernel has IPv6."""
    six = Path("/proc/net/if_inet6").exists()
    programs = ["iptables", "ip6tables"] if six else ["iptables"]
    for program in programs:
        if shutil.which(program) is None:
            raise InputError(f"{program} is missing; on Debian: apt-get install iptables")
    return programs


def insert(path: Path, made: Sequence[Sequence[str]]) -> None:
    """Write the rules down, then make them: all, or none and an error."""
    part = path.with_suffix(".part")
    try:
        with part.open("w") as file:
            json.dump({"pid": os.getpid(), "rules": made}, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"{path}: {error.strerror}; the state file must be there before rules are made") from None
    for program, *rest in made:
        done = _run(program, "-A", rest)
        if done.returncode:
            undo(path)
            why = (done.stderr.strip() or "it failed").splitlines()[-1]
            raise InputError(f"{program}: {why}; quell doctor says what is missing")


def undo(path: Path) -> int:
    """Remove the rules that a state file names, then the file; gives how many there were."""
    try:
        made: list[list[str]] = json.loads(path.read_text())["rules"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: cannot be read ({error}); look at iptables -t mangle -S, then delete it") from None
    removed = 0
    for program, *rest in made:
        if _run(program, "-C", rest).returncode:
            continue
        done = _run(program, "-D", rest)
        if done.returncode:
            why = (done.stderr.strip() or "it failed").splitlines()[-1]
            raise InputError(f"{program}: {why}; {path} still says what to undo: quell live --restore")
        removed += 1
    path.unlink(missing_ok=True)
    return removed


def left() -> list[Path]:
    """Give the state files of this network namespace."""
    return sorted(FOLDER.glob(f"live-{namespace()}-*.json"))


def restore(dev: str | None) -> list[tuple[str, int]]:
    """Undo what dead processes left behind in this network namespace: interfaces, and how many rules each had."""
    prefix = f"live-{namespace()}-"
    done = []
    for path in left():
        name = path.stem.removeprefix(prefix)
        if dev in (None, name):
            with _lock(path) as free:
                if not free:
                    raise InputError(f"--restore: quell live still runs on {name}; stop it, which restores all")
                done.append((name, undo(path)))
    return done


def _run(program: str, verb: str, rest: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, "-w", "-t", "mangle", verb, *rest], capture_output=True, text=True)
