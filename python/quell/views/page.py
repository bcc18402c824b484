"""A page: one HTML file that opens offline, with nothing to fetch.

`page.html` is the frame (a `string.Template`) of the report and of all other pages, `page.css` their looks, `draw.js`
their charts, drawn as SVG by hand.
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
    the page's name in a browser (default: the heading); `data` is what the script finds as JSON.
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
    """Read one of the files that lie in a package."""
    return (files(package) / name).read_text("utf-8").strip()


def embedded(data: Any) -> str:
    """Write data as JSON that an HTML element can hold: `<` is the one character that could end the element."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
