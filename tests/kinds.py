#!/usr/bin/env python3
"""List the source files that each kind of queue uses, for tests/by-file.

In a checkout, quell's compiled module records the kinds whose queue words a process reads (feature `inputs` in
crates/quell-link/Cargo.toml). A file of `disciplines/` or `control/` is separate if its Rust module and its type are
named only in other such files, in rows of the table of words, and in files that record its kind themselves. No code
of a separate file runs in a process that reads no words of its kinds. As a program, it prints the separate files with
their kinds.
"""

from __future__ import annotations

import re
from pathlib import Path

from circles import code

LAWS = ("crates/quell-qdisc/src/disciplines/", "crates/quell-qdisc/src/control/")
ROWS = "crates/quell-link/src/words/"
# Files that name every module; what they name is used only through a kind.
LISTS = (*(folder + "mod.rs" for folder in LAWS), "crates/quell-qdisc/src/lib.rs")
TABLE = "crates/quell-link/src/words.rs"


SOURCE = re.compile(r"crates/[\w-]+/src/.*\.rs")


def is_test(name: str) -> bool:
    """Return whether a source file has only tests, which are not compiled into the module."""
    *folders, file = name.split("/")
    return "tests" in folders or re.split(r"[_.]", file)[-2] == "tests"


def type_of(module: str) -> str:
    """Return a module's name without underscores: its type's name in lower case."""
    return module.replace("_", "")


class Kinds:
    """The graph of the sources: which modules and rows name which."""

    def __init__(self, root: Path, names: list[str]) -> None:
        texts = {name: (root / name).read_text() for name in names if SOURCE.fullmatch(name) and not is_test(name)}
        noted = {name: set(re.findall(r'\bnote\("(\w+)"\)', text)) for name, text in texts.items()}
        texts = {name: code(text) for name, text in texts.items()}
        self.files: dict[str, set[str]] = {}
        """The files of each module of `disciplines/` and `control/`; modules of the same name in both count as one."""
        for name in texts:
            if name.startswith(LAWS) and name not in LISTS:
                module = re.split(r"[/.]", name.removeprefix(LAWS[0]).removeprefix(LAWS[1]))[0]
                self.files.setdefault(module, set()).add(name)
        home = {name: module for module, own in self.files.items() for name in own}
        kinds = {name: kinds_of((root / name).read_text()) for name in texts if name.startswith(ROWS)}
        # Only the table and rows name rows, which are private to the table unless it makes them public.
        rows = {name: f"row {Path(name).stem}" for name, found in kinds.items() if found}
        uses: dict[str, set[str]] = {module: set() for module in (*self.files, *rows.values())}
        common = {f"row {name}" for name in re.findall(r"pub mod (\w+)", texts.get(TABLE, ""))} & uses.keys()
        for name in texts.keys() - LISTS:
            inside = name.startswith("crates/quell-qdisc/")
            words = words_of(texts[name]) if inside else words_from("quell_qdisc", texts[name])
            types = {word.lower() for word in words if not word.islower()}
            found = {module for module in self.files if module in words or type_of(module) in types}
            if name == TABLE or name.startswith(ROWS):
                # The table names each row's constant (`row::NAME`), which is not a use.
                text = re.sub(r"\b\w+::[A-Z][A-Z0-9_]*\b", "", texts[name]) if name == TABLE else texts[name]
                found |= {f"row {word}" for word in words_of(text)} & uses.keys()
            for kind in noted[name]:
                found -= {kind, f"row {kind}"}
            if module := home.get(name) or rows.get(name):
                uses[module] |= found
            else:
                common |= found
        common = reached(common, uses)
        self.apart = {name for module, own in self.files.items() if module not in common for name in own}
        """The separate files: no other part of quell's module uses them."""
        self.of = {
            kind: {name for name in self.apart if home[name] in reached({row}, uses)}
            for file, row in rows.items()
            for kind in kinds[file]
        }
        """The separate files that each kind uses."""


def kinds_of(text: str) -> list[str]:
    """Return the kinds for which a text has rows."""
    return re.findall(r': Kind<[^;]*? name: "(\w+)"', re.sub(r"\s+", " ", text))


def words_of(text: str) -> set[str]:
    """Return the words of all paths, and all names that begin with a capital letter."""
    words = {word for use in re.findall(r"\buse\b[^;]*", text) for word in re.findall(r"\w+", use)}
    words |= {word for path in re.findall(r"\w+(?:\s*::\s*\w+)+", text) for word in re.findall(r"\w+", path)}
    return words.union(re.findall(r"\b[A-Z]\w*", text))


def words_from(crate: str, text: str) -> set[str]:
    """Return the words of paths that begin with a crate, or with a name that a `use` of the crate imports."""
    uses = "".join(re.findall(rf"\buse\s+{crate}\b[^;]*", text))
    heads = {crate, *re.findall(r"\w+", uses)}
    paths = (re.findall(r"\w+", path) for path in re.findall(r"\w+(?:\s*::\s*\w+)+", text))
    return heads.union(*(path for path in paths if path[0] in heads))


def reached(modules: set[str], uses: dict[str, set[str]]) -> set[str]:
    """Return these modules and all that they use, directly or indirectly."""
    seen: set[str] = set()
    left = list(modules)
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left += uses[module]
    return seen


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    made = Kinds(here, [str(path.relative_to(here)) for path in sorted(here.glob("crates/*/src/**/*.rs"))])
    for file in sorted(made.apart):
        print(
            file.removeprefix("crates/quell-qdisc/src/"), *sorted(kind for kind, own in made.of.items() if file in own)
        )
