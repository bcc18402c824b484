"""Text between marks in a page: `<!-- NAME -->` on its own line, the text, `<!-- /NAME -->`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def fill(page: Path, name: str, text: str) -> None:
    """Replace the text between the page's marks of this name.

    Raises ValueError unless the page has exactly one pair of them.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, begun, rest = page.read_text("utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended or begin in rest or end in after:
        raise ValueError(f"{page}: needs one {begin.strip()} and one {end} behind it")
    page.write_text(f"{before}{begin}{text}\n{end}{after}", "utf-8")
