"""From what a script measured to the rows of a table that `make tables` fills in: no number is typed.

A measurement leaves lines (a JSON list, or one JSON object a line); a summary groups them and writes one file a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Line = dict[str, Any]


def measured(folder: Path, *patterns: str) -> list[Line]:
    """All lines of the files that match: `.jsonl` has one line a line, any other file a list of them."""
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return [line for path in files for line in _lines(path)]


def _lines(path: Path) -> list[Line]:
    text = path.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        raise ValueError(f"{path}: expected a list of objects, or a .jsonl file with one object a line")
    return lines


def write_rows(folder: Path, rows: Sequence[Mapping[str, Any]], note: str = "") -> None:
    """One file a row, in this order, in place of all rows (`*.json`) that were there; the note goes below the table."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for order, cells in enumerate(rows):
        row = {"layout": "plain", "order": order, "cells": dict(cells), "note": note}
        text = json.dumps(row, indent=1, ensure_ascii=False) + "\n"
        (folder / f"{order:02}.json").write_text(text, encoding="utf-8")


def spread(values: Sequence[float], digits: int = 3) -> str:
    """The mean, and the standard deviation where there are several.

    >>> spread([0.5, 0.7]), spread([0.5], 1), spread([])
    ('0.600 ± 0.141', '0.5', '–')
    """
    if not len(values):
        return "–"
    mean = f"{np.mean(values):.{digits}f}"
    return mean + (f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else "")
