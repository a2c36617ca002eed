"""One process at a time, by a lock that the system takes back when its holder dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedsynth.errors import BadInput


@contextmanager
def alone(path: Path, sentence: str, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`; who cannot have it within `patience_s` is refused with the sentence."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=patience_s)
    except Timeout:
        raise BadInput(sentence) from None
    try:
        yield
    finally:
        lock.release()
