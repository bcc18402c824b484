#!/usr/bin/env python3
"""Print the share of quell's Rust lines that its Rust tests run.

    python3 tools/coverage.py [CRATE...]

Builds the named crates (default: quell-qdisc) in target/coverage with rustc's coverage counters, and tests them. Prints
the share of each file's lines that a test ran; target/coverage/missed.txt lists the lines that none ran. Lines of tests
do not count, and code that only Python tests run, through the extension module, counts as missed. Needs the LLVM of
rustc: `rustup component add llvm-tools`, or on Debian `apt-get install llvm-22`.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "target" / "coverage"


def llvm(name: str) -> pathlib.Path:
    """Find a tool of rustc's LLVM; other versions cannot read its profiles."""

    def rustc(*arguments: str) -> str:
        return subprocess.run(["rustc", *arguments], check=True, capture_output=True, text=True).stdout.strip()

    words = dict(line.split(": ", 1) for line in rustc("-vV").splitlines()[1:])
    version = words["LLVM version"].split(".")[0]
    sysroot = pathlib.Path(rustc("--print", "sysroot"))
    places = [
        sysroot / "lib/rustlib" / words["host"] / "bin" / name,
        pathlib.Path(f"/usr/lib/llvm-{version}/bin/{name}"),
    ]
    for place in places:
        if place.exists():
            return place
    raise SystemExit(f"{name} is missing; rustup component add llvm-tools, or on Debian apt-get install llvm-{version}")


def tested(crates: list[str]) -> str:
    """Run the tests; return their coverage in lcov's format."""
    shutil.rmtree(WORK / "raw", ignore_errors=True)
    environment = os.environ | {
        "RUSTFLAGS": "-C instrument-coverage",
        "CARGO_TARGET_DIR": str(WORK / "build"),
        "CARGO_INCREMENTAL": "0",
        "LLVM_PROFILE_FILE": str(WORK / "raw" / "%m-%p.profraw"),
    }
    command = ["cargo", "test", "--quiet", "--locked", "--lib", "--tests"]
    command += [word for crate in crates for word in ("--package", crate)]
    listed = subprocess.run(
        [*command, "--no-run", "--message-format", "json"],
        cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    messages = [json.loads(line) for line in listed.splitlines() if line.startswith("{")]
    programs = sorted({m["executable"] for m in messages if m.get("executable")})
    # Tests that count allocations fail, because the counters allocate.
    subprocess.run([*command, "--no-fail-fast"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    profile = WORK / "all.profdata"
    raw = [str(path) for path in (WORK / "raw").iterdir()]
    subprocess.run([llvm("llvm-profdata"), "merge", "--sparse", "-o", profile, *raw], check=True)
    objects = [word for program in programs for word in ("--object", program)][1:]
    export = [llvm("llvm-cov"), "export", "--format=lcov", f"--instr-profile={profile}", *objects]
    return subprocess.run(export, check=True, stdout=subprocess.PIPE, text=True).stdout


def counted(lcov: str, crates: list[str]) -> dict[pathlib.Path, dict[int, bool]]:
    """Return by source file whether each line with code ran."""
    found: dict[pathlib.Path, dict[int, bool]] = {}
    for name, record in re.findall(r"^SF:(.*?)$(.*?)^end_of_record", lcov, re.DOTALL | re.MULTILINE):
        path = pathlib.Path(name)
        sources = [ROOT / "crates" / crate / "src" for crate in crates]
        if path.stem == "tests" or not any(path.is_relative_to(source) for source in sources):
            continue
        lines = path.read_text("utf-8").splitlines()
        end = next((number for number, line in enumerate(lines, 1) if line == "#[cfg(test)]"), len(lines) + 1)
        ran = {int(number): count != "0" for number, count in re.findall(r"^DA:(\d+),(\d+)", record, re.MULTILINE)}
        found[path.relative_to(ROOT)] = {number: seen for number, seen in ran.items() if number < end}
    return {path: seen for path, seen in sorted(found.items()) if seen}


def main() -> None:
    crates = sys.argv[1:] or ["quell-qdisc"]
    files = counted(tested(crates), crates)
    missed = [f"{path}:{number}" for path, ran in files.items() for number, seen in ran.items() if not seen]
    (WORK / "missed.txt").write_text("\n".join(missed) + "\n", "utf-8")
    for path, ran in files.items():
        print(f"{sum(ran.values()) / len(ran):7.1%} of {len(ran):5,} lines  {path}")
    for crate in crates:
        of_crate = [seen for path, ran in files.items() if crate in path.parts for seen in ran.values()]
        print(f"{sum(of_crate) / len(of_crate):7.1%} of {len(of_crate):5,} lines  {crate}")


if __name__ == "__main__":
    main()
