"""The interface of a model: named parts without parameters inside, and named losses that are pure functions of them.

A part's parameters are one flat vector; a `Layout` gives them their names and shapes back. Flat vectors are what
is stored, optimised, clipped, encrypted and sent; a stack of them, [clients, size], is a cohort.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedsynth.data.encode import Block
from fedsynth.rng import Rng

Params = dict[str, Tensor]
Batch = dict[str, Tensor]  # x [rows, ...], y [rows] class numbers, weight [rows]
_MIXING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # also without buffers, by statistics of a batch


@dataclass(frozen=True)
class Objective:
    """A loss by name: the noise it needs for each row, and the values between which it is reported."""

    noise: tuple[int, ...]
    bound: float
    least: float = 0.0


@dataclass(frozen=True)
class Layout:
    """The names and shapes inside a flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    open_ended: bool = False  # one tensor, as long as what was learned

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module's parameters, which must be all it has: a buffer would leave without noise."""
        buffers = [name for name, _ in module.named_buffers()]
        assert not buffers, (
            f"{type(module).__name__} has buffers {buffers}: what is shared must be parameters"
        )
        mixing = [name for name, part in module.named_modules() if isinstance(part, _MIXING)]
        assert not mixing, (
            f"{type(module).__name__} has batch statistics in {mixing}: a record must not see others"
        )
        named = list(module.named_parameters())
        open_ended = getattr(module, "open_ended", False)
        return cls(tuple(n for n, _ in named), tuple(tuple(p.shape) for _, p in named), open_ended)

    @property
    def sizes(self) -> list[int]:
        """How many numbers each tensor has."""
        return [torch.Size(shape).numel() for shape in self.shapes]

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(self.sizes)

    def split(self, flat: Tensor) -> Params:
        """Named views of a flat vector [..., size]. One split: its gradient is a single concatenation."""
        if self.open_ended:
            return {self.names[0]: flat}
        pieces = flat.split(self.sizes, dim=-1)
        lead = flat.shape[:-1]
        return {n: p.reshape(*lead, *s) for n, p, s in zip(self.names, pieces, self.shapes, strict=True)}

    def join(self, params: Mapping[str, Tensor]) -> Tensor:
        """The flat vector of named tensors."""
        return torch.cat([params[name].reshape(-1) for name in self.names])


class Model(Protocol):
    """Named parts (the unit of sharing) and named losses."""

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """The unit of sharing: for example encoder and decoder. The modules' own parameters are never used."""

    @property
    def generative(self) -> tuple[str, ...]:
        """The parts that are needed to make data: what a run releases."""

    @property
    def objectives(self) -> Mapping[str, Objective]:
        """The losses that can be trained on."""

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The loss of a batch, rows weighted by batch["weight"]; pure and safe under vmap."""

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """One encoded row or image for each label."""


def layouts(model: Model) -> dict[str, Layout]:
    """The layout of each part."""
    return {name: Layout.of(module) for name, module in model.parts.items()}


def initialise(model: Model, rng: Rng) -> dict[str, Tensor]:
    """Fresh public parameters for each part, as flat vectors."""
    flat = {}
    for name, module in model.parts.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.at("initialise", name).integer())
            for child in module.modules():
                reset = getattr(child, "reset_parameters", None)
                if callable(reset):
                    reset()
        flat[name] = Layout.of(module).join(dict(module.named_parameters())).detach().clone()
    return flat


def call(module: nn.Module, params: Params, *inputs: Tensor) -> Any:
    """Run a part with the given parameters."""
    return functional_call(module, params, inputs)


def with_own_layers(model: Any, known: dict[int, Any] | None = None) -> Any:
    """A copy of a model for another thread: `call` lends layers their weights, so each thread needs its own."""
    known = {} if known is None else known
    own = copy(model)
    for name, value in vars(model).items():
        if isinstance(value, nn.Module):
            layers: Any = deepcopy(value, known)
        elif isinstance(value, Mapping) and any(isinstance(each, nn.Module) for each in value.values()):
            layers = {key: deepcopy(each, known) for key, each in value.items()}
        elif hasattr(value, "parts"):
            layers = with_own_layers(value, known)
        else:
            continue
        object.__setattr__(own, name, layers)
    return own


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """The mean of `values` [rows] over the rows that count; zero if none does."""
    return (values * weight).sum() / weight.sum().clamp(min=1e-12)


def named_params(model: Model, parts: Mapping[str, Tensor]) -> dict[str, Params]:
    """Give flat parts their names and shapes back."""
    shapes = layouts(model)
    return {part: shapes[part].split(flat) for part, flat in parts.items()}


def sample_pieces(
    model: Model, parts: Mapping[str, Tensor], labels: Tensor, rng: Rng, size: int, first: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Encoded rows and their labels, `size` at a time, from flat parts; `first` is the number of the first piece."""
    params = named_params(model, parts)
    for number, piece in enumerate(labels.split(size), first):
        yield model.sample(params, piece, rng.at("piece", number)), piece


def draw_rows(logits: Tensor, blocks: Sequence[Block], width: int, generator: torch.Generator) -> Tensor:
    """Encoded rows [count, width] drawn from logits [count, choices], block after block.

    An ordered column's number is uniform within the bin that was drawn.
    """
    rows = torch.zeros(len(logits), width)
    start = 0
    for block in blocks:
        chances = F.softmax(logits[:, start : start + block.size], dim=-1)
        choice = torch.multinomial(chances, 1, generator=generator)
        rows.scatter_(1, block.start + choice, 1.0)
        if block.ordered:
            within = torch.rand(len(logits), generator=generator)
            position = (choice[:, 0] + within) / block.bins
            missing = choice[:, 0] >= block.bins
            rows[:, block.start + block.size] = torch.where(missing, 0.5, position)
        start += block.size
    return rows


def total_size(model: Model, parts: Iterable[str]) -> int:
    """How many parameters these parts have together."""
    return sum(Layout.of(model.parts[part]).size for part in parts)
