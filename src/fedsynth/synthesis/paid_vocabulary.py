"""A vocabulary that the clients pay for: the words that clearly more than one of them writes, from the most held on.

A weighted Gaussian set union (Gopi et al. 2020): each client spreads a weight of norm 1 evenly over the words that it
writes, the sums get noise, and a word is shown if its noisy weight is more than one client could give it. A text is
read at its client; what the server learns are the words above the threshold and their noisy weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from dp_accounting import GaussianDpEvent

from fedsynth.data.clients import Clients
from fedsynth.data.partition import by_column
from fedsynth.data.schema import Schema
from fedsynth.data.text import words_of
from fedsynth.engines.inprocess import InProcess
from fedsynth.errors import BudgetExhausted
from fedsynth.federation.loop import ask
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import Holdings, presence_threshold
from fedsynth.privacy import account
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.purse import Purse

_SELECTION = 0.5  # share of delta for showing a word that only one client writes
_MOST_HELD = 100_000  # different words of one client that the threshold allows for


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
    clients, words = _held(texts, owners)
    noise = account.calibrate(GaussianDpEvent, epsilon, delta * (1 - _SELECTION))
    mechanism = CentralGaussian(Clip(1.0), noise)
    query = Query(
        "words that several clients write", Holdings((len(words),)), len(words), mechanism, len(clients)
    )
    lone = account.EpsilonDeltaDpEvent(0.0, delta * _SELECTION)
    ledger.append(lone, what="showing a word that one client writes", unit="client", run="schema")
    purse = Purse(ledger, "schema")
    noisy = ask(query, InProcess(clients, rng), ServerState(0, {}), rng, purse.pay).numpy()
    shown = np.flatnonzero(noisy > presence_threshold(noise, delta * _SELECTION, _MOST_HELD))
    if not len(shown):
        raise BudgetExhausted(
            f"epsilon={epsilon:g}: no word stands out of the noise over {len(clients)} clients, and the budget is "
            "spent; use a public vocabulary, or bytes"
        )
    ordered = shown[np.argsort(-noisy[shown], kind="stable")][:most]
    vocabulary = tuple(words[place] for place in ordered)
    return Schema(kind="text", vocabulary=vocabulary, length=length, provenance={"vocabulary": "paid"})


def _held(texts: Sequence[str], owners: Sequence[str] | np.ndarray) -> tuple[Clients, list[str]]:
    """Each client's different words as rows of one code, and the words by code."""
    owner, names = by_column(owners)
    found = [words_of(text) for text in texts]
    codes, words = pd.factorize(np.array([word for listed in found for word in listed], dtype=object))
    pairs = np.stack([np.repeat(owner, [len(listed) for listed in found]), codes], axis=1)
    pairs = np.unique(pairs, axis=0)
    offsets = np.searchsorted(pairs[:, 0], np.arange(len(names) + 1))
    rows = torch.from_numpy(pairs[:, 1:].astype(np.float32))
    held = Clients(rows, torch.zeros(len(rows), dtype=torch.int64), offsets.astype(np.int64))
    return held, [str(word) for word in words]
