"""The recipes by name, with those of other packages. A recipe's groups of settings are its configuration."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedsynth.data.modality import kinds_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible, nearest
from fedsynth.plugins import load_plugins
from fedsynth.privacy.mechanism import Trust, Unit
from fedsynth.recipes.later import Later
from fedsynth.recipes.task import Task

if TYPE_CHECKING:
    from fedsynth.federation.algorithm import Algorithm
    from fedsynth.recipes.settings import Role

_FOREIGN = (
    "The recipe {self.name} is code of the package {self.package}: the promise rests on that code as well as on "
    "fedsynth's."
)
_ONCE: tuple[Role, ...] = ("rounds", "noise", "budget")  # roles that one setting at most has
MOST = 1e12  # of any setting: beyond it sizes overflow before anybody can refuse them


@dataclass(frozen=True)
class Argument:
    """One thing that `--set` can change."""

    name: str
    group: str
    type: Any
    default: Any
    help: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    role: Role | None = None


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
    help: Mapping[str, str] = field(default_factory=dict)  # of settings that mean something else here
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings as they were published
    package: str = ""  # that it comes from, with its version, if that is not fedsynth

    @property
    def unit(self) -> Unit:
        """Whom it protects unless asked otherwise."""
        return self.offers[0][0]

    @property
    def summary(self) -> str:
        """The first line of what its function says of itself."""
        return (inspect.unwrap(self.compose).__doc__ or "").strip().split("\n")[0]

    def protection(self, unit: str | None = None, trust: str | None = None) -> tuple[Unit, Trust]:
        """The first offer that meets what is asked for; None asks for nothing."""
        for offer in self.offers:
            if unit in (None, offer[0]) and trust in (None, offer[1]):
                return offer
        wish = ", ".join(f"{name}={value}" for name, value in (("unit", unit), ("trust", trust)) if value)
        offered = "; ".join(f"unit={one}, trust={who}" for one, who in self.offers)
        others = [other.name for other in all_recipes().values() if other.meets(unit, trust)]
        instead = f"; {', '.join(others)} can" if others else ""
        raise Incompatible(f"{wish}: {self.name} cannot promise that{instead}. {self.name} offers {offered}")

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
        return dict(self._groups)

    def arguments(self) -> dict[str, Argument]:
        """All that can be set, by name."""
        return dict(self._arguments)

    @cached_property
    def _groups(self) -> dict[str, Any]:
        parameters = inspect.signature(self.compose).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}

    @cached_property
    def _arguments(self) -> dict[str, Argument]:
        arguments = {}
        for group, defaults in self._groups.items():
            types = typing.get_type_hints(type(defaults))
            for item in fields(defaults):
                arguments[item.name] = Argument(
                    item.name,
                    group,
                    types[item.name],
                    getattr(defaults, item.name),
                    self.help.get(item.name, item.metadata["help"]),
                    *(item.metadata[name] for name in ("least", "most", "choices", "role")),
                )
        return arguments

    def named(self, *roles: Role) -> tuple[str, ...]:
        """The names of the settings that have one of these roles."""
        return tuple(argument.name for argument in self._arguments.values() if argument.role in roles)

    def with_role(self, role: Role, value: Any) -> dict[str, Any]:
        """A value for the setting of this role, by its name; nothing where the recipe has none."""
        return dict.fromkeys(self.named(role), value)

    def value_of(self, role: Role, values: Mapping[str, Any]) -> Any:
        """The value of the setting of this role; None where there is none."""
        return next((values[name] for name in self.named(role) if name in values), None)

    def preset(self, name: str) -> Mapping[str, Any]:
        """Settings by the name of where they were published."""
        if name not in self.presets:
            offered = nearest(name, self.presets) if self.presets else f"{self.name} has none"
            raise BadInput(f"preset={name!r}: unknown; {offered}")
        return self.presets[name]

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
        """Compose the algorithm with these arguments; refused for data that the recipe does not make."""
        if not {*self.kinds} & {*kinds_of(task.schema)}:
            makes = " and ".join(f"{kind}s" if kind != "linked" else "linked tables" for kind in self.kinds)
            raise Incompatible(f"kind={task.schema.kind}: {self.name} makes {makes}; see fedsynth recipes")
        known, groups = self._arguments, self.groups()
        for name, value in values.items():
            group = known[name].group
            groups[group] = replace(groups[group], **{name: value})
        algorithm = self.compose(task, **groups)
        if not self.package:
            return algorithm
        from fedsynth.federation.algorithm import Algorithm

        if type(algorithm) is not Algorithm:  # its costs must be those of its parts
            raise Incompatible(
                f"{self.name}: {self.package} composes a {type(algorithm).__name__}, not an Algorithm"
            )
        return replace(algorithm, name=self.name, caveats=(*algorithm.caveats, _FOREIGN.format(self=self)))


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
RECORD_LEVEL: tuple[tuple[Unit, Trust], ...] = (
    ("record", "distributed"),
    ("record", "central"),
    ("record", "local"),
)
COUNTED: tuple[tuple[Unit, Trust], ...] = (*CLIENT_LEVEL, ("client", "distributed"), *RECORD_LEVEL)
SHARED_NOISE: tuple[tuple[Unit, Trust], ...] = (("record", "distributed"), ("client", "distributed"))

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("marginals", Later("marginals", "marginals"), COUNTED, kinds=("table",)),
        Recipe(
            "histories",
            Later("histories", "histories"),
            (*CLIENT_LEVEL, ("client", "distributed")),
            kinds=("linked",),
            help={
                "label_weight": "weight of tables of a column with itself in the row before, others have about 1"
            },
        ),
        Recipe("privbayes", Later("privbayes", "privbayes"), COUNTED, kinds=("table",)),
        Recipe("calm", Later("local_tables", "calm"), (("client", "local"),), kinds=("table",)),
        Recipe("lopub", Later("local_tables", "lopub"), (("client", "local"),), kinds=("table",)),
        Recipe("locop", Later("local_tables", "locop"), (("client", "local"),), kinds=("table",)),
        Recipe("central_vae", Later("vae", "central_vae"), (("record", "central"),), pooled=True),
        Recipe("fvae", Later("vae", "fvae"), (*CLIENT_LEVEL, ("client", "distributed"))),
        Recipe(
            "dpd_fvae",
            Later("vae", "dpd_fvae"),
            (*CLIENT_LEVEL, ("client", "distributed")),
            presets={
                "paper": {
                    "size": "small",
                    "rounds": 48,
                    "epochs": 10,
                    "batch_size": 20,
                    "optimizer": "adam",
                    "learning_rate": 0.001,
                    "encoder_learning_rate": 0.001,
                    "clip": 1.0,
                    "momentum": 0.5,
                }
            },
        ),
        Recipe("fvae_record", Later("record_vae", "fvae_record"), (("record", "local"),)),
        Recipe("dpd_fvae_record", Later("record_vae", "dpd_fvae_record"), (("record", "local"),)),
        Recipe(
            "dpd_fvae_local_published",
            Later("record_vae", "dpd_fvae_local_published"),
            (("record", "local"),),
            promises=False,
        ),
        Recipe(
            "moment_vae",
            Later("moment_vae", "moment_vae"),
            (*CLIENT_LEVEL, ("record", "local")),
            kinds=("image",),
        ),
        Recipe("mixture", Later("mixture", "mixture"), RECORD_LEVEL, kinds=("image",)),
        Recipe("site_vae", Later("record_distributed", "site_vae"), SHARED_NOISE),
        Recipe("site_gan", Later("record_distributed", "site_gan"), SHARED_NOISE),
        Recipe(
            "fed_vae",
            Later("fed_vae", "fed_vae"),
            (*CLIENT_LEVEL, ("client", "distributed")),
            help={
                "learning_rate": "step size at the client (0: 0.1 for tables, 0.003 for signals, 0.01 for images, "
                "0.001 for images by adam)",
                "encoder_learning_rate": "step size of the private encoder (0: 0.03 for tables, 0.003 for signals and "
                "images)",
            },
        ),
        Recipe(
            "dp_fedavg_gan",
            Later("gan", "dp_fedavg_gan"),
            (*CLIENT_LEVEL, ("client", "distributed")),
            help={"learning_rate": "step size at the client (0: 1 for tables, 20 for images)"},
            presets={
                "paper": {
                    "start_share": 0.0,
                    "rounds": 1000,
                    "cohort": 10,
                    "clip": 0.1,
                    "most_batches": 6,
                    "learning_rate": 0.0005,
                    "game": "wasserstein",
                    "width": 16,
                    "latent": 128,
                    "generator_steps": 6,
                    "generator_batch": 32,
                    "generator_learning_rate": 0.005,
                }
            },
        ),
        Recipe(
            "pp_fedgan",
            Later("pp_fedgan", "pp_fedgan"),
            (("record", "local"),),
            transport="he",
            presets={"paper": {"start_share": 0.0, "alternations": 1, "steps": 94, "batch_rate": 0.02133}},
        ),
        Recipe(
            "dp_gan",
            Later("pp_fedgan", "dp_gan"),
            (("record", "central"),),
            pooled=True,
            presets={"paper": {"start_share": 0.0}},
        ),
        Recipe(
            "dp_fedavg_lm",
            Later("language", "dp_fedavg_lm"),
            (*CLIENT_LEVEL, ("client", "distributed")),
            kinds=("text",),
            help={"learning_rate": "step size at the client (0: 6, or 3 without privacy)"},
            presets={"paper": {"size": "paper", "rounds": 2000, "learning_rate": 0.5}},
        ),
        Recipe(
            "dp_fed_wae",
            Later("wae", "dp_fed_wae"),
            (("client", "local"),),
            presets={
                "paper": {
                    "opening": 0.0,
                    "label_weight": 1.0,
                    "alpha": 0.1,
                    "epochs": 10,
                    "optimizer": "adam",
                    "learning_rate": 0.001,
                    "group": 10,
                }
            },
        ),
    )
}


def all_recipes() -> dict[str, Recipe]:
    """The recipes of fedsynth, and those of other packages that are installed here."""
    plugins = load_plugins("fedsynth.recipes", _problem)
    foreign = {name: replace(one, package=plugins.packages[name]) for name, one in plugins.objects.items()}
    return {**RECIPES, **foreign}


def recipe_named(name: str) -> Recipe:
    """The recipe, or an error with the nearest name."""
    known = all_recipes()
    if name not in known:
        why = (
            load_plugins("fedsynth.recipes", _problem).broken.get(name) or f"unknown; {nearest(name, known)}"
        )
        raise BadInput(f"recipe={name!r}: {why}; a recipe of another package must be installed here too")
    return known[name]


def _problem(name: str, value: Any) -> str | None:
    if not isinstance(value, Recipe):
        return f"{type(value).__name__} is no Recipe"
    if value.name != name or name in RECIPES:
        return (
            f"the recipe is called {value.name!r}" if value.name != name else "fedsynth has one of that name"
        )
    double = [role for role in _ONCE if len(value.named(role)) > 1]
    if double:
        return f"several settings have the role {' and the role '.join(double)}"
    if not value.named("rounds"):
        return "no setting has the role rounds"
    return None
