#!/usr/bin/env python3
"""Train RL-AQM as its paper's Figures 4 and 8 do, and write python/quell/papers/trained/rl-aqm.studies.parquet.

    .venv/bin/python tools/rl_aqm.py [STUDY ...]

Studies, five seeds each, above a device of 100 packets: 10mbit (Figure 4's link), 100mbit (Figure 8's). A study's rows
replace those that the file has of it. Takes some ten minutes of a core in all.
"""

import argparse
import contextlib
import pathlib
import tempfile

import polars as pl

from quell import Scenario
from quell.common import files
from quell.common.console import err
from quell.papers import rl_aqm as paper
from quell.papers.bench import Bench, mean
from quell.train import rl_aqm

ROOT = pathlib.Path(__file__).resolve().parents[1]
INTO = ROOT / "python" / "quell" / "papers" / "trained" / "rl-aqm.studies.parquet"
STUDIES = {"10mbit": (10, 40), "100mbit": (100, 25)}
"""Mbit/s, and episodes: rewards do not rise after some ten."""
SEEDS = range(1, 6)
NIC = 100
RUNS = 10


def trained(mbps, episodes, seed):
    """Train; the curve, and what the network does on the paper's links."""
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
            curve[-1][f"max_{rate}"] = mean(run.most for run in runs)
            curve[-1][f"sections_{rate}"] = [mean(run.sections[k] for run in runs) for k in range(9)]
        return curve


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", choices=[*STUDIES, []], metavar="STUDY")
    for study in parser.parse_args().studies or STUDIES:
        mbps, episodes = STUDIES[study]
        rows = []
        for seed in SEEDS:
            curve = trained(mbps, episodes, seed)
            rows += [{"study": study, "seed": seed, **point} for point in curve]
            err.print(f"{study} {seed}: { {k: v for k, v in curve[-1].items() if '_' in k} }", soft_wrap=True)
        table = pl.DataFrame(rows, infer_schema_length=None)
        with contextlib.suppress(FileNotFoundError):
            others = pl.read_parquet(INTO).filter(pl.col("study") != study)
            table = pl.concat([others, table], how="diagonal_relaxed")
        files.write_whole(INTO, table.write_parquet)


if __name__ == "__main__":
    main()
