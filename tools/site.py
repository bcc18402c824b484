#!/usr/bin/env python3
"""Gather the site's pages in target/pages: those of docs/, the root's, and reference pages written from the program.

    .venv/bin/python tools/site.py

Links that lead out of docs/ get a copy of the file beside the pages, so that the site opens from a folder, whole.
"""

import contextlib
import io
import os
import pathlib
import re
import shutil

import playground as playgrounds
from quell import _core, cli, dispatch, envs, experiment, usage

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ROOT / "target" / "pages"
ROOTED = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md",
          "SECURITY.md": "security.md", "CODE_OF_CONDUCT.md": "conduct.md", "crates/quell-link/models/README.md": "models.md"}
"""Pages from outside docs/ and their names in the site."""


def place(path):
    """Give the page or copy that a file of the repository has in the site, as a path below PAGES."""
    name = path.relative_to(ROOT).as_posix()
    if name in ROOTED:
        return PAGES / ROOTED[name]
    if path.is_relative_to(ROOT / "docs"):
        return PAGES / path.relative_to(ROOT / "docs")
    # Not as .md, .html or .py, of which the builder or a browser would make something else.
    return PAGES / "files" / f"{name}.txt"


def linked(text, source, here):
    """Give a page's text with links that lead to the site's places; copies what they lead to."""

    def link(found):
        target, hash_, heading = found[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = (source.parent / target).resolve()
        if path.is_dir():
            path = next(entry for name in ("README.md", "Cargo.toml") if (entry := path / name).exists())
        if path.suffix in (".png", ".svg"):
            copy = PAGES / "images" / path.name
        else:
            copy = place(path)
        if copy.suffix == ".txt" or "images" in copy.parts:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            hash_ = heading = ""
        return f"{found[1]}({os.path.relpath(copy, here.parent)}{hash_}{heading})"

    # Code is no link.
    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if k % 2 else re.sub(r"(\])\(([^)\s]+)\)", link, part) for k, part in enumerate(parts))


def write(source, here):
    here.parent.mkdir(parents=True, exist_ok=True)
    here.write_text(linked(source.read_text("utf-8"), source, here), "utf-8")


def printed(*words):
    """Give what a command prints, 80 columns wide and without colours."""
    from quell.output import err, out

    console = io.StringIO()
    with contextlib.redirect_stdout(console):
        out.file, err.file = console, console
        status = cli.call(list(words))
    if status:
        raise SystemExit(f"site: quell {' '.join(words)}: {console.getvalue()}")
    return "\n".join(line.rstrip() for line in console.getvalue().splitlines()).strip("\n")


def cell(text):
    return str(text).replace("|", "\\|").replace("<", "&lt;") or " "


def table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell(part) for part in line) + " |" for line in lines) + "\n"


def commands():
    text = "# Every command\n\nWhat `quell COMMAND --help` prints.\n\n"
    text += f"```text\n{usage.text(80).strip()}\n```\n"
    for name in sorted(command for command in known_commands()):
        text += f"\n## quell {name}\n\n```text\n{printed(name, '--help')}\n```\n"
    return text


def known_commands():
    from typer.main import get_command

    return [name for name, command in get_command(dispatch.app()).commands.items() if not command.hidden]


def queues():
    text = "# Every queue\n\nQueue words are the name and then options, as in `tc`: `codel target 10ms ecn`. `quell queues` prints the same.\n"
    for kind in experiment.known_queues():
        text += f"\n## {kind['name']}\n\n{kind['summary']} ({kind['source']}).\n\n".replace("..", ".")
        rows = [(f"`{option['name']} {option['value']}`".replace(" `", "`"), option["default"], option["meaning"])
                for option in kind["options"]]
        if rows:
            text += table(("option", "default", "meaning"), rows)
    return text


def scenarios():
    text = "# Built-in scenarios\n\n`quell scenarios NAME` prints the file.\n"
    for name, about, toml in _core.scenarios():
        text += f"\n## {name}\n\n{about}\n\n```toml\n{toml.strip()}\n```\n"
    return text


def readings():
    text = "# Readings of environments\n\nWhat `observe` of an [environment](../environments.md) takes and `info` holds.\n\n"
    return text + table(("reading", "meaning"), [(f"`{name}`", about) for name, about in envs.READINGS.items()])


def playground():
    """Add the playground, or why it is not here, to its page."""
    reason = playgrounds.missing()
    if not reason:
        playgrounds.main(PAGES / "playground" / "index.html")
    added = f"Not built here: {reason}." if reason else "[**Open the playground**](playground/index.html)"
    page = PAGES / "playground.md"
    page.write_text(f"{page.read_text('utf-8')}\n{added}\n", "utf-8")


def main():
    os.environ |= {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    shutil.rmtree(PAGES, ignore_errors=True)
    for source in [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ROOTED)]:
        write(source, place(source))
    for name, text in {"commands": commands, "queues": queues, "scenarios": scenarios, "readings": readings}.items():
        page = PAGES / "reference" / f"{name}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(text(), "utf-8")
    playground()


if __name__ == "__main__":
    main()
