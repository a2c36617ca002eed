"""The kernels against torch in float64: on a GPU, or with `TRITON_INTERPRET=1` on any machine that has Triton."""

import os

import pytest
import torch

from fedsynth.models import gpu_kernels as kernels
from fedsynth.models.gpu_kernels import Geometry
from fedsynth.privacy.clip import Clip

pytest.importorskip("triton")
GPU = torch.cuda.is_available()
pytestmark = pytest.mark.skipif(not (GPU or os.environ.get("TRITON_INTERPRET")), reason="needs a GPU")

SHAPES = {  # channels in, channels out; size, kernel, stride, padding
    "grey 28": (1, 6, Geometry((28, 28), (4, 4), (2, 2), (1, 1))),
    "rgb 32": (3, 4, Geometry((32, 32), (3, 3), (2, 2), (1, 1))),
    "wide": (9, 20, Geometry((7, 7), (3, 3), (2, 2), (1, 1))),
    "wider than a tile": (70, 66, Geometry((4, 4), (2, 2), (1, 1), (0, 0))),
    "stride one": (2, 3, Geometry((8, 8), (3, 3), (1, 1), (1, 1))),
    "no padding": (3, 2, Geometry((12, 12), (5, 5), (2, 2), (0, 0))),
    "rows that no window reaches": (2, 3, Geometry((8, 8), (3, 3), (2, 2), (0, 0))),
    "kernel smaller than stride": (2, 7, Geometry((7, 7), (1, 1), (2, 2), (0, 0))),
    "oblong": (2, 3, Geometry((6, 5), (3, 2), (1, 2), (1, 0))),
    "stride three": (6, 5, Geometry((11, 11), (4, 4), (3, 3), (2, 2))),
}
CLIENTS, BATCH = 3, 2


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("precision", ["highest", "high"])
def test_each_array_is_made_from_the_other_two(name, precision):
    inputs, outputs, geometry = SHAPES[name]
    device = "cuda" if GPU else "cpu"
    torch.manual_seed(0)
    x = torch.randn(CLIENTS, BATCH, inputs, *geometry.size, device=device)
    w = torch.randn(CLIENTS, outputs, inputs, *geometry.kernel, device=device)
    y = torch.randn(CLIENTS, BATCH, outputs, *geometry.positions, device=device)
    leaves = [x.double().requires_grad_(), w.double().requires_grad_()]
    each = [torch.conv2d(a, b, None, geometry.stride, geometry.padding) for a, b in zip(*leaves, strict=True)]
    whole = torch.stack(each)
    by_x, by_w = torch.autograd.grad(whole, leaves, y.double())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        assert_near(kernels.values(x, w, geometry), whole, precision)
        assert_near(kernels.maps(w, y, geometry), by_x, precision)
        assert_near(kernels.weights(x, y, geometry), by_w, precision)
    finally:
        torch.set_float32_matmul_precision(before)


def assert_near(got, expected, precision):
    error = float((got - expected.detach()).norm() / expected.detach().norm())
    assert error < (1e-6 if precision == "highest" else 2e-3)


def test_only_numbers_on_a_gpu_in_single_precision_are_taken():
    geometry = SHAPES["wide"][2]
    assert not kernels.available(torch.zeros(1), geometry)
    assert kernels.available(torch.zeros(1, device="cuda"), geometry) if GPU else True


@pytest.mark.parametrize("bound", [2.0**-60, 0.7, 3e5])
def test_clipped_sums_are_those_of_each_record_to_the_bit(bound):
    torch.manual_seed(1)
    rows = torch.randn(2, 40, 1300) * torch.logspace(-20, 20, 40)[:, None] * bound
    rows[0, 3, 5], rows[1, 7, 1200], rows[1, 9] = float("nan"), float("inf"), 0.0
    last = torch.rand(2, 40, 1) * bound
    counted = (torch.arange(80) % 3 != 1).reshape(2, 40).float()
    clip = Clip(bound, ((1300, 0.8), (1, 0.6)))
    expected = clip.sum_on_grid(torch.cat([rows, last], dim=2), counted)
    device = "cuda" if GPU else "cpu"
    blocks = [[piece.to(device) for piece in block] for block in (rows.split([700, 600], 2), [last])]
    assert torch.equal(clip.sum_of_blocks(blocks, counted.to(device)).cpu(), expected) and expected.any()
