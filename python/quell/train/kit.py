"""Shared parts of trainers: checkpoints, the learning curve, the progress bar, Ctrl-C.

Beside the model `name.safetensors` is the folder `name-checkpoints` with `last.pt`, from which `--resume` continues bit
for bit, and `curve.parquet` with one row per point of the learning curve. Files are written under a temporary name,
flushed to disk and renamed, so that a killed process or a full disk leaves the last valid files.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Self
from zipfile import ZipFile

import polars as pl
import torch
from safetensors.torch import save

from quell._core import InputError
from quell.common import files, origin
from quell.common.console import bar
from quell.common.extras import install
from quell.train import Stopped

State = dict[str, Any]
"""Tensors, numbers, strings, and lists, tuples and dictionaries of them."""
FAILED, INTERRUPTED = 1, 130


def deterministic(seed: int) -> None:
    """Make torch give the same bits for the same seed on the same kind of machine.

    On a CPU this requires a single thread, so that sums have a fixed order. It is also the fastest: the networks are
    too small for a second thread.
    """
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed does this too, but takes seconds to import a compiler


class Session:
    """A training from its start, or from its last checkpoint, to its end; a context manager.

    The trainer calls `point` for the curve and `advance` after each step, and leaves the session before it judges the
    result. `options` must be equal in a resumed training; its length (`total`) may differ.

    Raises InputError if it cannot be resumed, Stopped after Ctrl-C, a full disk or a loss that is not a number.
    """

    def __init__(
        self,
        out: Path,
        options: Mapping[str, Any],
        *,
        total: int,
        unit: str,
        every: int,
        resume: bool = False,
        tensorboard: Path | None = None,
    ) -> None:
        self.folder = out.with_name(out.stem + "-checkpoints")
        self._out = out
        self.state: State | None = None
        """Result of the trainer's `state()` at the last checkpoint, if this training is resumed."""
        self.done = 0
        """Units done at that checkpoint."""
        self.rows: list[dict[str, Any]] = []
        """The learning curve so far."""
        self._options = json.loads(json.dumps(options))
        self._total, self._unit, self._every = total, unit, every
        self._tensorboard = tensorboard
        self._interrupted = False
        self._before_s = 0.0
        self._begun = time.monotonic()
        self._update: Callable[[int, str], object] = lambda _done, _note: None
        self._writer: Any = None
        self._closing = ExitStack()
        if tensorboard is not None and find_spec("tensorboard") is None:
            raise InputError(f"--tensorboard needs tensorboard: {install('train')}")
        try:
            if self.folder.exists():
                files.refuse_planted(self.folder)
            if self.last.exists():
                files.refuse_foreign(self.last, self.last.lstat())
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be used: {error.strerror}") from None
        self._read(resume)

    @property
    def last(self) -> Path:
        """The checkpoint."""
        return self.folder / "last.pt"

    @property
    def seconds(self) -> float:
        """Time taken so far, all parts of a resumed training included, s."""
        return self._before_s + time.monotonic() - self._begun

    def __enter__(self) -> Self:
        with self._closing:
            self._begin()
            self._closing = self._closing.pop_all()
        return self

    def _begin(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            files.refuse_planted(self.folder)
            self._lock()
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be written: {error.strerror}") from None
        self._update = self._closing.enter_context(bar("Training", self._total, self._unit))
        self._update(self.done, "")
        if self._tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter

            try:
                run = self._events(self._tensorboard)
                # Names of files in it are predictable, so users who may write to it could create links.
                events = self._closing.enter_context(files.own_folder(run))
            except OSError as error:
                why = f"cannot be written: {error.strerror}"
                raise InputError(f"--tensorboard {self._tensorboard}: {why}") from None
            self._writer = SummaryWriter(str(events), purge_step=self.done)
            self._closing.callback(self._writer.close)
        if threading.current_thread() is threading.main_thread():
            self._closing.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, self._on_interrupt))
        self._begun = time.monotonic()

    def _lock(self) -> None:
        """Keep others from training here until this one ends: they would replace its checkpoints and its model."""
        if os.name == "nt":
            return  # Windows cannot open a folder.
        held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self._closing.callback(os.close, held)
        try:
            files.lock(held)
        except BlockingIOError:
            raise InputError(f"{self.folder}: is in use by another training; give another --out") from None
        except OSError:
            pass  # NFS cannot lock a folder.

    def _events(self, folder: Path) -> Path:
        """Make the folder of the curve for TensorBoard, named after the model because TensorBoard shows its name.

        A new training gets a number after the name, a resumed one continues the last folder.
        """
        folder, name = files.follow(folder), self.folder.name.removesuffix("-checkpoints")
        run, last, number = folder / name, None, 1
        while run.exists():
            number += 1
            run, last = folder / f"{name}-{number}", run
        if self.state is None or last is None:
            folder.mkdir(parents=True, exist_ok=True)
            run.mkdir(mode=0o755)
            return run
        return last

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _on_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if self._interrupted:  # second Ctrl-C: end at once, the last checkpoint is on disk
            raise Stopped(self._resume_hint("interrupted"), INTERRUPTED)
        self._interrupted = True

    def note(self, text: str) -> None:
        """Show what a step is doing; stop here after Ctrl-C: what the last checkpoint does not have is lost."""
        self._update(self.done, text)
        if self._interrupted:
            raise Stopped(self._resume_hint("interrupted"), INTERRUPTED)

    def point(self, step: int, **values: float | list[float]) -> None:
        """Add a row to the learning curve; single numbers also go to TensorBoard."""
        self.rows.append({"step": step, **values})
        if self._writer is None:
            return
        try:
            for name, value in values.items():
                if not isinstance(value, list):
                    self._writer.add_scalar(name, value, step)
        except OSError as error:
            raise Stopped(self._resume_hint(f"{self._tensorboard}: {error.strerror}"), FAILED) from None

    def finite(self, what: str, value: float) -> float:
        """Return `value`; stop the training if it is not a finite number."""
        if not math.isfinite(value):
            raise Stopped(self._resume_hint(f"the {what} became {value}"), FAILED)
        return value

    def advance(self, done: int, note: str, state: Callable[[], State]) -> None:
        """Show the number of units done; write a checkpoint if one is due; stop here after Ctrl-C."""
        self._update(done, note)
        due = done // self._every > self.done // self._every or done >= self._total
        if due or self._interrupted:
            self._write(done, state())
        if self._interrupted and done < self._total:
            raise Stopped(self._resume_hint("interrupted"), INTERRUPTED)

    def _write(self, done: int, state: State) -> None:
        whole = {
            "options": self._options,
            "done": done,
            "total": self._total,
            "seconds": self.seconds,
            "rows": self.rows,
            "torch": torch.get_rng_state(),
            "state": state,
        }
        held = io.BytesIO()
        torch.save(whole, held)
        curve = io.BytesIO()
        pl.DataFrame(self.rows, infer_schema_length=None).write_parquet(curve)
        try:
            _write_bytes(self.last, held.getbuffer())
            self.done = done
            _write_bytes(self.folder / "curve.parquet", curve.getbuffer())
        except InputError as error:
            raise Stopped(self._resume_hint(str(error)), FAILED) from None

    def _read(self, resume: bool) -> None:
        if not self.last.exists():
            if resume:
                raise InputError(f"--resume: there is no checkpoint {self.last}; leave --resume out to start")
            return
        if not self.last.is_file():
            raise InputError(f"{self.last}: is not a plain file; remove it, or give another --out")
        try:
            with ZipFile(self.last) as parts:  # torch.load compares no checksums
                if damaged := parts.testzip():
                    raise ValueError(damaged)
            whole = torch.load(self.last, weights_only=True)
            options, done, total = dict(whole["options"]), int(whole["done"]), int(whole["total"])
            self._before_s, rows, rng, state = float(whole["seconds"]), whole["rows"], whole["torch"], whole["state"]
            json.dumps(options)
            _check_rows(rows)
            if resume:
                torch.set_rng_state(rng)
        except Exception as error:
            raise InputError(
                f"{self.last}: not a whole checkpoint ({type(error).__name__}); remove it, or give another --out"
            ) from None
        if not resume:
            self._before_s = 0.0
            if done < total:
                raise InputError(
                    f"{self.last}: an unfinished training ({done} of {total} {self._unit}); "
                    f"continue with --resume, remove {self.folder}, or give another --out"
                )
            if not self._has_model():
                raise InputError(
                    f"{self.last}: a finished training ({done} {self._unit}), of which {self._out} is not the model; "
                    f"write that with --resume, remove {self.folder}, or give another --out"
                )
            return
        for name, value in self._options.items():
            if options.get(name) != value:
                raise InputError(
                    f"--resume: {self.last} was trained with {name} {options.get(name)}, not {value}; "
                    "give the same options or another --out"
                )
        self.state, self.done, self.rows = state, done, rows

    def _has_model(self) -> bool:
        """Return whether the model was written after the checkpoint. An interruption of the judging prevents that."""
        return self._out.exists() and self._out.stat().st_mtime_ns >= self.last.stat().st_mtime_ns

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Context in which a trainer takes its state from `state`. Raises InputError if that does not fit.

        The checkpoint may be of another version of quell.
        """
        try:
            yield
        except InputError:  # also a ValueError
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"--resume: {self.last} is not of this training, or of another version of quell; "
                f"remove {self.folder}, or give another --out"
            ) from error

    def _resume_hint(self, why: str) -> str:
        if not self.done:
            return f"{why}; no checkpoint had been written yet"
        return f"{why}; the last checkpoint, {self.last}, is good ({self.done} {self._unit}): continue with --resume"


def _check_rows(rows: list[dict[str, Any]]) -> None:
    """Check the rows of a learning curve. Raises TypeError for values that `Session.point` never adds."""
    kinds: dict[str, type] = {}
    for row in rows:
        for name, value in row.items():
            kind = list if isinstance(value, list) else float
            numbers = value if isinstance(value, list) else [value]
            if kinds.setdefault(name, kind) != kind or not all(isinstance(number, int | float) for number in numbers):
                raise TypeError(name)


def options(arguments: Any, start: bytes | None, without: Collection[str]) -> dict[str, Any]:
    """Return the options that must be equal in a resumed training: arguments (a dataclass) and initial weights."""
    common = {name: value for name, value in asdict(arguments).items() if name not in without}
    return common | {"from": None if start is None else origin.weights_sha256(start)}


def write_model(
    path: Path, tensors: dict[str, torch.Tensor], card: Mapping[str, Any], *, chosen_by: str = ""
) -> dict[str, Any]:
    """Write a policy file (crates/quell-qdisc/src/policy/file.rs) atomically; return its card with its origin.

    `chosen_by` describes how these weights were chosen among those of the training.
    """
    made = origin.of_this_machine(threads=torch.get_num_threads(), chosen_by=chosen_by)
    whole = {**card, "format": 2, "origin": made}
    data, sealed = origin.sealed(lambda card: model_bytes(tensors, card), whole)
    _write_bytes(path, data)
    return sealed


def model_bytes(tensors: dict[str, torch.Tensor], card: Mapping[str, Any]) -> bytes:
    """Return a policy file's bytes."""
    return save(tensors, metadata={"quell": json.dumps(card)})


def in_one_row(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
    """Move parameters into one vector, in this order, of which they become views; return the vector."""
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    at = 0
    for p in parameters:
        p.data = flat[at : at + p.numel()].view_as(p)
        at += p.numel()
    return flat


def adam(gradient: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, step: int) -> torch.Tensor:
    """Update Adam's moments with a gradient, in place; return the divisor of the mean.

    The change of the parameters is then `-rate / (1 - 0.9**step) * mean` divided by it, with steps counted from 1.
    torch.optim's Adam gives the same, but takes seconds to import and three times as long to run.
    """
    mean.lerp_(gradient, 0.1)
    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    return square.sqrt().div_(math.sqrt(1 - 0.999**step)).add_(1e-8)


def _write_bytes(path: Path, data: bytes | memoryview) -> None:
    def write(part: Path) -> None:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    files.write_whole(path, write)
