"""The command `fedsynth recipes`."""

from __future__ import annotations

from typing import Annotated, Any

from fedsynth.cli import flags
from fedsynth.cli.flags import argument
from fedsynth.cli.output import show


def recipes(
    name: Annotated[str | None, argument("Show this recipe's arguments.")] = None,
    as_json: flags.AsJson = False,
) -> None:
    """List the recipes, or the options of one recipe.

    Example: fedsynth recipes dpd_fvae
    """
    from fedsynth.recipes.registry import all_recipes, recipe_named

    if name is not None:
        recipe = recipe_named(name)
        settings = recipe.arguments().values()
        lines = [f"  --set {one.name + '=' + _shown(one.default):32} {one.help}" for one in settings]
        for preset, chosen in recipe.presets.items():
            words = " ".join(f"{key}={_shown(value)}" for key, value in chosen.items())
            lines.append(f"\n  --preset {preset}: {words}")
        values = {one.name: {"default": one.default, "help": one.help} for one in settings}
        show(as_json, values, "\n".join([f"{recipe.summary}\n", *lines]))
        return
    known = all_recipes()
    width = max(map(len, known))
    described, lines = {}, []
    for one in known.values():
        what = one.summary
        described[one.name] = {"unit": one.unit, "offers": one.offers if one.promises else (), "what": what}
        whom = f"a {one.unit}" if one.promises else "nobody"
        lines.append(f"{one.name:{width}}  protects {whom:8}  {what}")
    show(as_json, described, "\n".join(lines))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
