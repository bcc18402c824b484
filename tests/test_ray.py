"""A Ray cluster of two nodes gives the results of one process, whichever processes die in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from lateness import Lateness
from quell._core import InputError, Scenario
from quell.cli import dispatch as cli
from quell.common.extras import install
from quell.experiments import executor, experiment
from quell.experiments.executor import HERE

SHORT = ["compare", "--rate", "10mbit", "--flow", "cubic:2", "--duration", "3s", "--warmup", "1s", "--seeds", "2"]
LINK = Scenario.from_keys(link={"rate": "10mbit"}, flow=[{"cc": "newreno", "count": 4}])
QUEUES = ["--aqm", "pfifo limit 50", "--aqm", "codel"]


def test_without_ray_one_line_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(executor, "find_spec", lambda _: None)
    assert cli.call([*SHORT, "--ray", "local"]) == 2
    assert capsys.readouterr().err == f"quell: --ray needs ray: {install('ray')}\n"


def test_this_process_keeps_the_order_of_the_items() -> None:
    assert HERE.map(pow, [3, 1, 2], 2) == [9, 1, 4]
    assert list(HERE.stream(pow, [3, 1], 2)) == [(0, 9), (1, 1)]


class Ended(executor.Executor):
    """A cluster that ends after a number of calls."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def stream(self, function: Any, items: Any, *shared: Any, at_once: int = 0) -> Iterator[tuple[int, Any]]:
        for found in super().stream(function, items, *shared, at_once=at_once):
            if not self._left:
                raise executor._ended("has ended: no node answers")
            self._left -= 1
            yield found


