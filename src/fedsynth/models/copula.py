"""A table's generator made of single columns and their correlations: a Gaussian copula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.late import stats
from fedsynth.models.marginals import Counted
from fedsynth.models.model import Params
from fedsynth.models.table_domain import TableDomain
from fedsynth.rng import Rng

_LEAST = 1e-6  # of the variance along any direction


@dataclass(frozen=True)
class Copula:
    """The distribution of each column, and a root [columns, columns] of the correlation matrix."""

    shares: Sequence[np.ndarray]
    root: np.ndarray

    @classmethod
    def of(cls, shares: Sequence[np.ndarray], correlations: np.ndarray) -> Copula:
        """The copula with the correlations nearest to these that a distribution can have."""
        values, vectors = np.linalg.eigh(correlations)
        root = vectors * np.sqrt(np.maximum(values, _LEAST))
        return cls(shares, root / np.linalg.norm(root, axis=1, keepdims=True))

    def pack(self) -> Tensor:
        """One vector: the shares, then the root."""
        return torch.from_numpy(np.concatenate([*self.shares, self.root.ravel()]).astype(np.float32))

    @classmethod
    def unpack(cls, vector: Tensor, sizes: Sequence[int]) -> Copula:
        """The copula that `pack` wrote, of columns of these sizes."""
        flat, many = vector.double().numpy(), sum(sizes)
        shares = np.split(flat[:many], np.cumsum(sizes)[:-1])
        return cls(shares, flat[many:].reshape(len(sizes), -1))

    def marginal(self, column: int) -> np.ndarray:
        """The share of each value of a column."""
        return self.shares[column]

    def draw(self, rows: int, rng: np.random.Generator, known: Mapping[int, np.ndarray]) -> np.ndarray:
        """Values [rows, columns]: normal numbers cut where a column's shares say; `known` has one column, or none."""
        ends = [np.cumsum(share) / share.sum() for share in self.shares]
        drawn = rng.standard_normal((rows, len(self.root))) @ self.root.T
        for column, values in known.items():  # move all columns by as much as this one is off
            edges = np.concatenate([[0.0], ends[column]])
            inside = edges[values] + rng.random(rows) * (edges[values + 1] - edges[values])
            wanted = stats.norm.ppf(inside.clip(1e-9, 1 - 1e-9))
            drawn += (wanted - drawn[:, column])[:, None] * (self.root @ self.root[column])
        uniform = stats.norm.cdf(drawn)
        codes = [np.searchsorted(cut[:-1], uniform[:, place]) for place, cut in enumerate(ends)]
        for column, values in known.items():
            codes[column] = values
        return np.stack(codes, axis=1).astype(np.int64)


@dataclass(frozen=True)
class CopulaModel(Counted):
    """One table's columns, joined by a copula."""

    domain: TableDomain

    @property
    def question(self) -> int:  # type: ignore[override]
        """Nothing is asked that the schema does not say."""
        return 1

    @property
    def answer(self) -> int:  # type: ignore[override]
        """A client answers for each column."""
        return len(self.domain.sizes)

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """One encoded row for each label."""
        fitted, label = Copula.unpack(params["fitted"]["values"], self.domain.sizes), self.domain.label
        values = {} if label is None else {label: labels.numpy()}
        drawn = fitted.draw(len(labels), rng.at("rows").numpy(), values)
        return self.domain.rows(torch.from_numpy(drawn), rng)
