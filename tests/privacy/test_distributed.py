import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from dp_accounting import NonPrivateDpEvent, PoissonSampledDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.errors import BadInput, Incompatible
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.rng import Rng
from fedsynth.transport.ring import Parties, Ring
from noise_scale import fits

FOUR = DistributedGaussian(Clip(0.7), 1.5, 2000, Parties(4, 4), contributions=4)


def hostile(seed, clients, dim):
    """Contributions that try to exceed the bound: huge, spiked, not finite."""
    x = torch.randn(clients, dim, generator=torch.Generator().manual_seed(seed))
    x[0] *= 1e30
    x[1] = torch.eye(dim)[seed % dim] * 7
    x[2, seed % dim] = float("nan")
    return x


def mean_of(mechanism, messages, rng=None):
    wire = mechanism.wire(mechanism.dim)
    total = wire.add(wire.zero(), messages, torch.ones(len(messages)))
    return mechanism.estimate(total, 1.0, mechanism.init(), rng or Rng())[0]


def noise_alone(mechanism, parties, rng):
    x = torch.zeros(parties, mechanism.dim)
    return mean_of(mechanism, mechanism.privatize(x, mechanism.init(), rng, np.arange(parties)))


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
@pytest.mark.parametrize("rotate", [True, False])
def test_the_sum_of_the_shares_has_the_stated_noise(rng, rotate):
    mechanism = DistributedGaussian(Clip(0.3), 2.0, 50_000, Parties(5, 5), contributions=5, rotate=rotate)
    noise = noise_alone(mechanism, 4, rng)  # a participant knows one share of the five
    assert fits(noise, 0.6 * mechanism.loss) and not fits(noise, 0.95 * 0.6) and not fits(noise, 1.05 * 0.6)


@pytest.mark.parametrize("survivors", [6, 8, 10])
def test_the_noise_under_drop_outs_is_what_the_cost_says(survivors):
    mechanism = DistributedGaussian(
        Clip(1.0), 1.0, 50_000, Parties(10, threshold=6, colluders=2), contributions=10
    )
    unknown = noise_alone(mechanism, survivors - 2, Rng())  # the colluders know and take away their own
    stated = mechanism.cost(survivors).event.noise_multiplier
    assert stated == pytest.approx(math.sqrt((survivors - 2) / 4))
    assert mechanism.cost(survivors).public == mechanism.cost(survivors).event  # one participant knows less
    assert 1 <= mechanism.loss < 1.01  # more noise than is stated, never less
    assert fits(unknown, stated * mechanism.loss)


@pytest.mark.parametrize(("count", "largest"), [(2, 1), (5, 1), (30, 10)])
def test_what_a_participant_and_what_the_public_do_not_know_is_what_the_two_costs_say(count, largest):
    parties = Parties(count, count, largest=largest)
    mechanism = DistributedGaussian(Clip(1.0), 1.0, 50_000, parties, contributions=count)
    cost = mechanism.cost(count)
    for unknown, event in ((count - largest, cost.event), (count, cost.public)):
        noise = noise_alone(mechanism, unknown, Rng())
        assert event.noise_multiplier == pytest.approx(math.sqrt(unknown / (count - largest)))
        assert fits(noise, event.noise_multiplier * mechanism.loss)
    assert parties.surplus == pytest.approx(cost.public.noise_multiplier / cost.event.noise_multiplier)


def test_fewer_survivors_than_the_threshold_cost_what_the_threshold_does_and_more_cost_less():
    some = replace(FOUR, parties=Parties(4, 3))
    prices = [some.cost(survivors).event.noise_multiplier for survivors in (1, 3, 4)]
    assert prices[0] == prices[1] == some.release.event.noise_multiplier
    assert prices[2] == pytest.approx(prices[1] * math.sqrt(3 / 2))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_one_client_moves_the_sum_by_at_most_the_limit(seed, rotate):
    mechanism = replace(FOUR, clip=Clip(0.7, ((1999, 0.8), (1, 0.6))), rotate=rotate)
    rounded = mechanism.rounded(hostile(seed, 4, 2000), mechanism.init(), Rng(seed), np.arange(4))
    for row in rounded:
        assert sum(Fraction(float(value)) ** 2 for value in row) <= mechanism.limit
    assert mechanism._share(mechanism.steps) ** 2 * 3 >= 1.5**2 * mechanism.limit + 9


