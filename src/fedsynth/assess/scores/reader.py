"""How well a run's own language model predicts texts that it never saw: perplexity and next word, by its symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.text import END, UNKNOWN, Text
from fedsynth.errors import BadInput
from fedsynth.models.language import LanguageModel
from fedsynth.synthesis.generator import Generator

_SMOOTHED = 0.5  # added to each symbol's count


@dataclass(frozen=True)
class Prediction:
    """Perplexity a symbol (the end is one), and how often the likeliest known word is the one that comes."""

    perplexity: float
    accuracy: float


@dataclass(frozen=True)
class LanguageReader:
    """A released language model as a reader of real texts. What it finds there is internal."""

    generator: Generator

    @cached_property
    def _model(self) -> LanguageModel:
        return cast(LanguageModel, self.generator.model)

    def rows(self, texts: Sequence[str]) -> Tensor:
        """The texts cut and encoded as in training."""
        encoding = Text(self.generator.schema)
        pieces = [piece for text in texts for piece in encoding.pieces(text) if piece]
        if not pieces:
            raise BadInput("the texts have no words; expected at least one text with words")
        return encoding.encode(pieces)[0]

    def predict(self, texts: Sequence[str]) -> Prediction:
        """How well the model predicts these texts."""
        rows = self.rows(texts)
        return Prediction(
            self._model.perplexity(self.generator.params, rows),
            self._model.accuracy(self.generator.params, rows),
        )

    def surprise(self, texts: Sequence[str]) -> np.ndarray:
        """Minus the joint log-probability of each text, uncut, as `exposure` asks for it."""
        rows = Text(self.generator.schema).encode(texts)[0]
        return -self._model.log_probability(self.generator.params, rows).double().numpy()

    def beside(self, known: Sequence[str], texts: Sequence[str]) -> Prediction:
        """The prediction from the shares of symbols in `known` texts alone, without any order and without privacy."""
        return unigrams(self.rows(known), self.rows(texts), self._model.symbols)


def unigrams(known: Tensor, rows: Tensor, symbols: int) -> Prediction:
    """The prediction of a model that knows each symbol's share among `known` rows and nothing else.

    >>> start = torch.tensor([[1, 3, 4, 0], [1, 3, 0, 0]])
    >>> unigrams(start, torch.tensor([[1, 3, 3, 4]]), 5).accuracy
    0.6666666666666666
    """
    counts = torch.bincount(_counted(known), minlength=symbols).double() + _SMOOTHED
    chances = counts / counts.sum()
    symbols_of_rows = _counted(rows)
    words = symbols_of_rows[symbols_of_rows > UNKNOWN]
    guess = int(chances[UNKNOWN + 1 :].argmax()) + UNKNOWN + 1
    accuracy = float((words == guess).double().mean()) if len(words) else 0.0
    return Prediction(float((-chances[symbols_of_rows].log()).mean().exp()), accuracy)


def _counted(rows: Tensor) -> Tensor:
    """The symbols after each start, up to and with the first end."""
    following = rows[:, 1:].to(torch.int64)
    ends = torch.cumsum((following == END).to(torch.int64), dim=1)
    return following[(ends == 0) | ((ends == 1) & (following == END))]
