"""The distributed Gaussian mechanism: each party adds a share of the noise, and only the sum is ever seen.

Clip, rotate, round and noise at the parties, in integers modulo 2^bits; a transport that opens nothing but the sum
(secagg) makes it private without a trusted server (Kairouz, Liu and Steinke 2021). docs/secure-aggregation.md proves
that the sum of the shares may be accounted as one continuous Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from dp_accounting import DpEvent, PoissonSampledDpEvent
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.central import gaussian_event
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.draw import client_words
from fedsynth.privacy.mechanism import Release, State, Unit
from fedsynth.privacy.noise import client_noise
from fedsynth.privacy.quantize import HadamardRotation, Uniforms, norm_limit, round_within
from fedsynth.privacy.sampling import poisson_sample
from fedsynth.rng import Rng, expand_uniform, subkeys, uniforms_at
from fedsynth.transport.ring import Parties, Ring

MOST_BITS = 31
_SMOOTHING = 3.0  # steps: with this share or more, sums of discrete Gaussians are discrete Gaussians
_LOSS = 1.01  # rounding may raise the noise by at most this factor over that of central noise


@dataclass(frozen=True)
class DistributedGaussian:
    """Each party's vector is clipped, rounded to integers and noised with its share; the sum has the whole noise.

    `noise_multiplier` is that of the sum over `parties.honest` shares, relative to the clip as it is after rounding.
    `contributions` vectors of the clip's norm may be in one sum (all clients, or all records of a batch): the grid is
    as fine as `bits` allow if the sum shall leave the ring's range with probability `wrap` a round at most. Leaving it
    costs accuracy in that round, never privacy.

    `coin` is the chance with which a client contributes at all. It is drawn by the client and seen by nobody, so it
    amplifies also against the server; one that does not contribute sends its noise alone. For `unit="record"` the rows
    of x are records, `ids` name the party of each, and the coin is each record's: the party draws it (`draw`).

    `whole`: contributions are whole grid steps as they come, so that rounding makes none longer than the clip. Whoever
    builds them sees to it; what goes through `rounded` is held to the same limit.
    """

    clip: Clip
    noise_multiplier: float
    dim: int
    parties: Parties
    contributions: int
    bits: int = 20
    coin: float = 1.0
    rotate: bool = True
    wrap: float = 1e-6
    unit: Unit = "client"
    whole: bool = False

    def __post_init__(self) -> None:
        gaussian_event(self.noise_multiplier)
        if not 2 <= self.bits <= MOST_BITS:
            raise BadInput(f"bits={self.bits}: a ring has between 2 and {MOST_BITS} bits")
        if not 0 < self.coin <= 1:
            raise BadInput(f"coin={self.coin}: a client contributes with a probability in (0, 1]")
        if self.contributions < 1 or not 0 < self.wrap < 1:
            raise BadInput(
                f"contributions={self.contributions}, wrap={self.wrap}: expected at least 1 and a probability"
            )
        if not self.loss <= _LOSS:
            raise BadInput(
                f"bits={self.bits}: {self.contributions} contributions of {self.dim} numbers leave a grid of "
                f"{self.steps:.3g} steps a clip, whose rounding would raise the noise by {self.loss - 1:.1%}; use "
                f"{self._enough()}"
            )

    @cached_property
    def rotation(self) -> HadamardRotation:
        """How a vector is spread over its coordinates."""
        return HadamardRotation.for_dim(self.dim) if self.rotate else HadamardRotation(self.dim)

    @cached_property
    def steps(self) -> float:
        """Grid steps in a clip bound: the most that keep the sum within the ring, but for `wrap`."""
        return self._steps(self.bits)

    def _steps(self, bits: int) -> float:
        low, high = 0.0, 2.0 ** (bits - 1)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._reach(middle) < 2.0 ** (bits - 1) else (low, middle)
        return low

    def _reach(self, steps: float) -> float:
        """The bound on each coordinate of the sum, but for `wrap`: half of it for the noise, half for the rotation."""
        chance = self.wrap / 2 / self.rotation.length
        noise = self._share(steps) * math.sqrt(self.parties.count)
        signal = self.contributions * (steps * self.rotation.spread(chance) + 1.0)
        return signal + noise * math.sqrt(2.0 * math.log(2.0 / chance))

    @cached_property
    def limit(self) -> int:
        """The squared sensitivity in grid steps: no contribution is longer."""
        return self._limit(self.steps)

    def _limit(self, steps: float) -> int:
        return math.floor(steps**2) if self.whole else norm_limit(steps, self.rotation.length)

    @property
    def loss(self) -> float:
        """Noise over that of central noise of the same cost, by rounding and by shares below three steps."""
        return self._loss(self.bits)

    def _loss(self, bits: int) -> float:
        steps = self.steps if bits == self.bits else self._steps(bits)
        if steps < 1:
            return math.inf
        if not self.noise_multiplier:
            return math.sqrt(self._limit(steps)) / steps
        return self._share(steps) * math.sqrt(self.parties.honest) / (self.noise_multiplier * steps)

    def _enough(self) -> str:
        """Advice: the least bits that do."""
        enough = (bits for bits in range(self.bits + 1, MOST_BITS + 1) if self._loss(bits) <= _LOSS)
        least = next(enough, None)
        return "fewer contributions or a smaller model" if least is None else f"bits={least}"

    def _share(self, steps: float) -> float:
        """The standard deviation of a party's noise in grid steps."""
        if not self.noise_multiplier:
            return 0.0
        whole = self.noise_multiplier**2 * self._limit(steps) + _SMOOTHING**2
        return max(_SMOOTHING, math.sqrt(whole / self.parties.honest)) * (1 + 2.0**-20)

    @property
    def share(self) -> float:
        """The standard deviation of each party's noise, in the units of the clip."""
        return self._share(self.steps) * self.grid

    @property
    def grid(self) -> float:
        """One grid step in the units of the clip."""
        return self.clip.bound / self.steps

    @property
    def release(self) -> Release:
        """The noisy sum with no more noise than the least; the server knows whom it drew, so nothing amplifies."""
        return self.cost(self.parties.threshold)

    def cost(self, survivors: int) -> Release:
        """The cost of a sum over this many parties: who survives beyond the threshold adds noise that was not needed.

        With fewer than the threshold no transport opens the sum; it is priced as one of the threshold. A participant
        takes the noise that it knows away, so `event` is the cost against it, and `public` that against all others.

        >>> all_there = DistributedGaussian(Clip(1.0), 1.0, 100, Parties(5, 5), contributions=5)
        >>> all_there.cost(5).event, all_there.cost(5).public
        (GaussianDpEvent(noise_multiplier=1.0), GaussianDpEvent(noise_multiplier=1.118033988749895))
        """
        enough = max(survivors, self.parties.threshold)
        what = f"noisy sum of clipped {self.unit} updates, noise shared out"
        event, public = (
            self._event(enough - known) for known in (self.parties.known, self.parties.colluders)
        )
        return Release(what, self.unit, "distributed", event, amplifies=False, public=public)

    def _event(self, shares: int) -> DpEvent:
        """The cost of a sum to somebody who does not know so many shares of its noise."""
        event: DpEvent = gaussian_event(self.noise_multiplier * math.sqrt(shares / self.parties.honest))
        return PoissonSampledDpEvent(self.coin, event) if self.coin < 1 else event

    def wire(self, dim: int) -> Ring:
        """A ring vector a party."""
        if dim != self.dim:
            raise BadInput(f"dim={dim}: this mechanism was made for contributions of {self.dim} numbers")
        return Ring(self.rotation.length, self.bits, self.parties, self._share(self.steps))

    def init(self) -> State:
        """The number of the round, which turns the rotation, if there is one."""
        return {"turn": torch.zeros(1, dtype=torch.int64)} if self.rotate else {}

    def draw(self, records: int, rng: Rng) -> np.ndarray:
        """The records of a party that contribute this time, each by its own coin."""
        return poisson_sample(records, self.coin, rng)

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Clipped, rounded and noisy integers in the ring, [rows, length]; a party's noise is in its first row."""
        integers = self.rounded(x, state, rng, ids)
        if self.unit == "client":
            integers = integers * self._coins(ids, rng).to(x.device)[:, None]
        owners, first = np.unique(ids, return_index=True)
        noisy = (integers % 2.0**self.bits).to(torch.int32)
        noisy[torch.from_numpy(first).to(x.device)] = self.noised(integers[first], rng, owners)
        return noisy

    def rounded(
        self,
        x: Tensor,
        state: State,
        rng: Rng,
        ids: np.ndarray,
        uniforms: Uniforms | None = None,
        places: Tensor | None = None,
    ) -> Tensor:
        """The contributions as integers (float64) that keep the limit, without noise.

        `uniforms` decide which way each number is rounded. They must be fresh and stay secret: a row takes those of its
        place, and one record more moves the others' places, which changes how they are rounded. Nobody can tell, as
        long as nobody knows the uniforms. By default they are keyed by a row's party and its place.

        `places` says where in a whole contribution the numbers of x stand, if x has only those that are not zero.
        """
        scaled = self.scaled(x, _turn(state))
        keys = rng.at("round").keys(_rows(ids), x.device)

        def keyed(attempt: int) -> Tensor:
            own = subkeys(keys, attempt)
            return expand_uniform(own, scaled.shape[1:]) if places is None else uniforms_at(own, places)

        return round_within(scaled, self.limit, uniforms or keyed)

    def scaled(self, x: Tensor, turn: int) -> Tensor:
        """Contributions [rows, dim] clipped, rotated and in grid steps."""
        return self.rotation.apply(self.clip.apply(x), turn) / self.grid

    def noised(self, integers: Tensor, rng: Rng, ids: np.ndarray, shares: int = 1) -> Tensor:
        """Integers [parties, length] plus each party's noise, modulo 2^bits: its share, or so many drawn as one.

        A sum of `shares` discrete Gaussians is one of so many times the variance (docs/secure-aggregation.md).
        """
        sigma = self._share(self.steps) * math.sqrt(shares)
        scale = math.sqrt(max(sigma**2 - _SMOOTHING**2, 0.0))  # what `client_noise` adds three steps to
        noise = client_noise(ids, integers.shape[1], scale, 1.0, rng.at("share"), integers.device)
        return ((integers + noise) % 2.0**self.bits).to(torch.int32)

    def _coins(self, ids: np.ndarray, rng: Rng) -> Tensor:
        """Whether each client contributes: its own coin."""
        if self.coin == 1:
            return torch.ones(len(ids), dtype=torch.float64)
        words = client_words(rng.at("coin"), ids, 1)[:, 0]
        return torch.from_numpy((words < np.uint64(int(self.coin * 2**64))).astype(np.float64))

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mean contribution; the noise is in the sum already."""
        integers = Ring(self.rotation.length, self.bits).centered(total)
        mean = self.rotation.undo(integers, _turn(state)) * (self.grid / (denominator * self.coin))
        return mean, {name: value + 1 for name, value in state.items()}


def _turn(state: State) -> int:
    return int(state["turn"]) if state else 0


def _rows(ids: np.ndarray) -> np.ndarray:
    """A number for each row that no other row of any party has."""
    order = np.argsort(ids, kind="stable")
    starts = np.searchsorted(ids[order], ids[order])
    place = np.empty(len(ids), dtype=np.int64)
    place[order] = np.arange(len(ids)) - starts
    return np.asarray(ids, dtype=np.int64) + (place << 32)
