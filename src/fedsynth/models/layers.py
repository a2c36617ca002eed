"""Layers that stay fast when many clients, each with its own weights, are trained at once under torch.func.vmap.

Torch turns a convolution whose weights differ between clients into one with a group for each client. That is good for
wide layers and bad for those that touch an image of one or three channels (measured on a CPU and on an H200). The bad
cases are done as one matrix product a client instead. The gradient of a convolution is made of the same
three products as the layer itself, so that any nesting of vmap and grad (a gradient for each record, the gradient
of a gradient) takes the fast way too.

Parameter names, shapes, initialisation and results are torch's own; nothing is random, nothing keeps statistics.
Torch's Linear, activations, GroupNorm and LayerNorm are fast under vmap as they are. BatchNorm mixes records: not here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

Pair = tuple[int, int]
Method = Literal["auto", "native", "matmul"]

_THIN = 8  # with fewer channels a grouped convolution leaves most of each vector register of a CPU empty


@dataclass(frozen=True)
class _Geometry:
    """How a wide map of `size` is seen through a window, a narrow one having a place for each position of it."""

    size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair

    @property
    def positions(self) -> Pair:
        """The size of the narrow map."""
        return self._along(0), self._along(1)

    def _along(self, axis: int) -> int:
        room = self.size[axis] + 2 * self.padding[axis] - self.kernel[axis]
        return room // self.stride[axis] + 1


# A convolution relates a wide map [clients, batch, channels, height, width], a narrow map of the same form and a
# weight [clients, narrow channels, wide channels, kernel height, kernel width]. It is linear in each of the three,
# so each of the functions below, which make one from the other two, has the other two as its gradient.


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.geometry = inputs[2]


class _Narrow(Function):
    """The narrow map, from the wide one: a convolution."""

    setup_context = staticmethod(_remember)

    @staticmethod
    def forward(wide: Tensor, weight: Tensor, geometry: _Geometry) -> Tensor:
        product = torch.bmm(weight.flatten(2), _columns(wide, geometry))
        return product.unflatten(2, (wide.shape[1], *geometry.positions)).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        wide, weight = ctx.saved_tensors
        narrow = _arranged(gradient)
        return (
            _Wide.apply(narrow, weight, ctx.geometry) if ctx.needs_input_grad[0] else None,
            _Weight.apply(wide, narrow, ctx.geometry) if ctx.needs_input_grad[1] else None,
            None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        return _map_weighted(_Narrow.apply, info.batch_size, in_dims, *inputs)


class _Wide(Function):
    """The wide map, from the narrow one: a transposed convolution."""

    setup_context = staticmethod(_remember)

    @staticmethod
    def forward(narrow: Tensor, weight: Tensor, geometry: _Geometry) -> Tensor:
        product = torch.bmm(weight.flatten(2).transpose(1, 2), _as_matrices(narrow))
        return _from_columns(product, narrow.shape[1], geometry)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        narrow, weight = ctx.saved_tensors
        return (
            _Narrow.apply(gradient, weight, ctx.geometry) if ctx.needs_input_grad[0] else None,
            _Weight.apply(gradient, narrow, ctx.geometry) if ctx.needs_input_grad[1] else None,
            None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        return _map_weighted(_Wide.apply, info.batch_size, in_dims, *inputs)


class _Weight(Function):
    """The weight, from both maps: the gradient of either convolution."""

    setup_context = staticmethod(_remember)

    @staticmethod
    def forward(wide: Tensor, narrow: Tensor, geometry: _Geometry) -> Tensor:
        product = torch.bmm(_as_matrices(narrow), _columns(wide, geometry).transpose(1, 2))
        return product.unflatten(2, (wide.shape[2], *geometry.kernel))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        wide, narrow = ctx.saved_tensors
        return (
            _Wide.apply(narrow, gradient, ctx.geometry) if ctx.needs_input_grad[0] else None,
            _Narrow.apply(wide, gradient, ctx.geometry) if ctx.needs_input_grad[1] else None,
            None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        wide, narrow, geometry = inputs
        size = info.batch_size
        product = _Weight.apply(
            _stacked(wide, in_dims[0], size), _stacked(narrow, in_dims[1], size), geometry
        )
        return product.unflatten(0, (size, -1)), 0


def _map_weighted(
    apply: Callable[..., Tensor],
    size: int,
    in_dims: tuple[Any, ...],
    x: Tensor,
    weight: Tensor,
    geometry: _Geometry,
) -> tuple[Tensor, int]:
    """Map over one more axis: it joins the clients or, where it is not an axis of the weight, the batch."""
    if in_dims[1] is None:
        longer = x.movedim(in_dims[0], 1).flatten(1, 2)
        return apply(longer, weight, geometry).unflatten(1, (size, -1)), 1
    clients = apply(_stacked(x, in_dims[0], size), _stacked(weight, in_dims[1], size), geometry)
    return clients.unflatten(0, (size, -1)), 0


def _stacked(x: Tensor, axis: int | None, size: int) -> Tensor:
    """`x` [clients, ...] with its mapped axis, if it has one, joined to the clients: [size * clients, ...]."""
    return (x.expand(size, *x.shape) if axis is None else x.movedim(axis, 0)).flatten(0, 1)


def _arranged(x: Tensor) -> Tensor:
    """`x` [clients, batch, channels, ...] in memory as `_as_matrices` needs it: copied once for several uses."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _as_matrices(x: Tensor) -> Tensor:
    """[clients, batch, channels, height, width] as [clients, channels, batch * height * width]."""
    return x.transpose(1, 2).flatten(2)


