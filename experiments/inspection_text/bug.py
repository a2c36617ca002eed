"""The tokenization bug of Augenstein et al. (2020, section 5): the first two tokens of some sentences become one."""

import re

import numpy as np
import torch

from fedsynth.data.schema import Schema
from fedsynth.data.text import START, UNKNOWN, Text

_WHOLE = Text(Schema(kind="text", vocabulary=("a",), length=1_000_000))
_FITTING = re.compile(r"\w")


def sentences_by_user(frame):
    """Each user's sentences as lists of tokens."""
    found = {}
    for user, text in zip(frame["user"], frame["text"], strict=True):
        split = (piece.split() for piece in _WHOLE.pieces(text))
        found.setdefault(user, []).extend(tokens for tokens in split if tokens)
    return list(found.values())


def with_bug(users, share, seed):
    """The same sentences, the first two tokens of about this share of them as one token with a space in it."""
    draw = np.random.default_rng([seed, 7])
    return [
        [
            [" ".join(tokens[:2]), *tokens[2:]] if len(tokens) > 1 and draw.random() < share else tokens
            for tokens in sentences
        ]
        for sentences in users
    ]


def beginnings(users, length):
    """The first `length` tokens of each sentence."""
    return [[tokens[:length] for tokens in sentences] for sentences in users]


def encode_words(pieces, schema):
    """Tokens as symbols of the vocabulary: one that was made of two is not in it."""
    encoding = Text(schema)
    numbers = {word: place + 3 for place, word in enumerate(encoding.words)}
    rows = np.zeros((len(pieces), encoding.length + 1), dtype=np.int32)
    rows[:, 0] = START
    sizes = np.array([len(tokens) for tokens in pieces])
    symbols = [numbers.get(token, UNKNOWN) for tokens in pieces for token in tokens]
    rows[:, 1:][np.arange(encoding.length) < sizes[:, None]] = symbols
    return torch.from_numpy(rows)


def unknown_words(users, known, first=False):
    """Each user's tokens that are not known, for the model of their spelling; marks without a letter are left out.

    With `first`, only those at the start of a sentence.
    """
    return [
        [
            token
            for tokens in sentences
            for token in (tokens[:1] if first else tokens)
            if token not in known and _FITTING.search(token)
        ]
        for sentences in users
    ]
