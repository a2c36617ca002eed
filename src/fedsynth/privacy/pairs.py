"""Which samplings can be accounted under which adjacency, and each release in the library's own terms.

The library's two accountants read a noise multiplier differently: under replace-one the RDP accountant takes
it relative to the sensitivity 2S, the PLD accountant relative to the clip S (an unsampled z=1 Gaussian at
delta 1e-5 comes out as 4.73 and 10.0). fedsynth's is always relative to S, so this file alone divides by 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
    SampledWithReplacementDpEvent,
    SingleEpochTreeAggregationDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import RepeatAndSelectDpEvent

from fedsynth.errors import BadInput, NotPrivate, nearest
from fedsynth.privacy.events import (
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    ReplaceOneDpEvent,
    flatten,
    repeat,
)

Adjacency = Literal["add-remove", "replace-one", "zero-out"]
Sampling = Literal["none", "poisson", "fixed"]
ADJACENCIES: tuple[Adjacency, ...] = ("add-remove", "replace-one", "zero-out")
SAMPLINGS: tuple[Sampling, ...] = ("none", "poisson", "fixed")

_ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
_REPLACE = NeighboringRelation.REPLACE_ONE
_ZERO_OUT = NeighboringRelation.REPLACE_SPECIAL


@dataclass(frozen=True)
class Pair:
    """How a sampling is accounted under an adjacency: sensitivity in clips, accountants, why (not)."""

    sensitivity: int
    pld: bool
    rdp: bool
    reason: str


PAIRS: dict[tuple[str, str], Pair] = {
    ("none", "add-remove"): Pair(1, True, True, "the sum moves by one contribution"),
    ("none", "replace-one"): Pair(2, True, True, "one contribution out, another in: the sum moves by 2S"),
    ("none", "zero-out"): Pair(1, True, True, "one contribution becomes zero"),
    ("poisson", "add-remove"): Pair(1, True, True, "each takes part independently"),
    ("poisson", "replace-one"): Pair(
        2, True, False, "RDP of a Poisson sample under replace-one is not known"
    ),
    ("poisson", "zero-out"): Pair(1, True, True, "costs the same as add-remove"),
    ("fixed", "add-remove"): Pair(
        0, False, False, "a cohort of fixed size shows the number of clients, which add-remove must hide"
    ),
    ("fixed", "replace-one"): Pair(
        2, False, True, "no PLD is known that composes; RDP by Wang, Balle and others 2019"
    ),
    ("fixed", "zero-out"): Pair(
        2, False, True, "zero is one of the replacements; others fill the cohort, so no less than replace-one"
    ),
    ("replacement", "add-remove"): Pair(0, False, False, "no accountant supports sampling with replacement"),
    ("replacement", "replace-one"): Pair(0, False, False, "no accountant supports sampling with replacement"),
    ("replacement", "zero-out"): Pair(0, False, False, "no accountant supports sampling with replacement"),
}


@dataclass(frozen=True)
class Loss:
    """The privacy loss of one release for the PLD accountant; hashable, so that it is discretized once."""

    family: Literal["gaussian", "laplace", "bounded"]
    scale: float  # noise relative to the sensitivity; for "bounded", epsilon
    rate: float = 1.0
    delta: float = 0.0
    relation: NeighboringRelation = _ADD_REMOVE


@dataclass(frozen=True)
class ReleaseTerms:
    """One release in the library's terms. A None means that this accountant has no answer for it."""

    loss: Loss | None = None
    renyi: DpEvent | None = None
    relation: NeighboringRelation = _ADD_REMOVE
    delta: float = 0.0  # what the Renyi event leaves out and is added to the final delta
    pure: float = math.inf  # epsilon at delta 0
    private: bool = True
    reason: str = ""


_FREE = ReleaseTerms(Loss("bounded", 0.0), RandomizedResponseDpEvent(1.0, 2), _REPLACE, pure=0.0)
_OPEN = ReleaseTerms(private=False)


def steps_of(event: DpEvent, adjacency: str) -> list[tuple[ReleaseTerms, int]]:
    """Each release in the library's terms with its count; refuses what cannot be accounted."""
    if adjacency not in ADJACENCIES:
        raise BadInput(f"adjacency {adjacency!r} is not known; {nearest(adjacency, ADJACENCIES)}")
    return [(_step(leaf, adjacency), count) for leaf, count in flatten(event)]


