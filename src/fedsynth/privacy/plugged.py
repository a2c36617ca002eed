"""Mechanisms that other packages add, by the entry point `fedsynth.mechanisms`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsynth.errors import BadInput, nearest
from fedsynth.plugins import load_plugins
from fedsynth.privacy.mechanism import Mechanism

_HALVES = ("release", "wire", "init", "privatize", "estimate")


def mechanism_named(name: str) -> Callable[..., Mechanism]:
    """The class of a mechanism that an installed package brings."""
    plugins = load_plugins("fedsynth.mechanisms", _problem)
    if name not in plugins.objects:
        why = plugins.broken.get(name) or f"unknown; {nearest(name, plugins.objects)}"
        raise BadInput(f"mechanism={name!r}: {why}")
    mechanism: Callable[..., Mechanism] = plugins.objects[name]
    return mechanism


def _problem(name: str, value: Any) -> str | None:
    missing = [half for half in _HALVES if not hasattr(value, half)]
    return f"no {' and no '.join(missing)}" if missing else None
