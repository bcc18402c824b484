"""Where simulations run: in this process, or on a Ray cluster (extra `ray`).

>>> with executor("local") as on:
...     results = on.map(simulate, batches, weights)

The same functions and arguments give the same results. A cluster only simulates; learning stays with the caller.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from quell import _core
from quell._core import InputError
from quell.common.extras import install

Result = TypeVar("Result")

RETRIES = 10
"""Number of times that a call is repeated if its worker or node died."""
AHEAD = 1000
"""Maximum number of unfinished calls on a cluster if `at_once` is 0."""


class ClusterError(InputError):
    """The cluster ended, or gave a call up."""


class Executor:
    """Calls in this process: one after another, each of which may use every core."""

    @property
    def cores(self) -> int:
        """Cores that calls can use."""
        return os.cpu_count() or 1

    def stream(
        self, function: Callable[..., Result], items: Iterable[Any], *shared: Any, at_once: int = 0
    ) -> Iterator[tuple[int, Result]]:
        """Call `function(item, *shared)` for every item; yield `(index, result)` as calls finish.

        The function must belong to a module, its result must depend only on its arguments, and all of them must be
        picklable. On a cluster, `at_once` calls run at a time (0: on all of its cores), and a call is repeated if
        its worker died. An exception of the function ends the stream.
        """
        for index, item in enumerate(items):
            yield index, function(item, *shared)

    def map(self, function: Callable[..., Result], items: Iterable[Any], *shared: Any) -> list[Result]:
        """Call `function(item, *shared)` for every item; list the results in the items' order."""
        done = dict(self.stream(function, items, *shared))
        return [done[index] for index in range(len(done))]

    def actors(self, make: Callable[..., Any], items: Iterable[Any], *shared: Any) -> Actors | None:
        """Make an object `make(item, *shared)` per item on the cluster, each with a core; None without a cluster.

        Raises InputError if the cluster has fewer cores.
        """
        return None


HERE: Executor = Executor()
"""The default executor: this process."""


@contextmanager
def executor(ray: str | None = None) -> Iterator[Executor]:
    """Return the executor for `--ray`: None is this process, `local` is Ray on this machine, else a cluster's address.

    Raises InputError if Ray is not installed or the cluster cannot be reached.
    """
    if ray is None:
        yield HERE
        return
    if find_spec("ray") is None:
        raise InputError(f"--ray needs ray: {install('ray')}")
    cluster = _Cluster(ray)
    try:
        yield cluster
    finally:
        cluster.close()


