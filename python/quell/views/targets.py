"""Where results go: files, standard output, the progress bar."""

from __future__ import annotations

import codecs
import json as _json
import os
import shlex
import sys
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

from rich.console import Console
from rich.segment import Segment

from quell._core import InputError
from quell.common import files
from quell.experiments import experiment
from quell.experiments.experiment import Outcome
from quell.inputs.flent import STEP_S, SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import ConsoleOptions, RenderableType


class Screen(Console):
    """A console that shows control characters of texts (names of scenarios, flows, devices) instead of obeying them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render; called for each part of what is printed."""
        for part in super().render(renderable, options):
            if part.control or part.text.isprintable() or part.text == "\n":
                yield part
            else:
                text = "".join(c if c == "\n" or category(c)[0] != "C" else one_line(c) for c in part.text)
                yield Segment(text, part.style)


err = Screen(stderr=True, highlight=False, emoji=False)
# Piped output has no width of its own; the widest table needs 100 columns.
out = Screen(highlight=False, emoji=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100)


# One character each, so that tables keep their columns.
_PLAIN = str.maketrans("±◆▶▼▲·•→–−…’²αµ", "~*>v^.*>--.'2au")


def plain_characters(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream's encoding lacks: an error handler of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def write_anywhere() -> None:
    """Let standard output and standard error take every text, whatever their encoding: ASCII under LC_ALL=C."""
    codecs.register_error("quell", plain_characters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="quell")


def one_line(text: str) -> str:
    """Escape characters that would break the line or control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Targets:
    """Where results go; refuses at once what could not be written in the end."""

    def __init__(
        self,
        json: str | None = None,
        html: Path | None = None,
        parquet: Path | None = None,
        csv: Path | None = None,
        flent: Path | None = None,
    ) -> None:
        self.json, self.html, self.parquet, self.csv, self.flent = json, html, parquet, csv, flent
        if flent is not None and not str(flent).endswith(SUFFIX):
            raise InputError(f"--flent {flent}: Flent opens files whose names end in {SUFFIX}; name it so")
        files.check_target("--json", None if json is None else Path(json))
        files.check_target("--html", html)
        files.check_target("--parquet", parquet)
        files.check_target("--csv", csv)
        files.check_target("--flent", flent)

    def bins(self, series: float | None) -> float | None:
        """Return the width of the bins to keep: what was asked for, or Flent's where a file for Flent is."""
        return STEP_S if series is None and self.flent is not None else series

    @property
    def quiet(self) -> bool:
        """Standard output belongs to JSON."""
        return self.json == "-"

    def write_json(self, plain: Any, *, indent: int | None = 1) -> None:
        """Write JSON to where `--json` says, whole or not at all; nothing without it."""
        if self.json is None:
            return
        # JSON has an ASCII form for what a stream cannot take; a file is UTF-8.
        ascii_only = self.quiet and not (sys.stdout.encoding or "").lower().startswith("utf")
        text = _json.dumps(plain, ensure_ascii=ascii_only, indent=indent, allow_nan=False) + "\n"
        if self.quiet:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            files.write_text(Path(self.json), text)

    def write(
        self, outcome: Outcome, *, single: bool = False, series: bool = False, json: Any = None, flent: Any = None
    ) -> None:
        """Write the requested files; `json` and `flent` replace the records in these. Writes nothing without a run."""
        if not outcome.by_job:
            return
        records = outcome.records if series else experiment.without_series(outcome.records)
        if self.json is not None:
            what = json if json is not None else records[0] if single and records else records
            self.write_json(what, indent=None)
        if self.parquet is not None or self.csv is not None:
            from quell.results import frame

            if self.parquet is not None:
                frame.write_parquet(self.parquet, records)
            if self.csv is not None:
                frame.write_csv(self.csv, records)
        if self.flent is not None:
            from quell.inputs import flent as flent_file

            flent_file.write(self.flent, outcome.records if flent is None else flent)
        if self.html is not None:
            from quell.views import report

            files.write_text(self.html, report.page(outcome, command()))
            err.print(f"Report: {self.html}", style="dim")


def command() -> str:
    """Return the command as a user types it again."""
    return shlex.join(["quell", *sys.argv[1:]])


@contextmanager
def progress(total: int) -> Iterator[Callable[[Outcome], object]]:
    """Show a bar over runs on standard error, where that is a terminal."""
    with bar("Simulating", total, "runs") as update:

        def on_record(outcome: Outcome) -> None:
            speed = outcome.packets / max(outcome.wall_s, 1e-9)
            update(len(outcome.by_job), f"{si(speed)} packets/s")

        yield on_record


@contextmanager
def bar(what: str, total: int, unit: str) -> Iterator[Callable[[int, str], object]]:
    """Show a progress bar on standard error if that is a terminal; call the result with the number done and a note."""
    if not err.is_terminal:
        yield lambda done, note: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn(unit),
        TextColumn("[dim]{task.fields[note]}"), TimeElapsedColumn(), TextColumn("[dim]left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as shown:
        task = shown.add_task(what, total=total, note="")
        yield lambda done, note: shown.update(task, completed=done, note=note)


def si(value: float) -> str:
    """Write a number with three digits and the unit's prefix."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f}"
