"""Steps that read no row."""

import numpy as np
import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.rng import Rng
from fedsynth.training.rowless import Free


def test_every_client_takes_the_same_steps_whatever_it_holds():
    mask = torch.tensor([[True, True, False], [False, False, False]])
    rows = list(Free(3, 5).batches(mask, np.arange(2), Rng(1)))
    assert len(rows) == 3 and all(one.weight.all() and one.index.eq(0).all() for one in rows)
    assert Free(3, 5).release is None


def test_no_steps_are_refused():
    with pytest.raises(BadInput, match="steps=0"):
        Free(0, 5)
