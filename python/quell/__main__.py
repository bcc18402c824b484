"""The command `quell`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress

# While modules load, no work can be lost, so Ctrl-C ends the process; `main` restores KeyboardInterrupt.
signal.signal(signal.SIGINT, signal.SIG_DFL)


def open_streams() -> None:
    """Open the null device for each standard stream that is closed, as Rust's programs do.

    Otherwise the next opened file would get its descriptor, and messages would be written to that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            found = os.open(os.devnull, os.O_RDWR)
            if found != number:
                os.dup2(found, number)
                os.close(found)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


_DIGITS = {"POLARS_MAX_THREADS": 3, "RAYON_NUM_THREADS": 3, "COLUMNS": 4, "LINES": 4, "TERMINAL_WIDTH": 4}
"""Environment variables, each with the number of digits of the largest number that is accepted."""


def ignore_bad_numbers() -> None:
    """Remove environment variables whose values make libraries fail.

    polars panics at 0 threads; polars and Rayon start any number that is set, even if there is not enough memory. Rich
    prints nothing in 0 columns, and fails at digits such as `²`; typer fails at a width that is not a number.
    """
    for name, digits in _DIGITS.items():
        text = os.environ.get(name)
        if text is not None:
            number = text.removeprefix("+")
            if not (number.isdecimal() and 1 <= len(number.lstrip("0")) <= digits):
                del os.environ[name]


def main() -> None:
    """Run the command line and exit with its status: 0 done, 2 bad input, 130 interrupted, 1 anything else."""
    open_streams()
    if hasattr(signal, "SIGCHLD"):
        # A caller that ignores SIGCHLD passes this on to quell; commands that fail would then count as successful.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ignore_bad_numbers()
    words = sys.argv[1:]
    try:
        # For completion a shell passes no arguments; its request is in the environment.
        if "_QUELL_COMPLETE" in os.environ:
            # A shell reads one line for each value, so typer must not wrap the help beside it.
            os.environ["TERMINAL_WIDTH"] = "1000"
        elif words in ([], ["-h"], ["--help"]):
            from quell.cli import usage

            sys.stdout.write(usage.text())
            sys.stdout.flush()
            return
        # Objects that modules create while loading stay alive, so early garbage collection is useless.
        gc.set_threshold(100_000)
        from quell.cli.dispatch import call
        from quell.common.console import write_anywhere

        write_anywhere()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        status = call(words)
    except KeyboardInterrupt:
        with suppress(OSError):  # standard error has no reader
            print("quell: interrupted", file=sys.stderr)
        status = 130
    except BrokenPipeError:
        # The reader of standard output has ended (`quell queues | head`): the interpreter must not write the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    for stream, failed in ((sys.stdout, 1), (sys.stderr, 0)):
        try:
            stream.flush()
        except OSError:  # a full disk, which was reported if possible
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            stream.flush()
            status = status or failed
    if status == 130:
        # After Ctrl-C the prompt must return at once: skip the interpreter's own shutdown.
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    main()
