"""The cost of a run: where other rooms ask for an epsilon, a noise multiplier or a number of rounds.

Events come from the objects that ran (the mechanism states its release, the schedule amplifies it). A noise
multiplier is the noise's standard deviation over the clip S under every adjacency.
"""

from __future__ import annotations

from dp_accounting import DpEvent

from fedsynth.privacy.accountant import ACCOUNTANTS, Accountant, SpentEpsilon, answer
from fedsynth.privacy.calibrate import (
    Odometer,
    calibrate,
    largest,
    max_cohort,
    max_rounds,
    min_clients,
    smallest,
)
from fedsynth.privacy.events import (
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    compose,
    event_from_json,
    event_to_json,
    repeat,
)
from fedsynth.privacy.pairs import ADJACENCIES, PAIRS, SAMPLINGS, Adjacency, Sampling

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCIES",
    "PAIRS",
    "SAMPLINGS",
    "Accountant",
    "Adjacency",
    "SpentEpsilon",
    "DiscreteGaussianDpEvent",
    "EpsilonDeltaDpEvent",
    "ExponentialMechanismDpEvent",
    "Odometer",
    "Sampling",
    "answer",
    "calibrate",
    "compose",
    "epsilon",
    "event_from_json",
    "event_to_json",
    "largest",
    "max_cohort",
    "max_rounds",
    "min_clients",
    "repeat",
    "smallest",
]


def epsilon(event: DpEvent, delta: float, *, adjacency: str = "add-remove", accountant: str = "pld") -> float:
    """Return the event's epsilon at `delta`: tight by PLD, by RDP where PLD has no answer, never below the truth.

    >>> from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    >>> rounds = repeat(PoissonSampledDpEvent(100 / 500, GaussianDpEvent(1.0)), 30)
    >>> round(epsilon(rounds, 1e-5), 2)
    7.93
    >>> round(epsilon(rounds, 1e-5, adjacency="replace-one"), 2)
    11.47
    """
    return answer(event, delta, adjacency=adjacency, accountant=accountant).epsilon
