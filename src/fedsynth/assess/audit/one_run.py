"""The one-run audit: many canaries in a single training, each in or out by a coin, and what the guesses prove.

Nothing is assumed about the noise of different canaries: it may be the same for all of them. Guesses are made for the
canaries whose scores are most extreme. How many right ones a claim allows is counted in two ways: against the
trade-off curve of the claimed releases (Mahloujifar, Melis and Chaudhuri 2024), which is the bound, and against one
(epsilon, delta) pair (Steinke, Nasr and Jagielski 2023), which is reported beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from dp_accounting import DpEvent

from fedsynth.assess.attacks.audit_bound import EpsilonBound, bound_from_one_run
from fedsynth.assess.audit.canary import CanaryObservations, log_likelihood, rate_and_noise
from fedsynth.assess.audit.noise_family import NoiseFamily, with_noise
from fedsynth.privacy.events import EpsilonDeltaDpEvent
from fedsynth.rng import Rng

ONE_RUN = "one run, f-DP (Mahloujifar et al. 2024)"
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)  # of the canaries that may be guessed
_BUG = 0.5  # of the claimed noise: guesses are planned for a bug that halves it
_GRID = 2.0 ** (np.arange(-16, 25) / 8)  # multiples of the claimed noise between which plans are compared
_REHEARSED = (4000, 50_000)  # canaries at least and at most: as many as are drawn quickly
_REHEARSED_SCORES = 2e7

# from a share of members found to the least share of others that are wrongly taken for members
LeastFalse = Callable[[float], float]


class GuessCounts(NamedTuple):
    """How many canaries are guessed to be in, those with the highest scores, and how many to be out."""

    highest: int
    lowest: int

    @property
    def guesses(self) -> int:
        """All guesses."""
        return self.highest + self.lowest

    def correct(self, observed: CanaryObservations) -> int:
        """How many of them are right."""
        ranked = np.argsort(observed.scores, kind="stable")
        into, out = ranked[len(ranked) - self.highest :], ranked[: self.lowest]
        return int(observed.inside[into].sum() + (~observed.inside[out]).sum())

    def excludes(self, least_false: LeastFalse, correct: int, canaries: int, level: float) -> bool:
        """Whether this trade-off curve does not let so many guesses be right with a chance of `level`."""
        curve = least_false if self.lowest else (lambda rate: least_false(2 * rate) / 2)
        return excluded(curve, correct, self.guesses, canaries, level)


def one_run(
    observed: CanaryObservations, family: NoiseFamily, delta: float, confidence: float
) -> EpsilonBound:
    """Bound epsilon from below by guessing the most extreme canaries of one training.

    The bound is the epsilon of the largest noise in the claimed family that cannot have let so many guesses be right.
    That it lies above the claim does not depend on the family; how far above it lies does.
    """
    canaries, level = len(observed.inside), 1.0 - confidence
    plan = planned(canaries, family, level)
    correct = plan.correct(observed)

    def allowed(factor: float) -> bool:
        return not plan.excludes(family.curve(factor).false_positive_rate, correct, canaries, level)

    factor = family.least_excluded(allowed)
    detail = {
        "canaries": canaries,
        "guesses": plan.guesses,
        "correct": correct,
        "epsilon_delta_form": bound_from_one_run(correct, plan.guesses, canaries, delta, confidence),
    }
    if factor is None:
        return EpsilonBound(ONE_RUN, 0.0, confidence, detail)
    return EpsilonBound(ONE_RUN, family.epsilon(factor, delta), confidence, {**detail, "noise": factor})


def planned(canaries: int, family: NoiseFamily, level: float) -> GuessCounts:
    """How to guess: the plan that would prove most about half of the claimed noise.

    It follows from public numbers alone, by a rehearsal with simulated scores, so that the bound needs no correction
    for a choice among several plans. Only the highest scores are guessed where the lowest tell little, because a
    canary may never have been drawn.
    """
    rehearsal = _rehearsed(family)
    sizes = sorted({max(1, round(share * canaries / 2)) for share in _SHARES})
    plans = [GuessCounts(size, size) for size in sizes] + [GuessCounts(size, 0) for size in sizes]

    def least_noise(plan: GuessCounts) -> float:
        """The smallest noise on the grid that the plan would exclude if all went as rehearsed, less some luck."""
        scaled = GuessCounts(*(round(size * len(rehearsal.inside) / canaries) for size in plan))
        rate = scaled.correct(rehearsal) / max(1, scaled.guesses)
        unlucky = math.floor(plan.guesses * rate - 2 * math.sqrt(plan.guesses * rate * (1 - rate)))
        low, high = 0, len(_GRID)
        while low < high:
            middle = (low + high) // 2
            curve = family.curve(float(_GRID[middle])).false_positive_rate
            out = plan.excludes(curve, unlucky, canaries, level)
            low, high = (low, middle) if out else (middle + 1, high)
        return low

    return min(plans, key=least_noise)


def _rehearsed(family: NoiseFamily) -> CanaryObservations:
    """Scores of canaries in half of the claimed noise; anybody can draw them."""
    draw = Rng(0).at("rehearsal").numpy()
    size = int(np.clip(_REHEARSED_SCORES / family.count, *_REHEARSED))
    inside = draw.random(size) < 0.5
    swapped = family.adjacency == "replace-one"
    event: DpEvent = with_noise(family.event, _BUG)
    if isinstance(event, EpsilonDeltaDpEvent):
        right = draw.random(size) < 1 / (1 + math.exp(-event.epsilon * family.count))
        return CanaryObservations(inside, np.where(inside == right, 1.0, -1.0) + draw.random(size))
    rate, noise = rate_and_noise(event)
    signs = np.where(inside, 1.0, -1.0 if swapped else 0.0)
    scores = np.zeros(size)
    for _ in range(family.count):
        drawn = draw.random(size) < rate
        released = drawn * signs + noise * draw.standard_normal(size)
        scores += log_likelihood(released, family.event, swapped)
    return CanaryObservations(inside, scores)


def excluded(least_false: LeastFalse, correct: int, guesses: int, canaries: int, level: float) -> bool:
    """Whether a mechanism with this trade-off curve lets so many guesses be right with a chance below `level`.

    Let p(i) be the chance of exactly i right guesses. Take R(i) for the mean over canaries of the chance to be guessed
    rightly while at least i guesses are right: the sum of (t / canaries) p(t) over t >= i. Take W(i) for the same of
    wrong guesses. To flip one canary's coin turns its right guess into a wrong one and lowers the number of right
    guesses by one, so W(i - 1) >= least_false(R(i)). If at least `correct` guesses are right with chance `level`, these
    inequalities need a certain chance for each smaller number; if all of them add up to more than 1, the
    assumption is false (Mahloujifar et al. 2024, with abstention). Where all guesses are "in", only half of the
    canaries can be guessed rightly, and the curve holds for twice the chances: W(i - 1) >= least_false(2 R(i)) / 2.
    """
    right, wrong = level * correct / canaries, level * (guesses - correct) / canaries
    everything = guesses / canaries
    for number in range(correct - 1, -1, -1):
        if right + wrong > everything:
            return True
        needed = max(wrong, float(least_false(right)))
        right += number / (guesses - number) * (needed - wrong)
        wrong = needed
    return right + wrong > everything
