#!/usr/bin/env python3
"""Mutation tests of quell-qdisc: a random sample of cargo-mutants' list, all in one build.

    python3 tools/mutants.py [--sample 200] [--seed 1] [--jobs 2] [--only TEXT]

All mutants of a function are written into a copy of the sources, in target/mutants; QUELL_MUTANT in the environment
picks the one that runs. So a mutant costs a run of the crate's tests, not a build. Mutants of constants and of `const
fn` are not sampled, because they cannot be picked at run time. Mutants that do not compile are left out. Prints
survivors and totals; the exit status is 1 if the tests caught fewer than 90 % of the mutants that ran.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "target" / "mutants"
TREE = WORK / "tree"
CRATE = "crates/quell-qdisc"
SWITCH = """
/// The mutant that runs, by its number in the list.
#[doc(hidden)]
pub fn mutant(number: u32) -> bool {
    static CHOSEN: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| std::env::var("QUELL_MUTANT").map_or(0, |n| n.parse().unwrap()));
    *CHOSEN == number
}
"""
MEMORY = 4 << 30
# Seconds after which a program is ended even if it uses no CPU time.
TIMEOUT_S = 1200
TARGET = 0.9

Mutant = dict[str, Any]


class Source:
    """A source file, addressed by cargo-mutants' lines and columns, which count from 1."""

    def __init__(self, file: str) -> None:
        self.text = (ROOT / file).read_text()
        self.lines = [0]
        for line in self.text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def span(self, span: dict[str, dict[str, int]]) -> tuple[int, int]:
        """Offsets of the first character and of the one after the last."""
        start, end = (self.lines[span[side]["line"] - 1] + span[side]["column"] - 1 for side in ("start", "end"))
        return start, end

    def head(self, function: tuple[int, int]) -> str:
        """The function's text up to its body's brace."""
        start, end = function
        depth = 0
        for match in re.finditer(r"//[^\n]*|[()\[\]{]", self.text[start:end]):
            found = match.group()
            depth += (found in "([") - (found in ")]")
            if found == "{" and depth == 0:
                return self.text[start : start + match.start() + 1]
        raise SystemExit(f"no body: {self.text[start:end]}")


def sources(mutants: list[Mutant]) -> dict[str, Source]:
    return {file: Source(file) for file in {m["file"] for m in mutants}}


def switchable(mutants: list[Mutant]) -> list[Mutant]:
    """Keep mutants in bodies of functions that are not evaluated at compile time."""
    files = sources(mutants)

    def const(m: Mutant) -> bool:
        source = files[m["file"]]
        return bool(re.search(r"\bconst (unsafe )?fn\b", source.head(source.span(m["function"]["span"]))))

    return [m for m in mutants if m["function"] and not const(m)]


def write(mutants: dict[int, Mutant], files: dict[str, Source]) -> dict[str, list[tuple[int, int, int]]]:
    """Write the mutants into the copied files; return each mutant's first line, last line and number, by file."""
    functions: dict[str, dict[tuple[int, int], list[int]]] = {file: collections.defaultdict(list) for file in files}
    for number, m in mutants.items():
        functions[m["file"]][files[m["file"]].span(m["function"]["span"])].append(number)
    places: dict[str, list[tuple[int, int, int]]] = {}
    for file, spans in functions.items():
        source = files[file]
        for inner in sorted(spans):
            # A nested function is written with the outer one.
            outer = next((o for o in sorted(spans) if o[0] < inner[0] and inner[1] < o[1]), None)
            if outer:
                spans[outer] += spans.pop(inner)
        out, at = "", 0
        places[file] = []
        for (start, end), numbers in sorted(spans.items()):
            body = start + len(source.head((start, end)))
            out += source.text[at:body]
            for number in numbers:
                first, last = source.span(mutants[number]["span"])
                line = out.count("\n") + 1
                changed = source.text[body:first] + mutants[number]["replacement"] + source.text[last : end - 1]
                # A return, so that mutants do not have to agree in type.
                out += f" if crate::mutant({number}) {{ return {{ {changed} }}; }}\n"
                places[file].append((line, out.count("\n"), number))
            at = body
        (TREE / file).write_text(out + source.text[at:])
    return places


def copy() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for file in filter(None, tracked.split("\0")):
        if (ROOT / file).exists():
            (TREE / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, TREE / file, follow_symlinks=False)
    with (TREE / CRATE / "src/lib.rs").open("a") as lib:
        lib.write(SWITCH)


