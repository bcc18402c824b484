"""The current setting of the line: lines of tc, or only the line's own FIFOs."""

from __future__ import annotations

from collections.abc import Sequence

from quell import _core
from quell._core import InputError
from quell.inputs import tc
from quell.tune.line import NOTHING, Shaped
from quell.tune.search import Shapes


def read(given: Sequence[str] | None) -> Shapes:
    """Read `--now`: lines of tc, files of them, or `-`. Raises InputError."""
    if not given:
        # A distribution's default queue has no shaper, so packets wait in the modem, whatever the queue is.
        return NOTHING, NOTHING
    try:
        pasted = tc.read(tc.source(given))
    except InputError as error:
        raise InputError(str(error).replace("--tc", "--now", 1)) from None
    # A single line is for the interface to the modem: the upload.
    down, up = (None, pasted.down) if pasted.up is None else (pasted.down, pasted.up)
    return _shaped(down), _shaped(up)


def _shaped(side: tc.Side | None) -> Shaped:
    if side is None or side.rate is None:
        return NOTHING
    return Shaped(side.queue, _core.quantity(side.rate, "rate"))
