import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from fedsynth.assess.scores.image_fidelity import (
    frechet_distance,
    inception_score,
    kernel_distance,
    nearest_images,
    precision_and_recall,
    shown_neighbors,
)
from fedsynth.errors import BadInput
from fedsynth.rng import Rng


def points(key: str, rows: int = 400, width: int = 6) -> np.ndarray:
    return Rng(2).at(key).numpy().normal(size=(rows, width))


def test_identical_features_have_no_distance():
    x = points("a")
    assert frechet_distance(x, x) == pytest.approx(0.0, abs=1e-8)
    assert kernel_distance(x, x)[0] < 0.01
    assert precision_and_recall(x, x) == (1.0, 1.0)


def test_a_shift_costs_its_square():
    x = points("a")
    assert frechet_distance(x, x + 2) == pytest.approx(4 * 6)


def test_it_agrees_with_the_published_formula():
    x, y = points("a"), points("b") @ np.diag([1, 2, 3, 1, 1, 0.5])
    first, second = np.cov(x.T), np.cov(y.T)
    root = np.real(sqrtm(first @ second))
    expected = ((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(first + second - 2 * root)
    assert frechet_distance(x, y) == pytest.approx(expected)


def test_dependent_features_are_no_trouble():
    x = points("a")[:, [0, 1, 0, 1]]
    assert frechet_distance(x, x + 1) == pytest.approx(4.0)


def test_the_kernel_distance_is_the_unbiased_estimate():
    x, y = points("a", 30), points("b", 30) + 1

    def kernel(a, b):
        return (a @ b / 6 + 1) ** 3

    within = sum(kernel(a[i], a[j]) for a in (x, y) for i in range(30) for j in range(30) if i != j) / (
        30 * 29
    )
    across = sum(kernel(a, b) for a in x for b in y) / 900
    assert kernel_distance(x, y)[0] == pytest.approx(within - 2 * across)


def test_the_kernel_distance_of_one_distribution_is_around_zero():
    value, spread = kernel_distance(points("a", 3000), points("b", 2500))
    assert abs(value) < 0.02 and spread is not None
    assert kernel_distance(points("a"), points("b") + 1)[0] > 0.5


def test_the_class_score_counts_certain_classes():
    certain = np.tile(np.eye(5), (40, 1))
    assert inception_score(certain)[0] == pytest.approx(5.0)
    assert inception_score(np.full((50, 5), 0.2))[0] == pytest.approx(1.0)
    assert inception_score(np.tile(np.eye(5)[:1], (50, 1)))[0] == pytest.approx(1.0)


def test_disjoint_features_have_neither_precision_nor_recall():
    assert precision_and_recall(points("a"), points("b") + 100) == (0.0, 0.0)


def test_one_mode_of_two_has_precision_and_half_the_recall():
    real = np.concatenate([points("a"), points("b") + 50])
    precision, recall = precision_and_recall(real, points("c"))
    assert precision > 0.7 and recall < 0.5


def test_too_few_images_are_refused():
    with pytest.raises(BadInput, match="expected at least 4"):
        precision_and_recall(points("a", 3), points("b"))


def test_a_copied_image_is_its_own_neighbor():
    known = torch.from_numpy(Rng(1).numpy().integers(0, 256, (20, 1, 5, 5)).astype(np.uint8))
    rows, distances = nearest_images(known[[7, 3]], known)
    assert rows.tolist() == [7, 3] and distances.tolist() == [0.0, 0.0]
    black, white = (
        torch.zeros(1, 1, 5, 5, dtype=torch.uint8),
        torch.full((1, 1, 5, 5), 255, dtype=torch.uint8),
    )
    assert nearest_images(black, white)[1].item() == pytest.approx(1.0)
    assert shown_neighbors(rows, torch.tensor([0.5, 0.1]), 1) == [
        {"synthetic": 1, "real": 3, "distance": pytest.approx(0.1)}
    ]
