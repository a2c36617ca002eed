import numpy as np
import pytest
import torch
from noise_scale import fits

from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian
from fedsynth.rng import Rng


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
def test_noise_has_the_stated_scale_for_each_client(rng):
    mechanism = LocalGaussian(Clip(0.5), noise_multiplier=4.0)
    for row in mechanism.privatize(torch.zeros(2, 50_000), {}, rng, np.array([3, 9])):
        assert fits(row, 2.0) and not fits(row, 1.9) and not fits(row, 2.1)


@pytest.mark.parametrize("seed", range(20))
def test_two_inputs_of_a_client_differ_by_at_most_twice_the_bound(seed):
    mechanism = LocalGaussian(Clip(0.7), noise_multiplier=1.0)
    x = torch.randn(2, 9, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed - 9)
    pairs = torch.cat([x, -x[:1], torch.zeros(1, 9)])
    # one client number for all: the seeded noise is the same for each, so that it cancels in the difference
    sent = mechanism.privatize(pairs, {}, Rng(seed), np.zeros(4, dtype=np.int64))
    distances = torch.cdist(sent, sent)
    assert float(distances.max()) <= 1.4 and float(distances[-1].max()) <= 0.7 * (1 + 1e-12)


def test_messages_lie_on_the_grid():
    mechanism = LocalGaussian(Clip(1.0), noise_multiplier=3.0)
    sent = mechanism.privatize(torch.randn(3, 50), {}, Rng(), np.arange(3)) / mechanism.clip.step
    assert torch.equal(sent, sent.round())


def test_chunking_clients_changes_nothing():
    mechanism = LocalGaussian(Clip(1.0), noise_multiplier=3.0)
    x, ids = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), np.array([5, 2, 9, 1, 0, 7])
    whole = mechanism.privatize(x, {}, Rng(4), ids)
    parts = [mechanism.privatize(x[i : i + 2], {}, Rng(4), ids[i : i + 2]) for i in (0, 2, 4)]
    assert torch.equal(whole, torch.cat(parts))


def test_the_cost_goes_to_the_client_without_amplification():
    release = LocalGaussian(Clip(1.0), noise_multiplier=3.0).release
    assert release.trust == "local" and release.event.noise_multiplier == 3.0


def test_the_estimate_is_the_mean_of_the_messages():
    mean, _ = LocalGaussian(Clip(1.0), 3.0).estimate(torch.tensor([4.0, 8.0]), 4.0, {}, Rng())
    assert mean.tolist() == [1.0, 2.0]
