"""hush: random links, the judgement of queues on them, and the search for hush's numbers."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import signal
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from quell import _core
from quell._core import InputError
from quell.cli import dispatch as cli
from quell.common import files
from quell.experiments.experiment import stream
from quell.train import judge, kinds, links


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_links_are_drawn_from_the_seed_alone(kind: str) -> None:
    drawn = kinds.draw(5, 30, kind=kind)
    texts = [x.scenario.toml() for x in drawn]
    assert texts == [x.scenario.toml() for x in kinds.draw(5, 30, kind=kind)]
    assert texts[:7] == [x.scenario.toml() for x in kinds.draw(5, 7, kind=kind)]
    assert texts[0] != kinds.draw(6, 1, kind=kind)[0].scenario.toml()
    assert all(1 <= x.rate_mbps <= 1000 and 1 <= x.rtt_ms <= 600 and 1 <= x.flows <= 100 for x in drawn)
    assert {x.kind for x in drawn} == {kind}


def test_a_set_of_mixed_links_is_that_of_version_0_2() -> None:
    """Published figures from before the kinds of links used these."""
    texts = "".join(x.scenario.toml() + x.what for x in kinds.draw(119144620, 100, 3))
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == "fc538b3ad1b23a00"


def test_each_kind_has_what_it_is_named_for() -> None:
    drawn = {kind: kinds.draw(6, 90, kind=kind) for kind in kinds.KINDS}
    assert all(x.rate_mbps * x.rtt_ms * 1e3 <= kinds.LARGEST_BDP_BITS for kind in drawn for x in drawn[kind])
    for kind, words in {
        "mixed": ("newreno", "cubic", "bbr", "prague", "ecn", "web", "changing", "slow-up", "udp"),
        "settled": ("newreno", "cubic", "bbr", "prague", "ecn"),
        "far": ("newreno", "cubic", "bbr", "prague", "loss", "udp"),
        "moving": ("cellular", "satellite", "wifi", "web"),
        "busy": ("web", "call", "video_call", "game", "page", "video", "upload"),
    }.items():
        for word in words:
            assert any(word in x.what for x in drawn[kind]), (kind, word)
    assert all(150 <= x.rtt_ms <= 600 and len(x.ccs) >= 2 for x in drawn["far"])
    assert all(30 <= x.scenario.duration_s <= 90 for x in drawn["settled"])
    assert {x.senders for x in drawn["settled"]} == {*kinds.SENDERS.values(), kinds.SEVERAL} - {"Prague"}


def test_a_span_shortens_runs_and_changes_nothing_else() -> None:
    for kind in kinds.KINDS:
        whole, half, few = (
            kinds.draw(6, 8, kind=kind, span=span) for span in (None, kinds.Span(0.5), kinds.Span(packets=50_000.0))
        )
        for a, b, c in zip(whole, half, few, strict=True):
            assert (a.rate_mbps, a.rtt_ms, a.what) == (b.rate_mbps, b.rtt_ms, b.what) == (c.rate_mbps, c.rtt_ms, c.what)
            assert b.scenario.duration_s < a.scenario.duration_s
            if kind != "mixed":  # mixed links keep the warm-up that slow start takes
                packets = c.scenario.duration_s * c.rate_mbps * 1e6 / kinds.PACKET_BITS
                assert packets < 50_000 * 1.01
                assert b.scenario.duration_s == pytest.approx(a.scenario.duration_s / 2, abs=1e-3)


def test_kinds_are_known_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert kinds.known(["busy", "mixed"]) == ["mixed", "busy"]
    assert kinds.known([]) == list(kinds.KINDS)
    assert cli.call(["train", "hush", "--judge", "--kind", "near"]) == 2
    assert "--kind near: write one of mixed, settled, far, moving, busy" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--judge", "--model", "mine.txt"], "--model mine.txt: judging takes it in queue words: --aqm 'hush model"),
        (["--aqm", "hush single"], "--aqm: only with --judge"),
        (["--ablate"], "--ablate: only with --judge"),
        (["--seeds", "3"], "--seeds: only with --judge"),
        (["--set", "0"], "--set: only with --judge"),
    ],
)
def test_an_option_without_effect_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["train", "hush", *words]) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")


def run(goodput: float, p95: float, loss: float = 0.0, jain: float = 1.0) -> links.Run:
    return links.Run(goodput, p95, p95 / 2, p95, jain, loss, math.nan)


def test_g_p_and_wins_are_what_the_definitions_say() -> None:
    # G is cake's 10. codel is 3 % below, so its shorter sojourn does not count; fq_codel, 1 % below, counts.
    classics = {name: [run(5.0, 1.0)] for name in links.CLASSICS}
    classics |= {"cake": [run(10.0, 30.0, 0.1)], "codel": [run(9.7, 5.0)], "fq_codel": [run(9.9, 20.0, jain=0.9)]}
    [bar] = links.bars(classics)
    assert (bar.goodput, bar.p95, bar.cake_loss, bar.fq_codel_jain) == (10.0, 20.0, 0.1, 0.9)
    assert links.Score.of([run(9.9, 20.0)], [bar]).wins == [1.0]
    assert links.Score.of([run(9.89, 20.0)], [bar]).wins == [0.0]
    assert links.Score.of([run(9.9, 20.1)], [bar]).wins == [0.0]
    [row] = [r for r in judge.table(kinds.draw(1, 1), classics, []) if r["queue"] == "cake"]
    assert (row["g"][0], row["p"][0]) == pytest.approx((1.0, 1.5))
    [row] = [r for r in judge.beside(kinds.draw(1, 1), classics) if r["queue"] == "cake"]
    assert row["p95/codel"] == pytest.approx(6.0)


def test_a_row_has_what_its_heads_say() -> None:
    drawn = [*kinds.draw(1, 2, kind="settled"), *kinds.draw(1, 2, kind="busy")]
    against = [links.Bar(10.0, 10.0, 0.0, 1.0, 1.0)] * 4
    mine = [run(10.0, 2.5), run(9.9, 5.0, jain=0.9), run(9.8, 5.0), run(10.1, 20.0, jain=0.8)]
    found = judge.summary(drawn, mine, [run(10.0, 1.0)] * 4, against)
    assert found["wins"][0] == found["half"][0] == 0.5
    assert found["p"][0] == pytest.approx((0.25 * 0.5 * 0.5 * 2) ** 0.25)
    assert (found["p_95"], found["p_worst"], found["g_1"]) == pytest.approx((2.0, 2.0, 0.98))
    assert (found["unfair"], found["very_unfair"], found["jain"]) == pytest.approx((0.5, 0.25, 0.925))
    names = judge.groups(drawn)
    assert names["all"] == [0, 1, 2, 3] and (names["settled"], names["busy"]) == ([0, 1], [2, 3])
    assert sorted(i for name in names if name not in ("all", *kinds.KINDS) for i in names[name]) == [0, 1, 2, 3]


def test_links_are_drawn_again_within_their_kind() -> None:
    mean, low, high = judge.pooled([0.0] * 9 + [1.0] * 9, ["a"] * 9 + ["b"] * 9)
    assert mean == low == high == 0.5
    assert judge.pooled([1.0, 2.0, 4.0], ["a"] * 3) == links.interval([1.0, 2.0, 4.0], fmean)
    assert [judge.percentile(range(1, 101), p) for p in (0, 1, 95, 100)] == [1, 1, 95, 100]


def test_the_interval_holds_the_figure() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    mean, low, high = links.interval(values, links.geometric)
    assert mean == pytest.approx(2 * math.sqrt(2))
    assert low < mean < high
    assert links.interval([3.0] * 5, links.geometric) == pytest.approx((3.0, 3.0, 3.0))


def test_judging_prints_a_row_per_queue_and_one_per_link(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "hush", "--judge", "--links", "1", "--seeds", "1", "--set", "3", "--aqm", "hush single", "--each"]
    assert cli.call([*words, "--kind", "mixed", "--kind", "moving"]) == 0
    first, second, each = capsys.readouterr().out.split("\n\n", 2)
    [senders] = {x.senders for kind in ("mixed", "moving") for x in kinds.draw(3, 1, kind=kind)}
    queues = [*links.CLASSICS, "hush single"]
    assert [line.split(" | ")[0].strip("| `") for line in second.splitlines()[2:]] == queues
    rows = [line.split(" | ")[:3] for line in first.splitlines()[2:]]
    expected = [*(f"{queue} all 2" for queue in queues), "hush single mixed 1", "hush single moving 1"]
    assert [" ".join(row).replace("| ", "").replace("`", "") for row in rows] == [*expected, f"hush single {senders} 2"]
    assert sum(line.startswith(("| link-0 |", "| moving-0 |")) for line in each.splitlines()) == 2


def test_judging_gives_the_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "hush", "--judge", "--links", "1", "--seeds", "1", "--kind", "mixed", "--aqm", "hush", "--json"]
    assert cli.call(words) == 0

    def refuse(word: str) -> float:
        raise AssertionError(word)  # JSON has no NaN

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert [row["queue"] for row in found["beside"]] == [*links.CLASSICS, "hush"]
    assert len(found["rows"][-1]["p"]) == 3 and "each" not in found


@pytest.mark.parametrize(
    "text", ["", "hush 2\n", "hush 3\n", "hush 3\npower NaN\nend\n", "hush 3\npower 1e9\nend\n", "\0"]
)
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
    assert far["gain"] == [1.0] and far["window"] == space.first["window"] and max(far["target"]) == 20.0
    only = hush.Space(hush.shipped(), ["gain"])
    assert only.model([1e6]) == only.first | {"gain": [1.0]}
    (tmp_path / "far.txt").write_text(hush.write(far))
    assert hush.read(tmp_path / "far.txt") == far
    with pytest.raises(InputError, match="missing"):
        hush.read(tmp_path / "missing.txt")


@pytest.mark.torch
@pytest.mark.usefixtures("hush")
def test_a_line_that_is_not_learned_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["train", "hush", "--only", "lead"]) == 2
    assert "--only lead: write one of cap, dry, gain" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.torch
def test_the_cost_rises_with_delay_loss_and_unfairness_and_steeply_with_lost_goodput(hush: Any) -> None:
    bar = links.Bar(10.0, 10.0, 0.01, 0.9, 1.0)
    half = hush.cost(run(10.0, 5.0), bar)
    # The edges of a win at g = 1 and 0.98, and at p = 0.5: 1 / (1 + e^-2.5), 1 / (1 + e^2.5), 1 / (1 + 2^(-1 / 0.15)).
    enough, too_little, short = 0.924142, 0.075858, 0.990254
    assert half == pytest.approx(math.log(0.5) + 1.5 * (1 - enough * short), abs=1e-5)
    assert hush.cost(run(10.0, 5.0, 0.01, 0.99), bar) == half
    assert hush.cost(run(10.0, 1.0), bar) == pytest.approx(math.log(0.3) + 1.5 * (1 - enough * 1.0), abs=1e-3)
    assert hush.cost(run(10.0, 1.0), bar) == pytest.approx(hush.cost(run(10.0, 2.0), bar), abs=1e-3)
    lost = 100 * math.log(0.994 / 0.98) + 1.5 * (enough - too_little) * short
    assert hush.cost(run(9.8, 5.0), bar) == pytest.approx(half + lost, abs=1e-5)
    # Delay above 2 P counts twice, ln 2.5 + ln 1.25, at most 4; 1.5 is the cost of a link that is not won.
    assert hush.cost(run(10.0, 25.0), bar) == pytest.approx(math.log(2.5) + math.log(1.25) + 1.5, abs=0.01)
    assert hush.cost(run(1.0, 500.0), bar) == pytest.approx(4 + 6 + 1.5, abs=1e-5)
    beyond = math.log(0.115 / 0.019)
    assert hush.cost(run(10.0, 5.0, 0.11), bar) == pytest.approx(half + 3 * 0.1 + 0.5 * beyond)
    assert hush.cost(run(10.0, 5.0, jain=0.89), bar) == pytest.approx(half + 4 * 0.1)
    assert hush.cost(run(10.0, 5.0, jain=0.77), bar) == pytest.approx(half + 4 * 0.22 + 20 * 0.1)


@pytest.fixture
def ablation(hush: Any) -> Any:
    from quell.train import ablate

    return ablate


@pytest.mark.torch
def test_a_feature_taken_away_leaves_the_level_of_the_settings_that_it_entered(hush: Any, ablation: Any) -> None:
    whole, drawn = hush.shipped(), kinds.draw(5, 3)
    whole["hold"][4], whole["dry"] = 0.0, [-2.0, 0.4, 0.3, 0.2]
    # In place of measured levels: 0 with the idle share as a feature of `target`, 1 lower without it.
    level = dict.fromkeys(ablation.SETTINGS, 0.0)

    def levels(model: Any) -> dict[str, float]:
        return level if model["target"][4] else dict.fromkeys(level, -1.0)

    found = ablation.parts(whole, drawn, levels)
    less = found["without idle share"]
    assert [row[4] for row in less.values() if len(row) > 4] == [0.0] * 5
    assert less["target"][0] == whole["target"][0] + 1
    assert less["hold"] == whole["hold"], "which the idle share does not enter"
    known = whole["step"][3] * sum(math.log(link.flows) for link in drawn) / 3
    assert found["without flows"]["step"][0] == pytest.approx(whole["step"][0] + known)
    assert found["without all features"]["target"][1:] == [0.0] * 8
    assert found["without flows"]["dry"] == [-2.0, 0.4, 0.0, 0.2]
    assert found["without packet time"]["dry"] == whole["dry"], "which the packet time does not enter"
    assert found["the flow with most bytes queued pays"] == whole | {"service": [0.0], "steady": [0.0]}


@pytest.mark.torch
def test_numbers_vary_by_a_fifth_and_constants_by_a_fifth_of_what_they_set(hush: Any, ablation: Any) -> None:
    whole = hush.shipped() | {"dry": [-2.0, 0.4, 0.3, 0.2]}
    varied = ablation.numbers(whole)
    assert len(varied) == sum(number != 0 for row in whole.values() for number in row)
    less, more = varied["target, constant"]
    assert math.exp(less["target"][0] - whole["target"][0]) == pytest.approx(0.8)
    assert math.exp(more["target"][0] - whole["target"][0]) == pytest.approx(1.2)
    assert varied["power"][1]["power"][0] == pytest.approx(1.2 * whole["power"][0])
    assert varied["target, idle share"][0]["target"][4] == pytest.approx(0.8 * whole["target"][4])
    features = ("constant", "round trip", "flows", "packets per flow")
    assert [name for name in varied if name.startswith("dry, ")] == [f"dry, {name}" for name in features]


@pytest.mark.torch
def test_an_ablation_prints_both_tables(hush: Any, ablation: Any) -> None:
    [link] = [x for x in kinds.draw(3, 40, span=kinds.Span(0.1)) if x.rate_mbps < 20][:1]
    text = ablation.ablate(hush.shipped(), [link])
    first, second = text.split("\n\n")
    assert first.splitlines()[2].startswith("| as shipped |")
    assert "| without idle share | " in first
    assert "| fq_codel's law on the same queues | " in first
    assert second.startswith("| number | 20 % less | 20 % more |")
    assert "| service | " in second


def short(hush: Any, **more: Any) -> Any:
    return hush.Arguments(
        **{"generations": 3, "population": 4, "pool": 2, "batch": 1, "validation": 1, "held_out": 1,
           "validate_every": 1, "length": 0.1, "packets": 2e4, "most_mbps": 50.0, "sigma": 0.3, **more}
    )  # fmt: skip


@pytest.fixture
def small_card(hush: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the card's sets short runs, too."""
    from quell.train import kinds

    monkeypatch.setattr(
        hush, "draw_each",
        lambda seed, count, seeds: kinds.draw_each(seed, count, seeds, span=kinds.Span(0.1, 2e4)),
    )  # fmt: skip


