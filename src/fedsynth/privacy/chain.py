"""A file of JSON lines that only grows: each line holds the last one's hash, and is durable before use.

A process may be killed at any moment. What it can leave behind is a last line without its newline, whose
release never left; that is told apart from a changed, cut or reordered line, which is somebody's doing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from fedsynth.data.atomic import sync, write_file

FIRST = "0" * 64


@dataclass(frozen=True)
class Contents:
    """The content of a file: whole lines, the bytes of one that was never finished, and the problems."""

    lines: tuple[dict[str, Any], ...] = ()
    torn: bytes = b""
    problems: tuple[str, ...] = ()
    size: int = 0  # bytes of the whole lines


def digest(line: Mapping[str, Any]) -> str:
    """SHA-256 of a line without its own hash, in one canonical spelling.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1, "hash": "ignored"})
    True
    """
    return hashlib.sha256(_spell({k: v for k, v in line.items() if k != "hash"})).hexdigest()


_WRITER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _spell(line: Mapping[str, Any]) -> bytes:
    return _WRITER.encode(line).encode()


def link(line: Mapping[str, Any], index: int, previous: str) -> dict[str, Any]:
    """The line with its place in the chain: index, the hash before it, and its own."""
    placed = {"index": index, **line, "previous": previous}
    return {**placed, "hash": digest(placed)}


def read(path: Path) -> Contents:
    """All whole lines with what is wrong with them; never raises for a damaged file."""
    data = path.read_bytes() if path.exists() else b""
    whole, _, torn = data.rpartition(b"\n")
    size = len(whole) + 1 if whole or torn != data else 0
    lines, problems = [], []
    for number, text in enumerate(whole.split(b"\n") if size else []):
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                raise ValueError
            lines.append(line)
        except ValueError:
            problems.append(f"line {number}: it is not JSON; somebody changed it")
            lines.append({})
    return Contents(tuple(lines), torn, (*problems, *check(lines)), size)


def check(lines: list[dict[str, Any]]) -> list[str]:
    """List the problems of a chain of lines: changed, missing or moved ones."""
    problems, previous = [], FIRST
    for number, line in enumerate(lines):
        if line and line.get("hash") != digest(line):
            problems.append(f"line {number}: its content does not match its hash; somebody changed it")
        elif line and line.get("previous") != previous:
            problems.append(
                f"line {number}: it does not follow line {number - 1}; lines were cut or reordered"
            )
        elif line and line.get("index") != number:
            problems.append(
                f"line {number}: it calls itself {line.get('index')}; lines were cut or reordered"
            )
        previous = str(line.get("hash"))
    return problems


def head_path(path: Path) -> Path:
    """Where the number of lines and the last hash are kept, so that a cut tail is noticed."""
    return path.with_name(path.name + ".head")


def check_head(path: Path, lines: tuple[dict[str, Any], ...]) -> list[str]:
    """List the problems at the chain's end; lines that the head does not know mean a crash between the writes."""
    head = head_path(path)
    if not head.exists():
        return [f"{head.name} is missing; a cut tail could not be noticed"] if lines else []
    try:
        known = json.loads(head.read_text())
        count, last = int(known["count"]), str(known["hash"])
    except (ValueError, KeyError, TypeError):
        return [f"{head.name} cannot be read; a cut tail could not be noticed"]
    if len(lines) < count:
        return [f"the last {count - len(lines)} of {count} lines are missing; somebody cut them off"]
    if count and lines[count - 1].get("hash") != last:
        return [f"line {count - 1}: it is not the line that {head.name} names; the end was rewritten"]
    return []


def write_lines(path: Path, lines: list[dict[str, Any]]) -> int:
    """Append lines and return once they would survive a power cut; the number of bytes."""
    created = not path.exists()
    data = b"".join(_spell(line) + b"\n" for line in lines)
    with path.open("ab") as file:
        file.write(data)
    sync(path)
    if created:
        sync(path.parent)
    return len(data)


def write_head(path: Path, count: int, last: str) -> None:
    """Name the last line, in one atomic step."""
    write_file(head_path(path), _spell({"count": count, "hash": last}))


def finish_torn(path: Path, contents: Contents, count: int, previous: str) -> bool:
    """Mend a last line without newline: True if it was whole and is kept, False if it had to be cut away.

    A whole one is kept because counting a release that never left is safe.
    """
    try:
        line = json.loads(contents.torn)
        whole = isinstance(line, dict) and not check_next(line, count, previous)
    except ValueError:
        whole = False
    with path.open("r+b") as file:
        if whole:
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        else:
            file.truncate(contents.size)
    sync(path)
    return whole


def check_next(line: Mapping[str, Any], index: int, previous: str) -> bool:
    """True if the line is not the next of its chain."""
    return line.get("hash") != digest(line) or line.get("previous") != previous or line.get("index") != index


def exclusive(path: Path) -> AbstractContextManager[Any]:
    """One writer at a time, also among processes; the system lets go when a process dies."""
    return FileLock(path.with_name(path.name + ".lock"))