def test_twenty_bits_are_within_one_percent_of_central_noise():
    for clients, dim in ((4, 20_000), (100, 421_696), (1000, 421_696)):
        mechanism = DistributedGaussian(Clip(1.0), 1.0, dim, Parties(clients, clients), clients)
        assert mechanism.bits == 20 and mechanism.loss < 1.01


def test_the_mean_is_that_of_central_noise_up_to_a_hundredth_of_the_noise():
    clients, dim = 30, 8000
    x = torch.randn(clients, dim, generator=torch.Generator().manual_seed(1))
    quiet = DistributedGaussian(Clip(1.0), 0.0, dim, Parties(clients, clients), clients)
    central = CentralGaussian(Clip(1.0), 0.0)
    exact = central.privatize(x, {}, Rng(), np.arange(clients)).sum(0, dtype=torch.float64)
    found = mean_of(quiet, quiet.privatize(x, quiet.init(), Rng(), np.arange(clients)))
    assert float((found - exact).std()) < 0.01


def test_the_worst_sum_stays_in_the_ring():
    """All clients send the same spike and, rotated or not, nothing wraps around."""
    for rotate in (True, False):
        mechanism = DistributedGaussian(Clip(1.0), 1.0, 512, Parties(50, 50), 50, rotate=rotate)
        spike = torch.zeros(50, 512)
        spike[:, 3] = 9.0
        found = mean_of(mechanism, mechanism.privatize(spike, mechanism.init(), Rng(), np.arange(50)))
        assert abs(float(found[3]) - 50) < 8 and float(found.abs().sort().values[-2]) < 8


def test_with_too_few_bits_sums_would_wrap_around():
    mechanism = DistributedGaussian(Clip(1.0), 1.0, 512, Parties(2, 2), 2, rotate=False)
    spike = torch.zeros(2, 512)
    spike[:, 3] = 9.0
    copies = mechanism.privatize(spike, mechanism.init(), Rng(), np.arange(2)).repeat(40, 1)
    assert abs(float(mean_of(mechanism, copies)[3]) - 80) > 8


def test_too_few_bits_are_refused_with_the_number_that_does():
    with pytest.raises(BadInput, match="bits=23"):
        DistributedGaussian(Clip(1.0), 1.0, 421_696, Parties(1000, 1000), 1000, rotate=False)


def test_a_coin_amplifies_by_itself_and_scales_the_mean():
    mechanism = DistributedGaussian(Clip(1.0), 1.0, 4, Parties(4000, 4000), 4000, coin=0.25, bits=31)
    assert mechanism.release.event == PoissonSampledDpEvent(0.25, mechanism.cost(4000).event.event)
    assert not mechanism.release.amplifies and mechanism.release.trust == "distributed"
    x = torch.tensor([[0.5, 0.0, 0.0, 0.0]]).repeat(4000, 1)
    found = mean_of(mechanism, mechanism.privatize(x, mechanism.init(), Rng(2), np.arange(4000)))
    assert abs(float(found[0]) / 4000 - 0.5) < 0.05
    assert abs(float(found[1])) < 50


def test_messages_do_not_depend_on_chunks():
    x = torch.randn(6, 2000, generator=torch.Generator().manual_seed(1))
    whole = FOUR.privatize(x, FOUR.init(), Rng(1), np.arange(6))
    parts = [FOUR.privatize(x[i : i + 1], FOUR.init(), Rng(1), np.array([i])) for i in range(6)]
    assert torch.equal(whole, torch.cat(parts))


