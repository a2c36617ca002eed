"""One model a class: the parts, losses and rows of a class are its own."""

import torch

from fedsynth.data.encode import Block
from fedsynth.models.model import initialise, layouts
from fedsynth.models.per_class import PerClass, of_class
from fedsynth.models.vae import TableVAE
from fedsynth.rng import Rng

ONE = TableVAE(3, (Block("c", 0, bins=3, missing=False, ordered=False),), 0, latent=2, hidden=(4,))
MODEL = PerClass(ONE, classes=3)


def parameters():
    shapes = layouts(MODEL)
    return {name: shapes[name].split(flat) for name, flat in initialise(MODEL, Rng(0)).items()}


def always(choice: int):
    """Decoders of which that of class k names its favorite: (k + choice) modulo 3."""
    params = parameters()
    for number in range(3):
        bias = params[of_class("decoder", number)]["2.bias"]
        params[of_class("decoder", number)]["2.bias"] = bias + 30.0 * torch.eye(3)[(number + choice) % 3]
    return params


def test_each_class_has_parts_of_its_own():
    assert len(MODEL.parts) == 6
    assert MODEL.generative == tuple(of_class("decoder", number) for number in range(3))
    flat = initialise(MODEL, Rng(0))
    assert not torch.equal(flat[of_class("decoder", 0)], flat[of_class("decoder", 1)])


def test_rows_come_from_the_model_of_their_class():
    labels = torch.tensor([0, 2, 1, 0, 2, 2, 1])
    rows = MODEL.sample(always(1), labels, Rng(0))
    assert rows.argmax(1).tolist() == ((labels + 1) % 3).tolist()


def test_a_class_that_nobody_asked_for_needs_no_parameters():
    params = {name: value for name, value in always(0).items() if "class 1" in name}
    assert MODEL.sample(params, torch.tensor([1, 1]), Rng(0)).argmax(1).tolist() == [1, 1]
    assert len(MODEL.sample(params, torch.zeros(0, dtype=torch.int64), Rng(0))) == 0


def test_the_loss_of_a_class_is_that_of_its_model():
    params = parameters()
    batch = {"x": torch.eye(3), "y": torch.full((3,), 2), "weight": torch.ones(3)}
    noise = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    alone = {part: params[of_class(part, 2)] for part in ("encoder", "decoder")}
    expected = ONE.loss("elbo", alone, batch, noise)
    assert torch.equal(MODEL.loss(of_class("elbo", 2), params, batch, noise), expected)
    assert not torch.equal(MODEL.loss(of_class("elbo", 1), params, batch, noise), expected)
