"""Sums of record gradients at a site, and what an empty site adds: its whole share of the noise."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Clients
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.training.record_sums import _uniforms

SMALL = {"hidden": (8,), "latent": 2, "noise_multiplier": 1.0, "rounds": 3}
RARELY = {"records": 100_000, "batch_size": 1}  # every site's batch is empty


def built(name, schema, unit, **values):
    recipe = recipe_named(name)
    return recipe.build(recipe.task(schema, 6, unit=unit, trust="distributed"), {**SMALL, **values})


def noise_in_steps(algorithm, job, clients, seeds):
    """All numbers that the clients send, as signed integers, over so many draws of the noise."""
    state = algorithm.init(Rng(1))
    found = []
    for seed in range(seeds):
        link = InProcess(clients, Rng(seed), chunk=1)
        link.start(job, np.arange(len(clients)), state)
        found += [job.wire.centered(link.next().messages.to(torch.int64)) for _ in range(len(clients))]
    return torch.cat(found)


@pytest.mark.parametrize(
    ("name", "unit", "values"),
    [("site_vae", "record", RARELY), ("site_vae", "client", {}), ("dpd_fvae", "client", {"rate": 0.1})],
)
def test_a_site_with_an_empty_batch_adds_its_whole_share_of_the_noise(name, unit, values, schema, ten):
    algorithm = built(name, schema, unit, **values)
    whole, empty = ten["table"], Clients(ten["table"].x[:0], ten["table"].y[:0], np.zeros(2, dtype=np.int64))
    clients = whole if values is RARELY else empty
    sent = noise_in_steps(algorithm, algorithm, clients, 1)
    assert algorithm.wire.share > 3
    for row in sent:
        assert float(row.std()) == pytest.approx(algorithm.wire.share, rel=0.1)


@pytest.mark.parametrize(
    ("name", "unit"), [("site_vae", "record"), ("site_vae", "client"), ("dpd_fvae", "client")]
)
def test_a_site_without_rows_answers_a_question_with_its_whole_share_of_the_noise(name, unit, schema, ten):
    algorithm = built(name, schema, unit, **({"records": 100} if name == "site_vae" else {}))
    nobody = Clients(ten["table"].x[:0], ten["table"].y[:0], np.zeros(2, dtype=np.int64))
    sent = noise_in_steps(algorithm, algorithm.opening, nobody, 400)
    assert float(sent.std()) == pytest.approx(algorithm.opening.wire.share, rel=0.1)


@dataclass(frozen=True)
class LateBits(Rng):
    """A source of bytes of which the last alone is chosen."""

    last: int = 0

    def at(self, *key):
        return self

    def bytes(self, count):
        return bytes(count - 1) + bytes([self.last])


def test_rounding_numbers_depend_on_more_than_a_seed_that_can_be_guessed():
    first, second = (_uniforms((2, 50), torch.device("cpu"), LateBits(last=last), 0) for last in (1, 2))
    assert not torch.equal(first, second)
    assert bool(((first >= 0) & (first < 1)).all())
