"""Worst-case neighbors against the shared-out noise: the sum keeps its claim, and each planted bug is found."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from worst_case import claim, proven

from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.quantize import round_within
from fedsynth.rng import Rng
from fedsynth.transport.ring import Parties

RUNS = 100_000
FOUR = DistributedGaussian(Clip(0.5), 1.0, 1, Parties(4, 4), contributions=4, rotate=False)


def scores(mechanism, present, survivors, known=0):
    """Sums in which the first party sends the worst it can; the noise of `known` parties is taken away."""
    x = torch.zeros(RUNS, 1) + present * 10.0 * mechanism.clip.bound
    total = torch.zeros(RUNS, dtype=torch.int64)
    for party in range(survivors - known):
        sent = mechanism.privatize(x if party == 0 else x * 0, mechanism.init(), Rng(), np.arange(RUNS))
        total += sent[:, 0]
    return mechanism.estimate(total, 1.0, mechanism.init(), Rng())[0].numpy()


def bound(mechanism, survivors=4, known=0):
    return proven(*(scores(mechanism, present, survivors, known) for present in (1, 0)))


def test_shared_out_noise_keeps_its_claim_against_the_server_and_the_public():
    stated = claim(FOUR.release.public)
    assert 0.6 * stated < bound(FOUR) < stated


def test_a_participant_who_takes_its_own_noise_away_is_within_the_claim():
    stated = claim(FOUR.release.event)
    assert 0.6 * stated < bound(FOUR, known=1) < stated


@pytest.mark.parametrize("count", [2, 3])
def test_noise_that_does_not_count_a_participant_s_own_share_is_found(count):
    unaware = replace(FOUR, parties=Parties(count, count, largest=0))
    assert bound(unaware, count, known=1) > claim(unaware.release.event)


def test_extra_survivors_cost_less_and_that_claim_holds_too():
    mechanism = replace(FOUR, parties=Parties(6, 4))
    stated = claim(mechanism.cost(6).event)
    assert stated < claim(mechanism.release.event) and 0.6 * stated < bound(mechanism, 6, known=1) < stated


def test_colluders_who_take_their_noise_away_are_within_the_claim():
    mechanism = replace(FOUR, parties=Parties(4, 4, colluders=2))
    stated = claim(mechanism.release.event)
    assert 0.6 * stated < bound(mechanism, 4, known=2) < stated


def test_more_colluders_than_stated_are_found():
    assert bound(FOUR, 4, known=3) > claim(FOUR.release.event)


def test_halved_shares_are_found():
    assert bound(replace(FOUR, noise_multiplier=0.5)) > claim(FOUR.release.public)


def test_fewer_survivors_than_assumed_are_found():
    assert bound(FOUR, survivors=2) > claim(FOUR.release.public)


@dataclass(frozen=True)
class _Coarse(DistributedGaussian):
    """A grid so coarse that rounding matters, and a client whose coins all fall the same way."""

    checked: bool = True

    def __post_init__(self):
        pass

    def rounded(self, x, state, rng, ids):
        scaled = self.scaled(x, 0)
        limit = self.limit if self.checked else 2**40
        return round_within(scaled, limit, lambda attempt: torch.zeros_like(scaled))


@pytest.mark.parametrize("checked", [True, False])
def test_rounding_without_a_look_at_the_norm_is_found(checked):
    mechanism = _Coarse(
        Clip(1.0), 1.0, 2700, Parties(1, 1, largest=0), 1, 8, 1.0, False, wrap=0.5, checked=checked
    )
    runs, worst = 5000, torch.full((1, 2700), 0.9 / 2700**0.5)
    found = []
    for present in (1, 0):
        sent = mechanism.rounded(worst * present, {}, Rng(), np.zeros(1)).expand(runs, -1)
        noisy = mechanism.noised(sent, Rng(), np.arange(runs))
        found.append(mechanism.wire(2700).centered(noisy.to(torch.int64)).sum(1).numpy())
    assert (proven(*found, confidence=0.999) < claim(mechanism.release.event)) == checked
