"""Record-level autoencoders: agreement of chunk sizes, whose ledger pays, and the published one's statement."""

import pytest
import torch

from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import NotPrivate
from fedsynth.federation.loop import learn_balance, run
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import TABLE

SMALL = {"latent": 3, "hidden": (5,), "rounds": 2, "noise_multiplier": 1.0, "usual_records": 4}
SOUND = ["fvae_record", "dpd_fvae_record"]


def built(name, private=True):
    recipe = recipe_named(name)
    task = recipe.task(Schema.from_dict(TABLE), 10, private=private, unit=None, trust=None, transport=None)
    known = recipe.arguments()
    return recipe.build(task, recipe.values({key: value for key, value in SMALL.items() if key in known}))


def finished(algorithm, clients, chunk):
    rng = Rng(1)
    link = InProcess(clients, rng, chunk=chunk)
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
    return run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, algorithm.rounds)


@pytest.mark.parametrize(
    ("name", "private"), [(SOUND[0], True), (SOUND[1], True), ("dpd_fvae_local_published", False)]
)
def test_the_chunk_size_changes_nothing_in_the_final_model(name, private, ten):
    algorithm = built(name, private)
    whole = finished(algorithm, ten["table"], 10)
    pieces = finished(algorithm, ten["table"], 3)
    for part in whole.parts:
        torch.testing.assert_close(pieces.parts[part], whole.parts[part], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SOUND)
def test_each_client_pays_for_its_records_itself(name, frame):
    asked = {key: value for key, value in SMALL.items() if key not in ("rounds", "noise_multiplier")}
    made = Synthesizer(name, Schema.from_dict(TABLE), epsilon=6, delta=1e-3, rounds=2, **asked)
    claim = made.fit(clients_from(frame, client_column="owner")).privacy
    assert claim.private and (claim.unit, claim.trust) == ("record", "local")
    assert claim.epsilon is not None and 5 < claim.epsilon <= 6


def test_the_published_one_promises_nothing(frame):
    schema, clients = Schema.from_dict(TABLE), clients_from(frame, client_column="owner")
    with pytest.raises(NotPrivate, match="no record-level guarantee"):
        Synthesizer("dpd_fvae_local_published", schema, epsilon=10, delta=1e-3).fit(clients)
    claim = (
        Synthesizer("dpd_fvae_local_published", schema, private=False, rounds=2, decoder_noise=1.0)
        .fit(clients)
        .privacy
    )
    assert not claim.private and claim.epsilon is None
    assert "no record-level guarantee" in claim.text
