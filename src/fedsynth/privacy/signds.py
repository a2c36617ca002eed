"""SignDS: each client sends the sign and the indices of a few large coordinates, under pure local privacy.

Algorithm 1 of Jiang, Zhou and Grossklags (DP-Fed-WAE, 2022) for one index. For several, the set of indices
is drawn at once, as in their SignDS-FL (2022): a set with at least `threshold` indices among the k largest
is exp(epsilon) times as likely as any other set.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.draw import PRECISION, CumulativeTable, below, client_words
from fedsynth.privacy.events import EpsilonDeltaDpEvent
from fedsynth.privacy.mechanism import Release, State
from fedsynth.rng import Rng

_SPARED = (
    Decimal(2) ** -40
)  # share of epsilon kept back, so that rounding a table to 128 bits stays below epsilon


@dataclass(frozen=True)
class SignedIndex:
    """`count` indices with one common sign a client; index i with sign s travels as s * (i + 1)."""

    dim: int
    count: int = 1
    kind: str = "signed-index"

    def zero(self) -> Tensor:
        """The empty sum."""
        return torch.zeros(self.dim, dtype=torch.float64)

    def add(self, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with the signs of a chunk of messages [clients, count] added, each times its weight.

        >>> SignedIndex(4).add(torch.zeros(4), torch.tensor([[2], [-3], [2]]), torch.ones(3))
        tensor([ 0.,  2., -1.,  0.])
        """
        signs = messages.sign().to(total.dtype) * weights.to(messages.device, total.dtype)[:, None]
        total = total.to(messages.device)
        return total.index_add(0, messages.abs().flatten() - 1, signs.flatten())

    def fits(self, messages: Tensor, clients: int) -> bool:
        """Signed indices of each client."""
        alike = messages.dtype == torch.int64 and tuple(messages.shape) == (clients, self.count)
        return alike and bool(((messages.abs() >= 1) & (messages.abs() <= self.dim)).all())


@dataclass(frozen=True)
class SignDS:
    """Each client draws a sign, then `count` indices that favor its largest (or smallest) coordinates.

    Give the number of favored coordinates as `top` (k of the paper) or as a `ratio` of all (its alpha; 1
    draws uniformly). Pure epsilon for each client and use, whatever the coordinates' size: nothing is
    clipped. The estimate is `magnitude` times the mean sign; the server's learning rate does the rest.

    >>> SignDS(epsilon=2.0, ratio=0.1).wire(50)
    SignedIndex(dim=50, count=1, kind='signed-index')
    """

    epsilon: float
    top: int | None = None
    ratio: float | None = None
    count: int = 1
    magnitude: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < float("inf"):
            raise BadInput(f"epsilon={self.epsilon}: SignDS takes a positive number")
        if (self.top is None) == (self.ratio is None):
            raise BadInput(f"top={self.top}, ratio={self.ratio}: SignDS takes one of them")
        if self.top is not None and self.top < 1:
            raise BadInput(f"top={self.top}: at least one coordinate is favored")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise BadInput(f"ratio={self.ratio}: the share of favored coordinates lies in (0, 1]")
        if self.count < 1:
            raise BadInput(f"count={self.count}: at least one index is sent")

    @property
    def release(self) -> Release:
        """Pure epsilon for each client, in its own ledger; no amplification."""
        event = EpsilonDeltaDpEvent(self.epsilon)
        return Release("sign and indices of large coordinates", "client", "local", event)

    def favored(self, dim: int) -> int:
        """The number of favored coordinates of a contribution of `dim`."""
        if self.count >= dim:
            raise BadInput(f"count={self.count}: fewer indices than the {dim} coordinates can be sent")
        if self.top is not None and self.top >= dim:
            raise BadInput(f"top={self.top}: fewer than the {dim} coordinates can be favored")
        return self.top if self.top is not None else max(1, round((self.ratio or 1.0) * dim))

    def wire(self, dim: int) -> SignedIndex:
        """A few signed indices a client."""
        self.favored(dim)
        return SignedIndex(dim, self.count)

    def init(self) -> State:
        """No state."""
        return {}

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Signed indices [clients, count], sorted, so that their order does not tell favored ones apart."""
        clients, dim = x.shape
        favored = self.favored(dim)
        drawn = client_words(rng, ids, self.count + 2)
        sign = torch.from_numpy(1 - 2 * (drawn[:, 0] >> np.uint64(63)).astype(np.int64)).to(x.device)
        hits = hit_table(dim, favored, self.count, self.epsilon).choose(drawn[:, 1], rng.at("hits"))
        places = _places(hits, favored, dim, drawn[:, 2:], rng.at("places"))
        largest = torch.topk(x * sign[:, None], favored, dim=1).indices.sort(dim=1).values
        indices = _index_at(torch.from_numpy(places).to(x.device), largest)
        return (indices.sort(dim=1).values + 1) * sign[:, None]

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mean of signs that are private already, times `magnitude`."""
        return total * (self.magnitude / denominator), state


@lru_cache(maxsize=64)
def hit_table(dim: int, favored: int, count: int, epsilon: float) -> CumulativeTable:
    """How many of the `count` indices fall among the favored ones.

    Sets with at least `threshold` hits are exp(epsilon) times as likely as others; the threshold is the one
    with the most hits on average. It depends on public numbers only.
    """
    with localcontext(PRECISION):
        ways = _ways(dim, favored, count)
        gain = (Decimal(epsilon) * (1 - _SPARED)).exp()
        tilted = [
            [way * gain if hits >= threshold else way for hits, way in enumerate(ways)]
            for threshold in range(1, min(count, favored) + 1)
        ]
        best = max(tilted, key=_mean)
        return CumulativeTable.of(best)


def _mean(weights: list[Decimal]) -> Decimal:
    return sum((hits * weight for hits, weight in enumerate(weights)), Decimal(0)) / sum(weights)


def _ways(dim: int, favored: int, count: int) -> list[Decimal]:
    """Number of sets of `count` indices with 0, 1, ..., `count` favored ones, up to a common factor."""
    others = dim - favored
    least = max(0, count - others)
    ways = [Decimal(0)] * least + [Decimal(1)]
    for hits in range(least, count):
        more = Decimal((favored - hits) * (count - hits)) / ((hits + 1) * (others - count + hits + 1))
        ways.append(ways[-1] * more)
    return ways


def _places(hits: np.ndarray, favored: int, dim: int, drawn: np.ndarray, rng: Rng) -> np.ndarray:
    """Distinct places [clients, count]: `hits` of them below `favored`, the others from there to `dim`.

    Floyd's algorithm (Bentley and Floyd 1987) for all clients at once: every set is equally likely.
    """
    count = drawn.shape[1]
    places = np.full(drawn.shape, -1, dtype=np.int64)
    for number in range(count):
        hit = number < hits
        first, end = np.where(hit, 0, favored), np.where(hit, favored, dim)
        last = end - np.where(hit, hits - number, count - number)
        place = first + below(last - first + 1, drawn[:, number], rng.at(number))
        taken = (places[:, :number] == place[:, None]).any(axis=1)
        places[:, number] = np.where(taken, last, place)
    return places


def _index_at(places: Tensor, largest: Tensor) -> Tensor:
    """Indices for places: p < k is the p-th of `largest` (sorted), k + r the r-th of the rest."""
    favored = largest.shape[1]
    rest = (places - favored).clamp(min=0)
    skipped = torch.searchsorted(largest - torch.arange(favored, device=largest.device), rest, right=True)
    return torch.where(places < favored, largest.gather(1, places.clamp(max=favored - 1)), rest + skipped)
