"""Epsilon by the library's two accountants, quietly, quickly and never below the truth.

PLD (privacy loss distributions) is tight and is asked first; RDP (Renyi) answers where PLD cannot. The old
RDP conversion is kept under the name "rdp-legacy", only to reproduce published tables.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Literal, TypeVar

import numpy as np
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
)
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as library
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from fedsynth.errors import BadInput, NotPrivate, nearest
from fedsynth.privacy.gaussian_loss import gaussian_epsilon, gaussian_loss
from fedsynth.privacy.loss_distribution import self_composed, together
from fedsynth.privacy.pairs import Loss, ReleaseTerms, steps_of

Accountant = Literal["pld", "rdp", "rdp-legacy"]
ACCOUNTANTS: tuple[Accountant, ...] = ("pld", "rdp", "rdp-legacy")
FINE, COARSE = 1e-4, 1e-3
Counted = list[tuple[ReleaseTerms, int]]

LEAST_DELTA = 1e-10  # below it, rounding in the library's Fourier transforms is no longer negligible
_TAIL = 8.0  # standard deviations of noise that one release's privacy loss is taken to span
_ROUNDING = 1e-14  # the library adds up logarithms of numbers near 1
_POINTS_ONE, _POINTS_ALL = 4e4, 2e5
_SHARE = 0.05
_MOST_INTERVAL = 1.0  # a coarser grid says nothing, and overflows in the library
_FEW_ORDERS = (1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256)
_ROUGH_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_MOST_CURVES, _MOST_ANSWERS = 64, 4096
T = TypeVar("T")


@dataclass(frozen=True)
class SpentEpsilon:
    """Epsilon, and the accountant that really gave it ("pld+rdp": half of delta each)."""

    epsilon: float
    accountant: str


_CURVES: OrderedDict[Hashable, np.ndarray] = OrderedDict()
_ANSWERS: OrderedDict[Hashable, SpentEpsilon] = OrderedDict()


def _once(known: OrderedDict[Hashable, T], most: int, key: Hashable, compute: Callable[[], T]) -> T:
    """Return what was computed for this key before, or compute it; the oldest of more than `most` are forgotten."""
    if key not in known:
        known[key] = compute()
        while len(known) > most:
            known.popitem(last=False)
    return known[key]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's warnings (orders that did not converge, overflow) from the user."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def answer(
    event: DpEvent,
    delta: float,
    *,
    adjacency: str = "add-remove",
    accountant: str = "pld",
    precision: float = FINE,
) -> SpentEpsilon:
    """The event's epsilon at `delta`, and which accountant says so; a coarser precision is faster and never lower."""
    return answer_steps(steps_of(event, adjacency), delta, accountant=accountant, precision=precision)


def answer_steps(
    steps: Counted, delta: float, *, accountant: str = "pld", precision: float = FINE
) -> SpentEpsilon:
    """The same for steps, which may come from releases under different adjacencies."""
    check(delta, accountant)
    if any(not step.private for step, _ in steps):
        return SpentEpsilon(math.inf, accountant)
    if not steps:
        return SpentEpsilon(0.0, accountant)
    basic = sum(step.pure * count for step, count in steps)
    if delta == 0 or any(step.loss is None and step.renyi is None for step, _ in steps):
        return SpentEpsilon(basic, accountant)
    spelled = repr((steps, delta, accountant, precision))  # not every event can be hashed
    with quiet():
        known = _once(
            _ANSWERS,
            _MOST_ANSWERS,
            sha256(spelled.encode()).digest(),
            lambda: _ask(steps, delta, accountant, precision),
        )
    return SpentEpsilon(min(known.epsilon, basic), known.accountant)


def check(delta: float, accountant: str) -> None:
    """Refuse a delta or an accountant that cannot be used."""
    if not 0 <= delta < 1:
        raise BadInput(f"delta={delta}: it lies in [0, 1), usually below 1 / number of clients")
    if accountant not in ACCOUNTANTS:
        raise BadInput(f"accountant {accountant!r} is not known; {nearest(accountant, ACCOUNTANTS)}")


