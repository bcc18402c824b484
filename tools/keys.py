#!/usr/bin/env python3
"""Write the contents of tables in Rust into files.

Scenario keys go into docs/reference/scenarios.md and python/quell/inputs/keys.py, options of quell live into
docs/reference/commands.md and packaging/openwrt/files.

    .venv/bin/python tools/keys.py [--check]

In a page, a table stands between the marks `<!-- keys: NAME -->` and `<!-- end of keys -->`; in OpenWrt's files, options stand
between `# Options` and `# End of options`. --check writes nothing and fails if one of the files is stale. Run `make build` first.
"""

import argparse
import json
import keyword
import pathlib
import re
import sys
import textwrap

from quell import _core

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOC = ROOT / "docs/reference/scenarios.md"
COMMANDS = ROOT / "docs/reference/commands.md"
INIT = ROOT / "packaging/openwrt/files/quell.init"
CONFIG = ROOT / "packaging/openwrt/files/quell.config"
MODULE = ROOT / "python" / "quell" / "inputs" / "keys.py"
CLASSES = {
    "wifi.noise": "Noise",
    "wifi.node": "Node",
    "wifi": "Wifi",
    "link.up": "Up",
    "link": "Link",
    "hop": "Hop",
    "class": "Class",
    "flow": "Flow",
}
"""Classes of the schema's definitions, each after those that it refers to."""
TABLES = {
    "link.up": ("link",),
    "hop": ("link",),
    "": ("file",),
    "flow": ("flow", "tcp", "cbr", "poisson", "onoff", "web", "call", "video_call", "game", "page", "video", "ping"),
}
"""Tables whose keys a definition has, if it is not just the table of the same name."""
HEAD = '''"""The keys of scenario files as types, for `Scenario.replace` and `Scenario.from_keys`. None takes a key away.

Written by tools/keys.py from the tables of keys; docs/reference/scenarios.md says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict
'''


def pieces(syntax):
    """Split at bars outside of brackets."""
    depth, found = 0, [""]
    for c in syntax:
        depth += (c == "[") - (c == "]")
        if c == "|" and not depth:
            found.append("")
        else:
            found[-1] += c
    return found


def value(syntax):
    """Format a value: words of the file as code, kinds of values in capitals."""

    def one(piece):
        if piece.startswith("["):
            return f"`{piece}`"
        if re.fullmatch(r"[A-Z]+(:[A-Z]+|,\.\.\.)?", piece):
            return piece
        return f"`{piece}`" if piece in ("true", "false") or piece.isdigit() else f'`"{piece}"`'

    return " or ".join(one(piece) for piece in pieces(syntax))


def markdown(table):
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key in table["keys"]:
        cells = [f"`{key['name']}`", value(key["value"]), key["default"], key["meaning"]]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def page(text, tables):
    def fill(found):
        return f"{found[1]}\n{tables.pop(found[2])}\n{found[3]}"

    text = re.sub(r"(<!-- keys: (\S+) -->)\n.*?(<!-- end of keys -->)", fill, text, flags=re.DOTALL)
    if tables:
        sys.exit(f"there is no <!-- keys: {next(iter(tables))} -->")
    return text


WHERE = {"command": "", "file": "key, read again on SIGHUP", "start": "key, read at the start"}


def reference(rows):
    """Return the table of a command's options."""
    lines = ["| option | meaning | configuration file |", "|---|---|---|"]
    for name, _, value, text, _, _, scope in rows:
        typed = f"--{name.replace('_', '-')} {value}".strip().replace("|", "\\|")
        lines.append(f"| `{typed}` | {text} | {WHERE[scope]} |")
    return "\n".join(lines)


def between(text, lines):
    """Replace the lines between the marks, indented like the first mark."""

    def fill(found):
        return found[1] + "".join(f"{found[2]}{line}\n" for line in lines) + found[3]

    return re.sub(r"(?ms)^(([\t ]*)# Options[^\n]*\n).*?^([\t ]*# End of options)", fill, text)


def init(text, rows):
    """Return OpenWrt's start script, which passes all keys of the configuration file."""
    lines = []
    for name, _, value, _, _, repeats, scope in rows:
        kind = "flag" if not value else "list" if repeats else "option"
        if scope != "command":
            lines.append(f'append_{kind} "$section" {name} {name.replace("_", "-")}')
    return between(text, lines)


