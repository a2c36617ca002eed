import numpy as np
import pytest
import torch
from dp_accounting import NonPrivateDpEvent

from fedsynth.errors import BadInput
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.none import NoPrivacy
from fedsynth.rng import Rng
from noise_scale import fits

IDS = np.arange(5)


def hostile(seed, clients=5, dim=12):
    """Contributions that try to exceed the bound: huge, spiked, tiny, not finite."""
    x = torch.randn(clients, dim, generator=torch.Generator().manual_seed(seed))
    x[0] *= 1e30
    x[1] = torch.eye(dim)[seed % dim] * 7
    x[2, seed % dim] = float("nan")
    return x


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
def test_noise_has_the_stated_scale(rng):
    mechanism = CentralGaussian(Clip(0.3), noise_multiplier=2.0)
    mean, _ = mechanism.estimate(torch.zeros(60_000, dtype=torch.float64), 10.0, {}, rng)
    assert fits(mean * 10, 0.6) and not fits(mean * 10, 0.95 * 0.6) and not fits(mean * 10, 1.05 * 0.6)


@pytest.mark.parametrize("seed", range(20))
def test_one_client_moves_the_sum_by_at_most_the_bound(seed):
    mechanism = CentralGaussian(Clip(0.7, ((4, 0.6), (8, 0.8))), noise_multiplier=1.0)
    messages = mechanism.privatize(hostile(seed), {}, Rng(seed), IDS)
    wire = mechanism.wire(12)
    full = wire.add(wire.zero(), messages, torch.ones(5))
    for left_out in range(5):
        rest = messages[torch.arange(5) != left_out]
        moved = full - wire.add(wire.zero(), rest, torch.ones(4))
        assert float(torch.linalg.vector_norm(moved)) <= 0.7


def test_the_release_and_the_noise_read_the_same_clip():
    mechanism = CentralGaussian(Clip(5.0), noise_multiplier=0.8)
    mean, _ = mechanism.estimate(torch.zeros(40_000, dtype=torch.float64), 1.0, {}, Rng(3))
    assert fits(mean / mechanism.clip.bound, mechanism.release.event.noise_multiplier)
    assert mechanism.release.unit == "client" and mechanism.release.trust == "central"


def test_the_sum_does_not_depend_on_order_or_chunks():
    mechanism = CentralGaussian(Clip(1.1), noise_multiplier=1.0)
    x = torch.randn(999, 7, generator=torch.Generator().manual_seed(1))
    wire, ids = mechanism.wire(7), np.arange(999)
    whole = wire.add(wire.zero(), mechanism.privatize(x, {}, Rng(1), ids), torch.ones(999))
    total = wire.zero()
    for part in x.flip(0).split(13):
        total = wire.add(total, mechanism.privatize(part, {}, Rng(1), ids), torch.ones(len(part)))
    assert torch.equal(whole, total)


def test_a_noisy_sum_lies_on_the_grid_even_if_the_transport_rounded():
    mechanism = CentralGaussian(Clip(1.0), noise_multiplier=1.0)
    mean, _ = mechanism.estimate(torch.rand(50, dtype=torch.float64), 1.0, {}, Rng())
    assert torch.equal(mean / mechanism.clip.step, (mean / mechanism.clip.step).round())


def test_without_noise_it_is_the_clipped_mean_and_says_so():
    mechanism = CentralGaussian(Clip(1.0), noise_multiplier=0.0)
    assert isinstance(mechanism.release.event, NonPrivateDpEvent)
    message = mechanism.privatize(torch.tensor([[3.0, 4.0]]), {}, Rng(), IDS[:1])
    mean, _ = mechanism.estimate(message.sum(0, dtype=torch.float64), 2.0, {}, Rng())
    torch.testing.assert_close(mean, torch.tensor([0.3, 0.4], dtype=torch.float64), atol=1e-5, rtol=0)


def test_noise_of_a_release_is_never_the_same_twice():
    mechanism = CentralGaussian(Clip(1.0), noise_multiplier=1.0)
    total = torch.zeros(9, dtype=torch.float64)
    assert not torch.equal(
        mechanism.estimate(total, 1.0, {}, Rng())[0], mechanism.estimate(total, 1.0, {}, Rng())[0]
    )
    assert torch.equal(
        mechanism.estimate(total, 1.0, {}, Rng(1))[0], mechanism.estimate(total, 1.0, {}, Rng(1))[0]
    )


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_noise_multiplier_that_means_nothing_is_refused(bad):
    with pytest.raises(BadInput, match="noise_multiplier="):
        CentralGaussian(Clip(1.0), noise_multiplier=bad)


def test_no_privacy_is_the_plain_mean_and_states_no_release():
    mechanism = NoPrivacy()
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    wire = mechanism.wire(2)
    total = wire.add(wire.zero(), mechanism.privatize(x, {}, Rng(1), IDS[:2]), torch.ones(2))
    mean, _ = mechanism.estimate(total, 2.0, {}, Rng(1))
    assert mean.tolist() == [2.0, 4.0] and mechanism.release is None


def test_the_ledger_reads_what_was_released():
    assert CentralGaussian(Clip(1.0), 1.0).release.what == "noisy sum of clipped client updates"


def test_the_wire_has_the_reach_of_the_clip_and_is_not_to_be_rounded():
    wire = CentralGaussian(Clip(0.3), 1.0).wire(7)
    assert (wire.dim, wire.reach, wire.as_is) == (7, 0.3, True)
