"""`quell tune --ask`: questions in a terminal in place of options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import typer

from quell._core import InputError
from quell.common.console import err
from quell.common.names import known
from quell.common.text import one_line
from quell.tune import aims, line, targets

_FRAMINGS = {
    "cable": "docsis",
    "fibre": "ethernet",
    "vdsl": "pppoe-ptm",
    "adsl": "pppoe-llcsnap",
    "other": "",
}
"""The usual framing of each kind of line."""


@dataclass(frozen=True)
class Answers:
    """The options that correspond to the answers."""

    rate: str
    rtt: str
    framing: str | None
    aims: str
    target: str
    dev: str


def ask() -> Answers:
    """Ask for the line, its use and the router; repeat a question after an invalid answer."""

    def rate(text: str) -> str:
        line.at_home(text, None, None, None, aims.Aims().weights, None, 1)
        return text

    def rtt(text: str) -> str:
        line.at_home("1mbit/1mbit", text, None, None, aims.Aims().weights, None, 1)
        return text

    def target(text: str) -> str:
        targets.target(text)
        return text

    rates = _answer("What does the line carry under load, download/upload?", "50mbit/10mbit", rate)
    trip = _answer("How long is a round trip to a near server on the idle line (ping)?", "30ms", rtt)
    kind = _answer(
        f"What kind of line is it ({', '.join(_FRAMINGS)})?",
        "other",
        lambda text: known("kind of line", text, _FRAMINGS),
    )
    wanted = _answer(
        f"What matters (some of {', '.join(aims.WORDS)})?", aims.DEFAULT, lambda text: aims.Aims(text).text
    )
    system = _answer(f"What does the router run ({', '.join(targets.TARGETS)})?", "tc", target)
    chosen = targets.target(system)
    dev = _answer("Which of its interfaces leads to the modem?", chosen.dev, chosen.interface)
    return Answers(rates, trip, _FRAMINGS[kind] or None, wanted, system, dev)


def _answer(question: str, default: str, check: Callable[[str], str]) -> str:
    while True:
        text = str(typer.prompt(question, default=default, err=True)).strip()
        try:
            return check(text)
        except InputError as error:
            err.print(one_line(str(error)), soft_wrap=True)