def _ask(steps: Counted, delta: float, accountant: str, precision: float) -> SpentEpsilon:
    by_pld = accountant == "pld" and (delta >= LEAST_DELTA or _one_gaussian(steps) is not None)
    if by_pld and all(step.loss is not None for step, _ in steps):
        epsilon = epsilon_pld(steps, delta, precision)
        if math.isfinite(epsilon):
            return SpentEpsilon(epsilon, "pld")
    missing = [step for step, _ in steps if step.renyi is None]
    if not missing:
        orders = None if precision <= FINE else _FEW_ORDERS
        legacy = accountant == "rdp-legacy"
        return SpentEpsilon(epsilon_rdp(steps, delta, legacy, orders), accountant if legacy else "rdp")
    if not by_pld:
        raise NotPrivate(f"RDP cannot account this release: {missing[0].reason}; use accountant 'pld'")
    return _split(steps, delta, precision)


def _split(steps: Counted, delta: float, precision: float) -> SpentEpsilon:
    """Releases of which some have only a PLD and others only a Renyi bound: each part gets half of delta."""
    first = [(step, count) for step, count in steps if step.loss is not None]
    second = [(step, count) for step, count in steps if step.loss is None]
    if not second:
        return SpentEpsilon(math.inf, "pld")
    return SpentEpsilon(epsilon_pld(first, delta / 2, precision) + epsilon_rdp(second, delta / 2), "pld+rdp")


def _one_gaussian(steps: Counted) -> float | None:
    """The one Gaussian that unsampled Gaussians together are; None if there is anything else."""
    inverse_variance = 0.0
    for step, count in steps:
        loss = step.loss
        if loss is None or loss.family != "gaussian" or loss.rate < 1:
            return None
        inverse_variance += count / loss.scale**2
    return inverse_variance**-0.5


def epsilon_pld(steps: Counted, delta: float, precision: float = FINE) -> float:
    """Tight epsilon of steps that all have a privacy loss; exact for unsampled Gaussian noise."""
    noise = _one_gaussian(steps)
    if noise is not None:
        return gaussian_epsilon(noise, delta)
    interval = interval_for(steps, delta, precision)
    if interval > _MOST_INTERVAL:
        return math.inf
    return float(composed(steps, interval).get_epsilon_for_delta(delta))


def composed(steps: Counted, interval: float) -> library.PrivacyLossDistribution:
    """The privacy loss distribution of all steps together, on a grid of `interval`."""
    total = library.identity(value_discretization_interval=interval)
    for step, count in steps:
        assert step.loss is not None
        total = together(total, repeated_loss(step.loss, interval, count))
    return total


@lru_cache(maxsize=8)  # megabytes each
def repeated_loss(loss: Loss, interval: float, count: int) -> library.PrivacyLossDistribution:
    """The distribution of a release that happens `count` times."""
    return self_composed(one_loss(loss, interval), count)


@lru_cache(maxsize=16)
def one_loss(loss: Loss, interval: float) -> library.PrivacyLossDistribution:
    """The library's distribution of one release; its estimate is pessimistic, so a coarse grid is safe."""
    if loss.family == "bounded":
        parameters = common.DifferentialPrivacyParameters(loss.scale, loss.delta)
        return library.from_privacy_parameters(parameters, value_discretization_interval=interval)
    if loss.family == "laplace":
        return library.from_laplace_mechanism(
            loss.scale, value_discretization_interval=interval, sampling_prob=loss.rate
        )
    if loss.relation != NeighboringRelation.REPLACE_ONE:
        return gaussian_loss(loss.scale, loss.rate, interval)
    return library.from_gaussian_mechanism(
        loss.scale,
        value_discretization_interval=interval,
        sampling_prob=loss.rate,
        neighboring_relation=loss.relation,
    )


