"""LoPub (Ren et al. 2018) and LoCop (Wang et al. 2019): rows from the RAPPOR bits of all columns.

LoPub draws an edge between columns whose mutual information is large and samples along the graph; LoCop keeps the
distribution of each column and joins them by a Gaussian copula with the correlations of every two. Both read the
distributions by a Lasso. What differs from the papers: bits of two columns are multiplied before the regression (sums
of the bits of each tell nothing of the joint distribution), and LoPub's graph is cut to a spanning forest, so that
tables have two columns: with so little budget a bit, tables of more are noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import norm

from fedsynth.data.clients import Clients
from fedsynth.data.encode import TableEncoding
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.privacy.pairs import Adjacency
from fedsynth.research.baselines.bayes_network import Network, Pair
from fedsynth.research.baselines.calm import TableNetwork, checked, first_rows, pay
from fedsynth.research.baselines.codes import Codes
from fedsynth.research.baselines.rappor import Rappor, all_pairs, information, pearson
from fedsynth.rng import Rng


@dataclass(frozen=True)
class _Read:
    """The statistics that the server reads from the bits."""

    codes: Codes
    rappor: Rappor
    single: np.ndarray
    together: np.ndarray

    def shares(self) -> list[np.ndarray]:
        """The distribution of each column."""
        return [self.rappor.shares(self.single, column) for column in range(len(self.codes.sizes))]

    def joint(self, first: int, second: int) -> np.ndarray:
        """The distribution of two columns."""
        return self.rappor.joint(self.together, first, second)


def _read(
    name: str,
    hashes: int,
    bins: int,
    clients: Clients,
    schema: Schema,
    epsilon: float | None,
    rng: Rng,
    ledger: Ledger,
) -> _Read:
    """Collect noisy bits from every client, paid for first."""
    if hashes < 1:
        raise BadInput(f"hashes={hashes}: a Bloom filter needs at least one hash function")
    budget = checked(schema, epsilon, name)
    codes = Codes(schema, bins)
    rappor = Rappor(codes.sizes, budget, hashes)
    rows = first_rows(clients, codes)
    pay(ledger, name, len(clients), budget)
    return _Read(codes, rappor, *rappor.moments(rows, rng.at("bits")))


@dataclass(frozen=True)
class LoPub:
    """The settings: hash functions, and phi, the correlation from which on columns are joined."""

    hashes: int = 4
    phi: float = 0.4
    bins: int = 8
    unit: Unit = "client"
    adjacency: Adjacency = "replace-one"

    def fit(
        self, clients: Clients, schema: Schema, epsilon: float | None, rng: Rng, ledger: Ledger
    ) -> TableNetwork:
        """Learn from the clients at `epsilon` for each of them (None: the truth)."""
        read = _read("lopub", self.hashes, self.bins, clients, schema, epsilon, rng, ledger)
        sizes = read.codes.sizes
        tables = {pair: read.joint(*pair) for pair in all_pairs(len(sizes))}
        gains = sorted(((information(table), pair) for pair, table in tables.items()), reverse=True)
        group = list(range(len(sizes)))
        near: list[list[int]] = [[] for _ in sizes]
        for gain, (a, b) in gains:
            least = min(sizes[a] - 1, sizes[b] - 1) * self.phi**2 / 2  # Ren et al., section V-B
            if gain >= least and group[a] != group[b]:
                group = [group[b] if g == group[a] else g for g in group]
                near[a].append(b)
                near[b].append(a)
        structure, counts = _walk(near, read.shares(), tables)
        return TableNetwork(read.codes, Network(sizes, structure, counts))


def _walk(
    near: list[list[int]], shares: list[np.ndarray], tables: dict[tuple[int, int], np.ndarray]
) -> tuple[tuple[Pair, ...], tuple[np.ndarray, ...]]:
    """Each tree from its first column outwards, with the tables to sample by."""
    structure: list[Pair] = []
    counts: list[np.ndarray] = []
    visited: set[int] = set()
    for root in range(len(shares)):
        if root in visited:
            continue
        structure.append(Pair(root, ()))
        counts.append(shares[root])
        visited.add(root)
        queue = [root]
        while queue:
            column = queue.pop()
            for other in (other for other in near[column] if other not in visited):
                a, b = min(column, other), max(column, other)
                structure.append(Pair(other, (column,)))
                counts.append(tables[a, b] if column == a else tables[a, b].T)
                visited.add(other)
                queue.append(other)
    return tuple(structure), tuple(counts)


@dataclass(frozen=True)
class Copula:
    """A distribution for each column, and Gaussian correlations between them."""

    codes: Codes
    shares: list[np.ndarray]
    root: np.ndarray  # [columns, columns], whose square is the correlation matrix

    def sample(self, rows: int, rng: Rng) -> pd.DataFrame:
        """Synthetic rows: correlated normal numbers, cut where each column's distribution says."""
        drawn = rng.at("copula").numpy().standard_normal((rows, len(self.shares))) @ self.root.T
        uniform = norm.cdf(drawn)
        cuts = [np.cumsum(share)[:-1] for share in self.shares]
        codes = np.stack([np.searchsorted(cut, uniform[:, c]) for c, cut in enumerate(cuts)], 1)
        x, y = self.codes.decode(codes.astype(np.int64), rng.at("decode"))
        return TableEncoding(self.codes.schema).decode(x, y)


@dataclass(frozen=True)
class LoCop:
    """The settings: hash functions."""

    hashes: int = 4
    bins: int = 8
    unit: Unit = "client"
    adjacency: Adjacency = "replace-one"

    def fit(
        self, clients: Clients, schema: Schema, epsilon: float | None, rng: Rng, ledger: Ledger
    ) -> Copula:
        """Learn from the clients at `epsilon` for each of them (None: the truth)."""
        read = _read("locop", self.hashes, self.bins, clients, schema, epsilon, rng, ledger)
        columns = len(read.codes.sizes)
        matrix = np.eye(columns)
        for a, b in all_pairs(columns):
            matrix[a, b] = matrix[b, a] = pearson(read.joint(a, b))
        values, vectors = np.linalg.eigh(matrix)
        root = vectors * np.sqrt(np.maximum(values, 1e-6))
        root /= np.linalg.norm(root, axis=1, keepdims=True)  # unit variances again
        return Copula(read.codes, read.shares(), root)
