"""The loss of convolutional autoencoders of many clients at once on a CPU, with the gradients written out.

Under vmap a step of a stack is hundreds of small operations, and torch lays convolutions with a group for each client
out with the channels first. Here maps are [batch, height, width, clients, channels] in memory: oneDNN computes such
groups faster, those of an image with one channel several times as fast (benchmarks/results/cpu_convolutions.md), and
what follows a convolution works in place on what it has just written.

Every window is 4 x 4, moves by 2 and starts one place outside. Results are those of the layers in `layers.py` up to
last bits. There are no gradients of gradients.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_weight

from fedsynth.models.model import Params

_WINDOW = {"stride": 2, "padding": 1}
_SIDE = 4  # of a window
_THIN = 8  # with fewer channels, laying out by groups leaves most of each vector register empty

Parameters = tuple[Tensor, ...]  # weights and biases of two convolutions, the clients first


def encode(params: Params, images: Tensor, label: Tensor) -> Tensor:
    """What `ImageEncoder` makes of images [clients, batch, channels, side, side], [clients, batch, outputs]."""
    rows = _Features.apply(images, label, *_two_layers(params))
    outputs: Tensor = _Dense.apply(rows, params["head.weight"], params["head.bias"])
    return outputs


def decode(params: Params, latent: Tensor, label: Tensor, side: int) -> Tensor:
    """The logits [clients, batch, channels, side, side] that `ImageDecoder` makes."""
    stem = _Dense.apply(torch.cat([latent, label], -1), params["stem.weight"], params["stem.bias"])
    logits: Tensor = _Pixels.apply(stem, side // 4, *_two_layers(params))
    return logits


def draw_latent(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A latent code drawn with the noise from mean and log-variance, and its divergence from N(0, I)."""
    latent: tuple[Tensor, Tensor] = _Latent.apply(outputs, noise)
    return latent


def pixel_error(logits: Tensor, images: Tensor) -> Tensor:
    """The negative log-likelihood of each image under Bernoulli pixels, [clients, batch]."""
    error: Tensor = _PixelError.apply(logits, images)
    return error


def _two_layers(params: Params) -> Parameters:
    return tuple(params[f"{layer}.{name}"] for layer in ("first", "second") for name in ("weight", "bias"))


class _Features(Function):
    """Two rectified convolutions of each image, and its label, as rows [clients, batch, features]."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, label: Tensor, *layers: Tensor) -> Tensor:
        first, first_bias, second, second_bias = layers
        image = _grouped(images)
        half = _down(image, first, first_bias).relu_()
        quarter = _down(half, second, second_bias).relu_()
        channels, side = second.shape[1], quarter.shape[-1]
        rows = images.new_empty(*images.shape[:2], channels * side**2 + label.shape[-1])
        _as_maps(rows, channels, side).copy_(_by_client(quarter, len(images)))
        rows[..., channels * side**2 :] = label
        ctx.first = first.shape
        ctx.save_for_backward(image, half, quarter, second)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        image, half, quarter, second = ctx.saved_tensors
        by_quarter = _masked(_grouped(_as_maps(gradient, second.shape[1], quarter.shape[-1])), quarter)
        by_second = _by_weight(half, by_quarter, second.shape)
        by_half = _masked(_up(by_quarter, second), half)
        by_first = _by_weight(image, by_half, ctx.first)
        biases = (_by_bias(by_half, len(second)), _by_bias(by_quarter, len(second)))
        return None, None, by_first, biases[0], by_second, biases[1]


class _Pixels(Function):
    """Two transposed convolutions, the first rectified, of the rectified rows [clients, batch, features]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, side: int, *layers: Tensor) -> Tensor:
        first, first_bias, second, second_bias = layers
        quarter = _grouped(_as_maps(rows, first.shape[1], side)).relu_()
        half = _up(quarter, first, first_bias).relu_()
        ctx.save_for_backward(quarter, half, first, second)
        if second.shape[2] >= _THIN:
            return _by_client(_up(half, second, second_bias), len(rows))
        return _laid_over(half, second).add_(second_bias[:, None, :, None, None])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        quarter, half, first, second = ctx.saved_tensors
        clients, by_pixels = len(gradient), _grouped(gradient)
        by_second = _by_weight(by_pixels, half, second.shape)
        by_half = _masked(_down(by_pixels, second), half)
        by_first = _by_weight(by_half, quarter, first.shape)
        by_quarter = _masked(_down(by_half, first), quarter)
        by_rows = _by_client(by_quarter, clients).flatten(2)
        biases = (_by_bias(by_half, clients), _by_bias(by_pixels, clients))
        return by_rows, None, by_first, biases[0], by_second, biases[1]


def _as_maps(rows: Tensor, channels: int, side: int) -> Tensor:
    """The features at the front of rows [clients, batch, ...], as [clients, batch, channels, side, side]."""
    return rows[..., : channels * side**2].unflatten(-1, (channels, side, side))