def interval_for(steps: Counted, delta: float, precision: float = FINE) -> float:
    """A grid fine enough for the smallest loss of one release, and coarse enough to bound memory and time.

    Losses that are small beside the grid would be rounded up again at each release: safe, but loose.
    """
    losses = [step.loss for step, _ in steps if step.loss is not None]
    wanted = min(precision, precision / FINE * _SHARE * min(_typical(loss) for loss in losses))
    one = max(_span(loss) for loss in losses) / _POINTS_ONE
    interval = _power_of_two(max(wanted, one, _rough(steps, delta) / _POINTS_ALL))
    if interval <= 2 * wanted or interval > _MOST_INTERVAL:
        return interval
    whole = composed(steps, interval).get_epsilon_for_delta(delta)  # the rough estimate can be far too high
    if not math.isfinite(whole):
        return interval
    return min(interval, _power_of_two(max(wanted, one, whole / _POINTS_ALL)))


def _power_of_two(interval: float) -> float:
    return FINE * 2.0 ** math.ceil(math.log2(interval / FINE) - 1e-9)


def _span(loss: Loss) -> float:
    """How far the loss of one release reaches."""
    if loss.family == "bounded":
        return loss.scale
    reach = 1.0 / loss.scale if loss.family == "laplace" else 0.5 / loss.scale**2 + _TAIL / loss.scale
    return reach if reach > 500 else math.log1p(loss.rate * math.expm1(reach))


def _typical(loss: Loss) -> float:
    """The usual loss of one release; randomized response takes two values, which the grid only shifts."""
    return math.inf if loss.family == "bounded" else loss.rate / loss.scale


def _rough(steps: Counted, delta: float) -> float:
    """An order of magnitude of epsilon, from few Renyi orders or from adding up."""
    rough = [
        (ReleaseTerms(renyi=_nearest_renyi(step), relation=step.relation), count) for step, count in steps
    ]
    known = [(step, count) for step, count in rough if step.renyi is not None]
    quick = compute_epsilon(_ROUGH_ORDERS, renyi_curve(known, _ROUGH_ORDERS), delta)[0] if known else 0.0
    rest = sum(
        _span(step.loss) * count for step, count in steps if _nearest_renyi(step) is None and step.loss
    )
    return float(quick) + min(rest, 10.0)


def _nearest_renyi(step: ReleaseTerms) -> DpEvent | None:
    loss = step.loss
    if step.renyi is None and loss is not None and loss.family == "gaussian":
        return PoissonSampledDpEvent(loss.rate, GaussianDpEvent(loss.scale / 2))
    return step.renyi


def renyi_curve(steps: Counted, orders: Sequence[float] | None = None) -> np.ndarray:
    """Renyi divergence of all steps at each order; an order that failed numerically is infinite.

    The library itself would read a negative divergence as epsilon 0.
    """
    total = np.zeros(len(orders) if orders is not None else len(RdpAccountant().orders))
    for step, count in steps:
        assert step.renyi is not None
        total += count * _one_curve(step.renyi, step.relation, None if orders is None else tuple(orders))
    return total


def _one_curve(event: DpEvent, relation: NeighboringRelation, orders: tuple[float, ...] | None) -> np.ndarray:
    def compute() -> np.ndarray:
        one = RdpAccountant(orders, relation).compose(event).rdp
        return np.where(np.isnan(one) | (one < 0), np.inf, one + _ROUNDING)

    return _once(_CURVES, _MOST_CURVES, (repr(event), relation, orders), compute)


def epsilon_rdp(
    steps: Counted, delta: float, legacy: bool = False, orders: Sequence[float] | None = None
) -> float:
    """Epsilon of steps that all have a Renyi bound; `legacy` converts as Mironov 2017, for old tables."""
    left = delta - sum(step.delta * count for step, count in steps)
    if left <= 0:
        return math.inf
    curve, known = renyi_curve(steps, orders), RdpAccountant(orders).orders
    if legacy:
        return float(max(0.0, np.min(curve - math.log(left) / (known - 1))))
    return float(compute_epsilon(known, curve, left)[0])