def _step(event: DpEvent, adjacency: str) -> ReleaseTerms:
    match event:
        case NonPrivateDpEvent():
            return _OPEN
        case ReplaceOneDpEvent():
            return _step(event.event, "replace-one")
        case GaussianDpEvent() | DiscreteGaussianDpEvent():
            return _gaussian(_noise(event), adjacency)
        case LaplaceDpEvent():
            return _laplace(event.noise_multiplier, adjacency)
        case EpsilonDeltaDpEvent() | ExponentialMechanismDpEvent():
            return _bounded(event.epsilon, getattr(event, "delta", 0.0))
        case RandomizedResponseDpEvent():
            return _randomized_response(event)
        case ZCDpEvent():
            return ReleaseTerms(renyi=event, reason="zCDP is a Renyi bound")
        case SingleEpochTreeAggregationDpEvent():
            return _tree(event, adjacency)
        case RepeatAndSelectDpEvent():
            return _repeat_and_select(event, adjacency)
        case PoissonSampledDpEvent():
            return _poisson(event, adjacency)
        case SampledWithoutReplacementDpEvent():
            return _fixed(event, adjacency)
        case SampledWithReplacementDpEvent():
            raise _refused("replacement", adjacency)
    raise NotPrivate(f"event {type(event).__name__} has no accountant; its cost cannot be stated")


def _refused(sampling: str, adjacency: str) -> NotPrivate:
    allowed = [f"{s} with {a}" for (s, a), pair in PAIRS.items() if pair.pld or pair.rdp]
    return NotPrivate(
        f"sampling {sampling!r} under adjacency {adjacency!r} cannot be accounted: "
        f"{PAIRS[sampling, adjacency].reason}; "
        f"supported are {', '.join(allowed)}"
    )


def _noise(event: DpEvent) -> float:
    """The one noise multiplier of Gaussians on one sample: inverse variances add (McMahan et al. 2018)."""
    inverse_variance = 0.0
    for leaf, count in flatten(event):
        if isinstance(leaf, DiscreteGaussianDpEvent):
            leaf = leaf.continuous()
        if not isinstance(leaf, GaussianDpEvent):
            raise NotPrivate(
                f"a sampled {type(leaf).__name__} has no accountant; only Gaussian noise may be sampled"
            )
        noise = _checked(leaf.noise_multiplier)
        inverse_variance += count / noise**2 if noise > 0 else math.inf
    return math.inf if inverse_variance == 0 else inverse_variance**-0.5


def _checked(noise_multiplier: float) -> float:
    if not noise_multiplier >= 0:
        raise BadInput(f"noise_multiplier={noise_multiplier}: it is 0 (no privacy) or more")
    return float(noise_multiplier)


def _gaussian(noise: float, adjacency: str) -> ReleaseTerms:
    if noise == 0 or math.isinf(noise):
        return _FREE if noise else _OPEN
    relative = noise / PAIRS["none", adjacency].sensitivity
    return ReleaseTerms(Loss("gaussian", relative), GaussianDpEvent(relative))


def _laplace(noise: float, adjacency: str) -> ReleaseTerms:
    if _checked(noise) == 0 or math.isinf(noise):
        return _FREE if noise else _OPEN
    relative = noise / PAIRS["none", adjacency].sensitivity
    return ReleaseTerms(Loss("laplace", relative), LaplaceDpEvent(relative), pure=1.0 / relative)


def _bounded(epsilon: float, delta: float) -> ReleaseTerms:
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise BadInput(f"epsilon={epsilon}, delta={delta}: epsilon is 0 or more and delta lies in [0, 1]")
    if math.isinf(epsilon) or delta == 1:
        return _OPEN
    # two-answer randomized response dominates all mechanisms of this epsilon (Kairouz, Oh and Viswanath 2015)
    response = RandomizedResponseDpEvent(2.0 / (1.0 + math.exp(epsilon)), 2) if epsilon < 700 else None
    pure = epsilon if delta == 0 else math.inf
    loss = Loss("bounded", epsilon, delta=delta) if epsilon < 700 else None  # exp() of more overflows
    return ReleaseTerms(loss, response, _REPLACE, delta=delta, pure=pure, reason="epsilon is 700 or more")


