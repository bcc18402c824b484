"""The extension module with the simulator (crates/quell-py)."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack, final

from quell.experiments.control import Gauges, Knobs
from quell.experiments.queue import OwnQueue
from quell.inputs.keys import Keys

__version__: str
__build__: str

Buffer: TypeAlias = Any
"""A contiguous array of the named type. It may be numpy's, but nothing here needs numpy."""

class InputError(ValueError):
    """Bad input; the message is one line that names the place and what is allowed."""

@final
class Scenario:
    """A checked scenario, and the keys from which it was made. Immutable."""

    name: str
    queue: str
    seeds: int
    seed: int
    duration_s: float
    warmup_s: float

    def __new__(
        cls,
        name: str | Scenario | None = None,
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
        """Read the scenario file or built-in scenario `name`, copy a scenario, or parse `text`, named `name` in errors.

        The other arguments are written as on the command line. They override keys of the scenario, or describe the
        whole scenario if none is given. Raises InputError.
        """

    @staticmethod
    def from_keys(**keys: Unpack[Keys]) -> Scenario:
        """Make a scenario from keys of scenario files (docs/reference/scenarios.md); tables are dictionaries.

        Raises InputError, one line that names the key and what is allowed.
        """

    def replace(self, **keys: Unpack[Keys]) -> Scenario:
        """Return the scenario with other values of some keys; all other keys keep their values.

        A dictionary changes the keys of a table or, for `flow` and `hop`, of every such table; a list of dictionaries
        replaces all of them. None removes a key. Raises InputError, one line that names the key and what would be
        right.
        """

    def toml(self) -> str:
        """All keys with their values, defaults included, as a scenario file."""

    def run_seed(self, k: int) -> int:
        """Seed of run `k`, counted from 0."""

OptionRow = tuple[str, str | None, str, str, str, bool, str]
"""An option: name, former name, value, description, default, whether it can be repeated, and where it can be given.

The value is empty for a flag, and in brackets if it is optional. The last field is `command`, `file` (also a key of the
configuration file) or `start` (a key that cannot change at run time).
"""

def options(command: str) -> tuple[list[OptionRow], list[tuple[str, str]], list[str]]:
    """Return a command's options, its arguments with their meanings, and examples. Raises InputError."""

def live(**options: object) -> int:
    """Run `quell live` with these options; return the exit status. None and False mean that an option is not given.

    Linux only. To be called by the main thread. Raises InputError.
    """

def live_rules(dev: str) -> list[list[str]]:
    """Return the rules of `quell live` on an interface: each a program, a chain and the words after it. Linux only."""

def live_left() -> list[Path]:
    """Return the state files of `quell live` in this network namespace. Linux only. Raises InputError."""

def steer_left() -> list[Path]:
    """Return the state files of `quell steer` in this network namespace. Linux only. Raises InputError."""

def steered(dev: str) -> bool:
    """Return whether `quell steer` has changed queues of an interface and not yet restored them. Linux only.

    Raises InputError.
    """

def steer_kinds() -> list[tuple[str, bool, list[str], int]]:
    """Return the kinds that `quell steer` supports: name, whether it sets classes, knobs, and an interval.

    The interval is the minimum time between two changes, ms. Linux only.
    """

def steer_why_not(kind: str) -> str:
    """Return why `quell steer` does not support a kind that is not in `steer_kinds`. Linux only."""

def disciplines() -> list[tuple[str, str, str, str]]:
    """Return all disciplines of this network namespace: device, kind, handle and parent as in `tc`. Linux only.

    Raises InputError.
    """

def steer(words: Sequence[str], **options: object) -> None:
    """Run `quell steer` with these words (device, place, controller) and options. Linux only.

    With `restore`, restore the settings that killed processes left on the devices that `words` names (none: on all).
    To be called by the main thread. Raises InputError.
    """

def attached_left() -> list[Path]:
    """Return the state files of `quell attach` in this network namespace. Linux only. Raises InputError."""

def attach(dev: str, words: str | None = None, **options: object) -> None:
    """Attach a discipline to a device like `quell attach`; without words, print what is attached. Linux only.

    Raises InputError.
    """

def detach(devices: Sequence[str], **options: object) -> None:
    """Remove what is attached to these devices and restore the previous queues. Linux only. Raises InputError."""

def watch(devices: Sequence[str], finished: Callable[[Path], object] | None = None, **options: object) -> None:
    """Sample the kernel's queues like `quell watch` with these options, until SIGTERM, Ctrl-C or the end of `duration`.

    `finished` receives the path of each complete file (.csv or .jsonl) of `out`. Linux only. To be called by the main
    thread. Raises InputError.
    """

@final
class Shell:
    """A command behind an emulated link. Linux only, not thread-safe."""

    outside: str
    """The other side's network namespace: that of the `caller`, or one for a `server` or an `unprivileged` caller."""
    server: tuple[str, str | None]
    """The other side's addresses: IPv4, and IPv6 if there is one."""
    dashboard: str | None
    """The dashboard's address, with its token."""
    device: str
    """The name of the device at both ends."""
    network: str
    """The network of its addresses, nested shells included: `100.64.0.0/18`."""

    def __new__(
        cls,
        scenario: Scenario,
        command: Sequence[str],
        *,
        base_rtt: bool,
        bin_s: float,
        server: Sequence[str] | None = None,
        mtu: int = 1500,
        offload: bool = True,
        output: tuple[int, int] | None = None,
        hold: bool = False,
        dashboard: int | None = None,
    ) -> Shell:
        """Run `command` behind the scenario's links; without `[link.up]` that direction is like `[link]`.

        Each direction has the link's delay or, with `base_rtt` and a link without delay, half of the first flow's base
        round trip. `server` runs on the other side, which then is a separate namespace. `output` are descriptors for
        the command's standard output and error. With `hold` the command waits for `go`. `dashboard` is a port on
        127.0.0.1 for the dashboard; 0: any free port. Raises InputError.
        """

    def go(self) -> None:
        """Start a command that `hold` has delayed."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the command's end, at most `timeout_s` seconds; return its exit status as in a shell, or None."""

    def not_executed(self) -> str | None:
        """Return why the command could not be executed; None if it could."""

    def server_ended(self) -> tuple[int, str | None] | None:
        """Return the exit status of a server that ended before the command, and why if it could not be executed."""

    def link_lost(self) -> bool:
        """Return whether the link was lost because a device was deleted; True for the first call after that only."""

    def signal(self, signal: int) -> None:
        """Forward SIGTERM or SIGHUP to the command."""

    def view(self) -> str:
        """Return a snapshot of both directions, [down, up], as JSON."""

    def restart(self, series: bool) -> None:
        """Restart the records within a few milliseconds, and with `series` their time series."""

    def finish(self) -> str:
        """End everything; return the records of both directions, [down, up], as JSON."""

@final
class StateFile:
    """A state file, locked for this process until it is closed. Linux only."""

    path: Path

    @staticmethod
    def hold(dev: str) -> StateFile:
        """Lock the state file of `quell tune --apply` for an interface; its folder is created if it is missing.

        Raises InputError if another process holds its lock, or if other users can write to its folder.
        """

    @staticmethod
    def nat() -> StateFile:
        """Lock the state file of all `quell shell --nat` in this network namespace; wait while other processes hold it.

        Raises InputError if that takes too long, or if other users can write to its folder.
        """

    @staticmethod
    def boot() -> int:
        """Return a number that identifies this boot of the system; 0 if unknown."""

    def read(self) -> str | None:
        """Return its text, None if there is no file. The caller must check each value. Raises InputError."""

    def write(self, text: str) -> None:
        """Replace the file atomically. Raises InputError."""

    def try_write(self, text: str) -> None:
        """Test whether this text could be written, without changing the file. Raises InputError."""

    def remove(self) -> None:
        """Delete it, if there is one. Raises InputError."""

    def close(self) -> None:
        """Unlock it."""

    def __enter__(self) -> StateFile: ...
    def __exit__(self, *args: object) -> None:
        """Close it; the file stays."""

@final
class Packet:
    """A packet in a queue written in Python (quell.experiments.queue)."""

    length: int
    """Length in bytes, link layer included."""
    flow: int
    """Number of its flow, below 2^32."""
    ecn: int
    """The ECN field: quell.experiments.queue.NOT_ECT, ECT1, ECT0 or CE."""
    enqueued: float
    """Time of its arrival at this queue, seconds."""

    def mark(self) -> bool:
        """Mark it CE; return False and change nothing if it is not ECN-capable. Raises InputError if it has left."""

    def drop(self) -> None:
        """Drop it: the queue must not return it any more. Raises InputError if it has left already."""

def run_many(
    scenario: Scenario,
    jobs: Sequence[tuple[Queue | OwnQueue | str, int, float | None]],
    on_done: Callable[[int, str], object],
    *,
    threads: int = 0,
    pcap: str | PathLike[str] | None = None,
) -> None:
    """Run jobs `(queue, seed, width of the series' bins in seconds)` on `threads` cores (0: all).

    `on_done(index, record)` is called in this thread with JSON as runs finish, in no fixed order. On Ctrl-C, or when
    `on_done` raises an exception, running worlds stop, finished records are still handed over, and the exception is
    raised. Queues written in Python run on this thread, one after another; their exceptions end all runs.
    """

def run_each(
    jobs: Sequence[tuple[Scenario, Queue | OwnQueue | str, int, float | None]],
    on_done: Callable[[int, str], object],
    *,
    threads: int = 0,
) -> None:
    """Like `run_many`, for jobs `(scenario, queue, seed, width of the series' bins)` with their own scenarios."""

def check_records(file: str, data: bytes) -> None:
    """Raise InputError unless `data` is a result record as JSON or a list of records; errors name `file`."""

class World:
    """A world that runs from decision to decision of the controllers of its queues.

    `series_bin_s` requests time series, `pcap` names a file for the bottleneck's packets. Raises InputError.
    """

    def __init__(
        self,
        scenario: Scenario,
        queue: Queue | OwnQueue | str,
        seed: int,
        *,
        series_bin_s: float | None = None,
        pcap: Path | None = None,
    ) -> None: ...
    def control(self, period_s: float, queue: int = 0) -> None:
        """Make `run` stop every `period_s` seconds for a decision about a queue.

        0 is the bottleneck; then come the hops and the queue upwards.
        """

    def knobs(self, queue: int = 0) -> list[str]:
        """List the knobs of a queue as a whole."""

    def run(self) -> tuple[int, int | None, Gauges] | None:
        """Run to the next decision; return its queue, its sub-queue and the queue's gauges, or None at the end."""

    def set(self, knobs: Knobs | None, queue: int = 0, sub_queue: int | None = None) -> None:
        """Set knobs of a queue or of one of its sub-queues. Raises InputError if it lacks one of them."""

    def finish(self) -> str:
        """End the run and return its record as JSON."""

class CoupledQueues:
    """Worlds stepped together. They stop each period to set p' (base probability) of each sub-queue of one queue.

    `observation`: the readings of each sub-queue (`a3c_readings`). `port` 0 is the bottleneck, then come the hops and
    the queue upwards. Results are the same on any number of `threads` (0: one per core). Raises InputError for a queue
    without sub-queues.
    """

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        queue: str,
        seeds: Sequence[int],
        *,
        observation: Literal["linear", "logarithmic", "published"],
        port: int = 0,
        period_s: float = 0.015,
        threads: int = 1,
    ) -> None: ...
    @property
    def sub_queues(self) -> int:
        """Number of sub-queues in a world: the classic ones, then their L4S partners in the same order."""
    @property
    def now_s(self) -> list[float]:
        """Return the simulated seconds so far, by world."""
    def replace(self, index: int, scenario: Scenario, seed: int) -> None:
        """Replace world `index` by a new world."""
    def step(self, probabilities: bytes) -> Period:
        """Set p' (float32) of every sub-queue of every world and simulate a period.

        A negative number leaves p' to the queue's own law. A world whose scenario is over does not change.
        """
    def records(self) -> list[str]:
        """Return the record of each world so far, as JSON."""

