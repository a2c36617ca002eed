import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.errors import BadInput
from fedsynth.privacy.quantize import Rotation, norm_limit, round_within


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
    rotation = Rotation.for_dim(dim)
    x = of_norm(3.0, 2, dim, 1)
    turned = rotation.apply(x, turn=7)
    assert turned.shape[1] == rotation.length <= dim * (1 + 1 / 32) + 1
    torch.testing.assert_close(turned.norm(dim=1), x.norm(dim=1))
    torch.testing.assert_close(rotation.undo(turned[0] + turned[1], turn=7), x[0] + x[1])


def test_a_rotated_spike_is_spread_as_stated():
    rotation = Rotation.for_dim(4096)
    spike = torch.eye(1, 4096, dtype=torch.float64)
    worst = max(float(rotation.apply(spike, turn).abs().max()) for turn in range(20))
    assert worst <= rotation.spread(1e-6) < 1
    mixed = of_norm(1.0, 1, 4096, 2)
    worst = max(float(rotation.apply(mixed, turn).abs().max()) for turn in range(20))
    assert worst <= rotation.spread(1e-6 / 4096)


def test_signs_change_with_the_turn():
    rotation, x = Rotation.for_dim(1024), of_norm(1.0, 1, 1024, 1)
    assert not torch.equal(rotation.apply(x, 0), rotation.apply(x, 1))
