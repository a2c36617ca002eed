"""Fill an empty virtual environment with a wheel and just what it declares to need, without fetching anything.

    python tools/bare_venv.py build/bare build/dist/fedsynth-1.0-py3-none-any.whl report demo

The wheel is installed by pip; each distribution that it needs with these extras, and what those need, is linked file
by file from the environment that runs this, and shares its bytecode. What is not declared is not there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(
    requirements: Iterable[str], extras: Iterable[str], known: set[tuple[str, str]]
) -> Iterator[Distribution]:
    """The installed distributions that these requirements name, and those that they need themselves."""
    for extra in ("", *extras):
        for text in requirements:
            wanted = Requirement(text)
            if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
                continue
            found = distribution(wanted.name)
            for part in ("", *wanted.extras):
                key = (canonicalize_name(wanted.name), part)
                if key not in known:
                    known.add(key)
                    yield found
                    yield from needed(found.requires or (), [part] if part else [], known)


def link(found: Distribution, target: Path) -> None:
    """Link a distribution's files; copy them where that cannot be."""
    for path in found.files or ():
        if ".." in path.parts or "__pycache__" in path.parts:  # commands, which the demo does not need
            continue
        source, place = Path(str(path.locate())), target / path
        if not place.exists() and source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, place)
            except OSError:
                shutil.copy2(source, place)
            if path.suffix == ".py":
                _share_bytecode(source.parent, place.parent)


def _share_bytecode(source: Path, folder: Path) -> None:
    """Let what is compiled here be compiled for both: torch and scipy alone take twenty seconds."""
    kept, cache = source / "__pycache__", folder / "__pycache__"
    if not cache.exists():
        kept.mkdir(exist_ok=True)
        cache.symlink_to(kept.resolve())


def main(environment: str, wheel: str, *extras: str) -> None:
    """Install the wheel, link what it needs, and let pip check that nothing is missing."""
    python = Path(environment) / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-compile", wheel], check=True)
    (target,) = (Path(environment) / "lib").glob("python*/site-packages")
    (metadata,) = target.glob("fedsynth-*.dist-info")
    for found in needed(Distribution.at(metadata).requires or (), extras, set()):
        link(found, target)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(*sys.argv[1:])
