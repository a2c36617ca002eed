"""Privacy loss distributions with the library's numbers and none of its loops: repeated, and read at many epsilons."""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from fedsynth.late import fft

_TAIL_MASS = 1e-15  # the library's own default: what may be cut off, and is added to the infinite loss
_FEW = pld_pmf._MAX_PMF_SPARSE_SIZE  # losses: so few stay a dictionary, as in the library
_COUNTS = 64  # with so many releases two losses are no longer few
_ORDERS = 20  # of the moments in the bound on the tails, on each side, as in the library


def self_composed(loss: PrivacyLossDistribution, count: int) -> PrivacyLossDistribution:
    """The distribution of a release that happens `count` times."""
    halves = [loss._pmf_remove] if loss._symmetric else [loss._pmf_remove, loss._pmf_add]
    return PrivacyLossDistribution(*(_pmf_composed(half, count) for half in halves))


def together(first: PrivacyLossDistribution, second: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """The distribution of two releases, as the library composes them, without its import of scipy.signal."""
    halves = [(first._pmf_remove, second._pmf_remove)]
    if not (first._symmetric and second._symmetric):
        halves.append((first._pmf_add, second._pmf_add))
    return PrivacyLossDistribution(*(_pmfs_together(*half) for half in halves))


def _pmfs_together(first: pld_pmf.PLDPmf, second: pld_pmf.PLDPmf) -> pld_pmf.PLDPmf:
    sparse = isinstance(first, pld_pmf.SparsePLDPmf) and isinstance(second, pld_pmf.SparsePLDPmf)
    if sparse and first.size * second.size <= _FEW:
        return first.compose(second, _TAIL_MASS)
    one, other = first.to_dense_pmf(), second.to_dense_pmf()
    one.validate_composable(other)
    masses, infinite = _convolved(one._probs, other._probs), (one._infinity_mass, other._infinity_mass)
    start, stop = _cut(masses, _TAIL_MASS / 2), len(masses) - _cut(masses[::-1], _TAIL_MASS / 2)
    stop = max(stop, start + 1)
    kept = masses[start:stop].copy()
    kept[0] += masses[:start].sum()  # pessimistic, as all distributions here: small losses are rounded up
    return pld_pmf.DensePLDPmf(
        one._discretization,
        one._lower_loss + other._lower_loss + start,
        kept,
        sum(infinite) - math.prod(infinite) + masses[stop:].sum(),
        one._pessimistic_estimate,
    )


def _convolved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if min(len(first), len(second)) == 1:
        return np.asarray(first) * np.asarray(second)
    length = len(first) + len(second) - 1
    fast = fft.next_fast_len(length, True)
    return np.asarray(fft.irfft(fft.rfft(first, fast) * fft.rfft(second, fast), fast)[:length])


def _cut(masses: np.ndarray, most: float) -> int:
    """How many of the first masses add up to no more than `most`."""
    return int(np.searchsorted(np.maximum.accumulate(np.cumsum(masses)), most, side="right"))


def _pmf_composed(pmf: pld_pmf.PLDPmf, count: int) -> pld_pmf.PLDPmf:
    few = isinstance(pmf, pld_pmf.SparsePLDPmf) and pmf.size ** min(count, _COUNTS) <= _FEW
    return pmf.self_compose(count) if few else _dense_composed(pmf.to_dense_pmf(), count)


def _dense_composed(pmf: pld_pmf.DensePLDPmf, count: int) -> pld_pmf.DensePLDPmf:
    probabilities = pmf._probs
    lower, upper = tail_bounds(probabilities, count)
    length = upper - lower + 1
    fast = fft.next_fast_len(max(length, len(probabilities)))
    cycle = np.real(fft.ifft(fft.fft(probabilities, fast) ** count))
    infinite = _TAIL_MASS - math.expm1(count * math.log1p(-pmf._infinity_mass))
    return pld_pmf.DensePLDPmf(
        pmf._discretization,
        pmf._lower_loss * count + lower,
        np.roll(cycle, -lower)[:length],
        infinite,
        pmf._pessimistic_estimate,
    )


def tail_bounds(probabilities: np.ndarray, count: int) -> tuple[int, int]:
    """The first and last place of the `count`-fold convolution outside of which there is next to no mass.

    The library's Chernoff bound. Exponents lie in [-20, 20], so that the moments need no logarithms on the way: one
    exponential for all forty.
    """
    size = len(probabilities)
    lower, upper = 0, (size - 1) * count
    base = np.exp(np.arange(size) / size)
    for sign, step in ((1, base), (-1, 1 / base)):
        weighted = np.array(probabilities, dtype=np.float64)
        for order in range(1, _ORDERS + 1):
            weighted *= step
            with np.errstate(divide="ignore"):
                moment = float(np.log(weighted.sum()))
            bound = (count * moment + math.log(2 / _TAIL_MASS)) / (sign * order / size)
            if math.isfinite(bound) and sign > 0:
                upper = min(upper, math.ceil(bound))
            elif math.isfinite(bound):
                lower = max(lower, math.floor(bound))
    return lower, upper


def deltas_of(loss: PrivacyLossDistribution, epsilons: np.ndarray) -> np.ndarray:
    """The delta of a distribution at each epsilon (not below 0), by the library's formula.

    It is the mass above epsilon less what the neighbor has there; both are added up once for all epsilons, from the
    rare large losses down, so that small tails keep their digits.
    """
    halves = [loss._pmf_remove] if loss._symmetric else [loss._pmf_remove, loss._pmf_add]
    return np.maximum.reduce([_half_deltas(half.to_dense_pmf(), epsilons) for half in halves])


def _half_deltas(pmf: pld_pmf.DensePLDPmf, epsilons: np.ndarray) -> np.ndarray:
    losses = (np.arange(pmf.size) + pmf._lower_loss) * pmf._discretization
    first = int(np.searchsorted(losses, 0.0, side="right"))
    above, masses = losses[first:][::-1], pmf._probs[first:][::-1]
    mass = np.concatenate([[0.0], np.cumsum(masses)])
    neighbor = np.concatenate([[0.0], np.cumsum(masses * np.exp(-above))])
    counts = len(above) - np.searchsorted(losses[first:], epsilons, side="right")
    return np.asarray(pmf._infinity_mass + mass[counts] - np.exp(epsilons) * neighbor[counts])