@final
class Period:
    """Results of a period of `CoupledQueues`, as float32 numbers."""

    readings: bytes
    """(worlds, sub-queues, readings)."""
    sub_queues: bytes
    """(worlds, sub-queues, 3): in use or not, delay in ms, share of packets lost."""
    queues: bytes
    """(worlds, 3): utilisation, which may exceed 1, backlog of the whole queue in ms, whether the scenario is over."""

def a3c_readings(observation: Literal["linear", "logarithmic", "published"]) -> list[str]:
    """List the names of an actor's readings of a sub-queue, in order."""

def a3c_maxima() -> list[float]:
    """Return the maximum of each of the linear readings."""

@final
class Episode:
    """Results of `episode`: decisions and table of one queue, and the record of the run."""

    record: str
    """The record as JSON."""
    inputs: bytes
    """The network's inputs at each decision: float32, (decisions, inputs)."""
    actions: bytes
    """Index of each action, or its value: float32, (decisions,)."""
    table: LearnQueueTable | None
    """LearnQueue's table; None for another queue."""

def episode(
    scenario: Scenario,
    queue: str,
    seed: int,
    *,
    which: int = 0,
    model: bytes | None = None,
    explore: int | None = None,
    table: LearnQueueTable | None = None,
) -> Episode:
    """Run one world whose queue learns; the interpreter's lock is released.

    It starts from the network of a policy file and from `table`, if given; `explore` seeds exploration. Decisions and
    table in the result are those of queue number `which`.
    """

