"""Every recipe over every transport: it runs and opens the very sum of what clients sent, or is refused when built."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsynth.data.schema import Schema
from fedsynth.errors import FedsynthError
from fedsynth.federation.loop import gather, learn_balance
from fedsynth.recipes.registry import RECIPES, recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.transport.clear import Clear
from fedsynth.transport.registry import TRANSPORTS
from samples import KINDS, LOCAL, MOMENTS, SMALL

PLAIN = Clear(carries=("real", "ring", "signed-index", "answers", "bits"))
CLIENTS = 10
GIVEN = {
    **SMALL,
    **MOMENTS,
    **LOCAL,
    "rounds": 2,
    "noise_multiplier": 1.0,
    "records": 38,
    "decoder_noise": 1.0,
}
# who may take part, and what a server that only averages may do: what blind transports ask for
ASKED = {"rate": 1.0, "momentum": 0.0, "server": "momentum", "server_learning_rate": 1.0}

# by trust: transports that carry a recipe; the reasons of the others are looked at below
CARRIED = {
    "central": {"clear"},
    "local": {"clear", "he", "he-open", "he-ckks"},
    "distributed": {"secagg", "he-open"},
}
NEVER = {
    "dp_fed_wae": {"he", "he-open", "he-ckks"},  # one signed index is no vector
    "dp_fedavg_gan": {"he", "he-ckks"},  # a generator at the server needs to see the critic
    **dict.fromkeys(("calm", "lopub", "locop"), {"he", "he-open", "he-ckks"}),  # nor are answers and bits
    "marginals": {"he", "he-ckks"},  # the next question needs to see the last answer
    "privbayes": {"he", "he-ckks"},
    "histories": {"he", "he-ckks"},
    "mixture": {"he", "he-ckks"},
}
WITHOUT_CLAIM = ("dpd_fvae_local_published",)
ROWS = [
    (name, unit, trust, transport)
    for name, recipe in RECIPES.items()
    for unit, trust in recipe.offers
    for transport in TRANSPORTS
]


def expected_to_run(name: str, trust: str, transport: str) -> bool:
    pooled = recipe_named(name).pooled
    by_batch = pooled and name in ("central_vae", "dp_gan")  # noise in the plan, nothing at the server
    carried = CARRIED["local"] if by_batch else CARRIED[trust]
    return transport in carried - NEVER.get(name, set())


def built(name: str, unit: str, trust: str, transport: str):
    recipe = recipe_named(name)
    kind = recipe.kinds[0]
    known = recipe.arguments()
    values = {key: value for key, value in {**GIVEN, **ASKED}.items() if key in known}
    task = recipe.task(
        Schema.from_dict(KINDS[kind]),
        1 if recipe.pooled else CLIENTS,
        private=name not in WITHOUT_CLAIM,
        unit=unit,
        trust=trust,
        transport=transport,
    )
    return recipe.build(task, recipe.values(values)), kind


def first_sum(algorithm, clients, transport):
    """What the first round opens, summed up by this transport."""
    rng, quiet = Rng(3), lambda *_: None
    link = InProcess(clients.pooled() if recipe_named(algorithm.name).pooled else clients, rng)
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, quiet)
    heard = gather(algorithm, algorithm.schedule, transport, link, state, rng)
    assert heard is not None
    return transport.open(algorithm.wire, heard.total), heard.clients


@pytest.mark.parametrize(("name", "unit", "trust", "transport"), ROWS)
def test_it_runs_with_the_plain_sum_or_is_refused_with_the_reason(name, unit, trust, transport, ten):
    if not expected_to_run(name, trust, transport):
        with pytest.raises(FedsynthError) as refused:
            built(name, unit, trust, transport)
        assert name in str(refused.value) or transport in str(refused.value)
        return
    algorithm, kind = built(name, unit, trust, transport)
    assert algorithm.transport.name == transport
    found, count = first_sum(algorithm, ten[kind], algorithm.transport)
    plain, again = first_sum(algorithm, ten[kind], PLAIN)
    assert count == again > 0
    if algorithm.transport.blind:
        plain = plain / count
    assert float(plain.to(torch.float64).abs().max()) > 0
    off = float((found.to(torch.float64) - plain.to(torch.float64)).abs().max())
    assert off < 1e-6 if transport == "he-ckks" else off == 0.0


def test_the_table_has_every_recipe_and_every_transport():
    assert {row[0] for row in ROWS} == set(RECIPES) and {row[3] for row in ROWS} == set(TRANSPORTS)
    running = [row for row in ROWS if expected_to_run(row[0], row[2], row[3])]
    assert {row[3] for row in running} == set(TRANSPORTS)


def test_masked_and_open_sums_train_the_same_model(ten):
    algorithm, kind = built("site_vae", "record", "distributed", "secagg")
    opened = [replace(algorithm, transport=transport) for transport in (algorithm.transport, PLAIN)]
    first, second = (first_sum(one, ten[kind], one.transport)[0] for one in opened)
    assert np.array_equal(first.numpy(), second.numpy())
