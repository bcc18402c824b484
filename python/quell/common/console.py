"""Standard output and standard error: consoles for any text, and the progress bar."""

from __future__ import annotations

import codecs
import os
import re
import sys
from contextlib import contextmanager
from functools import partial
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any
from unicodedata import category

from rich.console import Console
from rich.segment import Segment

from quell.common.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import ConsoleOptions, RenderableType


class Screen(Console):
    """A console that prints control characters and markup in texts (names of scenarios, flows, devices) literally."""

    def __init__(self, **how: Any) -> None:
        """Take the arguments of rich's console, except `markup`, `highlight` and `emoji`."""
        super().__init__(markup=False, highlight=False, emoji=False, **how)

    def print(self, *objects: Any, **how: Any) -> None:
        """Print like rich; if the stream is not a terminal, omit the blanks at the ends of lines."""
        if self.is_terminal:
            super().print(*objects, **how)
            return
        with self.capture() as printed:
            super().print(*objects, **how)
        self.file.write(re.sub(" +\n", "\n", printed.get()))
        self.file.flush()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render like rich, with control characters in texts escaped."""
        for part in super().render(renderable, options):
            if part.control or part.text.isprintable() or part.text == "\n":
                yield part
            else:
                text = "".join(c if c == "\n" or category(c)[0] != "C" else one_line(c) for c in part.text)
                yield Segment(text, part.style)


class Output(Screen):
    """Standard output of a command, whose files are written even if it is closed (`| head`) or full.

    After the first error nothing more is printed; the command line raises `failure` when the command is done.
    """

    failure: OSError | None = None

    def print(self, *objects: Any, **how: Any) -> None:
        """Print like rich."""
        if self.failure is None:
            try:
                super().print(*objects, **how)
            except OSError as error:
                self.failure = error

    def on_broken_pipe(self) -> None:
        """Raise the error; rich would exit."""
        raise


class Errors(Screen):
    """Standard error of a command, which continues after an error of this stream (full disk, no reader).

    After the first error nothing more is printed.
    """

    def __init__(self, **how: Any) -> None:
        """Take the arguments of `Screen`, except the stream."""
        super().__init__(stderr=True, **how)

    def print(self, *objects: Any, **how: Any) -> None:
        """Print like rich."""
        if not self.quiet:
            try:
                super().print(*objects, **how)
            except OSError:
                self.quiet = True

    def __exit__(self, *raised: object) -> None:
        """Write the buffered output to the terminal. Progress bars also print through this method."""
        try:
            super().__exit__(*raised)
        except OSError:
            self.quiet = True
            self._check_buffer()  # empties it

    def on_broken_pipe(self) -> None:
        """Raise the error; rich would exit."""
        raise


err = Errors()
# Piped output has no width; the widest table needs 100 columns.
out = Output(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100)


# One character each, so that tables keep their columns.
_PLAIN = str.maketrans("±◆◇▶▼▲·•→–−…’²αµ", "~*?>v^.*>--.'2au")


def plain_characters(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream's encoding lacks: an error handler of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def write_anywhere() -> None:
    """Make standard output and standard error accept any text in any encoding, such as ASCII under LC_ALL=C."""
    codecs.register_error("quell", plain_characters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="quell")


@contextmanager
def bar(what: str, total: int, unit: str) -> Iterator[Callable[[int, str], object]]:
    """Show a progress bar on standard error if that is a terminal. Yields a function of the number done and a note."""
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

    plain = partial(TextColumn, markup=False)
    columns = (
        plain("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), plain(unit),
        plain("{task.fields[note]}", style="dim"), TimeElapsedColumn(), plain("left", style="dim"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as shown:
        task = shown.add_task(what, total=total, note="")
        yield lambda done, note: shown.update(task, completed=done, note=note)
