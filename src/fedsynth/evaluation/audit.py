"""How much privacy is lost at least: an empirical lower bound on epsilon, beside the claim.

The recipe runs as it would, on made-up rows, with canaries among its participants. From what is released each
canary is guessed to be in or out. If the guesses are better than the claim allows, the claim is false, whatever the
reason: too little noise, a clip that does not hold, a participant counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from scipy.stats import norm

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.evaluation.audit_bound import bound_from_one_run, upper_rate
from fedsynth.evaluation.canary import Seen, Tell, watch_clients, watch_records
from fedsynth.evaluation.ceiling import Ceiling
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy import account
from fedsynth.privacy.mechanism import Charge
from fedsynth.recipes.budget import adjacency_of
from fedsynth.rng import Rng

ONE_RUN = "one run (Steinke et al. 2023)"
MANY_RUNS = "many runs, one for each canary"
LEAST_CANARIES = 200
_SHARES = (0.01, 0.03, 0.1, 0.3)  # of the canaries that are guessed, the most certain ones, in one run
_THRESHOLDS = 200
_MOST_FACTOR = 64.0


@dataclass(frozen=True)
class Bound:
    """What one way of reading the canaries proves, with the audit's confidence."""

    method: str
    epsilon_lower: float
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """The result: `claimed` is what the watched releases cost at `delta` according to the accountant."""

    recipe: str
    unit: str
    adjacency: str
    claimed: float
    delta: float
    confidence: float
    canaries: int
    bounds: tuple[Bound, ...]

    @property
    def best(self) -> Bound:
        """The reading that proves most."""
        return max(self.bounds, key=lambda bound: bound.epsilon_lower)

    @property
    def epsilon_lower(self) -> float:
        """Epsilon is at least this, with the stated confidence."""
        return self.best.epsilon_lower

    @property
    def exceeds(self) -> bool:
        """True if more was shown to leak than is claimed."""
        return self.epsilon_lower > self.claimed

    def audited(self) -> dict[str, Any]:
        """The entry of privacy.json."""
        return {
            "epsilon_lower": self.epsilon_lower,
            "confidence": self.confidence,
            "method": self.best.method,
        }

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "recipe": self.recipe,
            "unit": self.unit,
            "adjacency": self.adjacency,
            "claimed_epsilon": self.claimed,
            "delta": self.delta,
            **self.audited(),
            "exceeds_claim": self.exceeds,
            "canaries": self.canaries,
            "bounds": [
                {"method": b.method, "epsilon_lower": b.epsilon_lower, **b.detail} for b in self.bounds
            ],
        }


def audit(
    algorithm: Algorithm,
    schema: Schema,
    delta: float,
    *,
    canaries: int = 1000,
    runs: int = 8,
    confidence: float = 0.99,
    claimed: Algorithm | None = None,
    rng: Rng | None = None,
    tell: Tell | None = None,
) -> Audit:
    """Run the algorithm `runs` times with `canaries` each, and bound epsilon from below in two ways.

    A client-level algorithm must be composed for at least so many clients. `claimed` is the algorithm
    whose cost is claimed, if it is not the one that runs (to see a planted bug found). The default randomness is the
    operating system's, as in a release.
    """
    _check(canaries * runs, confidence, delta)
    charge = _training_charge(claimed or algorithm)
    told = claimed or algorithm
    rounds = told.schedule.participations(told.rounds) if charge.holder == "client" else told.rounds
    by_record = charge.release.unit == "record"
    stream = rng or Rng()
    seen = (
        watch_records(algorithm, canaries, runs, stream, event=charge.event, tell=tell)
        if by_record
        else watch_clients(algorithm, schema, canaries, runs, stream, event=charge.event, tell=tell)
    )
    adjacency = adjacency_of(algorithm)

    def cost(factor: float) -> DpEvent:
        return account.repeat(with_noise(charge.event, factor), rounds * charge.release.count)

    each = 1.0 - (1.0 - confidence) / 2.0  # both readings must be right at once
    bounds = (
        one_run(seen, delta, each),
        many_runs(seen, cost, delta, adjacency, each),
    )
    spent = account.epsilon(cost(1.0), delta, adjacency=adjacency)
    return Audit(
        algorithm.name,
        charge.release.unit,
        adjacency,
        spent,
        delta,
        confidence,
        len(seen.inside),
        bounds,
    )


def _check(canaries: int, confidence: float, delta: float) -> None:
    if canaries < LEAST_CANARIES:
        raise BadInput(f"canaries={canaries}: fewer than {LEAST_CANARIES} prove nothing; use more")
    if not 0.5 <= confidence < 1:
        raise BadInput(f"confidence={confidence}: expected a number from 0.5 to below 1, such as 0.99")
    if not 0 < delta < 1:
        raise BadInput(f"delta={delta}: expected a number in (0, 1)")


