"""The comparison of VAE and GAN counts what the models have and plots what was measured."""

import importlib.util
from pathlib import Path

import pytest

from fedsynth.recipes.registry import recipe_named
from fedsynth.research.datasets import data_folder

FILE = Path(__file__).parents[2] / "experiments" / "vae_or_gan" / "compare.py"
folder = data_folder()
needs_data = pytest.mark.skipif(
    folder is None or not (folder / "mnist").is_dir(), reason="MNIST is not in FEDSYNTH_DATA"
)


@pytest.fixture(scope="module")
def compare():
    found = importlib.util.spec_from_file_location("vae_or_gan_compare", FILE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def measured(recipe, accuracy, seconds):
    known = recipe_named(recipe).arguments()
    settings = {name: argument.default for name, argument in known.items()}
    return {
        "title": f"`{recipe}`",
        "recipe": recipe,
        "settings": {**settings, "noise_multiplier": 2.0},
        "privacy": {"epsilon": 9.998},
        "scores": [{"name": "student network: accuracy", "value": accuracy}],
        "seconds_training": [seconds, seconds + 2],
        "runs": 2,
    }


@needs_data
def test_only_the_critic_counts_as_sent(compare):
    found = compare.row(measured("dp_fedavg_gan", 0.8, 20.0))
    assert found["of them sent"] == 2345 < found["parameters"]
    assert found["seconds a run"] == 21.0
    assert compare.cells(found)["epsilon"] == "10.00"


@needs_data
def test_the_plot_has_all_rows(compare, tmp_path):
    rows = [compare.row(measured(name, 0.8, 20.0)) for name in ("dp_fedavg_gan", "moment_vae")]
    compare.radar(rows, tmp_path / "radar.png")
    assert (tmp_path / "radar.png").stat().st_size > 10_000
