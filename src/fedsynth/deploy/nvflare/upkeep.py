"""Keep a kit's folder from growing without end: its logs are rotated, old jobs of the engine are removed."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

LOGS = (
    "console.log",
    "audit.log",
    "log.txt",
    "log.json",
    "error_log.txt",
    "log_fl.txt",
    "notices.log",
    "copies.jsonl",
)
MOST_BYTES = 5 * 2**20  # of one log
COPIES = 3
JOBS_KEPT = 20
KEPT_S = 7 * 86400.0  # a job's files, however many there are
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def tidy(folder: Path) -> None:
    """Rotate what has grown and remove the files of jobs that ended long ago; runs, state and ledgers are not here.

    A job writes logs of its own, in its folder, for as long as it lives.
    """
    for place in (folder, *_jobs(folder)):
        for name in LOGS:
            path = place / name
            if path.is_file() and path.stat().st_size > MOST_BYTES:
                rotate(path)
    for place in (folder, folder / "store" / "jobs"):
        for old in _old_jobs(place):
            shutil.rmtree(old, ignore_errors=True)


def rotate(path: Path) -> None:
    """Keep a log as its first copy and empty it in place: the process that writes it has it open."""
    for number in range(COPIES, 1, -1):
        earlier = path.with_name(f"{path.name}.{number - 1}")
        if earlier.exists():
            earlier.replace(path.with_name(f"{path.name}.{number}"))
    shutil.copy2(path, path.with_name(f"{path.name}.1"))
    with path.open("r+b") as file:
        file.truncate(0)


def _jobs(place: Path) -> list[Path]:
    return [path for path in place.glob("*") if path.is_dir() and _JOB.fullmatch(path.name)]


def _old_jobs(place: Path) -> list[Path]:
    """The folders of jobs that are neither among the newest nor of these days."""
    newest = sorted(_jobs(place), key=lambda path: path.stat().st_mtime, reverse=True)
    return [path for path in newest[JOBS_KEPT:] if path.stat().st_mtime < time.time() - KEPT_S]
