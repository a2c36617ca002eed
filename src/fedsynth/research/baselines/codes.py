"""Rows as small whole numbers and back, from the public schema alone: what statistical baselines count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.encode import Block
from fedsynth.data.image import Image
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.errors import BadInput
from fedsynth.rng import Rng


@dataclass(frozen=True)
class Codes:
    """One code for each column (or pixel), the label's last; ordered values are put into `bins` cells.

    `typical` squeezes an ordered column around the middle of its range (asinh, in units of that share of half the
    range): for signals, whose values crowd there. 0 leaves cells of equal width.

    >>> from fedsynth.data.schema import Column
    >>> codes = Codes(Schema(columns=(Column("age", "integer", min=0, max=3),)), bins=2)
    >>> x, y = Table(codes.schema).encode(__import__("pandas").DataFrame({"age": [0, 3]}))
    >>> codes.encode(x, y).tolist(), codes.sizes
    ([[0], [1]], (2,))
    """

    schema: Schema
    bins: int = 8
    typical: float = 0.0

    def __post_init__(self) -> None:
        if self.bins < 2:
            raise BadInput(f"bins={self.bins}: an ordered column needs at least 2 cells")
        if not 0 <= self.typical <= 1:
            raise BadInput(
                f"typical={self.typical}: expected 0 (no squeezing) or a share of the range up to 1"
            )

    @cached_property
    def _blocks(self) -> tuple[Block, ...]:
        return () if self._pixels else Table(self.schema).blocks

    @cached_property
    def _pixels(self) -> tuple[int, int, int] | None:
        """Channels, height and width of images; None for a table."""
        return Image(self.schema).shape if self.schema.height else None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each column has."""
        label = (len(self.schema.classes),) if self.schema.classes else ()
        if self._pixels:
            return (self.bins,) * int(np.prod(self._pixels)) + label
        cells = ((self.bins if block.ordered else block.bins) + block.missing for block in self._blocks)
        return (*cells, *label)

    def encode(self, x: Tensor, y: Tensor) -> np.ndarray:
        """int64 [rows, columns] of encoded rows or images."""
        if self._pixels:
            codes = (x.flatten(1).to(torch.int64) * self.bins // 256).numpy()
        else:
            rows = x.numpy()
            codes = np.stack([self._codes(rows, block) for block in self._blocks], axis=1)
        return np.concatenate([codes, y.numpy()[:, None]], axis=1) if self.schema.classes else codes

    def decode(self, codes: np.ndarray, rng: Rng) -> tuple[Tensor, Tensor]:
        """Encoded rows or images, and classes; a value is drawn evenly from its cell."""
        within = rng.at("within").numpy().random(codes.shape)
        y = torch.from_numpy(codes[:, -1].copy()) if self.schema.classes else torch.zeros(len(codes)).long()
        if self._pixels:
            pixels = (codes + within)[:, : len(self.sizes) - bool(self.schema.classes)] * (256 / self.bins)
            return torch.from_numpy(pixels.astype(np.uint8)).reshape(-1, *self._pixels), y
        rows = np.zeros((len(codes), Table(self.schema).width), dtype=np.float32)
        for number, block in enumerate(self._blocks):
            self._write(rows, block, codes[:, number], within[:, number])
        return torch.from_numpy(rows), y

    def _codes(self, rows: np.ndarray, block: Block) -> np.ndarray:
        entry = rows[:, block.start : block.place].argmax(axis=1)
        if not block.ordered:
            return entry.astype(np.int64)
        cell = np.clip(np.floor(self._squeezed(rows[:, block.place]) * self.bins), 0, self.bins - 1)
        return np.where((entry == block.bins) & block.missing, self.bins, cell).astype(np.int64)

    def _write(self, rows: np.ndarray, block: Block, codes: np.ndarray, within: np.ndarray) -> None:
        entry = codes
        if block.ordered:
            at = self._spread((codes + within) / self.bins)
            missing = codes >= self.bins
            rows[:, block.place] = np.where(missing, 0.5, at)
            entry = np.where(missing, block.bins, np.minimum(np.floor(at * block.bins), block.bins - 1))
        rows[np.arange(len(rows)), block.start + entry.astype(np.int64)] = 1.0

    def _squeezed(self, position: np.ndarray) -> np.ndarray:
        if not self.typical:
            return position
        return 0.5 + 0.5 * np.arcsinh((2 * position - 1) / self.typical) / np.arcsinh(1 / self.typical)

    def _spread(self, squeezed: np.ndarray) -> np.ndarray:
        """The inverse of `_squeezed`."""
        if not self.typical:
            return np.clip(squeezed, 0.0, 1.0)
        amplitude = np.sinh((2 * squeezed - 1) * np.arcsinh(1 / self.typical)) * self.typical
        return np.clip(0.5 + 0.5 * amplitude, 0.0, 1.0)
