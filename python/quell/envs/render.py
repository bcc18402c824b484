"""`render()` of an environment: the queue's last periods as a line of text or a picture."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

MODES = ["ansi", "rgb_array"]
FPS = 50
"""Frames per second in real time: RL-AQM decides every 20 ms."""
WIDTH, HEIGHT = 400, 240
_BARS = " ▁▂▃▄▅▆▇█"
_SHOWN = 60
"""Number of periods in a line of text."""
_MIN_SCALE_MS = 20.0
"""Minimum of the delay's full scale, ms."""
_PAPER, _GRID, _DELAY, _KNOB = (255, 255, 255), (225, 225, 225), (200, 60, 40), (40, 90, 170)


class Chart:
    """The delay and the knob of the last periods, the newest at the right."""

    def __init__(self, bounds: tuple[float, float]) -> None:
        self.low, self.high = bounds
        self.delays: deque[float] = deque(maxlen=WIDTH)
        self.knobs: deque[float] = deque(maxlen=WIDTH)

    def clear(self) -> None:
        """Remove the last episode."""
        self.delays.clear()
        self.knobs.clear()

    def add(self, readings: Mapping[str, float]) -> None:
        """Add a period."""
        self.delays.append(readings["delay_ms"])
        self.knobs.append(readings["knob"])

    def text(self) -> str:
        """Return the delay as a row of bars, with the last values."""
        delays = list(self.delays)[-_SHOWN:]
        if not delays:
            return "no step yet"
        scale = max(_MIN_SCALE_MS, *delays)
        bars = "".join(_BARS[min(8, int(delay / scale * 8.999))] for delay in delays)
        return f"{bars:>{_SHOWN}} delay {delays[-1]:.1f} of {scale:.0f} ms, knob {self.knobs[-1]:g}"

    def picture(self) -> NDArray[np.uint8]:
        """Draw the delay above the knob, each from 0 (or its minimum) to full scale, with lines at the quarters."""
        image = np.full((HEIGHT, WIDTH, 3), _PAPER, np.uint8)
        half = HEIGHT // 2
        for quarter in range(0, HEIGHT, half // 4):
            image[quarter] = _GRID
        scale = max(_MIN_SCALE_MS, *self.delays, 0.0)
        _line(image[:half], np.array(self.delays) / scale, _DELAY)
        _line(image[half:], (np.array(self.knobs) - self.low) / (self.high - self.low), _KNOB)
        return image


def _line(panel: NDArray[np.uint8], shares: NDArray[np.float64], colour: tuple[int, int, int]) -> None:
    """Draw shares of a panel's height as a line; each point is joined to the one before."""
    height, width, _ = panel.shape
    rows = ((1 - np.clip(shares, 0, 1)) * (height - 1)).astype(int)
    for column, row in zip(range(width - len(rows), width), rows, strict=True):
        before = rows[max(column - 1 - (width - len(rows)), 0)]
        panel[min(before, row) : max(before, row) + 1, column] = colour
