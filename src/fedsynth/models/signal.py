"""Variational autoencoders for signals: rows whose columns are one quantity at successive moments, as in an EEG.

`DenseSignalVAE` is the network of the thesis on federated VAEs (section 4.4.3): plain dense layers and a squared error.
`SpectralVAE` says the same with far fewer shared numbers, which is what noise asks for. It looks at a signal in a
public basis, the discrete cosine transform, and its decoder gives only how strong each frequency is, for a latent
code: a signal is drawn with that spectrum and random phases. Both read and write positions of encoded columns, see
the label in the decoder alone, and have a loss that no row can make explode (section 4.4.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedsynth.data.encode import Block
from fedsynth.errors import Incompatible
from fedsynth.models.model import Batch, Model, Objective, Params, call, weighted_mean
from fedsynth.models.vae import encode, mlp, one_hot
from fedsynth.rng import Rng

_LARGEST = 6.0  # of a logarithm of strength, in nats around that of the typical amplitude
_FLOOR = 1e-2  # what is added to an energy before its logarithm, in typical amplitudes squared


@dataclass(frozen=True)
class Waveform:
    """Where the points of a signal lie in an encoded row; amplitudes count in `typical` shares of half the range.

    >>> points = tuple(Block(f"x{i}", 2 * i, bins=1, missing=False, ordered=True) for i in range(2))
    >>> wave = Waveform(points, typical=0.5)
    >>> wave.read(torch.tensor([[1.0, 0.5, 1.0, 1.0]]))
    tensor([[0., 2.]])
    >>> wave.write(torch.tensor([[0.0, 2.0]]))
    tensor([[1.0000, 0.5000, 1.0000, 1.0000]])
    """

    blocks: tuple[Block, ...]
    typical: float

    def __post_init__(self) -> None:
        wrong = [block.column for block in self.blocks if block.missing or not block.ordered]
        if wrong or len(self.blocks) < 2:
            complaint = f"column {wrong[0]!r} is not" if wrong else f"{len(self.blocks)} columns are not"
            raise Incompatible(
                f"{complaint} part of a signal: a signal has two or more numeric columns without missing values, in "
                "the order of time; leave the column out, or set decoder=histogram"
            )

    @property
    def points(self) -> int:
        """How many points a signal has."""
        return len(self.blocks)

    @property
    def width(self) -> int:
        """The length of an encoded row."""
        return self.blocks[-1].start + self.blocks[-1].width

    @cached_property
    def _places(self) -> dict[torch.device, Tensor]:
        return {}

    def read(self, rows: Tensor) -> Tensor:
        """Amplitudes [rows, points] of encoded rows."""
        if rows.device not in self._places:  # kept there, since a recorded GPU step may not copy
            self._places[rows.device] = torch.tensor([b.place for b in self.blocks], device=rows.device)
        return (2 * rows.index_select(-1, self._places[rows.device]) - 1) / self.typical

    def write(self, amplitudes: Tensor) -> Tensor:
        """Encoded rows of amplitudes, cut to the public range."""
        positions = ((amplitudes * self.typical + 1) / 2).clamp(0.0, 1.0)
        rows = torch.zeros(len(positions), self.width)
        for at, block in zip(positions.T, self.blocks, strict=True):
            entry = (at * block.bins).floor().clamp(max=block.bins - 1).to(torch.int64)
            rows.scatter_(1, block.start + entry[:, None], 1.0)
            rows[:, block.place] = at
        return rows


def is_signal(blocks: Sequence[Block]) -> bool:
    """Whether all columns are points of a signal: a schema says so by `bins=1`, one cell for the whole range."""
    return len(blocks) > 1 and all(b.ordered and b.bins == 1 and not b.missing for b in blocks)


SIGNAL_DECODERS = ("spectral", "dense")


def signal_vae(
    blocks: tuple[Block, ...],
    classes: int,
    *,
    decoder: str,
    latent: int,
    hidden: tuple[int, ...],
    beta: float,
    bands: int = 16,
    typical: float = 0.03,
) -> Model:
    """The autoencoder of a signal by the name of its decoder; `hidden` is a spectral one's encoder alone."""
    wave = Waveform(blocks, typical)
    if decoder == "dense":
        return DenseSignalVAE(wave, classes, latent, hidden, beta)
    return SpectralVAE(wave, classes, latent, bands, (), hidden, beta)


