"""The simulator, as the extension module shows it (crates/quell-py)."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import final

from quell.control import Gauges, Knobs

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

    def __new__(
        cls,
        name: str | None = None,
        *,
        text: str | None = None,
        queue: str | None = None,
        rate: str | None = None,
        rtt: str | None = None,
        trace: str | None = None,
        flows: Sequence[str] = ...,
        ecn: bool = False,
        duration: str | None = None,
        warmup: str | None = None,
        seeds: str | None = None,
        seed: str | None = None,
    ) -> Scenario:
        """Read a scenario file or a built-in one, or `text`, which `name` names in errors.

        The rest are the command line's strings, which stand over the file or in its place.
        """

    def toml(self) -> str:
        """Every key with its value, defaults filled in, as a scenario file."""

    def run_seed(self, k: int) -> int:
        """Seed of run `k`."""

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

def run_controlled(
    scenario: Scenario,
    queue: str,
    seed: int,
    period_s: float,
    decide: Callable[[Gauges], Knobs | None],
    *,
    series_bin_s: float | None = None,
) -> str:
    """Run one world, asking `decide` for the knobs every `period_s` seconds; return the record as JSON.

    What `decide` raises ends the run.
    """

def scenarios() -> list[tuple[str, str, str]]:
    """List the built-in scenarios: name, a line about it, its TOML."""

def queue(words: str) -> str:
    """Check queue words and return them as short as they can be written."""

def queues() -> str:
    """List the kinds of queues as JSON: objects `name`, `summary`, `source`, `options`.

    An option has `name`, `value` (how it is written; empty for a word that stands alone), `default` and `meaning`.
    """
