"""Public texts by the people (or roles) who wrote them, split by person: for experiments and tests."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from fedsynth.data.text import read_texts
from fedsynth.errors import BadInput, nearest
from fedsynth.research.datasets import dataset_file

SPLITS = ("public", "train", "test")
_TENTHS = {"public": (0,), "test": (1,), "train": tuple(range(2, 10))}


def stack_exchange(split: str = "train") -> pd.DataFrame:
    """Posts of Stack Exchange users, columns `user` and `text`: no user is in two splits.

    The split "public" stands for a corpus that everybody knows, to take a vocabulary from; its users never train.
    """
    return _part(read_texts(dataset_file("stackexchange_by_user.jsonl.gz"), "text", "user"), split)


def shakespeare(split: str = "train") -> pd.DataFrame:
    """Lines of Shakespeare's roles, columns `user` (play and role) and `text`, as in TensorFlow Federated."""
    return _part(read_texts(dataset_file("shakespeare_tff_by_role.jsonl.gz"), "text", "user"), split)


def _part(texts: pd.DataFrame, split: str) -> pd.DataFrame:
    if split not in SPLITS:
        raise BadInput(f"split={split!r}: unknown; {nearest(split, SPLITS)}")
    users, place = np.unique(texts["user"].to_numpy(dtype=str), return_inverse=True)
    chosen = np.isin([tenth(user) for user in users], _TENTHS[split])
    return texts[chosen[place]].reset_index(drop=True)


def tenth(user: str) -> int:
    """Which of ten equal parts a user falls into, by a hash of the name: the same in every program.

    >>> tenth("travel:1")
    5
    """
    return hashlib.sha256(user.encode()).digest()[0] * 10 // 256
