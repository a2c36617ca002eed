"""A stack of clients has the losses and the gradients that vmap gives over the layers."""

import pytest
import torch
from torch import Tensor

from fedsynth.models.model import initialise, layouts, total_size
from fedsynth.models.vae import ImageVAE
from fedsynth.rng import Rng
from fedsynth.training.plan import loss_of
from fedsynth.training.rule import LocalStep, plain_gradient

CLIENTS, BATCH, LATENT = 3, 4, 2
SHAPES = [(1, 28), (3, 32), (3, 8), (9, 8)]  # channels and side; nine channels are no longer few
PARTS = ("encoder", "decoder")


def parameters(model: ImageVAE, clients: int = CLIENTS) -> dict[str, Tensor]:
    """Parameters of each client's own, large enough that some log-variances are cut off."""
    start = initialise(model, Rng(1))
    generator = torch.Generator().manual_seed(2)
    return {
        part: flat.double() + 0.2 * torch.randn(clients, len(flat), generator=generator, dtype=torch.float64)
        for part, flat in start.items()
    }


def step_of(model: ImageVAE, trained: tuple[str, ...] = PARTS, clients: int = CLIENTS) -> LocalStep:
    generator = torch.Generator().manual_seed(3)
    flat = parameters(model, clients)
    fixed = {part: flat[part][0] for part in flat if part not in trained}
    shape = (clients, BATCH, model.channels, model.side, model.side)
    batch = {
        "x": torch.rand(*shape, generator=generator).double(),
        "y": torch.randint(model.classes, (clients, BATCH), generator=generator),
        "weight": torch.tensor([1.0, 1.0, 0.0, 1.0]).double().expand(clients, BATCH),
    }
    noise = torch.randn(clients, BATCH, LATENT, generator=generator).double()
    ids = torch.arange(clients).numpy()
    return LocalStep({part: flat[part] for part in trained}, fixed, batch, noise, ids, Rng(1))


def both_ways(model: ImageVAE, step: LocalStep):
    """Gradients and losses by the stack and by vmap."""
    loss = loss_of(model, "elbo")
    return plain_gradient(loss, step), plain_gradient(lambda *given: loss(*given), step)


@pytest.mark.parametrize(("channels", "side"), SHAPES)
def test_a_stack_has_the_losses_and_gradients_of_its_clients(channels, side):
    model = ImageVAE(channels, side, classes=3, latent=LATENT, width=4, beta=0.7)
    (ours, losses), (theirs, expected) = both_ways(model, step_of(model))
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(ours, theirs)


def test_some_log_variances_of_these_tests_are_cut_off():
    model = ImageVAE(1, 28, classes=3, latent=LATENT, width=4)
    step = step_of(model)
    params = {part: layouts(model)[part].split(flat[0]) for part, flat in step.trained.items()}
    label = torch.nn.functional.one_hot(step.batch["y"][0], 3).double()
    encoder = model.parts["encoder"]
    outputs = torch.func.functional_call(encoder, params["encoder"], (step.batch["x"][0], label))
    cut = outputs.chunk(2, -1)[1].abs() > 10
    assert cut.any() and not cut.all()


@pytest.mark.parametrize("trained", [("encoder",), ("decoder",)])
def test_a_part_that_all_clients_share_stays_as_it_is(trained):
    model = ImageVAE(1, 8, classes=3, latent=LATENT, width=4)
    (ours, losses), (theirs, expected) = both_ways(model, step_of(model, trained))
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(ours, theirs)


def test_a_client_alone_has_the_gradient_that_it_has_in_a_stack():
    model = ImageVAE(1, 8, classes=3, latent=LATENT, width=4)
    whole = step_of(model)
    gradients, losses = plain_gradient(loss_of(model, "elbo"), whole)
    for client in range(CLIENTS):
        own = slice(client, client + 1)
        trained = {part: flat[own] for part, flat in whole.trained.items()}
        batch = {name: value[own] for name, value in whole.batch.items()}
        alone = LocalStep(trained, {}, batch, whole.noise[own], whole.ids[own], Rng(1))
        got, loss = plain_gradient(loss_of(model, "elbo"), alone)
        torch.testing.assert_close(loss, losses[own])
        torch.testing.assert_close(got, {part: flat[own] for part, flat in gradients.items()})


def test_clients_that_begin_with_the_same_parameters_need_no_copies():
    model = ImageVAE(1, 8, classes=3, latent=LATENT, width=4)
    step = step_of(model)
    for part, flat in step.trained.items():
        step.trained[part] = flat[:1].expand(CLIENTS, -1)
    (ours, _), (theirs, _) = both_ways(model, step)
    torch.testing.assert_close(ours, theirs)
    assert all(flat.shape == (CLIENTS, total_size(model, (part,))) for part, flat in ours.items())


def test_the_deeper_network_is_left_to_vmap():
    model = ImageVAE(1, 8, classes=2, latent=LATENT, width=0, deep=(2, 4))
    step = step_of(model)
    assert loss_of(model, "elbo").of_clients(step.trained, {}, step.batch, step.noise) is None
