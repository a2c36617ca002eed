"""The autoencoders on images: the paper's two sizes and its beta, and training that does not end in grey."""

import numpy as np
import pytest

from fedsynth.data.clients import image_clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.models.model import total_size
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from fedsynth.research.datasets import data_folder, mnist
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import TABLE

folder = data_folder()
here = folder is not None and (folder / "mnist").is_dir()
DIGITS = Schema.from_dict(
    {
        "version": 1,
        "kind": "image",
        "height": 28,
        "width": 28,
        "channels": 1,
        "label": {"name": "digit", "categories": list("0123456789")},
    }
)


def model(recipe: str, schema: Schema = DIGITS, **settings):
    made = recipe_named(recipe)
    return made.build(Task(schema, 500, private=False), made.values(settings)).model


@pytest.mark.parametrize(("size", "variables"), [("small", 185_000), ("large", 3_850_000)])
@pytest.mark.parametrize("recipe", ["dpd_fvae", "fvae"])
def test_the_papers_two_sizes_have_its_numbers_of_variables(recipe, size, variables):
    made = model(recipe, size=size)
    assert total_size(made, made.parts) == pytest.approx(variables, rel=0.005)


def test_the_default_beta_is_the_papers_in_the_normalized_form():
    vae = model("dpd_fvae")  # for each latent number and pixel, as Higgins et al. (2016) compare it
    assert vae.beta * vae.latent / (vae.channels * vae.side**2) == pytest.approx(0.01, rel=0.03)


def test_a_size_of_image_networks_is_refused_for_tables_and_an_unknown_one_always():
    with pytest.raises(Incompatible, match="size=large"):
        model("dpd_fvae", Schema.from_dict(TABLE), size="large")
    with pytest.raises(BadInput, match="size='smal'.*small"):
        model("dpd_fvae", size="smal")


@pytest.mark.skipif(not here, reason="MNIST is not in FEDSYNTH_DATA")
@pytest.mark.parametrize("recipe", ["fvae", "dpd_fvae"])
def test_images_made_without_privacy_are_not_grey(recipe):
    """Plain steps on a loss summed over pixels once killed every unit, and each image came out as one grey."""
    pixels, labels, schema = mnist("train")
    clients = image_clients_from(pixels[:400], labels[:400], clients=10, split="uniform", rng=Rng(1))
    made = Synthesizer(recipe, schema, private=False, seed=1, rounds=60, rate=0.5, width=8).fit(clients)
    images, drawn = made.sample(200, seed=1)
    shown, real = np.asarray(images) / 255, pixels[:400] / 255
    assert shown.mean(0).std() > 0.5 * real.mean(0).std()  # bright in the middle, dark at the rim
    assert shown.std(0).mean() > 0.4 * real.std(0).mean()  # and no image like the other
    by_class = [shown[np.asarray(drawn) == name].mean(0) for name in schema.classes]
    assert np.std(by_class, axis=0).mean() > 0.03
