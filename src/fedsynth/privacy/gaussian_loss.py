"""The privacy loss of Gaussian noise: the library's numbers, looked up for all points of the grid at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from fedsynth.late import special

_LOG_TAIL = -50  # of the mass that is taken to be an infinite loss, as in the library
_CLOSE = 2.0**-48  # how close epsilon is searched, relative to itself; more than its rounding at a scale of 1
_LEAST = 1e-100  # the least scale that arithmetic is sure about
_FAR = -30.0  # below it, the logarithm of the normal distribution function by its expansion


@dataclass(frozen=True)
class _Normal:
    """Centered noise, as scipy.stats computes it, whose import takes longer than most calibrations."""

    scale: float

    def cdf(self, x: Any) -> Any:
        return special.ndtr(x / self.scale)

    def logcdf(self, x: Any) -> Any:
        return special.log_ndtr(x / self.scale)

    def ppf(self, mass: float) -> float:
        return float(special.ndtri(mass) * self.scale)


class _Gaussian(GaussianPrivacyLoss):
    """The library's loss, which searches point by point in Python and takes most of a calibration's time so."""

    def __init__(
        self, scale: float, rate: float, adjacency: AdjacencyType, *, sensitivity: float = 1.0
    ) -> None:
        self._standard_deviation = scale
        self._gaussian_random_variable = _Normal(scale)
        self._pessimistic_estimate, self._log_mass_truncation_bound = True, _LOG_TAIL
        super(GaussianPrivacyLoss, self).__init__(sensitivity, False, rate, adjacency)

    def get_delta_for_epsilon(self, epsilon: Any) -> np.ndarray:
        """The hockey-stick divergence at each epsilon, by the library's formula."""
        epsilons, rate = np.asarray(epsilon), self.sampling_prob
        removed = self.adjacency_type == AdjacencyType.REMOVE
        losses = epsilons if removed else -epsilons
        reached = losses > (math.log1p(-rate) if rate < 1 else -math.inf)
        deltas = np.where(removed & ~reached, -np.expm1(epsilons), 0.0)
        unsampled = _unsampled(losses[reached], rate) if rate < 1 else losses
        unsampled, shift = (unsampled, 0.0) if removed else (-unsampled, self.sensitivity)
        points = shift + (-0.5 * self.sensitivity - unsampled * self.standard_deviation**2 / self.sensitivity)
        deltas[reached] = self.mu_upper_cdf(points) - np.exp(
            epsilons[reached] + self.mu_lower_log_cdf(points)
        )
        return np.clip(deltas, 0, 1)


def _unsampled(losses: np.ndarray, rate: float) -> np.ndarray:
    """The loss without sampling, log(1 + (exp(loss) - 1) / rate), of losses above log(1 - rate)."""
    edge, inverse = math.log(1 - rate), 1 / rate
    close = np.abs(losses - edge) <= 1e-9 * np.maximum(np.abs(losses), abs(edge))
    whole, rest = losses + np.log(inverse), np.log(inverse - 1)
    if not (whole[~close] > rest).all():
        raise ValueError(f"a loss lies below log(1 - rate) = {edge}, which sampling does not reach")
    unsampled = whole + np.log1p(-np.exp(rest - whole))
    unsampled[losses == 0] = np.log(inverse + (1 - inverse))
    unsampled[close] = -math.inf
    return unsampled


def gaussian_loss(scale: float, rate: float, interval: float) -> PrivacyLossDistribution:
    """The library's pessimistic distribution for noise of this scale and Poisson sampling, on a grid of `interval`.

    Without sampling (rate 1) a client that joins and one that leaves make the same difference.
    """
    ways = (AdjacencyType.REMOVE, AdjacencyType.ADD) if rate < 1 else (AdjacencyType.REMOVE,)
    halves = []
    for adjacency in ways:
        loss = _Gaussian(scale, rate, adjacency)
        bounds = loss.connect_dots_bounds()
        assert bounds.epsilon_lower is not None and bounds.epsilon_upper is not None
        lower, upper = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
        deltas = loss.get_delta_for_epsilon(np.arange(lower, upper + 1) * interval)
        halves.append(pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, lower, upper, deltas))
    return PrivacyLossDistribution(*halves)


def gaussian_epsilon(scale: float, delta: float) -> float:
    """The exact epsilon of noise of this scale without sampling (Balle and Wang 2018, Theorem 8).

    The library's answer but for rounding, of which this is above the truth; and without scipy, whose import takes
    longer than a plan.

    >>> round(gaussian_epsilon(1.0, 1e-5), 6)
    4.377178
    """
    if delta <= 0 or not scale > _LEAST:
        return math.inf
    if _log_delta(scale, 0.0) <= math.log(delta):
        return 0.0
    low, high = 0.0, 1.0
    while _log_delta(scale, high) > math.log(delta):
        low, high = high, 2 * high
    while high - low > _CLOSE * high and low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _log_delta(scale, middle) > math.log(delta) else (low, middle)
    return high * (
        1 + _CLOSE * (1 + scale)
    )  # rounding grows with the scale, since ever closer numbers are subtracted


def _log_delta(scale: float, epsilon: float) -> float:
    """The logarithm of the least delta at epsilon."""
    center = epsilon * scale + 0.5 / scale
    above, below = _log_normal(1 / scale - center), epsilon + _log_normal(-center)
    return above + math.log(-math.expm1(below - above)) if below < above else -math.inf


def _log_normal(x: float) -> float:
    """The logarithm of the normal distribution function.

    >>> _log_normal(0.0), round(_log_normal(-40.0), 6), _log_normal(9.0)
    (-0.6931471805599453, -804.608442, -1.1285884059538...e-19)
    """
    if x > 0:
        return math.log1p(-0.5 * math.erfc(x / math.sqrt(2)))
    if x > _FAR:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2)))
    squared, term, series = x * x, 1.0, 0.0
    for order in range(1, 12, 2):
        series, term = series + term, -term * order / squared
    return -squared / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)
