"""A population with known truth: the mixture is found again from its rows."""

import numpy as np
import pytest
import torch

from fedsynth.models.latent_classes import LatentClasses
from fedsynth.research.datasets import data_folder
from fedsynth.research.experiment_data import LEVELS, heart_tables, seizure_levels
from fedsynth.research.known_truth import fit_mixture
from fedsynth.rng import Rng


def two_classes(chance):
    """Half of the rows have all columns 1 with `chance`, the others with 1 - chance; the label is the last."""
    either = torch.tensor([[1 - chance, chance], [chance, 1 - chance]])
    return LatentClasses(torch.tensor([0.5, 0.5]), (either,) * 6)


def drawn(truth, rows, seed=1):
    return truth.sample(rows, torch.Generator().manual_seed(seed)).numpy()


def test_a_mixture_is_found_again_from_its_rows():
    truth = two_classes(0.9)
    found = fit_mixture(drawn(truth, 5000), classes=2, steps=60, rng=Rng(1))
    chances = np.sort([each[:, 1].numpy() for each in found.chances], axis=1)
    np.testing.assert_allclose(chances, np.tile([0.1, 0.9], (6, 1)), atol=0.03)
    assert found.shares.sum() == pytest.approx(1.0)


def test_a_class_that_nobody_is_in_does_no_harm():
    ones = np.ones((30, 4), dtype=int)
    found = fit_mixture(ones, classes=3, steps=50, rng=Rng(1))
    assert all(torch.isfinite(each).all() for each in found.chances) and torch.isfinite(found.shares).all()


needs_data = pytest.mark.skipif(data_folder() is None, reason="FEDSYNTH_DATA is not set")


@needs_data
def test_heart_disease_is_dealt_once_and_has_no_hospital():
    train, test, schema = heart_tables()
    assert (len(train), len(test)) == (736, 184)
    assert schema.client is None and list(train.columns) == list(schema.names)


@needs_data
def test_eeg_as_levels_keeps_the_label_and_has_four_categories():
    train, test, schema = seizure_levels()
    assert (len(train), len(test)) == (9200, 2300) and list(train.columns) == list(schema.names)
    assert set(np.unique(train["X1"])) == set(LEVELS) and train["seizure"].eq("yes").mean() == 0.2
