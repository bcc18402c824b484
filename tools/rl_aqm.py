#!/usr/bin/env python3
"""Train RL-AQM as in its paper's Figures 4 and 8, judge variants; writes python/quell/papers/trained/rl-aqm.*.parquet.

    .venv/bin/python tools/rl_aqm.py [STUDY ...]

| study | what it does | file | minutes of a core |
|---|---|---|---|
| 10mbit | five trainings on Figure 4's link above a device of 100 packets | rl-aqm.studies | 6 |
| 100mbit | the same on Figure 8's | rl-aqm.studies | 4 |
| wide | the corrected network, the default one, a tuned PI and the rule on 32 links, and on 16 with CUBIC, ECN and BBR | rl-aqm.wide | 10 |
| process | searches the paper's decision process for a policy that beats the rule | rl-aqm.process | 2 |
| pi | finds PI's three numbers by CMA-ES, for each depth of the device; prints them | | 4 |
| transient | three corrected networks and PI on 32 links where flows arrive and leave, for which they were trained | rl-aqm.wide | 11 |

A study replaces its former rows in its file. Without STUDY: 10mbit and 100mbit. wide needs --model FILE.
"""

import argparse
import contextlib
import itertools
import math
import pathlib
import tempfile
from typing import Any

import cma
import numpy as np
import polars as pl

from quell import Scenario
from quell.common import files
from quell.common.console import err
from quell.papers import rl_aqm as paper
from quell.papers import rl_aqm_more as more
from quell.papers import rl_aqm_networks as networks
from quell.papers.bench import Bench, mean
from quell.train import rl_aqm, rl_aqm_corrected, rl_aqm_links

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAINED = ROOT / "python" / "quell" / "papers" / "trained"
STUDIES = {"10mbit": (10, 40), "100mbit": (100, 25)}
"""Rate, Mbit/s, and number of episodes. Rewards stop rising after about ten episodes."""
SEEDS = range(1, 6)
NIC = 100
RUNS = 10
WIDE_RUNS = 20
TRANSIENT_RUNS = 4
WIDE_FIELDS = ("reward", "delay_ms", "utilisation", "goodput_mbps")
SETS: tuple[tuple[rl_aqm_links.Senders, int], ...] = (("newreno", 32), ("mixed", 16))
PROCESS_LINKS = 32
SEARCHED = 40
"""Generations of the search for a policy."""


def trained(mbps, episodes, seed):
    """Train; return the curve, whose last point has the network's results on the paper's links."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = pathlib.Path(folder) / "scenario.toml"
        scenario.write_text(Scenario("rl-aqm").replace(link={"rate": f"{mbps}mbit"}).toml())
        path = pathlib.Path(folder) / "m.safetensors"
        rl_aqm.train(rl_aqm.Arguments(scenario=str(scenario), nic=NIC, episodes=episodes, seed=seed), path)
        curve = pl.read_parquet(path.with_name("m-checkpoints") / "curve.parquet").to_dicts()
        links = {f"{rate}": (paper.scenario_of((rate, 20), NIC), f"rlaqm model {path}") for rate in (10, 100)}
        got = Bench(seeds=RUNS).seeds_of("judged", links, paper.reduce, bin_s=paper.BIN_S)
        for rate, runs in got.items():
            curve[-1][f"delay_{rate}"] = mean(run.delay for run in runs)
            curve[-1][f"throughput_{rate}"] = mean(run.throughput for run in runs)
            curve[-1][f"max_{rate}"] = mean(run.max_delay for run in runs)
            curve[-1][f"sections_{rate}"] = [mean(run.sections[k] for run in runs) for k in range(9)]
        return curve


def keep(name, study, rows):
    """Replace a study's rows in the table."""
    into = TRAINED / f"rl-aqm.{name}.parquet"
    table = pl.DataFrame([{"study": study, **row} for row in rows], infer_schema_length=None)
    with contextlib.suppress(FileNotFoundError):
        others = pl.read_parquet(into).filter(pl.col("study") != study)
        table = pl.concat([others, table], how="diagonal_relaxed")
    files.write_whole(into, table.write_parquet)


def curves(study):
    mbps, episodes = STUDIES[study]
    rows = []
    for seed in SEEDS:
        curve = trained(mbps, episodes, seed)
        rows += [{"seed": seed, **point} for point in curve]
        err.print(f"{study} {seed}: { {k: v for k, v in curve[-1].items() if '_' in k} }", soft_wrap=True)
    keep("studies", study, rows)


# Links that were not used for any choice. ----------------------------------------------------------------------------


def judged(study, senders, count, nic, queues, runs):
    """Judge each queue on each link: means over runs, with the same seeds for each queue."""
    rows: list[dict[str, Any]] = []
    for queue, model in queues.items():
        marks = " ecn" if senders == "mixed" else ""
        for k in range(count):
            link = rl_aqm_links.link("judge", k, nic=nic, senders=senders)
            got = [rl_aqm_links.judge(f"rlaqm{marks}", link, run, model=model) for run in range(runs)]
            found = {field: mean(getattr(run, field) for run in got) for field in WIDE_FIELDS}
            rows.append({"senders": senders, "nic": nic, "queue": queue, "link": k, "runs": runs, **found})
        own = mean([row["reward"] for row in rows[-count:]])
        err.print(f"{study}, {senders}, nic {nic}, {queue}: reward {own:.4f}", soft_wrap=True)
    return rows


