"""The text of `quell --help`, without the command line's libraries, which take ten times as long to load."""

from __future__ import annotations

import shutil
import textwrap

COMMANDS = {
    "Simulate": {
        "compare": "Compare queues on one bottleneck: a table, a report, result records.",
        "tune": "Search the queue settings that suit a line, and print lines to paste.",
        "run": "Run one queue once and show its flows.",
        "optimum": "Find the best constant limit or drop probability of a plain FIFO, and the front of constants.",
        "sweep": "Run a scenario with all combinations of some keys' values.",
        "rpm": "Measure responsiveness under working conditions, in round trips per minute.",
        "evaluate": "Evaluate queues per RFC 7928: its scenarios, with a verdict and plots for each queue.",
        "queues": "List the queues with their options and defaults.",
        "scenarios": "List the built-in scenarios, or print one as a file.",
    },
    "Real packets": {
        "shell": "Run a command behind an emulated link with any rate or trace, delay, loss and queue.",
        "live": "Shape and queue an interface's traffic, with any queue. If quell stops, traffic continues.",
        "watch": "Sample the kernel's own queues: backlog, drops, rates, sojourn times. Changes nothing.",
        "steer": "Set knobs of the kernel's own queues: a controller or program sets limit, target, rate or drops.",
        "attach": "Run one of quell's queues in the kernel, as BPF: no process remains, no packet leaves the kernel.",
        "detach": "Remove what quell attach put into the kernel and restore the previous queue.",
        "doctor": "Check what live, shell, steer and attach need, and name the remedy for what is missing.",
    },
    "Learn and reproduce": {
        "train": "Train a learned controller (all but learnqueue need torch).",
        "reproduce": "Repeat a published paper's measurements and compare them with the printed numbers.",
        "show": "Show a file: a learned policy, a network's card, result records, what Flent or quell watch measured.",
    },
}
"""Each command with the first paragraph of its help, by group."""

_OPTIONS = {
    "-h, --help": "Show this message, or a command's: quell compare --help.",
    "--version": "Print the version.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell.",
}


_EXAMPLES = (
    "quell compare --html report.html",
    "quell tune --rate 50mbit/10mbit",
    "quell shell --rate 10mbit --delay 20ms --aqm fq_codel -- COMMAND",
)


def text(columns: int | None = None) -> str:
    """Return the help of the whole program, wrapped to `columns` (default: the terminal's, at most 100)."""
    width = columns or min(shutil.get_terminal_size().columns, 100)
    lines = [
        "Find a queue that keeps a network link responsive.",
        "",
        "Usage: quell COMMAND [OPTIONS] [ARGUMENTS]",
    ]
    for group, entries in {**COMMANDS, "Options": _OPTIONS}.items():
        lines += ["", f"{group}:"]
        column = 2 + max(map(len, entries)) + 2
        for name, about in entries.items():
            head = f"  {name}".ljust(column)
            lines += textwrap.wrap(
                about, max(width, column + 20), initial_indent=head, subsequent_indent=" " * column,
                break_on_hyphens=False,
            )  # fmt: skip
    return "\n".join([*lines, "", "Examples:", *(f"  {example}" for example in _EXAMPLES), ""])