def test_records_of_a_party_get_one_share_of_noise_together():
    mechanism = DistributedGaussian(
        Clip(1.0), 2.0, 20_000, Parties(2, 2), 50, bits=24, rotate=False, unit="record"
    )
    owners = np.repeat([0, 1], 3)
    noise = mean_of(mechanism, mechanism.privatize(torch.zeros(6, 20_000), mechanism.init(), Rng(), owners))
    assert fits(noise, 2.0 * math.sqrt(2) * mechanism.loss)  # two shares, each enough by itself


def test_records_are_rounded_by_numbers_of_their_own():
    mechanism = DistributedGaussian(
        Clip(1.0), 0.0, 64, Parties(2, 2), 50, bits=14, rotate=False, unit="record"
    )
    x = torch.full((2, 64), 0.3 / 8)
    first, second = mechanism.rounded(x, mechanism.init(), Rng(1), np.zeros(2, dtype=np.int64))
    assert not torch.equal(first, second)


def test_the_rotation_turns_with_the_rounds():
    messages = FOUR.privatize(torch.ones(4, 2000), FOUR.init(), Rng(1), np.arange(4))
    _, state = FOUR.estimate(messages.sum(0), 1.0, FOUR.init(), Rng())
    assert int(state["turn"]) == 1


def test_without_noise_it_says_so():
    assert isinstance(replace(FOUR, noise_multiplier=0.0).release.event, NonPrivateDpEvent)


def test_a_ring_refuses_weights_and_other_lengths():
    with pytest.raises(Incompatible, match="weighted"):
        Ring(2, 8).add(torch.zeros(2), torch.zeros(1, 2), torch.tensor([0.5]))
    with pytest.raises(BadInput, match="shape"):
        Ring(2, 8).add(torch.zeros(2), torch.zeros(1, 3), torch.ones(1))


@pytest.mark.parametrize(
    "bad",
    [lambda: Parties(3, 4), lambda: Parties(3, 0), lambda: Parties(3, 2, 2), lambda: replace(FOUR, bits=40),
     lambda: Parties(3, 2, largest=2), lambda: replace(FOUR, coin=0.0), lambda: replace(FOUR, contributions=0),
     lambda: FOUR.wire(3)],
)  # fmt: skip
def test_what_means_nothing_is_refused(bad):
    with pytest.raises(BadInput):
        bad()


def test_whole_contributions_are_held_to_the_clip_and_need_no_more_noise():
    """Rounding lengthens nothing that is whole already, so that no cell of a wide table costs noise."""
    rounded = DistributedGaussian(
        Clip(1.0), 4.0, 100_000, Parties(4, 4), contributions=500_000, bits=31, rotate=False, unit="record"
    )
    whole = replace(rounded, whole=True)
    assert whole.limit == math.floor(whole.steps**2) < rounded.limit
    assert 1 <= whole.loss < 1.0001 < rounded.loss
    too_long = torch.zeros(1, 100_000)
    too_long[0, :10] = 1.0
    integers = whole.rounded(too_long, {}, Rng(1), np.arange(1))
    assert float(integers.square().sum()) <= whole.limit


def test_parties_that_may_be_missing_are_a_tenth_and_none_where_one_participant_has_more():
    assert Parties.among(30) == Parties(30, 27, 0, 1) and Parties.among(9) == Parties(9, 9, 0, 1)
    assert Parties.among(30, 3) == Parties(30, 27, 0, 3) and Parties.among(30, 4) == Parties(30, 30, 0, 4)
    assert Parties.among(30, threshold=20, colluders=2) == Parties(30, 20, 2, 1)
    assert Parties.among(7, 7) == Parties(7, 7, 0, 0) and Parties.among(1) == Parties(1, 1, 0, 0)


@given(st.integers(2, 50), st.data())
def test_the_noise_counts_on_no_share_that_somebody_knows(count, data):
    threshold = data.draw(st.integers(2, count))
    colluders, largest = (data.draw(st.integers(0, threshold - 1)) for _ in range(2))
    parties = Parties(count, threshold, colluders, largest)
    assert parties.honest == min(threshold - colluders, threshold - largest) >= 1
    assert parties.surplus == pytest.approx(math.sqrt((threshold - colluders) / parties.honest))


