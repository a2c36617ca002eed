"""Exposure: has a language model memorized a sentence that one client wrote (Carlini et al. 2019, The Secret Sharer).

A canary is a fixed frame with random words in its gaps. A model that has not memorized it ranks it anywhere among all
ways to fill the gaps; one that has ranks it first. Exposure is log2 of how many there are, less log2 of its rank: luck
gives 1.44 on average, full memorization log2 of all. Where there are too many to list, the rank follows from a sample
of them, or from a skew-normal curve through the surprise at a sample (their section 4.3).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.rng import Rng

Surprise = Callable[[Sequence[str]], np.ndarray]  # minus the log-probability of each text
GAP = "{}"
MOST_LISTED = 200_000


@dataclass(frozen=True)
class Frame:
    """A sentence with gaps, and the words that may fill each of them.

    >>> frame = Frame("my code is {} {}", ("red", "blue", "green"))
    >>> frame.size, frame.filled((0, 2))
    (9, 'my code is red green')
    """

    sentence: str
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.gaps:
            raise BadInput(f"frame {self.sentence!r}: has no gap; expected at least one {GAP}")
        if len(set(self.words)) < 2:
            raise BadInput(f"words={self.words!r}: expected at least two different words to fill a gap with")

    @property
    def gaps(self) -> int:
        """How many words are random."""
        return self.sentence.count(GAP)

    @property
    def size(self) -> int:
        """In how many ways the gaps can be filled."""
        return int(len(self.words) ** self.gaps)

    def filled(self, places: Sequence[int]) -> str:
        """The sentence with these words in its gaps."""
        return self.sentence.format(*(self.words[place] for place in places))

    def draw(self, count: int, rng: Rng) -> list[str]:
        """Random fillings."""
        places = rng.numpy().integers(0, len(self.words), (count, self.gaps))
        return [self.filled(row) for row in places]

    def every(self) -> list[str]:
        """All fillings."""
        if self.size > MOST_LISTED:
            raise BadInput(
                f"frame {self.sentence!r}: {self.size} fillings are too many to list; draw a sample, or fit a curve"
            )
        return [self.filled(places) for places in itertools.product(range(len(self.words)), repeat=self.gaps)]


def exposure_by_rank(canary: float, all_of_them: np.ndarray) -> float:
    """Exposure from the surprise at the canary and at all fillings, the canary among them; ties share their ranks.

    >>> exposure_by_rank(1.0, np.array([1.0, 2.0, 3.0, 4.0]))
    2.0
    """
    less, same = float((all_of_them < canary).sum()), float((all_of_them == canary).sum())
    rank = less + (max(1.0, same) + 1) / 2
    return math.log2(len(all_of_them)) - math.log2(rank)


def exposure_by_curve(canary: float, sample: np.ndarray) -> float:
    """Exposure by a skew-normal curve through the surprise at random other fillings; not bounded by their number."""
    from scipy.stats import skewnorm

    spread = float(sample.std())
    if len(sample) < 20 or spread == 0:
        raise BadInput(
            f"{len(sample)} fillings with a spread of {spread:g}: expected at least 20 that differ"
        )
    center = float(sample.mean())
    shape, place, scale = skewnorm.fit((sample - center) / spread)
    below = skewnorm.logcdf((canary - center) / spread, shape, place, scale)
    return float(-below / math.log(2))


@dataclass(frozen=True)
class Exposure:
    """How far a canary stands out: by its rank among all fillings (None: too many) and by a curve through a sample."""

    canary: str
    surprise: float
    by_rank: float | None
    by_curve: float
    highest: float  # log2 of the number of fillings


def exposures(
    surprise: Surprise, frame: Frame, canaries: Sequence[str], rng: Rng, sample: int = 2000
) -> list[Exposure]:
    """The exposure of each canary, one of the frame's fillings, under a model that says how surprising texts are."""
    own = surprise(canaries)
    others = [text for text in frame.draw(sample, rng) if text not in canaries]
    drawn, everything = surprise(others), None
    if frame.size <= MOST_LISTED:
        listed = frame.every()
        strange = set(canaries) - set(listed)
        if strange:
            raise BadInput(
                f"canary {min(strange)!r}: is no filling of {frame.sentence!r}; draw it from the frame"
            )
        everything = surprise(listed)
    return [
        Exposure(
            text,
            float(value),
            None if everything is None else exposure_by_rank(float(value), everything),
            exposure_by_curve(float(value), drawn),
            math.log2(frame.size),
        )
        for text, value in zip(canaries, own, strict=True)
    ]
