"""Shows the doctests of docstrings as code on the site's reference page."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^|\n)((?:>>> .*)(?:\n(?!\n).*)*)")


class Doctests(griffe.Extension):  # type: ignore[misc]
    """Puts each paragraph that begins with a prompt into a fence."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of a class or function."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\n```pycon\n\1\n```", obj.docstring.value)
