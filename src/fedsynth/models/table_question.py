"""Which tables are asked for: how values are merged, which columns go together, and with which weight.

A question is public: it is made from the schema and from noisy answers. It travels as one vector of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

    The number of a column plus the number of all columns means the same column with its values as they are, plus twice
    that number the numbers on its grid one by one.
    """

    maps: tuple[np.ndarray, ...]  # of each column: the merged value of each value
    tables: tuple[Columns, ...]
    weights: tuple[float, ...]
    row_weight: float = (
        0.0  # what each row of a client adds, until the clip is reached; 0: the mean over its rows
    )
    grids: tuple[int, ...] = ()  # numbers on the grid of each column; 0: none is looked at
    spikes: tuple[tuple[int, ...], ...] = ()  # of the columns that are no label: the numbers by themselves

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many merged values each column has, then how many it has as they are, then on its grid."""
        return (*(int(merged.max()) + 1 for merged in self.maps), *map(len, self.maps), *self.grids)

    @property
    def of_grids(self) -> bool:
        """True if numbers are asked for one by one."""
        return any(column >= 2 * len(self.maps) for table in self.tables for column in table)

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
        """The share of each table in an answer of length 1."""
        weights = np.asarray(self.weights)
        return weights / np.sqrt(np.square(weights).sum())

    def places(self, codes: Tensor, on_grids: Mapping[int, Tensor] | None = None) -> Tensor:
        """Where in an answer each row counts, [..., tables], from its values [..., columns] and places on grids."""
        plain = codes.unbind(-1)
        merged = [
            torch.as_tensor(to, device=codes.device)[of] for to, of in zip(self.maps, plain, strict=True)
        ]
        values = dict(enumerate([*merged, *plain]))
        values |= {column + len(values): place for column, place in (on_grids or {}).items()}
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
class ClientCells:
    """The last cells of an answer: how many rows a client has, and how long the sum over them would be.

    From these a server chooses what a row may add; they cost a small share of a client's norm.
    """

    most_rows: int = 32  # clients with more are counted as having so many
    share: float = 0.2  # of the norm
    growth: float = 1.15  # from one length to the next

    @property
    def lengths(self) -> np.ndarray:
        """The upper ends of the lengths that are told apart."""
        return np.asarray(self.growth ** np.arange(self._count))

    @property
    def _count(self) -> int:
        return 1 + math.ceil(math.log(self.most_rows) / math.log(self.growth))

    @property
    def size(self) -> int:
        """How many cells these are."""
        return self.most_rows + self._count

    @property
    def rest(self) -> float:
        """The share of the norm that is left for tables."""
        return math.sqrt(1 - self.share**2)

    def places(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """The two cells of clients with so many rows whose sum is so long, [clients, 2]."""
        ends = torch.from_numpy(self.lengths).to(lengths.device)
        length = torch.bucketize(lengths.double() * (1 - 2.0**-20), ends).clamp(max=len(ends) - 1)
        return torch.stack([rows.clamp(1, self.most_rows) - 1, self.most_rows + length], dim=1)

    def split(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The noisy shares of clients by rows, and by length."""
        shares = values / (self.share / math.sqrt(2))
        return shares[: self.most_rows], shares[self.most_rows :]


@dataclass(frozen=True)
class QuestionForm:
    """How a question is written into a vector that is long enough for any over these columns."""

    sizes: tuple[int, ...]
    most_tables: int
    most_cells: int
    about: ClientCells | None = None  # the last of the cells, if clients say something of themselves
    grids: tuple[int, ...] = ()  # numbers on the grids of columns with spikes
    spikes: tuple[int, ...] = ()  # how many spikes each column has that is no label

    @property
    def table_cells(self) -> int:
        """The cells that tables may have together."""
        return self.most_cells - (self.about.size if self.about else 0)

    @property
    def length(self) -> int:
        """How many numbers the vector has."""
        return 2 + sum(self.sizes) + self.most_tables * (WIDEST + 1) + sum(self.spikes)

    def write(self, question: Question) -> Tensor:
        """The question as a vector, float32."""
        rows = np.full((self.most_tables, WIDEST + 1), -1.0)
        for row, table, weight in zip(rows, question.tables, question.weights, strict=False):
            row[: len(table)] = table
            row[WIDEST] = weight
        spikes = question.spikes or [(-1,) * count for count in self.spikes]
        flat = np.concatenate(
            [[len(question.tables)], *question.maps, *spikes, rows.ravel(), [question.row_weight]]
        )
        return torch.from_numpy(flat.astype(np.float32))

    def read(self, vector: Tensor) -> Question:
        """The question in a vector; what does not fit is refused, because a server may say anything."""
        flat = vector.cpu().numpy().astype(np.float64)
        if flat.shape != (self.length,) or not np.isfinite(flat).all():
            raise BadInput(
                f"a question of shape {flat.shape}: expected {self.length} finite numbers; a run that another version "
                "of fedsynth began has to be begun anew"
            )
        count = int(flat[0])
        if not 0 < count <= self.most_tables:
            raise BadInput(f"a question of {count} tables: expected between 1 and {self.most_tables}")
        ends = list(accumulate((1, *self.sizes, *self.spikes)))
        values = np.clip(flat, -1, 2**31).astype(np.int64)  # a value far outside stays outside
        pieces = [values[start:stop] for start, stop in zip(ends, ends[1:], strict=False)]
        maps = tuple(pieces[: len(self.sizes)])
        spikes = tuple(tuple(piece.tolist()) for piece in pieces[len(self.sizes) :])
        rows = flat[ends[-1] : -1].reshape(-1, WIDEST + 1)[:count]
        tables = tuple(tuple(int(column) for column in row[:WIDEST] if column >= 0) for row in rows)
        weights = tuple(float(weight) for weight in rows[:, WIDEST])
        question = Question(maps, tables, weights, float(flat[-1]), self.grids, spikes)
        self.check(question)
        return question

    def check(self, question: Question) -> None:
        """Refuse a question that could not be answered as it stands."""
        count = len(self.sizes)
        whole = all((merged >= 0).all() and (merged < len(merged)).all() for merged in question.maps)
        known = all(
            table
            and len({column % count for column in table}) == len(table)
            and max(table) < len(question.sizes)
            and all(question.sizes[column] for column in table)
            for table in question.tables
        )
        spikes = zip(question.spikes, self.grids, strict=False)
        known = known and all(-1 <= spike < grid - 1 for own, grid in spikes for spike in own)
        weighed = all(weight > 0 for weight in question.weights) and question.row_weight >= 0
        if not whole or not known or not weighed:
            raise BadInput("a question names columns, values or weights that this table does not have")
        if question.cells > self.table_cells:
            raise BadInput(f"a question of {question.cells} cells: at most {self.table_cells} fit an answer")


def unmerged(sizes: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Maps that merge nothing."""
    return tuple(np.arange(size) for size in sizes)
