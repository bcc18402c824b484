"""Writing files whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quell._core import InputError


def check_target(option: str, path: Path | None) -> None:
    """Refuse before hours are simulated what could not be written after them. Raises InputError."""
    if path is None or str(path) == "-":
        return
    try:
        target = follow(path)
        if target.is_dir():
            raise InputError(f"{option} {path}: is a folder; give a file's name")
        if not target.parent.is_dir():
            folder = target.parent if path.is_symlink() else path.parent
            raise InputError(f"{option} {path}: the folder {folder} does not exist; create it or name another")
        # Permissions are no test: no user can create files in /proc, and root can write where others cannot.
        if not path.exists() or path.is_file():
            _replaced(target)
            _try_to_create(target)
        elif not os.access(path, os.W_OK):
            raise InputError(f"{option} {path}: is not writable")
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written: {error.strerror}; name another file") from None


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then rename it: readers see the old file or the new one, never a part.

    A device or a pipe is written as it is: a file must not take its place. A link's target is replaced, not the link.
    A new file has the permissions of quell's file that it replaces; a read-only one is not replaced. A user's file in a
    folder of that user stays the user's if root replaces it.
    """
    try:
        # Looked at first: what a stranger plants afterwards is refused, or replaced.
        special = _is_special(path)
        target = follow(path)
        if special:
            with _opened_pipe(path):
                write(path)
        else:
            with _folder(target.parent) as folder:
                _write_and_rename(folder / target.name, target, write)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def _is_special(path: Path) -> bool:
    """Say whether there is a device, pipe or socket."""
    try:
        return path.exists() and not path.is_file()
    except PermissionError:
        return False  # a link that fs.protected_symlinks forbids: `follow` says whose it is


@contextmanager
def _opened_pipe(path: Path) -> Iterator[None]:
    """Wait until a pipe has a reader, here, where Ctrl-C ends the wait: it does not where Rust opens the pipe."""
    if not path.is_fifo():
        yield
        return
    # The handler that polars installs has system calls repeated, this wait as well.
    signal.siginterrupt(signal.SIGINT, True)
    held = os.open(path, os.O_WRONLY)
    try:
        yield
    finally:
        os.close(held)


_LINKS = 40
"""As many the kernel follows."""


def follow(path: Path) -> Path:
    """Follow the links in a path, but none that a stranger may have laid. Raises OSError for such a one.

    In a folder where everybody may write, links, pipes and sockets must belong to us or to the folder's owner, as
    Linux demands of links under fs.protected_symlinks (proc_sys_fs(5)); `Path.resolve` reads links and evades that.
    """
    path = path.absolute()
    at, left, links = Path(path.anchor), list(path.parts[1:]), 0
    while left:
        name = left.pop(0)
        if name == "..":
            at = at.parent
            continue
        entry = at / name
        try:
            found = entry.lstat()
        except FileNotFoundError:
            at = entry
            continue
        if not stat.S_ISDIR(found.st_mode):
            refuse_planted(entry)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            to = entry.readlink()
            at = Path(to.anchor) if to.is_absolute() else at
            left = [part for part in to.parts if part != to.anchor] + left
            continue
        at = entry
    return at


def refuse_planted(path: Path) -> None:
    """Refuse another user's link, pipe, socket or folder in a folder that all users can write to. Raises OSError."""
    found = path.lstat()
    # A plain file is replaced, not written.
    if not stat.S_ISREG(found.st_mode):
        refuse_foreign(path, found)


def refuse_foreign(path: Path, found: os.stat_result) -> None:
    """Refuse another user's file in a folder that all users can write to. Raises OSError."""
    if os.name == "nt":
        return  # Modes mean nothing there, and links need a privilege.
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), folder.st_uid):
        raise OSError(errno.EACCES, f"{path} belongs to another user, in a folder where all may write")


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """Hold a folder open and give a path that leads to this one even if its owner moves it and puts a link there.

    Otherwise a user could have root's new file made, and given to that user, in a folder of root. Without /proc it
    is the path as it was given.
    """
    if not hasattr(os, "O_PATH"):
        yield path
        return
    held = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        opened = Path(f"/proc/self/fd/{held}")
        yield opened if opened.exists() else path
    finally:
        os.close(held)


