"""Classifiers of several sets: the same as one by one on a CPU, and side by side on a GPU about as good."""

import pytest
import torch

from fedsynth.assess.scores.image_utility import image_performance
from fedsynth.errors import BadInput
from fedsynth.research.side_by_side import image_performances


def squares(seed, rows=256, device="cpu"):
    """Bright squares in one of two corners."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % 2
    images = torch.randint(0, 80, (rows, 1, 8, 8), generator=draw)
    for row, label in enumerate(labels):
        corner = slice(0, 4) if label else slice(4, 8)
        images[row, 0, corner, corner] += 100
    return images.to(torch.uint8).to(device), labels.to(device)


@pytest.mark.parametrize("classifier", ["mlp", "logistic regression"])
def test_several_sets_score_as_each_of_them_alone(classifier):
    sets, test = [squares(1), squares(2)], squares(3)
    together = image_performances(sets, test, 2, classifier, [0, 1], 20)
    alone = [image_performance(each, test, 2, classifier, seed, 20) for seed, each in enumerate(sets)]
    assert together == alone and min(found.accuracy for found in together) > 0.9


def test_a_set_of_one_class_is_refused():
    images, labels = squares(1)
    with pytest.raises(BadInput, match="fewer than two classes"):
        image_performances([(images, labels * 0)], squares(3), 2, "mlp", [0], 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("classifier", ["mlp", "cnn"])
def test_networks_side_by_side_on_a_gpu_learn_too(classifier):
    sets = [squares(seed, device="cuda") for seed in range(3)]
    found = image_performances(sets, squares(9, device="cuda"), 2, classifier, [0, 1, 2], 10)
    assert min(each.accuracy for each in found) > 0.9
