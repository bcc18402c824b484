"""Commands in README and docs: all are parsed, and those that only simulate are run, shortened."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from conftest import ROOT
from quell.cli import dispatch
from quell.experiments import own
from quell.tune import search, space
from test_doc_outputs import printed

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SIMULATING = {"compare", "run", "optimum"}
LISTING = {"queues", "scenarios"}
GROUP: Any = get_command(dispatch.app())


def commands() -> list[tuple[str, tuple[str, ...]]]:
    """Find the commands in code blocks; return page and words of each."""
    found: dict[tuple[str, ...], str] = {}
    for page in PAGES:
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            # Commands may continue on the next line.
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r" (?:&&|\|) ", line):
                    match = re.match(r"\s*(?:\$ )?(?:sudo )?(?:\S*/bin/)?quell (?=[a-z-])(.*)", part)
                    if match:
                        words = shlex.split(match[1], comments=True)
                        found.setdefault(tuple(words[: words.index(">")] if ">" in words else words), page.name)
    return [(page, words) for words, page in found.items()]


COMMANDS = commands()


def name_of(command: tuple[str, tuple[str, ...]]) -> str:
    return f"{command[0]}: {' '.join(command[1])[:70]}"


def test_many_commands_are_found() -> None:
    assert len(COMMANDS) > 60
    assert {"compare", "run", "live", "shell", "train", "reproduce", "watch"} <= {words[0] for _, words in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_a_printed_command_is_understood(command: tuple[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where the examples are
    group, words = GROUP, dispatch.with_port(command[1])
    while words and words[0] in getattr(group, "commands", {}):
        group = group.commands[words.pop(0)]
    assert group is not GROUP or words[0].startswith("--"), f"no command {words[0]}"
    context = group.make_context(
        "quell", words, resilient_parsing=words[0].startswith("--") if group is GROUP else False
    )
    queues = context.params.get("aqm") or []
    for queue in [queues] if isinstance(queues, str) else queues:
        # Files that the reader has trained do not exist here.
        if " model " not in queue and " table " not in queue and queue != "NAME":
            assert own.parse([queue])


def shortened(words: tuple[str, ...]) -> list[str] | None:
    """Return a command with one short run; None if it needs the reader's files, Ray, or real packets."""
    if words[0] in LISTING:
        return list(words)
    outside = {"--real", "--ray", "-"} if "--tc" in words else {"--real", "--ray"}
    if (
        words[0] not in SIMULATING
        or outside & set(words)
        or re.search(r"(mine|sqm|path)\.|lte\.down| (model|table) |NAME", " ".join(words))
    ):
        return None
    if any(word.endswith((".toml", ".flent.gz", ".txt")) and not word.startswith("-") for word in words[1:2]):
        return None
    kept = list(words)
    for option in ("--duration", "--warmup", "--seeds"):
        if option in kept:
            del kept[kept.index(option) : kept.index(option) + 2]
    if words[:2] == ("compare", "autorate"):  # its shortest duration
        return [*kept, "--duration", "31s", "--seeds", "1"]
    # A second after the warm-up is enough to show that the command works.
    return [*kept, "--duration", "2s", "--warmup", "1s"] + ([] if words[0] == "run" else ["--seeds", "1"])


OUTPUTS = ("--html", "--parquet", "--csv", "--json", "--flent", "--pcap")


def without_outputs(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command without its options for output files; commands that simulate the same thing are then equal."""
    return tuple(word for k, word in enumerate(words) if word not in OUTPUTS and (not k or words[k - 1] not in OUTPUTS))


SHORTENED = [(page, tuple(short)) for page, words in COMMANDS if (short := shortened(words)) is not None]
WRITING = {without_outputs(words) for _, words in SHORTENED if words != without_outputs(words)}
RUN = [(page, words) for page, words in SHORTENED if words not in WRITING]
"""If a simulation is printed both with and without an output file, only the command with the file is run."""


@pytest.mark.parametrize("command", RUN, ids=name_of)
def test_a_printed_simulation_runs(
    command: tuple[str, tuple[str, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert dispatch.call(command[1]) == 0, capsys.readouterr().err
    for option in OUTPUTS:
        if option in command[1] and (target := command[1][command[1].index(option) + 1]) != "-":
            assert (tmp_path / target).stat().st_size > 0


def test_enough_commands_are_run() -> None:
    assert len(RUN) > 15


def test_the_guide_to_tune_shows_what_its_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The search would take minutes; in its place the guide's setting is the only finalist."""
    command, shown = printed("docs/how-to/tune.md")[0]
    described = re.search(r"^# .*: (\w+) with (.*)$", shown, re.MULTILINE)
    assert described
    finalist = setting(*described.groups())

    def found(bench: search.Bench, plan: search.Plan, _: object) -> search.Found:
        defaults = [space.default(kind) for kind in plan.kinds]
        runs = [search.Run(plan.line, search.shapes(default, plan.line), 0) for default in defaults]
        bench.run(runs)
        scores = {default: bench.value(run) or 0.0 for default, run in zip(defaults, runs, strict=True)}
        return search.Found(scores, [finalist])

    monkeypatch.setattr(search, "search", found)
    assert dispatch.call(shlex.split(command)) == 0
    assert in_one_line(shown) == in_one_line(capsys.readouterr().out)


def setting(kind: str, described: str) -> space.Setting:
    """Parse what `quell tune` writes after the lines' heading."""
    values = dict(space.default(kind).values)
    for text in described.split(", "):
        option = next(o for o in space.options(kind) if text in o.choices or text.startswith(f"{o.name} "))
        number = re.search(r"[\d.]+", text)
        values[option.name] = text if option.choices or not number else (float if option.step else int)(number[0])
    return space.of(kind, values)


def in_one_line(text: str) -> str:
    """Remove differences due to the terminal's width."""
    return " ".join(text.split())
