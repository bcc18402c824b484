"""The simulator, as the extension module shows it (crates/quell-py)."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import final

from quell.control import Gauges

__version__: str

class InputError(ValueError):
    """Bad input; the message is one line that names the place and what would be right."""

@final
class Scenario:
    """A checked scenario. Immutable."""

    name: str
    queue: str
    seeds: int
    seed: int
    duration_s: float
    warmup_s: float

    def __new__(cls, text: str, path: str, **overrides: str | list[str]) -> Scenario:
        """Read TOML; `path` names it in errors; `overrides` are the command line's strings."""

    def toml(self) -> str:
        """Every key with its value, defaults filled in, as a scenario file."""

    def run_seed(self, k: int) -> int:
        """Seed of run `k`."""

@final
class World:
    """One simulation whose queue is controlled from outside: it stops at every decision and asks."""

    def __new__(
        cls, scenario: Scenario, queue: str, seed: int, period_s: float, series_bin_s: float | None = None
    ) -> World: ...
    def step(self) -> Gauges | None:
        """Run to the next decision and return the gauges; None at the end."""

    def set(
        self, *, limit: int | None = None, drop: float | None = None, base_probability: float | None = None
    ) -> None:
        """Set knobs of the queue that asked."""

    def finish(self) -> str:
        """Return the result record as JSON."""

def run_many(
    scenario: Scenario,
    jobs: Sequence[tuple[str, int, float | None]],
    on_done: Callable[[int, str], object],
    *,
    threads: int = 0,
    pcap: str | PathLike[str] | None = None,
) -> None:
    """Run jobs `(queue words, seed, width of the series' bins in seconds)` on `threads` cores (0: all).

    `on_done(index, record)` is called from this thread with JSON as runs finish, in no fixed order. On Ctrl-C, or when
    `on_done` raises, running worlds stop, what had finished is still handed over, and the exception is raised.
    """

def scenarios() -> list[tuple[str, str, str]]:
    """List the built-in scenarios: name, a line about it, its TOML."""

def queue(words: str) -> str:
    """Check queue words and return them as short as they can be written."""

def queues() -> str:
    """List the kinds of queues as JSON: objects `name`, `summary`, `source`, `options`.

    An option has `name`, `value` (how it is written; empty for a word that stands alone), `default` and `meaning`.
    """
