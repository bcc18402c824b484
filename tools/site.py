#!/usr/bin/env python3
"""Gather the site's pages in target/pages: those of docs/ and the root, and reference pages from the program.

    .venv/bin/python tools/site.py

Files outside docs/ to which pages link are copied beside the pages, so that the site also works from a folder.
"""

import base64
import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from typing import Any

import playground as playgrounds
import reference
from quell import _core, envs
from quell.cli import dispatch, usage
from quell.experiments import experiment

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ROOT / "target" / "pages"
ROOTED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "crates/quell-link/models/README.md": "models.md",
}
"""Pages from outside docs/, with their names in the site."""


def place(path):
    """Return the path, below PAGES, of a repository file's page or copy."""
    name = path.relative_to(ROOT).as_posix()
    if name in ROOTED:
        return PAGES / ROOTED[name]
    if path.suffix == ".ipynb":
        return PAGES / "notebooks" / f"{path.stem}.md"
    if path.is_relative_to(ROOT / "docs"):
        return PAGES / path.relative_to(ROOT / "docs")
    # .txt, because the site's builder or a browser would process .md, .html or .py.
    return PAGES / "files" / f"{name}.txt"


def linked(text, source, here):
    """Return a page's text with its links changed to paths in the site; copy the linked pictures and files."""

    def link(found):
        target, hash_, heading = found[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = (source.parent / target).resolve()
        if path.is_dir():
            entries = [path / name for name in ("README.md", "Cargo.toml")]
            path = next((entry for entry in entries if entry.exists()), None)
            if path is None:
                raise SystemExit(f"{source}: ({found[2]}) is a folder without README.md and Cargo.toml; link a file")
        copy = PAGES / "images" / path.name if path.suffix in (".png", ".svg") else place(path)
        if copy.suffix == ".txt" or "images" in copy.parts:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            hash_ = heading = ""
        return f"{found[1]}({os.path.relpath(copy, here.parent)}{hash_}{heading})"

    def titled(found):
        path = (source.parent / found[1]).resolve()
        return f"[{path.read_text('utf-8').partition(chr(10))[0].removeprefix('# ')}]({found[1]}{found[2] or ''})"

    # A link whose text is a file's name gets the page's title as its text, because the site shows no file names.
    text = re.sub(r"\[[\w/.-]+\.md\]\(([^)\s#]+)(#[^)\s]*)?\)", titled, text)
    # Leave code as it is: brackets in it are not links.
    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if k % 2 else re.sub(r"(\])\(([^)\s]+)\)", link, part) for k, part in enumerate(parts))


def unescaped(text):
    """Return a page's text without backslashes before bars in a table's code, which the site would show."""
    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    row, code = re.compile(r"^\|.*$", re.MULTILINE), re.compile(r"`[^`\n]+`")
    bare = [row.sub(lambda line: code.sub(lambda span: span[0].replace("\\|", "|"), line[0]), part) for part in parts]
    return "".join(part if k % 2 else bare[k] for k, part in enumerate(parts))


def write(source, here):
    here.parent.mkdir(parents=True, exist_ok=True)
    # The second word of a block is for tools/outputs.py; with it the site's Markdown would not start a block.
    text = re.sub(r"^```(\w+) \w+$", r"```\1", source.read_text("utf-8"), flags=re.MULTILINE)
    here.write_text(linked(text, source, here), "utf-8")


def printed(*words):
    """Return what a command prints, 80 columns wide and without colours."""
    from quell.common.console import err, out

    console = io.StringIO()
    with contextlib.redirect_stdout(console):
        out.file, err.file = console, console
        status = dispatch.call(list(words))
    if status:
        raise SystemExit(f"site: quell {' '.join(words)}: {console.getvalue()}")
    return "\n".join(line.rstrip() for line in console.getvalue().splitlines()).strip("\n")


def commands():
    text = "# Every command\n\nWhat `quell COMMAND --help` prints.\n\n"
    text += f"```text\n{usage.text(80).strip()}\n```\n"
    for name in sorted(command for command in known_commands()):
        text += f"\n## quell {name}\n\n```text\n{printed(name, '--help')}\n```\n"
    return text


