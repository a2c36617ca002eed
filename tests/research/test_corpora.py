"""Texts by person, split so that nobody is in two parts."""

import numpy as np
import pytest

from fedsynth.errors import BadInput
from fedsynth.research.corpora import SPLITS, shakespeare, stack_exchange, tenth
from fedsynth.research.datasets import data_folder

folder = data_folder()
needs_data = pytest.mark.skipif(
    folder is None or not (folder / "shakespeare_tff_by_role.jsonl.gz").exists(), reason="no texts here"
)


def test_tenths_are_about_equal():
    counts = np.bincount([tenth(f"site:{number}") for number in range(5000)], minlength=10)
    assert len(counts) == 10 and counts.min() > 400


@needs_data
def test_nobody_is_in_two_splits():
    users = [set(shakespeare(split)["user"]) for split in SPLITS]
    assert sum(map(len, users)) == len(set.union(*users)) == 715
    assert len(users[1]) > 500


@needs_data
def test_an_unknown_split_is_refused():
    with pytest.raises(BadInput, match="split='tset'"):
        stack_exchange("tset")
