"""`quell tune --apply DEV` and `--undo DEV`: apply lines of tc to an interface, and restore its previous state.

The previous state is written to /run/quell before any change, as in `quell live`, and the file is removed when the
state is restored. So an interruption at any time leaves the data that `--undo` needs. The new lines and the restoration
are tried in a network namespace first, where a refusal by the kernel changes nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import struct
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quell import _core
from quell._core import InputError
from quell.common.files import signals_wait
from quell.linux.kernel import ATTACHED_PREFIX
from quell.linux.programs import Command
from quell.linux.programs import run as run  # a test ends the process at a given command
from quell.linux.spaces import TemporaryNamespace, has_interface, interface_name
from quell.tune import netlink, search, space, targets
from quell.tune.line import Line
from quell.tune.netlink import Node

if TYPE_CHECKING:
    from quell._core import StateFile

_PLACES = ("root", "ingress")
"""Where an interface may have queues."""


@dataclass(frozen=True)
class Side:
    """State of an interface before the change."""

    index: int
    """Index of the interface; 0: it did not exist."""
    tree: list[Node] = field(default_factory=list)
    redirect: int = 0
    """Index of the interface to which all arriving packets were redirected; 0: none."""

    @classmethod
    def of(cls, dev: str) -> Side:
        """Read it from the kernel. Raises InputError for a state that could not be restored."""
        if not has_interface(dev):
            return cls(0)
        index, tree = socket.if_nametoindex(dev), netlink.tree(dev)
        if netlink.has_filters(dev):
            raise InputError(f"{dev} has queues with filters, which could not be put back; remove them: "
                             f"tc qdisc del dev {dev} root")  # fmt: skip
        if any(not node.is_whole for node in tree):
            raise InputError(f"{dev} has netem with jitter, whose distribution could not be put back; remove it: "
                             f"tc qdisc del dev {dev} root")  # fmt: skip
        if attached := next((node.kind for node in tree if node.kind.startswith(ATTACHED_PREFIX)), ""):
            # Nothing else keeps the program: the kernel would not know the discipline any more.
            raise InputError(f"{dev} has {attached}, which could not be put back; remove it: quell detach {dev}")
        if any(node.kind == "clsact" for node in tree):
            raise InputError(f"{dev} has clsact, which lines of tc do not replace; remove it: "
                             f"tc qdisc del dev {dev} clsact")  # fmt: skip
        try:
            return cls(index, tree, netlink.redirected(dev))
        except ValueError:
            raise InputError(f"{dev} has filters on what arrives, which could not be put back; remove them: "
                             f"tc qdisc del dev {dev} ingress") from None  # fmt: skip

    @property
    def existing(self) -> str:
        """Name of the first queue; empty if there is only the kernel's default."""
        return self.tree[0].name if self.tree else ""

    @property
    def known(self) -> tuple[Any, ...]:
        """Return everything but counters and cake's options; cake may change its own rate (autorate-ingress)."""
        nodes = [node.known[:4] if node.kind == "cake" else node.known for node in self.tree]
        return self.index, self.redirect, nodes

    @property
    def places(self) -> set[str]:
        """Where it has queues: `root`, `ingress`."""
        return {node.place for node in self.tree}

    def put_back(self, dev: str, changed: Collection[str] = _PLACES) -> None:
        """Restore the interface, whose present name is `dev`, at the places that were changed."""
        run(*(Command.of("tc qdisc del dev {dev} {place}", dev=dev, place=place, may_fail=True)
              for place in _PLACES if place in changed or place in self.places))  # fmt: skip
        netlink.put_back(dev, self.tree)
        # Packets cannot be redirected to an interface that no longer exists.
        if to := interface_name(self.redirect):
            run(targets.redirect(dev, to))

    @classmethod
    def read(cls, plain: Any) -> Side:
        """Read it from a state file. Raises ValueError for content that quell does not write."""
        found = netlink.fields(plain, "index", "tree", "redirect")
        if not isinstance(found["tree"], list):
            raise ValueError("tree")
        numbers = [netlink.number(found[key]) for key in ("index", "redirect")]
        return cls(numbers[0], [Node.read(node) for node in found["tree"]], numbers[1])


