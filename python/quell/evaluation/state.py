"""The state file of an evaluation: finished runs, so that an interrupted evaluation can go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from quell import _core, files
from quell._core import InputError

_FORMAT = 1


class Kept:
    """Finished runs, compact (measures.compact), in memory and in a file of a line each."""

    def __init__(self, path: Path | None) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Kept:
        if self._path is None:
            return self
        header = json.dumps({"quell evaluate": _FORMAT, "version": _core.__version__})
        if self._path.exists():
            self._read(self._path, header)
        try:
            new = not self._path.exists()
            self._file = files.follow(self._path).open("a", encoding="utf-8")
            if new:
                self._file.write(header + "\n")
                self._file.flush()
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}; name another file: --state") from None
        return self

    def _read(self, path: Path, header: str) -> None:
        again = "remove the file to start again, or name another: --state"
        try:
            lines = path.read_text("utf-8").split("\n")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}; {again}") from None
        except UnicodeDecodeError:
            raise InputError(f"{path}: is no file of quell evaluate; {again}") from None
        if lines[0] != header:
            what = "is of another version of quell" if lines[0].startswith('{"quell evaluate"') else "is no such file"
            raise InputError(f"{path}: finished runs of quell evaluate are kept here, but this {what}; {again}")
        if lines.pop():
            raise InputError(f"{path}: line {len(lines) + 1}: is cut off; {again}")
        for number, line in enumerate(lines[1:], 2):
            try:
                key, run = json.loads(line)
                self.runs[str(key)] = dict(run)
                _ = run["ellipse"], run["flows"], run["goodput_mbps"]
            except (ValueError, TypeError, KeyError):
                raise InputError(f"{path}: line {number}: is no finished run; {again}") from None

    def add(self, key: str, run: dict[str, Any], *, to_file: bool) -> None:
        """Keep a run."""
        self.runs[key] = run
        if to_file and self._file is not None:
            self._file.write(json.dumps([key, run], separators=(",", ":")) + "\n")
            self._file.flush()

    def finished(self) -> None:
        """Remove the file: all is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
