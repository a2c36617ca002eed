"""How two sets of synthetic texts differ: unknown words, length, and which words are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedsynth.data.text import UNKNOWN_WORD

_FREQUENT = 200  # words that are compared


def text_differences(one: Sequence[str], other: Sequence[str]) -> dict[str, float]:
    """Statistics between 0 and 1, by name.

    >>> text_differences(["UNK a", "b"], ["a b", "b"])["unknown first words"]
    0.5
    """
    sides = [[text.split() for text in side] for side in (one, other)]
    unknown = [_share_of_unknown(side) for side in sides]
    first = [_share_of_unknown([words[:1] for words in side]) for side in sides]
    lengths = [sum(map(len, side)) / max(1, len(side)) for side in sides]
    return {
        "unknown words": abs(unknown[0] - unknown[1]),
        "unknown first words": abs(first[0] - first[1]),
        "length": abs(lengths[0] - lengths[1]) / max(*lengths, 1.0),
        "frequent words": _distance(*sides),
    }


def _share_of_unknown(side: Sequence[Sequence[str]]) -> float:
    words = [word for words in side for word in words]
    return sum(word == UNKNOWN_WORD for word in words) / max(1, len(words))


def _distance(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> float:
    counts = [Counter(word for words in side for word in words) for side in (one, other)]
    frequent = [word for word, _ in (counts[0] + counts[1]).most_common(_FREQUENT)]
    totals = [max(1, sum(count[word] for word in frequent)) for count in counts]
    shares = [[count[word] / total for word in frequent] for count, total in zip(counts, totals, strict=True)]
    return sum(abs(a - b) for a, b in zip(*shares, strict=True)) / 2