def _columns(wide: Tensor, geometry: _Geometry) -> Tensor:
    """What each window sees, [clients, channels * kernel, batch * positions]."""
    high, across = geometry.padding
    padded = F.pad(wide.transpose(1, 2), (across, across, high, high)).contiguous()
    client, channel, row, down, right = padded.stride()
    shape = (*padded.shape[:2], *geometry.kernel, padded.shape[2], *geometry.positions)
    strides = (client, channel, down, right, row, down * geometry.stride[0], right * geometry.stride[1])
    return padded.as_strided(shape, strides).flatten(4).flatten(1, 3)


def _from_columns(columns: Tensor, batch: int, geometry: _Geometry) -> Tensor:
    """The wide map that sums up what the windows hold: the transpose of `_columns`."""
    (height, width), (high, across) = geometry.size, geometry.padding
    (rows, places), (down, right) = geometry.positions, geometry.stride
    windows = columns.unflatten(2, (batch, rows, places)).unflatten(1, (-1, *geometry.kernel))
    clients, channels = windows.shape[:2]
    padded = columns.new_zeros(clients, channels, batch, height + 2 * high, width + 2 * across)
    for i in range(geometry.kernel[0]):
        for j in range(geometry.kernel[1]):
            seen = padded[..., i : i + down * rows : down, j : j + right * places : right]
            seen += windows[:, :, i, j]
    return padded[..., high : high + height, across : across + width].transpose(1, 2)


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
        if not _by_matmul(self.method, self.in_channels):
            return super().forward(input)
        size = (input.shape[-2], input.shape[-1])
        product = _Narrow.apply(input.unsqueeze(0), self.weight.unsqueeze(0), _geometry(self, size))
        return _shifted(product.squeeze(0), self.bias)


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
        if output_size is not None or not _by_matmul(self.method, self.out_channels):
            return super().forward(input, output_size)
        height, width = (self._size(axis, input.shape[axis - 2]) for axis in (0, 1))
        geometry = _geometry(self, (height, width))
        product = _Wide.apply(input.unsqueeze(0), self.weight.unsqueeze(0), geometry)
        return _shifted(product.squeeze(0), self.bias)

    def _size(self, axis: int, positions: int) -> int:
        reached = (positions - 1) * self.stride[axis] + self.kernel_size[axis]
        return reached - 2 * cast(Pair, self.padding)[axis] + self.output_padding[axis]


def _geometry(layer: nn.Conv2d | nn.ConvTranspose2d, size: Pair) -> _Geometry:
    window = (layer.kernel_size, layer.stride, layer.padding)
    return _Geometry(size, *cast(tuple[Pair, Pair, Pair], window))


def _by_matmul(method: Method, channels: int) -> bool:
    """Whether a layer whose wide map has so many channels is computed as matrix products."""
    return method == "matmul" or (method == "auto" and channels < _THIN)


def _shifted(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias[:, None, None]
