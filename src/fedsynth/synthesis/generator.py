"""From released parameters and the public schema to synthetic data. Nothing here has seen a real row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from fedsynth.data.atomic import replacing
from fedsynth.data.encode import ImageEncoding, TableEncoding
from fedsynth.data.schema import Schema
from fedsynth.data.text import TextEncoding
from fedsynth.errors import BadInput, nearest
from fedsynth.models.model import Model, layouts
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng

_TRIES = 200  # batches drawn for a condition before giving up
Images = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Generator:
    """What may be given to anyone: the generating part's parameters, the class balance and the schema."""

    schema: Schema
    recipe: str
    values: Mapping[str, Any]
    parts: Mapping[str, Tensor]  # flat vectors
    balance: Tensor | None = None

    @property
    def model(self) -> Model:
        """The model that the recipe composes for this schema; privacy settings do not matter here."""
        task = Task(self.schema, clients=2, private=False)
        recipe = recipe_named(self.recipe)
        few = recipe.named("cohort", "clients")  # settings that only so many clients can meet
        usual = {name: recipe.arguments()[name].default for name in few}
        return recipe.build(task, {**self.values, **usual}).model

    def sample(
        self, rows: int, rng: Rng, condition: Mapping[str, str] | None = None
    ) -> pd.DataFrame | Images:
        """`rows` synthetic rows, or images with their labels; `condition` fixes columns to values."""
        if rows < 1:
            raise BadInput(f"rows={rows}: expected at least 1")
        condition = {name: str(value) for name, value in (condition or {}).items()}
        label = condition.pop(self.schema.label, None) if self.schema.label else None
        if self.schema.kind == "image":
            if condition:
                raise BadInput(
                    f"condition on {next(iter(condition))!r}: images can be conditioned on their label only"
                )
            return self._images(self._labels(rows, label, rng), rng)
        if self.schema.kind == "text":
            if condition:
                raise BadInput(f"condition on {next(iter(condition))!r}: texts cannot be conditioned")
            written = self._draw(torch.zeros(rows, dtype=torch.int64), rng)
            return pd.DataFrame({"text": TextEncoding(self.schema).decode(written)})
        self._check(condition)
        if not condition:
            return self._frame(self._labels(rows, label, rng), rng)
        return self._matching(rows, label, condition, rng)

    def _labels(self, rows: int, label: str | None, rng: Rng) -> Tensor:
        """Class numbers: the asked one, or drawn from the public or paid-for balance."""
        classes = self.schema.classes
        if not classes:
            return torch.zeros(rows, dtype=torch.int64)
        if label is not None:
            if label not in classes:
                raise BadInput(f"{self.schema.label}={label!r}: no such category; {nearest(label, classes)}")
            return torch.full((rows,), classes.index(label))
        declared = self.schema.label_probabilities
        balance = torch.tensor(declared) if declared is not None else self.balance
        chances = torch.ones(len(classes)) if balance is None else balance.to(torch.float32)
        return torch.multinomial(
            chances, rows, replacement=True, generator=rng.at("labels").torch_generator()
        )

    def _draw(self, labels: Tensor, rng: Rng) -> Tensor:
        model = self.model
        shapes = layouts(model)
        params = {name: shapes[name].split(flat) for name, flat in self.parts.items()}
        pieces = labels.split(20_000)
        return torch.cat([model.sample(params, piece, rng.at("piece", i)) for i, piece in enumerate(pieces)])

    def _frame(self, labels: Tensor, rng: Rng) -> pd.DataFrame:
        return TableEncoding(self.schema).decode(self._draw(labels, rng), labels)

    def _images(self, labels: Tensor, rng: Rng) -> Images:
        drawn = (self._draw(labels, rng) * 255).round().clamp(0, 255).to(torch.uint8)
        return ImageEncoding(self.schema).decode(drawn, labels)

    def _check(self, condition: Mapping[str, str]) -> None:
        for name, value in condition.items():
            if name not in self.schema.names:
                raise BadInput(f"condition on {name!r}: no such column; {nearest(name, self.schema.names)}")
            column = self.schema.column(name)
            if not column.numeric and value not in column.labels:
                raise BadInput(f"{name}={value!r}: no such category; {nearest(value, column.labels)}")
            if column.numeric and not _within(value, column.bounds):
                low, high = column.bounds
                raise BadInput(f"{name}={value!r}: expected a number between {low:g} and {high:g}")

    def _matching(self, rows: int, label: str | None, condition: Mapping[str, str], rng: Rng) -> pd.DataFrame:
        """Rows that meet conditions on other columns than the label, by drawing until enough do."""
        kept: list[pd.DataFrame] = []
        found = 0
        for attempt in range(_TRIES):
            stream = rng.at("attempt", attempt)
            frame = self._frame(self._labels(max(rows, 1000), label, stream), stream)
            matches = np.logical_and.reduce(
                [self._equal(frame[name], value) for name, value in condition.items()]
            )
            kept.append(frame[matches])
            found += int(matches.sum())
            if found >= rows:
                return pd.concat(kept, ignore_index=True).iloc[:rows]
        wanted = ", ".join(f"{name}={value}" for name, value in condition.items())
        advice = f"ask for at most {found} rows or drop a condition" if found else "drop a condition"
        raise BadInput(
            f"condition {wanted}: {found} of {_TRIES * max(rows, 1000)} synthetic rows meet it; {advice}"
        )

    def _equal(self, values: pd.Series, wanted: str) -> np.ndarray:
        """Which values equal the wanted one; 30 and 30.0 are the same number."""
        if self.schema.column(str(values.name)).numeric:
            return values.astype("Float64").eq(float(wanted)).fillna(False).to_numpy(dtype=bool)
        return values.astype("string").eq(wanted).fillna(False).to_numpy(dtype=bool)

    def save(self, path: Path) -> None:
        """Write the released parameters, and nothing else, as safetensors."""
        shapes = layouts(self.model)
        tensors = {
            f"{part}.{name}": value.contiguous()
            for part, flat in self.parts.items()
            for name, value in shapes[part].split(flat).items()
        }
        if self.balance is not None:
            tensors["balance"] = self.balance
        with replacing(path) as temporary:
            temporary.write_bytes(save(tensors))

    @classmethod
    def load(cls, path: Path, schema: Schema, recipe: str, values: Mapping[str, Any]) -> Generator:
        """Read what `save` wrote; shapes are checked against the recipe's model."""
        tensors = _read(path)
        empty = cls(schema, recipe, values, {}, tensors.pop("balance", None))
        parts = {}
        for part, layout in layouts(empty.model).items():
            found = {n: tensors[f"{part}.{n}"] for n in layout.names if f"{part}.{n}" in tensors}
            if not found:
                continue
            wrong = [
                n
                for n, s in zip(layout.names, layout.shapes, strict=True)
                if found.get(n) is None or (tuple(found[n].shape) != s and not layout.open_ended)
            ]
            if wrong:
                raise BadInput(
                    f"{path}: {part} does not fit the recipe ({wrong[0]} is missing or has another shape)"
                )
            parts[part] = layout.join(found)
        return cls(schema, recipe, values, parts, empty.balance)


def _within(text: str, bounds: tuple[float, float]) -> bool:
    try:
        return bounds[0] <= float(text) <= bounds[1]
    except ValueError:
        return False


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
