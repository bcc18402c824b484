"""The training kit: files after a kill, a full disk, a loss that is not a number, Ctrl-C."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from quell._core import InputError
from quell.common.extras import install
from quell.train import Stopped

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

# A small trainer that has every kind of state: weights, momentum, torch's and Python's generators, a list.
TRAINER = """
import random, sys, time
from pathlib import Path
import torch
from quell.train import Stopped, kit

def train(out, steps, resume=False, pause=0.0, every=3, tensorboard=None, options={"seed": 1}, poison=None, width=8):
    kit.deterministic(1)
    network = torch.nn.Linear(width, width)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.1)
    rng, memory = random.Random(1), []
    def state():
        return {"network": network.state_dict(), "optimiser": optimiser.state_dict(), "rng": rng.getstate(),
                "memory": memory}
    with kit.Session(out, options, total=steps, unit="steps", every=every, resume=resume,
                     tensorboard=tensorboard) as session:
        if session.state is not None:
            with session.restoring():
                network.load_state_dict(session.state["network"])
                optimiser.load_state_dict(session.state["optimiser"])
                rng.setstate(session.state["rng"])
                memory[:] = session.state["memory"]
        for step in range(session.done, steps):
            memory.append(rng.random())
            loss = (network(torch.randn(4, width)) - rng.choice(memory)).square().mean()
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            session.point(step, loss=session.finite("loss", float("nan") if step == poison else float(loss.detach())),
                          memory=memory[-2:])
            time.sleep(pause)
            print(step, flush=True)
            session.advance(step + 1, f"loss {float(loss.detach()):.3f}", state)
    kit.write_model(out, {name: value for name, value in network.state_dict().items()}, {"name": "test"})
