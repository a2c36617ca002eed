"""Write a file or folder whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsynth.errors import BadInput


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Lend a temporary path beside `path`; rename it to `path` if the block succeeds, remove it if not."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial{target.suffix}")
    if not target.parent.is_dir():
        raise BadInput(f"{target}: the folder {target.parent} does not exist; create it first")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(target)
    except OSError as error:
        raise BadInput(
            f"{target}: cannot be written ({error.strerror or error}); choose another place"
        ) from error
    finally:
        _remove(temporary)


def sync(path: Path) -> None:
    """Return once a file's content, or a folder's list of names, would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
