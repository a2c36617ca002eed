"""How loud clients are against the noise: within what clipping allows, and half as loud when the noise is doubled."""

import importlib.util
from math import sqrt
from pathlib import Path

import pytest

from fedsynth.recipes.registry import recipe_named

SCRIPT = Path(__file__).parents[2] / "experiments" / "fedvae_thesis_images" / "loudness.py"
SMALL = {"decoder": "smooth", "vaes": "unified", "bands": 4, "latent": 2, "hidden": (8,), "rate": 1.0}


@pytest.fixture(scope="module")
def measured():
    made = importlib.util.spec_from_file_location("loudness", SCRIPT)
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module.measured


@pytest.fixture
def ratios(measured, image_schema, ten):
    """The ratios of three rounds of ten clients at a noise multiplier."""

    def of(noise):
        recipe = recipe_named("fed_vae")
        values = recipe.values({**SMALL, "noise_multiplier": noise, "clip": 0.1, "rounds": 3})
        algorithm = recipe.build(recipe.task(image_schema, 10), values)
        return measured(algorithm, ten["image"], 3, "cpu"), 9 / (noise * sqrt(algorithm.dim))

    return of


def test_no_sum_is_louder_than_all_clients_in_step(ratios):
    found, most = ratios(1.5)  # nine of the ten clients hold rows
    assert len(found) == 3 and all(0 < ratio <= most for ratio in found)


def test_twice_the_noise_makes_the_first_round_half_as_loud(ratios):
    (quiet, _), (loud, _) = ratios(3.0), ratios(1.5)
    assert quiet[0] == pytest.approx(loud[0] / 2)
