"""A client that holds nothing the run asks for takes part like any other and adds nothing."""

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Clients
from fedsynth.rng import Rng

CASES = [
    ("fvae", "table"),
    ("dpd_fvae", "image"),
    ("fed_vae", "table"),
    ("dp_fedavg_gan", "table"),
    ("dp_fedavg_gan", "image"),
    ("moment_vae", "image"),
    ("dp_fedavg_lm", "text"),
]


@pytest.fixture(params=CASES, ids="-".join)
def case(request, build, ten):
    name, kind = request.param
    held = ten[kind]
    middle = int(held.offsets[5])
    silent = Clients(held.x[:middle], held.y[:middle], np.minimum(held.offsets, middle))
    return build(name, kind, private=True, clients=10), silent


def test_a_client_without_rows_sends_zeros_and_remembers_nothing(case):
    algorithm, clients = case
    state = algorithm.init(Rng(3))
    ids = np.arange(10)
    blank = {name: value.expand(10, -1) for name, value in algorithm.blank(state).items()}
    sent, kept = algorithm.client_round(state, blank, clients.gather(ids), ids, Rng(1))
    assert sent[clients.sizes > 0].abs().sum(1).min() > 0
    assert sent[clients.sizes == 0].abs().max() == 0
    for name, value in kept.items():
        assert torch.equal(value[clients.sizes == 0], blank[name][clients.sizes == 0]), name


def test_a_client_without_rows_answers_no_question(case):
    algorithm, clients = case
    if algorithm.opening is None:
        pytest.skip("this recipe asks nothing before training")
    answers, _ = algorithm.opening.client_round(
        algorithm.init(Rng(3)), {}, clients.gather(np.arange(10)), np.arange(10), Rng(1)
    )
    assert answers[clients.sizes > 0].abs().sum(1).min() > 0
    assert answers[clients.sizes == 0].abs().max() == 0
