"""One code path: however clients are stacked, each recipe computes the same."""

import numpy as np
import pytest
import torch

from fedsynth.federation.loop import learn_balance, run
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess

CASES = [
    (name, kind, private)
    for name in ("central_vae", "fvae", "dpd_fvae", "fed_vae", "dp_fed_wae", "dp_fedavg_gan")
    for kind in ("table", "image")
    for private in (True, False)
    if private or kind == "table"
] + [("dp_fedavg_lm", "text", True), ("marginals", "table", True), ("marginals", "table", False)]
CASES += [("mixture", "image", True), ("mixture", "image", False)]
CASES += [
    (name, "table", private) for name in ("privbayes", "calm", "lopub", "locop") for private in (True, False)
]
IDS = np.arange(10)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{'private' if case[2] else 'plain'}")
def case(request, build, ten):
    name, kind, private = request.param
    clients = 1 if name == "central_vae" else 10
    # plain steps at the encoder: Adam would turn rounding errors of vanishing gradients into whole steps; where there
    # is no choice, at the generator, into small ones
    plain = {"encoder_optimizer": "sgd", "optimizer": "sgd", "generator_learning_rate": 1e-6}
    return build(name, kind, private=private, clients=clients, **plain), ten[kind]


def one_round(algorithm, clients, size):
    """Messages and memories of ten clients, computed in chunks of `size`."""
    state = algorithm.init(Rng(3))
    messages, memories = [], []
    for start in range(0, 10, size):
        ids = IDS[start : start + size]
        blank = {name: value.expand(len(ids), -1) for name, value in algorithm.blank(state).items()}
        sent, kept = algorithm.client_round(state, blank, clients.gather(ids), ids, Rng(1))
        messages.append(sent)
        memories.append(kept)
    kept = {name: torch.cat([memory[name] for memory in memories]) for name in memories[0]}
    stacked = torch.cat(messages)
    return (stacked.sum(0, keepdim=True) if algorithm.together else stacked), kept


def test_ten_clients_in_one_chunk_are_ten_clients_one_by_one(case):
    algorithm, clients = case
    together, kept = one_round(algorithm, clients, 10)
    assert together.abs().max() > 1e-4
    for size in (1, 3):
        messages, memory = one_round(algorithm, clients, size)
        torch.testing.assert_close(messages, together, rtol=1e-4, atol=4e-6)
        for name in kept:
            torch.testing.assert_close(memory[name], kept[name], rtol=1e-4, atol=4e-6)


def finished(algorithm, clients, chunk):
    held = clients.pooled() if algorithm.name == "central_vae" else clients
    rng = Rng(1)
    link = InProcess(held, rng, chunk=chunk)
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
    return run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, algorithm.rounds)


def test_the_chunk_size_changes_nothing_in_the_final_model(case):
    algorithm, clients = case
    whole = finished(algorithm, clients, 10)
    for chunk in (1, 3):
        pieces = finished(algorithm, clients, chunk)
        for part in whole.parts:
            torch.testing.assert_close(pieces.parts[part], whole.parts[part], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(pieces.balance, whole.balance, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["fvae", "dpd_fvae", "central_vae", "fed_vae", "dp_fed_wae", "marginals"])
def test_the_same_seed_gives_the_same_bits(name, build, ten):
    algorithm = build(name, clients=1 if name == "central_vae" else 10)
    first, second = (finished(algorithm, ten["table"], 3) for _ in range(2))
    assert all(torch.equal(first.parts[part], second.parts[part]) for part in first.parts)


@pytest.mark.parametrize("name", ["fvae", "dpd_fvae", "fed_vae", "marginals"])
def test_messages_lie_on_the_grid_of_the_noise(name, build, ten):
    algorithm = build(name)
    messages, _ = one_round(algorithm, ten["table"], 10)
    steps = messages.double() / algorithm.mechanism.clip.step
    assert torch.equal(steps, steps.round())


@pytest.mark.parametrize("name", ["fvae", "dpd_fvae", "central_vae", "fed_vae"])
def test_adam_at_the_clients_agrees_between_chunk_sizes_too(name, build, ten):
    algorithm = build(name, private=False, optimizer="adam", encoder_optimizer="adam", learning_rate=1e-3)
    together, _ = one_round(algorithm, ten["table"], 10)
    apart, _ = one_round(algorithm, ten["table"], 1)
    assert (together - apart).abs().max() < 2e-4
