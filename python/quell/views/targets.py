"""Where results go: files and standard output."""

from __future__ import annotations

import json as _json
import os
import shlex
import sys
from contextlib import contextmanager
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quell._core import InputError
from quell.common import files
from quell.common.console import bar, err
from quell.common.text import si
from quell.experiments import experiment
from quell.experiments.experiment import Outcome
from quell.inputs.flent import STEP_S, SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


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
        """Write the requested files; `json` and `flent` replace the records in these. Writes nothing without a run.

        If one cannot be written, the others are, and the first error is raised.

        What an interrupted command has finished does not replace earlier files.
        """
        if not outcome.by_job:
            return
        if outcome.interrupted:
            self.keep_earlier()
        records = outcome.records if series else experiment.without_series(outcome.records)
        what = json if json is not None else records[0] if single and records else records
        each = [
            partial(self.write_json, what, indent=None),
            partial(self._write_frames, records),
            partial(self.write_flent, outcome.records if flent is None else flent),
            partial(self._write_report, outcome),
        ]
        write_each(each)

    def write_swept(self, found: Sequence[tuple[dict[str, Any], dict[str, Any]]], *, interrupted: bool) -> None:
        """Write the runs of a sweep, each with its point of the grid, in the same way."""
        if interrupted:
            self.keep_earlier()
        plain = [{"over": point, **record} for point, record in found]
        each = [partial(self.write_json, plain, indent=None)]
        if self.parquet is not None or self.csv is not None:
            from quell.results import frame

            each += [
                partial(frame.write_swept, self.parquet, None, found),
                partial(frame.write_swept, None, self.csv, found),
            ]
        write_each(each)

    def _write_frames(self, records: Sequence[dict[str, Any]]) -> None:
        if self.parquet is None and self.csv is None:
            return
        from quell.results import frame

        if self.parquet is not None:
            frame.write_parquet(self.parquet, records)
        if self.csv is not None:
            frame.write_csv(self.csv, records)

    def write_flent(self, records: Sequence[dict[str, Any]]) -> None:
        """Write data files for Flent to where `--flent` says; nothing without it."""
        if self.flent is not None and records:
            from quell.inputs import flent as flent_file

            flent_file.write(self.flent, records)

    def write_with_page(self, plain: Any, page: Callable[[], str]) -> None:
        """Write JSON and a page of a command's own, in the same way; `page` is called where `--html` is given."""
        write_each([partial(self.write_json, plain), partial(self.write_page, page)])

    def write_page(self, page: Callable[[], str], what: str = "Page") -> None:
        """Write a page to where `--html` says; nothing without it."""
        if self.html is not None:
            files.write_text(self.html, page())
            err.print(f"{what}: {self.html}", style="dim", soft_wrap=True)

    def _write_report(self, outcome: Outcome) -> None:
        if self.html is not None:
            from quell.views import report

            files.write_text(self.html, report.page(outcome, command()))
            err.print(f"Report: {self.html}", style="dim")

    def keep_earlier(self) -> None:
        """Have what an interrupted command has finished written beside files that are there."""
        for option in ("json", "html", "parquet", "csv", "flent"):
            path = getattr(self, option)
            if path is None or not (Path(path).is_file() or _has_runs(Path(path))):
                continue
            earlier = Path(path)
            suffix = SUFFIX if earlier.name.endswith(SUFFIX) else earlier.suffix
            stem = f"{earlier.name.removesuffix(suffix)}.interrupted"
            other, number = earlier.with_name(f"{stem}{suffix}"), 1
            while os.path.lexists(other) or _has_runs(other):
                number += 1
                other = earlier.with_name(f"{stem}.{number}{suffix}")
            setattr(self, option, str(other) if option == "json" else other)
            err.print(f"quell: {earlier} is from before and stays: the finished runs go to {other}", soft_wrap=True)


def _has_runs(path: Path) -> bool:
    """Say whether there are data files for Flent of several runs, whose names have queue and seed before the suffix."""
    stem = path.name.removesuffix(SUFFIX)
    return stem != path.name and any(path.parent.glob(f"{escape(stem)}.*{SUFFIX}"))


def write_each(writes: Iterable[Callable[[], object]]) -> None:
    """Call all; if some fail, raise the first error when all have been called."""
    failures: list[InputError | OSError] = []
    for write in writes:
        try:
            write()
        except (InputError, OSError) as error:
            failures.append(error)
    if failures:
        raise failures[0]


def command() -> str:
    """Return the command as a user types it again."""
    typed = shlex.join(["quell", *sys.argv[1:]])
    return typed.encode(errors="replace").decode()  # a file's name may be no text


@contextmanager
def progress(total: int) -> Iterator[Callable[[Outcome], object]]:
    """Show a bar over runs on standard error, where that is a terminal."""
    with bar("Simulating", total, "runs") as update:

        def on_record(outcome: Outcome) -> None:
            speed = outcome.packets / max(outcome.wall_s, 1e-9)
            update(len(outcome.by_job), f"{si(speed)} packets/s")

        yield on_record
