"""Language models: recurrent networks over words or bytes, and the exact probability of a text under them.

A coupled-gate LSTM with projection (Greff et al. 2015; Sak et al. 2014) as in Augenstein et al. (2020, appendix B.2),
written in plain operations: torch's own LSTM falls back to a loop over clients under vmap. The output layer shares the
embedding's weights, which halves what has to be noised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedsynth.data.text import END, START, UNKNOWN
from fedsynth.models.model import Batch, Objective, Params, layouts, weighted_mean
from fedsynth.rng import Rng

_ENDS, _UNKNOWN_SHARE = 0.07, 0.2  # guesses at the share of ends and of unknown words among all symbols
Carry = tuple[tuple[Tensor, Tensor], ...]  # (cell, projected) of each layer


class _Cell(nn.Module):
    """One layer: the forget gate decides what is kept, its complement what is let in."""

    def __init__(self, inputs: int, hidden: int, projected: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(inputs, 3 * hidden)
        self.recurrent = nn.Linear(projected, 3 * hidden, bias=False)
        self.project = nn.Linear(hidden, projected, bias=False)

    def forward(self, inputs: Tensor, carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The next carry from what the inputs give, [rows, 3 hidden]."""
        cell, projected = carry
        keep, out, new = (inputs + self.recurrent(projected)).chunk(3, dim=-1)
        keep = torch.sigmoid(keep + 1.0)
        cell = keep * cell + (1 - keep) * torch.tanh(new)
        return cell, self.project(torch.sigmoid(out) * torch.tanh(cell))


