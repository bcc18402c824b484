"""No command loses an existing file: one named twice, read-only, or with the name of partial results."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import QUELL
from quell._core import InputError
from quell.cli.dispatch import call
from quell.common import files
from quell.evaluation.state import RunStore
from quell.train import learnqueue

SHORT = 'name = "x"\nduration = "1s"\nwarmup = "0s"\n[link]\nrate = "1mbit"\n[[flow]]\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(SHORT)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["compare", "mine.toml", "--html", "mine.toml"], "--html mine.toml: the command reads it, too"),
        (["compare", "mine.toml", "--html=./mine.toml"], "--html ./mine.toml: the command reads it, too"),
        (
            ["run", "home", "--aqm", "hush model mine.toml", "--pcap", "mine.toml"],
            "--pcap mine.toml: the command reads",
        ),
        (["compare", "mine.toml", "--json", "new", "--html", "./new"], "--json new: --html writes it, too"),
        (["train", "hush", "--cache", "new", "--out", "./new"], "--cache new: --out writes it, too"),
        (["show", "mine.toml", "--json", "link"], "--json link: the command reads it, too"),
        (
            ["sweep", "--over", "link.trace=other,mine.toml", "--json", "mine.toml"],
            "--json mine.toml: the command reads it, too",
        ),
        (["run", "scenario", "--json", "mine.toml"], "--json mine.toml: the command reads it, too"),
        (["run", "folder/scenario", "--json", "folder/trace"], "--json folder/trace: the command reads it, too"),
        (
            ["compare", "a.pfifo.1.flent.gz", "--seeds", "2", "--flent", "a.flent.gz"],
            "--flent a.flent.gz: the command reads it, too",
        ),
        (
            ["compare", "mine.toml", "--flent", "a.flent.gz", "--json", "./a.pfifo.1.flent.gz"],
            "--flent a.flent.gz: --json writes it, too",
        ),
    ],
)
def test_a_file_that_is_named_twice_is_not_written(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link").symlink_to("mine.toml")
    Path("scenario").write_text(SHORT.replace("[link]", '[link]\nqueue = "rlaqm model mine.toml"'))
    Path("folder").mkdir()
    Path("folder/scenario").write_text(SHORT.replace('rate = "1mbit"', 'trace = "trace"'))
    Path("folder/trace").write_text("1\n2\n")
    assert call(words) == 2
    assert why in capsys.readouterr().err
    assert Path("mine.toml").read_text() == SHORT and not Path("new").exists()


def test_devices_and_the_words_of_a_shells_command_may_be_named_twice() -> None:
    from quell.cli import written

    written.check(["compare", "--json", "-", "--html", "/dev/null", "--csv", "/dev/null"])
    written.check(["shell", "--json", "mine.toml", "sh", "-c", "cat mine.toml"])
    written.check(["shell", "--json", "mine.toml", "--", "cat", "mine.toml"])


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
def test_a_read_only_file_is_not_replaced_and_a_private_one_stays_private(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "mine.toml", "--seeds", "1", "--aqm", "pfifo", "--json", "runs.json"]
    Path("runs.json").write_text("old")
    Path("runs.json").chmod(0o444)
    assert call(words) == 2
    assert "--json runs.json: cannot be written: it is read-only" in capsys.readouterr().err
    with pytest.raises(InputError, match="it is read-only"):
        files.write_text(Path("runs.json"), "new")
    assert Path("runs.json").read_text() == "old"
    Path("runs.json").chmod(0o600)
    assert call(words) == 0
    assert json.loads(Path("runs.json").read_text())
    assert stat.S_IMODE(Path("runs.json").stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_a_page_is_written_to_a_file_whose_name_is_not_text() -> None:
    name = os.fsdecode(b"page\xff.html")
    done = subprocess.run([QUELL, "run", "mine.toml", "--html", name], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"</html>" in Path(name).read_bytes()


def interrupted(*words: str) -> str:
    """Run quell and interrupt it, again and later until a run has finished before; return the last time's errors."""
    for seconds in (1.0, 2.0, 4.0, 8.0, 16.0):
        process = subprocess.Popen([QUELL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        state = Path("quell-evaluate.state")
        finished = not state.exists() or state.read_text().count("\n") > 1
        if process.returncode == 130 and finished and re.search("interrupted: (?!0 of|no run)", err):
            return err
    raise AssertionError(err)


@pytest.mark.real_time
def test_an_interrupted_comparison_does_not_replace_earlier_results() -> None:
    for name in ("runs.json", "runs.csv"):
        Path(name).write_text("of a whole experiment")
    words = ["compare", "home", "--aqm", "pfifo", "--aqm", "codel", "--seeds", "1000", "--duration", "6s"]
    err = interrupted(*words, "--json", "runs.json", "--csv", "runs.csv", "--html", "new.html")
    for name in ("runs.json", "runs.csv"):
        assert Path(name).read_text() == "of a whole experiment", err
        assert f"{name} is kept; the finished runs" in err
    assert json.loads(Path("runs.interrupted.json").read_text())
    assert Path("runs.interrupted.csv").read_text().startswith("scenario,")
    assert "Interrupted" in Path("new.html").read_text()


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_part_of_a_capture_does_not_replace_an_earlier_one(number: int) -> None:
    Path("line.pcapng").write_text("whole")
    words = [str(QUELL), "run", "--rate", "1gbit", "--duration", "100000s", "--pcap", "line.pcapng"]
    # Programs that nohup starts ignore SIGHUP, and so do their children.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGHUP, before)
    try:
        deadline = time.monotonic() + 60
        while not any(part.stat().st_size for part in Path().glob(".line.pcapng.*")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert "interrupted" in process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 130
    assert Path("line.pcapng").read_text() == "whole"
    assert sorted(path.name for path in Path().iterdir()) == ["line.pcapng", "mine.toml"]


def test_a_signal_while_the_part_is_made_leaves_nothing_and_other_handlers_stay() -> None:
    code = """
import os, pathlib, signal
from quell.common import files
make = files._part
def slow(path):
    made = make(path)
    os.kill(os.getpid(), signal.SIGTERM)
    return made
files._part = slow
files.write_text(pathlib.Path("out"), "text")
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGTERM
    assert [path.name for path in Path().iterdir()] == ["mine.toml"]

    def write(part: Path) -> None:
        part.write_text("text")
        signal.raise_signal(signal.SIGTERM)

    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        files.write_whole(Path("out"), write)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [signal.SIGTERM] and Path("out").read_text() == "text"


def test_a_signal_that_acts_as_ctrl_c_waits_for_the_end_of_a_change() -> None:
    made: list[str] = []
    with pytest.raises(KeyboardInterrupt), files.ended_as_by_ctrl_c():
        with files.signals_wait():
            signal.raise_signal(signal.SIGTERM)
            made.append("whole")
        made.append("more")
    assert made == ["whole"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_temporary_folder_has_no_blank_in_its_path_and_an_error_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queue words name files in this folder. With a blank in its path the model of a long training was lost."""
    blank = tmp_path / "a b"
    blank.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(blank))
    with files.temporary_folder("quell-test-") as folder:
        assert " " not in str(folder) and stat.S_IMODE(folder.stat().st_mode) == 0o700
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *_: (tmp_path / "none" / "folder").mkdir())
    with (
        pytest.raises(InputError, match=r"^temporary files: No such file or directory; .* TMPDIR$"),
        files.temporary_folder("quell-test-"),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["made", "used"])
def test_a_signal_leaves_no_temporary_folder(number: int, when: str) -> None:
    code = f"""
import os, signal, tempfile
from quell.common import files
signal.signal(signal.SIGHUP, signal.SIG_DFL)
make = tempfile.mkdtemp
def slow(*words, **more):
    made = make(*words, **more)
    os.kill(os.getpid(), {number})
    return made
if {when == "made"}:
    tempfile.mkdtemp = slow
with files.temporary_folder("quell-test-") as folder:
    (folder / "model").write_text("text")
    print(sorted(path.name for path in folder.parent.glob("quell-test-*/*")), flush=True)
    os.kill(os.getpid(), {number})
    print("not ended")
"""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(Path.cwd())},
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (-number, "")
    assert done.stdout == ("" if when == "made" else "['model']\n")
    assert [path.name for path in Path().iterdir()] == ["mine.toml"]
    with files.temporary_folder("quell-test-") as folder:
        assert folder.is_dir()
    assert not folder.exists() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_evaluation_leaves_the_finished_runs_of_another_one() -> None:
    err = interrupted("evaluate", "--aqm", "codel", "--aqm", "pie", "--seeds", "40", "--sections", "5.1")
    state = Path("quell-evaluate.state")
    assert "finished runs are kept" in err
    kept = state.read_text()
    assert kept.count("\n") > 1, "a finished run"
    # On another link, because the runs of tail drop on the first link could be reused.
    assert call(["evaluate", "5mbit@rtt=50ms", "--aqm", "red", "--seeds", "1", "--sections", "5.1"]) == 0
    assert state.read_text().startswith(kept)


