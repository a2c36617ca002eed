"""A vocabulary that the clients pay for: the words that clearly more than one of them writes, from the most held on.

A weighted Gaussian set union (Gopi et al. 2020): each client spreads a weight of norm 1 evenly over the words that it
writes most often, at most MOST_WORDS, the sums get noise, and a word is shown if its noisy weight is more than one
client could give it. A text is read at its client; what the server learns are the words above the threshold and their
noisy weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedsynth.data.clients import Clients
from fedsynth.data.partition import by_column
from fedsynth.data.schema import Schema
from fedsynth.data.text import words_of
from fedsynth.errors import BudgetExhausted
from fedsynth.federation.statistics import Holdings
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.paid_release import Payers, clients_with, noise_of

MOST_WORDS = 1000  # different words that one client names


def pay_for_vocabulary(
    texts: Sequence[str],
    owners: Sequence[str] | np.ndarray,
    *,
    epsilon: float,
    delta: float,
    most: int,
    length: int | None,
    ledger: Ledger,
    rng: Rng,
) -> Schema:
    """A text schema with at most `most` words that the owners of these texts paid epsilon and delta for."""
    clients, words = _words_of_clients(texts, owners)
    (noise,) = noise_of(epsilon, delta, (1.0,))
    holdings = Holdings((len(words),), MOST_WORDS)
    payers = Payers("client", ledger, rng)
    (noisy,), threshold = payers.holdings("words that several clients write", holdings, clients, noise, delta)
    shown = np.flatnonzero(noisy > threshold)
    if not len(shown):
        raise BudgetExhausted(
            f"epsilon={epsilon:g}: no word stands out of the noise, and the budget is spent"
            "; use a public vocabulary, or bytes"
        )
    ordered = shown[np.argsort(-noisy[shown], kind="stable")][:most]
    vocabulary = tuple(words[place] for place in ordered)
    return Schema(kind="text", vocabulary=vocabulary, length=length, provenance={"vocabulary": "paid"})


def _words_of_clients(texts: Sequence[str], owners: Sequence[str] | np.ndarray) -> tuple[Clients, list[str]]:
    """Each client's most frequent different words as rows of one code, and the words by code."""
    owner, names = by_column(owners)
    words_by_text = [words_of(text) for text in texts]
    written = np.array([word for listed in words_by_text for word in listed] or [""], dtype=object)
    codes, words = pd.factorize(written, sort=True)  # by alphabet: see Holdings
    pairs = np.stack(
        [np.repeat(owner, [len(listed) for listed in words_by_text]), codes[: sum(map(len, words_by_text))]],
        axis=1,
    )
    pairs, counts = np.unique(pairs, axis=0, return_counts=True)
    pairs = pairs[np.lexsort((pairs[:, 1], -counts, pairs[:, 0]))]
    starts = np.searchsorted(pairs[:, 0], pairs[:, 0])
    pairs = pairs[np.arange(len(pairs)) - starts < MOST_WORDS]
    offsets = np.searchsorted(pairs[:, 0], np.arange(len(names) + 1))
    return clients_with(pairs[:, 1:], offsets), [str(word) for word in words]
