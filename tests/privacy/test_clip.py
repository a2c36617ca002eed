from fractions import Fraction

import numpy as np
import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.privacy.clip import Clip, clip_l2, nearest_on_grid, to_grid


def exact_square(row):
    """Floats are integers times 2^-1100, whose squares sum without rounding."""
    return Fraction(sum(int(Fraction(value) * 2**1100) ** 2 for value in row.tolist()), 2**2200)


def hard_rows(dtype):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(40, 33, generator=generator, dtype=torch.float64)
    rows *= torch.logspace(-30, 30, 40, dtype=torch.float64)[:, None]
    huge = torch.full((1, 33), 3e38, dtype=torch.float64)
    return torch.cat([rows, huge, huge * 1e-38, torch.eye(33, dtype=torch.float64)[:2]]).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", [1e-9, 0.1, 1.0, 1.0000001, 3e5])
def test_no_row_exceeds_the_bound_in_exact_arithmetic(dtype, bound):
    for row in clip_l2(hard_rows(dtype), bound):
        assert exact_square(row) <= Fraction(bound) ** 2


def test_the_bound_holds_for_long_rows():
    x = torch.rand(2, 100_000, generator=torch.Generator().manual_seed(2))
    clipped = clip_l2(x, 1.0)
    assert max(exact_square(row) for row in clipped) <= 1
    assert torch.linalg.vector_norm(clipped.double(), dim=1).min() > 1 - 1e-6


def test_short_rows_are_left_as_they_are():
    x = torch.tensor([[0.3, -0.4], [0.0, 0.0], [0.9, 0.0]])
    assert torch.equal(clip_l2(x, 1.0), x)


def test_clipping_keeps_the_direction():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(3)) * 100
    similarity = torch.nn.functional.cosine_similarity(x, clip_l2(x, 0.5))
    torch.testing.assert_close(similarity, torch.ones(5))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_becomes_zero_and_others_do_not_change(bad):
    x = torch.tensor([[bad, 1.0], [0.3, 0.4]])
    for clip in (Clip(1.0), Clip(1.0, ((1, 0.6), (1, 0.8)))):
        assert torch.equal(clip.apply(x), torch.tensor([[0.0, 0.0], [0.3, 0.4]]))


def test_half_precision_is_clipped_in_single():
    clipped = clip_l2(torch.full((1, 100), 60000.0, dtype=torch.float16), 1.0)
    assert clipped.dtype == torch.float32 and exact_square(clipped[0]) <= 1


def test_blocks_are_clipped_each_by_itself_and_the_whole_keeps_the_bound():
    clip = Clip(2.0, tuple((3, 10**-0.5) for _ in range(10)))
    x = hard_rows(torch.float32)[:, :30]
    for row in clip.apply(x):
        assert exact_square(row) <= 4
        assert all(exact_square(part) <= Fraction(4, 10) * (1 + Fraction(1, 10**9)) for part in row.split(3))


@pytest.mark.parametrize("bound", [0.3, 1.0, 1.999, 7.0, 2.0**-30])
def test_the_grid_is_exact_in_float32_and_never_increases_a_number(bound):
    clip = Clip(bound)
    assert bound / 2**21 < clip.step <= bound / 2**20
    x = clip.apply(hard_rows(torch.float32))
    on_grid = clip.apply_on_grid(hard_rows(torch.float32))
    steps = on_grid.double() / clip.step
    assert torch.equal(steps, steps.round()) and steps.abs().max() < 2**21
    assert (on_grid.abs() <= x.abs()).all() and ((x - on_grid).abs() < clip.step).all()


def test_sums_on_the_grid_do_not_depend_on_order():
    rows = Clip(0.7).apply_on_grid(torch.randn(5000, 3, generator=torch.Generator().manual_seed(5)))
    shuffled = rows[torch.randperm(5000)]
    assert torch.equal(rows.sum(0, dtype=torch.float64), shuffled.flip(0).sum(0, dtype=torch.float64))
    assert torch.equal(rows.double().sum(0), sum(part.double().sum(0) for part in shuffled.split(7)))


