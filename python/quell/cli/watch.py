"""`quell watch`: the kernel's own queues, sampled over rtnetlink (docs/how-to/kernel.md)."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Annotated, Any

from quell import _core
from quell._core import InputError
from quell.cli import complete, table
from quell.common import files
from quell.common.text import one_line

EXAMPLES = table.examples("watch")
_SUFFIXES = (".csv", ".jsonl", ".parquet")


@table.options("watch")
def watch(
    dev: Annotated[list[str] | None, table.argument("watch", autocompletion=complete.interfaces)] = None, **options: Any
) -> int:
    """Sample the kernel's own queues: backlog, drops, rates, sojourn times. Changes nothing."""
    if not sys.platform.startswith("linux"):
        raise InputError("quell watch needs Linux: rtnetlink")
    to = Path(options["out"]) if options["out"] is not None else None
    if to is None or to.suffix != ".parquet":
        if to is not None and to.suffix not in _SUFFIXES:
            raise InputError(f"--out {to}: the name must end in {', '.join(_SUFFIXES)}")
        _core.watch(dev or [], **options)
        return 0
    keep = options.pop("keep")
    if keep is not None and not keep.isdecimal():
        raise InputError(f'--keep: "{keep}" is not a whole number')
    files.check_target("--out", to)
    if keep is not None and options["rotate"] is None:
        raise InputError("--keep: needs --rotate")
    lines = to.with_suffix(".jsonl")
    if os.path.lexists(lines):
        raise InputError(f"--out {to}: {lines} is in the way: samples are collected there; remove it or name another")
    converter = _Converter(to, None if keep is None else int(keep))
    try:
        _core.watch(dev or [], converter.put, **{**options, "out": lines})
    finally:
        converter.end()
    return 0


class _Converter:
    """Converts finished files of JSON lines to Parquet during the sampling."""

    def __init__(self, target: Path, keep: int | None) -> None:
        self._target, self._keep = target, keep
        self._done: deque[Path] = deque()
        self._number = 0
        self._error: Exception | None = None
        self._queue: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def put(self, lines: Path) -> None:
        """Queue a finished file."""
        self._queue.put(lines)

    def end(self) -> None:
        """Wait until all files are converted. Raises InputError if one could not be; its JSON lines are kept."""
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        import polars as pl

        while (lines := self._queue.get()) is not None:
            try:
                self._convert(lines)
            except InputError as error:
                self._error = error
            except (pl.exceptions.PolarsError, OSError) as error:
                why = one_line(str(error).partition("\n")[0])
                self._error = InputError(f"{self._target}: cannot be written: {why}; the samples are in {lines}")

    def _convert(self, lines: Path) -> None:
        from quell.views.samples import to_parquet

        last = lines == self._target.with_suffix(".jsonl")
        to_parquet(lines, self._target if last else self._free())
        lines.unlink()

    def _free(self) -> Path:
        self._number += 1
        while os.path.lexists(piece := self._target.with_suffix(f".{self._number}.parquet")):
            self._number += 1
        self._done.append(piece)
        if self._keep is not None and len(self._done) > self._keep:
            self._done.popleft().unlink(missing_ok=True)
        return piece


def is_watched(path: Path) -> bool:
    """Return whether a file may contain samples, by its name."""
    return path.suffix in _SUFFIXES
