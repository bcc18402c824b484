"""Writing files atomically."""

from __future__ import annotations

import errno
import os
import signal
import stat
import tempfile
import threading
import zlib
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from quell._core import InputError


def check_target(option: str, path: Path | None) -> None:
    """Check before a long simulation that its results can be written. Raises InputError."""
    if path is None or str(path) == "-":
        return
    try:
        target = follow(path)
        if target.is_dir():
            raise InputError(f"{option} {path}: is a folder; give a file's name")
        if not target.parent.is_dir():
            folder = target.parent if path.is_symlink() else path.parent
            raise InputError(f"{option} {path}: the folder {folder} does not exist; create it or name another")
        # Permissions are not sufficient: no user can create files in /proc, and root can write where others cannot.
        if not path.exists() or path.is_file():
            _replaced(target)
            _try_to_create(target)
        elif not os.access(path, os.W_OK):
            raise InputError(f"{option} {path}: is not writable")
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written: {error.strerror}; name another file") from None


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` for a file beside `path`, then rename it: readers see the old file or the new one, never a part.

    A device or a pipe is written directly, since a file must not replace it. A link's target is replaced, not the link.
    A new file has the permissions of the file that it replaces, if that is this user's; a read-only file is not
    replaced. If root replaces a user's file in a folder of that user, the file keeps its owner.
    """
    try:
        # This check comes first: a file that another user creates afterwards is refused or replaced.
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
    """Return whether the path is a device, pipe or socket."""
    try:
        return path.exists() and not path.is_file()
    except PermissionError:
        return False  # a link that fs.protected_symlinks forbids: `follow` reports its owner


@contextmanager
def _opened_pipe(path: Path) -> Iterator[None]:
    """Wait here until a pipe has a reader, because Ctrl-C would not end the wait if Rust opened the pipe."""
    if not path.is_fifo():
        yield
        return
    # The signal handler of polars restarts system calls, including this wait.
    signal.siginterrupt(signal.SIGINT, True)
    held = os.open(path, os.O_WRONLY)
    try:
        yield
    finally:
        os.close(held)


_LINKS = 40
"""Largest number of links followed, as in the kernel."""


def follow(path: Path) -> Path:
    """Follow the links in a path. Raises OSError for a link that another user may have created.

    In a folder that all users can write to, links, pipes and sockets must belong to this user or to the folder's owner,
    as Linux requires of links under fs.protected_symlinks (proc_sys_fs(5)). `Path.resolve` reads links and would evade
    that.
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
    # A plain file is replaced, not written to.
    if not stat.S_ISREG(found.st_mode):
        refuse_foreign(path, found)


def refuse_foreign(path: Path, found: os.stat_result) -> None:
    """Refuse another user's file in a folder that all users can write to. Raises OSError."""
    if os.name == "nt":
        return  # On Windows modes have no meaning, and links need a privilege.
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), folder.st_uid):
        raise OSError(errno.EACCES, f"{path} belongs to another user, in a folder where all may write")


def check_own(path: Path) -> None:
    """Check that a file to continue from is not another user's in a folder that all users can write to.

    Raises InputError.
    """
    try:
        refuse_foreign(path, path.lstat())
    except OSError as error:
        raise InputError(f"{path}: cannot be used: {error.strerror}") from None


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """Hold a folder open; yield a path that leads to it even if its owner replaces it by a link.

    Otherwise a user could make root create a file in a folder of root and give it to that user. Without /proc the path
    is unchanged.
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
    """Hold this user's folder open for files with predictable names; yield a path to it that cannot be redirected.

    Raises OSError if it is another user's, or others may write to it, because their links in it would be followed.
    """
    with _folder(path) as folder:
        if os.name != "nt":  # On Windows modes have no meaning.
            found = folder.stat()
            ours = found.st_uid == os.geteuid()
            group = stat.S_IWGRP if found.st_gid != os.getegid() else 0
            if not ours or found.st_mode & (stat.S_IWOTH | group):
                raise OSError(errno.EACCES, f"{path} belongs to another user, or others may write to it")
        yield folder


def _replaced(path: Path) -> os.stat_result | None:
    """Return the status of the file to be replaced, if the new file takes its owner and permissions.

    Raises OSError if it is read-only.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None  # created after the check of `follow`
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        folder = path.parent.stat()
        # Elsewhere another user may have created it, and the new file would be open to all users.
        if os.geteuid() != 0 or folder.st_uid != found.st_uid or folder.st_mode & stat.S_IWOTH:
            return None
    if not found.st_mode & 0o222:
        raise OSError(errno.EACCES, "it is read-only")  # A rename would replace it nevertheless.
    return found


def _write_and_rename(path: Path, shown: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file and rename it to `path`; messages call it `shown`."""
    before = _replaced(path)
    with _temporary(path) as (handle, part):
        try:
            # In a folder that all can write to, another user may replace the part by a link; the descriptor stays.
            opened = Path(f"/proc/self/fd/{handle}")
            at = opened if opened.exists() else part
            try:
                write(at)
            except InputError as error:  # the error names the part
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
    """Make a part like `_part` and remove it at the end, also at SIGTERM and SIGHUP, which then end the process."""
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
    """Make a folder for temporary files and remove it at the end, also at SIGTERM and SIGHUP.

    Its path has no blanks if possible, since queue words may name files in it. Raises InputError.
    """
    made: tempfile.TemporaryDirectory[str] | None = None

    def remove() -> bool:
        if made is not None:
            made.cleanup()
        return made is not None

    with _removed_at_signals(remove) as check:
        try:
            try:
                made = tempfile.TemporaryDirectory(prefix=prefix, dir=_without_blanks())
            except OSError as error:
                raise InputError(f"temporary files: {error.strerror}; name a folder with room in TMPDIR") from None
            check()
            yield Path(made.name)
        finally:
            remove()


def _without_blanks() -> str:
    """Return the first usual folder for temporary files whose path has no blanks; the first one if all have some."""
    places = [tempfile.gettempdir(), "/tmp", str(Path.cwd())]
    good = (place for place in places if place.split() == [place] and os.access(place, os.W_OK))
    return next(good, places[0])


def signals_wait() -> AbstractContextManager[object]:
    """Delay SIGTERM and SIGHUP until the end of a `with` block whose steps must not be done in part."""
    return _removed_at_signals(lambda: False, (signal.SIG_DFL, _interrupt))


@contextmanager
def _removed_at_signals(
    remove: Callable[[], bool], instead_of: Container[Any] = (signal.SIG_DFL,)
) -> Iterator[Callable[[], None]]:
    """Call `remove` at SIGTERM and SIGHUP before the process ends. `remove` returns False while its file is being made.

    A signal during that time ends the process when the yielded function is called. Handlers that are not in
    `instead_of` stay.
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

    before = [(number, handler) for number, handler in _end_signals() if handler in instead_of]
    for number, _ in before:
        signal.signal(number, end)
    try:
        yield check
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        if asked:
            os.kill(os.getpid(), asked[0])


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP act as Ctrl-C in a `with` block, unless the caller ignores them."""
    ours = [number for number, handler in _end_signals() if handler == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(_number: int, _frame: object) -> None:
    signal.raise_signal(signal.SIGINT)


def _end_signals() -> list[tuple[int, Any]]:
    """List the signals by which systems end a process, with their handlers; none if this thread may not set them."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [(number, signal.getsignal(number)) for number in numbers if _is_main()]


def _is_main() -> bool:
    """Whether this is the thread that may set handlers of signals."""
    return threading.current_thread() is threading.main_thread()


def _try_to_create(path: Path) -> None:
    """Create a file in the folder of `path`, if possible without a name, so that a kill leaves nothing."""
    try:
        os.close(os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except (AttributeError, OSError) as error:
        # Errors of a file system or kernel without such files (open(2)); other systems do not have O_TMPFILE.
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        handle, part = _part(path)
        os.close(handle)
        part.unlink()


def _part(path: Path) -> tuple[int, Path]:
    """Make an empty file in the folder of `path`; return its descriptor and path."""
    # A name may have 255 bytes, so only a part of the name of `path` is used.
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    return handle, Path(name)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically."""
    write_whole(path, lambda part: part.write_bytes(data))


def checksum(text: str) -> str:
    """Return the CRC-32 of a text in UTF-8, in hexadecimal."""
    return f"{zlib.crc32(text.encode()):08x}"


_LOCKED_BYTE = 1 << 30
"""Offset of the locked byte on Windows, where other processes cannot read locked bytes. It is beyond the file's end."""


def lock(descriptor: int) -> None:
    """Lock a file until it is closed. Raises BlockingIOError if another process has locked it."""
    try:
        fcntl: Any = import_module("fcntl")
    except ModuleNotFoundError:
        msvcrt: Any = import_module("msvcrt")
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
