"""The claimed releases with more or less noise than claimed: the scale on which an audit places what it has shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent

from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.errors import Incompatible
from fedsynth.privacy import account
from fedsynth.privacy.events import EpsilonDeltaDpEvent

_MOST_FACTOR = 64.0


def with_noise(event: DpEvent, factor: float) -> DpEvent:
    """The same release with `factor` times the noise; for a pure epsilon, that epsilon divided by it.

    >>> with_noise(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), 0.5)
    PoissonSampledDpEvent(sampling_probability=0.1, event=GaussianDpEvent(noise_multiplier=1.0))
    """
    if isinstance(event, PoissonSampledDpEvent):
        return PoissonSampledDpEvent(event.sampling_probability, with_noise(event.event, factor))
    if isinstance(event, SampledWithoutReplacementDpEvent):
        inner = with_noise(event.event, factor)
        return SampledWithoutReplacementDpEvent(event.source_dataset_size, event.sample_size, inner)
    if isinstance(event, GaussianDpEvent):
        return GaussianDpEvent(event.noise_multiplier * factor)
    if isinstance(event, EpsilonDeltaDpEvent) and event.delta == 0:
        return EpsilonDeltaDpEvent(event.epsilon / factor)
    raise Incompatible(
        f"{type(event).__name__}: the audit is of Gaussian noise on sums and of pure epsilon; nothing else is known to "
        "it"
    )


@dataclass(frozen=True)
class NoiseFamily:
    """`count` releases of `event` with any multiple of their noise; factor 1 is the claim."""

    event: DpEvent
    count: int
    adjacency: str

    def cost(self, factor: float) -> DpEvent:
        """All releases with `factor` times the noise."""
        return account.repeat(with_noise(self.event, factor), self.count)

    def epsilon(self, factor: float, delta: float) -> float:
        """Return the releases' epsilon at `delta`."""
        return account.epsilon(self.cost(factor), delta, adjacency=self.adjacency)

    def curve(self, factor: float) -> Ceiling:
        """Return the most that the releases allow an attacker."""
        return _curve(self, factor)

    def least_excluded(self, allowed: Callable[[float], bool]) -> float | None:
        """The smallest noise, in units of the claimed one, that is not allowed; None if any noise is.

        >>> round(NoiseFamily(GaussianDpEvent(1.0), 1, "add-remove").least_excluded(lambda factor: factor <= 0.7), 2)
        0.7
        """
        factor = 1.0
        if allowed(factor):
            while allowed(2 * factor):
                factor *= 2
                if factor >= _MOST_FACTOR:
                    return None
            low, high = factor, 2 * factor
        else:
            while not allowed(factor / 2):
                factor /= 2
                if factor <= 1 / _MOST_FACTOR:
                    return factor
            low, high = factor / 2, factor
        while high / low > 1.005:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if allowed(middle) else (low, middle)
        return high


@lru_cache(maxsize=256)
def _curve(family: NoiseFamily, factor: float) -> Ceiling:
    return Ceiling.of_event(family.cost(factor), family.adjacency)
