"""A row on images: trained, scored on the test split, with a picture and what it cost."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsynth.errors import BadInput
from fedsynth.research.datasets import data_folder
from fedsynth.research.experiment import Experiment, run_experiment
from fedsynth.synthesis.request import Request

folder = data_folder()
here = folder is not None and (folder / "mnist").is_dir()


@pytest.mark.skipif(not here, reason="MNIST is not in FEDSYNTH_DATA")
def test_a_row_on_images_has_scores_costs_and_a_picture():
    asked = {"rounds": 1, "frequencies": 9, "latent": 4, "width": 1}
    request = Request(
        recipe="moment_vae", clients=20, epsilon=5.0, delta=1e-3, arguments=asked, accept=("delta",)
    )
    row = Experiment(
        "tiny", "mnist", request, runs=1, sets=2, train_rows=400, classifiers=("logistic regression",)
    )
    result = run_experiment(row)
    (score,) = result["scores"]
    assert score["name"] == "logistic regression: accuracy" and 0 < score["value"] < 1
    assert score["detail"]["train_on_real"] > 0.7
    assert 4 < result["privacy"]["epsilon"] <= 5 and not result["privacy"]["simulation"]
    assert result["data"] == {"name": "mnist", "train_rows": 400, "test_rows": 10_000}
    assert result["shown"].dtype == np.uint8 and result["shown"].shape[1:] == (28, 28)


@pytest.mark.skipif(not here, reason="MNIST is not in FEDSYNTH_DATA")
def test_a_row_says_how_often_its_classifiers_saw_their_images():
    request = Request(recipe="moment_vae", clients=20, rounds=1, private=False)
    row = Experiment("passes", "mnist", request, seeds=(1,), train_rows=200, classifiers=("mlp",), passes=2)
    assert run_experiment(row)["scores"][0]["detail"]["passes"] == 2
    with pytest.raises(BadInput, match="passes=0"):
        replace(row, passes=0)


LENETS = Path(__file__).parents[2] / "experiments" / "pp_fedgan" / "results" / "lenets"


@pytest.mark.skipif(not here, reason="MNIST is not in FEDSYNTH_DATA")
def test_images_are_compared_in_the_features_of_the_lenet_that_was_kept():
    request = Request(recipe="moment_vae", clients=20, rounds=1, private=False)
    asked = {"seeds": (1,), "train_rows": 200, "classifiers": ("logistic regression",)}
    row = Experiment("alike", "mnist", request, lenet=str(LENETS / "mnist.safetensors"), **asked)
    score = run_experiment(row)["scores"][1]
    assert score["name"] == "FID in features of a LeNet" and score["goal"] == "min"
    assert 1 < score["value"] < 2000 and score["detail"]["setting"]["weights"] == "56d54545aa4bab3f"
    with pytest.raises(BadInput, match="not found"):
        run_experiment(replace(row, lenet="nowhere.safetensors"))


faces = folder is not None and (folder / "celeba32.npz").is_file()


@pytest.mark.skipif(not faces, reason="CelebA is not in FEDSYNTH_DATA")
def test_without_a_number_of_clients_each_natural_one_is_a_client():
    asked = {"rounds": 1, "frequencies": 9, "latent": 4, "width": 1}
    request = Request(
        recipe="moment_vae", epsilon=5.0, delta=1e-3, seed=1, arguments=asked, accept=("delta",)
    )
    row = Experiment(
        "faces", "celeba", request, seeds=(1,), train_rows=400, classifiers=("logistic regression",)
    )
    result = run_experiment(row)
    assert result["shown"].shape == (20, 32, 32, 3)
    assert 0.3 < result["scores"][0]["value"] < 1 and result["scores"][0]["detail"]["train_on_real"] > 0.6


def test_garments_have_no_natural_clients():
    request = Request(recipe="moment_vae", epsilon=5.0, delta=1e-3)
    if not here:
        pytest.skip("Fashion-MNIST is not in FEDSYNTH_DATA")
    with pytest.raises(BadInput, match="no natural clients"):
        run_experiment(Experiment("garments", "fashion_mnist", request, runs=1, classifiers=("mlp",)))


@pytest.mark.skipif(not here, reason="MNIST is not in FEDSYNTH_DATA")
def test_a_baseline_makes_images_too_and_says_what_they_cost():
    request = Request(clients=4, epsilon=50.0, delta=1e-9)
    row = Experiment(
        "network",
        "mnist_14",
        request,
        runs=1,
        train_rows=200,
        classifiers=("logistic regression",),
        baseline={"system": "privbayes", "with_label": True, "bins": 2},
    )
    result = run_experiment(row)
    assert result["recipe"] == "privbayes" and result["settings"]["bins"] == 2
    assert (result["privacy"]["unit"], result["privacy"]["epsilon"]) == ("record", 50.0)
    assert result["shown"].shape[1:] == (14, 14) and 0 < result["scores"][0]["value"] < 1
