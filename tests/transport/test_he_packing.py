import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.errors import Incompatible
from fedsynth.rng import Rng
from fedsynth.transport.he_packing import MENU, PAPER, Approximate, Packed, PackingGrid, _slot
from fedsynth.transport.he_scheme import Parameters

COHORTS = st.integers(1, 5000)
REACHES = st.floats(1e-6, 1e6)


@given(clients=COHORTS, reach=REACHES, secret=st.booleans())
def test_the_largest_messages_of_all_clients_cannot_overflow(clients, reach, secret):
    layout = Packed.planned(10, clients, reach=reach, secret=secret)
    assert clients * layout.grid.levels < layout.base
    assert layout.base**layout.fields <= layout.parameters.plain_modulus
    assert clients <= layout.parameters.noise_room(secret)


@pytest.mark.parametrize("bits", range(17, 61))
def test_a_slot_holds_what_layouts_count_on(bits):
    assert _slot(Parameters("bfv", 4096, (36, 36, 37), bits)) <= Parameters(
        "bfv", 4096, (36, 36, 37), bits
    ).plain_modulus  # fmt: skip


@given(clients=COHORTS, secret=st.booleans())
def test_bits_that_are_not_sent_leave_room_for_the_noise_of_all_clients(clients, secret):
    layout = Packed.planned(10, clients, reach=1.0, secret=secret)
    chosen = layout.parameters
    noise = clients * chosen.noise(secret) + (2 ** (layout.dropped - 1) if layout.dropped else 0)
    modulus = 1
    for prime in chosen.primes:
        modulus *= prime
    assert 2 * noise * chosen.plain_modulus < modulus


@given(clients=COHORTS, reach=REACHES)
def test_a_layout_has_the_bits_that_were_asked_for(clients, reach):
    layout = Packed.planned(10, clients, reach=reach, least_bits=16)
    assert layout.grid.step <= 2 * reach / 2**15
    assert layout.grid.most * layout.grid.step >= reach - 2 * layout.grid.step


def test_one_client_too_many_is_refused_with_numbers():
    parameters = Parameters("bfv", 4096, (54, 55), 41)
    grid = PackingGrid.real(1.0, levels=2**20 // 16 - 1)
    Packed(parameters, 10, 16, 2, 2**20, grid)
    with pytest.raises(Incompatible, match=r"17 clients with integers up to 65534 sum to 1114078.*1048575"):
        Packed(parameters, 10, 17, 2, 2**20, grid)


def test_fields_that_do_not_fit_a_slot_are_refused():
    with pytest.raises(Incompatible, match="3 fields below 1048576 need 1152921504606846976 values"):
        Packed(Parameters("bfv", 4096, (54, 55), 41), 10, 4, 3, 2**20, PackingGrid(1.0, 100))


def test_more_clients_than_noise_has_room_for_are_refused():
    with pytest.raises(Incompatible, match="191 clients: the noise .* after 190 sums"):
        Packed(Parameters("bfv", 4096, (54, 55), 41), 10, 191, 2, 2**20, PackingGrid(1.0, 100))


def test_what_no_layout_can_hold_is_refused():
    with pytest.raises(Incompatible, match="1000000 clients with 31 bits each"):
        Packed.planned(10, 1_000_000, ring_bits=31, secret=False)


@pytest.mark.parametrize(
    ("clients", "up", "down"), [(4, 0.7, 1.4), (10, 0.75, 1.4), (100, 0.95, 1.7), (1000, 1.1, 2.0)]
)
def test_sealed_vectors_and_sums_are_at_most_twice_the_plain_bytes(clients, up, down):
    layout = Packed.planned(421_696, clients, reach=8.0)
    assert layout.bytes_for(secret=True) <= up * 4 * 421_696
    assert layout.bytes_down <= down * 4 * 421_696


def test_keys_that_exist_decide_the_layout():
    assert (4096, (36, 36, 37)) in MENU
    parameters = Parameters("bfv", 4096, (36, 36, 37), 55)
    layout = Packed.planned(10, 3000, reach=1.0, fixed=parameters)
    assert layout.parameters == parameters
    with pytest.raises(Incompatible, match="keys made for so many"):
        Packed.planned(10, 4000, reach=1.0, fixed=parameters)


@settings(max_examples=40, deadline=None)
@given(clients=st.integers(1, 40), dim=st.integers(1, 20_000), seed=st.integers(0, 999), reach=REACHES)
def test_packing_gives_back_the_sum_of_rounded_messages(clients, dim, seed, reach):
    layout = Packed.planned(dim, clients, reach=reach)
    drawn = torch.from_numpy(np.random.default_rng(seed).normal(size=(clients, dim)) * reach)
    rounded = layout.rounded(drawn, Rng(seed), np.arange(clients))
    slots = layout.slots(rounded.sum(0), len(rounded))
    assert slots.shape == (layout.ciphertexts, 4096)
    assert torch.equal(layout.numbers(slots, clients), rounded.sum(0))


def test_rounding_moves_by_less_than_a_step_and_has_no_bias():
    layout = Packed.planned(20_000, 4, reach=1.0)
    x = torch.full((4, 20_000), 0.3 * layout.grid.step, dtype=torch.float64) + 0.5
    rounded = layout.rounded(x, Rng(1), np.arange(4))
    assert float((rounded - x).abs().max()) < layout.grid.step
    share = float(((rounded - 0.5) / layout.grid.step).mean())
    assert share == pytest.approx(0.3, abs=5 * (0.3 * 0.7 / 80_000) ** 0.5)


def test_rounding_does_not_depend_on_the_chunk():
    layout = Packed.planned(50, 6, reach=1.0)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 50)))
    together = layout.rounded(x, Rng(3), np.arange(6))
    apart = [layout.rounded(x[i : i + 1], Rng(3), np.array([i])) for i in range(6)]
    assert torch.equal(together, torch.cat(apart))


def test_numbers_beyond_the_reach_are_cut_and_those_that_are_none_become_zero():
    layout = Packed.planned(4, 4, reach=1.0)
    x = torch.tensor([[5.0, -5.0, float("nan"), float("inf")]])
    rounded = layout.rounded(x, Rng(0), np.arange(1))[0].tolist()
    assert rounded[0] == pytest.approx(1.0, abs=2 * layout.grid.step)
    assert rounded[1] == -rounded[0] and abs(rounded[2]) <= layout.grid.step and rounded[3] == rounded[0]


def test_messages_that_were_not_rounded_into_the_reach_are_not_sealed():
    layout = Packed.planned(4, 4, reach=1.0)
    with pytest.raises(Incompatible, match="reaches 5, beyond"):
        layout.slots(torch.full((4,), 5.0, dtype=torch.float64), 1)


@given(bits=st.integers(2, 24), clients=st.integers(1, 100), seed=st.integers(0, 99))
def test_a_ring_sums_modulo_its_size(bits, clients, seed):
    layout = Packed.planned(7, clients, ring_bits=bits, secret=False)
    drawn = torch.from_numpy(np.random.default_rng(seed).integers(0, 2**bits, (clients, 7)))
    rounded = layout.rounded(drawn, Rng(0), np.arange(clients))
    opened = layout.numbers(layout.slots(rounded.sum(0), clients), clients)
    assert torch.equal(opened, drawn.sum(0) % 2**bits)


def test_approximate_sums_beyond_the_modulus_are_refused():
    with pytest.raises(Incompatible, match="exceed the 5.76"):
        Approximate(PAPER, 10, clients=2**30, reach=2.0**20)
