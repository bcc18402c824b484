"""The simulator, as the extension module shows it (crates/quell-py)."""

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
"""A contiguous array of the type that is named; numpy's, but nothing here needs numpy."""

class InputError(ValueError):
    """Bad input; the message is one line that names the place and what would be right."""

@final
class Scenario:
    """A checked scenario, and the keys that it was made of. Immutable."""

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
        """Read a scenario file or a built-in one, take another scenario, or read `text`, which `name` names in errors.

        The rest are the command line's strings, which override the file or take its place.
        """

    @staticmethod
    def from_keys(**keys: Unpack[Keys]) -> Scenario:
        """Make a scenario of the keys of a file (docs/reference/scenarios.md), tables as dictionaries.

        Raises InputError, one line that names the key and what would be right.
        """

    def replace(self, **keys: Unpack[Keys]) -> Scenario:
        """Return the scenario with other values of some keys; those that are not named stay as they were written.

        A dictionary changes the keys of a table or, for `flow` and `hop`, of every such table; a list of dictionaries
        replaces all of them. None takes a key away. Raises InputError, one line that names the key and what would be
        right.
        """

    def toml(self) -> str:
        """Every key with its value, defaults filled in, as a scenario file."""

    def run_seed(self, k: int) -> int:
        """Seed of run `k`."""

OptionRow = tuple[str, str | None, str, str, str, bool, str]
"""An option: name, former name, value, what it does, default, whether it repeats, and where it can be given.

The value is empty for a flag, and in brackets where it can be left out. The last is `command`, `file` (also a key of
the configuration file) or `start` (a key that cannot change at run time).
"""

def options(command: str) -> tuple[list[OptionRow], list[tuple[str, str]], list[str]]:
    """Give the options of a command on real packets, its words and what they are, and examples. Raises InputError."""

def live(**options: object) -> None:
    """Do what `quell live` does with these options, of which None and False are not given. Linux only.

    To be called by the main thread. Raises InputError.
    """

def live_rules(dev: str) -> list[list[str]]:
    """Give the rules of `quell live` on an interface: each a program, a chain and the words after it. Linux only."""

def live_left() -> list[Path]:
    """Give the state files of `quell live` in this network namespace. Linux only. Raises InputError."""

def steer_left() -> list[Path]:
    """Give the state files of `quell steer` in this network namespace. Linux only. Raises InputError."""

def steered(dev: str) -> bool:
    """Say whether `quell steer` has changed queues of an interface and not yet brought them back. Linux only.

    Raises InputError.
    """

def steer_kinds() -> list[tuple[str, bool, list[str], int]]:
    """Give what `quell steer` can turn: kinds, whether it is their classes, knobs, least milliseconds between changes.

    Linux only.
    """

def steer_why_not(kind: str) -> str:
    """Say why `quell steer` turns nothing of a kind that is not among `steer_kinds`. Linux only."""

def disciplines() -> list[tuple[str, str, str, str]]:
    """Give all disciplines of this network namespace: device, kind, handle and parent as `tc` writes them. Linux only.

    Raises InputError.
    """

def steer(words: Sequence[str], **options: object) -> None:
    """Do what `quell steer` does with these words (device, place, controller) and options. Linux only.

    With `restore`, restore the settings that killed processes left on the devices that `words` names (none: on all).
    To be called by the main thread. Raises InputError.
    """

def attached_left() -> list[Path]:
    """Give the state files of `quell attach` in this network namespace. Linux only. Raises InputError."""

def attach(dev: str, words: str | None = None, **options: object) -> None:
    """Attach a discipline to a device as `quell attach`; without words, print what is attached. Linux only.

    Raises InputError.
    """

def detach(devices: Sequence[str], **options: object) -> None:
    """Remove what is attached to these devices and restore the previous queues. Linux only. Raises InputError."""

def watch(devices: Sequence[str], finished: Callable[[Path], object] | None = None, **options: object) -> None:
    """Sample the kernel's queues until SIGTERM, Ctrl-C or the end of the time, as `quell watch` with these options.

    `finished` receives the path of each complete file (.csv or .jsonl) of `out`. Linux only. To be called by the main
    thread. Raises InputError.
    """

