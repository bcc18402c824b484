"""A page: a self-contained HTML file.

`page.html` is the template (a `string.Template`) of the report and of all other pages, `page.css` their style, and
`draw.js` draws their charts as SVG.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from quell import _core


def page(heading: str, about: str, body: str, *, data: Any, css: str, js: str, tab: str = "") -> str:
    """Return a page as HTML.

    `about` and `body` are HTML below the heading and the header; `css` and `js` come after those of all pages. `tab` is
    the page's name in a browser (default: the heading); `data` is passed to the script as JSON.
    """
    parts = {
        "tab": escape(tab or heading),
        "heading": escape(heading),
        "version": escape(_core.__version__),
        "about": about,
        "body": body,
        "data": embedded(data),
        "css": f"{part(__package__, 'page.css')}\n{css}",
        "js": f"{part(__package__, 'draw.js')}\n{js}",
    }
    return Template(part(__package__, "page.html")).substitute(parts)


def again(command: str, before: str = "", after: str = "") -> str:
    """Return the section with the command that repeats a page, between two pieces of HTML."""
    return (
        f"<section>\n  <h2>Make this page again</h2>{before}\n"
        f'  <div class="command"><code id="command">{escape(command)}</code>'
        f'<button type="button">copy</button></div>{after}\n</section>'
    )


def part(package: str, name: str) -> str:
    """Read a file in a package."""
    return (files(package) / name).read_text("utf-8").strip()


def embedded(data: Any) -> str:
    """Format data as JSON for an HTML element: only `<` could end the element."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