"""
space: dict[str, Any] = {}
exec(TRAINER, space)
train = space["train"]


def start(call: str, folder: Path) -> subprocess.Popen[str]:
    text = f"{TRAINER}\ntry:\n    {call}\nexcept Stopped as stop:\n    sys.exit(f'{{stop.status}} {{stop}}')\n"
    return subprocess.Popen(
        [sys.executable, "-c", text], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for got in process.stdout:
        if got.strip() == line:
            return
    raise AssertionError(process.stderr.read() if process.stderr else "")


def weights(path: Path) -> list[Any]:
    from safetensors.torch import load_file

    return [value for _, value in sorted(load_file(path).items())]


def curve(out: Path) -> Any:
    import polars as pl

    return pl.read_parquet(out.with_name(f"{out.stem}-checkpoints") / "curve.parquet")


def equal(first: Path, second: Path) -> bool:
    same = all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))
    return same and bool(curve(first).equals(curve(second)))


@pytest.mark.torch
def test_killed_and_resumed_the_weights_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    train(tmp_path / "whole.safetensors", 20)
    process = start("train(Path('killed.safetensors'), 20, pause=0.05)", tmp_path)
    try:
        wait_for(process, "10")
    finally:
        process.kill()  # SIGKILL
        process.communicate()
    out = tmp_path / "killed.safetensors"
    assert not out.exists()
    assert len(curve(out)) == 9, "the last checkpoint was after step 8"
    train(out, 20, resume=True)
    assert equal(out, tmp_path / "whole.safetensors")


@pytest.mark.torch
@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens no folder")
def test_a_second_training_of_the_same_model_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    """It would replace the checkpoints of the first one, and its model."""
    out = tmp_path / "model.safetensors"
    process = start("train(Path('model.safetensors'), 900, pause=0.05, every=900)", tmp_path)
    try:
        wait_for(process, "1")
        with pytest.raises(InputError, match="model-checkpoints: is in use by another training; give another --out"):
            train(out, 3, options={"seed": 2})
    finally:
        process.kill()
        process.communicate()
    assert not out.exists()
    train(out, 3, options={"seed": 2})


@pytest.mark.torch
def test_ctrl_c_writes_a_checkpoint_and_says_how_to_resume(tmp_path: Path) -> None:
    train(tmp_path / "whole.safetensors", 20)
    process = start("train(Path('stopped.safetensors'), 20, pause=0.05, every=1000)", tmp_path)
    try:
        wait_for(process, "6")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert err.startswith("130 interrupted; the last checkpoint, ") and err.endswith("continue with --resume\n"), err
    train(tmp_path / "stopped.safetensors", 20, resume=True)
    assert equal(tmp_path / "stopped.safetensors", tmp_path / "whole.safetensors")


@pytest.mark.torch
def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint_good(tmp_path: Path) -> None:
    train(tmp_path / "whole.safetensors", 9, width=64)
    out = tmp_path / "full.safetensors"
    with pytest.raises(Stopped):
        train(out, 9, width=64, poison=7)  # a good checkpoint after six steps
    before = (tmp_path / "full-checkpoints" / "last.pt").read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
        with pytest.raises(Stopped, match=r"last\.pt: cannot be written: File too large; .* --resume$") as stop:
            train(out, 9, width=64, resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert stop.value.status == 1 and "\n" not in str(stop.value)
    assert (tmp_path / "full-checkpoints" / "last.pt").read_bytes() == before
    assert sorted(p.name for p in (tmp_path / "full-checkpoints").iterdir()) == ["curve.parquet", "last.pt"]
    train(out, 9, width=64, resume=True)
    assert equal(out, tmp_path / "whole.safetensors")


@pytest.mark.torch
def test_a_loss_that_is_not_a_number_names_the_last_good_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match=r"^the loss became nan; the last checkpoint, .*last\.pt, is good \(6 steps\)"):
        train(tmp_path / "model.safetensors", 20, poison=7)
    with pytest.raises(Stopped, match=r"^the loss became nan; no checkpoint had been written yet$"):
        train(tmp_path / "other.safetensors", 20, poison=1)


@pytest.mark.torch
def test_a_training_that_cannot_be_resumed_is_refused_in_one_line(tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    with pytest.raises(InputError, match=r"^--resume: there is no checkpoint .*last\.pt; leave --resume out to start$"):
        train(out, 3, resume=True)
    with pytest.raises(Stopped):
        train(out, 6, poison=5)
    with pytest.raises(InputError, match=r"an unfinished training \(3 of 6 steps\); continue with --resume"):
        train(out, 6)
    with pytest.raises(InputError, match=r"was trained with seed 1, not 2; give the same options or another --out$"):
        train(out, 6, resume=True, options={"seed": 2})
    last = tmp_path / "model-checkpoints" / "last.pt"
    last.write_bytes(last.read_bytes()[:500])
    for resume in (True, False):  # not even without --resume: it may be another program's file
        with pytest.raises(InputError, match=r"last\.pt: not a whole checkpoint .*; remove it, or give another --out$"):
            train(out, 6, resume=resume)
    assert last.stat().st_size == 500
    last.unlink()
    os.mkfifo(last)
    with pytest.raises(InputError, match=r"last\.pt: is not a plain file"):
        train(out, 6)


@pytest.mark.torch
def test_a_damaged_bit_in_a_checkpoint_is_found(tmp_path: Path) -> None:
    """Otherwise the training would continue from other weights without a message."""
    out, last = tmp_path / "model.safetensors", tmp_path / "model-checkpoints" / "last.pt"
    with pytest.raises(Stopped):
        train(out, 6, poison=5)
    weight = torch.load(last, weights_only=True)["state"]["network"]["weight"]
    damaged = bytearray(last.read_bytes())
    damaged[damaged.index(bytes(weight.view(torch.uint8).flatten().tolist()))] ^= 1
    last.write_bytes(damaged)
    with pytest.raises(InputError, match=r"last\.pt: not a whole checkpoint"):
        train(out, 6, resume=True)


FOREIGN = {
    "rows": 7, "rows.0": None, "rows.1": {"step": 1, "loss": [1.0]}, "rows.0.loss": "x", "torch": torch.zeros(3),
    "options": [1], "options.seed": torch.zeros(2), "seconds": "x", "state": {}, "state.network": 7,
    "state.network.weight": torch.zeros(3), "state.rng": (3, (), None), "state.optimiser.state": [],
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("key", FOREIGN)
def test_a_checkpoint_with_other_contents_is_refused_in_one_line(tmp_path: Path, key: str) -> None:
    """One of another version of quell, or a file that someone has changed."""
    out, last = tmp_path / "model.safetensors", tmp_path / "model-checkpoints" / "last.pt"
    with pytest.raises(Stopped):
        train(out, 6, poison=5)
    whole = torch.load(last, weights_only=True)
    *path, name = [int(part) if part.isdigit() else part for part in key.split(".")]
    at = whole
    for part in path:
        at = at[part]
    at[name] = FOREIGN[key]
    torch.save(whole, last)
    before = last.read_bytes()
    what = r"not a whole checkpoint|is not of this training, or of another version of quell|was trained with seed"
    with pytest.raises(InputError, match=rf"last\.pt:? ({what}).*another --out$"):
        train(out, 6, resume=True)
    assert last.read_bytes() == before


@pytest.mark.torch
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root may give a folder away")
@pytest.mark.parametrize("which", ["model-checkpoints", "model-checkpoints/last.pt"])
def test_a_checkpoint_of_a_stranger_is_not_read(tmp_path: Path, which: str) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(Stopped):
        train(tmp_path / "model.safetensors", 6, poison=5)
    (tmp_path / "model-checkpoints").chmod(0o777)
    os.chown(tmp_path / which, 65534, 65534)
    for resume in (True, False):
        with pytest.raises(InputError, match=r"cannot be used: .* belongs to another user, in a folder where all"):
            train(tmp_path / "model.safetensors", 6, resume=resume)


@pytest.mark.torch
def test_a_finished_training_continues_longer_or_starts_again(tmp_path: Path) -> None:
    whole, longer = tmp_path / "whole.safetensors", tmp_path / "longer.safetensors"
    train(whole, 12)
    train(longer, 6)
    train(longer, 12, resume=True)
    assert equal(longer, whole)
    train(longer, 12)
    assert equal(longer, whole)


@pytest.mark.torch
def test_a_finished_training_can_be_continued_until_another_one_has_a_checkpoint(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.safetensors", tmp_path / "model.safetensors"
    train(whole, 12)
    train(out, 6)
    process = start("train(Path('model.safetensors'), 900, pause=0.05, every=900, options={'seed': 2})", tmp_path)
    try:
        wait_for(process, "1")
    finally:
        process.kill()
        process.communicate()
    with pytest.raises(InputError, match="trained with seed 1, not 2"):
        train(out, 900, options={"seed": 2}, resume=True)
    train(out, 12, resume=True)
    assert equal(out, whole)


@pytest.mark.torch
def test_a_finished_training_is_not_overwritten_before_its_model_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    whole, out = tmp_path / "whole.safetensors", tmp_path / "model.safetensors"
    train(whole, 6)
    train(out, 3)
    os.utime(out, (1, 1))  # of an earlier training
    with monkeypatch.context() as while_it_judges:
        while_it_judges.setattr(space["kit"], "write_model", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(out, 6, resume=True)
    for model in ("earlier", None):
        if model is None:
            out.unlink()
        with pytest.raises(InputError, match=r"a finished training \(6 steps\), of which .* write that with --resume"):
            train(out, 6)
    train(out, 6, resume=True)
    assert equal(out, whole)
    train(out, 6)


@pytest.mark.torch
def test_tensorboard_gets_the_curve(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def steps(run: str) -> list[int]:
        events = EventAccumulator(str(folder / run))
        events.Reload()
        assert events.Tags()["scalars"] == ["loss"]
        return [e.step for e in events.Scalars("loss")]

    folder, model = tmp_path / "events", tmp_path / "model.safetensors"
    train(model, 5, tensorboard=folder)
    events = EventAccumulator(str(folder / "model"))
    events.Reload()
    got = [(e.step, pytest.approx(e.value)) for e in events.Scalars("loss")]
    assert got == list(zip(range(5), curve(model)["loss"], strict=True))
    # TensorBoard names a run after its folder: the model's name, and a number if the training restarted.
    train(model, 3, tensorboard=folder)
    train(model, 6, tensorboard=folder, resume=True)
    assert {path.name for path in folder.iterdir()} == {"model", "model-2"}
    assert (steps("model"), steps("model-2")) == ([*range(5)], [*range(6)])


@pytest.mark.torch
def test_the_curve_is_not_written_through_a_link_in_a_folder_that_replaces_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torch.utils import tensorboard

    folder, victim, written = tmp_path / "events", tmp_path / "victim", tensorboard.SummaryWriter
    victim.write_text("root's")

    def swapped(at: str, **more: Any) -> Any:
        """Act like the owner of the parent folder, after the training has made its own."""
        (folder / "model").rename(folder / "old")
        (folder / "model").mkdir()
        for second in range(int(time.time()) - 2, int(time.time()) + 60):
            name = f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}.0"
            (folder / "model" / name).symlink_to(victim)
        return written(at, **more)

    monkeypatch.setattr(tensorboard, "SummaryWriter", swapped)
    train(tmp_path / "model.safetensors", 3, tensorboard=folder)
    assert victim.read_text() == "root's"
    assert [path.stat().st_size > 0 for path in (folder / "old").iterdir()] == [True]


@pytest.mark.torch
@pytest.mark.machine_root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_the_curve_is_not_continued_in_the_folder_of_another_user(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    folder, model = tmp_path / "events", tmp_path / "model.safetensors"
    train(model, 3, tensorboard=folder)
    refused = r"--tensorboard .*events: cannot be written: .* belongs to another user"
    for mode, owner, own in ((0o1777, 12345, 0o755), (0o755, 12345, 0o755), (0o755, 0, 0o777)):
        folder.chmod(mode)
        os.chown(folder / "model", owner, owner)
        (folder / "model").chmod(own)
        with pytest.raises(InputError, match=refused):
            train(model, 6, tensorboard=folder, resume=True)


@pytest.mark.torch
def test_without_tensorboard_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quell.train import kit

    monkeypatch.setattr(kit, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=f"^--tensorboard needs tensorboard: {re.escape(install('train'))}$"):
        train(tmp_path / "model.safetensors", 5, tensorboard=tmp_path / "events")