@contextmanager
def own_folder(path: Path) -> Iterator[Path]:
    """Hold this user's folder open for files whose names can be guessed; give a path to it that cannot be redirected.

    Raises OSError if it is another user's, or others may write to it: links that they laid in it would be followed.
    """
    with _folder(path) as folder:
        if os.name != "nt":  # Modes mean nothing there.
            found = folder.stat()
            ours = found.st_uid == os.geteuid()
            group = stat.S_IWGRP if found.st_gid != os.getegid() else 0
            if not ours or found.st_mode & (stat.S_IWOTH | group):
                raise OSError(errno.EACCES, f"{path} belongs to another user, or others may write to it")
        yield folder


def _replaced(path: Path) -> os.stat_result | None:
    """Return the status of the file that is to be replaced, if the new one is to have its owner and permissions.

    Raises OSError if it is read-only.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None  # put there after `follow` looked
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        folder = path.parent.stat()
        # Elsewhere a stranger may have planted it: the new file would be open to all.
        if os.geteuid() != 0 or folder.st_uid != found.st_uid or folder.st_mode & stat.S_IWOTH:
            return None
    if not found.st_mode & 0o222:
        raise OSError(errno.EACCES, "it is read-only")  # A rename would replace it all the same.
    return found


def _write_and_rename(path: Path, shown: Path, write: Callable[[Path], object]) -> None:
    """Write a part and give it the name `path`; messages call it `shown`."""
    before = _replaced(path)
    with _temporary(path) as (handle, part):
        try:
            # Where all may write, a stranger may put a link in the place of the part, but not of its descriptor.
            opened = Path(f"/proc/self/fd/{handle}")
            at = opened if opened.exists() else part
            try:
                write(at)
            except InputError as error:  # names the part
                raise InputError(str(error).replace(str(at), str(shown))) from None
            if before is None:
                umask = os.umask(0)
                os.umask(umask)
                mode = 0o666 & ~umask
            else:
                mode = before.st_mode & 0o777
                if hasattr(os, "geteuid") and before.st_uid != os.geteuid():
                    os.chown(handle, before.st_uid, before.st_gid)
            os.chmod(handle if os.chmod in os.supports_fd else part, mode)  # noqa: PTH101 (a descriptor)
        finally:
            os.close(handle)  # Windows renames no open file
        part.replace(path)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[int, Path]]:
    """Make a part as `_part`; it is removed in the end, also at SIGTERM and SIGHUP, which end the process as ever."""
    part: Path | None = None

    def remove() -> bool:
        if part is not None:
            part.unlink(missing_ok=True)
        return part is not None

    with _removed_at_signals(remove) as check:
        try:
            handle, part = _part(path)
            check()
            yield handle, part
        finally:
            remove()


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a folder for temporary files; it is removed in the end, also at SIGTERM and SIGHUP."""
    made: tempfile.TemporaryDirectory[str] | None = None

    def remove() -> bool:
        if made is not None:
            made.cleanup()
        return made is not None

    with _removed_at_signals(remove) as check:
        try:
            made = tempfile.TemporaryDirectory(prefix=prefix)
            check()
            yield Path(made.name)
        finally:
            remove()


@contextmanager
def _removed_at_signals(remove: Callable[[], bool]) -> Iterator[Callable[[], None]]:
    """At SIGTERM and SIGHUP call `remove` before the process ends. It returns False while its file is being made.

    A signal that came meanwhile ends the process when what this yields is called.
    """
    asked: list[int] = []

    def end(number: int, _frame: object = None) -> None:
        asked.append(number)
        if remove():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def check() -> None:
        if asked:
            end(asked[0])

    # A handler other than the default one is a program's own.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if _is_main() and signal.getsignal(number) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield check
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if asked:
            os.kill(os.getpid(), asked[0])


def _is_main() -> bool:
    """Whether this is the thread that may set handlers of signals."""
    return threading.current_thread() is threading.main_thread()


def _try_to_create(path: Path) -> None:
    """Create a file in the folder of `path`, without a name if the system can: a kill then leaves nothing."""
    try:
        os.close(os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except (AttributeError, OSError) as error:
        # Errors of a file system or a kernel without such files (open(2)); other systems lack O_TMPFILE.
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        handle, part = _part(path)
        os.close(handle)
        part.unlink()


def _part(path: Path) -> tuple[int, Path]:
    """Make an empty file beside `path`, in the folder that holds it; return its descriptor and path."""
    # A name may have 255 bytes, the whole of `path` as well.
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    return handle, Path(name)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text whole or not at all."""
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes whole or not at all."""
    write_whole(path, lambda part: part.write_bytes(data))
