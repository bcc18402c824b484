"""The state file of an evaluation: finished runs, so that an interrupted evaluation can be continued."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from quell import _core
from quell._core import InputError
from quell.common import files
from quell.evaluation.measures import is_compact

_FORMAT = 2
"""Version of the format; lines of format 1 had no checksum."""
_MAX_LINE = 10_000_000
"""Largest number of characters in a line."""
_REMEDY = "remove the file to start again, or name another: --state"


class RunStore:
    """Finished runs, compact (measures.compact), in memory and in a file with a line and checksum for each."""

    def __init__(self, path: Path | None) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self._read_from_file: set[str] = set()
        self._written: set[str] = set()
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> RunStore:
        if self._path is not None:
            self._open(self._path)
        return self

    def _open(self, path: Path) -> None:
        """Open and lock the file, and read it. Raises InputError."""
        header = json.dumps({"quell evaluate": _FORMAT, "version": _core.__version__}) + "\n"
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is not a plain file; name another: --state")
        try:
            while True:
                target = files.follow(path)
                self._file = open(target, "a+", encoding="utf-8", opener=_no_link)  # noqa: SIM115 (__exit__ closes it)
                files.refuse_foreign(path, os.fstat(self._file.fileno()))
                files.lock(self._file.fileno())
                # Another evaluation may have removed the file between opening and locking.
                if _is_at(target, self._file):
                    break
                self._file.close()
            self._file.seek(0)
            self._read(path, self._file, header)
            self._file.flush()
        except BlockingIOError:
            raise InputError(f"{path}: is in use by another evaluation; name another file: --state") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be used: {error.strerror}; name another file: --state") from None

    def _read(self, path: Path, file: TextIO, header: str) -> None:
        """Read the file, or write the header of a new one."""
        self._read_from_file = set()
        try:
            first = file.readline(_MAX_LINE)
            if not first:
                file.write(header)
                return
            if first != header:
                other = first.startswith('{"quell evaluate"')
                what = "is of another version of quell" if other else "is another file"
                raise InputError(f"{path}: finished runs of quell evaluate are kept here, but this {what}; {_REMEDY}")
            number, whole = 1, len(first.encode())
            while line := file.readline(_MAX_LINE):
                number += 1
                if not line.endswith("\n") and len(line) < _MAX_LINE:
                    os.ftruncate(file.fileno(), whole)  # incomplete after a power failure: that run is repeated
                    return
                whole += len(line.encode())
                checksum, _, text = line.partition(" ")
                if checksum != files.checksum(text):
                    raise ValueError(checksum)
                key, run = json.loads(text)
                if not isinstance(run, dict) or not is_compact(run):
                    raise ValueError(text)
                self.runs[str(key)] = run
                self._read_from_file.add(str(key))
        except InputError:  # also a ValueError
            raise
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not a file of quell evaluate; {_REMEDY}") from None
        except (ValueError, TypeError, RecursionError):
            raise InputError(f"{path}: line {number}: is not a finished run; {_REMEDY}") from None

    def add(self, key: str, run: dict[str, Any], *, to_file: bool) -> None:
        """Keep a run. If there is no space, raises InputError and leaves the file unchanged.

        A file that was deleted meanwhile is made again, with all finished runs.
        """
        self.runs[key] = run
        if not to_file or self._path is None or self._file is None:
            return
        self._written.add(key)
        keys = {key}
        if not _is_at(files.follow(self._path), self._file):
            self._file.close()
            ours = self._written | self._read_from_file
            self._open(self._path)
            keys = ours - self._read_from_file
        self._append(self._path, self._file, keys)

    def _append(self, path: Path, file: TextIO, keys: Iterable[str]) -> None:
        """Write runs at the end of the file."""
        texts = [json.dumps([key, self.runs[key]], separators=(",", ":")) + "\n" for key in keys]
        lines = "".join(f"{files.checksum(text)} {text}" for text in texts)
        whole = os.fstat(file.fileno()).st_size
        try:
            _write(file.fileno(), lines.encode())
        except OSError as error:
            os.ftruncate(file.fileno(), whole)
            raise InputError(
                f"{path}: cannot be written: {error.strerror}; with more room the same command continues, "
                "or name another file: --state"
            ) from None

    @contextmanager
    def judged(self, keys: Container[str]) -> Iterator[None]:
        """Context for judging and reporting: attribute errors to the file if some runs were read from it.

        Checksums detect damage, and types and ranges are checked, but not whether runs fit their scenarios.
        """
        try:
            yield
        except InputError:  # also a ValueError
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            if not any(key in keys for key in self._read_from_file):
                raise
            raise InputError(f"{self._path}: has runs that are not of these scenarios; {_REMEDY}") from error

    def finished(self, keys: Container[str]) -> None:
        """Remove the file when all is done, unless it has runs of another, interrupted evaluation."""
        if self._path is not None and self._file is not None and all(key in keys for key in self.runs):
            target = files.follow(self._path)
            # Another file may have taken its place.
            is_there = _is_at(target, self._file)
            if os.name == "nt":
                self.__exit__()  # Windows does not delete an open file.
            if is_there:
                # An evaluation that starts now must not lock a file that is about to be removed.
                target.unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _is_at(target: Path, file: TextIO) -> bool:
    """Return whether an open file is the one at this path."""
    return os.path.lexists(target) and os.path.samestat(os.fstat(file.fileno()), os.lstat(target))


def _no_link(path: str, flags: int) -> int:
    """Open a file whose links are already resolved: a link that exists now is another user's."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