class Recurrent(nn.Module):
    """Embedding, layers of cells, and an output that reuses the embedding."""

    def __init__(self, symbols: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(symbols, embedding))
        self.cells = nn.ModuleList(_Cell(embedding, hidden, embedding) for _ in range(layers))
        self.bias = nn.Parameter(torch.empty(symbols))
        self.hidden = hidden
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Small random embeddings and no preference among symbols."""
        nn.init.normal_(self.embedding, std=1 / math.sqrt(self.embedding.shape[1]))
        nn.init.zeros_(self.bias)

    def forward(self, symbols: Tensor, carry: Carry | None = None) -> tuple[Tensor, Carry]:
        """Logits [rows, length, symbols] of the symbol after each, and the carry after the last."""
        states = carry or self._fresh(symbols)
        outputs = self.embedding[symbols]
        kept = []
        for cell, state in zip(self.cells, states, strict=True):
            assert isinstance(cell, _Cell)
            inputs = cell.inputs(outputs)
            steps = []
            for at in range(symbols.shape[1]):
                state = cell(inputs[:, at], state)
                steps.append(state[1])
            outputs = torch.stack(steps, dim=1)
            kept.append(state)
        return outputs @ self.embedding.t() + self.bias, tuple(kept)

    def _fresh(self, symbols: Tensor) -> Carry:
        rows, width = len(symbols), self.embedding.shape[1]
        blank = self.embedding.new_zeros(())
        return tuple((blank.expand(rows, self.hidden), blank.expand(rows, width)) for _ in self.cells)


def zipf_bias(symbols: int) -> Tensor:
    """Where a bias starts if words are listed from the most frequent on: the shares that Zipf's law gives their ranks.

    A text of a dozen words ends after the last, and a fifth of its words are taken to be unknown.

    >>> torch.softmax(zipf_bias(103), 0)[[END, UNKNOWN, 3]]
    tensor([0.0700, 0.2000, 0.0706])
    """
    ranks = torch.arange(symbols - UNKNOWN - 1, dtype=torch.float32) + 2.7  # Mandelbrot's shift
    words = (1 - _ENDS - _UNKNOWN_SHARE) / ranks / (1 / ranks).sum()
    special = torch.zeros(UNKNOWN + 1)
    special[END], special[START], special[UNKNOWN] = _ENDS, 1e-6, _UNKNOWN_SHARE
    shares = torch.cat([special, words]).log()
    return shares - shares.mean()


@dataclass(frozen=True)
class ZipfStart:
    """The public starting point of a word model whose vocabulary is listed from the most frequent word on."""

    model: LanguageModel

    def __call__(self, parts: dict[str, Tensor], rng: Rng) -> dict[str, Tensor]:
        """The parts with such a bias."""
        layout = layouts(self.model)["model"]
        named = {**layout.split(parts["model"]), "bias": zipf_bias(self.model.symbols)}
        return {**parts, "model": layout.join(named)}


@dataclass(frozen=True)
class LanguageModel:
    """The next symbol of a text, given those before it."""

    symbols: int
    length: int
    embedding: int = 32
    hidden: int = 64
    layers: int = 1
    temperature: float = 1.0
    top: int = 0  # only the `top` likeliest symbols are drawn; 0: all
    generative: ClassVar[tuple[str, ...]] = ("model",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """One part: all of it is shared."""
        return {"model": Recurrent(self.symbols, self.embedding, self.hidden, self.layers)}

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The mean surprise at a symbol; reported up to that of an even guess."""
        return {"next symbol": Objective(noise=(0,), bound=math.log(self.symbols))}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The mean surprise at the next symbol, rows weighted by how many symbols they have."""
        rows = batch["x"].to(torch.int64)
        surprise, counted = self._surprise(params["model"], rows)
        lengths = counted.sum(1)
        weight = batch["weight"] * lengths
        return weighted_mean(surprise.sum(1) / lengths, weight)

    def _read(self, params: Params, symbols: Tensor, carry: Carry | None = None) -> tuple[Tensor, Carry]:
        """Logits of the symbol after each, and the carry after the last."""
        read: tuple[Tensor, Carry] = functional_call(self.parts["model"], params, (symbols, carry))
        return read

    def _surprise(self, params: Params, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Minus the log-probability of each symbol after the start [rows, length], and which of them count."""
        logits, _ = self._read(params, rows[:, :-1])
        following = rows[:, 1:]
        chosen = logits.gather(-1, following[..., None]).squeeze(-1)
        surprise = torch.logsumexp(logits, dim=-1) - chosen
        ended = torch.cumsum((following == END).to(torch.float32), dim=1)
        counted = ((ended <= 1) & ((following != END) | (ended == 1))).to(torch.float32)
        return surprise * counted, counted

    @torch.no_grad()
    def log_probability(self, params: Mapping[str, Params], rows: Tensor) -> Tensor:
        """The exact joint log-probability of each row [rows] (Augenstein et al. 2020, equation 1), its end included."""
        pieces = rows.to(torch.int64).split(1000)
        return torch.cat([-self._surprise(params["model"], piece)[0].sum(1) for piece in pieces])

    @torch.no_grad()
    def perplexity(self, params: Mapping[str, Params], rows: Tensor) -> float:
        """The exponential of the mean surprise at a symbol."""
        total = count = 0.0
        for piece in rows.to(torch.int64).split(1000):
            surprise, counted = self._surprise(params["model"], piece)
            total, count = total + float(surprise.sum()), count + float(counted.sum())
        return float(torch.tensor(total / max(1.0, count), dtype=torch.float64).exp())

    @torch.no_grad()
    def accuracy(self, params: Mapping[str, Params], rows: Tensor) -> float:
        """How often the likeliest word of the vocabulary is the one that comes, where one of them does come."""
        right = count = 0.0
        for piece in rows.to(torch.int64).split(500):
            logits, _ = self._read(params["model"], piece[:, :-1])
            first = UNKNOWN + 1
            guess, following = logits[..., first:].argmax(-1) + first, piece[:, 1:]
            known = following >= first
            right, count = right + float(((guess == following) & known).sum()), count + float(known.sum())
        return right / max(1.0, count)

    @torch.no_grad()
    def following(self, params: Mapping[str, Params], rows: Tensor) -> Tensor:
        """The probability of each symbol after each place of the rows, [rows, places, symbols]."""
        pieces = rows.to(torch.int64).split(500)
        return torch.cat([F.softmax(self._read(params["model"], piece)[0], dim=-1) for piece in pieces])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Rows of symbols [count, length + 1], each a start and what follows until its end."""
        generator = rng.at("sample").torch_generator()
        pieces = labels.split(2000)
        return torch.cat([self._write(params["model"], len(piece), generator) for piece in pieces])

    @torch.no_grad()
    def _write(self, params: Params, count: int, generator: torch.Generator) -> Tensor:
        rows = torch.zeros(count, self.length + 1, dtype=torch.int64)
        rows[:, 0] = START
        carry: Carry | None = None
        going = torch.ones(count, dtype=torch.bool)
        for at in range(self.length):
            logits, carry = self._read(params, rows[:, at : at + 1], carry)
            logits = logits[:, 0] / self.temperature
            logits[:, START] = -math.inf
            if self.top:
                least = logits.topk(min(self.top, self.symbols), dim=-1).values[:, -1:]
                logits = logits.masked_fill(logits < least, -math.inf)
            drawn = torch.multinomial(F.softmax(logits, dim=-1), 1, generator=generator)[:, 0]
            rows[:, at + 1] = torch.where(going, drawn, END)
            going = going & (drawn != END)
            if not bool(going.any()):
                break
        return rows
