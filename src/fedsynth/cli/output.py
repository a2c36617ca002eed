"""How results are printed: one JSON object with --json, else words, which end at the edge of a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any, TextIO

import typer

_INNER = (".lock", ".head")  # endings of files that nobody opens
_WIDTH = 80  # of text whose reader is not known


def show(as_json: bool, result: Mapping[str, Any], words: str) -> None:
    """Print a command's result on standard output; no words, no line."""
    if as_json or words:
        typer.echo(json.dumps(result) if as_json else for_reader(words, sys.stdout))


def tell(words: str) -> None:
    """Print a message on standard error, where it is in nobody's way."""
    typer.echo(for_reader(words, sys.stderr), err=True)


def for_reader(words: str, stream: TextIO) -> str:
    """Words as a stream's reader wants them: a terminal would break them anywhere, a script wants lines whole."""
    if not stream.isatty():
        return words
    return fold(words, os.get_terminal_size(stream.fileno()).columns or _WIDTH)


def fold(words: str, width: int = _WIDTH) -> str:
    """Break lines that are longer than `width` between words; what follows is indented a little more than the line.

    >>> print(fold("  age: integer, 17 to 90", 18))
      age: integer,
        17 to 90
    """
    lines: list[str] = []
    for line in words.split("\n"):
        margin = line[: len(line) - len(line.lstrip())]
        deeper = margin + "  " if margin else ""
        long = len(line) > width
        lines += _lines(line, width, deeper) if long else [line]
    return "\n".join(lines)


def with_examples(text: str, width: int = _WIDTH - 4) -> str:
    """Help whose examples can be copied: a command too long for a line goes on in the next behind a backslash."""
    return "\n\n".join(_example(part, width) for part in text.split("\n\n"))


def files_in(folder: Path, *inner: str) -> str:
    """The sentence that names a folder and the files that a command wrote there, but for `inner` ones."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.endswith((*_INNER, *inner)))
    return fold(f"Written to {folder}: " + ", ".join(names))


def _lines(line: str, width: int, deeper: str) -> list[str]:
    return wrap(line, width, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False)


def _example(part: str, width: int) -> str:
    words = " ".join(part.split())
    if not words.startswith("Example: ") or len(words) <= width:
        return part
    glued = re.sub(r"(--[\w-]+) (?!-)", "\\1\0", words)  # a flag stays with its value
    glued = re.sub(r'"[^"]*"', lambda quoted: quoted[0].replace(" ", "\0"), glued)
    lines = _lines(glued, width - 2, "    ")
    return "\b\n" + " \\\n".join(lines).replace("\0", " ")  # \b: the lines stay as they are
