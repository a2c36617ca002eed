"""Federated PrivBayes: a Bayesian network whose structure and tables each client noises for itself.

PrivBayes (Zhang et al. 2017) chooses a network of degree k by the exponential mechanism on mutual information and adds
Laplace noise to its tables of counts. The federated versions that the thesis on federated VAEs compares with (section
4.5.4) differ in what clients send:

- `statistics`: noisy counts of all combinations of k + 1 columns; the server learns everything from their sums.
- `voting`: each client chooses a structure, the server takes the majority's, clients send noisy tables for it.
- `model`: each client sends a whole noisy network; rows are drawn from all of them.

With `with_label`, the label is a parent of every column beside the k others, which PrivBayes does not ask for but
signals need: a chain of points forgets its class.

Each record is protected at its own client (trust: nobody), with pure epsilon and neighbors that replace one record:
how many rows a client has is public. Counts are whole numbers and so is their noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

import numpy as np
import pandas as pd
from dp_accounting import NonPrivateDpEvent

from fedsynth.data.clients import Clients
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.privacy.events import EpsilonDeltaDpEvent
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.privacy.pairs import Adjacency
from fedsynth.research.baselines.bayes_network import (
    AttributeParents,
    BayesNetwork,
    Choose,
    PairScores,
    Scores,
    SetScores,
    Structure,
    counts,
    greedy,
    information,
    pairwise_information,
    side_by_side,
)
from fedsynth.research.baselines.codes import Codes
from fedsynth.rng import Rng

WAYS = ("statistics", "voting", "model")
_MOVED = 2  # cells of a table that change when a record is replaced: one count down, another up
_MOST_TABLES = 50_000  # of combinations that are counted one by one


@dataclass(frozen=True)
class FittedNetworks:
    """Networks learned from clients, each with its share of the rows to come."""

    codes: Codes
    networks: tuple[BayesNetwork, ...]
    shares: tuple[float, ...]

    def sample(self, rows: int, rng: Rng) -> pd.DataFrame | tuple[np.ndarray, np.ndarray | None]:
        """Synthetic rows, or images with their labels."""
        drawn = rng.at("network").numpy().multinomial(rows, self.shares)
        pieces = [
            network.sample(int(count), rng.at("rows", number))
            for number, (network, count) in enumerate(zip(self.networks, drawn, strict=True))
        ]
        shuffled = np.concatenate(pieces)[rng.at("order").numpy().permutation(rows)]
        x, y = self.codes.decode(shuffled, rng.at("decode"))
        return modality_of(self.codes.schema).decode(x, y)


@dataclass(frozen=True)
class PrivBayes:
    """The settings. `structure_share` of epsilon is for choosing the structure, where that costs anything."""

    degree: int = 1
    way: str = "voting"
    with_label: bool = False
    structure_share: float = 0.3
    bins: int = 8
    typical: float = 0.0
    unit: ClassVar[Unit] = "record"
    adjacency: ClassVar[Adjacency] = "replace-one"

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise BadInput(f"way={self.way!r}: unknown; {nearest(self.way, WAYS)}")
        if not 0 < self.structure_share < 1:
            raise BadInput(f"structure_share={self.structure_share}: expected a share between 0 and 1")
        if self.with_label and self.degree != 1:
            raise BadInput(
                f"with_label, degree={self.degree}: the label is added to one parent; set degree=1"
            )
        if self.with_label and self.way == "statistics":
            raise BadInput("with_label, way=statistics: tables of two columns do not hold the label as well")

    def fit(
        self, clients: Clients, schema: Schema, epsilon: float | None, rng: Rng, ledger: Ledger
    ) -> FittedNetworks:
        """Learn from the clients at `epsilon` for each record (None: without noise, and so the ledger says)."""
        if epsilon is not None and not 0 < epsilon < math.inf:
            raise BadInput(f"epsilon={epsilon}: expected a positive number, or None for no privacy")
        codes = Codes(schema, self.bins, self.typical)
        columns = len(codes.sizes)
        if not 1 <= self.degree < columns:
            raise BadInput(
                f"degree={self.degree}: a network over {columns} columns has degree 1 to {columns - 1}: a column "
                "cannot have more parents than there are others"
            )
        encoded = codes.encode(clients.x, clients.y)
        spans = zip(clients.offsets[:-1], clients.offsets[1:], strict=True)
        parties = [
            _Party(encoded[start:stop], codes.sizes, self, epsilon, rng.at("client", number))
            for number, (start, stop) in enumerate(spans)
        ]
        self._pay(len(parties), epsilon, ledger)
        learn = {"statistics": self._by_statistics, "voting": self._by_voting, "model": self._by_model}
        networks = learn[self.way](parties, codes.sizes)
        sizes = np.maximum(clients.sizes, 0) if len(networks) > 1 else np.ones(1)
        return FittedNetworks(codes, networks, tuple(sizes / sizes.sum()))

    def _pay(self, clients: int, epsilon: float | None, ledger: Ledger) -> None:
        """One line for each client, before anything leaves it."""
        event = NonPrivateDpEvent() if epsilon is None else EpsilonDeltaDpEvent(epsilon)
        what = f"PrivBayes, {self.way}"
        ledger.append_all(
            [Entry(event, what, str(client), "record", "local", run="privbayes") for client in range(clients)]
        )

    def _by_statistics(self, parties: Sequence[_Party], sizes: tuple[int, ...]) -> tuple[BayesNetwork, ...]:
        root = len(sizes) - 1
        if self.degree == 1:
            together = sum((party.noisy_pairs() for party in parties), np.zeros((sum(sizes),) * 2))
            structure = greedy(root, len(sizes), PairScores(pairwise_information([together], sizes)), _best)
            tables = _tables_of(together, sizes, structure)
        else:
            sums = _sum_tables([party.noisy_combinations() for party in parties])
            scores = SetScores(self.degree, lambda pair: information(_marginal(sums, pair.columns)))
            structure = greedy(root, len(sizes), scores, _best)
            tables = tuple(_marginal(sums, pair.columns) for pair in structure)
        return (BayesNetwork(sizes, structure, tables),)

    def _by_voting(self, parties: Sequence[_Party], sizes: tuple[int, ...]) -> tuple[BayesNetwork, ...]:
        votes = Counter(
            frozenset(pair.columns) for party in parties for pair in party.structure(self.structure_share)
        )
        root = len(sizes) - 1
        scores: Scores = SetScores(self.degree, lambda pair: float(votes[frozenset(pair.columns)]))
        if self.degree == 1:
            matrix = np.zeros((len(sizes), len(sizes)))
            for columns, count in votes.items():
                ends = sorted(columns - {root} if self.with_label and len(columns) == 3 else columns)
                matrix[ends[0], ends[-1]] = matrix[ends[-1], ends[0]] = count
            scores = PairScores(matrix, root if self.with_label else None)
        structure = greedy(root, len(sizes), scores, _best)
        noisy = [party.noisy_tables(structure, 1 - self.structure_share) for party in parties]
        tables = tuple(np.sum(each, axis=0) for each in zip(*noisy, strict=True))
        return (BayesNetwork(sizes, structure, tables),)

    def _by_model(self, parties: Sequence[_Party], sizes: tuple[int, ...]) -> tuple[BayesNetwork, ...]:
        networks = []
        for party in parties:
            structure = party.structure(self.structure_share)
            tables = party.noisy_tables(structure, 1 - self.structure_share)
            networks.append(BayesNetwork(sizes, structure, tuple(tables)))
        return tuple(networks)


@dataclass(frozen=True)
class _Party:
    """One client: its coded rows, and what it is willing to send. Every method's result is noisy."""

    codes: np.ndarray = field(repr=False)
    sizes: tuple[int, ...]
    settings: PrivBayes
    epsilon: float | None
    rng: Rng

    def structure(self, share: float) -> Structure:
        """A structure chosen by the exponential mechanism, with this share of epsilon over all choices."""
        root = len(self.sizes) - 1
        return greedy(root, len(self.sizes), self._scores(root), self._choice(share, root))

    def _scores(self, root: int) -> Scores:
        if self.settings.degree > 1:
            return SetScores(
                self.settings.degree, lambda pair: information(counts(self.codes, self.sizes, pair.columns))
            )
        if not self.settings.with_label:
            return PairScores(pairwise_information([side_by_side(self.codes, self.sizes)], self.sizes))
        classes = [self.codes[self.codes[:, root] == label] for label in range(self.sizes[root])]
        tables = [side_by_side(rows, self.sizes) for rows in classes]
        return PairScores(pairwise_information(tables, self.sizes), root)

    def _choice(self, share: float, choices: int) -> Choose:
        if self.epsilon is None:
            return _best
        slope = share * self.epsilon / choices / (2 * information_sensitivity(len(self.codes)))
        taken = 0

        def choose(values: np.ndarray) -> int:
            nonlocal taken
            taken += 1
            uniform = self.rng.at("choice", taken).uniforms(len(values))
            return int(np.argmax(slope * values - np.log(-np.log(np.clip(uniform, 1e-300, 1 - 2**-53)))))

        return choose

    def noisy_tables(self, structure: Structure, share: float) -> list[np.ndarray]:
        """The table of each pair, with this share of epsilon over all of them."""
        scale = self._scale(share, len(structure))
        return [
            counts(self.codes, self.sizes, pair.columns) + self._noise(self._shape(pair), scale, pair.child)
            for pair in structure
        ]

    def noisy_pairs(self) -> np.ndarray:
        """Noisy counts of every two columns, side by side; all of epsilon is spent on them."""
        columns = len(self.sizes)
        exact = side_by_side(self.codes, self.sizes)
        scale = self._scale(1.0, columns * (columns - 1) // 2)
        owner = np.repeat(np.arange(columns), self.sizes)
        above = owner[:, None] < owner[None, :]
        noisy = np.where(above, exact + self._noise(exact.shape, scale, 0), 0.0)
        return noisy + noisy.T

    def noisy_combinations(self) -> dict[tuple[int, ...], np.ndarray]:
        """Noisy counts of every combination of degree + 1 columns."""
        chosen = list(combinations(range(len(self.sizes)), self.settings.degree + 1))
        if len(chosen) > _MOST_TABLES:
            raise BadInput(
                f"way=statistics, degree={self.settings.degree}: {len(chosen):,} tables would be counted, at most "
                f"{_MOST_TABLES:,} are; use a smaller degree, or another way"
            )
        scale = self._scale(1.0, len(chosen))
        shapes = [tuple(self.sizes[column] for column in columns) for columns in chosen]
        return {
            columns: counts(self.codes, self.sizes, columns) + self._noise(shape, scale, number)
            for number, (columns, shape) in enumerate(zip(chosen, shapes, strict=True))
        }

    def _scale(self, share: float, tables: int) -> float:
        """The scale of the Laplace noise of each of so many tables: one record is in all of them."""
        return 0.0 if self.epsilon is None else _MOVED * tables / (share * self.epsilon)

    def _shape(self, pair: AttributeParents) -> tuple[int, ...]:
        return tuple(self.sizes[column] for column in pair.columns)

    def _noise(self, shape: tuple[int, ...], scale: float, number: int) -> np.ndarray:
        return discrete_laplace(math.prod(shape), scale, self.rng.at("table", number)).reshape(shape)


def discrete_laplace(count: int, scale: float, rng: Rng) -> np.ndarray:
    """Whole numbers with P(x) proportional to exp(-|x| / scale): the difference of two geometric ones.

    From 53 random bits each, so a draw differs from the exact distribution by at most about 2^-50.
    """
    if scale == 0:
        return np.zeros(count)
    uniform = rng.uniforms(2 * count).reshape(2, count)
    first, second = np.floor(-scale * np.log(uniform))
    return first - second


def information_sensitivity(rows: int) -> float:
    """The most that the mutual information (nats) of a table of so many rows moves when one is replaced.

    Zhang et al. 2017, Lemma 4.1, for columns of any size.
    """
    n = max(2, rows)
    return 2 / n * math.log((n + 1) / 2) + (n - 1) / n * math.log((n + 1) / (n - 1))


def _best(values: np.ndarray) -> int:
    return int(np.argmax(values))


def _tables_of(together: np.ndarray, sizes: Sequence[int], structure: Structure) -> tuple[np.ndarray, ...]:
    """The tables of a structure of degree 1, cut out of all pairs; the root's from its pair with the first column."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    spans = [slice(starts[column], starts[column + 1]) for column in range(len(sizes))]
    tables = []
    for pair in structure:
        other = pair.parents[0] if pair.parents else (0 if pair.child else 1)
        block = together[spans[other], spans[pair.child]]
        tables.append(block if pair.parents else block.sum(0))
    return tuple(tables)


Sums = dict[tuple[int, ...], np.ndarray]


def _sum_tables(parties: Sequence[Sums]) -> Sums:
    return {columns: np.sum([each[columns] for each in parties], axis=0) for columns in parties[0]}


def _marginal(sums: Sums, columns: tuple[int, ...]) -> np.ndarray:
    """The table of these columns, in their order, out of the first combination that holds them all."""
    whole = next(combination for combination in sums if set(columns) <= set(combination))
    dropped = tuple(axis for axis, column in enumerate(whole) if column not in columns)
    kept = [column for column in whole if column in columns]
    return sums[whole].sum(dropped).transpose([kept.index(column) for column in columns])
