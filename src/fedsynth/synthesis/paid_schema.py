"""Bounds and categories that the rows pay for: one noisy release instead of a look at the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from dp_accounting import DpEvent, GaussianDpEvent

from fedsynth.data.clients import Clients, RawClients
from fedsynth.data.column import Column
from fedsynth.data.conform import OTHER
from fedsynth.data.schema import Schema
from fedsynth.data.values import as_text
from fedsynth.engines.inprocess import InProcess
from fedsynth.errors import BadInput
from fedsynth.federation.loop import ask
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import Holdings, presence_threshold
from fedsynth.privacy import account
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.rng import Rng
from fedsynth.synthesis.purse import Purse

_POWERS = np.concatenate([[0.0], 2.0 ** np.arange(-10, 41)])
_EDGES = np.concatenate([-_POWERS[:0:-1], _POWERS])  # public: powers of two on both sides of zero
_WIDE = 2.0**14  # a range that a linear scale would not resolve
_SELECTION = 0.5  # share of delta for showing a category that only one unit holds


@dataclass(frozen=True)
class _Coded:
    """A column as codes: buckets of numbers, or the values that occur (which nobody sees before the noise)."""

    column: Column
    codes: np.ndarray
    values: tuple[str, ...] | None

    @property
    def size(self) -> int:
        return len(_EDGES) - 1 if self.values is None else len(self.values)


def pay_for_schema(
    raw: RawClients,
    draft: Schema,
    *,
    epsilon: float,
    delta: float,
    ledger: Ledger,
    rng: Rng,
    unit: Unit = "client",
) -> Schema:
    """The draft with every inferred column replaced by what a noisy histogram shows of it.

    Types and column names are treated as public. Numbers get the powers of two around the buckets in which more
    than noise was seen; categories are those that clearly more than one unit holds, and `other` for the rest.
    """
    if raw.frame is None or not draft.inferred():
        raise BadInput("nothing to pay for: no column of this schema was inferred from a table's rows")
    columns = [_coded(draft.column(name), raw.frame[name]) for name in draft.inferred()]
    noise = account.calibrate(GaussianDpEvent, epsilon, delta * (1 - _SELECTION))
    noisy = _ask(raw, columns, noise, delta * _SELECTION, ledger, rng, unit)
    scale = 1 / math.sqrt(len(columns))
    blocks = torch.split(noisy, [coded.size for coded in columns])
    threshold = presence_threshold(noise, delta * _SELECTION / len(columns), 10_000, scale)
    learned = {
        coded.column.name: _learned(coded, block.numpy(), noise, threshold, coded.column.name != draft.label)
        for coded, block in zip(columns, blocks, strict=True)
    }
    return replace(
        draft,
        columns=tuple(learned.get(column.name, column) for column in draft.columns),
        provenance={**draft.provenance, **dict.fromkeys(learned, "paid")},
    )


def _coded(column: Column, values: pd.Series) -> _Coded:
    if column.numeric:
        numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)
        codes = np.clip(np.searchsorted(_EDGES, numbers, side="right") - 1, 0, len(_EDGES) - 2)
        return _Coded(column, np.where(np.isnan(numbers), -1, codes), None)
    texts = values.map(as_text, na_action="ignore")
    codes, found = pd.factorize(texts)
    return _Coded(column, codes, tuple(map(str, found)))


def _ask(
    raw: RawClients, columns: list[_Coded], noise: float, delta: float, ledger: Ledger, rng: Rng, unit: Unit
) -> torch.Tensor:
    """One joint release over all columns; its ledger line carries the chance that a lone value shows."""
    order = np.argsort(raw.owner, kind="stable")
    codes = np.stack([coded.codes for coded in columns], axis=1)[order].astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(raw.sizes)]).astype(np.int64)
    clients = Clients(torch.from_numpy(codes), torch.zeros(len(codes), dtype=torch.int64), offsets)
    sizes = tuple(coded.size for coded in columns)
    mechanism = CentralGaussian(Clip(1.0), noise)
    query = Query("bounds and categories", Holdings(sizes), sum(sizes), mechanism, len(clients), unit)
    lone: DpEvent = account.EpsilonDeltaDpEvent(0.0, delta)
    ledger.append(lone, what="showing a category that one unit holds", unit=unit, run="schema")
    link = InProcess(clients, rng)
    return ask(query, link, ServerState(0, {}), rng, Purse(ledger, "schema").pay)


def _learned(coded: _Coded, noisy: np.ndarray, noise: float, threshold: float, missing: bool) -> Column:
    """A column from its noisy histogram and its public name and type alone."""
    name = coded.column.name
    if coded.values is not None:
        kept = sorted(
            v for v, weight in zip(coded.values, noisy, strict=True) if weight > threshold and v != OTHER
        )
        return Column(name, "categorical", categories=(*kept, OTHER), missing=missing)
    shown = np.flatnonzero(noisy > 4 * noise)  # 4 sigma: a wrong bucket in 30,000, and only too wide a bound
    first, last = (int(shown[0]), int(shown[-1])) if len(shown) else (0, len(_EDGES) - 2)
    low, high = float(np.floor(_EDGES[first])), float(np.ceil(_EDGES[last + 1]))
    decimals = 0 if coded.column.type == "integer" else 2
    scale = "log" if high - low > _WIDE else "linear"
    return Column(name, "continuous", min=low, max=high, decimals=decimals, missing=missing, scale=scale)
