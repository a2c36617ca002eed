import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard

from fedsynth.errors import BadInput
from fedsynth.privacy.quantize import HadamardRotation, norm_limit, round_within


def generator(seed):
    return torch.Generator().manual_seed(seed)


def fair(x, seed=0):
    return lambda attempt: torch.rand(x.shape, generator=generator(seed + attempt), dtype=x.dtype)


def always_up(x):
    return lambda attempt: torch.zeros_like(x)


def of_norm(norm, rows, dim, seed):
    x = torch.randn(rows, dim, generator=generator(seed), dtype=torch.float64)
    return x * (norm / x.norm(dim=1, keepdim=True))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.floats(1, 1e4), st.integers(0, 2**30), st.booleans())
def test_no_rounding_is_longer_than_the_limit(dim, steps, seed, hostile):
    x = of_norm(steps, 5, dim, seed)
    limit = norm_limit(steps, dim)
    rounded = round_within(x, limit, always_up(x) if hostile else fair(x, seed))
    for row in rounded:
        assert sum(Fraction(float(value)) ** 2 for value in row) <= limit
        assert torch.equal(row, row.round())


def test_a_vector_far_longer_than_stated_is_dropped_not_sent():
    x = torch.full((1, 4), 1e9, dtype=torch.float64)
    assert round_within(x, norm_limit(10.0, 4), fair(x)).abs().sum() == 0
    x[0, 1] = math.nan
    assert round_within(x, norm_limit(10.0, 4), fair(x)).abs().sum() == 0


def test_rounding_is_unbiased():
    x = torch.full((40_000, 1), 2.3, dtype=torch.float64)
    rounded = round_within(x, 10_000, fair(x))
    assert set(rounded.flatten().tolist()) == {2.0, 3.0}
    assert abs(float(rounded.mean()) - 2.3) < 5 * math.sqrt(0.21 / 40_000)


def test_rounding_is_seldom_repeated_at_the_full_length():
    steps, dim = 300.0, 2000
    x = of_norm(steps, 2000, dim, 3)
    first = (x.floor() + (fair(x)(0) < x - x.floor())).square().sum(1)
    assert float((first > norm_limit(steps, dim)).double().mean()) < 0.01


def test_a_grid_too_fine_to_check_is_refused():
    with pytest.raises(BadInput, match="coarser grid"):
        round_within(torch.zeros(1, 1), 2**53, fair(torch.zeros(1, 1)))


@pytest.mark.parametrize("dim", [1, 5, 64, 1000])
def test_a_rotation_keeps_norms_and_can_be_undone(dim):
    rotation = HadamardRotation.for_dim(dim)
    x = of_norm(3.0, 2, dim, 1)
    turned = rotation.apply(x, turn=7)
    assert turned.shape[1] == rotation.length <= dim * (1 + 1 / 32) + 1
    torch.testing.assert_close(turned.norm(dim=1), x.norm(dim=1))
    torch.testing.assert_close(rotation.undo(turned[0] + turned[1], turn=7), x[0] + x[1])


def test_a_rotated_spike_is_spread_as_stated():
    rotation = HadamardRotation.for_dim(4096)
    spike = torch.eye(1, 4096, dtype=torch.float64)
    worst = max(float(rotation.apply(spike, turn).abs().max()) for turn in range(20))
    assert worst <= rotation.spread(1e-6) < 1
    mixed = of_norm(1.0, 1, 4096, 2)
    worst = max(float(rotation.apply(mixed, turn).abs().max()) for turn in range(20))
    assert worst <= rotation.spread(1e-6 / 4096)


def test_signs_change_with_the_turn():
    rotation, x = HadamardRotation.for_dim(1024), of_norm(1.0, 1, 1024, 1)
    assert not torch.equal(rotation.apply(x, 0), rotation.apply(x, 1))


@pytest.mark.parametrize(("steps", "dim"), [(1000.0, 4), (10.0, 900), (3.0, 10_000), (10.0, 1), (50.0, 2)])
def test_the_limit_is_that_of_proposition_22(steps, dim):
    likely = steps**2 + dim / 4 + math.sqrt(2 * math.log(100)) * (steps + math.sqrt(dim) / 2)
    assert norm_limit(steps, dim) == math.floor(min(likely, (steps + math.sqrt(dim)) ** 2))


def scripted(*attempts):
    """Uniform numbers as they are told, attempt by attempt."""
    return lambda attempt: torch.tensor(attempts[attempt], dtype=torch.float64)


