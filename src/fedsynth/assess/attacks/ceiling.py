"""The most that a privacy claim allows any attacker: the line that no honest result may cross.

Guessing who was in the data is a test between two hypotheses. An (epsilon, delta) claim bounds the true positives
of any test by its false positives (Kairouz, Oh and Viswanath 2015; Dong, Roth and Su 2019). A claim made of many
pairs, such as the whole privacy profile of the releases, allows the least of what its pairs allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from dp_accounting import DpEvent

from fedsynth.errors import BadInput
from fedsynth.privacy.accountant import COARSE, answer_steps, composed, interval_for, quiet
from fedsynth.privacy.loss_distribution import deltas_of
from fedsynth.privacy.pairs import steps_of

_EPSILONS = np.concatenate([np.linspace(0.0, 4.0, 41), np.linspace(4.25, 16.0, 48)])
_DELTAS = np.geomspace(1e-6, 0.5, 30)  # of a profile that Renyi accounting gives
_PROFILE_DELTA = 1e-5  # the delta for which the grid of a profile is chosen


@dataclass(frozen=True)
class Ceiling:
    """The best that any attack can do against a claim; `pairs` are (epsilon, delta), all of which hold.

    >>> ceiling = Ceiling.of(1.0, 1e-5)
    >>> round(float(ceiling.true_positive_rate(0.01)), 4), round(ceiling.auc, 4), round(ceiling.accuracy, 4)
    (0.0272, 0.7311, 0.7311)
    """

    pairs: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        for epsilon, delta in self.pairs:
            if not (epsilon >= 0 and 0 <= delta <= 1):
                raise BadInput(
                    f"epsilon={epsilon:g}, delta={delta:g}: expected epsilon >= 0 and delta in [0, 1]"
                )

    @classmethod
    def of(cls, epsilon: float, delta: float, *, swapped: bool = False) -> Ceiling:
        """The ceiling of one claim.

        `swapped` is for attacks that compare a member with another who is not in, where the claim is about adding
        or removing one: there the data differ twice, and so may the results (group privacy).
        """
        if swapped:
            return cls(((2 * epsilon, min(1.0, delta * (1.0 + math.exp(min(epsilon, 700.0))))),))
        return cls(((epsilon, delta),))

    @classmethod
    def of_event(cls, event: DpEvent, adjacency: str = "add-remove") -> Ceiling:
        """The ceiling of a release's whole privacy profile, which is lower than that of any one pair.

        >>> from dp_accounting import GaussianDpEvent
        >>> round(Ceiling.of_event(GaussianDpEvent(1.0)).auc, 2)  # exactly: the normal distribution at 1 / sqrt(2)
        0.76
        """
        steps = steps_of(event, adjacency)
        if any(step.loss is None for step, _ in steps):
            spent = [answer_steps(steps, float(delta)).epsilon for delta in _DELTAS]
            return cls(tuple(zip(spent, _DELTAS.tolist(), strict=True)))
        with quiet():
            interval = interval_for(steps, _PROFILE_DELTA, COARSE)
            deltas = deltas_of(composed(steps, interval), _EPSILONS)
        inside = np.clip(deltas, 0.0, 1.0)  # sums of many small numbers can come out just above 1
        return cls(tuple(zip(_EPSILONS.tolist(), inside.tolist(), strict=True)))

    def true_positive_rate(self, false_positive_rate: float | np.ndarray) -> np.ndarray:
        """The largest share of members found, at this share of others wrongly taken for members."""
        slopes, heights = self._lines()
        rates = np.asarray(false_positive_rate, dtype=np.float64)
        return np.minimum(1.0, (slopes * rates[..., None] + heights).min(axis=-1))

    def false_positive_rate(self, true_positive_rate: float) -> float:
        """The smallest share of others wrongly taken for members, at this share of members found.

        >>> round(Ceiling.of(1.0, 0.0).false_positive_rate(0.0272), 2)
        0.01
        """
        slopes, heights = self._rising
        return max(0.0, float(((true_positive_rate - heights) / slopes).max()))

    @cached_property
    def _rising(self) -> tuple[np.ndarray, np.ndarray]:
        """The lines that rise, without the line at 1."""
        slopes, heights = self._lines()
        return slopes[:-1], heights[:-1]

    @property
    def advantage(self) -> float:
        """The largest difference between true and false positives: (e^epsilon - 1 + 2 delta) / (e^epsilon + 1)."""
        rates = self._corners()
        return float(max(0.0, (self.true_positive_rate(rates) - rates).max()))

    @property
    def accuracy(self) -> float:
        """The largest share of right guesses, where half of those asked about are members."""
        return (1.0 + self.advantage) / 2.0

    @property
    def auc(self) -> float:
        """The largest area under the curve of true against false positives."""
        rates = self._corners()
        return float(np.trapezoid(self.true_positive_rate(rates), rates))

    def to_dict(self, points: int = 41) -> dict[str, Any]:
        """Numbers for a report, with the curve at `points` false positive rates."""
        rates = np.unique(np.concatenate([np.linspace(0.0, 1.0, points), [0.001, 0.01]]))
        return {
            "auc": self.auc,
            "accuracy": self.accuracy,
            "tpr_at_1_percent": float(self.true_positive_rate(0.01)),
            "false_positive_rate": rates.tolist(),
            "true_positive_rate": self.true_positive_rate(rates).tolist(),
        }

    def _lines(self) -> tuple[np.ndarray, np.ndarray]:
        """The claim as straight lines over the false positive rate: two for each pair, and the line at 1."""
        epsilons, deltas = np.array(self.pairs).T
        with np.errstate(over="ignore"):
            steep = np.minimum(np.exp(epsilons), 1e300)
        flat = np.exp(-epsilons)
        slopes = np.concatenate([steep, flat, [0.0]])
        return slopes, np.concatenate([deltas, 1.0 - flat * (1.0 - deltas), [1.0]])

    def _corners(self) -> np.ndarray:
        """All rates at which two lines meet: between them the ceiling is straight, so that sums are exact."""
        slopes, heights = self._lines()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            meet = (heights[None, :] - heights[:, None]) / (slopes[:, None] - slopes[None, :])
        inside = meet[np.isfinite(meet) & (meet > 0) & (meet < 1)]
        return np.unique(np.concatenate([[0.0, 1.0], inside]))
