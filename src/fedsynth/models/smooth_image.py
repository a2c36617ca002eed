"""An autoencoder of images whose decoder gives low frequencies alone: few shared numbers, which is what noise asks for.

The decoder of the thesis on federated VAEs has 156,225 numbers for an image of 28 by 28 pixels. Noise is spread over
all of them, and clients with a hundred images each cannot outvote it. Here the decoder is a linear map from the
latent code and the label to the lowest frequencies of the image in a public basis, the cosine transform: 8 by 8 of
them for one class and 2 latent numbers are 192 numbers, and enough for a digit that is a little soft.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedsynth.errors import Incompatible
from fedsynth.models.label_image import bounded, pixels
from fedsynth.models.model import Batch, Params, call, weighted_mean
from fedsynth.models.signal import cosine_basis
from fedsynth.models.vae import PixelAutoencoder, encode, mlp, one_hot, pixel_error
from fedsynth.rng import Rng

_START = 0.3  # how far a latent number moves its frequency before training


class _Frequencies(nn.Module):
    """The strength of each low frequency for (latent, label).

    It starts from even gray, where each latent number moves one low frequency: a public start that is the same for
    all clients, so that their encoders mean the same by a latent number.
    """

    def __init__(self, inputs: int, latent: int, channels: int, bands: int) -> None:
        super().__init__()
        self.latent, self.channels, self.bands = latent, channels, bands
        self.level = nn.Parameter(torch.zeros(channels * bands**2))
        self.modes = nn.Parameter(torch.zeros(inputs, channels * bands**2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The public start."""
        places = torch.arange(self.bands)
        order = torch.argsort((places[:, None] + places).flatten(), stable=True)[1:]  # low first, no mean
        with torch.no_grad():
            self.level.zero_()
            self.modes.zero_()
            for mode in range(self.latent):
                moved = order[mode % len(order)]
                self.modes[mode].view(self.channels, -1)[:, moved] = _START

    def forward(self, inputs: Tensor) -> Tensor:
        """[rows, channels * bands * bands]."""
        return self.level + inputs @ self.modes


@dataclass(frozen=True)
class SmoothImageVAE(PixelAutoencoder):
    """Dense layers from the low frequencies of an image to a latent code, and a linear map back to them.

    `bands` frequencies in each direction; the label enters the decoder alone. Strengths count in functions that are 1
    in the mean square over the image, so that they have the size of a pixel's logit.
    """

    channels: int
    side: int
    classes: int
    latent: int = 2
    bands: int = 8
    hidden: tuple[int, ...] = (32,)
    beta: float = 1.0
    drawn: bool = False  # pixels are drawn by their chance

    def __post_init__(self) -> None:
        if not 2 <= self.bands <= self.side:
            raise Incompatible(
                f"bands={self.bands}: an image of {self.side} by {self.side} pixels has 2 to {self.side} frequencies "
                "in each direction"
            )

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder of low frequencies, decoder of (latent, label)."""
        inputs = self.channels * self.bands**2
        return {
            "encoder": mlp([inputs, *self.hidden, 2 * self.latent]),
            "decoder": _Frequencies(self.latent + self.classes, self.latent, self.channels, self.bands),
        }

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The negative evidence lower bound with a Bernoulli likelihood, summed over pixels."""
        basis = self._basis(batch["x"].device)
        low_frequencies = (basis @ (2 * batch["x"] - 1) @ basis.T).flatten(1) / self.side
        latent, divergence = encode(self.parts["encoder"], params["encoder"], low_frequencies, noise)
        logits = self._logits(params["decoder"], latent, batch["y"], basis)
        return weighted_mean(pixel_error(logits, batch["x"]) + self.beta * divergence, batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Images in [0, 1] for the labels, [count, channels, side, side]."""
        generator = rng.at("sample").torch_generator()
        latent = torch.randn(len(labels), self.latent, generator=generator)
        pieces = zip(latent.split(2000), labels.split(2000), strict=True)
        basis = self._basis(torch.device("cpu"))
        logits = [self._logits(params["decoder"], z, y, basis) for z, y in pieces]
        return pixels(torch.cat(logits), self.drawn, generator)

    @cached_property
    def _placed(self) -> dict[torch.device, Tensor]:
        return {}

    def _basis(self, device: torch.device) -> Tensor:
        """[bands, side]; kept on the device, since a recorded GPU step may not copy."""
        if device not in self._placed:
            self._placed[device] = cosine_basis(self.side)[: self.bands].to(device)
        return self._placed[device]

    def _logits(self, params: Params, latent: Tensor, labels: Tensor, basis: Tensor) -> Tensor:
        inputs = torch.cat([latent, one_hot(labels, self.classes)], -1)
        flat = call(self.parts["decoder"], params, inputs)
        strengths = flat.unflatten(-1, (self.channels, self.bands, self.bands))
        return bounded(self.side * (basis.T @ strengths @ basis))