def test_only_one_row_of_numbers_of_the_ring_fits():
    ring, good = Ring(2, 4), torch.tensor([[0, 15]])
    assert ring.fits(good, 3)
    bad = (
        good.int(),
        good[0],
        good.repeat(2, 1),
        good[:, :1],
        torch.tensor([[0, 16]]),
        torch.tensor([[0, -1]]),
    )
    assert not any(ring.fits(messages, 3) for messages in bad)
    assert ring.centered(good).dtype == torch.float64


@pytest.mark.parametrize(("contributions", "noise"), [(1, 0.0), (5, 1.0)])
def test_the_grid_is_as_fine_as_the_ring_allows(contributions, noise):
    """All contributions in one coordinate, and noise that a union over coordinates exceeds with half of `wrap`."""
    mechanism = DistributedGaussian(
        Clip(1.0), noise, 100, Parties(5, 5), contributions, rotate=False, wrap=1e-4
    )
    most = contributions * (mechanism.steps + 1)
    most += mechanism.wire(100).share * math.sqrt(5 * 2 * math.log(2 / (1e-4 / 2 / 100)))
    assert most == pytest.approx(2**19, rel=1e-9)


def test_a_share_in_the_units_of_the_clip_is_that_of_the_ring():
    assert FOUR.share == pytest.approx(FOUR.wire(2000).share * FOUR.grid)
    assert FOUR.share * math.sqrt(3) == pytest.approx(1.5 * 0.7 * FOUR.loss)
    assert FOUR.wire(2000).parties == FOUR.parties and FOUR.release.unit == FOUR.unit == "client"
    quiet = replace(FOUR, noise_multiplier=0.0)
    assert quiet.wire(2000).share == quiet.share == 0.0 and 1 <= quiet.loss < 1.01


def test_messages_are_numbers_of_the_ring_whichever_way_the_rotation_turns():
    mechanism = replace(FOUR, noise_multiplier=0.0, unit="record")
    x, owners = torch.full((6, 2000), -0.01), np.repeat([0, 1], 3)
    states = [{"turn": torch.tensor([turn])} for turn in (0, 1)]
    turned = [mechanism.privatize(x, state, Rng(1), owners) for state in states]
    assert not torch.equal(*turned) and mechanism.init()["turn"].dtype == torch.int64
    for state, messages in zip(states, turned, strict=True):
        assert messages.dtype == torch.int32 and int(messages.min()) >= 0 and int(messages.max()) < 2**20
        assert torch.equal(messages, (mechanism.rounded(x, state, Rng(1), owners) % 2**20).int())
        total = messages.sum(0, dtype=torch.int64) % 2**20
        mean, _ = mechanism.estimate(total, 6.0, state, Rng())
        torch.testing.assert_close(mean.float(), x[0], atol=1e-3, rtol=0)


def test_records_are_drawn_by_their_own_coins():
    chosen = replace(FOUR, coin=0.25, unit="record").draw(10_000, Rng(1))
    assert 2200 < len(chosen) < 2800 and len(set(chosen)) == len(chosen) and max(chosen) < 10_000


def test_advice_goes_up_to_the_most_bits_and_no_further():
    def build(contributions):
        return DistributedGaussian(Clip(1.0), 1.0, 421_696, Parties(9, 9), contributions, rotate=False)

    with pytest.raises(BadInput, match="use bits=31"):
        build(300_000)
    with pytest.raises(BadInput, match="use fewer contributions"):
        build(10**7)
    with pytest.raises(BadInput, match="wrap"):
        replace(FOUR, wrap=1.0)


@pytest.mark.parametrize("bits", [13, 14])
def test_all_unknown_shares_hold_the_whole_noise_and_three_steps_more(bits):
    mechanism = DistributedGaussian(Clip(1.0), 1.5, 20, Parties(4, 4), 4, bits=bits, rotate=False)
    together = mechanism.wire(20).share ** 2 * mechanism.parties.honest
    assert together == pytest.approx(1.5**2 * mechanism.limit + 3.0**2, rel=1e-5)
    assert together > 1.5**2 * mechanism.limit + 3.0**2
