"""The columns of a frame of runs are the fields of the result record (crates/quell-link/src/record.rs)."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from conftest import ROOT
from quell.results.frame import SCHEMA

SOURCES = ("record.rs", "summary.rs", "aim.rs", "qoo.rs")
LEAVES = {"String": "text", "f64": "float", "u64": "count", "u32": "count", "bool": "bool", "&'static str": "text"}
OF_PYTHON = {"rpm": "float", "scenario_hash": "text"}
"""Fields of a run's record that Python adds."""


def structs() -> dict[str, dict[str, str]]:
    text = "\n".join((ROOT / "crates/quell-link/src" / name).read_text("utf-8") for name in SOURCES)
    found = re.findall(r"pub struct (\w+) \{\n(.*?)\n\}", text, re.S)
    return {name: dict(re.findall(r"^    pub (\w+): (.+),$", body, re.M)) for name, body in found}


def written(kind: str, known: dict[str, dict[str, str]]) -> Any:
    """Return the JSON form of a Rust type: a dictionary, a list with one element, or a leaf."""
    if inner := re.fullmatch(r"Option<(.*)>", kind):
        return written(inner[1], known)
    if inner := re.fullmatch(r"Vec<(.*)>|\((f64), f64\)", kind):
        return [written(inner[1] or inner[2], known)]
    if kind in LEAVES:
        return LEAVES[kind]
    fields = {name: inner for name, inner in known[kind].items() if inner != f"Vec<{kind}>"}
    return {name: written(inner, known) for name, inner in fields.items()}


def kept(kind: Any) -> Any:
    if isinstance(kind, pl.Struct):
        return {field.name: kept(field.dtype) for field in kind.fields}
    if isinstance(kind, pl.List):
        return [kept(kind.inner)]
    return "count" if kind.is_integer() else "float" if kind.is_float() else "bool" if kind == pl.Boolean else "text"


def test_every_field_of_a_record_is_a_column_and_every_column_a_field() -> None:
    known = structs()
    record, frame = written("Run", known), {name: kept(kind) for name, kind in SCHEMA.items()}
    # Each of a call's ends has the fields of an application with one end.
    (end,) = frame["applications"][0].pop("ends")
    application = record["applications"][0]
    assert application.pop("direction") == end.pop("direction")
    assert end.items() <= application.items()
    assert frame == record | OF_PYTHON


def names(found: Any) -> set[str]:
    if isinstance(found, dict):
        return set(found).union(*map(names, found.values()))
    return names(found[0]) if isinstance(found, list) else set()


def test_the_manual_has_every_field() -> None:
    pages = [ROOT / "docs/reference/records.md", ROOT / "docs/explanation/applications.md"]
    code = " ".join(re.findall(r"`([^`\n]*)`", " ".join(page.read_text("utf-8") for page in pages)))
    assert names(written("Run", structs())) <= set(re.findall(r"\w+", code))
