"""The recipes by name: the only registry. A recipe's groups of settings are its configuration."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedsynth.errors import BadInput, nearest
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.mechanism import Unit
from fedsynth.recipes import vae
from fedsynth.recipes.task import Task


@dataclass(frozen=True)
class Argument:
    """One thing that `--set` can change."""

    name: str
    group: str
    type: Any
    default: Any
    help: str


@dataclass(frozen=True)
class Recipe:
    """A system by name: the function that composes it, whom it protects, and whether rows are pooled first."""

    name: str
    compose: Callable[..., Algorithm]
    unit: Unit
    pooled: bool = False

    def groups(self) -> dict[str, Any]:
        """The default settings, by group."""
        parameters = inspect.signature(self.compose).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}

    def arguments(self) -> dict[str, Argument]:
        """All that can be set, by name."""
        found = {}
        for group, defaults in self.groups().items():
            types = typing.get_type_hints(type(defaults))
            for item in fields(defaults):
                found[item.name] = Argument(
                    item.name,
                    group,
                    types[item.name],
                    getattr(defaults, item.name),
                    item.metadata["help"],
                )
        return found

    def values(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments with these changes, parsed; every unknown name and bad value is reported at once."""
        known = self.arguments()
        problems = []
        parsed = {name: argument.default for name, argument in known.items()}
        for name, value in changes.items():
            if name not in known:
                problems.append(f"{name}: {self.name} has no such argument; {nearest(name, known)}")
                continue
            try:
                parsed[name] = parse(value, known[name].type)
            except ValueError as error:
                problems.append(f"{name}={value!r}: {error}")
        if problems:
            raise BadInput("; ".join(problems))
        return parsed

    def build(self, task: Task, values: Mapping[str, Any]) -> Algorithm:
        """Compose the algorithm with these arguments."""
        known = self.arguments()
        groups = self.groups()
        for name, value in values.items():
            group = known[name].group
            groups[group] = replace(groups[group], **{name: value})
        return self.compose(task, **groups)


def parse(value: Any, kind: Any) -> Any:
    """A value from the command line or a TOML file as the type that a setting has.

    >>> parse("64,32", tuple[int, ...])
    (64, 32)
    >>> parse("0.5", float)
    0.5
    """
    if typing.get_origin(kind) is tuple:
        pieces = value.split(",") if isinstance(value, str) else value
        pieces = pieces if isinstance(pieces, (list, tuple)) else [pieces]
        return tuple(parse(piece, typing.get_args(kind)[0]) for piece in pieces)
    if kind not in (int, float):
        return str(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    whole = math.isfinite(number) and number == int(number)
    if isinstance(value, bool) or not (whole if kind is int else math.isfinite(number)):
        raise ValueError("expected a whole number" if kind is int else "expected a number")
    return int(number) if kind is int else number


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("central_vae", vae.central_vae, "record", pooled=True),
        Recipe("fvae", vae.fvae, "client"),
        Recipe("dpd_fvae", vae.dpd_fvae, "client"),
    )
}


def recipe_named(name: str) -> Recipe:
    """The recipe, or an error with the nearest name."""
    if name not in RECIPES:
        raise BadInput(f"recipe={name!r}: unknown; {nearest(name, RECIPES)}")
    return RECIPES[name]
