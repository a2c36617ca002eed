"""moment_vae: the same result however clients are stacked, its ledger by unit, and what it refuses."""

import numpy as np
import pytest
import torch

from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.loop import learn_balance, run
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import IMAGE, TABLE

SMALL = {"frequencies": 12, "latent": 4, "width": 2, "rounds": 3, "noise_multiplier": 1.0, "usual_records": 4}
PAIRS = [("client", "central"), ("client", "local"), ("record", "local")]


def built(unit, trust, private=True, clients=10, **changes):
    recipe = recipe_named("moment_vae")
    task = recipe.task(
        Schema.from_dict(IMAGE), clients, private=private, unit=unit, trust=trust, transport=None
    )
    return recipe.build(task, recipe.values({**SMALL, **changes}))


def finished(algorithm, clients, chunk):
    rng = Rng(1)
    link = InProcess(clients, rng, chunk=chunk)
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
    return run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, algorithm.rounds)


@pytest.mark.parametrize(("unit", "trust"), PAIRS)
def test_the_chunk_size_changes_nothing_in_the_final_model(unit, trust, ten):
    algorithm = built(unit, trust)
    whole = finished(algorithm, ten["image"], 10)
    for chunk in (1, 3):
        pieces = finished(algorithm, ten["image"], chunk)
        for part in whole.parts:
            torch.testing.assert_close(pieces.parts[part], whole.parts[part], rtol=1e-3, atol=1e-4)


def images(count=60):
    draw = np.random.default_rng(1)
    pixels = draw.integers(0, 256, (count, 8, 8), dtype=np.uint8)
    return RawClients(
        np.repeat(np.arange(20), count // 20),
        20,
        (),
        (pixels, draw.integers(0, 2, count).astype(str)),
    )


@pytest.mark.parametrize(("unit", "trust"), PAIRS)
def test_the_statement_is_about_what_was_asked_for(unit, trust):
    skipped = ("rounds", "noise_multiplier", *(("usual_records",) if unit == "client" else ()))
    small = {name: value for name, value in SMALL.items() if name not in skipped}
    made = Synthesizer(
        "moment_vae",
        Schema.from_dict(IMAGE),
        epsilon=5,
        delta=1e-3,
        rounds=2,
        unit=unit,
        trust=trust,
        **small,
    ).fit(images())
    claim = made.privacy
    assert claim.private and claim.unit == unit and claim.trust == trust
    assert claim.epsilon is not None and 4 < claim.epsilon <= 5
    assert {release["what"] for release in claim.releases} >= {"class moments"}


def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path):
    asked = {
        name: value for name, value in SMALL.items() if name not in ("noise_multiplier", "usual_records")
    }

    class Stop(Exception):
        pass

    def stop(done, *_):
        if done.version == 2:
            raise Stop

    def fresh():
        return Synthesizer("moment_vae", Schema.from_dict(IMAGE), epsilon=5, delta=1e-3, seed=3, **asked)

    straight = fresh().fit(images()).sample(5, seed=1)
    broken = fresh()
    with pytest.raises(Stop):
        broken.fit(images(), folder=tmp_path / "run", watch=stop)
    resumed = broken.resume(images(), tmp_path / "run").sample(5, seed=1)
    assert np.array_equal(straight[0], resumed[0]) and np.array_equal(straight[1], resumed[1])


@pytest.mark.parametrize("private", [True, False])
def test_a_class_that_nobody_has_is_named(private):
    draw = np.random.default_rng(1)
    pixels = draw.integers(0, 256, (600, 8, 8), dtype=np.uint8)
    only = RawClients(np.repeat(np.arange(300), 2), 300, (), data=(pixels, np.full(600, "1")))
    asked = {"epsilon": 50.0, "delta": 1e-4} if private else {"private": False}
    with pytest.raises(BadInput, match="class '0'.*leave the class out"):
        Synthesizer("moment_vae", Schema.from_dict(IMAGE), seed=1, rounds=1, frequencies=6, **asked).fit(only)


def test_tables_are_refused():
    recipe = recipe_named("moment_vae")
    with pytest.raises(Incompatible, match="images"):
        recipe.build(recipe.task(Schema.from_dict(TABLE), 10, private=True, unit=None, trust=None, transport=None),
                     recipe.values(SMALL))  # fmt: skip