@pytest.mark.parametrize(("calls", "kept"), [(3, 3), (5, 4), (0, 0)])  # 4 runs, then one of each queue with probes
def test_a_cluster_that_ends_loses_no_finished_run(
    calls: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, ended = tmp_path / "runs.json", Ended(calls)
    monkeypatch.setattr("quell.cli.simulate.executor", lambda _: nullcontext(ended))
    assert cli.call([*SHORT, *QUEUES, "--ray", "local", "--json", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"quell: interrupted: {kept} of 4 runs had finished and were kept\n" in said
    assert said.endswith("quell: --ray: the cluster has ended: no node answers; start it again, or leave --ray out\n")
    assert len(json.loads(file.read_text()) if file.exists() else []) == kept


@pytest.mark.torch
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_an_address_without_a_listener_is_reported_at_once(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    with Lateness() as late:
        began = time.monotonic()
        assert cli.call([*SHORT, "--ray", address]) == 2
        took = time.monotonic() - began
    said = capsys.readouterr().err
    assert said.startswith(f"quell: --ray {address}: ") and said.count("\n") == 1
    assert took < late.allowed_s(15)


@pytest.mark.torch
def test_no_cluster_is_joined_that_another_user_may_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `auto`, Ray takes the address in /tmp/ray/ray_current_cluster, and its results are programs (pickle)."""
    ray = pytest.importorskip("ray", reason="ray is not installed")

    def joined(*_: object, **__: object) -> None:
        raise ConnectionError("joined")

    monkeypatch.setattr(ray, "init", joined)
    assert cli.call([*SHORT, "--ray", "auto"]) == 2
    said = capsys.readouterr().err
    assert said == "quell: --ray auto: this is not an address; write local, or HOST:PORT of a running cluster\n"


LOCAL = """
import subprocess
from quell.experiments import executor
with executor.executor("local") as on:
    assert on.map(pow, [2], 3) == [8]
    import ray
    session = ray._private.worker._global_node.get_session_dir_path()
    words = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "ls", session)
    print(subprocess.run(words, capture_output=True, text=True).stderr)
"""


@pytest.mark.torch
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_no_other_user_can_use_a_ray_of_this_machine(tmp_path: Path) -> None:
    """By default all users may write to the folder of Ray's sockets, and may read Ray's token file."""
    pytest.importorskip("ray", reason="ray is not installed")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", LOCAL], env=environment | {"HOME": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Permission denied" in done.stdout, done.stdout
    assert not (tmp_path / ".ray/auth_token").exists()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a core each, on this machine only."""
    pytest.importorskip("ray", reason="ray is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find the tests
    started = None
    for _ in range(3):  # Ray gives a node 30 s to start
        started = Cluster()
        try:
            started.add_node(num_cpus=1, object_store_memory=100_000_000, include_dashboard=False)
            started.add_node(num_cpus=1, object_store_memory=100_000_000)
            break
        except Exception as error:
            started.shutdown()
            started, why = None, error
    if started is None:
        pytest.skip(f"this machine is too busy for Ray, which did not start in three attempts: {why}")
    try:
        yield started
    finally:
        started.shutdown()


@pytest.fixture(scope="module")
def on(cluster: Any) -> Iterator[executor.Executor]:
    with executor.executor(cluster.address) as workers:
        yield workers


def records(text: str) -> list[dict[str, Any]]:
    """Return the results of runs without their cost, which differs from run to run."""
    return [{k: v for k, v in r.items() if k not in ("cpu_s", "packets_per_cpu_s")} for r in json.loads(text)]


@pytest.mark.torch
def test_compare_gives_the_records_of_one_process(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Must run before the tests with `on`, as a process is in one cluster at a time."""
    seen = []
    for where in ([], ["--ray", cluster.address]):
        assert cli.call([*SHORT, *QUEUES, *where, "--json", "-"]) == 0
        seen.append(records(capsys.readouterr().out))
    assert len(seen[0]) == 4
    assert seen[0] == seen[1]


@pytest.mark.torch
def test_evaluate_gives_the_cells_of_one_process(
    cluster: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = []
    for where in ([], ["--ray", cluster.address]):
        assert cli.call(["evaluate", "--sections", "5.3", "--seeds", "2", "--aqm", "codel", *where, "--json", "-"]) == 0
        seen.append(json.loads(capsys.readouterr().out))
    assert len(seen[0]) == 4
    assert seen[0] == seen[1]


def weigh(item: int, weights: list[float]) -> tuple[int, float]:
    return item, item * sum(weights)


def refuse(item: int) -> None:
    raise InputError(f"item {item} is bad")


@pytest.mark.torch
def test_map_keeps_the_order_and_raises_what_a_call_raised(on: executor.Executor) -> None:
    weights = [0.5] * 100_000
    assert on.cores == 2
    assert on.map(weigh, range(8), weights) == HERE.map(weigh, range(8), weights)
    with pytest.raises(InputError, match=r"^item 0 is bad$"):
        on.map(refuse, [0])


@pytest.mark.torch
def test_runs_of_several_scenarios_are_those_of_one_process(on: executor.Executor) -> None:
    """`quell reproduce` uses this."""
    runs = []
    for rate in ("5mbit", "10mbit"):
        scenario = experiment.load(rate=rate, flows=["cubic:2"], duration="3s", warmup="1s")
        runs.append((scenario, experiment.Job("codel", scenario.run_seed(0))))

    def hashed(record: dict[str, Any]) -> str:
        return str(record["trace_hash"])

    here = experiment.run_each(runs, hashed)
    assert len(set(here)) == 2
    assert experiment.run_each(runs, hashed, on=on) == here


@pytest.mark.torch
def test_training_on_a_cluster_gives_the_weights_of_one_process(on: executor.Executor, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from quell import Policy
    from quell.train import rl_aqm

    (tmp_path / "short.toml").write_text(LINK.replace(duration="5s").toml())
    short = rl_aqm.Arguments(scenario=str(tmp_path / "short.toml"), episodes=3, validation_runs=1)
    for name, where in (("here", HERE), ("there", on)):
        rl_aqm.train(short, tmp_path / name, on=where)
    here, there = (Policy.load(tmp_path / name) for name in ("here", "there"))
    assert all((there.tensors()[name] == array).all() for name, array in here.tensors().items())
    assert here.card["results"]["reward"] == there.card["results"]["reward"]


@pytest.mark.torch
def test_a3c_workers_are_actors_whose_gradients_make_one_network(on: executor.Executor, tmp_path: Path) -> None:
    """One worker's episodes are those of one process, bit for bit; with two, one is late, and both contribute."""
    pytest.importorskip("torch", reason="torch is not installed")
    from quell import Policy
    from quell.train import a3c, coupled

    short = a3c.Arguments(workers=1, episodes=2, steps=20, environment="lookup", reward="rtt")
    for name, where in (("here", HERE), ("there", on)):
        a3c.train(short, tmp_path / f"{name}.safetensors", on=where)
    here, there = (Policy.load(tmp_path / f"{name}.safetensors").tensors() for name in ("here", "there"))
    assert all((there[name] == array).all() for name, array in here.items())
    two = a3c.Arguments(workers=2, episodes=2, steps=20, environment="lookup", reward="rtt")
    shared = a3c.start_global(two)
    first = shared.flat.clone()
    traces = [coupled.record(1, k, published=False, duration_s=6.0) for k in range(2)]
    with a3c.start_workers(two, shared, a3c.scaling(two, traces), traces, on) as workers:
        means = [workers.play(number) for number in range(2)]
    assert [len(t) for t in means] == [2, 2] and means[0] != means[1]
    assert int(shared.count) == 2 * 2 * 20 / two.update_every
    assert not shared.flat.equal(first)


@pytest.mark.torch
def test_more_a3c_workers_than_cores_are_refused(on: executor.Executor, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from quell.train import a3c

    with pytest.raises(InputError, match=r"^--ray: each worker needs a core: 3 are wanted, the cluster has 2$"):
        a3c.train(a3c.Arguments(workers=3, episodes=1, environment="lookup"), tmp_path / "m.safetensors", on=on)
    assert not list(tmp_path.iterdir())


def die_once(item: int, folder: Path) -> int:
    """Kill the worker the first time that an odd item comes."""
    mark = folder / str(item)
    if item % 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


@pytest.mark.torch
def test_a_killed_worker_loses_no_run(on: executor.Executor, tmp_path: Path) -> None:
    assert on.map(die_once, range(4), tmp_path) == [0, 1, 4, 9]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "3"]


@pytest.mark.torch
def test_a_node_removed_half_way_loses_no_run(cluster: Any, on: executor.Executor) -> None:
    """Must run last: the node does not come back."""
    scenario = experiment.load(LINK, duration="60s", warmup="1s", seeds="24")
    work = experiment.plan(scenario, ["fq_codel"])
    here = experiment.run_jobs(scenario, work)
    (node,) = cluster.worker_nodes

    def remove(outcome: experiment.Outcome) -> None:
        if len(outcome.by_job) == 4:
            cluster.remove_node(node, allow_graceful=False)

    there = experiment.run_jobs(scenario, work, on=on, on_record=remove)
    assert not cluster.worker_nodes
    assert records(json.dumps(there.records)) == records(json.dumps(here.records))
    assert len(there.records) == 24


@pytest.mark.torch
def test_lfq_learns_from_the_same_flows(on: executor.Executor) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    from quell.train import lfq

    learner = lfq.Learner(lfq.Arguments(duration_s=0.5))
    here, there = learner.experiments(20), learner.experiments(20, on)
    assert here.features.equal(there.features) and here.label.equal(there.label)
