"""How results are printed: one JSON object with --json, else words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer


def show(as_json: bool, result: Mapping[str, Any], words: str) -> None:
    """Print a command's result on standard output; no words, no line."""
    if as_json or words:
        typer.echo(json.dumps(result) if as_json else words)


def files_in(folder: Path) -> str:
    """The sentence that names a folder and the files that a command wrote there."""
    return f"Written to {folder}: " + ", ".join(sorted(path.name for path in folder.iterdir()))
