"""Latent classes from distributions of two columns."""

import pytest
import torch

from fedsynth.models.latent_classes import LatentClasses, fit_latent_classes

SIZES = (2, 3, 2)


def made(steps=400, precision=1e5):
    """A mixture of two classes, and one fitted to its exact distributions of two columns."""
    truth = LatentClasses(
        torch.tensor([0.3, 0.7]),
        (
            torch.tensor([[0.9, 0.1], [0.2, 0.8]]),
            torch.tensor([[0.1, 0.1, 0.8], [0.6, 0.3, 0.1]]),
            torch.tensor([[0.7, 0.3], [0.1, 0.9]]),
        ),
    )
    chances = torch.cat(truth.chances, 1)
    pairs = (chances * truth.shares[:, None]).T @ chances
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor(SIZES))
    known = (owner[:, None] != owner[None, :]) * precision
    single = truth.shares @ chances
    draw = torch.Generator().manual_seed(1)
    return truth, fit_latent_classes(SIZES, single, pairs, known, 4, False, steps, draw), pairs, known


def test_the_fitted_mixture_has_the_distributions_of_two_columns():
    _, found, pairs, known = made()
    chances = torch.cat(found.chances, 1)
    ours = (chances * found.shares[:, None]).T @ chances
    assert ((ours - pairs).abs() * (known > 0)).max() < 0.01


def test_chances_are_distributions():
    _, found, _, _ = made(50)
    assert found.shares.sum() == pytest.approx(1.0)
    for chances, size in zip(found.chances, SIZES, strict=True):
        assert chances.shape == (4, size)
        torch.testing.assert_close(chances.sum(1), torch.ones(4))


def test_where_nothing_is_known_columns_keep_their_own_distribution():
    truth, found, _, _ = made(precision=0.0)
    expected = truth.shares @ truth.chances[1]
    torch.testing.assert_close(found.chances[1], expected.expand(4, -1))


def test_noise_is_not_fitted_where_estimates_are_worth_little():
    """The same wild estimates: believed if they are precise, ignored if they are not."""
    _, sure, _, _ = made(precision=1e5)
    _, unsure, _, _ = made(precision=1.0)

    def spread(model):
        return (model.chances[0] - model.shares @ model.chances[0]).abs().max()

    assert spread(sure) > 0.2 > spread(unsure)


def test_rows_follow_the_mixture():
    truth, _, pairs, _ = made(10)
    codes = truth.sample(20_000, torch.Generator().manual_seed(0))
    assert codes.shape == (20_000, 3)
    together = ((codes[:, 0] == 1) & (codes[:, 1] == 0)).float().mean()
    assert float(together) == pytest.approx(float(pairs[1, 2]), abs=0.01)
