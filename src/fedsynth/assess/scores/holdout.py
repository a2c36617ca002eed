"""Whom an attack asks about where clients have several rows: nobody twice, and nobody on two sides.

Rows of one person resemble each other. Were some of a person's hold-out rows the attacker's knowledge of the
population and others among those that are asked about, the attack would tell strangers by their own other rows and
seem to find members. So hold-outs are split by client, and each client is asked about with one row, which also makes
the confidence intervals true: they count independent guesses.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng


def owners(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    """Who owns each row, as numbers [rows]: by the client column where it is there, else each row by itself."""
    if schema.client is None or schema.client not in frame.columns:
        return np.arange(len(frame))
    return np.asarray(pd.factorize(frame[schema.client], use_na_sentinel=False)[0])


def one_each(frame: pd.DataFrame, schema: Schema, rng: Rng) -> pd.DataFrame:
    """One row of each client, drawn at random, in random order."""
    order = rng.numpy().permutation(len(frame))
    _, first = np.unique(owners(frame, schema)[order], return_index=True)
    return frame.iloc[order[np.sort(first)]]


def parted(frame: pd.DataFrame, schema: Schema, share: float, rng: Rng) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two parts without a common client, the first with about this share of them, each in random order."""
    order = rng.numpy().permutation(len(frame))
    owner = owners(frame, schema)[order]
    names = pd.unique(owner)
    first = np.isin(owner, names[: max(1, int(len(names) * share))])
    return frame.iloc[order[first]], frame.iloc[order[~first]]


def check_apart(real: pd.DataFrame, holdout: pd.DataFrame, schema: Schema) -> None:
    """Refuse a hold-out with clients that were trained on: they would be members and strangers at once."""
    name = schema.client
    if name is None or name not in real.columns or name not in holdout.columns:
        return
    shared = set(real[name].dropna()) & set(holdout[name].dropna())
    if shared:
        raise BadInput(
            f"{len(shared)} of the clients in column {name!r} have rows among both the training and the test rows; "
            "hold out whole clients"
        )