def test_a_row_that_fits_keeps_its_first_rounding_and_only_the_others_are_rounded_again():
    x = torch.tensor([[1.5, 0.0], [1.5, 0.5]], dtype=torch.float64)
    uniforms = scripted(
        [[0.1, 0.9], [0.1, 0.1]], [[0.9, 0.9], [0.9, 0.1]]
    )  # first: (2, 0) and (2, 1); limit 4
    assert round_within(x, 4, uniforms).tolist() == [[2.0, 0.0], [1.0, 1.0]]


def test_a_row_is_rounded_again_until_it_fits_and_no_further():
    drawn = []

    def uniforms(attempt):
        drawn.append(attempt)
        return torch.full((1, 1), 0.1 if attempt < 3 else 0.9, dtype=torch.float64)

    assert round_within(torch.tensor([[1.5]]), 1, uniforms).tolist() == [[1.0]]
    assert drawn == [0, 1, 2, 3]


def test_a_row_that_never_fits_is_cut_toward_zero_while_the_others_stay_as_they_were_drawn():
    x = torch.tensor([[-1.5, 1.5], [1.5, 0.0]], dtype=torch.float64)
    always = lambda attempt: torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64)  # noqa: E731
    assert round_within(x, 4, always).tolist() == [[-1.0, 1.0], [2.0, 0.0]]


def test_integers_of_just_the_limit_are_sent():
    x = torch.tensor([[3.0, 4.0]])
    assert round_within(x, 25, fair(x)).tolist() == [[3.0, 4.0]]
    assert round_within(x, 24, fair(x)).tolist() == [[0.0, 0.0]]


def test_whole_numbers_stay_as_they_are_whatever_is_drawn():
    x = torch.tensor([[2.0, -3.0, 0.0]])
    assert round_within(x, 100, always_up(x)).tolist() == x.tolist()


def test_what_is_rounded_is_double_precision():
    x = torch.full((2, 3), 0.5, dtype=torch.float32)
    few = torch.full((1, 1), 7.5, dtype=torch.float32)
    kept, cut = round_within(x, 10, fair(x)), round_within(few, 50, always_up(few))
    assert kept.dtype == cut.dtype == torch.float64 and cut.tolist() == [[7.0]]


def test_squares_are_checked_up_to_what_doubles_hold_exactly():
    x = torch.tensor([[2.0**25, 1.0]], dtype=torch.float64)
    assert round_within(x, 2**52 - 1, fair(x)).tolist() == x.tolist()
    with pytest.raises(BadInput, match="coarser grid"):
        round_within(x, 2**52, fair(x))


@pytest.mark.parametrize(
    ("dim", "block"), [(1, 1), (31, 1), (32, 1), (63, 1), (64, 2), (100, 2), (1000, 16), (4096, 128)]
)
def test_a_block_is_the_largest_that_lengthens_a_vector_by_a_32nd(dim, block):
    assert HadamardRotation.for_dim(dim) == HadamardRotation(dim, block)


@pytest.mark.parametrize(("block", "chance"), [(128, 1e-6), (4096, 1e-3)])
def test_the_spread_is_hoeffdings(block, chance):
    assert HadamardRotation(block, block).spread(chance) == pytest.approx(
        math.sqrt(2 * math.log(2 / chance) / block)
    )
    assert HadamardRotation(4, 4).spread(chance) == 1.0  # no coordinate holds more than all of it


def test_a_rotation_is_signs_and_the_walsh_hadamard_matrix_of_each_block():
    rotation, turn = HadamardRotation(16, 8), 3
    matrix = torch.from_numpy(hadamard(8)).double() / math.sqrt(8)
    signs = rotation._signs(turn).double()
    expected = (torch.diag(signs).reshape(16, 2, 8) @ matrix).reshape(16, 16)
    torch.testing.assert_close(rotation.apply(torch.eye(16, dtype=torch.float64), turn), expected)


def test_every_site_turns_with_the_same_public_signs():
    """Sites of different versions must agree on them."""
    signs = HadamardRotation(12, 4)._signs(7)
    assert signs.dtype == torch.float32 and len(signs) == 12
    assert [int(sign) for sign in signs] == [-1, 1, -1, 1, 1, -1, 1, -1, 1, -1, -1, -1]


def test_a_cut_row_is_measured_in_double_precision():
    """In single precision 4096^2 + 1 would be 4096^2, and the row would be sent though it is too long."""
    x = torch.tensor([[4096.5, 1.5]], dtype=torch.float32)
    assert round_within(x, 2**24, always_up(x)).tolist() == [[0.0, 0.0]]
    assert round_within(x, 2**24 + 1, always_up(x)).tolist() == [[4096.0, 1.0]]