@final
class Shell:
    """A command behind an emulated link. Linux only. Not for several threads at once."""

    outside: str
    """Where the other side is: `caller`, `server` or `unprivileged`."""
    server: tuple[str, str | None]
    """The other side's addresses: IPv4, and IPv6 where there is one."""
    dashboard: str | None
    """The dashboard's address, with its token."""
    device: str
    """The name of the device at both ends."""
    network: str
    """The network of its addresses, those of shells within included: `100.64.0.0/18`."""

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

        Each way takes the link's delay, or with `base_rtt`, where a link has none, half of the first flow's base round
        trip. `server` runs on the other side, which then is a namespace of its own. `output` are descriptors for the
        command's standard output and error. With `hold` the command waits for `go`. `dashboard` is a port on 127.0.0.1
        for the dashboard; 0: any that is free. Raises InputError.
        """

    def go(self) -> None:
        """Let a command that was held run."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the command's end, at most so many seconds: the exit status that a shell has for it, or None."""

    def not_executed(self) -> str | None:
        """Say why the command could not be executed; None if it could."""

    def server_ended(self) -> tuple[int, str | None] | None:
        """Give the exit status of a server that ended before the command, and why if it could not be executed."""

    def link_lost(self) -> bool:
        """Say whether the link is gone because a device was deleted; True once."""

    def signal(self, signal: int) -> None:
        """Hand SIGTERM or SIGHUP on to the command."""

    def view(self) -> str:
        """Look at both directions, [down, up], as JSON."""

    def restart(self, series: bool) -> None:
        """Let the records begin again within some milliseconds; with `series` their time series, too."""

    def finish(self) -> str:
        """End everything; the records of both directions, [down, up], as JSON."""

@final
class StateFile:
    """A state file, locked against other processes until it is closed. Linux only."""

    path: Path

    @staticmethod
    def hold(dev: str) -> StateFile:
        """Take that of `quell tune --apply` for an interface; its folder is created if it is missing.

        Raises InputError if another process has it, or if other users can write to its folder.
        """

    @staticmethod
    def nat() -> StateFile:
        """Take that of all `quell shell --nat` in this network namespace, waiting for other processes that have it.

        Raises InputError if that takes too long, or if other users can write to its folder.
        """

    @staticmethod
    def boot() -> int:
        """Return the number of this start of the system; 0 where it is not known."""

    def read(self) -> str | None:
        """Return its text, None if there is no file. The caller checks each value. Raises InputError."""

    def write(self, text: str) -> None:
        """Replace the file atomically. Raises InputError."""

    def try_write(self, text: str) -> None:
        """Test whether this text could be written; the file stays as it is. Raises InputError."""

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
    """Bytes, those of the link layer included."""
    flow: int
    """The same number for all packets of a flow, below 2^32."""
    ecn: int
    """The ECN field: quell.experiments.queue.NOT_ECT, ECT1, ECT0 or CE."""
    enqueued: float
    """When it came to this queue, seconds."""

    def mark(self) -> bool:
        """Mark it CE if it is ECN-capable; False (and untouched) if it is not. Raises InputError if it has left."""

    def drop(self) -> None:
        """Give it up: the queue does not return it any more. Raises InputError if it has left already."""

def run_many(
    scenario: Scenario,
    jobs: Sequence[tuple[Queue | OwnQueue | str, int, float | None]],
    on_done: Callable[[int, str], object],
    *,
    threads: int = 0,
    pcap: str | PathLike[str] | None = None,
) -> None:
    """Run jobs `(queue, seed, width of the series' bins in seconds)` on `threads` cores (0: all).

    `on_done(index, record)` is called from this thread with JSON as runs finish, in no fixed order. On Ctrl-C, or when
    `on_done` raises, running worlds stop, what had finished is still handed over, and the exception is raised. Queues
    written in Python run on this thread, one after another; what they raise ends all runs.
    """

def run_each(
    jobs: Sequence[tuple[Scenario, Queue | OwnQueue | str, int, float | None]],
    on_done: Callable[[int, str], object],
    *,
    threads: int = 0,
) -> None:
    """As `run_many`, each job `(scenario, queue, seed, width of the series' bins)` with its own scenario."""

def check_records(file: str, data: bytes) -> None:
    """Refuse with InputError what is no result record as JSON, nor a list of such; `file` is named in errors."""

class World:
    """A world that runs from decision to decision of whoever controls its queues.

    `series_bin_s` asks for time series, `pcap` names a file for the bottleneck's packets. Raises InputError.
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
        """Take a queue over: 0 is the bottleneck, then come the hops and the queue upwards."""

    def knobs(self, queue: int = 0) -> list[str]:
        """List the knobs that a queue has as a whole."""

    def run(self) -> tuple[int, int | None, Gauges] | None:
        """Run on to the next decision: of which queue, of which of its sub-queues, its gauges; None at the end."""

    def set(self, knobs: Knobs | None, queue: int = 0, sub_queue: int | None = None) -> None:
        """Set knobs of a queue or of one of its sub-queues. Raises InputError if it lacks one of them."""

    def finish(self) -> str:
        """End the run and return its record as JSON."""

class CoupledQueues:
    """Worlds stepped together, which stop each period for p' of every sub-queue of one of their queues to be set.

    `observation`: what is read of each sub-queue (`a3c_readings`). `port` 0 is the bottleneck, then come the hops and
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
        """How many a world has: the classic ones, then their L4S partners in the same order."""
    @property
    def now_s(self) -> list[float]:
        """Return the simulated seconds so far, by world."""
    def replace(self, index: int, scenario: Scenario, seed: int) -> None:
        """Put a new world in the place of world `index`."""
    def step(self, probabilities: bytes) -> tuple[bytes, bytes, bytes]:
        """Set p' (float32) of every sub-queue of every world and simulate a period; negative: its own law does.

        Returns float32 numbers: (worlds, sub-queues, readings); (worlds, sub-queues, 3): in use or not, delay in ms,
        share of packets lost; (worlds, 3): utilisation, not cut at 1, the backlog of the whole queue in ms, and whether
        the scenario is over. A world that is over stays as it is.
        """
    def records(self) -> list[str]:
        """Return the record of each world so far, as JSON."""

