"""Views of texts that nobody may read, by language models: unknown words by position, likely words, shifts.

Everything here is computed from released models alone, so it costs nothing more. Probabilities are the model's own and
not shares of samples (Augenstein et al. 2020, equation 1), which is exact at the first position and smooth elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.text import END, UNKNOWN, Text
from fedsynth.errors import BadInput
from fedsynth.models.language import LanguageModel
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator

POSITIONS = 8
_TEXTS = 2000  # drawn to average over


@dataclass(frozen=True)
class Speaker:
    """A released language model that can be asked."""

    generator: Generator

    def __post_init__(self) -> None:
        if not self.generator.schema.vocabulary:
            raise BadInput(f"kind={self.generator.schema.kind}: expected a model of texts")

    @cached_property
    def encoding(self) -> Text:
        """How its texts are made of symbols."""
        return Text(self.generator.schema)

    @cached_property
    def model(self) -> LanguageModel:
        """The model as it was trained, whatever temperature it writes with."""
        model = cast(LanguageModel, self.generator.model)
        return replace(model, temperature=1.0, top=0)

    def rows(self, count: int, rng: Rng) -> Tensor:
        """Drawn texts as symbols [count, length + 1]."""
        return self.model.sample(self.generator.params, torch.zeros(count), rng)

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """The exact joint probability of each text, its end included."""
        encoded = self.encoding.encode(texts)[0]
        return self.model.log_probability(self.generator.params, encoded).exp().double().numpy()


def unknown_by_position(
    generator: Generator, rng: Rng, positions: int = POSITIONS, texts: int = _TEXTS
) -> list[float]:
    """The share of unknown words among the words at the first, second, ... position that a word model writes."""
    speaker = Speaker(generator)
    if speaker.encoding.by_bytes:
        raise BadInput("vocabulary='bytes': a model of bytes has no unknown words; give one of words")
    places = min(positions, speaker.encoding.length)
    rows = speaker.rows(texts, rng.at("texts"))
    chances = speaker.model.following(speaker.generator.params, rows[:, :places])
    ended = torch.cumsum((rows[:, :places] == END).to(torch.int64), dim=1) > 0
    going = (~ended).to(chances.dtype)
    unknown = (going * chances[..., UNKNOWN]).sum(0)
    words = (going * (1 - chances[..., END])).sum(0)
    return [float(share) for share in unknown / words.clamp(min=1e-12)]


@dataclass(frozen=True)
class Shift:
    """A word with its probability under two models."""

    word: str
    one: float
    other: float

    @property
    def ratio(self) -> float:
        """How many times likelier it is under the second."""
        return self.other / max(self.one, 1e-300)


def words_by_ratio(
    one: Generator, other: Generator, rng: Rng, count: int = 20, texts: int = _TEXTS, least: float = 1e-3
) -> list[Shift]:
    """The words that the second model favors most over the first, among those with at least probability `least` there.

    Of models of bytes a word is a whole text, with its joint probability; of models of words, a word's share of all
    words that the model writes.
    """
    speakers = Speaker(one), Speaker(other)
    if one.schema.vocabulary != other.schema.vocabulary:
        raise BadInput("the two models have different vocabularies; train them on one schema to compare them")
    compared = _joint if speakers[0].encoding.by_bytes else _shares
    shifts = compared(*speakers, rng, texts)
    likely = [shift for shift in shifts if shift.other >= least]
    return sorted(likely, key=lambda shift: (-shift.ratio, shift.word))[:count]


def _joint(one: Speaker, other: Speaker, rng: Rng, texts: int) -> list[Shift]:
    drawn = [
        set(speaker.encoding.texts(speaker.rows(texts, rng.at("side", side))))
        for side, speaker in enumerate((one, other))
    ]
    words = sorted((drawn[0] | drawn[1]) - {""})
    pairs = zip(words, one.probabilities(words), other.probabilities(words), strict=True)
    return [Shift(word, float(first), float(second)) for word, first, second in pairs]


def _shares(one: Speaker, other: Speaker, rng: Rng, texts: int) -> list[Shift]:
    sides = [_word_shares(s, s.rows(texts, rng.at("side", n))) for n, s in enumerate((one, other))]
    words = ("unknown words", *one.encoding.words)
    return [
        Shift(word, float(first), float(second)) for word, first, second in zip(words, *sides, strict=True)
    ]


def _word_shares(speaker: Speaker, rows: Tensor) -> np.ndarray:
    """The mean probability of the unknown word and of each word of the vocabulary, over all places of these texts."""
    chances = speaker.model.following(speaker.generator.params, rows[:, :-1])
    going = (torch.cumsum((rows[:, :-1] == END).to(torch.int64), dim=1) == 0).to(chances.dtype)
    total = (chances * going[..., None]).sum((0, 1))[UNKNOWN:]
    return np.asarray((total / total.sum()).double().numpy())