@dataclass(frozen=True)
class State:
    """The contents of a state file: typed values; no interface names, no programs."""

    own: Side
    inner: Side
    """State of the ifb."""
    made: list[Any] = field(default_factory=list)
    """The installed queues, for comparison; empty until all are installed."""
    boot: int = field(default_factory=lambda: _core.StateFile.boot())
    """The boot of the system in which it was read from the kernel; 0: unknown."""

    @classmethod
    def read(cls, text: str) -> State:
        """Read a state file. Raises ValueError for content that quell does not write."""
        try:
            found = netlink.fields(json.loads(text), "own", "inner", "made", "boot")
            if not isinstance(found["made"], list) or not all(isinstance(each, list) for each in found["made"]):
                raise ValueError("made")
            if type(found["boot"]) is not int or not 0 <= found["boot"] < 1 << 64:
                raise ValueError("boot")
            return cls(Side.read(found["own"]), Side.read(found["inner"]), found["made"], found["boot"])
        except (RecursionError, struct.error) as error:
            raise ValueError(str(error)) from None

    @property
    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @property
    def is_old(self) -> bool:
        """Whether it is of an earlier boot, which a persistent `/run` makes possible.

        Its queues no longer exist then, and its indices may be those of other interfaces.
        """
        return 0 not in (self.boot, now := _core.StateFile.boot()) and self.boot != now

    def has_same_queues(self, other: State) -> bool:
        """Return whether both interfaces have the same indices, queues and redirections; counters may differ."""
        pairs = ((self.own, other.own), (self.inner, other.inner))
        return all(one.known == another.known for one, another in pairs)


def check(dev: str, *, replace: bool) -> None:
    """Raise InputError before the search if lines could not be installed."""
    _system("--apply")
    targets.interface(dev, "--apply")
    if not has_interface(dev):
        raise InputError(f"--apply {dev}: there is no such interface (`ip link` lists them)")
    with _core.StateFile.hold(dev) as file:
        # Only writing detects a full file system.
        file.try_write(_before(dev, file, replace=replace).text)


def fits(dev: str, rates: Sequence[float]) -> None:
    """Raise InputError if the interface is slower than the line (Mbit/s): a shaper on it would not hold the queue."""
    try:
        speed = int(Path(f"/sys/class/net/{dev}/speed").read_text())
    except (OSError, ValueError):
        return  # Wi-Fi and virtual interfaces have no speed
    if 0 < speed < max(rates):
        raise InputError(f"--apply {dev}: it runs at {speed} Mbit/s and cannot shape a line of {max(rates):g} Mbit/s; "
                         "give the rates that get through, or a faster interface")  # fmt: skip


def refused(dev: str, kinds: Sequence[str], line: Line) -> dict[str, str]:
    """Try each discipline in a namespace, with its defaults and all its options; return reasons for refusals."""
    found = {}
    for kind in kinds:
        try:
            with TemporaryNamespace() as space_:
                space_.run(_pair(dev))
                for setting in (space.default(kind), space.moved(kind)):
                    space_.run(*targets.tc_commands(dev, line, *search.shapes(setting, line)))
        except InputError as error:
            found[kind] = str(error)
    return found


def apply(dev: str, commands: Sequence[Command], *, replace: bool) -> None:
    """Run commands of tc for an interface. Raises InputError with nothing changed."""
    with _core.StateFile.hold(dev) as file:
        state = _before(dev, file, replace=replace)
        _rehearse(dev, commands, state)
        # The rehearsal takes long enough for another program to set a queue, which would be lost.
        if not _before(dev, file, replace=replace).has_same_queues(state):
            raise InputError(f"--apply {dev}: another program has changed its queues meanwhile; try again when that "
                             "has ended")  # fmt: skip
        with signals_wait():
            made: dict[str, set[str]] = {name: set() for name, _ in _named(dev, state)}
            try:
                file.write(state.text)
                _install(dev, commands, state, made)
                if interface_name(state.own.index) != dev:
                    raise InputError(f"--apply {dev}: the interface was renamed, or made again, meanwhile; look at "
                                     f"`tc qdisc show dev {dev}`, then try again")  # fmt: skip
                file.write(dataclasses.replace(state, made=_kinds(dev, targets.ifb(dev))).text)
            except BaseException:
                # The file may have been deleted meanwhile.
                if any(made.values()) or file.read() is not None:
                    now, inner = interface_name(state.own.index), targets.ifb(dev)
                    # An interface that was made again meanwhile is redirected to the ifb. The kernel would drop what
                    # arrives there once the ifb is deleted.
                    while other := _redirects(inner, now):
                        run(Command.of("tc qdisc del dev {other} ingress", other=other))
                    _restore(now, inner, state, made[dev], made[inner])
                    file.remove()
                raise


