"""Openings of photographs: which runs ask for patterns, and that a thing that is light or dark by chance is drawn."""

import numpy as np
import pytest
import torch

from fedsynth import Synthesizer
from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.errors import Incompatible
from fedsynth.federation.loop import learn_balance
from fedsynth.models.moment_vae import MomentVAE
from fedsynth.models.pattern import PatternStart, polarity
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess

SIDE = 16
FORM = {
    "version": 1, "kind": "image", "height": SIDE, "width": SIDE,
    "label": {"name": "bar", "categories": ["across", "upright"]},
}  # fmt: skip
COLOR = Schema.from_dict({**FORM, "channels": 3})
GRAY = Schema.from_dict({**FORM, "channels": 1})
LITTLE = {
    "frequencies": 30, "directions": 8, "width": 2, "painter": 4, "noise_multiplier": 1.0, "rounds": 4,
    "generator_steps": 1, "generator_batch": 4, "usual_records": 10, "order": "together",
}  # fmt: skip


def built(name, schema, clients=100, private=True, **changes):
    recipe = recipe_named(name)
    task = recipe.task(schema, clients, private=private, transport="clear")
    asked = {**LITTLE, **changes}
    return recipe.build(task, recipe.values({k: v for k, v in asked.items() if k in recipe.arguments()}))


def upright_or_across(code: np.ndarray) -> np.ndarray:
    """A bar for each code, 1 on 0, [rows, side, side]."""
    near = np.abs(np.arange(SIDE) - 7.5) < 2
    upright = np.broadcast_to(near, (SIDE, SIDE))
    return np.where(code[:, None, None] == 1, upright, upright.T).astype(float)


def photographs():
    return encode_clients(raw_photographs(), COLOR)


def raw_photographs(clients=100, rows=10):
    """Bars that are lighter or darker than their ground by chance, in any color."""
    draw = np.random.default_rng(0)
    code = draw.integers(0, 2, clients * rows)
    bar = upright_or_across(code) - 0.3
    sign = draw.choice([-1, 1], len(code))[:, None, None]
    ground = draw.uniform(0.4, 0.6, (len(code), 1, 1, 3))
    pixels = ground + (0.25 * sign * bar)[..., None] + draw.normal(0, 0.02, (len(code), SIDE, SIDE, 3))
    images = (pixels.clip(0, 1) * 255).astype(np.uint8)
    owner = np.repeat(np.arange(clients), rows)
    labels = np.array(["across", "upright"])[code]
    return RawClients(owner, clients, (), data=(images, labels))


def drawn(algorithm, held, count=200):
    rng = Rng(1)
    start = algorithm.init(rng.at("init"))
    state = learn_balance(algorithm, InProcess(held, rng), start, rng, lambda *_: None)
    params = {part: algorithm.layouts[part].split(state.parts[part]) for part in algorithm.model.generative}
    label = torch.arange(count) % 2
    latent = torch.randn(count, algorithm.model.start.latent, generator=torch.Generator().manual_seed(1))
    return algorithm.model.start.drawn(params, latent, torch.eye(2)[label]), label


def recognized(images, label) -> float:
    """The share of pictures that are most like the bar of their class, light or dark."""
    light = images.mean(1)
    light = light - light.mean((1, 2), keepdim=True)
    bars = torch.tensor(upright_or_across(np.array([0, 1]))).float()
    bars = bars - bars.mean((1, 2), keepdim=True)
    return float((torch.einsum("rhw,chw->rc", light, bars).abs().argmax(1) == label).float().mean())


@pytest.mark.parametrize("name", ["dp_fedavg_gan", "pp_fedgan"])
def test_color_images_start_from_patterns_and_gray_ones_from_covariances(name):
    assert isinstance(built(name, COLOR).model.start, PatternStart)
    assert isinstance(built(name, GRAY).model.start, MomentVAE)
    assert isinstance(built(name, COLOR, private=False).model.start, PatternStart)
    assert isinstance(built(name, COLOR, start_from="covariances").model.start, MomentVAE)
    assert isinstance(built(name, GRAY, start_from="patterns").model.start, PatternStart)


def test_patterns_of_classes_that_are_not_told_are_refused():
    assert isinstance(built("dp_fedavg_gan", COLOR, classes="separate").model.model.start, MomentVAE)
    with pytest.raises(Incompatible, match="start_from=patterns.*classes=conditional"):
        built("dp_fedavg_gan", COLOR, classes="separate", start_from="patterns")


@pytest.mark.parametrize("name", ["dp_fedavg_gan", "pp_fedgan"])
def test_bars_that_are_light_or_dark_by_chance_are_drawn_as_bars(name):
    assert recognized(*drawn(built(name, COLOR, noise_multiplier=0.2), photographs())) > 0.9


def test_drawn_things_are_lighter_as_often_as_darker():
    images, _ = drawn(built("pp_fedgan", COLOR, noise_multiplier=0.1), photographs(), 400)
    assert 0.35 < float((polarity(images.mean(1)) > 0).float().mean()) < 0.65


def test_a_trained_generator_of_photographs_can_be_saved_loaded_and_drawn_from(tmp_path):
    small = {
        "frequencies": 30,
        "width": 2,
        "painter": 4,
        "generator_steps": 1,
        "generator_batch": 4,
        "batch_size": 4,
    }
    made = Synthesizer("dp_fedavg_gan", COLOR, epsilon=8.0, delta=1e-3, rounds=2, seed=1, **small)
    made.fit(raw_photographs()).save(tmp_path / "RUN")
    images, labels = made.sample(30, seed=3)
    again, _ = Synthesizer.load(tmp_path / "RUN").sample(30, seed=3)
    assert images.shape == (30, SIDE, SIDE, 3) and np.array_equal(images, again)
    assert set(labels) == {"across", "upright"}
