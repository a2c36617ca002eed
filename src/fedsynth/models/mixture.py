"""Pictures as a mixture of Gaussians in each class: how a question names the components, and how rows are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.models.marginals import Counted
from fedsynth.models.model import Params
from fedsynth.models.moment_vae import wobbled
from fedsynth.models.spectrum import picture
from fedsynth.rng import Rng

_AT_ONCE = 2000  # pictures that are drawn in one piece
_FARTHEST = 1e3  # of a center's numbers: beyond it nothing is learned, and squares must stay within 64 bits
_LEAST_REACH = 1e-2  # nearer than whole numbers tell apart
_MEANS = (0.2, 0.96)  # shares of a record's norm: its count, and its place beside the center
_SPREADS = (0.2, 0.7, 0.68)  # and its products, where they are asked for too


@dataclass(frozen=True)
class Components:
    """One question: the centers that records are nearest to, and whether their spread about them is asked for.

    A record that lies as far from its center as `reach` has the whole of its norm, and one that lies farther is drawn
    nearer; `low_reach` is the same for the lowest numbers, of which products are taken.
    """

    centers: Tensor  # [groups, components, numbers]
    spread: bool
    reach: float
    low_reach: float

    @property
    def weights(self) -> tuple[float, float, float]:
        """Return what a record adds for its count, its place and its products: squares sum to less than 1."""
        return _SPREADS if self.spread else (*_MEANS, 0.0)


@dataclass(frozen=True)
class MixtureForm:
    """The sizes of questions and answers: `components` for each of `groups`, in the lowest frequencies of a picture.

    An answer has for each component its count and the sum of its records' places, [1 + numbers], and after them for
    each group the sum of products of the first `moments` numbers.
    """

    channels: int
    side: int
    groups: int
    components: int
    frequencies: int
    moments: int

    @property
    def numbers(self) -> int:
        """How many frequencies a picture has, over its channels."""
        return self.channels * self.frequencies

    @property
    def products(self) -> int:
        """How many different products of two of the moments' numbers there are."""
        return self.moments * (self.moments + 1) // 2

    @property
    def places(self) -> int:
        """The length of the part of an answer that components have."""
        return self.groups * self.components * (1 + self.numbers)

    @property
    def answer(self) -> int:
        """The length of an answer."""
        return self.places + self.groups * self.products

    @property
    def question(self) -> int:
        """The length of a question."""
        return 3 + self.groups * self.components * self.numbers

    @property
    def radius(self) -> float:
        """About how far pictures lie from the grey spot that is asked about first."""
        return 0.25 * self.side * self.channels**0.5

    def write(self, asked: Components) -> Tensor:
        """The question as a vector, float32."""
        centers = asked.centers.flatten().float().clamp(-_FARTHEST, _FARTHEST)
        return torch.cat([torch.tensor([float(asked.spread), asked.reach, asked.low_reach]), centers])

    def read(self, vector: Tensor) -> Components:
        """The question in a vector; what does not fit is refused, because a server may say anything."""
        if vector.shape != (self.question,) or not bool((vector.abs() <= _FARTHEST).all()):
            raise BadInput(
                f"a question of shape {tuple(vector.shape)}: expected {self.question} numbers of at most {_FARTHEST:g}"
            )
        reach, low_reach = vector[1:3].tolist()
        if min(reach, low_reach) < _LEAST_REACH:
            raise BadInput(
                f"a question with reaches of {reach:g} and {low_reach:g}: expected {_LEAST_REACH:g} or more"
            )
        centers = vector[3:].reshape(self.groups, self.components, self.numbers)
        return Components(centers, bool(vector[0] != 0), reach, low_reach)


@dataclass(frozen=True)
class Mixture:
    """The release of a run: each component's share of its group and center, and the spread within each group."""

    shares: Tensor  # [groups, components]
    centers: Tensor  # [groups, components, numbers]
    factor: Tensor  # [groups, moments, moments]: times its transpose, the covariance about centers

    def pack(self) -> Tensor:
        """One vector, float32."""
        return torch.cat([part.flatten().float() for part in (self.shares, self.centers, self.factor)])

    @classmethod
    def unpack(cls, vector: Tensor, form: MixtureForm) -> Mixture:
        """The mixture that `pack` wrote."""
        shapes = (
            (form.groups, form.components),
            (form.groups, form.components, form.numbers),
            (form.groups, form.moments, form.moments),
        )
        pieces = vector.split([torch.Size(shape).numel() for shape in shapes])
        return cls(*(piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)))


def low_first(numbers: Tensor, channels: int) -> Tensor:
    """The numbers of a picture, one channel after the other, as frequencies one after the other; [..., numbers]."""
    return numbers.unflatten(-1, (channels, -1)).transpose(-1, -2).flatten(-2)


def channels_first(numbers: Tensor, channels: int) -> Tensor:
    """The way back from `low_first`."""
    return numbers.unflatten(-1, (-1, channels)).transpose(-1, -2).flatten(-2)


@dataclass(frozen=True)
class MixtureModel(Counted):
    """Pictures of a mixture; with `wobble` each is turned, sheared, sized and shifted a little at random.

    With `bend` it is smoothly bent too.

    With `cut`, what is no brighter than it is black, and what is as near to white is white: what noise has left behind
    a picture is faint, and another in each class, so that a classifier would learn it in place of the picture.
    With `grain` every pixel has noise of its own, of this standard deviation: who learns from drawn pictures then does
    not learn how smooth a class is drawn.
    """

    form: MixtureForm
    wobble: float = 0.0
    grain: float = 0.0
    cut: float = 0.0
    bend: float = 0.0

    @property
    def question(self) -> int:  # type: ignore[override]
        """How many numbers a question has."""
        return self.form.question

    @property
    def answer(self) -> int:  # type: ignore[override]
        """How many numbers an answer has."""
        return self.form.answer

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Images in [0, 1] for the labels, [count, channels, side, side]."""
        mixture = Mixture.unpack(params["fitted"]["values"], self.form)
        generator = rng.at("sample").torch_generator()
        groups = labels.clamp(0, self.form.groups - 1)
        return torch.cat([self._drawn(mixture, part, generator) for part in groups.split(_AT_ONCE)])

    def _drawn(self, mixture: Mixture, groups: Tensor, generator: torch.Generator) -> Tensor:
        form = self.form
        component = torch.multinomial(mixture.shares[groups], 1, generator=generator)[:, 0]
        numbers = mixture.centers[groups, component].clone()
        normal = torch.randn(len(groups), form.moments, generator=generator)
        numbers[:, : form.moments] += torch.einsum("rij,rj->ri", mixture.factor[groups], normal)
        images = picture(channels_first(numbers, form.channels), form.channels, form.side)
        images = ((images - self.cut) / (1 - 2 * self.cut)).clamp(0, 1)
        images = wobbled(images, self.wobble, generator, self.bend)
        return (images + self.grain * torch.randn(images.shape, generator=generator)).clamp(0, 1)
