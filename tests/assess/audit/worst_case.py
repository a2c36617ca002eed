"""The distinguishing game against one mechanism, many runs at once, and the claims and bugs it is played with.

A coordinate of a sum gets noise of its own, so one call with `runs` coordinates is `runs` independent runs
with one coordinate each. The client in question sends the worst it can; the others do not matter and send
nothing.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from dp_accounting import GaussianDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant

from fedsynth.privacy.banded import coefficients
from fedsynth.research.error_bounds import bound_from_scores
from fedsynth.rng import Rng

CONFIDENCE = 1 - 1e-5  # how rarely a sound mechanism may fail the suite by chance
DELTA = 1e-2
ONE = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class Bug:
    """What is wrong with what runs, while the claim stays that of the sound mechanism."""

    name: str = "sound"
    copies: float = 1.0  # of the client's message in the sum
    clipped: bool = True


SOUND = Bug()
NO_CLIP = Bug("clip missing", clipped=False)
TWICE = Bug("client counted twice", copies=2.0)


def claim(event, delta=DELTA):
    if isinstance(event, GaussianDpEvent):  # at once: some files ask when every worker reads them
        return get_epsilon_gaussian(event.noise_multiplier, delta)
    accountant = PLDAccountant()
    accountant.compose(event)
    return accountant.get_epsilon(delta)


def message(mechanism, state, bug):
    """What arrives from a client that tries to send ten times the bound."""
    attempt = torch.full((1, 1), 10.0 * mechanism.clip.bound)
    sent = mechanism.privatize(attempt, state, Rng(), ONE)[0].double()
    if not bug.clipped:
        sent[0] = attempt
    return sent * bug.copies


def central_scores(mechanism, present, bug, runs):
    sent = message(mechanism, mechanism.init(), bug) * present
    return mechanism.estimate(sent.expand(runs), 1.0, mechanism.init(), Rng())[0].numpy()


@lru_cache(maxsize=8)
def adaptive_scores(mechanism, present, bug, runs):
    """The log-likelihood ratio of update and bit; the bit is read off the move of the clip."""
    state = mechanism.init()
    sent = message(mechanism, state, bug) * present
    sound = mechanism.clip.bound * mechanism.update_multiplier
    scores = []
    for _ in range(runs):
        mean, after = mechanism.estimate(sent, 1000.0, state, Rng())
        moved = np.log(float(after["clip"]) / mechanism.clip.bound) / mechanism.learning_rate
        bit = 1000.0 * (mechanism.quantile - 0.5 - moved)
        update = 1000.0 * float(mean)
        weight = 0.5 / max(mechanism.bit_scale, 1e-2) ** 2
        scores.append(update * mechanism.clip.bound / sound**2 - bit * weight)
    return np.array(scores)


def banded_scores(mechanism, present, bug, runs, when):
    """A matched filter over the rows of C x + z, which follow from the public estimates."""
    rounds, band = max(when) + mechanism.separation, coefficients(mechanism.separation)
    sent = message(mechanism, mechanism.init(), bug) * present
    state, values, score = mechanism.init(), [], np.zeros(runs)
    for version in range(rounds):
        total = (sent if version in when else sent * 0).expand(runs)
        mean, state = mechanism.estimate(total, 1.0, state, Rng())
        values.insert(0, mean.numpy())
        row = sum(c * value for c, value in zip(band, values, strict=False))
        score += row * sum(band[version - t] for t in when if 0 <= version - t < len(band))
    return score


def local_scores(mechanism, value, runs):
    x = torch.full((runs, 1), 10.0 * mechanism.clip.bound) * value
    return mechanism.privatize(x, {}, Rng(), np.arange(runs))[:, 0].numpy()


def proven(with_client, without, delta=DELTA, confidence=CONFIDENCE):
    return bound_from_scores(with_client, without, delta, confidence)
