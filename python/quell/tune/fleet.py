"""`quell tune --fleet`: reads a table of lines and writes a table with settings for each row."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass

from quell import _core
from quell._core import InputError
from quell.common.text import counted

COLUMNS = ("rate", "rtt", "framing")
"""Columns that are read; all other columns are copied."""
ADDED = (
    "target", "down_queue", "down_rate", "up_queue", "up_rate", "offered", "grade_now", "grade", "objective_default",
    "objective",
)  # fmt: skip
"""Columns that are added."""


@dataclass(frozen=True)
class Row:
    """A subscriber's line."""

    place: str
    """Its place in the file, for errors."""
    given: dict[str, str]
    rate: str
    rtt: str | None
    framing: str | None


def read(path: str) -> tuple[list[str], list[Row]]:
    """Read a CSV file with a header; return its columns and rows. Raises InputError."""
    text = _core.read_file(path, "scenario").decode("utf-8-sig", errors="replace")
    reader = csv.DictReader(io.StringIO(text))
    try:
        return _rows(path, reader)
    except csv.Error as error:
        raise InputError(f"--fleet {path}:{reader.line_num + 1}: not CSV: {error}") from None


def _rows(path: str, reader: csv.DictReader[str]) -> tuple[list[str], list[Row]]:
    columns = list(reader.fieldnames or ())
    if "rate" not in columns:
        raise InputError(
            f"--fleet {path}:1: no column `rate`; the first line names the columns: rate (50mbit/10mbit), rtt, framing"
        )
    if taken := [name for name in columns if name in ADDED]:
        raise InputError(f"--fleet {path}:1: the column `{taken[0]}` is one that is written; rename it")
    rows = []
    for given in reader:
        place = f"--fleet {path}:{reader.line_num}"
        if None in given or None in given.values():
            raise InputError(f"{place}: does not have {counted(len(columns), 'column')}, as the first line has")
        rtt, framing = (given.get(name, "").strip() or None for name in ("rtt", "framing"))
        rows.append(Row(place, given, given["rate"].strip(), rtt, framing))
    if not rows:
        raise InputError(f"--fleet {path}: has no rows")
    return columns, rows


def line(columns: list[str], row: Mapping[str, object] | None = None) -> str:
    """Return a row as a line of CSV, or the header if there is no row."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [*columns, *ADDED], lineterminator="\n")
    if row is None:
        writer.writeheader()
    else:
        writer.writerow(row)
    return buffer.getvalue()
