"""Findings of `quell doctor` on the kernel's own queues and its support of BPF."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from namespace import Space, space_with
from quell import _core
from quell._core import InputError
from quell.cli import dispatch, doctor
from quell.linux import kernel, nat, programs, spaces, suggestions
from quell.linux.finding import Finding

QUELL = Path(sys.executable).parent / "quell"
QUEUES = """
ip link add v0 type veth peer name v1
ip link add m0 numtxqueues 4 type veth peer name m1
ip link set v0 up
ip link set v1 up
tc qdisc add dev v0 root handle 1: htb default 10
tc class add dev v0 parent 1: classid 1:10 htb rate 8mbit
tc qdisc add dev v0 parent 1:10 handle 10: pfifo limit 1000
tc qdisc add dev v1 root handle 2: tbf rate 8mbit burst 10k limit 60000
tc qdisc add dev m0 root handle 1: mq
"""


@pytest.fixture(scope="module")
def space() -> Iterator[Space]:
    with space_with("qd", QUEUES) as made:
        yield made


def findings(space: Space, *words: str) -> dict[str, dict[str, str]]:
    done = space.run(QUELL, "doctor", "--json", "-", *words)
    assert done.returncode in (0, 1), done.stderr
    return {finding["check"]: finding for finding in json.loads(done.stdout)}


@pytest.mark.real_time
def test_every_queue_that_can_be_steered_is_named_with_its_knobs(space: Space) -> None:
    found = findings(space)
    assert found["v0 pfifo"]["found"] == "at 1:*: limit can be steered, every 2 ms at most"
    assert found["v1 tbf"]["found"] == "at root: limit and rate can be steered, every 500 ms at most"
    assert found["v0 htb"]["found"] == "at root: its classes have a rate, every 2 ms at most"
    assert found["m0 mq"]["state"] == "ok"
    # One line with the remedy for all four queues below mq, which are default disciplines.
    [(check, default)] = [(c, f) for c, f in found.items() if c.startswith("m0 ") and c != "m0 mq"]
    assert default["state"] == "warn", check
    assert default["found"].startswith("4 at 1:*: ")
    assert default["remedy"].startswith("to steer it: tc qdisc replace dev m0 parent 1:N ")


@pytest.mark.real_time
def test_one_interface_only_on_demand(space: Space) -> None:
    found = findings(space, "--dev", "v1")
    assert "v1 tbf" in found
    assert not [check for check in found if check.startswith(("v0 ", "m0 "))]


@pytest.mark.real_time
def test_the_state_file_of_a_killed_steer_is_reported(space: Space) -> None:
    live = QUELL.with_name("quell-live")
    words = ("ip", "netns", "exec", space.name, live, "steer", "v0", "1:10", "77", "--with", "limit")
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "steered by" in process.stderr.readline()
    state = findings(space)["state file"]
    process.terminate()
    process.communicate(timeout=20)
    assert state["remedy"] == "if no quell steer runs on it: sudo quell steer --restore"


@pytest.mark.real_time
def test_the_kernels_support_for_bpf_is_reported(space: Space) -> None:
    found = findings(space)
    for check in ("clsact", "BPF", "BPF JIT", "BTF", "struct_ops", "BPF rights"):
        # net.core.bpf_jit_enable exists only in the initial network namespace.
        known = ("unknown",) if check == "BPF JIT" else ("ok", "warn")
        assert found[check]["state"] in known, check
    btf = "ok" if Path("/sys/kernel/btf/vmlinux").exists() else "warn"
    assert found["BTF"]["state"] == btf
    held = subprocess.run(
        ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "clsact"], capture_output=True
    ).returncode
    assert (found["clsact"]["state"] == "ok") == (held == 0)


@pytest.mark.real_time
def test_attached_queues_are_reported_per_interface(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kinds = [("a", "quell_hush", "9e00:", "root"), ("b", "mq", "1:", "root"), ("c", "quell_codel", "9e00:", "root")]
    kinds += [("m", "quell_hush", f"9e0{i}:", f"9dff:{i + 1}") for i in range(4)]
    saved = [tmp_path / f"attach-7-{dev}.json" for dev in ("a", "b-b", "m")]
    for path, count in zip(saved, (1, 0, 0), strict=True):
        path.write_text(json.dumps({"hooks": [{}] * count}))
    monkeypatch.setattr(_core, "disciplines", lambda: kinds)
    monkeypatch.setattr(_core, "attached_left", lambda: saved)
    filters = {"a": True}
    monkeypatch.setattr(kernel, "_filtered", filters.__getitem__)
    found = {finding.check: finding for finding in kernel.attached(None)}
    assert {check: finding.state for check, finding in found.items()} == {
        "a attached": "ok", "b-b attached": "warn", "c attached": "warn", "m attached": "ok",
    }  # fmt: skip
    assert found["m attached"].found.startswith("4 quell_hush: ")
    assert found["b-b attached"].remedy == "sudo quell detach b-b"
    assert "state file is gone" in found["c attached"].found
    filters["a"] = False
    [lacks] = kernel.attached("a")
    assert lacks.state == "warn" and lacks.remedy == "sudo quell attach a hush ecn, or noecn"
    # These are not listed as queues to steer.
    assert not [finding for finding in kernel.queues(None) if finding.check.startswith(("a ", "c ", "m "))]


@pytest.mark.parametrize(("error", "has"), [(errno.EAFNOSUPPORT, False), (errno.EMFILE, True), (errno.EACCES, True)])
def test_only_a_kernel_without_the_addresses_has_no_ipv6(
    monkeypatch: pytest.MonkeyPatch, error: int, has: bool
) -> None:
    def refused(family: int, *_: int) -> socket.socket:
        assert family == socket.AF_INET6
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(socket, "socket", refused)
    assert spaces.has_ipv6() is has


def test_ip6tables_is_tested_where_proc_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda *_, **__: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "has_ipv6", lambda: True)
    assert doctor._rule("ip6tables").state == "unknown", "it is to be tested as root"
    monkeypatch.setattr(doctor, "has_ipv6", lambda: False)
    assert doctor._rule("ip6tables").found == "not needed: the kernel has no IPv6"


def test_the_table_has_texts_as_they_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "_kernel", lambda: Finding("kernel", "warn", "[old]", ""))
    assert dispatch.call(["doctor"]) in (0, 1)
    [line] = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["kernel"]]
    assert line == ["kernel", "note", "[old]"]


def test_programs_are_found_in_folders_that_a_users_path_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name, path=None: f"/sbin/{name}" if "/sbin" in (path or "") else None)
    assert programs.find("iptables") == "/sbin/iptables"


def test_a_user_is_told_of_root_and_not_that_iptables_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert doctor._rule("iptables").remedy == "sudo quell doctor"
    with pytest.raises(InputError, match="run it as root"):
        nat.check()


@pytest.mark.parametrize(("error", "remedy"), [(errno.EACCES, "chmod 666"), (errno.ENOENT, "modprobe tun")])
def test_the_remedy_for_tun_follows_the_error(monkeypatch: pytest.MonkeyPatch, error: int, remedy: str) -> None:
    def refused(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "open", refused)
    assert remedy in doctor._tun().remedy


def test_a_user_is_offered_commands_with_sudo_where_they_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(suggestions, "_may_have_spaces", lambda: False)
    monkeypatch.setattr(suggestions, "interface", lambda: "wan 0")
    monkeypatch.setattr(_core, "disciplines", lambda: [("wan 0", "fq_codel", "0:", "root")])
    found = [Finding("/dev/net/tun", "ok", ""), Finding("CAP_NET_RAW", "fail", "")]
    shell, watch, live = suggestions.commands(found)
    assert shell.startswith("sudo quell shell ")
    assert watch == "quell watch 'wan 0' --duration 10s"
    assert live.startswith("sudo quell live 'wan 0' ")
    monkeypatch.setattr(suggestions, "interface", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    offered = suggestions.commands([Finding("/dev/net/tun", "fail", "")])
    assert [line.split()[1] for line in offered] == ["compare", "tune"], "what neither this root nor this machine can"


@pytest.mark.real_time
def test_the_commands_that_doctor_offers_work(tmp_path: Path) -> None:
    made = "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; tc qdisc add dev v0 root pfifo"
    with space_with("qo", made) as space:
        printed = space.run(QUELL, "doctor").stdout.split("Commands that work here:\n")[1].splitlines()
        assert 1 <= len(printed) <= 3
        for line in printed:
            words = shlex.split(re.sub("[0-9]+s$", "200ms", line))
            assert Path(words[0]).name == "quell"
            if words[1] == "shell":
                words += ["--", "true"]
            elif words[1] == "compare":
                words += ["--duration", "5s", "--warmup", "1s", "--seeds", "1"]
            asks = words[1:] == ["tune", "--ask"]
            if asks:  # it takes half a minute, so only the option is checked
                words[2] = "--help"
            done = space.run("env", "-C", tmp_path, *words)
            assert done.returncode == 0, (line, done.stderr)
            assert not asks or "--ask" in done.stdout