def scenario_keys() -> str:
    """List the tables of scenario files as JSON: objects `name`, `about`, `keys`.

    A key has `name`, `value` (its notation), `default` and `meaning`.
    """

def scenario_schema() -> str:
    """Return a JSON Schema (draft 2020-12) of scenario files."""

def scenarios() -> list[tuple[str, str, str]]:
    """List the built-in scenarios: name, description in one line, TOML."""

def quantity(text: str, kind: Literal["rate", "time", "size"]) -> int:
    """Read a rate, time or size in the form of scenario files: bit/s, ns or bytes."""

def read_file(path: str | PathLike[str], kind: Literal["scenario", "model", "records"]) -> bytes:
    """Read a plain file or a pipe, up to the maximum size of its kind. Raises InputError."""

def grade(increase_ms: float) -> str:
    """Grade a mean increase of latency under load, ms, as bufferbloat tests do (docs/reference/metrics.md)."""

def heard(arrivals: Sequence[tuple[int, int, bool]], sent: int) -> str | None:
    """Judge one end of a real call with G.711: the JSON of an application (docs/explanation/applications.md).

    None if no packet was sent. `arrivals` has for each packet that arrived its serial number, its one-way delay in ns,
    and whether it is measured; `sent` is the number of packets measured.
    """

def note_on_rate(text: str) -> str | None:
    """Return a note on a rate in bytes per second (`50mbps`), probably meant as bits; None for all other text."""

