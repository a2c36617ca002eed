"""Which code composes a run here: server and sites build the same algorithm from names and numbers, each by itself.

So they need the same code where it decides what a run computes. The version's number is for people: two versions whose
hashes are equal may mix, and so may Python, torch and the operating system.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsynth.recipes.registry import recipe_named

ROOT = Path(__file__).parents[1]
DECIDES = (
    "rng.py", "plugins.py", "data", "models", "privacy", "training", "transport", "federation", "recipes", "inspection",
    "deploy/link", "deploy/inspection", "deploy/participation.py",
)  # fmt: skip
_DIGITS = 16
_ADVICE = "install the same version at the server and at all sites (operations.md, Upgrade)"


@cache
def package_hash(root: Path = ROOT) -> str:
    """A hash of all files that decide what a run computes."""
    return _hash(root, (file for place in DECIDES for file in _sources(root / place)))


@cache
def recipe_hash(name: str) -> str:
    """A hash of the code that a recipe comes with: its file, or the whole of another package."""
    module = inspect.unwrap(recipe_named(name).compose).__module__
    top = module.partition(".")[0]
    if top == "fedsynth":
        return _hash(ROOT, [Path(str(sys.modules[module].__file__))])
    spec = find_spec(top)
    places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
    return _hash(
        Path("/"), (file for place in places for file in _sources(Path(place).resolve())), named=False
    )


def software(recipe: str) -> dict[str, str]:
    """Return the versions and hashes that the server sends in an invitation, and that a site compares with its own."""
    try:
        number = version("fedsynth")
    except PackageNotFoundError:  # out of a checkout that is not installed
        number = "of a checkout"
    return {"version": number, "package": package_hash(), "recipe": recipe_hash(recipe)}


def difference(theirs: Mapping[str, Any], recipe: str) -> str:
    """Why a run that the server's code composes is not the one that this site would compose; empty if it is."""
    own = software(recipe)
    if not theirs:
        return f"the server does not say which version it has, this site has fedsynth {own['version']}; {_ADVICE}"
    if theirs.get("package") != own["package"]:
        there, here = (f"{one.get('version')} ({str(one.get('package'))[:8]})" for one in (theirs, own))
        return f"the server has fedsynth {there[:60]}, this site {here}, and these do not mix; {_ADVICE}"
    if theirs.get("recipe") != own["recipe"]:
        return f"recipe={recipe!r}: its code at the server is not the one that is installed here; {_ADVICE}"
    return ""


def _sources(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def _hash(root: Path, files: Iterable[Path], named: bool = True) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        name = file.relative_to(root).as_posix() if named else file.name
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:_DIGITS]