def a3c_readings(observation: Literal["linear", "logarithmic", "published"]) -> list[str]:
    """Name what an actor reads of a sub-queue, in order."""

def a3c_most() -> list[float]:
    """Say where each of the linear readings ends."""

def episode(
    scenario: Scenario,
    queue: str,
    seed: int,
    *,
    which: int = 0,
    model: bytes | None = None,
    explore: int | None = None,
    table: LearnQueueTable | None = None,
) -> tuple[str, bytes, bytes, LearnQueueTable | None]:
    """Run one world whose queue learns; the interpreter's lock is released.

    It starts from the network of a policy file and from `table`, where these are given; `explore` seeds random steps.
    Returns the record as JSON; of queue `which` what its network read at each decision (float32), what it chose
    (float32: the index of an action), and what LearnQueue has learned.
    """

def scenario_keys() -> str:
    """List the tables of scenario files as JSON: objects `name`, `about`, `keys`.

    A key has `name`, `value` (how it is written), `default` and `meaning`.
    """

def scenario_schema() -> str:
    """Give a JSON Schema (draft 2020-12) of scenario files."""

def scenarios() -> list[tuple[str, str, str]]:
    """List the built-in scenarios: name, a line about it, its TOML."""

def quantity(text: str, kind: Literal["rate", "time", "size"]) -> int:
    """Read a rate, time or size in the form of scenario files: bit/s, ns or bytes."""

def read_file(path: str | PathLike[str], kind: Literal["scenario", "model", "records"]) -> bytes:
    """Read a plain file or a pipe, if it is not longer than its kind can be. Raises InputError."""

def grade(increase_ms: float) -> str:
    """Grade a mean increase of latency under load, ms, as bufferbloat tests do (docs/reference/metrics.md)."""

def heard(arrivals: Sequence[tuple[int, int, bool]], sent: int) -> str | None:
    """Judge one end of a real call with G.711: the JSON of an application (docs/explanation/applications.md).

    None if nothing was said. Of each packet that came: its serial number, one-way delay in ns, and whether it counts;
    `sent` packets count.
    """

def note_on_rate(text: str) -> str | None:
    """Say what is probably meant by a rate in bytes per second (`50mbps`); None for all other text."""

def unknown(sort: str, name: str, known: Sequence[str]) -> str:
    """Say that there is no such `sort` of thing, which name is nearest, and what there is: an InputError's message."""

@final
class Queue:
    """Queue words that have been parsed and checked, equal to others that mean the same; `str` writes them shortly."""

    def __new__(cls, words: str) -> Queue:
        """Parse words. Raises InputError."""
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

def queue(words: str) -> str:
    """Check queue words and return them as short as they can be written."""

def hush_model() -> str:
    """Give the text of the policy that `hush` has without a `model`."""

def queues() -> str:
    """List the kinds of queues as JSON: objects `name`, `summary`, `source`, `options`.

    An option has `name`, `value` (how it is written; empty for a word that stands alone), `default` and `meaning`.
    """

@final
class Environments:
    """Environments of one task, numbered from 0; `quell.envs` has the faces of Gymnasium on them."""

    agents: int
    """How many an environment has."""
    ranges: list[tuple[float, float]]
    """Least and greatest value of every part of an observation."""

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

        With `along`, ascending values from bound to bound, `steps` are places along them.

        `vary` has the least and the greatest of `rate`, `rtt` and `flows`, and a list of `cc`. With `path` every queue
        has an agent, the bottleneck's first, then the hops'; actions, observations and rewards have a row for each.
        With `own_law` the queue is left to its own law, and actions are ignored.
        """

    def clone(self, threads: int = 0) -> Environments:
        """Copy all environments in the midst of their episodes: equal actions then bring equal steps in both."""

    def seed(self, index: int, seed: int) -> None:
        """Give an environment a new seed, below 2^64, and begin an episode."""

    def reset(self, index: int) -> None:
        """Begin the next episode of an environment."""

    def readings(self, index: int, agent: int = 0) -> dict[str, float]:
        """Everything that an agent can read of an environment's last period."""

    def observe(self, observations: Buffer) -> None:
        """Write what is seen now (float32), row by row."""

    def step(self, actions: Buffer, observations: Buffer, rewards: Buffer, over: Buffer) -> None:
        """Add a step, by its index (int64), to every knob and simulate up to the next decisions.

        Writes observations (float32), rewards (float64) and whether episodes ended (uint8). Where one had ended before,
        the action is ignored and the next begins.
        """

    def step_to(self, actions: Buffer, observations: Buffer, rewards: Buffer, over: Buffer) -> None:
        """As `step`, with shares of the knob's range (float32)."""