def _randomized_response(event: RandomizedResponseDpEvent) -> ReleaseTerms:
    # by its epsilon: the library's PLD accountant counts a repeated randomized response only once
    if event.num_buckets == 1:
        return _FREE
    if not 0 < event.noise_parameter <= 1:
        return _OPEN
    truth = 1.0 - event.noise_parameter + event.noise_parameter / event.num_buckets
    return _bounded(math.log(truth * event.num_buckets / event.noise_parameter), 0.0)


def _tree(event: SingleEpochTreeAggregationDpEvent, adjacency: str) -> ReleaseTerms:
    if adjacency == "add-remove":
        raise NotPrivate(
            "tree noise under add-remove cannot be accounted: a missing client moves every later step; "
            "use adjacency 'zero-out' (the client still arrives, with a null update) or 'replace-one'"
        )
    relative = _checked(event.noise_multiplier) / PAIRS["none", adjacency].sensitivity
    scaled = SingleEpochTreeAggregationDpEvent(relative, event.step_counts)
    return ReleaseTerms(renyi=scaled, relation=_ZERO_OUT, reason="tree noise is a Renyi bound")


def _repeat_and_select(event: RepeatAndSelectDpEvent, adjacency: str) -> ReleaseTerms:
    inner = steps_of(event.event, adjacency)
    relations = {step.relation for step, _ in inner}
    if any(not step.private or step.renyi is None or step.delta for step, _ in inner) or len(relations) != 1:
        raise NotPrivate(
            "a search over these releases cannot be charged: its cost needs one Renyi bound for all of them"
        )
    whole = ComposedDpEvent([repeat(step.renyi, count) for step, count in inner if step.renyi is not None])
    charged = RepeatAndSelectDpEvent(whole, event.mean, event.shape)
    return ReleaseTerms(renyi=charged, relation=relations.pop(), reason="a charged search is a Renyi bound")


def _poisson(event: PoissonSampledDpEvent, adjacency: str) -> ReleaseTerms:
    rate, pair = _checked_rate(event.sampling_probability), PAIRS["poisson", adjacency]
    if rate == 0:
        return _FREE
    if rate == 1:
        return _step_once(event.event, adjacency)
    if isinstance(event.event, LaplaceDpEvent):
        return _poisson_laplace(rate, _checked(event.event.noise_multiplier), adjacency)
    noise = _noise(event.event)
    if noise == 0 or math.isinf(noise):
        return _FREE if noise else _OPEN
    relation = _REPLACE if adjacency == "replace-one" else _ADD_REMOVE
    renyi = PoissonSampledDpEvent(rate, GaussianDpEvent(noise)) if pair.rdp else None
    return ReleaseTerms(Loss("gaussian", noise, rate, relation=relation), renyi, reason=pair.reason)


def _step_once(event: DpEvent, adjacency: str) -> ReleaseTerms:
    return (
        _laplace(event.noise_multiplier, adjacency)
        if isinstance(event, LaplaceDpEvent)
        else _gaussian(_noise(event), adjacency)
    )


def _checked_rate(rate: float) -> float:
    if not 0 <= rate <= 1:
        raise BadInput(
            f"rate={rate}: a Poisson sampling rate lies in [0, 1]; for a fixed cohort give its size"
        )
    return float(rate)


def _poisson_laplace(rate: float, noise: float, adjacency: str) -> ReleaseTerms:
    if adjacency == "replace-one":
        raise NotPrivate(
            "sampled Laplace noise under 'replace-one' has no accountant; use 'add-remove' or 'zero-out'"
        )
    if noise == 0 or math.isinf(noise):
        return _FREE if noise else _OPEN
    return ReleaseTerms(
        Loss("laplace", noise, rate), reason="RDP of sampled Laplace noise is not in the library"
    )


def _fixed(event: SampledWithoutReplacementDpEvent, adjacency: str) -> ReleaseTerms:
    size, clients = event.sample_size, event.source_dataset_size
    if not 0 < size <= clients:
        raise BadInput(f"cohort={size} of clients={clients}: a fixed cohort has 1 to {clients} clients")
    pair = PAIRS["fixed", adjacency]
    if not pair.rdp:
        raise _refused("fixed", adjacency)
    noise = _noise(event.event)
    if noise == 0 or math.isinf(noise):
        return _FREE if noise else _OPEN
    if size == clients:
        return _gaussian(noise, adjacency)
    relative = GaussianDpEvent(noise / pair.sensitivity)
    renyi = SampledWithoutReplacementDpEvent(clients, size, relative)
    return ReleaseTerms(renyi=renyi, relation=_REPLACE, reason=pair.reason)
