"""Bugs seen in texts: a first word that is unknown more often, and words that nobody listed."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.inspection.text import Speaker
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator

# Above this, a first-word shift is more than chance: three standard deviations of it between two models of the same
# texts (5,774 users, epsilon 10 for both), rounded up; see experiments/inspection_text
FIRST_WORD_SHIFT = 0.3
_WORDS = 20_000  # drawn to find the likely ones
_SURE = 1e-4  # rates are kept this far from 0 and 1 before their odds are compared


def first_word_shift(before: Sequence[float], after: Sequence[float]) -> float:
    """How much the odds of an unknown first word rose beyond those of later words, as a difference of log-odds.

    Two rates by position go in, as `unknown_by_position` gives them. A shift at all positions alike, such as a rarer
    topic or a worse model, leaves it at 0; a bug at the start of texts does not.

    >>> first_word_shift([0.1, 0.2, 0.2], [0.1, 0.2, 0.2])
    0.0
    >>> round(first_word_shift([0.1, 0.2, 0.2], [0.2, 0.2, 0.2]), 2)
    0.81
    """
    if len(before) < 2 or len(after) < 2:
        raise BadInput(
            f"{len(before)} and {len(after)} positions: expected rates of at least two positions each"
        )
    moved = [_odds(late) - _odds(early) for early, late in zip(before, after, strict=False)]
    return moved[0] - float(np.mean(moved[1:]))


def _odds(rate: float) -> float:
    kept = min(max(rate, _SURE), 1 - _SURE)
    return math.log(kept / (1 - kept))


def unlisted_words(
    generator: Generator, known: Collection[str], rng: Rng, count: int = 20, texts: int = _WORDS
) -> list[tuple[str, float]]:
    """The likeliest words that a model of bytes writes and that are not known, with their joint probabilities."""
    speaker = Speaker(generator)
    drawn = {text for text in speaker.encoding.texts(speaker.rows(texts, rng.at("words"))) if text}
    unlisted = sorted(text for text in drawn if text.lower() not in known)
    chances = speaker.probabilities(unlisted) if unlisted else np.zeros(0)
    order = np.argsort(-chances, kind="stable")[:count]
    return [(unlisted[place], float(chances[place])) for place in order]
