"""LFQ's experiments in Python, and its queue words on the command line."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quell import _core
from quell._core import InputError

F32 = NDArray[np.float32]
COUNT = 8


def layers(bias: float, width: int = 32) -> list[F32]:
    """Random weights and biases, uniform within one over the root of the number of inputs."""
    rng = np.random.default_rng(1)
    out: list[F32] = []
    for inputs, outputs in ((60, width), (width, width), (width, width), (width, 1)):
        bound = 1 / math.sqrt(inputs)
        out += [rng.uniform(-bound, bound, shape).astype(np.float32) for shape in ((outputs, inputs), (outputs,))]
    out[-1][0] = bias
    return out


def run(alpha: float = 10.0, **options: Any) -> dict[str, bytearray]:
    return _core.lfq_experiments(layers(12.0), 7, COUNT, alpha, **options)


def test_columns_have_the_shapes_and_values_that_are_written_down() -> None:
    raw = run()
    features = np.frombuffer(raw["features"], np.float32).reshape(COUNT, 60)
    decided = np.frombuffer(raw["decided"], np.uint8)
    before, label = (np.frombuffer(raw[key], np.int32) for key in ("before", "label"))
    limits = np.frombuffer(raw["limits"], np.int32).reshape(COUNT, 2)
    rewards = np.frombuffer(raw["rewards"], np.float64).reshape(COUNT, 2)
    rate, rtt, duration, act, bic = np.frombuffer(raw["draws"], np.float64).reshape(COUNT, 5).T
    at = np.frombuffer(raw["decided_at"], np.float64)
    assert decided.all()
    assert np.isfinite(features).all() and (features[:, 20] > 0).all()
    assert (limits == before[:, None] + [-1, 1]).all()
    assert (label == np.where(rewards[:, 1] >= rewards[:, 0], limits[:, 1], limits[:, 0])).all()
    assert ((rate >= 5e6) & (rate <= 25e6)).all() and ((rtt >= 0.005) & (rtt <= 0.025)).all()
    assert ((duration >= 3.75) & (duration <= 6.25)).all() and (act < at).all() and (at < duration).all()
    assert set(bic) <= {0.0, 1.0}


def test_results_depend_on_seeds_and_weights_alone() -> None:
    assert run(threads=1) == run(threads=2) == run()
    half = COUNT // 2
    parts = [_core.lfq_experiments(layers(12.0), seed, half, 10.0) for seed in (7, 7 + half)]
    assert {key: parts[0][key] + parts[1][key] for key in parts[0]} == run()
    assert _core.lfq_experiments(layers(13.0), 7, COUNT, 10.0)["features"] != run()["features"]


def test_online_runs_one_side() -> None:
    online = np.frombuffer(run(online=True)["rewards"], np.float64).reshape(COUNT, 2)
    assert np.isfinite(online[:, 0]).all() and np.isnan(online[:, 1]).all()


def test_a_flow_without_a_decision_says_so() -> None:
    # A decision is due at a random time of the run; some flows end before theirs.
    raw = _core.lfq_experiments(layers(12.0), 0, 400, 10.0, duration_s=0.1, act_within=1.0)
    decided = np.frombuffer(raw["decided"], np.uint8)
    assert 0 < decided.sum() < 400
    label = np.frombuffer(raw["label"], np.int32)
    assert ((label == 0) == (decided == 0)).all()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda w: w[:-1], "a layer is a weight and a bias"),
        (lambda w: w[:-2], "layers"),
        (lambda w: [w[0][:, :59].copy(), *w[1:]], "numbers instead of"),
        (lambda w: [w[0] * np.float32("nan"), *w[1:]], "finite"),
    ],
)
def test_bad_weights_are_refused_in_one_line(broken: Callable[[list[F32]], list[F32]], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        _core.lfq_experiments(broken(layers(12.0)), 1, 1, 10.0)
    assert "\n" not in str(error.value) and str(error.value).startswith("weights: ")


@pytest.mark.parametrize("options", [{"duration_s": 0.01}, {"act_within": 0.0}, {"duration_s": math.nan}])
def test_settings_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError):
        run(**options)
    with pytest.raises(InputError, match="alpha"):
        run(alpha=-1.0)


def test_there_are_sixty_feature_names() -> None:
    names = _core.lfq_features()
    assert len(set(names)) == 60 and names[0] == "backlog_100p_5"
    assert _core.lfq_features(paper_weights=True)[0] == "backlog_100p_4"


def test_queue_words_of_lfq(tmp_path: Path) -> None:
    assert _core.queue("lfq limit 20p") == "lfq limit 20"
    nothing = tmp_path / "nothing.safetensors"
    with pytest.raises(InputError, match=r"nothing\.safetensors"):
        _core.queue(f"lfq model {nothing}")
    with pytest.raises(InputError, match="model FILE"):
        _core.queue("lfq alpha 3")
