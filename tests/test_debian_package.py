"""The Debian package: its scripts, lintian's findings, and its life cycle on a machine with systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import quell
from conftest import ROOT, run
from kernel_vm import STATIC_LIVE
from live_net import cgroup2, missing

SCRIPTS = ROOT / "packaging/debian"
pytestmark = pytest.mark.skipif(
    shutil.which("dpkg-deb") is None, reason="dpkg-deb is missing: the Debian package can be built on Debian only"
)


def package(folder: Path, program: Path, builder: Path = SCRIPTS / "build") -> Path:
    """Build the package."""
    done = run([str(builder), str(program), str(folder)], ROOT)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("quell-live_*.deb")
    return made


# Its scripts. ---------------------------------------------------------------------------------------------------------

UPDATE = [
    "deb-systemd-helper debian-installed quell-live.service",
    "deb-systemd-helper --quiet was-enabled quell-live.service",
]
CONFIGURE = [
    *UPDATE,
    "deb-systemd-helper enable quell-live.service",
    "deb-systemd-helper update-state quell-live.service",
]
CALLS: dict[tuple[str, ...], list[str]] = {
    ("postinst", "configure", ""): [*CONFIGURE, "systemctl --system daemon-reload"],
    ("postinst", "configure", "0.2.0"): [
        *CONFIGURE, "systemctl --system daemon-reload", "deb-systemd-invoke try-restart quell-live.service",
    ],
    ("postinst", "abort-upgrade", "0.2.0"): [
        *CONFIGURE, "systemctl --system daemon-reload", "deb-systemd-invoke try-restart quell-live.service",
    ],
    ("postinst", "triggered", "x"): [],
    ("prerm", "upgrade", "0.3.0"): [],
    ("prerm", "remove"): ["deb-systemd-invoke stop quell-live.service", "quell-live --restore --quiet"],
    ("postrm", "upgrade", "0.3.0"): [],
    ("postrm", "remove"): ["systemctl --system daemon-reload"],
    ("postrm", "purge"): ["deb-systemd-helper purge quell-live.service"],
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("systemd", [True, False], ids=["systemd", "no-systemd"])
def test_a_script_calls_what_policy_has_for_it(tmp_path: Path, call: tuple[str, ...], systemd: bool) -> None:
    programs, said = tmp_path / "bin", tmp_path / "said"
    programs.mkdir()
    for name in ("systemctl", "deb-systemd-helper", "deb-systemd-invoke", "quell-live"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{said}\n')
        (programs / name).chmod(0o755)
    text = (SCRIPTS / call[0]).read_text("utf-8")
    text = text.replace("/run/systemd/system", str(tmp_path if systemd else tmp_path / "none"))
    text = text.replace("/var/lib/", f"{tmp_path}/lib/")
    learned = [tmp_path / "lib" / name for name in ("quell-live", "private/quell-live", "quell")]
    another = tmp_path / "lib/private/another"
    for folder in (*learned, another):
        folder.mkdir(parents=True)
    script = tmp_path / "script"
    script.write_text(text, "utf-8")
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(["sh", script, *call[1:]], env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    called = said.read_text().splitlines() if said.exists() else []
    # Without systemd the unit's state is still kept, for a later installation of systemd.
    assert called == [one for one in CALLS[call] if systemd or one.startswith("deb-systemd-helper")]
    assert [folder.exists() for folder in learned] == [call != ("postrm", "purge")] * 3 and another.exists()


# Lintian. -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("contact", ["", "Jane O'Neill <jane@host.example>"], ids=["no-contact", "contact"])
def test_the_only_error_of_lintian_is_the_missing_contact(tmp_path: Path, contact: str) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("lintian is missing: apt-get install lintian")
    tree = tmp_path / "tree"
    patterns = ("packaging/debian/*", "docs/how-to/*.md", "crates/*/Cargo.toml", "*.toml", "*.md", "*.cff", "Makefile")
    read = (*patterns, "crates/quell-link/models/*", "examples/*.service", "tools/address.py")
    for path in (path for one in read for path in ROOT.glob(one)):
        to = tree / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    if contact:
        done = run(["make", "address", "URL=https://host.example/owner/quell", f"CONTACT={contact}"], tree)
        assert done.returncode == 0, done.stderr
    made = package(tmp_path, STATIC_LIVE, tree / "packaging/debian/build")
    done = run(["lintian", "--fail-on", "none", "--tag-display-limit", "0", str(made)], tmp_path)
    errors = re.findall(r"^E: quell-live: (\S+)", done.stdout, re.MULTILINE)
    assert errors == ([] if contact else ["malformed-contact"]), done.stdout + done.stderr
    if contact:
        field = run(["dpkg-deb", "--field", str(made), "Maintainer"], tmp_path)
        assert field.stdout == f"{contact}\n"


# Life cycle. ----------------------------------------------------------------------------------------------------------


class Machine:
    """A Debian system of its own, with systemd as its first process and without a network."""

    def __init__(self, root: Path, boot: subprocess.Popen[str]) -> None:
        self.root = root
        self._boot = boot

    @property
    def pid(self) -> int:
        children = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children").read_text()
        return int(children.split()[0])

    def __call__(self, command: str, status: int = 0) -> str:
        """Run a shell command on the machine; return its output."""
        words = ["nsenter", "--all", f"--target={self.pid}", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        words += ["DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER=cat", "sh", "-c", command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def until_active(self, unit: str) -> None:
        """Wait until the machine is up and a unit is active."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self(f"systemctl is-active {unit}")
                return
            except (AssertionError, IndexError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


BOOT = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
ln -s /proc/self/fd dev/fd
mkdir dev/shm dev/pts old
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
pivot_root . old
cd /
umount -l old
exec env -i container=quell /sbin/init </dev/null >/dev/null 2>&1
"""


@contextmanager
def booted(root: Path) -> Iterator[Machine]:
    """Boot a system in namespaces and in a control group of its own."""
    group = cgroup2() / f"quell-test-{os.getpid()}"
    group.mkdir()
    script = f'echo $$ >{group}/cgroup.procs; exec unshare -m -p -n -i -u -C --fork --kill-child sh -c "$2" sh "$1"'
    try:
        with subprocess.Popen(["sh", "-c", script, "sh", str(root), BOOT], text=True) as boot:
            try:
                machine = Machine(root, boot)
                machine.until_active("multi-user.target")
                yield machine
            finally:
                boot.kill()
    finally:
        for _ in range(100):
            try:
                for folder in sorted(group.rglob("*"), reverse=True):
                    if folder.is_dir():
                        folder.rmdir()
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def of_0_2_0(new: Path, folder: Path) -> Path:
    """Give the package the scripts, the unit's place and folder, and the version number of 0.2.0."""
    tree = folder / "old"
    subprocess.run(["dpkg-deb", "--raw-extract", new, tree], check=True)
    (tree / "DEBIAN/postinst").unlink()
    (tree / "DEBIAN/prerm").write_text(
        '#!/bin/sh\nset -e\nif [ "$1" = remove ] && [ -d /run/systemd/system ]; then\n'
        "    systemctl --no-reload disable --now quell-live.service || true\nfi\n"
    )
    (tree / "DEBIAN/postrm").write_text(
        "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then\n    systemctl daemon-reload || true\nfi\n"
    )
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {quell.__version__}", "Version: 0.2.0~old"))
    unit = tree / "lib/systemd/system/quell-live.service"
    unit.parent.mkdir(parents=True)
    (tree / "usr/lib/systemd/system/quell-live.service").rename(unit)
    shutil.rmtree(tree / "usr/lib")
    unit.write_text(unit.read_text().replace("RuntimeDirectory=quell-live\n", "RuntimeDirectory=quell\n"))
    made = folder / "old.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, made], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the root file system of a newly installed machine."""
    if reason := missing():
        pytest.skip(f"quell live cannot run here: {reason}")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is missing: apt-get install mmdebstrap")
    root = tmp_path_factory.mktemp("system") / "root"
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd-sysv,nftables,iptables,iproute2"]
    command += [request.param, str(root), os.environ.get("MIRROR", "http://deb.debian.org/debian")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"mmdebstrap: {(done.stderr.strip().splitlines() or ['it failed'])[0]}")
    yield root
    shutil.rmtree(root, ignore_errors=True)


LINK = "/etc/systemd/system/multi-user.target.wants/quell-live.service"
TREE = "find / -xdev -path /proc -prune -o -path /var/log -prune -o -name '*quell*' -print"


@pytest.mark.slow
def test_it_is_installed_runs_is_upgraded_removed_and_purged(system: Path, tmp_path: Path) -> None:
    new = package(tmp_path, STATIC_LIVE)
    for name, file in (("old.deb", of_0_2_0(new, tmp_path)), ("new.deb", new)):
        shutil.copy(file, system / name)
    active = "systemctl is-active quell-live || true"
    # quell uses iptables where the kernel's nftables have no queues.
    rules = "{ nft list tables; iptables-save -t mangle; } 2>/dev/null | grep -E 'quell_live|NFQUEUE' || true"
    with booted(system) as at:
        at("ip link add q0 type veth peer name q1 && ip addr add 10.9.9.1/24 dev q0")
        at("ip addr add fd00:9::1/64 dev q0 nodad")
        at("ip link set lo up; ip link set q0 up; ip link set q1 up")

        # The service needs a configuration: the installation neither starts nor enables it.
        at("dpkg --install /old.deb")
        assert at(active) == "inactive" and at("systemctl is-enabled quell-live", 1) == "disabled"
        config = 'dev = "q0"\nrate = "8mbit"\n'
        (system / "etc/quell/live.toml").write_text(config)
        at("systemctl enable --now quell-live")
        assert at(active) == "active" and "q0" in at(rules)
        before, pid = at(rules), at("systemctl show -P MainPID quell-live")
        at("test -L /run/quell")

        # After an upgrade the new program runs like the old one, of which nothing is left.
        at("dpkg --install /new.deb")
        assert at("dpkg-query -f '${Status} ${Version}' -W quell-live") == f"install ok installed {quell.__version__}"
        at.until_active("quell-live")
        assert at("systemctl show -P MainPID quell-live") != pid
        assert at("readlink /proc/$(systemctl show -P MainPID quell-live)/exe") == "/usr/sbin/quell-live"
        assert at(rules) == before
        at("test ! -L /run/quell && test ! -e /run/quell && test -d /run/quell-live")
        assert (system / "etc/quell/live.toml").read_text() == config

        # An upgrade leaves a stopped service stopped.
        at("systemctl stop quell-live")
        assert at(rules) == ""
        at("dpkg --install /new.deb")
        assert at(active) == "inactive" and at("systemctl is-enabled quell-live") == "enabled"

        # The unit blocks packets to all hosts but those that a drop-in names.
        (system / "etc/quell/live.toml").write_text(
            'dev = "q0"\nautorate = true\nreflector = ["10.9.9.2", "fd00:9::2"]\n'
        )
        at("systemctl start quell-live", 1)
        said = at("journalctl --no-pager --output=cat -u quell-live")
        assert "packets to 10.9.9.2 may not leave" in said and "--print-dropin" in said, said
        assert at(rules) == ""
        drop_in = "/etc/systemd/system/quell-live.service.d/reflectors.conf"
        at(f"quell-live --config /etc/quell/live.toml --print-dropin | install -D -m 644 /dev/stdin {drop_in}")
        at("systemctl daemon-reload; systemctl reset-failed quell-live; systemctl start quell-live")
        assert at(active) == "active" and "q0" in at(rules)

        # On a full disk the unit cannot restore what its killed process left. The removal does.
        at("systemctl stop quell-live && mount -t tmpfs -o nr_inodes=9 none /tmp && systemctl start quell-live")
        at("while mktemp /tmp/XXXXXX; do :; done 2>/dev/null; systemctl kill --signal=KILL quell-live")
        time.sleep(4)
        at("dpkg --remove quell-live")
        assert at(active) in ("inactive", "unknown") and at(rules) == ""
        at("umount /tmp && dpkg --install /new.deb && systemctl start quell-live")
        assert at(active) == "active" and "q0" in at(rules)

        at("dpkg --remove quell-live")
        assert at(active) in ("inactive", "unknown") and at(rules) == ""
        at("test ! -e /usr/sbin/quell-live && test -e /etc/quell/live.toml && test ! -e /run/quell-live")
        at("dpkg --purge quell-live")
        at(f"test ! -L {LINK} && rm -r {Path(drop_in).parent}")
        assert at(TREE) == ""
