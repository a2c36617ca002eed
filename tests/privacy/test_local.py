import numpy as np
import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian, LocalRecords
from fedsynth.rng import Rng
from noise_scale import fits


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


def test_the_ledger_reads_what_was_released():
    update, records = LocalGaussian(Clip(1.0), 3.0).release, LocalRecords(Clip(1.0), 3.0).release
    assert (update.what, update.unit) == ("noisy client update", "client")
    assert (records.what, records.unit, records.trust) == ("noisy sum of records", "record", "local")
    assert records.event.noise_multiplier == 3.0


@pytest.mark.parametrize("mechanism", [LocalGaussian, LocalRecords])
@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_noise_multiplier_that_means_nothing_is_refused(mechanism, bad):
    with pytest.raises(BadInput, match="noise_multiplier="):
        mechanism(Clip(1.0), bad)


def test_a_message_stays_within_the_reach_of_its_wire():
    mechanism = LocalGaussian(Clip(0.5), noise_multiplier=4.0)
    wire = mechanism.wire(7)
    assert wire.dim == 7
    assert wire.reach == pytest.approx(0.5 + 9 * (4.0 * 0.5 + mechanism.clip.step), rel=1e-12)
    assert LocalRecords(Clip(0.5), 4.0).wire(7).dim == 7


def test_a_record_is_clipped_before_it_is_summed():
    mechanism = LocalRecords(Clip(0.5), noise_multiplier=0.0)
    rows = mechanism.privatize(torch.tensor([[3.0, 4.0], [0.1, 0.0]]), {}, Rng(1), np.array([0, 0]))
    assert rows.dtype == torch.float64 and torch.equal(
        rows / mechanism.clip.step, (rows / mechanism.clip.step).round()
    )
    torch.testing.assert_close(rows, torch.tensor([[0.3, 0.4], [0.1, 0.0]]).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
def test_a_sealed_sum_is_the_sum_plus_each_clients_own_noise(rng):
    mechanism = LocalRecords(Clip(0.5), noise_multiplier=4.0)
    sums = torch.full((2, 50_000), 100.0, dtype=torch.float64)
    sealed = mechanism.seal(sums, rng, np.array([3, 9])) - 100.0
    for row in sealed:
        assert fits(row, 2.0) and not fits(row, 1.9) and not fits(row, 2.1)
    assert abs(float((sealed[0] * sealed[1]).mean())) < 4.0 * 5 / 50_000**0.5
    assert torch.equal(sealed / mechanism.clip.step, (sealed / mechanism.clip.step).round())


def test_the_estimate_of_records_is_the_mean_of_the_messages():
    mean, state = LocalRecords(Clip(1.0), 3.0).estimate(torch.tensor([4.0, 8.0]), 4.0, {}, Rng())
    assert mean.tolist() == [1.0, 2.0] and state == {}
