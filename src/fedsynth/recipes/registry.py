"""The recipes by name: the only registry. A recipe's groups of settings are its configuration."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible, nearest
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.mechanism import Trust, Unit
from fedsynth.recipes import vae
from fedsynth.recipes.fed_vae import fed_vae
from fedsynth.recipes.gan import dp_fedavg_gan
from fedsynth.recipes.language import dp_fedavg_lm
from fedsynth.recipes.marginals import marginals
from fedsynth.recipes.moment_vae import moment_vae
from fedsynth.recipes.pp_fedgan import dp_gan, pp_fedgan
from fedsynth.recipes.record_distributed import site_gan, site_vae
from fedsynth.recipes.record_vae import dpd_fvae_local_published, dpd_fvae_record, fvae_record
from fedsynth.recipes.task import Task
from fedsynth.recipes.wae import dp_fed_wae

MOST = 1e12  # of any setting: beyond it sizes overflow before anybody can refuse them


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
    """A system by name: the function that composes it, what it can promise, and whether rows are pooled first.

    `offers` are the units that it can protect and whom they then have to trust; the first is the usual one. A published
    system whose guarantee does not hold `promises` nothing: it runs, without privacy, to be compared with.
    """

    name: str
    compose: Callable[..., Algorithm]
    offers: tuple[tuple[Unit, Trust], ...]
    pooled: bool = False
    kinds: tuple[str, ...] = ("table", "image")
    transport: str = "clear"  # unless another is asked for or needed
    promises: bool = True

    @property
    def unit(self) -> Unit:
        """Whom it protects unless asked otherwise."""
        return self.offers[0][0]

    def protection(self, unit: str | None = None, trust: str | None = None) -> tuple[Unit, Trust]:
        """The first offer that meets what is asked for; None asks for nothing."""
        for offer in self.offers:
            if unit in (None, offer[0]) and trust in (None, offer[1]):
                return offer
        asked = ", ".join(f"{name}={value}" for name, value in (("unit", unit), ("trust", trust)) if value)
        offered = "; ".join(f"unit={one}, trust={who}" for one, who in self.offers)
        others = [other.name for other in RECIPES.values() if other.meets(unit, trust)]
        instead = f"; {', '.join(others)} can" if others else ""
        raise Incompatible(f"{asked}: {self.name} cannot promise that{instead}. {self.name} offers {offered}")

    def meets(self, unit: str | None, trust: str | None) -> bool:
        """Whether it can promise this."""
        offered = any(unit in (None, offer[0]) and trust in (None, offer[1]) for offer in self.offers)
        return offered and self.promises

    def task(
        self,
        schema: Schema,
        clients: int,
        *,
        private: bool = True,
        unit: str | None = None,
        trust: str | None = None,
        transport: str | None = None,
        largest: int = 1,
    ) -> Task:
        """The task with the protection asked for; what hides messages from the server is taken where that is needed."""
        whom, trusted = self.protection(unit, trust)
        usual = "secagg" if trusted == "distributed" else self.transport
        return Task(
            schema,
            clients,
            private=private,
            unit=whom,
            trust=trusted,
            transport=transport or usual,
            largest=largest,
        )

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
    if abs(number) > MOST:
        raise ValueError(f"expected a number of at most {MOST:g}")
    return int(number) if kind is int else number


CLIENT_LEVEL: tuple[tuple[Unit, Trust], ...] = (("client", "central"), ("client", "local"))

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "marginals",
            marginals,
            (*CLIENT_LEVEL, ("client", "distributed"), ("record", "distributed")),
            kinds=("table",),
        ),
        Recipe("central_vae", vae.central_vae, (("record", "central"),), pooled=True),
        Recipe("fvae", vae.fvae, (*CLIENT_LEVEL, ("client", "distributed"))),
        Recipe("dpd_fvae", vae.dpd_fvae, (*CLIENT_LEVEL, ("client", "distributed"))),
        Recipe("fvae_record", fvae_record, (("record", "local"),)),
        Recipe("dpd_fvae_record", dpd_fvae_record, (("record", "local"),)),
        Recipe("dpd_fvae_local_published", dpd_fvae_local_published, (("record", "local"),), promises=False),
        Recipe("moment_vae", moment_vae, (*CLIENT_LEVEL, ("record", "local")), kinds=("image",)),
        Recipe("site_vae", site_vae, (("record", "distributed"), ("client", "distributed"))),
        Recipe("site_gan", site_gan, (("record", "distributed"), ("client", "distributed"))),
        Recipe("fed_vae", fed_vae, (*CLIENT_LEVEL, ("client", "distributed"))),
        Recipe("dp_fedavg_gan", dp_fedavg_gan, (*CLIENT_LEVEL, ("client", "distributed"))),
        Recipe("pp_fedgan", pp_fedgan, (("record", "local"),), transport="he"),
        Recipe("dp_gan", dp_gan, (("record", "central"),), pooled=True),
        Recipe("dp_fedavg_lm", dp_fedavg_lm, (*CLIENT_LEVEL, ("client", "distributed")), kinds=("text",)),
        Recipe("dp_fed_wae", dp_fed_wae, (("client", "local"),)),
    )
}


def recipe_named(name: str) -> Recipe:
    """The recipe, or an error with the nearest name."""
    if name not in RECIPES:
        raise BadInput(f"recipe={name!r}: unknown; {nearest(name, RECIPES)}")
    return RECIPES[name]
