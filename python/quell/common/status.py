"""Exit statuses of the command `quell`."""

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