def known_commands():
    from typer.main import get_command

    group: Any = get_command(dispatch.app())
    return [name for name, command in group.commands.items() if not command.hidden]


def queues():
    text = "# Every queue\n\nQueue words are the name and then options, as in `tc`: `codel target 10ms ecn`. `quell queues` prints the same.\n"
    for kind in experiment.known_queues():
        text += f"\n## {kind['name']}\n\n{kind['summary']} ({kind['source']}).\n\n"
        rows = [
            (f"`{option['name']} {option['value']}`".replace(" `", "`"), option["default"], option["meaning"])
            for option in kind["options"]
        ]
        if rows:
            text += reference.table(("option", "default", "meaning"), rows)
    return text


def scenarios():
    text = "# Built-in scenarios\n\n`quell scenarios NAME` prints the file.\n"
    for name, about, toml in _core.scenarios():
        text += f"\n## {name}\n\n{about}\n\n```toml\n{toml.strip()}\n```\n"
    return text


def readings():
    text = "# Readings of environments\n\nWhat `observe` of an [environment](../how-to/environments.md) takes and `info` holds.\n\n"
    return text + reference.table(
        ("reading", "meaning"), [(f"`{name}`", about) for name, about in envs.READINGS.items()]
    )


def notebook(path):
    """Write a notebook as a page, with a copy to download."""
    here = place(path)
    here.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, here.with_suffix(".ipynb"))
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(linked(source, path, here))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if picture := data.get("image/png"):
                file = here.with_name(f"{here.stem}-{len(parts)}.png")
                file.write_bytes(base64.b64decode(picture))
                parts.append(f"![what the cell draws]({file.name})")
            elif text := "".join(output.get("text") or data.get("text/plain", "")):
                parts.append(f"```text\n{text.rstrip()}\n```")
    title, _, rest = parts[0].partition("\n")
    load = f"[Download this notebook]({here.stem}.ipynb) and open it with Jupyter. Below each cell is what it printed."
    here.write_text("\n\n".join([title, load, rest.strip(), *parts[1:]]) + "\n", "utf-8")


GALLERY = {
    "A home with everything on at once": "compare household --aqm pfifo --aqm fq_codel --aqm cake --seeds 1 --duration 40s",
    "A cellular link": "compare lte --aqm pfifo --aqm codel --aqm fq_codel --aqm pie --aqm hush --seeds 2 --duration 30s",
    "Wi-Fi with fast and slow stations": "compare wifi-house --aqm pfifo --aqm fq_codel --aqm wqm --seeds 1 --duration 12s",
    "One queue in detail": "run home --aqm 'pie target 15ms' --duration 30s",
    "A constant limit, swept": "optimum home --seeds 1 --duration 10s",
    "A paper beside its measurements, in the quick version": "reproduce wqm --quick",
}
"""The reports of the gallery: title and command."""
PICTURES = {
    "A home with everything on at once": "household.png",
    "A cellular link": "report.png",
    "Wi-Fi with fast and slow stations": "wifi-air.png",
}
"""Pictures in docs/images that the gallery shows above reports, by title."""


def gallery():
    """Make the reports of the gallery; return its page, on which each report can be opened in place."""
    text = (
        "# Gallery\n\nReports as `--html` writes them, one file each. Click to open one here; each has its command.\n"
    )
    (PAGES / "gallery").mkdir(exist_ok=True)
    for title, command in GALLERY.items():
        words = shlex.split(command)
        file = f"gallery/{words[0]}-{words[1]}.html"
        program = str(pathlib.Path(sys.executable).with_name("quell"))
        # Run as `quell` without a path, because the report prints its command.
        environment = os.environ | {"PATH": f"{pathlib.Path(program).parent}{os.pathsep}{os.environ['PATH']}"}
        with tempfile.TemporaryDirectory() as folder:
            run = ["quell", *words, "--html", "report.html"]
            done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"site: quell {command}: {done.stderr}")
            shutil.copyfile(pathlib.Path(folder, "report.html"), PAGES / file)
        picture = ""
        if name := PICTURES.get(title):
            (PAGES / "images").mkdir(exist_ok=True)
            shutil.copyfile(ROOT / "docs/images" / name, PAGES / "images" / name)
            picture = f"[![Part of such a report](images/{name}){{ .part }}]({file})\n"
        text += (
            f"\n## {title}\n\n{picture}\n```text\nquell {command} --html report.html\n```\n\n<details><summary>Open the report</summary>"
            f'<iframe src="{file}" title="{title}" loading="lazy" style="width: 100%; height: 80vh; border: 0"></iframe></details>\n\n'
            f"[On a page of its own]({file})\n"
        )
    return text


