"""tools/kernel/fetch with archives on this machine: it takes only signed files."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import ROOT

MISSING = [name for name in ("gpg", "gpgv", "dpkg-deb", "curl", "ar", "xz") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"missing: {', '.join(MISSING)} (on Debian: apt-get install)")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Archive:
    """An archive with a kernel and busybox, in a served folder."""

    def __init__(self, folder: Path, home: str) -> None:
        self.folder = folder
        self._home = home
        self._gpg("--passphrase", "", "--quick-generate-key", "archive@host.example", "ed25519", "sign", "1d")
        self.keyring = folder.parent / "keys.gpg"
        self._gpg("--output", str(self.keyring), "--export")
        kernel = {"boot/vmlinuz-9.9": "kernel", "lib/modules/9.9/kernel/net/sch.ko": "module"}
        drivers = {f"lib/modules/9.9/kernel/drivers/net/{name}.ko": name for name in ("veth", "dummy", "ifb")}
        self._packages = {
            "backports": [self._package("linux-image-9.9-amd64", kernel | drivers)],
            "base": [self._package("busybox-static", {"bin/busybox": "busybox"})],
        }
        for suite in ("base-backports", "base"):
            self.index(suite)
            self.sign(suite)

    def _gpg(self, *words: str) -> None:
        command = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--homedir", self._home, *words]
        subprocess.run(command, check=True, capture_output=True)

    def _package(self, name: str, files: dict[str, str]) -> str:
        tree = self.folder.parent / name
        control = f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: A <a@host.example>\nDescription: a\n"
        for path, text in {"DEBIAN/control": control, **files}.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        file = self.folder / "pool" / f"{name}.deb"
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "-Zxz", "--build", tree, file], check=True, capture_output=True)
        return f"Package: {name}\nFilename: pool/{name}.deb\nSHA256: {hashlib.sha256(file.read_bytes()).hexdigest()}\n"

    def index(self, suite: str, signed: str = "") -> None:
        """Write the index of a suite, and the text to sign."""
        data = lzma.compress("\n".join(self._packages[suite.removeprefix("base-")]).encode())
        total, place = hashlib.sha256(data).hexdigest(), "main/binary-amd64"
        for name in ("Packages.xz", f"by-hash/SHA256/{total}"):
            path = self.folder / "dists" / suite / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        text = f"Codename: {signed or suite}\nSHA256:\n {total} {len(data)} {place}/Packages.xz\n"
        (self.folder / "dists" / suite / "InRelease").write_text(text)

    def sign(self, suite: str) -> None:
        release = self.folder / "dists" / suite / "InRelease"
        text = release.with_name("Release")
        release.rename(text)
        self._gpg("--output", str(release), "--clearsign", str(text))


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    # gpg's agent has a socket there, whose path is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gpg-", ignore_cleanup_errors=True) as home:
        yield Archive(tmp_path / "archive", home)


@pytest.fixture
def mirror(archive: Archive) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(archive.folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def fetch(folder: Path, mirror: str, keyring: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run a copy of the program; return its result, and where it puts the kernel."""
    program = folder / "tools/kernel/fetch"
    shutil.copytree(ROOT / "tools/kernel", program.parent)
    words = {"MIRROR": mirror, "SUITE": "base-backports", "RELEASE": "9.9", "KEYRING": str(keyring)}
    done = subprocess.run([program], env=os.environ | words, capture_output=True, text=True, timeout=60)
    return done, folder / ".cache/kernel/9.9/vmlinuz"


def test_a_signed_archive_gives_a_kernel(tmp_path: Path, archive: Archive, mirror: str) -> None:
    done, kernel = fetch(tmp_path, mirror, archive.keyring)
    assert done.returncode == 0, done.stderr
    assert kernel.read_text() == "kernel"


ATTACKS = {
    "a key that is not in the keyring": "has signed it",
    "no signature": "has signed it",
    "a text behind the signed one": "has signed it",
    "another index": "checksum",
    "another package": "checksum",
    "another suite": "of another suite",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_taken_from_a_forged_archive(tmp_path: Path, archive: Archive, mirror: str, attack: str) -> None:
    release = archive.folder / "dists/base-backports/InRelease"
    match attack:
        case "no signature":
            archive.index("base-backports")
        case "a text behind the signed one":
            release.write_text(
                release.read_text().replace("SHA256:\n", f"SHA256:\n {'0' * 64} 1 main/binary-amd64/Packages.xz\n", 1)
            )
        case "another index":
            for path in release.parent.glob("main/binary-amd64/by-hash/SHA256/*"):
                path.write_bytes(lzma.compress(lzma.decompress(path.read_bytes()) + b"\n"))
        case "another package":
            with (archive.folder / "pool/linux-image-9.9-amd64.deb").open("ab") as package:
                package.write(b"\n")
        case "another suite":
            archive.index("base-backports", signed="base")
            archive.sign("base-backports")
        case "a key that is not in the keyring":
            archive.keyring.write_bytes(b"")
    done, kernel = fetch(tmp_path, mirror, archive.keyring)
    assert not kernel.exists()
    assert done.returncode == 1, done.stderr
    assert ATTACKS[attack] in done.stderr and done.stderr.count("\n") == 1, done.stderr