class _Cluster(Executor):
    """A Ray cluster: every call is a task on its own core."""

    def __init__(self, address: str) -> None:
        import logging

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self._folder: TemporaryDirectory[str] | None = None
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "num_cpus": os.cpu_count()}
            # The token of Ray allows running programs as this user. Ray's own file of the token may be readable by all
            # users.
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            if "ray" not in sys.modules:  # Ray reads it when it is imported; Ray 2.60 has a token without it
                os.environ.setdefault("RAY_AUTH_MODE", "token")
        import ray

        self._ray: Any = ray
        try:
            if address == "local":
                options["_temp_dir"] = self._private()
            _reach(address)
            ray.init(address, **options)
        except (OSError, ValueError, RuntimeError) as error:  # Ray's ConnectionError is an OSError
            text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            lines = text.strip().splitlines()
            self._forget()
            raise InputError(f"--ray {address}: {lines[0]}; write local, or HOST:PORT of a running cluster") from None

    def close(self) -> None:
        self._ray.shutdown()
        self._forget()

    def _private(self) -> str:
        """Make a folder for Ray's sockets and programs. Ray opens its own, such as /tmp/ray, to all users."""
        # Paths of sockets must be short; paths in TMPDIR may be long.
        short = None if os.name == "nt" else os.environ.get("RAY_TMPDIR", "/tmp")
        self._folder = TemporaryDirectory(prefix="quell-ray-", dir=short, ignore_cleanup_errors=True)
        return f"{self._folder.name}/r"

    def _forget(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def cores(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def stream(
        self, function: Callable[..., Result], items: Iterable[Any], *shared: Any, at_once: int = 0
    ) -> Iterator[tuple[int, Result]]:
        ray = self._ray
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        kept = [ray.put(value) for value in shared]
        numbered = enumerate(items)
        running: dict[Any, int] = {}

        def submit() -> bool:
            for index, item in numbered:
                running[task.remote(_core.__version__, str(Path.cwd()), function, item, *kept)] = index
                return True
            return False

        try:
            while len(running) < (at_once or AHEAD) and submit():
                pass
            while running:
                done = self._first(list(running))
                index = running.pop(done)
                submit()
                yield index, self._get(done)
        finally:
            # Nothing is left to cancel on a cluster that has ended.
            with suppress(ray.exceptions.RayError):
                for left in running:
                    ray.cancel(left, force=True)

    def actors(self, make: Callable[..., Any], items: Iterable[Any], *shared: Any) -> Actors:
        wanted = list(items)
        if len(wanted) > self.cores:
            raise InputError(f"--ray: each worker needs a core: {len(wanted)} are wanted, the cluster has {self.cores}")
        actors = Actors(self._ray, [self._ray.remote(num_cpus=1)(_Actor).remote() for _ in wanted])
        try:
            actors.make(make, wanted, *(self._ray.put(value) for value in shared))
        except BaseException:
            actors.close()
            raise
        return actors

    def _first(self, references: list[Any]) -> Any:
        """Wait for the first of these calls to end; return its reference."""
        try:
            (done,), _ = self._ray.wait(references, num_returns=1)
        except self._ray.exceptions.RayError as error:
            raise _ended(f"has ended: {_line(error)}") from None
        return done

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise _ended(f"gave a run up after {RETRIES} retries: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _ended(how: str) -> ClusterError:
    return ClusterError(f"--ray: the cluster {how}; start it again, or leave --ray out")


class Actors:
    """Objects on a cluster that keep their state between calls; each handles one call at a time."""

    def __init__(self, ray: Any, actors: list[Any]) -> None:
        self._ray, self._actors = ray, actors
        self._running: dict[Any, int] = {}

    def make(self, make: Callable[..., Any], items: list[Any], *shared: Any) -> None:
        """Make the objects and wait until all are made."""
        for index, item in enumerate(items):
            made = self._actors[index].make.remote(_core.__version__, str(Path.cwd()), make, item, *shared)
            self._running[made] = index
        for _ in items:
            self.first()

    def call(self, index: int, method: str, *arguments: Any) -> None:
        """Begin a call of an object's method."""
        self._running[self._actors[index].call.remote(method, *arguments)] = index

    def first(self) -> tuple[int, Any]:
        """Wait for the first call to finish; return the index of its object and its result.

        Raises the call's exception, and RuntimeError if its worker or node died, with which the object's state is lost.
        """
        (done,), _ = self._ray.wait(list(self._running), num_returns=1)
        index = self._running.pop(done)
        try:
            return index, self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError:
            raise RuntimeError(f"worker {index} is gone") from None

    def close(self) -> None:
        """End the objects, even during a call."""
        for actor in self._actors:
            self._ray.kill(actor)


class _Actor:
    """One object of `Actors`."""

    def __init__(self) -> None:
        self._held: Any = None

    def make(self, version: str, folder: str, make: Callable[..., Any], item: Any, *shared: Any) -> None:
        _settle(version, folder)
        self._held = make(item, *shared)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._held, method)(*arguments)


def _reach(address: str) -> None:
    """Check within seconds whether the address answers; Ray would try for many minutes.

    `auto` is refused: Ray would join the cluster that any user names in /tmp/ray or in the arguments of a process.
    """
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if address == "local":
        return
    if not (colon and host and port.isdigit()):
        raise ValueError("this is not an address")
    socket.create_connection((host, int(port)), timeout=10).close()


def _call(version: str, folder: str, function: Callable[..., Result], item: Any, *shared: Any) -> Result:
    """Run a call on a worker."""
    _settle(version, folder)
    return function(item, *shared)


def _settle(version: str, folder: str) -> None:
    """Prepare a worker: check its version of quell, enter the caller's working folder, and use one core."""
    if version != _core.__version__:
        raise InputError(f"--ray: a node has quell {_core.__version__}, this is {version}; install the same on all")
    os.environ["RAYON_NUM_THREADS"] = "1"
    if Path(folder).is_dir():
        os.chdir(folder)
