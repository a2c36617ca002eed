"""The cost of the same training in a larger population: a projection, never a statement about a run.

The noise in the averaged update, zS / cohort, decides how useful the result is. Keeping it, more clients make privacy
cheaper: Augenstein et al. 2020 (Tables 3 and 13) and the thesis on federated VAEs (Tables 4.5.3, 4.5.4, 4.5.10; Figures
4.5.12-13) enlarge the cohort until the noise multiplier is 1. With local noise each of n clients adds sigma_L =
sigma_G sqrt(n) for the same noise in the mean, and gets no amplification.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent

from fedsynth.errors import BadInput
from fedsynth.privacy.accountant import FINE, answer
from fedsynth.privacy.events import repeat
from fedsynth.privacy.mechanism import Trust


@dataclass(frozen=True)
class ProjectedTraining:
    """A run by what decides its cost and its noise; `noise_multiplier` is relative to the clip."""

    clients: int
    cohort: float
    noise_multiplier: float
    rounds: int

    @property
    def noise_in_mean(self) -> float:
        """Standard deviation of the noise in the averaged update, in clips."""
        return self.noise_multiplier / self.cohort


@dataclass(frozen=True)
class Projection:
    """The cost of a training in a population that it did not run in."""

    population: int
    trust: Trust
    cohort: float
    rate: float
    noise_multiplier: float
    releases: int
    epsilon: float
    delta: float
    projection: bool = True


def default_delta(population: int) -> float:
    """1 / N^1.1, the choice of McMahan et al. 2018 and of the thesis."""
    return float(population) ** -1.1


def project_central(
    training: ProjectedTraining,
    population: int,
    *,
    delta: float | None = None,
    noise_multiplier: float = 1.0,
    sampling: str = "poisson",
    adjacency: str = "add-remove",
    accountant: str = "pld",
    precision: float = FINE,
) -> Projection:
    """The cost with the same noise in the mean, a trusted server and a cohort large enough for `noise_multiplier`.

    >>> simulated = ProjectedTraining(clients=3400, cohort=10, noise_multiplier=0.01, rounds=1000)
    >>> projected = project_central(simulated, 2_000_000, delta=5e-9)
    >>> projected.cohort, round(projected.epsilon, 2)
    (1000.0, 0.16)
    """
    cohort = training.cohort * noise_multiplier / training.noise_multiplier
    _check(population, cohort)
    delta = default_delta(population) if delta is None else delta
    once = _sampled(GaussianDpEvent(noise_multiplier), sampling, cohort, population)
    event = repeat(once, training.rounds)
    cost = answer(event, delta, adjacency=adjacency, accountant=accountant, precision=precision)
    rate = cohort / population
    return Projection(
        population, "central", cohort, rate, noise_multiplier, training.rounds, cost.epsilon, delta
    )


def _sampled(event: DpEvent, sampling: str, cohort: float, population: int) -> DpEvent:
    if sampling == "fixed":
        return SampledWithoutReplacementDpEvent(population, round(cohort), event)
    return PoissonSampledDpEvent(min(1.0, cohort / population), event)


def project_local(
    training: ProjectedTraining,
    population: int,
    *,
    delta: float | None = None,
    adjacency: str = "replace-one",
) -> Projection:
    """The cost for each client with the same noise in the mean and nobody to trust.

    The cohort grows with the population, so that each client may add more noise: sigma_L = sigma_G sqrt(qN). A client
    takes part at most as often as the average one would, rounded up, and refuses afterwards; who took part is known,
    so there is no amplification.
    """
    rate = training.cohort / training.clients
    cohort = rate * population
    _check(population, cohort)
    delta = default_delta(population) if delta is None else delta
    local = training.noise_in_mean * math.sqrt(cohort)
    releases = max(1, math.ceil(rate * training.rounds - 1e-9))
    cost = answer(repeat(GaussianDpEvent(local), releases), delta, adjacency=adjacency)
    return Projection(population, "local", cohort, rate, local, releases, cost.epsilon, delta)


def _check(population: int, cohort: float) -> None:
    if cohort > population * (1 + 1e-9):
        raise BadInput(
            f"population={population}: a cohort of {cohort:g} is needed for this noise; project to at least that many"
        )
