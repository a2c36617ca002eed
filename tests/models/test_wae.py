"""The Wasserstein autoencoder: its size, its penalty, and rows of a wanted label."""

import math

import pytest
import torch
from torch.func import vmap

from fedsynth.data.encode import Block
from fedsynth.models.model import initialise, layouts, total_size
from fedsynth.models.wae import OBJECTIVE, TableWAE, discrepancy, with_labels
from fedsynth.rng import Rng


def adult() -> TableWAE:
    """123 binary columns and a binary label."""
    blocks = tuple(Block(f"a{i}", 2 * i, 2, missing=False, ordered=False) for i in range(123))
    return TableWAE(246, blocks, 2)


def named_parameters(model, seed=1):
    flat = initialise(model, Rng(seed))
    return {part: layout.split(flat[part]) for part, layout in layouts(model).items()}


def draws(rows, latent=2, seed=0):
    return torch.randn(rows, latent, generator=torch.Generator().manual_seed(seed))


def test_adults_model_has_18188_parameters():
    """The paper's Table 2 says 16,060: it leaves the layers into and out of the latent code out."""
    assert total_size(adult(), ("encoder", "decoder")) == 18_188
    latent_layers = (64 * 16 + 16) + (16 * 64 + 64)
    assert 18_188 - latent_layers == 16_060


def test_the_loss_of_binary_columns_is_the_mean_binary_cross_entropy_plus_the_penalty():
    model = adult()
    named = named_parameters(model)
    bits = (torch.rand(6, 124, generator=torch.Generator().manual_seed(2)) < 0.3).float()
    x = torch.stack([1 - bits[:, :123], bits[:, :123]], -1).flatten(1)
    batch = {"x": x, "y": bits[:, 123].long(), "weight": torch.ones(6)}
    noise = draws(6, 16)
    codes = torch.func.functional_call(model.parts["encoder"], named["encoder"], (bits,))
    raw = torch.func.functional_call(model.parts["decoder"], named["decoder"], (codes,))
    logits = 15 * torch.tanh(raw / 15)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, bits)
    expected = expected + discrepancy(codes, noise, torch.ones(6))
    torch.testing.assert_close(model.loss(OBJECTIVE, named, batch, noise), expected)


def test_the_discrepancy_is_equation_4():
    codes, prior = draws(5, 3), draws(5, 3, seed=1)

    def kernel(x, y):
        return 6 / (6 + float((x - y).square().sum()))

    within = sum(
        kernel(prior[i], prior[j]) + kernel(codes[i], codes[j]) for i in range(5) for j in range(5) if i != j
    )
    across = sum(kernel(p, q) for p in prior for q in codes)
    expected = within / 20 - 2 * across / 25
    assert float(discrepancy(codes, prior, torch.ones(5))) == pytest.approx(expected, abs=1e-5)


def test_rows_that_do_not_count_leave_the_discrepancy_as_it_is():
    codes, prior = draws(7, 3), draws(7, 3, seed=1)
    weight = torch.tensor([1.0] * 5 + [0.0] * 2)
    torch.testing.assert_close(
        discrepancy(codes, prior, weight), discrepancy(codes[:5], prior[:5], torch.ones(5))
    )


def test_the_discrepancy_vanishes_for_codes_from_the_prior_and_not_for_others():
    many = torch.ones(600)
    assert abs(float(discrepancy(draws(600, 3), draws(600, 3, 1), many))) < 0.01
    assert float(discrepancy(draws(600, 3) + 2, draws(600, 3, 1), many)) > 0.2
    assert float(discrepancy(draws(600, 3) * 0.1, draws(600, 3, 1), many)) > 0.05


def test_a_single_row_is_drawn_to_the_prior_and_has_a_finite_gradient():
    code = torch.full((1, 2), 3.0, requires_grad=True)
    discrepancy(code, torch.zeros(1, 2), torch.ones(1)).backward()
    assert torch.isfinite(code.grad).all() and (code.grad > 0).all()


@pytest.mark.parametrize("kind", ["table", "image"])
def test_the_loss_is_safe_under_vmap_and_bounded(kind, build, ten):
    model = build("dp_fed_wae", kind).model
    named = named_parameters(model)
    data = ten[kind].gather([8, 9])
    batch = {"x": data.x, "y": data.y, "weight": data.mask.float()}
    noise = torch.stack([draws(9), draws(9, seed=1)])
    losses = vmap(lambda b, n: model.loss(OBJECTIVE, named, b, n))(batch, noise)
    alone = model.loss(OBJECTIVE, named, {key: value[1] for key, value in batch.items()}, noise[1])
    torch.testing.assert_close(losses[1], alone)
    assert 0 < float(alone) < model.objectives[OBJECTIVE].bound


def test_candidates_are_kept_by_how_likely_they_have_the_wanted_label():
    chances = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).repeat(50, 1)
    labels = torch.tensor([0, 1]).repeat(5000)
    places = with_labels(chances, labels, torch.Generator().manual_seed(0))
    assert (places[labels == 0] % 2 == 0).float().mean() == pytest.approx(0.9, abs=0.02)
    assert (places[labels == 1] % 2 == 1).float().mean() == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("kind", ["table", "image"])
def test_samples_have_the_form_of_the_data(kind, build, ten):
    model = build("dp_fed_wae", kind).model
    made = model.sample(named_parameters(model), torch.tensor([0, 1, 1]), Rng(1))
    assert made.shape == (3, *ten[kind].x.shape[1:]) and torch.isfinite(made).all()
    if kind == "table":
        for block in model.blocks:
            assert torch.equal(made[:, block.start : block.start + block.size].sum(1), torch.ones(3))


def test_the_likeliest_values_are_the_same_whatever_is_drawn_for_one_code(build):
    model = build("dp_fed_wae", latent=1, decode="likeliest").model
    named = named_parameters(model)
    named["decoder"] = {
        name: value * 0 if "weight" in name else value for name, value in named["decoder"].items()
    }
    made = model.sample(named, torch.zeros(20, dtype=torch.int64), Rng(1))
    choices = [made[:, b.start : b.start + b.size] for b in model.blocks]
    assert all(torch.equal(choice, choice[:1].expand_as(choice)) for choice in choices)


def test_the_bound_covers_a_uniform_guess():
    assert adult().objectives[OBJECTIVE].bound > math.log(2)
