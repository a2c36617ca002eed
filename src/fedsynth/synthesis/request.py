"""What a run was asked to do: the flags of `fedsynth run`, the keys of its TOML file, the Synthesizer's arguments."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from fedsynth.errors import BadInput, nearest
from fedsynth.recipes.budget import Target

ACCEPTABLE = ("inferred", "delta")


@dataclass(frozen=True)
class Request:
    """All that makes a run, but for the data and the schema themselves."""

    recipe: str = "dpd_fvae"
    data: str | None = None
    schema: str | None = None
    client_column: str | None = None
    clients: int | None = None
    split: str = "uniform"
    split_seed: int | None = None  # deals rows to simulated clients; says nothing about the noise
    label: str | None = None
    text_column: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    rounds: int | None = None
    noise_multiplier: float | None = None
    private: bool = True
    unit: str | None = None
    trust: str | None = None
    transport: str | None = None
    budget: str | None = None
    seed: int | None = None
    device: str = "cpu"
    simulate_speeds: str | None = None  # of simulated clients, as simulator/speeds.py reads it
    rows: int | None = None
    accept: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [
            f"{item.name}={getattr(self, item.name)!r}: expected {_expected(item)}"
            for item in fields(self)
            if not _fits(getattr(self, item.name), item)
        ]
        if problems:
            raise BadInput("; ".join(problems))
        if self.rows is not None and self.rows < 1:
            raise BadInput(f"rows={self.rows}: expected at least 1 synthetic row")
        unknown = [name for name in self.accept if name not in ACCEPTABLE]
        if unknown:
            raise BadInput(f"accept={unknown[0]!r}: unknown; {nearest(unknown[0], ACCEPTABLE)}")
        if self.private and (self.epsilon is None or self.delta is None):
            raise BadInput(
                "a private run needs --epsilon and --delta; use --no-privacy for a baseline without"
            )
        if not self.private and (self.epsilon is not None or self.noise_multiplier is not None):
            raise BadInput(
                "--no-privacy does not go with --epsilon or --noise-multiplier; choose one of them"
            )

    @property
    def target(self) -> Target | None:
        """The budget, or None for a run without privacy."""
        if not self.private:
            return None
        assert self.epsilon is not None and self.delta is not None
        return Target(self.epsilon, self.delta, self.rounds, self.noise_multiplier)

    def to_toml(self) -> dict[str, Any]:
        """The keys that are set, for recipe.toml."""
        plain = {name: value for name, value in asdict(self).items() if value is not None and value != ()}
        plain["arguments"] = {
            name: list(value) if isinstance(value, tuple) else value for name, value in self.arguments.items()
        }
        if self.accept:
            plain["accept"] = list(self.accept)
        return plain

    @classmethod
    def from_toml(cls, keys: Mapping[str, Any]) -> Request:
        """The request in a TOML file; every unknown key is reported at once."""
        known = [item.name for item in fields(cls)]
        problems = [f"{name}: no such key; {nearest(name, known)}" for name in keys if name not in known]
        if problems:
            raise BadInput("; ".join(problems))
        accept = keys.get("accept", ())
        return cls(**{**keys, "accept": tuple(accept) if isinstance(accept, list) else accept})

    def changed(self, **changes: Any) -> Request:
        """The request with what the command line gives; None leaves a key as it is."""
        given = {name: value for name, value in changes.items() if value is not None and value != ()}
        arguments = {**self.arguments, **given.pop("arguments", {})}
        return replace(self, **given, arguments=arguments)

    def refuse_changes(self, asked: Mapping[str, Any]) -> None:
        """A run goes on as what it was begun as; only the place of its data and the device may be others."""
        free = ("data", "device")
        given = {name: value for name, value in asked.items() if name not in free and value not in (None, ())}
        other = [name for name, value in given.items() if value != getattr(self, name)]
        if other:
            told = ", ".join(f"{name} was {getattr(self, name)!r}, not {given[name]!r}" for name in other)
            raise BadInput(
                f"--resume goes on with the run as it was begun: {told}; leave it out, or begin a new run"
            )


_KINDS: dict[str, tuple[type, str]] = {
    "str": (str, "text"),
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "true or false"),
    "tuple[str, ...]": (tuple, "a list"),
    "Mapping[str, Any]": (Mapping, "a table of names and values"),
}


def _expected(item: Field[Any]) -> str:
    return _KINDS[str(item.type).removesuffix(" | None")][1]


def _fits(value: Any, item: Field[Any]) -> bool:
    """Whether a value has the type that its field declares; true and false are no numbers."""
    kind = str(item.type).removesuffix(" | None")
    if value is None:
        return kind != item.type
    return isinstance(value, _KINDS[kind][0]) and (kind == "bool" or not isinstance(value, bool))


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a configuration file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not valid TOML ({error})") from None
