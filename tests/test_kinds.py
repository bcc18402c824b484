"""tests/kinds.py: the sources of a discipline are inputs of the tests that read its words, and of no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinds import Kinds, is_test

ROW = 'pub(super) static KIND: Kind<{0}::Params> = Kind {{ name: "{0}", source: "" }};\nfn build() {{ {0}::new() }}\n'
SOURCES = {
    "crates/quell-qdisc/src/disciplines/mod.rs": "mod bare;\nmod outer;\nuse bare::Bare;\nuse outer::Outer;\n",
    "crates/quell-qdisc/src/disciplines/bare.rs": "pub struct Bare;\n",
    "crates/quell-qdisc/src/disciplines/outer.rs": "use crate::bare::Bare;\npub struct Outer(Bare);\n",
    "crates/quell-qdisc/src/disciplines/outer/tests.rs": "use crate::bare::Bare;\n",
    "crates/quell-qdisc/src/control/bare.rs": "use crate::bare::Bare;\n",
    "crates/quell-link/src/words.rs": "mod bare;\nmod outer;\nstatic KINDS: &[&Kind] = &[&bare::KIND, &outer::KIND];\n",
    "crates/quell-link/src/words/bare.rs": "use quell_qdisc::bare;\n" + ROW.format("bare"),
    "crates/quell-link/src/words/outer.rs": "use quell_qdisc::outer;\n" + ROW.format("outer"),
    "crates/quell-sim/src/world.rs": "use quell_qdisc::Packet;\n",
}
BARE = {"crates/quell-qdisc/src/disciplines/bare.rs", "crates/quell-qdisc/src/control/bare.rs"}
OUTER = {"crates/quell-qdisc/src/disciplines/outer.rs"}


def kinds_with(folder: Path, world: str) -> Kinds:
    for name, text in (SOURCES | {"crates/quell-sim/src/world.rs": world}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Kinds(folder, list(SOURCES))


def test_sources_used_only_through_queue_words_are_separate(tmp_path: Path) -> None:
    kinds = kinds_with(tmp_path, "use quell_qdisc::Packet;\n")
    assert kinds.apart == BARE | OUTER
    assert kinds.of == {"bare": BARE, "outer": BARE | OUTER}


@pytest.mark.parametrize(
    "text",
    [
        "use quell_qdisc::bare::{self, Params};\n",
        "use quell_qdisc::{Packet, outer};\n",
        "fn f() { quell_qdisc::control::bare::decide() }\n",
        "use quell_qdisc::Bare;\n",
    ],
)
def test_sources_named_elsewhere_are_common_with_all_that_they_use(tmp_path: Path, text: str) -> None:
    kinds = kinds_with(tmp_path, text)
    assert kinds.apart == (set() if "outer" in text else OUTER)


def test_a_file_that_notes_a_kind_may_name_it(tmp_path: Path) -> None:
    noted = 'use quell_qdisc::bare;\nfn f() { note("bare"); bare::new() }\n'
    assert kinds_with(tmp_path, noted).apart == BARE | OUTER
    assert kinds_with(tmp_path, noted.replace('note("bare")', 'note("outer")')).apart == OUTER


def test_the_disciplines_of_this_checkout_are_apart() -> None:
    root = Path(__file__).resolve().parent.parent
    kinds = Kinds(root, [str(path.relative_to(root)) for path in root.glob("crates/*/src/**/*.rs")])
    for kind in ("codel", "cobalt", "fq_codel", "pie", "cake", "htb", "hush", "dualpi2", "red"):
        assert f"crates/quell-qdisc/src/disciplines/{kind}" in {
            name.split(".rs")[0].split("/mod")[0] for name in kinds.of[kind]
        }
    assert not kinds.of["pfifo"]


def test_files_of_tests_alone_are_not_part_of_the_module() -> None:
    assert is_test("crates/a/src/b/tests.rs") and is_test("crates/a/src/team_tests.rs")
    assert not is_test("crates/a/src/tests_of.rs")
