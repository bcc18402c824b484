"""The command `quell`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with its status: 0 done, 2 bad input, 130 interrupted, 1 anything else."""
    try:
        from quell.cli import call

        status = call(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # Whoever read standard output has gone (`quell queues | head`); keep the interpreter from writing the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
