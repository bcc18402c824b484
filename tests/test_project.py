"""The project around the code: versions, metadata, workflows, packages and instructions for newcomers."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import quell
from conftest import ROOT, run
from quell import papers

VERSIONED = ("Cargo.toml", "Cargo.lock", "examples/own-discipline/Cargo.lock", "CITATION.cff", "CHANGELOG.md")
RECIPE = "packaging/openwrt/Makefile"
CONTACT = "packaging/debian/contact"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the files that have a version or an address, and the tools."""
    manifests = [str(path.relative_to(ROOT)) for path in ROOT.glob("crates/*/Cargo.toml")]
    for name in (*VERSIONED, RECIPE, "Makefile", "pyproject.toml", "README.md", CONTACT, *manifests):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("oracle", "peers", "__pycache__"))
    return tmp_path


def _tool(folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, f"tools/{name}.py", *words], folder)


def test_all_places_have_the_same_version() -> None:
    done = _tool(ROOT, "version", "--check")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == quell.__version__


def test_one_command_changes_every_version(copy: Path) -> None:
    old = tomllib.loads((copy / "Cargo.toml").read_text("utf-8"))["workspace"]["package"]["version"]
    (copy / "CHANGELOG.md").write_text("# Changes\n\n## Unreleased\n\n- A change.\n", "utf-8")
    done = _tool(copy, "version", "12.34.56", "2031-02-03")
    assert done.returncode == 0, done.stderr
    assert "## Unreleased\n\n## 12.34.56 (2031-02-03)\n\n- A change." in (copy / "CHANGELOG.md").read_text("utf-8")
    assert "date-released: 2031-02-03" in (copy / "CITATION.cff").read_text("utf-8")
    for name in (*VERSIONED, RECIPE):
        text = (copy / name).read_text("utf-8")
        assert "12.34.56" in text, name
        # Other packages and formats have their own versions.
        assert not re.search(rf'(?:quell[^\n]*|^version: |VERSION:=)"?{re.escape(old)}', text, re.MULTILINE), name
    lock = tomllib.loads((copy / "Cargo.lock").read_text("utf-8"))
    ours = {one["name"]: one["version"] for one in lock["package"] if one["name"].startswith("quell-")}
    members = [path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")]
    assert ours == dict.fromkeys([*members, "quell-fuzz"], "12.34.56")


@pytest.mark.parametrize("words", [["0.2"], ["v0.2.0"], [], ["0.2.0", "yesterday"]])
def test_an_invalid_version_changes_nothing(copy: Path, words: list[str]) -> None:
    before = {name: (copy / name).read_bytes() for name in VERSIONED}
    done = _tool(copy, "version", *words)
    assert done.returncode == 1 and done.stderr.startswith("version: ") and done.stderr.count("\n") == 1
    assert {name: (copy / name).read_bytes() for name in VERSIONED} == before


def test_places_that_disagree_are_named(copy: Path) -> None:
    recipe = copy / RECIPE
    recipe.write_text(re.sub(r"PKG_VERSION:=.*", "PKG_VERSION:=0.0.1", recipe.read_text("utf-8")), "utf-8")
    done = _tool(copy, "version", "--check")
    assert done.returncode == 1
    assert f"{RECIPE}:" in done.stderr and "0.0.1" in done.stderr


def test_packages_get_the_address_and_absolute_links(copy: Path) -> None:
    done = _tool(copy, "address", "https://host.example/owner/quell")
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((copy / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Repository"] == "https://host.example/owner/quell"
    readme = (copy / "README.md").read_text("utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", readme)
    assert len(targets) > 20 and all(target.startswith(("https://", "#")) for target in targets)
    assert f"/raw/v{quell.__version__}/docs/images/front.png" in readme
    again = _tool(copy, "address", "https://host.example/owner/quell")
    assert again.returncode == 1 and "already" in again.stderr
    assert _tool(copy, "address", "host.example").returncode == 1


def test_packages_get_a_contact(copy: Path) -> None:
    before = (copy / "Cargo.toml").read_text("utf-8")
    for wrong in ("Jane", "Jane <jane>", "jane@host.example", "Jane <jane@host.example>\nX: y", "$(id) <a@b>"):
        done = run(["make", "address", "URL=https://host.example/owner/quell", f"CONTACT={wrong}"], copy)
        assert done.returncode == 2 and "is not a contact" in done.stderr, done
    assert (copy / "Cargo.toml").read_text("utf-8") == before
    contact = "Jane O'Neill <jane@host.example>"
    done = run(["make", "address", "URL=https://host.example/owner/quell", f"CONTACT={contact}"], copy)
    assert done.returncode == 0, done.stderr
    assert (copy / CONTACT).read_text("utf-8") == contact + "\n"


def test_an_index_shows_readme_whole_with_its_pictures_and_links(copy: Path) -> None:
    """Rendered by PyPI's own renderer, as in `twine check`."""
    from readme_renderer import markdown

    _tool(copy, "address", "https://host.example/owner/quell")
    warned = io.StringIO()
    page = markdown.render((copy / "README.md").read_text("utf-8"), stream=warned)
    assert page is not None and warned.getvalue() == ""
    assert page.count("<img") == 1 and page.count("<table") == 1 and page.count("<pre") >= 5
    for tag, target in re.findall(r'<(img|a)\b[^>]*?(?:src|href)="([^"]*)"', page):
        assert target.startswith("https://host.example/") or (tag == "a" and target.startswith("#")), target
        if target.startswith("https:"):  # the address leads to a file of the repository
            path = re.sub(r"^https://host.example/owner/quell/[a-z]+/v[^/]+/", "", target).partition("#")[0]
            assert (ROOT / path).exists(), target


def test_the_repository_holds_no_address_of_its_own() -> None:
    for name in ("Cargo.toml", "pyproject.toml", "CITATION.cff"):
        assert not re.search(r"https?://", (ROOT / name).read_text("utf-8")), name


def test_metadata_names_every_python_that_the_workflow_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    matrix = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))["jobs"]["test"]["strategy"][
        "matrix"
    ]
    assert set(matrix["python"]) <= named
    assert project["authors"] and project["keywords"] and project["license"]
    assert min(named, key=lambda one: int(one.split(".")[1])) == project["requires-python"].removeprefix(">=")


def test_the_citation_names_every_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    for paper in map(papers.find, papers.MODULES):
        assert any(one["authors"][0]["family-names"] in paper.source for one in citation["references"]), paper.source
    assert len(citation["references"]) == len(papers.MODULES)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_few_rights_limits_and_calls_what_a_developer_can_call(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "uses" in job or "timeout-minutes" in job, name
        for step in job.get("steps", []):
            assert "uses" in step or "run" in step, name
            called = re.findall(r"\bmake ([a-z][a-z-]*)", step.get("run", ""))
            assert set(called) <= targets, f"{name}: {called}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_actions_by_commit_and_grants_third_party_actions_no_rights(path: Path) -> None:
    text = path.read_text("utf-8")
    for action in re.findall(r"uses: (.*)", text):
        assert action.startswith("./") or re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", action), action
    for name, job in yaml.safe_load(text)["jobs"].items():
        written = {right for right, how in job.get("permissions", {}).items() if how == "write"}
        assert written in (set(), {"contents"}, {"id-token"}, {"id-token", "attestations"}, {"id-token", "pages"}), name
        actions = [step["uses"] for step in job.get("steps", []) if "uses" in step]
        assert not written or all(action.startswith("actions/") for action in actions), name


def test_no_file_is_a_symbolic_link() -> None:
    """On Windows a checkout turns symbolic links into text files."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a checkout")
    listed = run(["git", "ls-files", "--stage"], ROOT).stdout.splitlines()
    assert listed and [line for line in listed if line.startswith("120000")] == []


def test_long_tests_are_beside_their_module() -> None:
    inline = re.compile(r"^#\[cfg\(test\)\]\n[\w() ]*mod \w+ \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
    sources = {path: inline.findall(path.read_text("utf-8")) for path in ROOT.glob("crates/*/src/**/*.rs")}
    assert sum(map(len, sources.values())) > 100
    long = [str(path) for path, modules in sources.items() if any(text.count("\n") > 300 for text in modules)]
    assert not long, "move the tests to tests.rs in a folder of the module's name"


def test_uv_is_installed_by_version_and_hash() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (installs,) = re.findall(r"pip install (?:.*\\\n)*.*uv-bin(?:.*\\\n)*.*", makefile)
    assert "--require-hashes -r $<" in installs
    assert re.match(r"uv==[\d.]+ \\\n    --hash=sha256:", (ROOT / "requirements/uv.txt").read_text("utf-8"))


def test_make_help_lists_every_target_that_is_called_by_name() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    phony = re.search(r"\.PHONY: ((?:.*\\\n)*.*)", makefile)
    assert phony is not None
    names = set(phony[1].replace("\\\n", " ").split()) - {"help"}
    listed = set(re.findall(r"make ([a-z-]+)", run(["make", "help"], ROOT).stdout))
    assert names <= listed


def test_openwrts_start_script_is_a_shell_script() -> None:
    script = ROOT / "packaging/openwrt/files/quell.init"
    done = run(["sh", "-n", str(script)], ROOT)
    assert done.returncode == 0, done.stderr


def test_openwrts_start_script_starts_an_instance_per_interface(tmp_path: Path) -> None:
    """The script runs with functions that print what OpenWrt's own would do."""
    functions = """
config_load() { :; }
config_foreach() { "$1" wan; "$1" off; "$1" bare; }
config_get_bool() { eval "$1=\\${$2_$3:-$4}"; }
config_list_foreach() { eval "for item in \\${$1_$2:-}; do $3 \\$item $4; done"; }
config_get() { eval "$1=\\${$2_$3:-}"; }
procd_open_instance() { echo "open $1"; }
procd_set_param() { echo "set $*"; }
procd_append_param() { echo "append $*"; }
procd_close_instance() { echo close; }
logger() { echo "log $3"; }
wan_enabled=1 wan_dev=eth0 wan_rate=18mbit wan_aqm='codel target 10ms' wan_ingress_aqm=cake
wan_autorate=1 wan_reflector='192.0.2.1 192.0.2.2' wan_tunnels=0 wan_status=/run/quell.sock
off_enabled=0 off_dev=eth1 bare_enabled=1
"""
    init = (ROOT / "packaging/openwrt/files/quell.init").read_text("utf-8")
    script = tmp_path / "script"
    script.write_text(functions + init + "\nstart_service\n", "utf-8")
    done = run(["sh", str(script)], tmp_path)
    assert done.stdout.splitlines() == [
        "open wan",
        "set command /usr/sbin/quell-live",
        "append command --dev eth0",
        "append command --rate 18mbit",
        "append command --aqm codel target 10ms",
        "append command --ingress-aqm cake",
        "append command --autorate",
        "append command --reflector 192.0.2.1",
        "append command --reflector 192.0.2.2",
        "append command --status /run/quell.sock",
        "set respawn",
        "set stderr 1",
        "close",
        "log section bare has no dev: not started",
    ]


def test_the_debian_package_holds_the_program_its_unit_and_its_configuration(tmp_path: Path) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is missing: the Debian package can be built on Debian only")
    program = tmp_path / "quell-live"
    program.write_text("#!/bin/sh\necho quell-live\n", "utf-8")
    done = run(["packaging/debian/build", str(program), str(tmp_path / "out")], ROOT)
    assert done.returncode == 0, done.stderr
    (package,) = (tmp_path / "out").glob(f"quell-live_{quell.__version__}_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path / "tree"], check=True)
    subprocess.run(["dpkg-deb", "--control", package, tmp_path / "control"], check=True)
    assert (tmp_path / "tree/usr/sbin/quell-live").stat().st_mode & 0o777 == 0o755
    manuals = {path.name for path in (tmp_path / "tree/usr/share/doc/quell-live").glob("*.md")}
    assert manuals == {"live.md", "kernel.md"}
    unit = (tmp_path / "tree/usr/lib/systemd/system/quell-live.service").read_text("utf-8")
    assert unit.startswith("[Unit]\n")
    assert "ExecStart=/usr/sbin/quell-live --config /etc/quell/live.toml\n" in unit
    assert "/usr/local" not in unit
    conffiles = (tmp_path / "control/conffiles").read_text("utf-8").split()
    assert conffiles == ["/etc/quell/live.toml"]
    assert all((tmp_path / "tree" / name.lstrip("/")).exists() for name in conffiles)
    done = run(["md5sum", "--check", "--quiet", str(tmp_path / "control/md5sums")], tmp_path / "tree")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "packaging/container").iterdir()), ids=lambda path: path.name)
def test_a_container_copies_only_what_make_leaves(path: Path) -> None:
    """No engine builds it here: each copied file is allowed by .dockerignore and written by a target of make."""
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    copied = re.findall(r"^COPY (\S+)", path.read_text("utf-8"), re.MULTILINE)
    assert copied and all(f"!{name}" in ignored for name in copied)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/how-to/install.md"])
def test_targets_and_paths_that_a_page_names_exist(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)) | {".venv/test.installed"}
    for target in re.findall(r"\bmake ([.a-z][\w./-]*)", text):
        assert target in targets, target
    for path in re.findall(r"(?<![\w/.-])((?:tests|tools|benches|packaging|examples|crates)/[\w./-]+)", text):
        assert (ROOT / path.rstrip(".")).exists() or "NAME" in path, path
