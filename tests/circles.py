#!/usr/bin/env python3
"""Circles among the modules of each Rust crate: A uses B, B uses C, C uses A.

    tests/circles.py [FOLDER]

Reads `crates/*/src` of FOLDER (this checkout) and counts paths that begin with `crate`, `super`, `self` or a child
module's name, in `use` and inline. A name that a module re-exports leads to the module that has it. A use counts for
the two siblings that have user and used module in them: if `a::b` uses `c::d`, then `a` uses `c`. Not counted: uses
between a module and its own ancestors (parent and child may use each other), re-exports, and tests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|\br(#*)".*?"\1|"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\'\\])\'', re.S)
TOKEN = re.compile(r"r#|\w+|::|[{},;*]|\S")
Module = tuple[str, ...]


def code(text: str) -> str:
    """Blank comments, strings and inline tests; lines keep their numbers."""
    text = NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for start in reversed([m.start() for m in re.finditer(r"#\[cfg\((?:all\()?test\b", text)]):
        end, depth = start, 0
        while end < len(text) and not (depth == 0 and text[end] == ";"):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
            if depth == 0 and text[end - 1] == "}":
                break
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text


def leaves(tokens: list[tuple[str, int]], at: int, head: Module) -> Iterator[tuple[Module, str, int]]:
    """Yield each path of a tree `a::{b, c as d}` that begins here: its words, the name that it binds, its line."""
    path, line = head, tokens[at][1]
    while at < len(tokens):
        word, line = tokens[at]
        if word == "{":
            depth, fresh = 0, True
            while True:
                word = tokens[at][0]
                depth += {"{": 1, "}": -1}.get(word, 0)
                if fresh and depth == 1 and word not in "{},":
                    yield from leaves(tokens, at, path)
                fresh = (word == "{" and depth == 1) or (word == "," and depth == 1)
                at += 1
                if depth == 0:
                    return
        if not re.match(r"\w|\*", word):
            return
        if word != "self" or not path:
            path = (*path, word)
        following = tokens[at + 1][0] if at + 1 < len(tokens) else ""
        if following != "::":
            name = tokens[at + 2][0] if following == "as" else path[-1]
            yield path, name, line
            return
        at += 2


class Crate:
    """The modules of a crate and what they use."""

    def __init__(self, src: Path) -> None:
        self.src, self.files, self.exports = src, dict[Module, Path](), dict[Module, dict[str, Module]]()
        texts: dict[Module, str] = {}
        for file in sorted(src.rglob("*.rs")):
            parts = file.relative_to(src).with_suffix("").parts
            if parts[0] == "bin" or parts[-1].endswith("tests") or parts[-1] == "main":
                continue
            module = parts[:-1] if parts[-1] in ("mod", "lib") else parts
            self.files[module], texts[module] = file, code(file.read_text())
        self.uses: dict[Module, list[tuple[Module, int]]] = {}
        for module, text in texts.items():
            found = list(self.paths(module, text))
            self.exports[module] = {name: path for path, name, _, exported in found if exported}
            self.uses[module] = [(path, line) for path, _, line, exported in found if not exported]

    def paths(self, module: Module, text: str) -> Iterator[tuple[Module, str, int, bool]]:
        """Yield each absolute path in a module, the name it binds, its line, and whether it re-exports."""
        tokens = [(w, n) for n, line in enumerate(text.splitlines(), 1) for w in TOKEN.findall(line)]
        children = {m[-1] for m in self.files if m and m[:-1] == module}
        public = use = False
        for i, (word, _) in enumerate(tokens):
            before = tokens[i - 1][0] if i else ""
            if word == "use" and before not in ("::", "."):
                use, public = True, before in ("pub", ")")
            elif word == ";":
                use = False
            elif before not in ("::", ".") and i + 1 < len(tokens) and tokens[i + 1][0] == "::":
                head = {"crate": (), "self": module, "super": module[:-1]}.get(word)
                begin = i + 2
                if head is None:
                    if word not in children:
                        continue
                    head, begin = module, i
                while tokens[begin][0] == "super":
                    head, begin = head[:-1], begin + 2
                yield from ((*leaf, use and public) for leaf in leaves(tokens, begin, head))

    def home(self, path: Module, seen: frozenset[Module] = frozenset()) -> Module:
        """Return the module in which a path ends, behind re-exports."""
        deep = next(path[:n] for n in range(len(path), -1, -1) if path[:n] in self.files)
        rest = path[len(deep) :]
        exports = self.exports.get(deep, {})
        onward = exports.get(rest[0]) if rest and path not in seen else None
        return self.home((*onward, *rest[1:]), seen | {path}) if onward else deep

    def siblings(self) -> Iterator[tuple[Module, Module, str]]:
        """Yield each use as the two siblings between which it is, with its file, its line and its modules."""
        for module, uses in self.uses.items():
            for path, line in uses:
                home = self.home(path)
                common = next((n for n, (a, b) in enumerate(zip(module, home, strict=False)) if a != b), None)
                if common is not None:
                    use = f"{self.files[module]}:{line}: {'::'.join(module)} uses {'::'.join(home)}"
                    yield module[: common + 1], home[: common + 1], use

    def circles(self) -> list[list[str]]:
        """Return the circles among siblings, each as the uses that it has."""
        arrows: dict[Module, dict[Module, set[str]]] = {}
        for user, used, use in self.siblings():
            arrows.setdefault(user, {}).setdefault(used, set()).add(use)
            arrows.setdefault(used, {})
        reach = {module: set(arrows[module]) for module in arrows}
        for between in arrows:
            for module in arrows:
                if between in reach[module]:
                    reach[module] |= reach[between]
        groups = {frozenset(o for o in reach[m] if m in reach[o]) for m in arrows if m in reach[m]}
        return [
            [use for a in sorted(group) for b in sorted(arrows[a].keys() & group) for use in sorted(arrows[a][b])]
            for group in sorted(groups, key=sorted)
        ]


def main() -> int:
    """Print the circles; return 1 if there are any."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    found = False
    for src in sorted(root.glob("crates/*/src")):
        if circles := Crate(src).circles():
            found = True
            print(f"{src.parent.name}: circles among modules: {len(circles)}")
            print("\n\n".join("\n".join(circle) for circle in circles))
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