def relu_mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Fully connected layers with ReLU between them, as in the thesis."""
    layers = [nn.ReLU() if isinstance(layer, nn.SiLU) else layer for layer in mlp(sizes)]
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class DenseSignalVAE:
    """Dense layers from the signal to a latent code and back, with a squared error in a public, squeezed scale.

    Amplitudes are squeezed by asinh (linear for small ones, logarithmic for large), so that the error of one wild
    row stays within a few times that of a quiet one. The decoder's output is the signal: nothing is drawn but the
    latent code, as in the thesis.
    """

    wave: Waveform
    classes: int
    latent: int = 8
    hidden: tuple[int, ...] = (128, 64, 32, 16)
    beta: float = 1.0
    generative: ClassVar[tuple[str, ...]] = ("decoder",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder of a signal, decoder of (latent, label)."""
        points = self.wave.points
        return {
            "encoder": relu_mlp([points, *self.hidden, 2 * self.latent]),
            "decoder": relu_mlp([self.latent + self.classes, *reversed(self.hidden), points]),
        }

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The evidence lower bound; reported up to that of a signal at five times the typical squeezed size."""
        return {"elbo": Objective(noise=(self.latent,), bound=0.5 * 25.0 * self.wave.points)}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """Half the squared error, summed over points, cut at the objective's bound for each row, and the prior."""
        squeezed = torch.asinh(self.wave.read(batch["x"]))
        latent, divergence = encode(self.parts["encoder"], params["encoder"], squeezed, noise)
        guess = self._decode(params["decoder"], latent, batch["y"])
        error = (0.5 * (guess - squeezed).square().sum(-1)).clamp(max=self.objectives[objective].bound)
        return weighted_mean(error + self.beta * divergence.clamp(max=1e4), batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Encoded signals for the labels."""
        generator = rng.at("sample").torch_generator()
        latent = torch.randn(len(labels), self.latent, generator=generator)
        return self.wave.write(torch.sinh(self._decode(params["decoder"], latent, labels).clamp(-9.0, 9.0)))

    def _decode(self, params: Params, latent: Tensor, labels: Tensor) -> Tensor:
        return call(self.parts["decoder"], params, torch.cat([latent, one_hot(labels, self.classes)], -1))


def cosine_basis(points: int) -> Tensor:
    """The orthonormal discrete cosine transform (type 2), [frequencies, points].

    >>> basis = cosine_basis(5)
    >>> torch.allclose(basis @ basis.T, torch.eye(5), atol=1e-6)
    True
    """
    moments = (torch.arange(points, dtype=torch.float64) + 0.5) * math.pi / points
    rows = torch.cos(torch.arange(points, dtype=torch.float64)[:, None] * moments)
    rows *= math.sqrt(2.0 / points)
    rows[0] /= math.sqrt(2.0)
    return rows.to(torch.float32)


def band_weights(points: int, bands: int) -> Tensor:
    """How much each band counts for each frequency, [bands, points]: straight lines between knots on a log scale.

    Low frequencies have bands of their own, high ones share them; fewer bands than asked for where knots coincide.

    >>> band_weights(8, 4).sum(0)
    tensor([1., 1., 1., 1., 1., 1., 1., 1.])
    """
    ladder = torch.linspace(0.0, math.log(points), bands, dtype=torch.float64)
    knots = torch.log(torch.unique(torch.expm1(ladder).round()) + 1)
    at = torch.log(torch.arange(points, dtype=torch.float64) + 1).clamp(max=float(knots[-1]))
    upper = torch.searchsorted(knots, at, right=True).clamp(1, len(knots) - 1)
    share = ((at - knots[upper - 1]) / (knots[upper] - knots[upper - 1])).clamp(0.0, 1.0)
    weights = torch.zeros(len(knots), points, dtype=torch.float64)
    weights[upper, torch.arange(points)] += share
    weights[upper - 1, torch.arange(points)] += 1 - share
    return weights.to(torch.float32)


class _Spectrum(nn.Module):
    """The logarithm of strength in each band for (latent, label): a linear map, and a hidden layer where one is asked.

    It starts from what is public of natural signals: strength falls with frequency, and signals differ above all in
    how loud they are, then in how fast the strength falls.
    """

    def __init__(self, inputs: int, latent: int, bands: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.latent = latent
        self.level = nn.Parameter(torch.zeros(bands))
        self.modes = nn.Parameter(torch.zeros(inputs, bands))
        self.bend = mlp([inputs, *hidden, bands]) if hidden else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The public start; the hidden layers start at random as usual."""
        bands = len(self.level)
        along = (torch.arange(bands) + 0.5) / bands
        with torch.no_grad():
            self.level.copy_(2.0 - 4.0 * along)
            self.modes.zero_()
            for mode in range(self.latent):
                self.modes[mode] = torch.cos(math.pi * mode * along) * 0.5 / (1 + mode)

    def forward(self, inputs: Tensor) -> Tensor:
        """[rows, bands], within the bounds of what is representable."""
        raw = self.level + inputs @ self.modes
        if self.bend is not None:
            raw = raw + self.bend(inputs)
        return _LARGEST * torch.tanh(raw / _LARGEST)


@dataclass(frozen=True)
class SpectralVAE:
    """A VAE whose decoder gives the strength of each frequency of a signal, which is drawn with random phases.

    The latent code holds what the frequencies have in common: how loud, how fast, how sharp. The likelihood is that
    of Student's t with `freedom` degrees around zero at each frequency: like a Gaussian, but the pull of one wild
    coefficient is bounded, whatever a client holds.
    """

    wave: Waveform
    classes: int
    latent: int = 4
    bands: int = 16
    hidden: tuple[int, ...] = ()
    encoder_hidden: tuple[int, ...] = (32,)
    beta: float = 1.0
    freedom: float = 8.0
    generative: ClassVar[tuple[str, ...]] = ("decoder",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder of the energies of the bands, decoder of (latent, label)."""
        bands = len(self._public[1])
        return {
            "encoder": mlp([bands, *self.encoder_hidden, 2 * self.latent]),
            "decoder": _Spectrum(self.latent + self.classes, self.latent, bands, self.hidden),
        }

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The evidence lower bound, shifted to be positive; reported up to that of the worst representable guess."""
        return {"elbo": Objective(noise=(self.latent,), bound=2.0 * _LARGEST * self.wave.points)}

    @cached_property
    def _public(self) -> tuple[Tensor, Tensor]:
        """The cosine basis and the bands: constants of the number of points."""
        return cosine_basis(self.wave.points), band_weights(self.wave.points, self.bands)

    @cached_property
    def _placed(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        return {}

    def _constants(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._placed:
            basis, bands = self._public
            self._placed[device] = (basis.to(device), bands.to(device))
        return self._placed[device]

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The negative evidence lower bound, summed over frequencies, averaged over rows."""
        basis, bands = self._constants(batch["x"].device)
        energies = (self.wave.read(batch["x"]) @ basis.T).square()
        log_bands = 0.5 * torch.log(energies @ (bands / bands.sum(1, keepdim=True)).T + _FLOOR)
        latent, divergence = encode(self.parts["encoder"], params["encoder"], log_bands, noise)
        log_scale = self._log_scale(params["decoder"], latent, batch["y"], bands)
        ratio = energies * torch.exp(-2 * log_scale) / self.freedom
        surprise = log_scale + _LARGEST + 0.5 * (self.freedom + 1) * torch.log1p(ratio)
        return weighted_mean(surprise.sum(-1) + self.beta * divergence, batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Encoded signals for the labels."""
        generator = rng.at("sample").torch_generator()
        latent = torch.randn(len(labels), self.latent, generator=generator)
        basis, bands = self._public
        log_scale = self._log_scale(params["decoder"], latent, labels, bands)
        normal = torch.randn(log_scale.shape, generator=generator)
        chi = torch.randn(*log_scale.shape, int(self.freedom), generator=generator).square().mean(-1)
        return self.wave.write((normal / chi.sqrt() * log_scale.exp()) @ basis)

    def _log_scale(self, params: Params, latent: Tensor, labels: Tensor, bands: Tensor) -> Tensor:
        inputs = torch.cat([latent, one_hot(labels, self.classes)], -1)
        return call(self.parts["decoder"], params, inputs) @ bands