def _install(dev: str, commands: Sequence[Command], state: State, made: Mapping[str, set[str]]) -> None:
    """Run commands; add to `made`, by interface, the places where they make queues.

    Nothing is deleted where no queue was: if another program has set one meanwhile, the kernel refuses quell's.
    """
    before = {name: side.places for name, side in _named(dev, state)}
    for command in commands:
        verb, name, place = _subject(command)
        if verb == "del" and place not in before[name]:
            continue
        if verb == "add":
            made[name].add(place)  # before it is made, since an interruption may come right after
        try:
            run(command)
        except InputError:
            if verb == "add" and any(node.place == place for node in netlink.tree(name)):
                made[name].discard(place)
                raise InputError(f"--apply {dev}: another program has set a queue meanwhile; try again when that has "
                                 "ended") from None  # fmt: skip
            raise


def _subject(command: Command) -> tuple[str, str, str]:
    """Return what a command does with queues (`add`, `del`), the interface and the place; else empty texts."""
    match command.words:
        case ("tc", "qdisc", verb, "dev", name, *rest):
            for place in _PLACES:
                if place in rest:
                    return verb, name, place
    return "", "", ""


def undo(dev: str, *, replace: bool) -> str:
    """Restore the state before `apply`; return a description of what was done. Raises InputError."""
    _system("--undo")
    targets.interface(dev, "--undo")
    inner = targets.ifb(dev)
    with _core.StateFile.hold(dev) as file:
        text = file.read()
        if text is None:
            raise InputError(f"--undo {dev}: quell tune has installed nothing there")
        try:
            state = State.read(text)
        except ValueError:
            raise InputError(
                f"--undo {dev}: {file.path} is not a state file of this version (quell 0.2 wrote others); remove the "
                f"queues by hand: tc qdisc del dev {dev} root; tc qdisc del dev {dev} ingress; ip link del {inner}; "
                "then the file"
            ) from None
        if state.is_old:
            file.remove()
            return f"{dev} was changed before the last start of the system, which removed that; nothing is put back"
        # The interface may have a new name. If it were left redirected to the deleted ifb, it would lose all arrivals.
        now = interface_name(state.own.index)
        inner = interface_name(state.inner.index) if state.inner.index else inner
        for name in (now, inner):
            # `quell steer` would apply settings of the new queue to the restored one.
            _not_steered(f"--undo {dev}", name)
        made = [each for each in state.made if now or each[:1] == [1]]
        if made and (now or has_interface(inner)) and made != _kinds(now, inner) and not replace:
            raise InputError(f"--undo {dev}: its queues are not those that quell tune installed; to have those from "
                             "before anyway, add --replace")  # fmt: skip
        if made and not replace and (name := _has_others(now, inner, state)):
            raise InputError(f"--undo {dev}: {name} has filters that quell tune has not installed; remove them "
                             f"(`tc filter show dev {name}`), or to have them removed add --replace")  # fmt: skip
        if not state.inner.index and (other := _redirects(inner, now)):
            # The kernel drops packets that are redirected to an interface that no longer exists.
            how = "" if other == dev else f"quell tune --undo {other}, or: "
            raise InputError(f"--undo {dev}: what arrives at {other} goes to {inner}, too; first "
                             f"{how}tc qdisc del dev {other} ingress")  # fmt: skip
        with signals_wait():
            # An interrupted undo leaves a mixed state, so the next undo does not compare.
            file.write(dataclasses.replace(state, made=[]).text)
            _restore(now, inner, state)
            file.remove()
    if not now:
        return f"{dev} is not the interface any more that was changed; there is nothing to put back on it"
    return f"{now} has again what it had before"


def _system(option: str) -> None:
    if not sys.platform.startswith("linux"):
        raise InputError(f"{option} needs Linux")
    if os.geteuid() != 0:
        raise InputError(f"{option} needs root; run it with sudo, or paste the lines that are printed without it")
    if absent := [name for name in ("ip", "tc", "nsenter") if shutil.which(name) is None]:
        raise InputError(f"{option}: {absent[0]} is missing; install iproute2 and util-linux")


def _before(dev: str, file: StateFile, *, replace: bool) -> State:
    """Read the present state. Raises InputError if it must not be changed."""
    if _is_changed(file):
        raise InputError(f"--apply {dev}: quell tune has changed it before; first `quell tune --undo {dev}`")
    if not has_interface(dev):
        raise InputError(f"--apply {dev}: there is no such interface (`ip link` lists them)")
    if (name := interface_name(socket.if_nametoindex(dev))) not in ("", dev):
        # An interface would have a different state file under each of its names.
        raise InputError(f"--apply {dev}: this is another name of {name}; give --apply {name}")
    inner = targets.ifb(dev)
    if has_interface(inner) and not _is_ifb(inner):
        # Packets redirected to another kind of interface do not return.
        raise InputError(f"--apply {dev}: {inner} is not an ifb, and what arrives would be lost there; rename or "
                         f"remove it (`ip -details link show dev {inner}`)")  # fmt: skip
    try:
        state = State(Side.of(dev), Side.of(inner))
    except InputError as error:
        raise InputError(f"--apply: {error}") from None
    for name, side in _named(dev, state):
        if side.existing and not replace:
            raise InputError(f"--apply {dev}: {name} has a queue that is not quell's ({side.existing}); to have it "
                             "replaced, and kept for --undo, add --replace")  # fmt: skip
        # The steered settings would be treated as the previous ones.
        _not_steered(f"--apply {dev}", name)
    if other := _redirects(inner, dev):
        raise InputError(f"--apply {dev}: {inner} would shape what arrives at {other}, too, which goes there now; "
                         f"remove that first: tc qdisc del dev {other} ingress")  # fmt: skip
    return state


