"""From released parameters and the public schema to synthetic data. Nothing here has seen a real row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from fedsynth.data.atomic import write_file
from fedsynth.data.conditions import Condition, read_conditions
from fedsynth.data.encode import anchors_of
from fedsynth.data.modality import Data, Modality, modality_of
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table, valid_rows
from fedsynth.errors import BadInput
from fedsynth.models.distribution import Distribution
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.model import Model, Params, layouts, named_params, sample_pieces
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.synthesis.counted_rows import PART, PIECE, counted_rows, label_chances
from fedsynth.synthesis.rule_keeping import keep_rules

_ALONE = 0.95  # of the clients with one row: noise may say the rest
_SINCE = {"moments": "since"}  # of a generator: dates that follow another are learned as the time since it
_TRIES = 200  # batches drawn for a condition before giving up


@dataclass(frozen=True)
class Generator:
    """A generator that may be given to anyone: its parameters, the class balance and the schema."""

    schema: Schema
    recipe: str
    values: Mapping[str, Any]
    parts: Mapping[str, Tensor]  # flat vectors
    balance: Tensor | None = None

    composed: Model | None = field(default=None, repr=False, compare=False)  # where the algorithm is at hand

    @cached_property
    def model(self) -> Model:
        """The model that the recipe composes for this schema; privacy settings do not matter here."""
        if self.composed is not None:
            return self.composed
        task = Task(self.schema, clients=2, private=False)
        recipe = recipe_named(self.recipe)
        few = recipe.named("cohort", "clients")  # settings that only so many clients can meet
        usual = {name: recipe.arguments()[name].default for name in few}
        return recipe.build(task, {**self.values, **usual}).model

    @cached_property
    def params(self) -> Mapping[str, Params]:
        """The parameters by part and name."""
        return named_params(self.model, self.parts)

    @cached_property
    def _distribution(self) -> Distribution:
        return Distribution.unpack(self.params["fitted"]["values"])

    @cached_property
    def _modality(self) -> Modality:
        return modality_of(self.schema)

    def sample(self, rows: int, rng: Rng, condition: Mapping[str, Any] | Iterable[str] | None = None) -> Data:
        """`rows` synthetic rows of a table, images with their labels, or whatever the kind of data is.

        `condition` fixes columns to values, or is a list of texts such as "age>=30".
        """
        if rows < 1:
            raise BadInput(f"rows={rows}: expected at least 1")
        conditions = read_conditions(condition or (), self.schema)
        of_label = [each for each in conditions if each.column.name == self.schema.label]
        others = [each for each in conditions if each not in of_label]
        if conditions and self.schema.tables:
            drawn = self.model.sample_where(self.params, rows, conditions, rng)  # type: ignore[attr-defined]
            return self._modality.decode(drawn, torch.zeros(rows))
        if others or (of_label and self.schema.rules):  # a repair may change the label
            return self._modality.decode(*self._matching(rows, of_label, others, rng))
        labels = self._labels(rows, of_label, rng)
        if self.schema.rules:
            parts = self._ruled_rows(labels, rng)
            return self._modality.numbered(self._modality.join([*parts]))
        return self._free_rows(labels, rng)

    def stream(
        self, rows: int, rng: Rng, condition: Mapping[str, Any] | Iterable[str] | None = None
    ) -> Iterator[Data]:
        """The same data as `sample` in parts, so that many rows take the memory of few.

        They are one part where a condition or links between tables need all rows at once.
        """
        if rows <= PART or condition or self.schema.tables:
            yield self.sample(rows, rng, condition)
            return
        labels = self._labels(rows, [], rng)
        if self.schema.rules:
            for number, part in enumerate(self._ruled_rows(labels, rng)):
                yield self._modality.numbered(part, number * PIECE)
            return
        for first in range(0, rows, PART):
            yield self._free_rows(labels[first : first + PART], rng, first)

    def _free_rows(self, labels: Tensor, rng: Rng, after: int = 0) -> Data:
        """Rows with these labels and nothing else to meet, drawn after so many others."""
        if isinstance(self.model, MarginalModel):
            drawn = counted_rows(self.model.domain, self._distribution, labels.numpy(), rng, after // PIECE)
            return self._modality.numbered(drawn, after)
        pieces = sample_pieces(self.model, self.parts, labels, rng, PIECE, after // PIECE)
        parts = [self._modality.decode_all(x, y) for x, y in pieces]
        return self._modality.numbered(self._modality.join(parts), after)

    def _ruled_rows(self, labels: Tensor, rng: Rng) -> Iterator[Data]:
        """Rows with these labels that keep the schema's constraints, a piece at a time."""
        pieces = labels.split(PIECE)
        for number, piece in enumerate(pieces):
            stream = rng if len(pieces) == 1 else rng.at("ruled", number)
            yield self._modality.decode(*self._rows(piece, stream))

    def owners(self, rows: int, rng: Rng) -> np.ndarray:
        """Whose each of so many rows is, by the noisy numbers of rows that clients had."""
        if not isinstance(self.model, MarginalModel) or not self._distribution.row_counts:
            raise BadInput(
                f"client ids: this run of {self.recipe} did not ask how many rows a client has; they need a run of "
                "marginals that protects clients, with mean_over=either or rows"
            )
        if self._distribution.row_counts[0] > _ALONE:
            raise BadInput("client ids: the clients of this run have one row each; leave them out")
        return self._distribution.owners(rows, rng.at("owners").numpy())

    def _labels(self, rows: int, conditions: list[Condition], rng: Rng) -> Tensor:
        """Class numbers: the asked one, or drawn from the public or paid-for balance of those that are allowed."""
        balance = None if self.balance is None else self.balance.numpy()
        chances = label_chances(self.schema, balance, conditions)
        if np.count_nonzero(chances) == 1:
            return torch.full((rows,), int(chances.argmax()))
        generator = rng.at("labels").torch_generator()
        return torch.multinomial(torch.from_numpy(chances), rows, replacement=True, generator=generator)

    def _draw(self, labels: Tensor, rng: Rng) -> Tensor:
        return torch.cat([x for x, _ in sample_pieces(self.model, self.parts, labels, rng, PIECE)])

    def _rows(self, labels: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Encoded rows with these labels that keep the schema's constraints."""
        drawn = self._draw(labels, rng)
        if not self.schema.rules:
            return drawn, labels
        return keep_rules(Table(self.schema), drawn, labels, self._draw, rng)

    def _matching(
        self, rows: int, of_label: list[Condition], others: list[Condition], rng: Rng
    ) -> tuple[Tensor, Tensor]:
        """Rows that meet conditions and constraints, drawn until there are enough."""
        kept: list[tuple[Tensor, Tensor]] = []
        count = 0
        for attempt in range(_TRIES):
            stream = rng.at("attempt", attempt)
            x, y = self._proposed(max(rows, 1000), of_label, others, stream)
            numbers = Table(self.schema).numbers(x, y)
            meets = valid_rows(self.schema, numbers)
            for each in (*of_label, *others):
                meets &= each.holds(numbers[each.column.name])
            kept.append((x[meets], y[meets]))
            count += int(meets.sum())
            if count >= rows:
                return torch.cat([x for x, _ in kept])[:rows], torch.cat([y for _, y in kept])[:rows]
        wanted = ", ".join(each.text for each in [*of_label, *others])
        advice = f"ask for at most {count} rows or drop a condition" if count else "drop a condition"
        raise BadInput(
            f"condition {wanted}: {count} of {_TRIES * max(rows, 1000)} synthetic rows meet it; {advice}"
        )

    def _proposed(
        self, rows: int, of_label: list[Condition], others: list[Condition], rng: Rng
    ) -> tuple[Tensor, Tensor]:
        """Rows that meet conditions if the model can draw such; else those on the label alone."""
        if isinstance(self.model, MarginalModel):
            return self.model.sample_where(self.params, rows, [*of_label, *others], rng)
        return self._rows(self._labels(rows, of_label, rng), rng)

    def save(self, path: Path) -> None:
        """Write the released parameters, and nothing else, as safetensors."""
        tensors = {
            f"{part}.{name}": value.contiguous()
            for part, values in named_params(self.model, self.parts).items()
            for name, value in values.items()
        }
        if self.balance is not None:
            tensors["balance"] = self.balance
        write_file(path, save(tensors, metadata=_SINCE if anchors_of(self.schema) else None))

    @classmethod
    def load(cls, path: Path, schema: Schema, recipe: str, values: Mapping[str, Any]) -> Generator:
        """Read what `save` wrote; shapes are checked against the recipe's model."""
        tensors = _read(path)
        if schema.kind == "table" and anchors_of(schema) and not _counts_since(path):
            raise BadInput(
                f"{path}: an earlier version made it, which learned dates and not the time between them; run it again"
            )
        empty = cls(schema, recipe, values, {}, tensors.pop("balance", None))
        parts = {}
        for part, layout in layouts(empty.model).items():
            named = {n: tensors[f"{part}.{n}"] for n in layout.names if f"{part}.{n}" in tensors}
            if not named:
                continue
            wrong = [
                n
                for n, s in zip(layout.names, layout.shapes, strict=True)
                if named.get(n) is None or (tuple(named[n].shape) != s and not layout.open_ended)
            ]
            if wrong:
                raise BadInput(
                    f"{path}: {part} does not fit the recipe ({wrong[0]} is missing or has another shape)"
                )
            parts[part] = layout.join(named)
        return replace(empty, parts=parts, composed=empty.model)


def _counts_since(path: Path) -> bool:
    """Whether a generator draws moments that follow another as the time since it."""
    with safe_open(path, framework="pt") as file:
        return _SINCE.items() <= (file.metadata() or {}).items()


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        if path.with_suffix(".sealed").exists():
            raise BadInput(
                f"{path}: this run's generator is sealed; a key-holder opens it with fedsynth keys open "
                f"{path.parent} --key he.secret"
            ) from None
        raise BadInput(f"{path}: no such file; is the run finished? Continue it with --resume") from None
    except Exception as error:
        raise BadInput(f"{path}: cannot be read as safetensors ({error})") from None