def unknown(sort: str, name: str, known: Sequence[str]) -> str:
    """Return the message of an InputError for an unknown name: the nearest known name and the list of all."""

@final
class Queue:
    """Queue words, parsed and checked. Two are equal if they have the same meaning; `str` gives the shortest words."""

    def __new__(cls, words: str) -> Queue:
        """Parse words. Raises InputError."""
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

def queue(words: str) -> str:
    """Check queue words and return the shortest words with the same meaning."""

def hush_model() -> str:
    """Return the text of the default policy of `hush`."""

def queues() -> str:
    """List the kinds of queues as JSON: objects `name`, `summary`, `source`, `options`.

    An option has `name`, `value` (its notation; empty for a word that stands alone), `default` and `meaning`.
    """

@final
class Environments:
    """Environments of one task, numbered from 0; `quell.envs` wraps them for Gymnasium."""

    agents: int
    """Number of agents in an environment."""
    ranges: list[tuple[float, float]]
    """Minimum and maximum of each feature of an observation."""

    def __new__(
        cls,
        scenario: Scenario,
        queue: str,
        seeds: Sequence[int],
        *,
        knob: str,
        bounds: tuple[float, float],
        initial: float,
        period_s: float,
        steps: Sequence[float] | None,
        observe: Sequence[str],
        reward: str,
        vary: Mapping[str, Sequence[str]],
        path: bool = False,
        own_law: bool = False,
        along: Sequence[float] | None = None,
        threads: int = 0,
    ) -> Environments:
        """Build one environment per seed, at the start of its first episode, to be stepped on `threads` cores (0: all).

        `along` lists values of the knob in ascending order, from the lower to the upper bound. `steps` are then numbers
        of places in this list, not changes of the value.

        `vary` has the minimum and the maximum of `rate`, `rtt` and `flows`, and a list of `cc`. With `path` every
        queue has an agent, the bottleneck's first, then the hops'; actions, observations and rewards have a row for
        each. With `own_law` the queue is left to its own law, and actions are ignored.
        """

    def clone(self, threads: int = 0) -> Environments:
        """Copy all environments in the middle of their episodes: equal actions then give equal steps in both."""

    def seed(self, index: int, seed: int) -> None:
        """Give an environment a new seed, below 2^64, and begin an episode."""

    def reset(self, index: int) -> None:
        """Begin the next episode of an environment."""

    def readings(self, index: int, agent: int = 0) -> dict[str, float]:
        """All readings of an agent in an environment's last period."""

    def observe(self, observations: Buffer) -> None:
        """Write the current observations (float32), row by row."""

    def step(self, actions: Buffer, observations: Buffer, rewards: Buffer, over: Buffer) -> None:
        """Add to each knob the step with this index (int64), and simulate up to the next decisions.

        Writes observations (float32), rewards (float64) and whether episodes have ended (uint8). If an episode had
        ended before, the action is ignored and the next episode begins.
        """

    def step_to(self, actions: Buffer, observations: Buffer, rewards: Buffer, over: Buffer) -> None:
        """Like `step`; actions (float32) set the knob to a share of its range, 0 to 1."""