@final
class Policy:
    """A network with its model card; `quell.Policy` is the face of it."""

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
    """A network of `rlaqm`'s in training, and what it learns from (crates/quell-qdisc/src/control/rlaqm/dqn.rs).

    The same calls give the same bits on every machine. Raises InputError for a network that is not one of values.
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
    ) -> Dqn:
        """Begin with random weights for a card (JSON) and widths of hidden layers, or with a policy file's weights.

        `weight`, `square` and `scale_ms` are the reward's.
        """

    def keep(self, inputs: bytes, actions: bytes) -> float:
        """Keep what `episode` gave; return its mean reward per decision.

        Raises InputError unless there is a row of inputs for each action.
        """

    def fit(self, count: int, rate: float, stream: int) -> float:
        """Fit batches, drawn from a random stream with this number; return the mean loss."""

    def average(self) -> None:
        """Take the weights as they are into their mean."""

    def model(self, card: str, *, mean: bool = False) -> bytes:
        """Give a policy file with this card and the weights as they are, or their mean."""

    def state(self) -> tuple[list[bytes], int, int]:
        """Give all that the next fit depends on."""

    def restore(self, numbers: Sequence[bytes], steps: int, averaged: int) -> None:
        """Continue where `state` was taken."""

def policy_bytes(card: str, layers: Sequence[tuple[Buffer, Buffer]]) -> bytes:
    """Give a policy file: its card (JSON), and for each hidden layer, then each head, weight and bias (float32).

    Raises InputError where the card contradicts itself or the shapes, or a number is not finite.
    """

def readings() -> list[tuple[str, float, float, str]]:
    """List what can be observed: name, least, greatest value, meaning."""

@final
class LearnQueueTable:
    """A Q-table of LearnQueue's, with its card. Immutable. Raises InputError for bytes that are none."""

    card: str
    """JSON."""

    def __init__(self, file: str, data: bytes) -> None: ...
    def limits(self) -> list[int]:
        """Return the limits that are states, ascending: one per row."""

    def values(self) -> list[list[float]]:
        """Q of the next smaller and of the next larger limit, ms, for every row."""

    def visits(self) -> list[list[int]]:
        """How often the two were tried."""

    def save(self, trained_on: str, seed: int) -> bytes:
        """Return the bytes of a table file; the card says what it was learned on."""

def learnqueue_walk(queue: str) -> tuple[list[int], int, float]:
    """Limits that are a `learnqueue`'s states, its first limit, and the seconds between two decisions."""

def learnqueue_memory(queue: str) -> tuple[int, int]:
    """Bytes that a `learnqueue` keeps per station: its Q table alone, and all of it."""

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

    `weights` are float32: weight and bias of each layer in turn, as torch's `nn.Linear` holds them, 60 to 256 to
    256 to 256 to 1 in the paper. Each flow has a link of 5 to 25 Mbit/s, a round trip of 5 to 25 ms, a length of
    `duration_s` plus or minus a quarter, NewReno or BIC. At its first tenth packet after a time drawn within
    `act_within` of its length its limit goes one packet up in one clone of the world and one down in the other
    (`online`: in one world, up or down by chance) and stays. The reward is what left since, in 1e6 bytes/s, less
    `alpha` times the mean of packets queued times 1446. Runs on `threads` cores (0: all).

    Returns raw columns for `numpy.frombuffer`: `features` float32 [count, 60]; `decided` uint8, 0 where a flow
    ended before its decision; int32 `before` (the limit until then), `limits` [count, 2] (lower and upper; online:
    chosen and other) and `label` (the better one, of equals the larger; online: the chosen); `rewards` float64
    [count, 2], of `limits`; float64 `readings` [count, 2, 3], of `limits`: what left, in 1e6 bytes/s, mean of packets
    queued, mean time in the queue in s; float64 `draws` [count, 5]: bit/s, round trip, length and drawn time in s, 0
    for NewReno or 1 for BIC; float64 `decided_at`, s.

    Results depend on seeds and weights alone. Raises InputError.
    """

def lfq_features(*, paper_weights: bool = False) -> list[str]:
    """List the names of the 60 inputs of LFQ's network."""