def cargo(*arguments: str) -> tuple[bool, list[dict[str, Any]]]:
    """Run Cargo; return whether it succeeded, and the compiler's messages."""
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(WORK / "build"),
        "CARGO_INCREMENTAL": "0",
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_PROFILE_TEST_DEBUG": "0",
        "RUSTFLAGS": "--cap-lints=allow",
    }
    command = ["cargo", *arguments, "--locked", "--package", "quell-qdisc", "--message-format", "json"]
    done = subprocess.run(command, cwd=TREE, env=environment, stdout=subprocess.PIPE, text=True)
    return done.returncode == 0, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def spans(message: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = message["spans"]
    return found + [span for child in message["children"] for span in spans(child)]


def build(mutants: dict[int, Mutant]) -> list[pathlib.Path]:
    """Build and return the test programs; remove mutants that do not compile."""
    files = sources(list(mutants.values()))
    for number, m in list(mutants.items()):
        source = files[m["file"]]
        if re.search(r"-> impl\b", source.head(source.span(m["function"]["span"]))):
            # `impl` would be a different type in each body.
            del mutants[number]
    while True:
        places = write(mutants, files)
        good, messages = cargo("check", "--lib")
        if good:
            break
        refused: set[int] = set()
        for message in messages:
            if message["reason"] != "compiler-message" or message["message"]["level"] != "error":
                continue
            for span in spans(message["message"]):
                refused |= {
                    number
                    for first, last, number in places.get(span["file_name"], [])
                    if span["line_start"] <= last and first <= span["line_end"]
                }
        if not refused:
            raise SystemExit("\n".join(m["message"]["rendered"] for m in messages if "message" in m))
        for number in refused:
            del mutants[number]
    _, messages = cargo("test", "--no-run")
    programs = [pathlib.Path(m["executable"]) for m in messages if m.get("executable") and m["profile"]["test"]]
    if not programs:
        raise SystemExit("the tests do not build: see above")
    return programs


def run(programs: dict[pathlib.Path, int], number: int) -> str:
    """Return `caught`, `missed` or `timeout`; each program may use its number of seconds of CPU time."""
    environment = os.environ | {"QUELL_MUTANT": str(number), "CARGO_MANIFEST_DIR": str(TREE / CRATE)}

    def bound(seconds: int) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))

    for program, seconds in programs.items():
        try:
            done = subprocess.run(
                # Tests of disciplines in BPF take half a minute to compile C.
                [program, "--quiet", "--skip", "bpf::"],
                cwd=TREE / CRATE,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
                preexec_fn=functools.partial(bound, seconds),
            )
        except subprocess.TimeoutExpired:
            return "timeout"
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return "timeout"
        if done.returncode:
            return "caught"
    return "missed"


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson)."""
    z, share = 1.96, hits / of
    middle, half = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="sample from the mutants whose name has this (a regular expression)")
    args = parser.parse_args()
    command = ["cargo", "mutants", "--list", "--json", "--gitignore", "true", "--package", "quell-qdisc"]
    listed = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    frame = switchable(listed)
    chosen = [m for m in frame if re.search(args.only, m["name"])]
    if len(chosen) > args.sample:
        chosen = random.Random(args.seed).sample(chosen, args.sample)
    mutants = dict(enumerate(chosen, start=1))
    copy()
    programs = build(mutants)
    refused = len(chosen) - len(mutants)
    times: dict[pathlib.Path, float] = {}
    for program in programs:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if run({program: 3600}, 0) != "missed":
            raise SystemExit(f"{program.name} fails without a mutant")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times[program] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Quick programs first: they catch most mutants.
    bounds = {program: round(10 + 5 * times[program]) for program in sorted(programs, key=times.__getitem__)}
    print(
        f"{len(listed)} mutants listed, {len(frame)} can be picked, {len(chosen)} sampled, {refused} refused; "
        f"tests take {sum(times.values()):.0f} s of CPU time",
        flush=True,
    )
    outcomes: collections.Counter[str] = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        running = {pool.submit(run, bounds, number): m for number, m in mutants.items()}
        for future in concurrent.futures.as_completed(running):
            outcomes[future.result()] += 1
            if future.result() != "caught":
                print(f"{future.result()}: {running[future]['name']}", flush=True)
    ran, caught = outcomes.total(), outcomes["caught"] + outcomes["timeout"]
    low, high = wilson(caught, ran)
    print(f"{ran} ran: {', '.join(f'{outcomes[o]} {o}' for o in ('caught', 'timeout', 'missed'))}")
    print(f"caught or timed out: {caught / ran:.1%} (95 % interval {low:.1%} to {high:.1%})")
    sys.exit(caught / ran < TARGET)


if __name__ == "__main__":
    main()