def _training_charge(algorithm: Algorithm) -> Charge:
    """What is released again and again in training: a sum at a trusted server, or steps of DP-SGD where records are."""
    charges = algorithm.charges()
    in_the_plan = algorithm.mechanism.release is None
    if len(charges) != 1 or not (in_the_plan or charges[0].release.trust == "central"):
        raise Incompatible(
            f"{algorithm.name}: the audit is of recipes with one noisy sum at a trusted server or DP-SGD at the "
            "clients, not of this one"
        )
    return charges[0]


def with_noise(event: DpEvent, factor: float) -> DpEvent:
    """The same release with `factor` times the noise.

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
    raise Incompatible(
        f"{type(event).__name__}: the audit is of Gaussian noise on sums; nothing else is known to it"
    )


def one_run(seen: Seen, delta: float, confidence: float) -> Bound:
    """All canaries as those of one run: nothing is assumed, not even that two coordinates have independent noise."""
    ranked = np.argsort(seen.scores, kind="stable")
    each = 1.0 - (1.0 - confidence) / len(_SHARES)  # the best of several numbers of guesses is taken
    found: list[tuple[float, int, int]] = []
    for share in _SHARES:
        side = max(1, round(share * len(ranked) / 2))
        correct = int(seen.inside[ranked[-side:]].sum() + (~seen.inside[ranked[:side]]).sum())
        found.append((bound_from_one_run(correct, 2 * side, len(ranked), delta, each), correct, 2 * side))
    epsilon, correct, guesses = max(found)
    return Bound(ONE_RUN, epsilon, {"correct": correct, "guesses": guesses})


def many_runs(
    seen: Seen, cost: Callable[[float], DpEvent], delta: float, adjacency: str, confidence: float
) -> Bound:
    """Each canary as a run of its own: its coordinate has noise of its own, and nobody else's canary is in it.

    The guesses are held against everything that a noise multiplier claims (its whole privacy profile, not one
    delta alone). The bound is the epsilon of the largest noise that could have let so many guesses be right
    (after Nasr et al. 2023). That the bound is above the claim does not depend on the kind of noise; how far
    above it is does.
    """
    false, missed = judged_rates(seen, confidence)
    detail = {"false_positive_rate": false, "true_positive_rate": 1.0 - missed}

    def allowed(factor: float) -> bool:
        return bool(1.0 - missed <= Ceiling.of_event(cost(factor), adjacency).true_positive_rate(false))

    ruled_out = None if 1.0 - missed <= false else _least_excluded(allowed)
    if ruled_out is None:
        return Bound(MANY_RUNS, 0.0, detail)
    proven = account.epsilon(cost(ruled_out), delta, adjacency=adjacency)
    return Bound(MANY_RUNS, proven, {**detail, "noise": ruled_out})


def _least_excluded(allowed: Callable[[float], bool]) -> float | None:
    """The smallest noise, in units of the claimed one, that is not allowed; None if any noise is.

    >>> round(_least_excluded(lambda factor: factor <= 0.7), 2)
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


def judged_rates(seen: Seen, confidence: float) -> tuple[float, float]:
    """The largest rates of false positives and of misses that are possible, at a threshold chosen on other canaries."""
    half = len(seen.inside) // 2
    thresholds = np.quantile(seen.scores[:half], np.linspace(0, 1, _THRESHOLDS + 2)[1:-1])
    each = 1.0 - (1.0 - confidence) / 2.0
    false, missed = _upper_rates(seen.scores[:half], seen.inside[:half], thresholds, each)
    separation = norm.ppf(1.0 - missed) - norm.ppf(false)
    best = thresholds[[int(np.argmax(np.nan_to_num(separation, nan=-np.inf, posinf=-np.inf)))]]
    false, missed = _upper_rates(seen.scores[half:], seen.inside[half:], best, each)
    return float(false[0]), float(missed[0])


def _upper_rates(
    scores: np.ndarray, inside: np.ndarray, thresholds: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    members, others = np.sort(scores[inside]), np.sort(scores[~inside])
    if not len(members) or not len(others):
        raise BadInput("all canaries fell on one side; use more of them")
    missed = np.searchsorted(members, thresholds, side="right")
    false = len(others) - np.searchsorted(others, thresholds, side="right")
    return (
        np.asarray(upper_rate(false, len(others), confidence)),
        np.asarray(upper_rate(missed, len(members), confidence)),
    )
