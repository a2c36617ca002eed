"""The privacy loss of Gaussian noise: the library's numbers, looked up for all points of the grid at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss


class _Gaussian(GaussianPrivacyLoss):
    """The library's loss, which searches point by point in Python and takes most of a calibration's time so."""

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
        loss = _Gaussian(scale, sampling_prob=rate, adjacency_type=adjacency)
        bounds = loss.connect_dots_bounds()
        assert bounds.epsilon_lower is not None and bounds.epsilon_upper is not None
        lower, upper = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
        deltas = loss.get_delta_for_epsilon(np.arange(lower, upper + 1) * interval)
        halves.append(pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, lower, upper, deltas))
    return PrivacyLossDistribution(*halves)
