"""`quell tune` and Linux's own queues: `--verify`, `--apply` and `--undo`, in the kernel of tools/oracle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, Quell
from quell._core import InputError
from quell.experiments import experiment
from quell.tune import verify
from quell.tune.aims import Aims
from quell.tune.line import NOTHING, Shaped, at_home, of_scenario
from quell.tune.search import Bench

KERNEL = Path(os.environ.get("QUELL_ORACLE", ROOT.parent / "shared/oracle/oracle")).with_name("linux")
GUEST = [str(ROOT / "tools/oracle/guest"), "--kernel", str(KERNEL), "--limit", "280", "--"]


def require() -> None:
    if not KERNEL.exists():
        pytest.skip("there is no kernel of the oracle: QUELL_ORACLE says where it is")


# Replays. -------------------------------------------------------------------------------------------------------------


def test_linux_sees_what_the_simulation_sees() -> None:
    require()
    wanted = Aims("calls,games,bulk")
    line = at_home("10mbit/2mbit", "40ms", "pppoe-llcsnap", None, wanted.weights, "8s", 1)
    cake = "cake bandwidth {} pppoe-llcsnap nat"
    ways = (Shaped(cake.format("9mbit"), 9_000_000), Shaped(cake.format("1800kbit"), 1_800_000))
    settings = [("now", (NOTHING, NOTHING)), ("default", ways)]
    now, shaped = verify.verify(Bench(wanted), line, "wan", settings, seeds=1, command=GUEST)
    for one in (now, shaped):
        for key, share in (("goodput_mbps.down", 0.10), ("goodput_mbps.up", 0.15)):
            simulated, linux = one.simulated[key], one.linux[key]
            assert simulated is not None
            assert linux is not None
            # 4 to 8 s of a few flows that have just started; benches/tune has whole runs.
            assert linux.mean == pytest.approx(simulated.mean, rel=share)
    for way in ("simulated", "linux"):
        figures = [getattr(one, way) for one in (now, shaped)]
        # A FIFO of 250 ms against a shaper: bad calls against good ones.
        assert figures[0]["mos"].mean < 2.5 < 4.2 < figures[1]["mos"].mean
        assert figures[0]["game_p99_ms"].mean > 2 * figures[1]["game_p99_ms"].mean
    assert "as the simulation does" in verify.agreement([now, shaped])


def test_a_queue_that_linux_lacks_is_refused_in_one_line() -> None:
    require()
    line = at_home("10mbit/2mbit", None, None, None, Aims("bulk").weights, "2s", 1)
    hush = (Shaped("hush", 9_000_000), Shaped("hush", 1_800_000))
    with pytest.raises(InputError, match=r"^--verify: this kernel refuses `tc qdisc add .* hush`: [^\n]*$"):
        verify.verify(Bench(Aims("bulk")), line, "eth0", [("tuned", hush)], seeds=1, command=GUEST)


def test_only_traffic_that_can_be_real_is_replayed() -> None:
    text = '[link]\nrate="5mbit"\n[link.up]\nrate="1mbit"\n[[flow]]\nkind="page"\n'
    with pytest.raises(InputError, match="has no transfers that can be real"):
        verify.traffic(of_scenario(experiment.load(text), None, None))
    real, left = verify.traffic(of_scenario(experiment.load(text + "[[flow]]\n"), None, None))
    assert [flow["kind"] for flow in real.keys["flow"]] == ["tcp"]
    assert left == ["page", "probe"]


def test_verify_needs_rights_programs_and_one_line(
    quell: Quell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = quell("tune", "--rate", "10mbit/2mbit", "--verify")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert ("ip is missing" if os.geteuid() == 0 else "needs root") in done.stderr
    done = quell("tune", "--fleet", "lines.csv", "--verify")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "leave out --fleet" in done.stderr


# Installing. ----------------------------------------------------------------------------------------------------------


def guest(*words: str) -> list[str]:
    require()
    command = [*GUEST, sys.executable, str(ROOT / "tests/tune_guest.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.guest
def test_applied_queues_are_undone_for_any_earlier_queue_and_after_any_kill() -> None:
    parts = ["default queue", "configured queues", "configured ifb", "refusals", "killed", "changed meanwhile", "gone"]
    assert guest() == [f"{part}: ok" for part in parts]


@pytest.mark.guest
def test_a_full_folder_and_ctrl_c_leave_nothing_half_applied() -> None:
    assert guest("stopped") == [f"{part}: ok" for part in ("full", "interrupted", "searching")]


def test_apply_and_undo_refuse_in_one_line_before_the_search(
    quell: Quell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["--rate", "10mbit/2mbit"]
    root = os.geteuid() == 0
    cases = [
        ([*line, "--apply", "no-such-dev"], "no such interface" if root else "needs root"),
        ([*line, "--apply", "a b"], "not a name of an interface" if root else "needs root"),
        ([*line, "--apply", "lo", "--target", "openwrt"], "leave out --target openwrt"),
        (["--fleet", "lines.csv", "--apply", "lo"], "leave out --fleet"),
        ([*line, "--replace"], "--replace goes with"),
        (["--undo", "no-such-dev"], "has installed nothing there" if root else "needs root"),
        ([*line, "--undo", "lo"], "leave out --rate"),
        ([*line, "--html", "no/such/folder.html"], "--html no/such/folder.html"),
    ]
    for words, message in cases:
        done = quell("tune", *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert message in done.stderr
    monkeypatch.setenv("PATH", str(tmp_path))
    done = quell("tune", *line, "--apply", "lo")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert ("ip is missing" if root else "needs root") in done.stderr