def config(text, rows):
    """Return OpenWrt's configuration, which lists all keys."""
    keys = [row for row in rows if row[6] != "command"]
    heads = [f"{'list' if row[5] else 'option'} {row[0]} '{row[2].strip('[]') or 1}'" for row in keys]
    width = max(map(len, heads))
    lines = []
    for head, row in zip(heads, keys, strict=True):
        begin = f"#   {head.ljust(width)}  "
        lines += textwrap.wrap(
            row[3], 130, initial_indent=begin, subsequent_indent="#".ljust(len(begin)), break_on_hyphens=False
        )
    return between(text, lines)


def annotation(schema):
    """Return the Python types of the values that a schema allows."""
    if "$ref" in schema:
        return [CLASSES[schema["$ref"].removeprefix("#/$defs/")]]
    if "enum" in schema:
        words = [json.dumps(word) for word in schema["enum"]]
        return [f"Literal[{', '.join(words)}]"]
    if "anyOf" in schema:
        found = [kind for part in schema["anyOf"] for kind in annotation(part)]
        return list(dict.fromkeys(found))
    if schema["type"] == "array":
        parts = schema.get("prefixItems", [schema["items"]])
        inner = list(dict.fromkeys(kind for part in parts for kind in annotation(part)))
        return [f"Sequence[{' | '.join(inner)}]"]
    return [{"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[schema["type"]]]


def member(name, schema):
    kinds = annotation(schema)
    # Where a list of tables is allowed, a single table changes each table of the list.
    kinds += [kind[9:-1] for kind in kinds if kind[9:-1] in CLASSES.values()]
    if "str" in kinds:
        kinds = [kind for kind in kinds if not kind.startswith('Literal["')]
    return f"{' | '.join(kinds)} | None"


def broken(line):
    """Break a list of words that is too long for a line, like ruff."""
    found = re.fullmatch(r"    (\w+): Literal\[(.*)\] \| None", line)
    if len(line) <= 120 or not found:
        return line
    words = "".join(f"            {word},\n" for word in found[2].split(", "))
    return f"    {found[1]}: (\n        Literal[\n{words}        ]\n        | None\n    )"


def doc(text):
    text = text.replace("\n", " ")
    if re.match(r"[a-z-]+ ", text):
        text = text[0].upper() + text[1:]
    return textwrap.fill(f'"""{text}"""', 116, initial_indent=" " * 4, subsequent_indent=" " * 4)


def of_class(name, table, schema, catalogue):
    tables = TABLES.get(table, (table,))
    first = [key["name"] for name in tables for known in catalogue if known["name"] == name for key in known["keys"]]
    names = [*dict.fromkeys(first), *(key for key in schema["properties"] if key not in first)]
    members = {key: schema["properties"][key] for key in names}
    bases, lines = "TypedDict", []
    for key in filter(keyword.iskeyword, list(members)):
        bases = f"_{key.title()}"
        kinds = member(key, members.pop(key))
        lines += [f'{bases} = TypedDict("{bases}", {{"{key}": "{kinds}"}}, total=False)', "", ""]
    about = schema["description"]
    lines += [f"class {name}({bases}, total=False):", doc(about)]
    for key, inner in members.items():
        lines += ["", broken(f"    {key}: {member(key, inner)}")]
        if "description" in inner:
            lines.append(doc(inner["description"]))
    return "\n".join(lines)


def module(schema, catalogue):
    classes = [of_class(name, table, schema["$defs"][table], catalogue) for table, name in CLASSES.items()]
    classes.append(of_class("Keys", "", schema, catalogue))
    return "\n\n\n".join([HEAD, *classes]).replace("\n\n\n\n", "\n\n\n") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a file is stale")
    args = parser.parse_args()
    catalogue, schema = json.loads(_core.scenario_keys()), json.loads(_core.scenario_schema())
    stale = False
    rows, _, _ = _core.options("live")
    files = {
        DOC: page(DOC.read_text(), {table["name"]: markdown(table) for table in catalogue}),
        MODULE: module(schema, catalogue),
        COMMANDS: page(COMMANDS.read_text(), {"live": reference(rows)}),
        INIT: init(INIT.read_text(), rows),
        CONFIG: config(CONFIG.read_text(), rows),
    }
    for path, text in files.items():
        if not path.exists() or path.read_text() != text:
            stale = True
            print(f"{path.relative_to(ROOT)}: {'stale; run tools/keys.py' if args.check else 'written'}")
            if not args.check:
                path.write_text(text)
    sys.exit(stale and args.check)


if __name__ == "__main__":
    main()
