"""Plug-ins of other packages, found by their entry points (docs/extending.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

Group = Literal["fedsynth.recipes", "fedsynth.mechanisms", "fedsynth.metrics", "fedsynth.modalities"]


@dataclass
class Plugins:
    """The objects of one group by name, the packages they come from, and a sentence on each that cannot be used."""

    objects: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)  # name and version
    broken: dict[str, str] = field(default_factory=dict)


@cache
def load_plugins(group: Group, problem: Callable[[str, Any], str | None]) -> Plugins:
    """Load all entry points of a group, once; `problem` says why an object cannot be used under its name.

    A package that is broken is named on stderr and left out: the others, and fedsynth itself, go on.
    """
    plugins = Plugins()
    for entry in sorted(entry_points(group=group), key=lambda one: (one.name, one.value)):
        package = _package(entry)
        try:
            value = entry.load()
            why = (
                f"{entry.name} is there twice"
                if entry.name in plugins.objects
                else problem(entry.name, value)
            )
        except Exception as error:  # whatever a stranger's code raises
            value, why = None, f"{type(error).__name__}: {error}"
        if why is None:
            plugins.objects[entry.name], plugins.packages[entry.name] = value, package
        else:
            reason = " ".join(why.split())
            plugins.broken[entry.name] = f"the package {package} cannot add {entry.name!r} ({reason})"
            print(f"fedsynth: {plugins.broken[entry.name]}; it is left out", file=sys.stderr)
    return plugins


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
