"""From released parameters and the public schema to synthetic data. Nothing here has seen a real row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from fedsynth.data.atomic import write_file
from fedsynth.data.conditions import Condition, read_conditions
from fedsynth.data.encode import ImageEncoding, TableEncoding
from fedsynth.data.schema import Schema
from fedsynth.data.text import TextEncoding
from fedsynth.errors import BadInput
from fedsynth.models.model import Model, layouts
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.synthesis.rule_keeping import keep_rules

_AT_ONCE = 2**24  # numbers of encoded rows that are decoded together
_PIECE = 20_000  # rows that are drawn together
_TRIES = 200  # batches drawn for a condition before giving up
Images = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Generator:
    """A generator that may be given to anyone: its parameters, the class balance and the schema."""

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
        self, rows: int, rng: Rng, condition: Mapping[str, Any] | Iterable[str] | None = None
    ) -> pd.DataFrame | Images:
        """`rows` synthetic rows, or images with their labels.

        `condition` fixes columns to values, or is a list of texts such as "age>=30".
        """
        if rows < 1:
            raise BadInput(f"rows={rows}: expected at least 1")
        if condition and self.schema.kind == "text":
            raise BadInput(f"condition on {next(iter(condition))!r}: texts cannot be conditioned")
        conditions = read_conditions(condition or (), self.schema)
        of_label = [each for each in conditions if each.column.name == self.schema.label]
        others = [each for each in conditions if each not in of_label]
        if self.schema.kind == "image":
            return self._images(self._labels(rows, of_label, rng), rng)
        if self.schema.kind == "text":
            written = self._draw(torch.zeros(rows, dtype=torch.int64), rng)
            return pd.DataFrame({"text": TextEncoding(self.schema).decode(written)})
        encoding = TableEncoding(self.schema)
        if others or (of_label and self.schema.rules):  # a repair may change the label
            return encoding.decode(*self._matching(encoding, rows, of_label, others, rng))
        return self._frame(encoding, self._labels(rows, of_label, rng), rng)

    def _labels(self, rows: int, conditions: list[Condition], rng: Rng) -> Tensor:
        """Class numbers: the asked one, or drawn from the public or paid-for balance of those that are allowed."""
        label = self.schema.label_column
        if label is None:
            return torch.zeros(rows, dtype=torch.int64)
        places = np.arange(len(label.labels)) + label.lowest
        allowed = np.logical_and.reduce(
            [np.ones(len(places), bool), *(each.holds(places) for each in conditions)]
        )
        if allowed.sum() == 1:
            return torch.full((rows,), int(allowed.argmax()))
        declared = self.schema.label_probabilities
        balance = torch.tensor(declared) if declared is not None else self.balance
        chances = torch.ones(len(places)) if balance is None else balance.to(torch.float32)
        chances = chances * torch.from_numpy(allowed)
        if not chances.sum() > 0:
            wanted = ", ".join(each.text for each in conditions)
            raise BadInput(f"condition {wanted}: no class meets it; drop a condition")
        return torch.multinomial(
            chances, rows, replacement=True, generator=rng.at("labels").torch_generator()
        )

    def _draw(self, labels: Tensor, rng: Rng) -> Tensor:
        return torch.cat(list(self._pieces(labels, rng)))

    def _pieces(self, labels: Tensor, rng: Rng) -> Iterator[Tensor]:
        model = self.model
        shapes = layouts(model)
        params = {name: shapes[name].split(flat) for name, flat in self.parts.items()}
        for number, piece in enumerate(labels.split(_PIECE)):
            yield model.sample(params, piece, rng.at("piece", number))

    def _frame(self, encoding: TableEncoding, labels: Tensor, rng: Rng) -> pd.DataFrame:
        if self.schema.rules:
            return encoding.decode(*self._rows(encoding, labels, rng))
        room = max(
            1, _AT_ONCE // encoding.width
        )  # rows: wide ones take much more room while they are decoded
        frames = [
            encoding.decode(rows, classes)
            for drawn, labels_of in zip(self._pieces(labels, rng), labels.split(_PIECE), strict=True)
            for rows, classes in zip(drawn.split(room), labels_of.split(room), strict=True)
        ]
        return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)

    def _rows(self, encoding: TableEncoding, labels: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Encoded rows with these labels that keep the schema's constraints."""
        drawn = self._draw(labels, rng)
        if not self.schema.rules:
            return drawn, labels
        return keep_rules(encoding, drawn, labels, self._draw, rng)

    def _images(self, labels: Tensor, rng: Rng) -> Images:
        drawn = (self._draw(labels, rng) * 255).round().clamp(0, 255).to(torch.uint8)
        return ImageEncoding(self.schema).decode(drawn, labels)

    def _matching(
        self,
        encoding: TableEncoding,
        rows: int,
        of_label: list[Condition],
        others: list[Condition],
        rng: Rng,
    ) -> tuple[Tensor, Tensor]:
        """Rows that meet conditions, those on the label by its draw, others by drawing until enough do."""
        kept: list[tuple[Tensor, Tensor]] = []
        count = 0
        for attempt in range(_TRIES):
            stream = rng.at("attempt", attempt)
            x, y = self._rows(encoding, self._labels(max(rows, 1000), of_label, stream), stream)
            numbers = encoding.numbers(x, y)
            meets = np.logical_and.reduce(
                [each.holds(numbers[each.column.name]) for each in (*of_label, *others)]
            )
            kept.append((x[meets], y[meets]))
            count += int(meets.sum())
            if count >= rows:
                return torch.cat([x for x, _ in kept])[:rows], torch.cat([y for _, y in kept])[:rows]
        wanted = ", ".join(each.text for each in [*of_label, *others])
        advice = f"ask for at most {count} rows or drop a condition" if count else "drop a condition"
        raise BadInput(
            f"condition {wanted}: {count} of {_TRIES * max(rows, 1000)} synthetic rows meet it; {advice}"
        )

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
        write_file(path, save(tensors))

    @classmethod
    def load(cls, path: Path, schema: Schema, recipe: str, values: Mapping[str, Any]) -> Generator:
        """Read what `save` wrote; shapes are checked against the recipe's model."""
        tensors = _read(path)
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
        return cls(schema, recipe, values, parts, empty.balance)


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
