"""A phase of one class trains on the rows of that class and on no other."""

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.data.encode import Block
from fedsynth.models.model import initialise
from fedsynth.models.vae import TableVAE
from fedsynth.rng import Rng
from fedsynth.training.optimizer import SGD
from fedsynth.training.plan import Phase, train
from fedsynth.training.rule import DPSGD, Epochs

MODEL = TableVAE(3, (Block("c", 0, bins=3, missing=False, ordered=False),), 0, latent=2, hidden=(4,))
LABELS = torch.tensor([[0, 1, 0, 1, 1], [1, 1, 0, 0, 0]])
MASK = torch.tensor([[True] * 5, [True, True, True, False, False]])
RULES = {"epochs": Epochs(2, 2), "dp-sgd": DPSGD(1.0, 0.5, rate=0.9, steps=3, expected_batch=2.0)}


def trained(rule, label, other):
    """The parameters after a phase of `label`, where rows of the other class hold `other`."""
    x = torch.eye(3)[torch.arange(10) % 3].reshape(2, 5, 3)
    x = torch.where((label == LABELS)[..., None] if label is not None else True, x, other)
    phase = Phase("elbo", {"encoder": SGD(0.1), "decoder": SGD(0.1)}, rule, label=label)
    params = {name: flat.expand(2, -1) for name, flat in initialise(MODEL, Rng(0)).items()}
    return train(MODEL, phase, params, {}, Padded(x, LABELS, MASK), np.arange(2), Rng(1))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rows_of_other_classes_change_nothing(rule):
    quiet, loud = trained(rule, 1, 0.0), trained(rule, 1, 100.0)
    for part in quiet.params:
        assert torch.equal(quiet.params[part], loud.params[part])
    assert not torch.equal(quiet.params["decoder"], trained(rule, 0, 0.0).params["decoder"])


def test_only_as_many_batches_are_drawn_as_the_class_needs():
    mask = MASK & (LABELS == 0)
    rows = list(Epochs(1, 2).batches(mask, np.arange(2), Rng(0)))
    assert len(rows) == 1
    chosen = rows[0].index[rows[0].weight]
    assert LABELS[0][chosen[:2]].tolist() == [0, 0]


def test_a_client_without_the_class_sits_the_phase_out():
    progress = trained(Epochs(1, 8), 7, 0.0)
    start = initialise(MODEL, Rng(0))["decoder"]
    assert torch.equal(progress.params["decoder"][0], start)
    assert progress.steps.tolist() == [0, 0]
