#!/usr/bin/env python3
"""Which disciplines' source files each kind of queue comes to, for tests/by-file.

A checkout's module notes the kinds whose words a process reads (`inputs` in crates/quell-link/Cargo.toml). A file of
`disciplines/` or `control/` is apart from all else in the module if only other such files, rows of the words' table,
and files that note its kind themselves name its module or its type: nothing in it can then run, or be read, in a
process that reads no words of its kinds. Without arguments: prints the files that are apart, with their kinds.
"""

from __future__ import annotations

import re
from pathlib import Path

from circles import code

LAWS = ("crates/quell-qdisc/src/disciplines/", "crates/quell-qdisc/src/control/")
ROWS = "crates/quell-link/src/words/"
# The lists of all: what they name is used only through a kind.
LISTS = (*(folder + "mod.rs" for folder in LAWS), "crates/quell-qdisc/src/lib.rs")
TABLE = "crates/quell-link/src/words.rs"


SOURCE = re.compile(r"crates/[\w-]+/src/.*\.rs")


def is_test(name: str) -> bool:
    """Whether a source file has tests alone, of which the module has nothing."""
    return re.split(r"[/_.]", name)[-2] == "tests"


def type_of(module: str) -> str:
    """Give a module's name without underscores: the name of its type in lower case."""
    return module.replace("_", "")


class Kinds:
    """The sources as a graph of names."""

    def __init__(self, root: Path, names: list[str]) -> None:
        texts = {name: (root / name).read_text() for name in names if SOURCE.fullmatch(name) and not is_test(name)}
        noted = {name: set(re.findall(r'\bnote\("(\w+)"\)', text)) for name, text in texts.items()}
        texts = {name: code(text) for name, text in texts.items()}
        self.files: dict[str, set[str]] = {}
        """The files of each module of `disciplines/` and `control/`; those with one name are one."""
        for name in texts:
            if name.startswith(LAWS) and name not in LISTS:
                module = re.split(r"[/.]", name.removeprefix(LAWS[0]).removeprefix(LAWS[1]))[0]
                self.files.setdefault(module, set()).add(name)
        home = {name: module for module, own in self.files.items() for name in own}
        kinds = {name: kinds_of((root / name).read_text()) for name in texts if name.startswith(ROWS)}
        # Only these name rows, which are private to the table unless it makes them public.
        rows = {name: f"row {Path(name).stem}" for name, found in kinds.items() if found}
        uses: dict[str, set[str]] = {module: set() for module in (*self.files, *rows.values())}
        common = {f"row {name}" for name in re.findall(r"pub mod (\w+)", texts.get(TABLE, ""))} & uses.keys()
        for name in texts.keys() - LISTS:
            inside = name.startswith("crates/quell-qdisc/")
            words = words_of(texts[name]) if inside else words_from("quell_qdisc", texts[name])
            types = {word.lower() for word in words if not word.islower()}
            found = {module for module in self.files if module in words or type_of(module) in types}
            if name == TABLE or name.startswith(ROWS):
                # The table names the rows as constants.
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
        """The files that no other part of the module uses."""
        self.of = {
            kind: {name for name in self.apart if home[name] in reached({row}, uses)}
            for file, row in rows.items()
            for kind in kinds[file]
        }
        """The files that are apart and that a kind uses."""


def kinds_of(text: str) -> list[str]:
    """Give the kinds of which a text has rows."""
    return re.findall(r': Kind<[^;]*? name: "(\w+)"', re.sub(r"\s+", " ", text))


def words_of(text: str) -> set[str]:
    """Give the words of all paths, and all types."""
    words = {word for use in re.findall(r"\buse\b[^;]*", text) for word in re.findall(r"\w+", use)}
    words |= {word for path in re.findall(r"\w+(?:\s*::\s*\w+)+", text) for word in re.findall(r"\w+", path)}
    return words.union(re.findall(r"\b[A-Z]\w*", text))


def words_from(crate: str, text: str) -> set[str]:
    """Give the words of paths that begin with a crate, or with a name that a `use` of it brings."""
    uses = "".join(re.findall(rf"\buse\s+{crate}\b[^;]*", text))
    heads = {crate, *re.findall(r"\w+", uses)}
    paths = (re.findall(r"\w+", path) for path in re.findall(r"\w+(?:\s*::\s*\w+)+", text))
    return heads.union(*(path for path in paths if path[0] in heads))


def reached(modules: set[str], uses: dict[str, set[str]]) -> set[str]:
    """Give what these modules use, and they themselves."""
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
