"""Worst-case neighbors, many runs: no mechanism leaks more than it claims, and each planted bug is found."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from worst_case import (
    NO_CLIP,
    SOUND,
    TWICE,
    adaptive_scores,
    banded_scores,
    central_scores,
    claim,
    local_scores,
    proven,
)

from fedsynth.privacy.banded import BandedGaussian
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian
from fedsynth.privacy.signds import SignDS
from fedsynth.research.adaptive import AdaptiveGaussian
from fedsynth.rng import Rng

RUNS = 150_000
CALLS = 6_000  # where a run is a call of its own

CENTRAL = CentralGaussian(Clip(0.5), noise_multiplier=1.0)
ADAPTIVE = AdaptiveGaussian(Clip(0.5), noise_multiplier=1.0, bit_share=0.3)
BANDED = BandedGaussian(Clip(0.5), noise_multiplier=2.0, separation=4, participations=3)
LOCAL = LocalGaussian(Clip(0.5), noise_multiplier=2.0)
APART = (0, 4, 8)


def halved(mechanism):
    return replace(mechanism, noise_multiplier=mechanism.noise_multiplier / 2)


def central_bound(mechanism, bug=SOUND):
    return proven(*(central_scores(mechanism, present, bug, RUNS) for present in (1, 0)))


def adaptive_bound(mechanism, bug=SOUND):
    present = adaptive_scores(mechanism, 1, bug, CALLS)
    # fewer runs, so less confidence; a sound one stays so far under the claim that none is needed
    return proven(present, adaptive_scores(mechanism, 0, SOUND, CALLS), confidence=0.999)


def banded_bound(mechanism, bug=SOUND, when=APART):
    return proven(*(banded_scores(mechanism, present, bug, RUNS // 3, when) for present in (1, 0)))


def local_bound(mechanism, values):
    return proven(*(local_scores(mechanism, value, RUNS) for value in values))


def test_central_gaussian_keeps_its_claim():
    assert 0.6 * claim(CENTRAL.release.event) < central_bound(CENTRAL) < claim(CENTRAL.release.event)


@pytest.mark.parametrize("bug", [NO_CLIP, TWICE], ids=lambda bug: bug.name)
def test_a_bug_in_the_sum_of_central_gaussian_is_found(bug):
    assert central_bound(CENTRAL, bug) > claim(CENTRAL.release.event)


def test_halved_noise_of_central_gaussian_is_found():
    assert central_bound(halved(CENTRAL)) > claim(CENTRAL.release.event)


def test_local_gaussian_keeps_its_claim_against_zero_and_against_any_other_input():
    assert local_bound(LOCAL, (1, 0)) < claim(GaussianDpEvent(2.0))
    between_any_two = local_bound(LOCAL, (1, -1))
    assert between_any_two < claim(GaussianDpEvent(1.0))
    assert between_any_two > claim(GaussianDpEvent(2.0))  # zero-out's claim would be false for replacing


@dataclass(frozen=True)
class _Unclipped(LocalGaussian):
    def privatize(self, x, state, rng, ids):
        return x + super().privatize(torch.zeros_like(x), state, rng, ids)


@dataclass(frozen=True)
class _SentTwice(LocalGaussian):
    def privatize(self, x, state, rng, ids):
        first, second = (super(_SentTwice, self).privatize(x, state, Rng(), ids) for _ in range(2))
        return first + second


@pytest.mark.parametrize(
    "broken",
    [halved(LOCAL), _Unclipped(LOCAL.clip, 2.0), _SentTwice(LOCAL.clip, 2.0)],
    ids=["noise halved", "clip missing", "sent twice"],
)
def test_a_bug_in_local_gaussian_is_found(broken):
    values = (1, -1)
    assert local_bound(broken, values) > claim(GaussianDpEvent(1.0))


def test_adaptive_gaussian_keeps_its_claim():
    assert adaptive_bound(ADAPTIVE) < claim(ADAPTIVE.release.event)


@dataclass(frozen=True)
class _FreeBits(AdaptiveGaussian):
    @property
    def bit_scale(self):
        return 0.0


@pytest.mark.parametrize("bug", [NO_CLIP, TWICE], ids=lambda bug: bug.name)
def test_a_bug_in_the_sum_of_adaptive_gaussian_is_found(bug):
    assert adaptive_bound(ADAPTIVE, bug) > claim(ADAPTIVE.release.event)


def test_halved_noise_of_adaptive_gaussian_is_found():
    assert adaptive_bound(halved(ADAPTIVE)) > claim(ADAPTIVE.release.event)


def test_bits_without_noise_are_found():
    assert adaptive_bound(_FreeBits(Clip(0.5), 1.0, bit_share=0.3)) > claim(ADAPTIVE.release.event)


def test_banded_gaussian_keeps_the_claim_of_a_whole_run():
    assert 0.5 * claim(BANDED.run_event) < banded_bound(BANDED) < claim(BANDED.run_event)


@pytest.mark.parametrize("bug", [NO_CLIP, TWICE], ids=lambda bug: bug.name)
def test_a_bug_in_the_sums_of_banded_gaussian_is_found(bug):
    assert banded_bound(BANDED, bug) > claim(BANDED.run_event)


def test_halved_noise_of_banded_gaussian_is_found():
    assert banded_bound(halved(BANDED)) > claim(BANDED.run_event)


def test_a_client_that_comes_back_too_early_is_found():
    mechanism = BandedGaussian(Clip(0.5), noise_multiplier=2.5, separation=6, participations=6)
    assert banded_bound(mechanism, when=range(6)) > claim(mechanism.run_event)


def signds_scores(mechanism, x, runs=RUNS):
    """1 where the message is the one whose probability differs most: the first index, with sign +1."""
    sent = mechanism.privatize(torch.tensor(x).expand(runs, -1), {}, Rng(), np.arange(runs))
    return (sent == 1).any(dim=1).numpy().astype(float)


def signds_bound(mechanism):
    likely, unlikely = [3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]
    return proven(signds_scores(mechanism, likely), signds_scores(mechanism, unlikely), delta=0.0)


@pytest.mark.parametrize("count", [1, 2])
def test_signds_keeps_its_claim(count):
    mechanism = SignDS(1.0, top=1, count=count)
    bound = signds_bound(mechanism)
    assert bound < mechanism.release.event.epsilon and (count > 1 or bound > 0.8)


@dataclass(frozen=True)
class _LargestFirst(SignDS):
    def privatize(self, x, state, rng, ids):
        """The order of the indices shows the size of the coordinates."""
        sent = super().privatize(x, state, rng, ids)
        order = x.gather(1, sent.abs() - 1).argsort(dim=1, descending=True)
        return sent.gather(1, order)[:, :1]


@dataclass(frozen=True)
class _TwoMessages(SignDS):
    def privatize(self, x, state, rng, ids):
        both = [super(_TwoMessages, self).privatize(x, state, Rng(), ids) for _ in range(2)]
        return torch.where((both[0] == 1) & (both[1] == 1), 1, 2)


@pytest.mark.parametrize(
    "broken",
    [SignDS(2.0, top=1), _TwoMessages(1.0, top=1), _LargestFirst(1.0, top=1, count=2)],
    ids=["epsilon doubled", "sent twice", "order of indices"],
)
def test_a_bug_in_signds_is_found(broken):
    assert signds_bound(broken) > 1.0