@final
class Policy:
    """A network with its model card; `quell.Policy` wraps it."""

    card: str
    """JSON."""
    inputs: int
    outputs: int
    parameters: int

    def __new__(cls, file: str, data: bytes, *, integers: bool = False) -> Policy:
        """Read a policy file's bytes; `file` is its name, for errors."""

    def forward(self, inputs: Buffer, outputs: Buffer) -> None:
        """Write the outputs (float32) for rows of raw inputs (float32)."""

@final
class Dqn:
    """A network of `rlaqm` in training, with its replay memory (crates/quell-qdisc/src/control/rlaqm/dqn.rs).

    The same calls give the same bits on every machine. Raises InputError for a network that does not output values.
    """

    def __new__(
        cls,
        card: str,
        hidden: Sequence[int],
        seed: int,
        *,
        model: bytes | None = None,
        weight: float = 1.0,
        square: bool = True,
        scale_ms: float = 5.0,
        gamma: float = 0.95,
        horizon: int = 5,
        batch: int = 256,
        replay: int = 400_000,
        follow: float = 0.005,
        centring: float = 0.0,
        error_limit: float = 1.0,
    ) -> Dqn:
        """Begin with random weights for a card (JSON) and widths of hidden layers, or with a policy file's weights.

        `weight`, `square` and `scale_ms` are parameters of the reward.
        """

    def keep(self, inputs: bytes, actions: bytes) -> float:
        """Add an episode's transitions to the replay memory; return its mean reward per decision.

        Raises InputError unless there is a row of inputs for each action.
        """

    def fit(self, count: int, rate: float, stream: int) -> float:
        """Fit `count` batches, drawn from random stream `stream`, with learning rate `rate`; return the mean loss."""

    def average(self) -> None:
        """Add the present weights to the mean of weights."""

    def model(self, card: str, *, mean: bool = False) -> bytes:
        """Return a policy file with this card and the present weights, or their mean."""

    def state(self) -> tuple[list[bytes], int, int, float]:
        """Return the state on which the next fit depends."""

    def restore(self, numbers: Sequence[bytes], steps: int, averaged: int, baseline: float) -> None:
        """Continue from what `state` returned."""

