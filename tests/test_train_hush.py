"""hush: random links, how queues are judged on them, and the search for its numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from quell import _core
from quell._core import InputError
from quell.cli import dispatch as cli
from quell.train import links


def test_links_are_drawn_from_the_seed_alone() -> None:
    drawn = links.draw(5, 30)
    assert [x.scenario.toml() for x in drawn] == [x.scenario.toml() for x in links.draw(5, 30)]
    assert [x.scenario.toml() for x in drawn[:7]] == [x.scenario.toml() for x in links.draw(5, 7)]
    assert drawn[0].scenario.toml() != links.draw(6, 1)[0].scenario.toml()
    assert all(1 <= x.rate_mbps <= 1000 and 1 <= x.rtt_ms <= 300 and 1 <= x.flows <= 100 for x in drawn)
    assert all(x.rate_mbps * x.rtt_ms * 1e3 <= links.LARGEST_BDP_BITS for x in drawn)
    for kind in ("newreno", "cubic", "bbr", "prague", "ecn", "web", "changing", "slow-up", "udp"):
        assert any(kind in x.what for x in drawn + links.draw(6, 60)), kind


def run(goodput: float, p95: float, loss: float = 0.0, jain: float = 1.0) -> links.Run:
    return links.Run(goodput, p95, p95 / 2, p95, jain, loss, math.nan)


def test_g_p_and_wins_are_what_the_definitions_say() -> None:
    # G is cake's 10. codel is 3 % below: its shorter sojourn does not count. fq_codel is 1 % below: it does.
    classics = {name: [run(5.0, 1.0)] for name in links.CLASSICS}
    classics |= {"cake": [run(10.0, 30.0, 0.1)], "codel": [run(9.7, 5.0)], "fq_codel": [run(9.9, 20.0, jain=0.9)]}
    [bar] = links.bars(classics)
    assert (bar.goodput, bar.p95, bar.cake_loss, bar.fq_codel_jain) == (10.0, 20.0, 0.1, 0.9)
    assert links.Score.of([run(9.9, 20.0)], [bar]).wins == [1.0]
    assert links.Score.of([run(9.89, 20.0)], [bar]).wins == [0.0]
    assert links.Score.of([run(9.9, 20.1)], [bar]).wins == [0.0]
    [row] = [r for r in links.table(links.draw(1, 1), classics) if r["queue"] == "cake"]
    assert (row["g"][0], row["p"][0], row["p95/codel"]) == pytest.approx((1.0, 1.5, 6.0))


def test_the_interval_holds_the_figure() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    mean, low, high = links.interval(values, links.geometric)
    assert mean == pytest.approx(2 * math.sqrt(2))
    assert low < mean < high
    assert links.interval([3.0] * 5, links.geometric) == pytest.approx((3.0, 3.0, 3.0))


def test_judging_prints_a_row_per_queue_and_one_per_link(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "hush", "--judge", "--links", "2", "--seeds", "1", "--set", "3", "--aqm", "hush single", "--each"]
    assert cli.call(words) == 0
    out = capsys.readouterr().out
    assert [line.split("`")[1] for line in out.splitlines() if line.startswith("| `")] == [
        *links.CLASSICS,
        "hush single",
    ]
    assert sum(line.startswith(("| 0 |", "| 1 |")) for line in out.splitlines()) == 2


@pytest.mark.parametrize("text", ["", "hush 1\n", "hush 1\npower NaN\nend\n", "hush 1\npower 1e9\nend\n", "\0"])
def test_a_bad_model_is_one_line_and_status_2(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "bad.txt"
    model.write_text(text)
    assert cli.call(["run", "--rate", "1mbit", "--aqm", f"hush model {model}"]) == 2
    error = capsys.readouterr().err
    assert str(model) in error.replace("\n", "")


@pytest.fixture
def hush() -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("cma", reason="cma is not installed")
    from quell.train import hush

    return hush


@pytest.mark.torch
def test_a_model_is_written_as_it_was_read(hush: Any) -> None:
    model = hush.parse(_core.hush_model())
    assert {word: len(row) for word, row in model.items()} == hush.ROWS
    assert hush.parse(hush.write(model, ["a card"])) == model


@pytest.mark.torch
def test_a_step_changes_what_is_learned_and_keeps_it_in_range(hush: Any, tmp_path: Path) -> None:
    space = hush.Space(hush.shipped())
    assert space.model([0.0] * len(space.at)) == space.first
    far = space.model([1e6] * len(space.at))
    assert far["power"] == [2.0] and far["window"] == space.first["window"] and max(far["target"]) == 20.0
    (tmp_path / "far.txt").write_text(hush.write(far))
    assert hush.read(tmp_path / "far.txt") == far
    with pytest.raises(InputError, match="missing"):
        hush.read(tmp_path / "missing.txt")


@pytest.mark.torch
def test_the_cost_rises_with_delay_loss_and_unfairness_and_steeply_with_lost_goodput(hush: Any) -> None:
    bar = links.Bar(10.0, 10.0, 0.01, 1.0, 1.0)
    half = hush.cost(run(10.0, 5.0), bar)
    # The edges of a win at g = 1 and 0.98, and at p = 0.5: 1 / (1 + e^-2.5), 1 / (1 + e^2.5), 1 / (1 + 2^(-1 / 0.15)).
    enough, too_little, short = 0.924142, 0.075858, 0.990254
    assert half == pytest.approx(math.log(0.5) + 1.5 * (1 - enough * short), abs=1e-5)
    assert hush.cost(run(10.0, 5.0, 0.01, 0.99), bar) == half
    assert hush.cost(run(10.0, 1.0), bar) == pytest.approx(-0.9 + 1.5 * (1 - enough), abs=1e-5)
    lost = 100 * math.log(0.997 / 0.98) + 1.5 * (enough - too_little) * short
    assert hush.cost(run(9.8, 5.0), bar) == pytest.approx(half + lost, abs=1e-5)
    assert hush.cost(run(1.0, 50.0), bar) == pytest.approx(math.log(5) + 6 + 1.5, abs=1e-5)
    assert hush.cost(run(10.0, 5.0, 0.11), bar) == pytest.approx(half + 0.3)
    assert hush.cost(run(10.0, 5.0, jain=0.49), bar) == pytest.approx(half + 2.0)


@pytest.fixture
def ablation(hush: Any) -> Any:
    from quell.train import ablate

    return ablate


@pytest.mark.torch
def test_a_feature_taken_away_leaves_the_level_of_the_settings_that_it_entered(hush: Any, ablation: Any) -> None:
    whole, drawn = hush.shipped(), links.draw(5, 3)
    whole["hold"][4] = 0.0
    # As if a constant were all that there is: the settings' level is the constant's, less 1 without the idle share.
    level = dict.fromkeys(ablation.SETTINGS, 0.0)

    def levels(model: Any) -> dict[str, float]:
        return level if model["target"][4] else dict.fromkeys(level, -1.0)

    found = ablation.parts(whole, drawn, levels)
    less = found["without idle share"]
    assert [row[4] for word, row in less.items() if len(row) > 1] == [0.0] * 5
    assert less["target"][0] == whole["target"][0] + 1
    assert less["hold"] == whole["hold"], "which the idle share does not enter"
    known = whole["step"][3] * sum(math.log(link.flows) for link in drawn) / 3
    assert found["without flows"]["step"][0] == pytest.approx(whole["step"][0] + known)
    assert found["without all features"]["target"][1:] == [0.0] * 8
    assert found["the flow with most bytes queued pays"] == whole | {"service": [0.0]}


@pytest.mark.torch
def test_numbers_vary_by_a_fifth_and_constants_by_a_fifth_of_what_they_set(hush: Any, ablation: Any) -> None:
    whole = hush.shipped()
    varied = ablation.numbers(whole)
    assert len(varied) == sum(number != 0 for row in whole.values() for number in row)
    less, more = varied["target, constant"]
    assert math.exp(less["target"][0] - whole["target"][0]) == pytest.approx(0.8)
    assert math.exp(more["target"][0] - whole["target"][0]) == pytest.approx(1.2)
    assert varied["power"][1]["power"][0] == pytest.approx(1.2 * whole["power"][0])
    assert varied["target, idle share"][0]["target"][4] == pytest.approx(0.8 * whole["target"][4])


@pytest.mark.torch
def test_an_ablation_prints_both_tables(hush: Any, ablation: Any) -> None:
    [link] = [x for x in links.draw(3, 40, length=0.1) if x.rate_mbps < 20][:1]
    text = ablation.ablate(hush.shipped(), [link])
    first, second = text.split("\n\n")
    assert first.splitlines()[2].startswith("| as shipped |")
    assert "| without idle share | " in first
    assert "| fq_codel's law on the same queues | " in first
    assert second.startswith("| number | 20 % less | 20 % more |")
    assert "| service | " in second


@pytest.mark.torch
def test_a_resumed_search_ends_with_the_same_model(hush: Any, tmp_path: Path) -> None:
    def train(name: str, generations: int, resume: bool = False) -> str:
        arguments = hush.Arguments(
            generations=generations, population=4, pool=2, batch=2, validation=2, held_out=2, validate_every=1,
            length=0.1, most_mbps=50.0, sigma=0.3,
        )  # fmt: skip
        row = hush.train(arguments, tmp_path / name, resume=resume)
        assert 0.5 < row["g"][0] < 1.5
        text = (tmp_path / name).read_text()
        assert "of seed" in text and _core.queue(f"hush model {tmp_path / name}")
        return text

    whole = train("whole.txt", 3)
    train("parts.txt", 1)
    assert train("parts.txt", 3, resume=True) == whole