def _is_changed(file: StateFile) -> bool:
    """Return whether the state file says that the interface is changed, or is not understood."""
    text = file.read()
    try:
        return text is not None and not State.read(text).is_old
    except ValueError:
        return True


def _named(dev: str, state: State) -> list[tuple[str, Side]]:
    """Return both interfaces' names and states."""
    return [(dev, state.own), (targets.ifb(dev), state.inner)]


def _pair(dev: str) -> Command:
    return Command.of("ip link add {dev} type veth peer name quell-other", dev=dev)


def _rehearse(dev: str, commands: Sequence[Command], state: State) -> None:
    """Test in a namespace whether the kernel accepts the commands and the restoration of what they replace."""
    sides = _named(dev, state)
    # The state has indices of interfaces; in the namespace they need the same names and indices.
    others = {index: interface_name(index) for index in (state.own.redirect, state.inner.redirect, state.inner.index)}
    with TemporaryNamespace() as space:
        for index, name in others.items():
            if name and not has_interface(name):
                space.run(Command.of("ip link add name {name} index {index} type ifb", name=name, index=index))
        if not has_interface(dev):
            space.run(_pair(dev))
        for name, side in sides:
            if side.index and not _can_restore(name, side):
                raise InputError(f"--apply {dev}: {name}'s {side.existing} could not be put back as it is; remove "
                                 f"it first: tc qdisc del dev {name} root")  # fmt: skip
        space.run(*commands)


def _can_restore(dev: str, side: Side) -> bool:
    """Return whether the kernel restores the same state on the interface of this name in this namespace."""
    try:
        side.put_back(dev)
    except InputError:
        return False
    return [node.known for node in netlink.tree(dev)] == [node.known for node in side.tree]


def _restore(
    dev: str, ifb: str, state: State, changed: Collection[str] = _PLACES, changed_inner: Collection[str] = _PLACES
) -> None:
    """Restore both interfaces at the places that were changed; repeating this has no effect."""
    if has_interface(dev):
        state.own.put_back(dev, changed)
    if not state.inner.index:
        if has_interface(ifb) and not _is_ifb(ifb):
            return  # another program's interface, which has the name now
        run(Command.of("ip link del dev {ifb}", ifb=ifb, may_fail=True))
    elif has_interface(ifb):
        state.inner.put_back(ifb, changed_inner)


def _is_ifb(name: str) -> bool:
    """Return whether an interface is an ifb, on which arrivals at another one can be shaped."""
    return netlink.link_kind(name) == "ifb"


def _not_steered(option: str, name: str) -> None:
    """Raise InputError if `quell steer` has changed a queue of an interface and not restored it."""
    if has_interface(name) and _core.steered(name):
        raise InputError(f"{option}: quell steer has changed a queue of {name}; end it first, or if it was killed: "
                         "quell steer --restore")  # fmt: skip


def _redirects(ifb: str, dev: str) -> str:
    """Return another interface whose packets are redirected to the ifb; empty if there is none."""
    for _, name in socket.if_nameindex() if has_interface(ifb) else ():
        try:
            if name not in (dev, ifb) and netlink.leads_to(name, ifb):
                return name
        except InputError:  # it no longer exists
            continue
    return ""


def _has_others(dev: str, ifb: str, state: State) -> str:
    """Return which of the two interfaces has filters that were not there before; empty if neither has."""
    for name, former in ((dev, 0), (ifb, state.inner.redirect)):
        try:
            known = (0, former, socket.if_nametoindex(ifb) if has_interface(ifb) else 0)
            if has_interface(name) and (netlink.has_filters(name) or netlink.redirected(name) not in known):
                return name
        except ValueError:
            return name
    return ""


def _kinds(dev: str, ifb: str) -> list[list[Any]]:
    """List the present queues, to detect later changes."""
    return [[number, node.kind, node.handle] for number, name in enumerate((dev, ifb)) if has_interface(name)
            for node in netlink.tree(name)]  # fmt: skip
