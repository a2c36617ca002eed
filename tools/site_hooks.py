"""What the site's pages need besides Markdown: the change log, and links to files that are not on the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+)([^)]+)\)")
_CHANGES = "<!-- CHANGELOG.md -->"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the change log in its page, and name files of the repository instead of linking to them."""
    if _CHANGES in markdown:
        changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        changes = re.sub(r"\]\((?!https?:|docs/)", "](../", changes.partition("\n")[2]).replace(
            "](docs/", "]("
        )
        markdown = markdown.replace(_CHANGES, changes)
    depth = len(Path(page.file.src_uri).parts)
    return _OUTSIDE.sub(lambda link: _named(link, depth), markdown)


def _named(link: re.Match[str], depth: int) -> str:
    """A link that leaves the docs folder as its words and the file's name; any other as it is."""
    if link[3].count("../") < depth:
        return link[0]
    text, file = link[2].strip("`"), link[4]
    return f"`{file}`" if text in file or file in text else f"{link[2]} (`{file}`)"