@pytest.mark.torch
@pytest.mark.usefixtures("small_card")
def test_a_resumed_search_ends_with_the_same_model(hush: Any, tmp_path: Path) -> None:
    def train(name: str, generations: int, resume: bool = False) -> str:
        row = hush.train(short(hush, generations=generations), tmp_path / name, resume=resume)
        assert 0.3 < row["g"][0] < 1.5
        text = (tmp_path / name).read_text()
        assert "of seed" in text and _core.queue(f"hush model {tmp_path / name}")
        return text

    whole = train("whole.txt", 3)
    train("parts.txt", 1)
    assert train("parts.txt", 3, resume=True) == whole


@pytest.mark.torch
@pytest.mark.usefixtures("small_card")
def test_a_kind_that_is_left_out_is_only_judged(hush: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    def watched(drawn: Any, queues: Any, **more: Any) -> Any:
        seen.append({link.kind for link in drawn})
        return links.simulate(drawn, queues, **more)

    monkeypatch.setattr(hush, "simulate", watched)
    hush.train(short(hush, generations=1, leave_out="moving"), tmp_path / "fold.txt")
    *training, own, common = seen
    assert own == common == set(kinds.KINDS)
    assert all("moving" not in of for of in training) and set.union(*training) == set(kinds.KINDS) - {"moving"}
    card = (tmp_path / "fold.txt").read_text()
    assert "# Kind of links left out of the training: moving" in card
    assert card.count("# | `hush` | moving | 1 |") == 2


@pytest.mark.torch
@pytest.mark.usefixtures("small_card")
def test_an_interrupted_judging_leaves_the_earlier_model_and_is_resumed(
    hush: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "model.txt"
    out.write_text("earlier")
    os.utime(out, (1, 1))
    with monkeypatch.context() as while_it_judges:
        while_it_judges.setattr(hush, "_judged", interrupt)
        with pytest.raises(KeyboardInterrupt):
            hush.train(short(hush, generations=1), out)
    assert out.read_text() == "earlier"
    with pytest.raises(InputError, match="a finished training"):
        hush.train(short(hush, generations=1), out)
    hush.train(short(hush, generations=1), out, resume=True)
    assert "of seed" in out.read_text()
    assert not (tmp_path / "model-checkpoints/judged.txt").exists()


@pytest.mark.torch
@pytest.mark.parametrize("name", ["a model.txt", "model\udcff.txt"])
def test_a_model_that_queue_words_cannot_name_is_refused_before_the_training(
    hush: Any, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InputError, match=f"--out .*{name}: queue words"):
        hush.train(short(hush), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.torch
def test_no_run_of_the_training_has_more_packets_than_its_bound(hush: Any) -> None:
    arguments = hush.Arguments()
    for kind in kinds.KINDS:
        drawn = hush.drawn(arguments, 5, kind, 30)
        assert len(drawn) == 30
        assert all(x.rate_mbps * 1e6 * x.scenario.duration_s / kinds.PACKET_BITS < 1.01e6 for x in drawn)


def written(runs: dict[str, Any]) -> str:
    """Return the text of a cache of these runs, with its checksum."""
    checksum = files.checksum(json.dumps(runs))
    return json.dumps({"quell runs": "VERSION", "checksum": checksum, "runs": runs})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "1", '{"version": 1}', "\0", "[" * 100_000,
             '{"quell runs": "VERSION"}', '{"quell runs": "VERSION", "runs": {}}', written({"a": [1, 2]}),
             *(written({"a": [each, 1, 1, 1, 1, 1, 1]}) for each in ("x", None, -1, math.inf))],
)  # fmt: skip
def test_a_file_that_is_not_a_cache_is_named(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "classics.json"
    file.write_text(text.replace("VERSION", links.version()))
    assert cli.call(["train", "hush", "--judge", "--links", "1", "--kind", "mixed", "--cache", str(file)]) == 2
    assert "classics.json: is not a cache of runs; remove it" in capsys.readouterr().err.replace("\n", "")
    assert file.read_text() == text.replace("VERSION", links.version())


def test_runs_of_the_classics_are_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, file = kinds.draw(3, 2, 2, span=kinds.Span(0.1)), tmp_path / "classics.json"
    queues = ["codel", "fq_codel", "hush"]
    counts: list[int] = []

    def counted(runs: Any, *args: Any, **more: Any) -> Any:
        counts.append(len(runs))
        return stream(runs, *args, **more)

    monkeypatch.setattr(links, "stream", counted)
    plain = links.simulate(drawn, queues)
    first = links.simulate(drawn, queues, cache=links.Cache(file))
    again = links.simulate(drawn, queues, cache=links.Cache(file))
    more = links.simulate(kinds.draw(3, 3, 2, span=kinds.Span(0.1)), queues, cache=links.Cache(file))
    assert counts == [12, 12, 4, 4 + 4 + 2 - 2 + 2]
    assert repr(plain) == repr(first) == repr(again)
    assert repr(more["codel"][:2]) == repr(plain["codel"])
    monkeypatch.setattr(links, "version", lambda: "another")
    links.simulate(drawn, queues, cache=links.Cache(file))
    assert counts[-1] == 12, "runs of another quell do not count"


def test_a_damaged_cache_is_refused_or_gives_no_wrong_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "version", lambda: "0123456789abcdef")
    file, run = tmp_path / "classics.json", links.Run(1.5, 2.25, 3, 4, 0.5, 0, math.nan)
    links.Cache(file).add({"one": run})
    whole = file.read_bytes()
    refused = 0
    for at, bit in itertools.product(range(len(whole)), range(7)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        try:
            found = links.Cache(file).get("one")
        except InputError as error:
            assert "classics.json: is not a cache of runs; remove it" in str(error)
            refused += 1
        else:
            assert repr(found) in (repr(run), "None"), (at, bit)
    assert refused > 500


def test_two_that_share_a_cache_keep_each_others_runs(tmp_path: Path) -> None:
    file = tmp_path / "classics.json"
    run = links.Run(1, 2, 3, 4, 0.5, 0, 5)
    one, other = links.Cache(file), links.Cache(file)
    one.add({"one": run})
    other.add({"other": run})
    assert json.loads(file.read_text())["runs"].keys() == {"one", "other"}
    file.write_text("a shopping list")
    with pytest.raises(InputError, match="is not a cache of runs"):
        one.add({"two": run})
    assert file.read_text() == "a shopping list"


def test_runs_that_were_finished_at_ctrl_c_are_in_the_cache(tmp_path: Path) -> None:
    drawn, file = kinds.draw(3, 2, 2, span=kinds.Span(0.1)), tmp_path / "classics.json"

    def interrupted(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        links.simulate(drawn, ["codel", "fq_codel"], on_done=interrupted, cache=links.Cache(file))
    assert len(json.loads(file.read_text())["runs"]) >= 3


@pytest.mark.torch
@pytest.mark.parametrize("where", ["classic queues, far: 2 of 14 runs", "generation 1: 2 of", "generation 2: 2 of"])
def test_a_search_shows_its_runs_and_stops_at_the_first_after_ctrl_c(
    hush: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    from quell.train import Stopped, kit

    notes: list[str] = []
    note = kit.Session.note

    def watched(session: Any, text: str) -> None:
        notes.append(text)
        if text.startswith(where):
            signal.raise_signal(signal.SIGINT)
        note(session, text)

    monkeypatch.setattr(kit.Session, "note", watched)
    with pytest.raises(Stopped) as stopped:
        # Longer runs: other threads finish few of them before this one, on a busy machine, sees the signal.
        hush.train(short(hush, length=0.4, packets=8e4), tmp_path / "mine.txt")
    assert stopped.value.status == 130
    assert ("continue with --resume" in str(stopped.value)) == where.startswith("generation 2")
    step, _, last = notes[-1].partition(": ")
    assert where.startswith(step)
    assert int(last.split()[0]) < 8, "runs that other threads had begun are finished"