def _grouped(stack: Tensor) -> Tensor:
    """A copy of [clients, batch, channels, height, width] as groups of channels, which come last in memory."""
    clients, batch, channels, height, width = stack.shape
    maps = stack.new_empty(batch, height, width, clients, channels)
    maps.copy_(stack.permute(1, 3, 4, 0, 2))
    return maps.view(batch, height, width, -1).permute(0, 3, 1, 2)


def _by_client(grouped: Tensor, clients: int) -> Tensor:
    return grouped.unflatten(1, (clients, -1)).transpose(0, 1)


def _down(maps: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution of grouped maps with weights [clients, out, in, ...]."""
    start = None if bias is None else bias.flatten()
    y = torch.conv2d(maps, weight.flatten(0, 1), start, **_WINDOW, groups=len(weight))
    return y.contiguous(memory_format=torch.channels_last)


def _up(maps: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The transposed convolution of grouped maps with weights [clients, in, out, ...]."""
    start = None if bias is None else bias.flatten()
    x = F.conv_transpose2d(maps, weight.flatten(0, 1), start, **_WINDOW, groups=len(weight))
    return x.contiguous(memory_format=torch.channels_last)


def _by_weight(wide: Tensor, narrow: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient of weights [clients, narrow, wide, ...] between grouped maps, one side of which is a gradient."""
    clients, outputs = shape[0], shape[0] * shape[1]
    gradient = conv2d_weight(wide, (outputs, *shape[2:]), narrow, **_WINDOW, groups=clients)
    return gradient.view(shape)


def _by_bias(gradient: Tensor, clients: int) -> Tensor:
    return gradient.sum((0, 2, 3)).view(clients, -1)


def _masked(gradient: Tensor, rectified: Tensor) -> Tensor:
    """The gradient, which nobody else has, of what was rectified."""
    masked: Tensor = torch.ops.aten.threshold_backward.grad_input(gradient, rectified, 0, grad_input=gradient)
    return masked


def _laid_over(maps: Tensor, weight: Tensor) -> Tensor:
    """The transposed convolution to few channels, [clients, batch, channels, height, width].

    A product of matrices a client gives what each place adds to its window; it is summed up by column, then by row.
    """
    (batch, _, height, width), (clients, _, channels) = maps.shape, weight.shape[:3]
    places = maps.permute(0, 2, 3, 1).unflatten(3, (clients, -1)).flatten(0, 2).transpose(0, 1)
    windows = (places @ weight.flatten(2)).view(clients, batch, height, width, channels, _SIDE, _SIDE)
    rows = maps.new_empty(clients, batch, channels, _SIDE, height, width, 2)
    _overlay(rows.permute(6, 5, 0, 1, 2, 3, 4), windows.permute(6, 3, 0, 1, 4, 5, 2))
    result = maps.new_empty(clients, batch, channels, height, 2, 2 * width)
    _overlay(result.permute(4, 3, 0, 1, 2, 5), rows.flatten(5).permute(3, 4, 0, 1, 2, 5))
    return result.flatten(3, 4)


def _overlay(result: Tensor, windows: Tensor) -> None:
    """Sum windows [4, positions, ...] up to the places [2, positions, ...] that they see along one axis."""
    result[0].copy_(windows[1])
    result[0, 1:] += windows[3, :-1]
    result[1].copy_(windows[2])
    result[1, :-1] += windows[0, 1:]


class _Dense(Function):
    """A linear layer of rows [clients, batch, inputs]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return torch.baddbmm(bias.unsqueeze(1), rows, weight.transpose(1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        by_rows = gradient @ weight if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return by_rows, None, None
        return by_rows, gradient.transpose(1, 2) @ rows, gradient.sum(1)


class _Latent(Function):
    """A latent code by its mean, log-variance and noise, and its divergence from the prior."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = outputs.chunk(2, dim=-1)
        clamped = log_variance.clamp(-10.0, 10.0)
        spread = torch.exp(0.5 * clamped)
        ctx.save_for_backward(outputs, noise, spread)
        divergence = 0.5 * (mean.square() + spread.square() - 1 - clamped).sum(-1)
        return torch.addcmul(mean, noise, spread), divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_latent: Tensor, by_divergence: Tensor) -> tuple[Tensor, None]:
        outputs, noise, spread = ctx.saved_tensors
        mean, log_variance = outputs.chunk(2, dim=-1)
        each = by_divergence.unsqueeze(-1)
        by_log_variance = 0.5 * (by_latent * noise * spread + each * (spread.square() - 1))
        inside = log_variance.abs() <= 10.0
        return torch.cat([by_latent + each * mean, by_log_variance * inside], -1), None


class _PixelError(Function):
    """The cross-entropy of each image's pixels, summed over them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, images: Tensor) -> Tensor:
        ctx.save_for_backward(logits, images)
        return F.binary_cross_entropy_with_logits(logits, images, reduction="none").flatten(2).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        logits, images = ctx.saved_tensors
        return torch.sigmoid(logits).sub_(images).mul_(gradient[..., None, None, None]), None
