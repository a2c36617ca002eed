"""Do texts read alike, and are they copies: perplexity, n-grams, unknown words, duplicates of training texts.

Words are runs of letters, digits and apostrophes, in small letters; any other mark is a word by itself.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedsynth.errors import BadInput

_WORD = re.compile(r"[\w']+|[^\w\s]")
_START = "<start>"
_SHINGLE = 5  # words in a row by which near duplicates are found
_NEAR = 0.8  # share of shingles in common from which on a text is a near duplicate
_ADDED = 0.1  # to the counts of an n-gram's continuations, before mixing


def words(text: str) -> list[str]:
    """The words of a text.

    >>> words("Don't stop, Anna!")
    ["don't", 'stop', ',', 'anna', '!']
    """
    return _WORD.findall(text.lower())


def ngrams(tokens: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """Runs of `size` words."""
    return (tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1))


def ngram_overlap(real: Iterable[str], synthetic: Iterable[str], size: int) -> float:
    """1 minus the total variation distance between the shares of n-grams: 1 alike, 0 nothing in common.

    >>> ngram_overlap(["a b c"], ["a b d"], 2)
    0.5
    """
    one, other = (
        Counter(gram for text in texts for gram in ngrams(words(text), size)) for texts in (real, synthetic)
    )
    if not one or not other:
        raise BadInput(f"no {'real' if not one else 'synthetic'} text has {size} words in a row")
    ones, others = sum(one.values()), sum(other.values())
    return float(sum(min(count / ones, other[gram] / others) for gram, count in one.items()))


def vocabulary_overlap(real: Iterable[str], synthetic: Iterable[str]) -> float:
    """Share of the words in either that both have (Jaccard).

    >>> vocabulary_overlap(["a b"], ["b c"])
    0.3333333333333333
    """
    one, other = ({word for text in texts for word in words(text)} for texts in (real, synthetic))
    if not one | other:
        raise BadInput("there are no words in the texts")
    return len(one & other) / len(one | other)


def unknown_by_position(known: set[str], texts: Iterable[str], positions: int) -> list[float]:
    """Share of unknown words at the first, second, ... place of a text, as far as there are texts that long.

    >>> unknown_by_position({"a"}, ["a b", "b b"], 3)
    [0.5, 1.0]
    """
    counts, unknown = [0] * positions, [0] * positions
    for text in texts:
        for place, word in enumerate(words(text)[:positions]):
            counts[place] += 1
            unknown[place] += word not in known
    return [wrong / count for wrong, count in zip(unknown, counts, strict=True) if count]


@dataclass(frozen=True)
class TrigramModel:
    """A simple language model: shares of words after one and two others, mixed, with room for unknown words."""

    three: dict[tuple[str, ...], int]
    two: dict[tuple[str, ...], int]
    one: dict[str, int]
    after_two: dict[tuple[str, ...], int]
    after_one: dict[tuple[str, ...], int]
    total: int

    @classmethod
    def fit(cls, texts: Iterable[str]) -> TrigramModel:
        """Count."""
        three: Counter[tuple[str, ...]] = Counter()
        two: Counter[tuple[str, ...]] = Counter()
        one: Counter[str] = Counter()
        after_two: Counter[tuple[str, ...]] = Counter()
        after_one: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            padded = [_START, _START, *words(text)]
            one.update(padded[2:])
            three.update(ngrams(padded, 3))
            two.update(ngrams(padded[1:], 2))
            after_two.update(ngrams(padded[:-1], 2))
            after_one.update((word,) for word in padded[1:-1])
        if not one:
            raise BadInput("there are no words to learn from")
        return cls(three, two, one, after_two, after_one, sum(one.values()))

    def chance(self, before: tuple[str, str], word: str) -> float:
        """How likely `word` is after two others; the chances of all known words and one unknown add up to 1."""
        size = len(self.one) + 1
        single = (self.one.get(word, 0) + _ADDED) / (self.total + _ADDED * size)
        pairs = self.after_one.get(before[1:], 0)
        double = (self.two.get((before[1], word), 0) + single) / (pairs + 1)
        triples = self.after_two.get(before, 0)
        return (self.three.get((*before, word), 0) + double) / (triples + 1)

    def perplexity(self, texts: Iterable[str]) -> float:
        """Exponential of the mean surprise a word; an unknown word counts as one."""
        surprise, count = 0.0, 0
        for text in texts:
            padded = [_START, _START, *(word if word in self.one else "<unknown>" for word in words(text))]
            for first, second, word in ngrams(padded, 3):
                surprise -= math.log(self.chance((first, second), word))
                count += 1
        if not count:
            raise BadInput("there are no words in the texts")
        return math.exp(surprise / count)

    def accuracy(self, texts: Iterable[str]) -> float:
        """How often the most likely word after two others is the one that comes: next-word prediction."""
        best: dict[tuple[str, ...], tuple[int, str]] = {}
        for grams, size in ((self.two, 2), (self.three, 3)):
            for gram, count in grams.items():
                best[gram[:-1]] = max(best.get(gram[:-1], (0, "")), (count, gram[-1]))
                assert len(gram) == size
        frequent = max(self.one, key=self.one.__getitem__)
        right, count = 0, 0
        for text in texts:
            for first, second, word in ngrams([_START, _START, *words(text)], 3):
                guess = best.get((first, second)) or best.get((second,)) or (0, frequent)
                right += guess[1] == word
                count += 1
        if not count:
            raise BadInput("there are no words in the texts")
        return right / count


def duplicates(known: Sequence[str], texts: Sequence[str]) -> tuple[list[int], list[tuple[int, int, float]]]:
    """Rows of `texts` that are known texts word by word, and (row, known row, share) of those that nearly are.

    Near means that at least 80% of a text's runs of five words occur in one known text.
    """
    exact = {tuple(words(text)): row for row, text in enumerate(known)}
    index: dict[tuple[str, ...], list[int]] = {}
    for row, text in enumerate(known):
        for shingle in set(ngrams(words(text), _SHINGLE)):
            index.setdefault(shingle, []).append(row)
    same, near = [], []
    for row, text in enumerate(texts):
        tokens = words(text)
        if tokens and tuple(tokens) in exact:
            same.append(row)
            continue
        shingles = set(ngrams(tokens, _SHINGLE))
        shared = Counter(place for shingle in shingles for place in index.get(shingle, ()))
        if shared:
            place, count = shared.most_common(1)[0]
            if count / len(shingles) >= _NEAR:
                near.append((row, place, count / len(shingles)))
    return same, near
