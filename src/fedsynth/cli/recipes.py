"""The command `fedsynth recipes`."""

from __future__ import annotations

import json
from typing import Any

import typer

from fedsynth.recipes.registry import RECIPES, recipe_named


def recipes(
    name: str | None,
    as_json: bool,
) -> None:
    """List the recipes, or what one of them can be told with --set."""
    if name is None:
        found = {
            r.name: {
                "unit": r.unit,
                "offers": r.offers if r.promises else (),
                "what": _first_line(r.compose.__doc__),
            }
            for r in RECIPES.values()
        }
        width = max(map(len, found))
        lines = [
            f"{r.name:{width}}  protects {f'a {r.unit}' if r.promises else 'nobody':8}  {found[r.name]['what']}"
            for r in RECIPES.values()
        ]
        typer.echo(json.dumps(found) if as_json else "\n".join(lines))
        return
    recipe = recipe_named(name)
    arguments = recipe.arguments().values()
    if as_json:
        typer.echo(json.dumps({a.name: {"default": a.default, "help": a.help} for a in arguments}))
        return
    typer.echo(f"{_first_line(recipe.compose.__doc__)}\n")
    for argument in arguments:
        typer.echo(f"  --set {argument.name + '=' + _shown(argument.default):32} {argument.help}")


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