def test_an_evaluation_leaves_a_file_that_has_taken_the_place_of_its_own() -> None:
    state, other = Path("own.state"), Path("other.state")
    with RunStore(state) as kept:
        kept.add("run", {"packets": 1}, to_file=True)
        other.write_text("of another evaluation\n")
        other.replace(state)
        kept.finished(["run"])
    assert state.read_text() == "of another evaluation\n"


def test_a_new_training_of_learnqueue_leaves_the_tables_of_an_earlier_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "learnqueue", "mine.toml", "--episodes", "2", "--out", "t.safetensors"]
    assert call(words) == 0
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    assert call([*words, "--seed", "7"]) == 2
    assert "t.curve.csv: of an earlier training; continue with --resume" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_of_two_trainings_of_learnqueue_that_begin_at_once_one_has_the_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", "learnqueue", "mine.toml", "--episodes", "2", "--out", "t.safetensors"]
    run, before = learnqueue.episode, {}

    def while_another_trains(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(learnqueue, "episode", run)
        assert call([*words, "--seed", "7"]) == 0
        before.update({path.name: path.read_bytes() for path in Path().iterdir()})
        return run(*arguments, **more)

    monkeypatch.setattr(learnqueue, "episode", while_another_trains)
    assert call(words) == 2
    assert "t.curve.csv: another training writes it" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


SETTINGS = {"bash": (".bashrc", ".bash_completions/quell.sh"), "zsh": (".zshrc", ".zfunc/_quell")}


@pytest.mark.skipif(os.name == "nt", reason="shells of POSIX")
@pytest.mark.parametrize("shell", SETTINGS)
def test_completion_is_added_to_a_shells_settings_whole_and_once(shell: str) -> None:
    settings, script = map(Path, SETTINGS[shell])
    settings.write_bytes(b"# caf\xe9\nalias x=y")  # Latin-1, no newline at the end
    settings.chmod(0o600)
    assert _install(shell).returncode == 0
    text = settings.read_bytes()
    assert text.startswith(b"# caf\xe9\nalias x=y\n") and text.count(b"\n") == 3
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert "_QUELL_COMPLETE" in script.read_text()
    assert _install(shell).returncode == 0
    assert settings.read_bytes() == text


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -f in blocks of 1024 bytes")
@pytest.mark.parametrize("shell", SETTINGS)
def test_where_no_room_is_left_for_them_a_shells_settings_stay(shell: str) -> None:
    settings = Path(SETTINGS[shell][0])
    settings.write_text("#" * 4000)
    done = _install(shell, "ulimit -f 3; ")
    assert done.returncode in (1, 2) and "cannot be written" in done.stderr, done
    assert settings.read_text() == "#" * 4000


@pytest.mark.skipif(os.name == "nt", reason="shells of POSIX")
@pytest.mark.parametrize("shell", SETTINGS)
def test_a_home_folder_in_which_nothing_can_be_written_is_named(shell: str) -> None:
    Path(SETTINGS[shell][1]).parent.write_text("a file in the folder's place")
    done = _install(shell)
    assert done.returncode == 2
    assert SETTINGS[shell][1] in done.stderr and "cannot be written: File exists" in done.stderr, done


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
def test_a_home_folder_with_a_quote_in_its_name_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path("it's $(touch run) `touch run`")
    home.mkdir()
    monkeypatch.chdir(home)
    assert _install("bash").returncode == 0
    done = subprocess.run(["bash", "-c", ". ./.bashrc && complete -p quell"], capture_output=True, text=True)
    assert done.returncode == 0 and "quell" in done.stdout, done
    assert not Path("run").exists()


def _install(shell: str, first: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOME": str(Path.cwd()), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = f'{first}exec "{QUELL}" --install-completion {shell}'
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)


def test_a_trace_that_the_scenario_names_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.down").write_text("1\n3\n")
    Path("mine.toml").write_text(SHORT.replace('rate = "1mbit"', 'trace = "t.down"'))
    assert call(["run", "mine.toml", "--json", "t.down"]) == 2
    assert "--json t.down: the command reads it, too" in capsys.readouterr().err
    assert Path("t.down").read_text() == "1\n3\n"


def test_two_outputs_are_not_one_file_behind_a_flag_or_a_link() -> None:
    from quell.cli import written

    Path("y").symlink_to("x")
    for words in (["shell", "-q", "--json", "a", "--html", "a"], ["compare", "--json", "x", "--html", "y"]):
        with pytest.raises(InputError, match="--html writes it, too"):
            written.check(words)


@pytest.mark.parametrize("words", [["--state", "new", "--json", "new"], ["--html", "quell-evaluate.state"]])
def test_an_evaluation_does_not_delete_its_results(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["evaluate", "--sections", "12", "--aqm", "pfifo", *words]) == 2
    assert "finished runs are kept there until all is done" in capsys.readouterr().err


def test_a_second_interrupted_run_leaves_the_results_of_the_first() -> None:
    from quell.views.targets import Targets

    names = []
    for _ in range(3):
        targets = Targets(csv=Path("runs.csv"))
        Path("runs.csv").touch()
        targets.keep_earlier()
        assert targets.csv is not None
        targets.csv.touch()
        names.append(targets.csv.name)
    assert names == ["runs.interrupted.csv", "runs.interrupted.2.csv", "runs.interrupted.3.csv"]


def test_an_interrupted_run_leaves_the_data_files_of_several_earlier_runs() -> None:
    from quell.inputs import flent
    from quell.views.targets import Targets

    earlier = Path("runs.codel.1.flent.gz")
    records = [{"queue": queue, "seed": 1} for queue in ("codel", "pie")]
    assert earlier in flent._names(Path("runs.flent.gz"), records)
    earlier.touch()
    names = []
    for _ in range(2):
        targets = Targets(flent=Path("runs.flent.gz"))
        targets.keep_earlier()
        assert targets.flent is not None
        names.append(targets.flent.name)
        flent._names(targets.flent, records)[0].touch()
    assert names == ["runs.interrupted.flent.gz", "runs.interrupted.2.flent.gz"]


def test_ctrl_c_keeps_the_finished_runs_of_a_sweep() -> None:
    words = ["sweep", "home", "--over", "link.rate=5mbit,10mbit", "--duration", "100s", "--seeds", "500", "--jobs", "1"]
    sweep = subprocess.Popen([QUELL, *words, "--json", "runs.json", "--csv", "runs.csv"], stderr=subprocess.PIPE)
    time.sleep(4)
    sweep.send_signal(signal.SIGINT)
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130, said
    found = re.search(rb"(\d+) of 1000 runs had finished and were kept", said)
    assert found and 0 < int(found[1]) < 1000, said
    assert len(json.loads(Path("runs.json").read_text())) == int(found[1])
    assert Path("runs.csv").read_text().count("\n") == int(found[1]) + 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_that_fails_does_not_lose_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["sweep", "mine.toml", "--over", "link.rate=1mbit,2mbit", "--json", "/dev/full", "--csv", "x.csv"]) == 2
    assert "/dev/full: cannot be written" in capsys.readouterr().err
    assert Path("x.csv").read_text().count("\n") > 2


def test_a_long_name_can_be_written() -> None:
    for path in (Path("n" * 250), Path("ä" * 120)):
        files.check_target("--json", path)
        files.write_text(path, "{}")
        assert path.read_text() == "{}"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root replaces another user's file")
@pytest.mark.machine_root
def test_a_users_file_stays_the_users_where_root_replaces_it() -> None:
    folder = Path("home")
    folder.mkdir()
    file = folder / ".bashrc"
    file.write_text("secret")
    file.chmod(0o600)
    for path in (folder, file):
        os.chown(path, 1000, 1000)
    files.write_text(file, "more")
    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1000, 1000, 0o600)
    # In a folder where all may write, another user may have planted the file.
    folder.chmod(0o1777)
    files.write_text(file, "more")
    assert file.stat().st_uid == 0
