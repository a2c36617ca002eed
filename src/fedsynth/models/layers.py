"""Layers that stay fast when many clients, each with its own weights, are trained at once under torch.func.vmap.

Torch turns a convolution whose weights differ between clients into one with a group for each client. That is good for
wide layers and bad for those that touch an image of one or three channels (measured on a CPU and on an H200). The bad
cases are done as one matrix product a client instead, of the weights and of what each window sees; taking the windows
and laying them over each other again are each other's gradient, so any nesting of vmap and grad (a gradient for each
record, the gradient of a gradient) takes the fast way too.

Parameter names, shapes, initialisation and results are torch's own; nothing is random, nothing keeps statistics.
Torch's Linear, activations, GroupNorm and LayerNorm are fast under vmap as they are. BatchNorm mixes records: not here.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from fedsynth.models import stacked_convolution
from fedsynth.models.gpu_kernels import Geometry

Pair = tuple[int, int]
Method = Literal["auto", "native", "matmul"]

_THIN = 8  # with fewer channels a grouped convolution leaves most of each vector register of a CPU empty


class _Relaid(Function):
    """A linear map of a stack of values by a geometry, which the backward pass needs as well."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Geometry], output: Tensor) -> None:
        ctx.geometry = inputs[1]


def _stacked(relaid: type[_Relaid], info: Any, in_dims: Any, values: Tensor, geometry: Geometry) -> Any:
    """Return the result for a batch of stacks, taken as one stack, and where its batch lies."""
    stack = values.movedim(in_dims[0], 0).flatten(0, 1)
    return relaid.apply(stack, geometry).unflatten(0, (info.batch_size, -1)), 0


class _Windows(_Relaid):
    """The values under each window of maps [stack, channels, batch, height, width].

    [stack, channels * kernel, batch * positions].
    """

    @staticmethod
    def forward(maps: Tensor, geometry: Geometry) -> Tensor:
        high, across = geometry.padding
        padded = F.pad(maps, (across, across, high, high)).contiguous()
        stack, channel, row, down, right = padded.stride()
        shape = (*padded.shape[:2], *geometry.kernel, padded.shape[2], *geometry.positions)
        strides = (stack, channel, down, right, row, down * geometry.stride[0], right * geometry.stride[1])
        return padded.as_strided(shape, strides).flatten(4).flatten(1, 3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Overlay.apply(gradient, ctx.geometry), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, maps: Tensor, geometry: Geometry) -> Any:
        return _stacked(_Windows, info, in_dims, maps, geometry)


class _Overlay(_Relaid):
    """The maps in which each place sums up what all windows hold for it: the transpose of `_Windows`."""

    @staticmethod
    def forward(windows: Tensor, geometry: Geometry) -> Tensor:
        (height, width), (high, across) = geometry.size, geometry.padding
        (rows, places), (down, right) = geometry.positions, geometry.stride
        taps = windows.unflatten(2, (-1, rows, places)).unflatten(1, (-1, *geometry.kernel))
        shape = (
            len(taps),
            taps.shape[1],
            taps.shape[4],
            height + 2 * high,
            width + 2 * across,
        )
        padded = windows.new_zeros(shape)
        for i in range(geometry.kernel[0]):
            for j in range(geometry.kernel[1]):
                padded[..., i : i + down * rows : down, j : j + right * places : right] += taps[:, :, i, j]
        return padded[..., high : high + height, across : across + width]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Windows.apply(gradient, ctx.geometry), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, windows: Tensor, geometry: Geometry) -> Any:
        return _stacked(_Overlay, info, in_dims, windows, geometry)


class Conv2d(nn.Conv2d):
    """torch's convolution, for inputs [batch, channels, height, width]; zero padding, no dilation, no groups.

    `method` is a matter of speed alone: torch's own way, or by matrix products ("auto" knows which is faster).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        bias: bool = True,
        method: Method = "auto",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, bias=bias)
        self.method = method

    def forward(self, input: Tensor) -> Tensor:
        """The map of [batch, out channels, height, width]."""
        geometry = _geometry(self, (input.shape[-2], input.shape[-1]))
        if self.method == "auto" and stacked_convolution.available(input, geometry):
            values = stacked_convolution.convolve(input, self.weight, geometry)
            return values if self.bias is None else values + self.bias[:, None, None]
        if not _by_matmul(self.method, self.in_channels):
            return super().forward(input)
        windows = _Windows.apply(input.transpose(0, 1).unsqueeze(0), geometry).squeeze(0)
        product = self.weight.flatten(1) @ windows
        if self.bias is not None:
            product = product + self.bias[:, None]
        return product.unflatten(1, (len(input), *geometry.positions)).transpose(0, 1)


class ConvTranspose2d(nn.ConvTranspose2d):
    """torch's transposed convolution, for inputs [batch, channels, height, width]; no dilation, no groups.

    `method` is a matter of speed alone: torch's own way, or by matrix products ("auto" knows which is faster).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        output_padding: int | Pair = 0,
        bias: bool = True,
        method: Method = "auto",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, output_padding, bias=bias)
        self.method = method

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """The map of [batch, out channels, height, width]."""
        height, width = (self._size(axis, input.shape[axis - 2]) for axis in (0, 1))
        geometry = _geometry(self, (height, width))
        if self.method == "auto" and output_size is None and stacked_convolution.available(input, geometry):
            maps = stacked_convolution.lay_out(input, self.weight, geometry)
            return maps if self.bias is None else maps + self.bias[:, None, None]
        if output_size is not None or not _by_matmul(self.method, self.out_channels):
            return super().forward(input, output_size)
        windows = self.weight.flatten(1).t() @ input.transpose(0, 1).flatten(1)
        maps = _Overlay.apply(windows.unsqueeze(0), geometry).squeeze(0)
        if self.bias is not None:
            maps = maps + self.bias[:, None, None, None]
        return maps.transpose(0, 1)

    def _size(self, axis: int, positions: int) -> int:
        reached = (positions - 1) * self.stride[axis] + self.kernel_size[axis]
        return reached - 2 * cast(Pair, self.padding)[axis] + self.output_padding[axis]


def _geometry(layer: nn.Conv2d | nn.ConvTranspose2d, size: Pair) -> Geometry:
    window = (layer.kernel_size, layer.stride, layer.padding)
    return Geometry(size, *cast(tuple[Pair, Pair, Pair], window))


def _by_matmul(method: Method, channels: int) -> bool:
    """Whether a layer that reads or makes a map of so many channels is computed as matrix products."""
    return method == "matmul" or (method == "auto" and channels < _THIN)