def test_truncated_numbers_carry_no_negative_zero():
    assert not np.signbit(to_grid(torch.tensor([-0.1]), 0.25).numpy()).any()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Clip(0.0),
        lambda: Clip(float("nan")),
        lambda: Clip(float("inf")),
        lambda: Clip(1.0, ((2, 0.8), (2, 0.7))),
        lambda: Clip(1.0, ((0, 0.8),)),
        lambda: Clip(1.0, ((2, -0.5),)),
        lambda: Clip(1.0, ((2, 1.0),)).apply(torch.zeros(1, 3)),
        lambda: to_grid(torch.zeros(1), 0.3),
    ],
)
def test_values_that_would_break_the_bound_are_refused(build):
    with pytest.raises(BadInput):
        build()


def test_a_row_whose_squares_overflow_float32_is_shortened_and_not_lost():
    clipped = clip_l2(torch.full((1, 33), 3e38), 1.0)
    assert float(clipped.double().norm()) == pytest.approx(1.0, rel=1e-5)


def test_double_precision_stays_double():
    assert clip_l2(torch.tensor([[1e-300, 0.5]], dtype=torch.float64), 1.0).tolist() == [[1e-300, 0.5]]


def test_the_squares_of_fractions_may_exceed_one_by_no_more_than_the_shrinking_covers():
    for more in (2.0**-15, 2.0**-16, 2.0**-20):
        Clip(1.0, ((1, 1.0), (1, more)))  # squares sum to 1 + more^2, and clipping takes 2^-21 off each block
    with pytest.raises(BadInput, match="at most 1 is allowed"):
        Clip(1.0, ((1, 1.0), (1, 2.0**-15 * (1 + 2.0**-20))))


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.0000001, 1.5])
def test_a_block_has_a_share_of_the_bound(fraction):
    with pytest.raises(BadInput, match="fractions lie in"):
        Clip(1.0, ((2, fraction),))


@pytest.mark.parametrize("bound", [2.0**-60, 2.0**60])
def test_the_largest_and_the_smallest_bound_can_be_used(bound):
    clip = Clip(bound)
    assert torch.equal(clip.apply_on_grid(torch.tensor([[bound / 2]])), torch.tensor([[bound / 2]]))


@pytest.mark.parametrize("bound", [2.0**-60 * (1 - 1e-9), 2.0**60 * (1 + 1e-9)])
def test_a_bound_whose_grid_would_leave_the_floats_is_refused(bound):
    with pytest.raises(BadInput, match="between 2.-60 and 2.60"):
        Clip(bound)


def test_the_nearest_multiple_is_nearest():
    x = torch.tensor([0.30, -0.13, 0.124, 7.0])
    assert nearest_on_grid(x, 0.25).tolist() == [0.25, -0.25, 0.0, 7.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("blocks", [(), ((30, 0.8), (3, 0.6))])
@pytest.mark.parametrize("bound", [2.0**-60, 1e-9, 0.7, 3e5, 2.0**60])
def test_a_sum_in_place_has_each_row_as_it_is_alone_on_the_grid(dtype, blocks, bound):
    clip, rows = Clip(bound, blocks), hard_rows(dtype) * bound
    rows[3, 5], rows[7, 32], rows[9] = float("nan"), float("inf"), 0.0
    counted = torch.arange(len(rows)) % 3 != 1
    expected = clip.apply_on_grid(rows).double()[counted].sum(0)
    stack = torch.stack([rows, rows.flip(0)])
    summed = clip.sum_on_grid(stack, torch.stack([counted, counted.flip(0)]).to(dtype))
    assert torch.equal(summed, torch.stack([expected, expected]))
    assert expected.abs().sum() > 0
