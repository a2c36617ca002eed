"""The trade-off before anybody's data are read: noise, rounds and cohort for each unit and each kind of trust."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedsynth.errors import BadInput
from fedsynth.privacy.calibrate import calibrate
from fedsynth.privacy.distributed import Parties
from fedsynth.privacy.events import repeat
from fedsynth.privacy.gaussian import analytic_noise
from fedsynth.privacy.mechanism import Trust, Unit
from fedsynth.privacy.projection import Training, project_central, project_local


@dataclass(frozen=True)
class Settings:
    """A recipe's settings where the user sets none: all that the plan needs of it."""

    recipe: str
    rate: float
    rounds: int
    epochs: int
    batch_size: int
    pooled: bool = False
    offers: tuple[tuple[Unit, Trust], ...] = (("client", "central"),)


@dataclass(frozen=True)
class Population:
    """Whom a plan is for, and what may be spent on each of them."""

    clients: int
    records: int
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if self.clients < 1 or self.records < self.clients:
            raise BadInput(
                f"clients={self.clients}, records={self.records}: every client has at least one record"
            )
        if not (self.epsilon > 0 and 0 < self.delta < 1):
            raise BadInput(
                f"epsilon={self.epsilon}, delta={self.delta}: epsilon is above 0, delta between 0 and 1"
            )


@dataclass(frozen=True)
class PlanRow:
    """One way to be private. `noise_in_mean` is the noise in an averaged update, in clips: smaller is more useful."""

    recipe: str
    unit: Unit
    trust: Trust
    adjacency: str
    sampling: Literal["poisson", "none"]
    clients: int
    rate: float
    cohort: float
    rounds: int
    releases: int  # that concern one client, or one record
    noise_multiplier: float
    noise_in_mean: float
    epsilon: float
    delta: float
    offered: bool
    projection: bool = False


def plan_rows(settings: Settings, people: Population) -> list[PlanRow]:
    """Client and record units under central, distributed and local trust, all at the same budget.

    Distributed noise is the central noise in shares inside a secure sum. A local client counts every release, at most
    as many as the average client makes, rounded up, and may be swapped for any other: twice the sensitivity.
    Rows that are pooled in one place know no clients.
    """
    record = _record_central(settings, people)
    if settings.pooled:
        return [record]
    central = _client_central(settings, people)
    return [
        central,
        _shared(central, settings),
        _client_local(settings, people),
        record,
        _shared(record, settings),
        _record_local(settings, people),
    ]


def _row(
    settings: Settings, people: Population, unit: Unit, trust: Trust, **values: float | int | str
) -> PlanRow:
    offered = (unit, trust) in settings.offers
    return PlanRow(
        recipe=settings.recipe,
        unit=unit,
        trust=trust,
        clients=people.clients,
        epsilon=people.epsilon,
        delta=people.delta,
        offered=offered,
        **values,  # type: ignore[arg-type]
    )


def _shared(row: PlanRow, settings: Settings) -> PlanRow:
    """The same with noise in shares: more of it, since some may be missing and a participant knows its own."""
    parties = Parties.among(row.clients)
    values = {**row.__dict__, "trust": "distributed", "offered": (row.unit, "distributed") in settings.offers}
    noise = row.noise_in_mean * math.sqrt(parties.count / parties.honest)
    return PlanRow(**{**values, "noise_in_mean": noise})


def _client_central(settings: Settings, people: Population) -> PlanRow:
    rate = settings.rate
    noise = _noise(rate, settings.rounds, people.epsilon, people.delta)
    cohort = rate * people.clients
    return _row(
        settings,
        people,
        "client",
        "central",
        adjacency="add-remove",
        sampling="poisson" if rate < 1 else "none",
        rate=rate,
        cohort=cohort,
        rounds=settings.rounds,
        releases=settings.rounds,
        noise_multiplier=noise,
        noise_in_mean=noise / cohort,
    )


def _client_local(settings: Settings, people: Population) -> PlanRow:
    rate = settings.rate
    releases = math.ceil(rate * settings.rounds - 1e-9)
    noise = 2 * analytic_noise(people.epsilon, people.delta, releases)
    cohort = rate * people.clients
    return _row(
        settings,
        people,
        "client",
        "local",
        adjacency="replace-one",
        sampling="none",
        rate=rate,
        cohort=cohort,
        rounds=settings.rounds,
        releases=releases,
        noise_multiplier=noise,
        noise_in_mean=noise / math.sqrt(cohort),
    )


def _record_central(settings: Settings, people: Population) -> PlanRow:
    batch = min(settings.batch_size, people.records)
    rate = batch / people.records
    passes = settings.rounds * settings.epochs * (1.0 if settings.pooled else settings.rate)
    steps = max(1, math.ceil(passes / rate))
    noise = _noise(rate, steps, people.epsilon, people.delta)
    return _row(
        settings,
        people,
        "record",
        "central",
        adjacency="add-remove",
        sampling="poisson" if rate < 1 else "none",
        rate=rate,
        cohort=float(batch),
        rounds=steps,
        releases=steps,
        noise_multiplier=noise,
        noise_in_mean=noise / batch,
    )


def _record_local(settings: Settings, people: Population) -> PlanRow:
    own = people.records / people.clients
    batch = min(float(settings.batch_size), own)
    often = math.ceil(settings.rate * settings.rounds - 1e-9)
    steps = max(1, math.ceil(often * settings.epochs * own / batch))
    noise = _noise(batch / own, steps, people.epsilon, people.delta)
    return _row(
        settings,
        people,
        "record",
        "local",
        adjacency="add-remove",
        sampling="poisson" if batch < own else "none",
        rate=batch / own,
        cohort=batch,
        rounds=settings.rounds,
        releases=steps,
        noise_multiplier=noise,
        noise_in_mean=noise / batch / math.sqrt(max(1.0, settings.rate * people.clients)),
    )


@lru_cache(maxsize=256)
def _noise(rate: float, rounds: int, epsilon: float, delta: float) -> float:
    if rate >= 1:
        return analytic_noise(epsilon, delta, rounds)
    return calibrate(
        lambda z: repeat(PoissonSampledDpEvent(rate, GaussianDpEvent(z)), rounds), epsilon, delta
    )


def projected_rows(row: PlanRow, populations: Sequence[int]) -> list[PlanRow]:
    """The same noise in the mean in other populations: the same cohort with central noise, the same rate with local."""
    training = Training(row.clients, row.cohort, row.noise_multiplier, row.rounds)
    rows = []
    for population in populations:
        central = project_central(
            training, population, delta=row.delta, noise_multiplier=row.noise_multiplier
        )
        local = project_local(training, population, delta=row.delta)
        for projection in (central, local):
            changed = {
                "trust": projection.trust,
                "clients": population,
                "rate": projection.rate,
                "cohort": projection.cohort,
                "noise_multiplier": projection.noise_multiplier,
                "releases": projection.releases,
                "epsilon": projection.epsilon,
                "adjacency": "add-remove" if projection.trust == "central" else "replace-one",
                "sampling": "poisson" if projection.trust == "central" else "none",
                "projection": True,
            }
            rows.append(PlanRow(**{**row.__dict__, **changed}))
    return rows