def wide(corrected):
    rows = []
    for (senders, count), nic in itertools.product(SETS, rl_aqm_links.NICS):
        queues = {
            "rule": more.always_more(),
            "default": None,
            "corrected": corrected.read_bytes(),
            "pi": networks.pi(*networks.PI[nic]),
        }
        rows += judged("wide", senders, count, nic, queues, WIDE_RUNS)
    keep("wide", "wide", rows)


def transient():
    """Train and judge on links where flows arrive and leave all the time."""
    learned = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, 4):
            path = pathlib.Path(folder) / f"{seed}.safetensors"
            rl_aqm_corrected.train(rl_aqm_corrected.Arguments(senders=("transient",), seed=seed), path)
            learned[f"seed {seed}"] = path.read_bytes()
    rows = []
    for nic in rl_aqm_links.NICS:
        queues = {"rule": more.always_more(), **learned, "pi": networks.pi(*found_pi(nic, "transient"))}
        rows += judged("transient", "transient", 32, nic, queues, TRANSIENT_RUNS)
    keep("wide", "transient", rows)


# The paper's decision process. ---------------------------------------------------------------------------------------


def process():
    """Compare policies of delay, utilisation and p, with the paper's steps and rules, above a device of 100 packets."""
    policies = {name: networks.steps(*network) for name, network in networks.STEPS.items()}
    policies[more.FOUND] = found = search_steps()
    asked = full = decisions = 0
    rows: list[dict[str, Any]] = []
    for (name, model), k in itertools.product(policies.items(), range(PROCESS_LINKS)):
        link = rl_aqm_links.link("process", k, nic=NIC)
        judged = rl_aqm_links.judge("rlaqm", link, 0, model=model)
        rows.append({"policy": name, "link": k, "reward": judged.reward, "same": model == found})
    for k in range(PROCESS_LINKS):
        read, _ = rl_aqm_links.played("rlaqm", rl_aqm_links.link("process", k, nic=NIC), 0, model=more.always_more())
        busy = read["utilisation"][read["delay_ms"] >= rl_aqm.EMPTY_MS]
        decisions, asked = decisions + len(read["delay_ms"]), asked + len(busy)
        full += int((busy >= 0.95).sum())
    for name in policies:
        rewards = [row["reward"] for row in rows if row["policy"] == name]
        err.print(f"{name}: reward {mean(rewards):.4f}", soft_wrap=True)
    err.print(
        f"asked in {100 * asked / decisions:.1f} % of decisions, U >= 0.95 in {100 * full / asked:.1f} % of those"
    )
    shares = {"asked": asked / decisions, "full": full / asked}
    keep("process", "process", [{**row, **shares} for row in rows])


def search_steps():
    """Find a linear network of steps by CMA-ES; each generation has new links."""
    search = cma.CMAEvolutionStrategy(np.zeros(20), 0.5, {"popsize": 12, "seed": 2, "verbose": -9})
    for generation in range(SEARCHED):
        links = [rl_aqm_links.link("search", 6 * generation + k, nic=NIC, seconds=45) for k in range(6)]
        found = search.ask()
        models = [networks.steps(x[:15].reshape(5, 3), x[15:]) for x in found]
        losses = [-mean(rl_aqm_links.judge("rlaqm", link, 0, model=m).reward for link in links) for m in models]
        search.tell(found, losses)
    x = search.result.xfavorite
    return networks.steps(x[:15].reshape(5, 3), x[15:])


def pi():
    for nic in rl_aqm_links.NICS:
        found_pi(nic, "newreno")


def found_pi(nic, senders):
    """Find PI's gain, reference and damping."""
    first = [math.log(v) for v in (0.03, 1.5 if nic == 0 else 1.0, 0.05)]
    search = cma.CMAEvolutionStrategy(first, 0.7, {"popsize": 10, "seed": 2, "verbose": -9})
    for generation in range(24):
        where = range(6 * generation, 6 * generation + 6)
        links = [rl_aqm_links.link("search", k, nic=nic, seconds=45, senders=senders) for k in where]
        found = search.ask()
        models = [networks.pi(*np.exp(np.clip(x, -12, 4))) for x in found]
        losses = [-mean(rl_aqm_links.judge("rlaqm", link, 0, model=m).reward for link in links) for m in models]
        search.tell(found, losses)
    numbers = np.exp(search.result.xfavorite)
    err.print(f"PI, {senders}, nic {nic}: {', '.join(f'{v:.3g}' for v in numbers)}")
    return numbers


def main():
    studies = {name: lambda name=name: curves(name) for name in STUDIES} | {
        "process": process,
        "pi": pi,
        "transient": transient,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", choices=[*studies, "wide", []], metavar="STUDY")
    parser.add_argument("--model", type=pathlib.Path, help="wide: a network of quell train rl-aqm --corrected")
    args = parser.parse_args()
    if "wide" in args.studies and args.model is None:
        parser.error("wide: give --model FILE")
    for study in args.studies or STUDIES:
        if study == "wide":
            wide(args.model)
        else:
            studies[study]()


if __name__ == "__main__":
    main()
