"""An option of `quell live` is a row of one table (crates/quell-live/src/options), from which all places derive."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from conftest import QUELL, QUELL_LIVE, ROOT, run
from quell import _core
from quell.cli import dispatch, live, table


def test_a_new_row_is_an_option_with_help_and_completion_and_is_in_openwrts_files_and_in_the_manual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    keys = importlib.import_module("keys")
    rows, words, examples = _core.options("live")
    sample = ("sample_words", None, "slow|fast", "how it is done", "", False, "file")
    known = _core.options
    monkeypatch.setattr(
        _core, "options", lambda name: ([*rows, sample], words, examples) if name == "live" else known(name)
    )

    @table.options("live")
    def command_with_it(**options: Any) -> int:
        """Do nothing."""
        return len(options)

    monkeypatch.setattr(live, "live", command_with_it)
    command: Any = get_command(dispatch.app(["live", "watch"]))
    (parameter,) = (p for p in command.commands["live"].params if p.name == "sample_words")
    assert parameter.opts == ["--sample-words"]
    assert parameter.help == "How it is done."
    assert [item.value for item in parameter.shell_complete(command.make_context("quell", ["live"]), "f")] == ["fast"]
    rows = [*rows, sample]
    assert "| `--sample-words slow\\|fast` | how it is done | key, read again on SIGHUP |" in keys.reference(rows)
    assert 'append_option "$section" sample_words sample-words\n' in keys.init(keys.INIT.read_text("utf-8"), rows)
    assert "option sample_words 'slow|fast'" in keys.config(keys.CONFIG.read_text("utf-8"), rows)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="these commands are for Linux")
@pytest.mark.parametrize("command", ["live", "watch", "steer", "attach", "detach"])
def test_all_options_reach_the_program(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(_core, command, lambda *_, **options: given.append(options))
    rows, _, _ = _core.options(command)
    words = [command, *(["eth0"] if command != "live" else [])]
    for name, _, value, _, _, _, _ in rows:
        words += [f"--{name.replace('_', '-')}", *(["7.csv" if name == "out" else "7"] if value else [])]
    assert dispatch.call(words) == 0
    (taken,) = given
    for name, former, value, _, _, repeats, _ in rows:
        typed = "7.csv" if name == "out" else "7"
        assert taken.pop("with_" if name == "with" else name) == ([typed] if repeats else typed if value else True)
        if former:
            assert not taken.pop(former)
    assert taken == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
@pytest.mark.parametrize("program", [(QUELL, "live"), (QUELL_LIVE,)], ids=["quell live", "quell-live"])
def test_a_configuration_file_is_checked_without_rights(tmp_path: Path, program: tuple[str | Path, ...]) -> None:
    file = tmp_path / "live.toml"

    def check(text: str, *more: str) -> tuple[int, list[str]]:
        file.write_text(text)
        done = run(["unshare", "--user", *map(str, program), "--check", str(file), *more], tmp_path)
        assert done.stdout == ""
        return done.returncode, done.stderr.splitlines()

    good = 'dev = "lo"\nrate = "18mbit"\naqm = "cake"\n'
    assert check(good) == (0, [f"quell: {file}: no faults; lo: egress: 18mbit, cake"])
    assert check(good, "--quiet") == (0, [])
    status, faults = check('dev = "quell-none"\nrate = "fast"\nrat = 3\n')
    assert status == 1
    begin = [f"quell: {file}:1: dev: there is no such interface", f"quell: {file}:2: rate: ", f"quell: {file}:3: rat: "]
    assert [fault.startswith(each) for fault, each in zip(faults, begin, strict=True)] == [True] * 3
    file.unlink()
    assert [path.name for path in tmp_path.iterdir()] == []
    absent = run([*map(str, program), "--check", str(file)], tmp_path)
    assert (absent.returncode, absent.stderr) == (1, f"quell: --check {file}: No such file or directory\n")