def playground():
    """Build the playground and link it from its page, or say there why it cannot be built."""
    reason = playgrounds.missing()
    if not reason:
        playgrounds.main(PAGES / "playground" / "index.html")
    opened = button("Open the playground", "../playground/index.html", first=True)
    below_first(PAGES / "how-to/playground.md", f"Not built here: {reason}." if reason else opened)
    start(has_playground=not reason)


def start(*, has_playground):
    """Offer three ways to start on the first page."""
    ways = [
        button("Try it in the browser", "playground/index.html", first=True)
        if has_playground
        else button("Try it", "tutorials/home.md", first=True),
        button("Tune my line", "how-to/tune.md"),
        button("Compare my idea", "how-to/extending.md"),
    ]
    below_first(PAGES / "index.md", " ".join(ways))


def button(title, path, *, first=False):
    return f"[{title}]({path}){{ .md-button{' .md-button--primary' if first else ''} }}"


def below_first(page, added):
    """Add a paragraph below the title and the first paragraph of a page."""
    title, first, rest = page.read_text("utf-8").split("\n\n", 2)
    page.write_text(f"---\nhide: [toc]\n---\n{title}\n\n{first}\n\n{added}\n\n{rest}", "utf-8")


def rust():
    """Copy rustdoc's pages; return the page that lists the crates."""
    command = ["cargo", "doc", "--quiet", "--locked", "--workspace", "--no-deps"]
    if subprocess.run(command, cwd=ROOT).returncode:
        sys.exit(f"site: {shlex.join(command)} failed")
    shutil.copytree(ROOT / "target" / "doc", PAGES / "rust")
    # rustdoc's help page links to this file.
    (PAGES / "rust" / "index.html").write_text('<meta http-equiv="refresh" content="0; url=../reference/rust.html">\n')
    manifests = [tomllib.loads(path.read_text("utf-8")) for path in sorted((ROOT / "crates").glob("*/Cargo.toml"))]
    crates = {one["package"]["name"]: one["package"]["description"] for one in manifests}
    rows = [
        (f"[`{name}`](../rust/{name.replace('-', '_')}/index.html)", about)
        for name, about in crates.items()
        if (PAGES / "rust" / name.replace("-", "_")).exists()
    ]
    text = "# Rust\n\nThe crates, as `cargo doc` describes them. The [map](../map.md) says which layer uses which.\n\n"
    return text + reference.table(("crate", "contents"), rows)


def main():
    os.environ |= {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    shutil.rmtree(PAGES, ignore_errors=True)
    for source in [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ROOTED)]:
        write(source, place(source))
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        notebook(path)
    own = {"help": commands, "queues": queues, "builtin": scenarios, "readings": readings, "rust": rust}
    read = {"keys": reference.records, "prometheus": reference.metrics, "python": reference.python}
    for name, text in (own | read).items():
        page = PAGES / "reference" / f"{name}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(text(), "utf-8")
    shutil.copytree(ROOT / "tools/site", PAGES / "site")
    for page in PAGES.rglob("*.md"):
        page.write_text(unescaped(page.read_text("utf-8")), "utf-8")
    (PAGES / "gallery.md").write_text(gallery(), "utf-8")
    playground()


if __name__ == "__main__":
    main()
