"""Write a file or folder whole or not at all, so that it survives a power cut; nothing else here renames or waits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedsynth.errors import BadInput, CannotWrite

OWNER_ONLY = 0o600  # of a file with secrets


def write_file(path: Path | str, content: bytes | str, mode: int | None = None) -> None:
    """Replace a file whole; with a `mode`, nobody else can read it from its first byte on."""
    with replacing(path) as temporary:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            temporary.chmod(mode)


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Lend a temporary path beside `path`; put it in the place of `path` if the block succeeds, remove it if not."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial{target.suffix}")
    if not target.parent.is_dir():
        raise BadInput(f"{target}: the folder {target.parent} does not exist; create it first")
    try:
        remove(temporary)  # of a process with our number that was killed
        yield temporary
        put(temporary, target)
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        with suppress(OSError):
            remove(temporary)


def put(fresh: Path, target: Path) -> None:
    """Rename a written file or folder to `target`; content and name are durable once this returns."""
    sync(fresh)
    if target.is_dir():
        remove(target)  # a folder is not replaced by a rename
    fresh.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Return once a file's content, or a folder's list of names, would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