def policy_bytes(card: str, layers: Sequence[tuple[Buffer, Buffer]]) -> bytes:
    """Return a policy file: its card (JSON), and for each hidden layer, then each head, weight and bias (float32).

    Raises InputError if the card contradicts itself or the shapes, or a number is not finite.
    """

def readings() -> list[tuple[str, float, float, str]]:
    """List the readings that can be observed: name, minimum, maximum, meaning."""

@final
class LearnQueueTable:
    """A Q-table of LearnQueue with its card. Immutable. Raises InputError if the bytes are not a table."""

    card: str
    """JSON."""

    def __init__(self, file: str, data: bytes) -> None: ...
    def limits(self) -> list[int]:
        """Return the limits that are the table's states, ascending: one per row."""

    def values(self) -> list[list[float]]:
        """Return Q of the next smaller and of the next larger limit for each row, ms."""

    def visits(self) -> list[list[int]]:
        """Return the number of visits of these two actions for each row."""

    def save(self, trained_on: str, seed: int) -> bytes:
        """Return the bytes of a table file; its card describes the training."""

def learnqueue_steps(queue: str) -> tuple[list[int], int, float]:
    """Return a `learnqueue`'s limits (its states), its initial limit, and the seconds between two decisions."""

def learnqueue_memory(queue: str) -> tuple[int, int]:
    """Return the memory of a `learnqueue` per station, bytes: of its Q-table alone, and in total."""

def lfq_experiments(
    weights: Sequence[Buffer],
    first_seed: int,
    count: int,
    alpha: float,
    *,
    online: bool = False,
    duration_s: float = 5.0,
    act_within: float = 0.5,
    paper_weights: bool = False,
    threads: int = 0,
) -> dict[str, bytearray]:
    """Run LFQ's experiments with seeds from `first_seed` on under the network of these layers.

    `weights` are float32: weight and bias of each layer in turn, as torch's `nn.Linear` holds them, 60 to 256 to 256 to
    256 to 1 in the paper. Each flow has a link of 5 to 25 Mbit/s, a round trip of 5 to 25 ms, a length of `duration_s`
    plus or minus a quarter, NewReno or BIC. The limit can change at every tenth packet. At the first of these after a
    random time within `act_within` of the flow's length, its limit goes one packet up in one clone of the world and one
    down in the other (`online`: in one world, up or down at random) and stays. The reward is the rate of departures
    since then, in 1e6 bytes/s, less `alpha` times the mean number of packets queued times 1446. Runs on `threads` cores
    (0: all).

    Returns raw columns for `numpy.frombuffer`: `features` float32 [count, 60]; `decided` uint8, 0 if a flow ended
    before its decision; int32 `before` (the limit until then), `limits` [count, 2] (lower and upper; online: chosen and
    other) and `label` (the better one, or the larger of equals; online: the chosen one); `rewards` float64 [count, 2],
    of `limits`; float64 `readings` [count, 2, 3], of `limits`: rate of departures in 1e6 bytes/s, mean number of
    packets queued, mean time in the queue in s; float64 `draws` [count, 5]: bit/s, round trip, length and random time
    in s, 0 for NewReno or 1 for BIC; float64 `decided_at`, s.

    Results depend only on seeds and weights. Raises InputError.
    """

def lfq_features(*, paper_weights: bool = False) -> list[str]:
    """List the names of the 60 inputs of LFQ's network."""
