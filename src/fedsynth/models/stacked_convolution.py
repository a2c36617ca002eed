"""Convolutions whose weights differ between clients, on a GPU, under any nesting of vmap and grad.

Maps x, weights w and values y of a convolution are tied by one form that is linear in each; the function that makes one
of them from the other two has the other two functions as its gradients. Under vmap over clients all three gain clients;
under vmap over the records of a client, whose weights are the same, records join the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.grad import conv2d_weight

from fedsynth.models import gpu_kernels as kernels
from fedsynth.models.gpu_kernels import Geometry


def available(value: Tensor, geometry: Geometry) -> bool:
    """Whether this way can be taken for inputs like this one."""
    return kernels.available(value, geometry)


def convolve(images: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The convolution of images [batch, in, height, width] with weights [out, in, kernel]."""
    y: Tensor = _Values.apply(images.unsqueeze(0), weight.unsqueeze(0), geometry)
    return y.squeeze(0)


def lay_out(values: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The transposed convolution: images that `geometry` sees, of values [batch, out, positions]."""
    x: Tensor = _Maps.apply(weight.unsqueeze(0), values.unsqueeze(0), geometry)
    return x.squeeze(0)


class _Form(Function):
    """One of three arrays made from the other two."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Geometry], output: Tensor) -> None:
        first, second, ctx.geometry = inputs
        ctx.save_for_backward(first, second)


class _Values(_Form):
    @staticmethod
    def forward(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
        if len(x) == 1:  # what torch is good at
            return torch.conv2d(x[0], w[0], None, geometry.stride, geometry.padding)[None]
        return kernels.values(x, w, geometry)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, w = ctx.saved_tensors
        by_x = _Maps.apply(w, gradient, ctx.geometry) if ctx.needs_input_grad[0] else None
        by_w = _Weights.apply(x, gradient, ctx.geometry) if ctx.needs_input_grad[1] else None
        return by_x, by_w, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, geometry: Geometry) -> Any:
        if in_dims[1] is None:
            return _as_batch(_Values.apply(_into_batch(x, in_dims[0]), w, geometry), info)
        return _as_stack(_Values.apply(*_into_stack(info, in_dims, x, w), geometry), info)


class _Maps(_Form):
    @staticmethod
    def forward(w: Tensor, y: Tensor, geometry: Geometry) -> Tensor:
        if len(w) == 1:
            shape = (y.shape[1], w.shape[2], *geometry.size)
            return torch.nn.grad.conv2d_input(shape, w[0], y[0], geometry.stride, geometry.padding)[None]
        return kernels.maps(w, y, geometry)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        w, y = ctx.saved_tensors
        by_w = _Weights.apply(gradient, y, ctx.geometry) if ctx.needs_input_grad[0] else None
        by_y = _Values.apply(gradient, w, ctx.geometry) if ctx.needs_input_grad[1] else None
        return by_w, by_y, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, w: Tensor, y: Tensor, geometry: Geometry) -> Any:
        if in_dims[0] is None:
            return _as_batch(_Maps.apply(w, _into_batch(y, in_dims[1]), geometry), info)
        return _as_stack(_Maps.apply(*_into_stack(info, in_dims, w, y), geometry), info)


class _Weights(_Form):
    @staticmethod
    def forward(x: Tensor, y: Tensor, geometry: Geometry) -> Tensor:
        if len(x) == 1:
            shape = (y.shape[2], x.shape[2], *geometry.kernel)
            return conv2d_weight(x[0], shape, y[0], geometry.stride, geometry.padding)[None]
        return kernels.weights(x, y, geometry)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, y = ctx.saved_tensors
        by_x = _Maps.apply(gradient, y, ctx.geometry) if ctx.needs_input_grad[0] else None
        by_y = _Values.apply(x, gradient, ctx.geometry) if ctx.needs_input_grad[1] else None
        return by_x, by_y, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, y: Tensor, geometry: Geometry) -> Any:
        return _as_stack(_Weights.apply(*_into_stack(info, in_dims, x, y), geometry), info)


def _into_batch(value: Tensor, dim: int) -> Tensor:
    """[clients, mapped * batch, ...]."""
    return value.movedim(dim, 1).flatten(1, 2)


def _as_batch(value: Tensor, info: Any) -> tuple[Tensor, int]:
    return value.unflatten(1, (info.batch_size, -1)), 1


def _into_stack(info: Any, in_dims: Any, *values: Tensor) -> list[Tensor]:
    """[mapped * clients, ...] each."""
    mapped = [
        value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
        for value, dim in zip(values, in_dims, strict=False)
    ]
    return [value.flatten(0, 1) for value in mapped]


def _as_stack(value: Tensor, info: Any) -> tuple[Tensor, int]:
    return value.unflatten(0, (info.batch_size, -1)), 0
