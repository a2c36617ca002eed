"""One noisy answer before training: how much noise it gets beside the rounds, and who adds it."""

from __future__ import annotations

import math

from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian, LocalRecords
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.task import Task

_LEAST_NOISE = 0.3  # over the clip: less would cost more than any budget has


def answer_noise(share: float, noise_multiplier: float, rate: float, releases: int) -> float:
    """The noise of an answer that takes `share` of a budget whose rest buys training.

    Training is so many `releases` with `noise_multiplier`, each of units that were drawn at `rate`. What releases are
    worth adds up as the inverse square of their noise, so the share is right where the noise is not small.

    >>> answer_noise(0.5, 4.0, rate=1.0, releases=16)
    1.0
    """
    together = noise_multiplier / (rate * math.sqrt(releases))
    return max(_LEAST_NOISE, together * math.sqrt((1 - share) / share))


def noised_once(task: Task, noise_multiplier: float) -> tuple[Mechanism, float]:
    """The mechanism for answers of length 1 at most, and the standard deviation of each number of their sum."""
    if not task.private:
        return NoPrivacy(), 0.0
    if task.trust != "local":
        return CentralGaussian(Clip(1.0), noise_multiplier), noise_multiplier
    own = LocalRecords if task.unit == "record" else LocalGaussian
    return own(Clip(1.0), noise_multiplier), noise_multiplier * math.sqrt(task.clients)
