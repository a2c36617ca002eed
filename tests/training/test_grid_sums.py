"""Sums of records as they leave their site: with a share of noise, with their own, or as one sum without any."""

import math

import numpy as np
import pytest
import torch

from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.local import LocalRecords
from fedsynth.privacy.none import NoPrivacy
from fedsynth.rng import Rng
from fedsynth.training.grid_sums import grid_steps, released_sums, sums_together
from fedsynth.transport.ring import Parties
from noise_scale import fits

CELLS = 3000
CLIP = Clip(3.0)
IDS = np.array([4, 7])


def shared(noise):
    return DistributedGaussian(
        CLIP, noise, CELLS, Parties(2, 2), 1000, 31, rotate=False, unit="record", whole=True
    )


TOTALS = torch.stack([torch.arange(CELLS), 5 * torch.ones(CELLS)]).double()


def test_who_adds_noise_of_its_own_is_not_summed_before():
    own = (LocalRecords(CLIP, 1.0), shared(1.0))
    open_ = (CentralGaussian(CLIP, 1.0, "record"), NoPrivacy())
    assert [sums_together(one) for one in (*own, *open_)] == [False, False, True, True]


def test_steps_are_those_of_the_grid_that_noise_is_on():
    assert grid_steps(shared(1.0)) == shared(1.0).steps
    for mechanism in (CentralGaussian(CLIP, 1.0, "record"), LocalRecords(CLIP, 1.0)):
        assert grid_steps(mechanism) == 3.0 / CLIP.step == 1.5 * 2**20
    assert grid_steps(NoPrivacy()) == 2**20


def test_a_trusted_server_gets_one_exact_sum():
    one = released_sums(CentralGaussian(CLIP, 1.0, "record"), TOTALS, IDS, Rng())
    assert torch.equal(one, TOTALS.sum(0, keepdim=True) * CLIP.step)
    plain = released_sums(NoPrivacy(), TOTALS, IDS, Rng())
    assert torch.equal(plain, TOTALS.sum(0, keepdim=True) / 2**20)


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_who_trusts_nobody_adds_all_of_the_noise(noise):
    sent = released_sums(LocalRecords(CLIP, noise), TOTALS, IDS, Rng())
    assert sent.shape == (2, CELLS)
    for row in (sent - TOTALS * CLIP.step).numpy():
        assert fits(row, 3.0 * noise) and not fits(row, 3.0 * noise * 0.9)
    both = (sent - TOTALS * CLIP.step).numpy()
    assert abs(np.corrcoef(both)[0, 1]) < 0.1  # each its own


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_a_site_of_several_adds_its_share(noise):
    mechanism = shared(noise)
    ring = mechanism.wire(CELLS)
    sent = released_sums(mechanism, TOTALS, IDS, Rng())
    rows = [(ring.centered(one.long()) - total).numpy() for one, total in zip(sent, TOTALS, strict=True)]
    share = mechanism.share / mechanism.grid
    assert share >= noise * mechanism.steps and math.isclose(share, noise * mechanism.steps, rel_tol=0.01)
    assert all(fits(row, share) and not fits(row, share * 0.9) for row in rows)


def test_a_seeded_sum_can_be_drawn_again_site_by_site():
    for mechanism in (LocalRecords(CLIP, 1.0), shared(1.0)):
        whole = released_sums(mechanism, TOTALS, IDS, Rng(3))
        apart = [released_sums(mechanism, TOTALS[[at]], IDS[[at]], Rng(3)) for at in (0, 1)]
        assert torch.equal(whole, torch.cat(apart))
