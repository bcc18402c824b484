"""Destinations of results: files and standard output."""

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
    """Destinations of results. Checks at the start that they can be written."""

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
        if parquet is not None or csv is not None:
            # Imported before the runs, which would be lost if there were too little memory for polars after them.
            import quell.results.frame  # noqa: F401

    def bins(self, series: float | None) -> float | None:
        """Return the width of the bins to keep: the requested one, or Flent's if a file for Flent is requested."""
        return STEP_S if series is None and self.flent is not None else series

    @property
    def quiet(self) -> bool:
        """Whether standard output is for JSON only."""
        return self.json == "-"

    def write_json(self, plain: Any, *, indent: int | None = 1) -> None:
        """Write JSON to the target of `--json`, atomically; nothing without this option."""
        if self.json is None:
            return
        # JSON has an ASCII form for characters that a stream cannot encode; a file is UTF-8.
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
        """Write the requested files; nothing without a run. `json` and `flent`, if given, replace the records there.

        If a file cannot be written, the others are still written, then the first error is raised.
        Results of an interrupted command do not replace earlier files.
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
        """Write the runs of a sweep, each with its point of the grid, as `write` does."""
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
        """Write data files for Flent to the target of `--flent`; nothing without this option."""
        if self.flent is not None and records:
            from quell.inputs import flent as flent_file

            flent_file.write(self.flent, records)

    def write_with_page(self, plain: Any, page: Callable[[], str]) -> None:
        """Write JSON and a command's page; if one cannot be written, the other still is."""
        write_each([partial(self.write_json, plain), partial(self.write_page, page)])

    def write_page(self, page: Callable[[], str], what: str = "Page") -> None:
        """Write a page to the target of `--html`; without this option, `page` is not called."""
        if self.html is not None:
            files.write_text(self.html, page())
            err.print(f"{what}: {self.html}", style="dim", soft_wrap=True)

    def _write_report(self, outcome: Outcome) -> None:
        def page() -> str:
            from quell.views import report

            return report.page(outcome, command())

        self.write_page(page, "Report")

    def keep_earlier(self) -> None:
        """Write the results of an interrupted command beside existing files instead of replacing them."""
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
            err.print(f"quell: {earlier} is kept; the finished runs are written to {other}", soft_wrap=True)


def _has_runs(path: Path) -> bool:
    """Return whether Flent's data files of several runs exist: their names have queue and seed before the suffix."""
    stem = path.name.removesuffix(SUFFIX)
    return stem != path.name and any(path.parent.glob(f"{escape(stem)}.*{SUFFIX}"))


def write_each(writes: Iterable[Callable[[], object]]) -> None:
    """Call all functions; then raise the first error, if any failed."""
    failures: list[InputError | OSError] = []
    for write in writes:
        try:
            write()
        except (InputError, OSError) as error:
            failures.append(error)
    if failures:
        raise failures[0]


def command() -> str:
    """Return the command as the user would type it."""
    typed = shlex.join(["quell", *sys.argv[1:]])
    return typed.encode(errors="replace").decode()  # a file's name may not be valid text


@contextmanager
def progress(total: int) -> Iterator[Callable[[Outcome], object]]:
    """Show a progress bar over runs on standard error if that is a terminal."""
    with bar("Simulating", total, "runs") as update:

        def on_record(outcome: Outcome) -> None:
            speed = outcome.packets / max(outcome.wall_s, 1e-9)
            update(len(outcome.by_job), f"{si(speed)} packets/s")

        yield on_record
