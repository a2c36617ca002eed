"""Which tables are asked for: how values are merged, which columns go together, and with which weight.

A question is public: it is made from the schema and from noisy answers. It travels as one vector of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput

WIDEST = 3  # columns of a table
Columns = tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """Tables over columns whose values are merged by `maps`; whatever is asked, no answer is longer than the clip.

    The number of a column plus the number of all columns means the same column with its values as they are.
    """

    maps: tuple[np.ndarray, ...]  # of each column: the merged value of each value
    tables: tuple[Columns, ...]
    weights: tuple[float, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many merged values each column has, then how many it has as they are."""
        return (*(int(merged.max()) + 1 for merged in self.maps), *map(len, self.maps))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each table."""
        return tuple(tuple(self.sizes[column] for column in table) for table in self.tables)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each table begins in an answer, and where the last one ends."""
        return (0, *accumulate(math.prod(shape) for shape in self.shapes))

    @property
    def cells(self) -> int:
        """How many numbers an answer has."""
        return self.starts[-1]

    @cached_property
    def scale(self) -> np.ndarray:
        """What each table contributes to an answer of length 1."""
        weights = np.asarray(self.weights)
        return weights / np.sqrt(np.square(weights).sum())

    def places(self, codes: Tensor) -> Tensor:
        """Where in an answer each row counts, [..., tables], from its values [..., columns]."""
        plain = codes.unbind(-1)
        merged = [
            torch.as_tensor(to, device=codes.device)[of] for to, of in zip(self.maps, plain, strict=True)
        ]
        values = [*merged, *plain]
        places = []
        for start, table in zip(self.starts[:-1], self.tables, strict=True):
            place = torch.zeros_like(values[0])
            for column in table:
                place = place * self.sizes[column] + values[column]
            places.append(place + start)
        return torch.stack(places, dim=-1)

    def split(self, answer: np.ndarray) -> list[np.ndarray]:
        """The tables in an answer."""
        pieces = zip(self.starts, self.starts[1:], self.shapes, strict=False)
        return [answer[start:stop].reshape(shape) for start, stop, shape in pieces]


@dataclass(frozen=True)
class QuestionForm:
    """How a question is written into a vector that is long enough for any over these columns."""

    sizes: tuple[int, ...]
    most_tables: int
    most_cells: int

    @property
    def length(self) -> int:
        """How many numbers the vector has."""
        return 1 + sum(self.sizes) + self.most_tables * (WIDEST + 1)

    def write(self, question: Question) -> Tensor:
        """The question as a vector, float32."""
        rows = np.full((self.most_tables, WIDEST + 1), -1.0)
        for row, table, weight in zip(rows, question.tables, question.weights, strict=False):
            row[: len(table)] = table
            row[WIDEST] = weight
        flat = np.concatenate([[len(question.tables)], *question.maps, rows.ravel()])
        return torch.from_numpy(flat.astype(np.float32))

    def read(self, vector: Tensor) -> Question:
        """The question in a vector; what does not fit is refused, because a server may say anything."""
        flat = vector.cpu().numpy().astype(np.float64)
        if flat.shape != (self.length,) or not np.isfinite(flat).all():
            raise BadInput(f"a question of shape {flat.shape}: expected {self.length} finite numbers")
        count = int(flat[0])
        if not 0 < count <= self.most_tables:
            raise BadInput(f"a question of {count} tables: expected between 1 and {self.most_tables}")
        ends = list(accumulate((1, *self.sizes)))
        values = np.clip(flat, -1, 2**31).astype(np.int64)  # a value far outside stays outside
        maps = tuple(values[start:stop] for start, stop in zip(ends, ends[1:], strict=False))
        rows = flat[ends[-1] :].reshape(-1, WIDEST + 1)[:count]
        tables = tuple(tuple(int(column) for column in row[:WIDEST] if column >= 0) for row in rows)
        question = Question(maps, tables, tuple(float(weight) for weight in rows[:, WIDEST]))
        self.check(question)
        return question

    def check(self, question: Question) -> None:
        """Refuse a question that could not be answered as it stands."""
        count = len(self.sizes)
        whole = all((merged >= 0).all() and (merged < len(merged)).all() for merged in question.maps)
        known = all(
            table and len({column % count for column in table}) == len(table) and max(table) < 2 * count
            for table in question.tables
        )
        if not whole or not known or not all(weight > 0 for weight in question.weights):
            raise BadInput("a question names columns, values or weights that this table does not have")
        if question.cells > self.most_cells:
            raise BadInput(f"a question of {question.cells} cells: at most {self.most_cells} fit an answer")


def unmerged(sizes: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Maps that merge nothing."""
    return tuple(np.arange(size) for size in sizes)
